"""What videos cost a training run: seconds of training with `video` off, best and every_eval.

A process of its own records, so the cost is what it takes from the cores that training uses. The
settings take turns in each repeat. Training time ends before the run waits for its last video.
"""

import json
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from gymnasium_solver.bench.harness import GSOLVE, Options, say, spread, table, timed

WHEN = ("off", "best", "every_eval")
ENV_STEPS = {"CartPole-v1:ppo": 300_000, "LunarLander-v3:ppo": 150_000}
QUICK = {"CartPole-v1:ppo": 4_000}


def measure(options: Options) -> list[dict[str, Any]]:
    """One row per config and setting."""
    rows: list[dict[str, Any]] = [
        {"config": config, "env_steps": env_steps, "video": when}
        | {"training_s": [], "whole_s": [], "n_videos": [], "others_cores": 0.0}
        for config, env_steps in (QUICK if options.quick else ENV_STEPS).items()
        for when in WHEN
    ]
    say(f"video: {len(rows)} runs, {options.repeats} times each")
    for repeat in range(options.repeats):
        for row in rows:
            _run(row, seed=1 + repeat)
    return rows


def _run(row: dict[str, Any], seed: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        command = [
            *(GSOLVE, "train", row["config"], "-q", f"--seed={seed}", f"--runs-dir={folder}"),
            *(f"--max-env-steps={row['env_steps']}", f"--video={row['video']}"),
            *("--early-stop-on-eval-threshold=null", "--test-episodes=1"),
        ]
        # One thread, as small networks have it anyway: the other cores are free.
        done = timed(command, n_threads=1)
        run = next(path.parent for path in Path(folder).glob("*/meta.json"))
        row["training_s"].append(json.loads((run / "meta.json").read_text())["wall_s"])
        row["whole_s"].append(done.wall_s)
        row["n_videos"].append(len([p for p in (run / "videos").iterdir() if p.is_file()]))
        row["others_cores"] = max(row["others_cores"], done.others_cores)


def sections(rows: list[dict[str, Any]]) -> list[str]:
    base = {row["config"]: np.median(row["training_s"]) for row in rows if row["video"] == "off"}
    cells = [
        (
            row["config"],
            row["video"],
            spread(row["training_s"], 1),
            f"{np.median(row['training_s']) / base[row['config']]:.2f}",
            f"{np.median(row['n_videos']):.0f}",
            spread(row["whole_s"], 1),
        )
        for row in rows
    ]
    steps = ", ".join(dict.fromkeys(f"{r['config']} {r['env_steps']:,}" for r in rows))
    return [
        "## Videos while training",
        f"Seconds of training for a fixed number of env steps ({steps}), without early stop, and "
        "of the whole command, which waits for the last video.",
        table(("config", "video", "training, s", "to off", "videos", "command, s"), cells),
    ]
