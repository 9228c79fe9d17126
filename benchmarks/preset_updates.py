"""What a step of training costs with the presets of `solve` for real-valued actions, by form.

    .venv/bin/python -m benchmarks.preset_updates
    .venv/bin/python -m benchmarks.preset_updates --presets sac_sphere --repeats 1

An update per env step, on one thread. Milliseconds of CPU time a step after the warm-up and the
first updates, which compile: what other processes do counts less than in seconds. The median of the
repeats, and the ratio of the forms. Prints a table; notes.md has what was seen.
"""

import argparse
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any

from gymnasium_solver.bench.harness import say, table
from gymnasium_solver.training.choose import presets
from gymnasium_solver.training.loop import train
from gymnasium_solver.training.observer import Observer
from gymnasium_solver.training.prepare import build_config

PRESETS, FORMS = ("sac_batch_norm", "sac_sphere", "sac_goals", "dqn"), ("native", "numpy")
OTHER_ENVS = {"dqn": "CartPole-v1", "sac_goals": "FetchReach-v4"}  # presets for other spaces
RANDOM, FROM, STEPS = 400, 900, 2_200  # env steps: before learning, before measuring, in all


class Clock(Observer):
    def __init__(self) -> None:
        self.rows: list[tuple[int, float]] = []

    def on_epoch(self, row: dict[str, Any]) -> None:
        if row["env_steps"] >= FROM:
            self.rows.append((row["env_steps"], time.process_time()))


def step_ms(preset: str, env_id: str, form: str) -> float:
    fields = {**presets()[preset], "env_id": env_id, "compile": form, "seed": 1, "gamma": 0.99}
    fields |= {"max_env_steps": STEPS, "eval_freq_epochs": None, "test_episodes": 1}
    fields |= {"learning_starts": RANDOM, "train_freq": 1, "updates_per_step": 1.0}
    clock = Clock()
    with tempfile.TemporaryDirectory() as folder:
        train(build_config(fields), runs_root=Path(folder), observers=[clock])
    (first, before), (last, after) = clock.rows[0], clock.rows[-1]
    return 1e3 * (after - before) / (last - first)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--presets", nargs="+", default=PRESETS)
    parser.add_argument("--env", default="Pendulum-v1", help="of the presets for it")
    parser.add_argument("--repeats", type=int, default=3)
    args = parser.parse_args()
    rows = []
    for preset in args.presets:
        env_id = OTHER_ENVS.get(preset, args.env)
        found = {
            form: median(step_ms(preset, env_id, form) for _ in range(args.repeats))
            for form in FORMS
        }
        ratio = found["numpy"] / found["native"]
        rows.append((preset, env_id, *(f"{found[f]:.2f}" for f in FORMS), f"{ratio:.2f}"))
        say(" ".join(rows[-1]))
    print(table(("preset", "env", "C, ms a step", "NumPy", "ratio"), rows))


if __name__ == "__main__":
    main()
