"""Where the time of a training with replay goes, section by section.

    .venv/bin/python -m benchmarks.profile_updates

Trains the configs of the off_policy benchmark in this process, on one thread, with a clock around
the parts of the loop; start-up and random warm-up are left out. Every moment counts for the
innermost part that runs, so shares add up to 1. The clock costs a microsecond or two a part. Raw
figures go to results/profile.json, the table to results/profile.md.
"""

import argparse
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

from benchmarks.harness import ROOT, Meter, describe, header, say, table, write
from benchmarks.off_policy import CASES
from benchmarks.peers.off_policy import WARM_STEPS
from gymnasium_solver.algos import algo_class
from gymnasium_solver.algos.batch import Batch
from gymnasium_solver.algos.off_policy import OffPolicyLearner
from gymnasium_solver.config.load import load_config
from gymnasium_solver.config.schema import Config
from gymnasium_solver.data.memory import Memory
from gymnasium_solver.envs.journal import JournaledEnv
from gymnasium_solver.nets.optimizer import FlatOptimizer
from gymnasium_solver.nets.policy import Policy
from gymnasium_solver.nets.recorded import LossGradient
from gymnasium_solver.training.loop import train
from gymnasium_solver.training.observer import Observer

STEPS = {"dqn": 20_000, "sac": 3_000}
LOOP, UPDATE, SAMPLE = "rest of the loop", "rest of the update", "sample from the replay"
PARTS: list[tuple[type, str, str]] = [
    (JournaledEnv, "step", "env"),
    (Policy, "sample", "act"),
    (Policy, "to_env", "act"),
    (Memory, "add", "store in the replay"),
    (Batch, "of", SAMPLE),
    (LossGradient, "__call__", "loss and gradient"),
    (FlatOptimizer, "step", "optimiser"),
    (OffPolicyLearner, "update_target", "target network"),
]
ORDER = [*dict.fromkeys(name for *_, name in PARTS), UPDATE, LOOP]


class Clock:
    """Seconds by section; the innermost that runs is charged."""

    def __init__(self, now: Callable[[], float] = time.perf_counter) -> None:
        self.seconds: dict[str, float] = defaultdict(float)
        self._now, self._open, self._last = now, [LOOP], now()

    def charge(self) -> None:
        now = self._now()
        self.seconds[self._open[-1]] += now - self._last
        self._last = now

    def enter(self, name: str) -> None:
        self.charge()
        self._open.append(name)

    def leave(self) -> None:
        self.charge()
        self._open.pop()

    def around(self, function: Callable[..., Any], name: str) -> Callable[..., Any]:
        def timed(*args: Any, **kwargs: Any) -> Any:
            self.enter(name)
            try:
                return function(*args, **kwargs)
            finally:
                self.leave()

        return timed

    def around_each(self, function: Callable[..., Any], name: str) -> Callable[..., Any]:
        """As `around`, for a function that gives an iterator: the time to get each item."""
        end = object()

        def timed(*args: Any, **kwargs: Any) -> Iterator[Any]:
            take = self.around(partial(next, function(*args, **kwargs), end), name)
            while (item := take()) is not end:
                yield item

        return timed


@contextmanager
def watched(clock: Clock, algo_id: str) -> Iterator[None]:
    """The parts of the loop, timed until the end of the block."""
    with ExitStack() as stack:

        def patch(owner: type, method: str, wrapped: Callable[..., Any]) -> None:
            stack.enter_context(mock.patch.object(owner, method, wrapped))

        for owner, method, name in PARTS:
            patch(owner, method, clock.around(getattr(owner, method), name))
        patch(Memory, "batches", clock.around_each(Memory.batches, SAMPLE))
        learner = algo_class(algo_id)
        patch(learner, "update", clock.around(learner.update, UPDATE))
        yield


class Span(Observer):
    """Env steps and seconds by section, at the end of the warm-up and now."""

    def __init__(self, clock: Clock, warm_steps: int):
        self.clock, self.warm_steps = clock, warm_steps
        self.start: tuple[int, dict[str, float]] | None = None
        self.end: tuple[int, dict[str, float]] = (0, {})

    def on_epoch(self, row: dict[str, Any]) -> None:
        self.clock.charge()
        self.end = (row["env_steps"], dict(self.clock.seconds))
        if self.start is None and row["env_steps"] >= self.warm_steps:
            self.start = self.end


def profile(config: Config, warm_steps: int) -> dict[str, Any]:
    """Microseconds an env step by section, after the warm-up."""
    clock = Clock()
    span = Span(clock, warm_steps)
    with tempfile.TemporaryDirectory() as runs_dir, watched(clock, config.algo_id):
        train(config, runs_root=Path(runs_dir), observer=span)
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
    head, rows, rates = ["part"], [[name] for name in ORDER], ["steps/s with the clock"]
    for algo, found in result["profiles"].items():
        us, total = found["us_a_step"], sum(found["us_a_step"].values())
        head += [f"{CASES[algo].title}, µs a step", "share"]
        rates += [f"{found['steps_per_s']:,.0f}", ""]
        for row in rows:
            row += [f"{us[row[0]]:,.0f}", f"{us[row[0]] / total:.1%}"]
    others = result["others_cores"]
    return "\n\n".join(
        [
            "# Where the time goes",
            describe(result),
            "Training on one thread after the warm-up, the hyper-parameters of the off_policy "
            "benchmark. Every moment counts for the innermost part that runs. Others used "
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
    parser.add_argument("--only", nargs="+", choices=CASES, default=list(CASES), metavar="ALGO")
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
