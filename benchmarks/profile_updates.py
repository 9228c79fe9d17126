"""Where the time of a training goes, section by section.

    .venv/bin/python -m benchmarks.profile_updates

Trains the configs of the training benchmark in this process, on one thread, with the clock of
`gsolve train --profile` (gymnasium_solver/timing.py), but without start-up and random warm-up. Raw
figures go to results/profile.json, the table to
results/profile.md.
"""

import argparse
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.peers.zoo import WARM_STEPS
from benchmarks.training import CASES
from gymnasium_solver.bench.harness import ROOT, Meter, describe, header, say, table, write
from gymnasium_solver.config.schema import Config
from gymnasium_solver.timing import REST, Timer
from gymnasium_solver.training.loop import train
from gymnasium_solver.training.observer import Observer
from gymnasium_solver.training.prepare import load_config
from gymnasium_solver.training.profile import UPDATE_PARTS, UPDATE_REST

STEPS = {"ppo": 100_000, "dqn": 20_000, "sac": 3_000}
ORDER = ["env", "act", "store", *UPDATE_PARTS, UPDATE_REST, "log", REST]


class Span(Observer):
    """Env steps and seconds by section, at the end of the warm-up and now."""

    def __init__(self, clock: Timer, warm_steps: int):
        self.clock, self.warm_steps = clock, warm_steps
        self.start: tuple[int, dict[str, float]] | None = None
        self.end: tuple[int, dict[str, float]] = (0, {})

    def on_epoch(self, row: dict[str, Any]) -> None:
        self.clock.charge()
        seconds = dict(self.clock.seconds)
        self.end = (row["env_steps"], seconds | {UPDATE_REST: seconds.pop("update")})
        if self.start is None and row["env_steps"] >= self.warm_steps:
            self.start = self.end


def profile(config: Config, warm_steps: int) -> dict[str, Any]:
    """Microseconds an env step by section, after the warm-up."""
    clock = Timer(detailed=True)
    span = Span(clock, warm_steps)
    with tempfile.TemporaryDirectory() as runs_dir:
        train(config, runs_root=Path(runs_dir), observers=[span], timer=clock)
    if span.start is None or span.end[0] == span.start[0]:
        raise ValueError(
            f"{config.env_id}:{config.algo_id} ended at {span.end[0]:,} env steps, but an epoch "
            f"after the warm-up of {warm_steps:,} is needed: raise max_env_steps or lower n_steps."
        )
    (first, before), (last, after) = span.start, span.end
    n_steps = last - first
    us = {k: 1e6 * (after.get(k, 0.0) - before.get(k, 0.0)) / n_steps for k in ORDER}
    return {"env_steps": n_steps, "us_a_step": us, "steps_per_s": 1e6 / sum(us.values())}


def markdown(result: dict[str, Any]) -> str:
    profiles = [found["us_a_step"] for found in result["profiles"].values()]
    names = [name for name in ORDER if any(name in us for us in profiles)]  # older ones lack `log`
    head, rows, rates = ["part"], [[name] for name in names], ["steps/s with the clock"]
    for algo, found in result["profiles"].items():
        us, total = found["us_a_step"], sum(found["us_a_step"].values())
        head += [f"{CASES[algo].title}, µs per step", "share"]
        rates += [f"{found['steps_per_s']:,.0f}", ""]
        for row in rows:
            part_us = us.get(row[0], 0.0)
            row += [f"{part_us:,.0f}", f"{part_us / total:.1%}"]
    others = result["others_cores"]
    return "\n\n".join(
        [
            "# Where the time goes",
            describe(result),
            "Training on one thread after the warm-up, the hyper-parameters of the training "
            "benchmark. Time is attributed to the innermost part that runs. Other processes used "
            f"{'an unknown number of' if others is None else f'{others:.1f}'} cores meanwhile.",
            table(head, [*rows, rates]),
        ]
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="profile_updates.py",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--only", nargs="+", choices=STEPS, default=list(STEPS), metavar="ALGO")
    parser.add_argument("--out", type=Path, default=ROOT / "benchmarks/results")
    args = parser.parse_args()
    result: dict[str, Any] = header("python -m benchmarks.profile_updates") | {"profiles": {}}
    meter = Meter()
    for algo in args.only:
        say(f"profile: {CASES[algo].title}")
        config = load_config(CASES[algo].config)
        config = config.replace(seed=1, n_threads=1, quiet=True, max_env_steps=STEPS[algo])
        result["profiles"][algo] = profile(config, WARM_STEPS[algo])
    result["others_cores"] = meter.read()[1]
    text = markdown(result)
    write(args.out, "profile", result, text)
    print(text)


if __name__ == "__main__":
    main()
