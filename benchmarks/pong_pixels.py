"""Pong from pixels with PPO: speed, where the time goes, and the learning curve.

    .venv/bin/python -m benchmarks.pong_pixels --minutes 10 --device cuda       (an NVIDIA GPU)
    .venv/bin/python -m benchmarks.pong_pixels Probe/Image-v0:ppo --minutes 0.1 --n-envs 4

Trains the config for that many minutes, or until its budget is spent, without evaluations. Writes
pong_pixels.json (machine, config, steps/s in total and by part, raw training returns over env steps
and wall time) and pong_pixels.png to --out. Steps/s exclude the first fifth of the time, in which
kernels are chosen and graphs captured. The steps/s of a part are what it would reach if the rest
took no time. Schedules follow the config's budget, not the minutes.
"""

import argparse
import json
import os
import shlex
import signal
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from gymnasium_solver.bench.harness import header, say
from gymnasium_solver.config.load import config_dict
from gymnasium_solver.config.schema import Config
from gymnasium_solver.config.yaml_file import parse_value
from gymnasium_solver.runs.run import Run
from gymnasium_solver.training.loop import train
from gymnasium_solver.training.observer import Observer, TrainInfo
from gymnasium_solver.training.prepare import load_config

NAME = "pong_pixels"
PARTS = ("env", "act", "update")
WARM_UP = 0.2  # of the time
TIMING = "train/sys/timing"
RETURN = "train/roll/ep_rew/mean"
SAY_EVERY_S = 30.0


def main(argv: Sequence[str] | None = None) -> None:
    args = parse_args(argv)
    config = load_config(args.config, overrides=overrides(args))
    clock = Clock(args.minutes * 60)
    with tempfile.TemporaryDirectory() as folder:
        train(config, runs_root=args.runs_dir or Path(folder), observers=[clock])
    result = header(shown_command(argv)) | {
        "config": config_dict(config),
        "device": clock.device,
        "gpu": gpu_name(),
        "n_parameters": clock.n_parameters,
        **speed(clock.rows),
        "curve": curve(clock.rows),
    }
    args.out.mkdir(parents=True, exist_ok=True)
    (args.out / f"{NAME}.json").write_text(json.dumps(result, indent=1) + "\n")
    draw(result, args.out / f"{NAME}.png")
    say(summary_text(result))


def parse_args(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="pong_pixels.py",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("config", nargs="?", default="ALE/Pong-v5:ppo")
    parser.add_argument("--minutes", type=float, default=10.0, help="of training")
    parser.add_argument("--n-envs", type=int, help="as the config has it, if not given")
    parser.add_argument("--device", default="auto", help="auto, cpu, cuda, cuda:N")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--set", nargs="*", default=[], metavar="FIELD=VALUE", help="any other field of the config"
    )
    parser.add_argument("--out", type=Path, default=Path("build") / NAME, help="folder")
    parser.add_argument("--runs-dir", type=Path, help="keep the run here; else it is thrown away")
    return parser.parse_args(argv)


def overrides(args: argparse.Namespace) -> dict[str, Any]:
    fields: dict[str, Any] = {
        "device": args.device,
        "seed": args.seed,
        "eval_freq_epochs": None,
        "early_stop_on_train_threshold": False,
    }
    if args.n_envs is not None:
        fields["n_envs"] = args.n_envs
    given = (item.partition("=") for item in args.set)
    return fields | {name: parse_value(value) for name, _, value in given}


class Clock(Observer):
    """Keeps the rows of metrics, and asks the run to end when its time is over."""

    def __init__(self, seconds: float):
        self.seconds = seconds
        self.rows: list[dict[str, Any]] = []
        self.device, self.n_parameters = "", 0
        self._said = 0.0

    def on_start(self, run: Run, config: Config, info: TrainInfo) -> None:
        self.device, self.n_parameters = info.device, info.n_parameters
        self._began = time.perf_counter()
        say("\n".join([f"{config.env_id} on {info.device}, {info.env_spec.engine}", *info.notes]))

    def on_epoch(self, row: dict[str, Any]) -> None:
        self.rows.append(row)
        if row["wall_s"] - self._said > SAY_EVERY_S:
            self._said = row["wall_s"]
            mean = row.get(RETURN, float("nan"))
            say(f"{row['wall_s']:.0f} s: {row['env_steps']:,} steps, return {mean:.1f}")
        if time.perf_counter() - self._began > self.seconds:
            self.seconds = float("inf")  # once
            os.kill(os.getpid(), signal.SIGTERM)  # the loop saves and ends after the next epoch


def speed(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Steps/s after the warm-up, as a whole and of each part alone."""
    last = rows[-1]
    warm = [row for row in rows[:-1] if row["wall_s"] >= WARM_UP * last["wall_s"]]
    first = warm[0] if warm else rows[0] | {"wall_s": 0.0, "env_steps": 0}
    wall_s = last["wall_s"] - first["wall_s"]
    env_steps = last["env_steps"] - first["env_steps"]

    def seconds(part: str) -> float:
        return sum(
            sign * row["wall_s"] * row[f"{TIMING}/{part}_share"]
            for sign, row in ((1, last), (-1, first))
        )

    parts = {part: seconds(part) for part in PARTS}
    return {
        "env_steps": last["env_steps"],
        "wall_s": last["wall_s"],
        "steps_per_s": env_steps / wall_s,
        "parts": {
            part: {"share": s / wall_s, "steps_per_s": env_steps / s if s > 0 else None}
            for part, s in parts.items()
        },
    }


def curve(rows: Sequence[dict[str, Any]]) -> list[dict[str, float]]:
    """Mean raw return of the last 100 training episodes, epoch by epoch."""
    return [
        {"env_steps": row["env_steps"], "wall_s": row["wall_s"], "return_mean": row[RETURN]}
        for row in rows
        if RETURN in row
    ]


def gpu_name() -> str | None:
    import torch

    return torch.cuda.get_device_name() if torch.cuda.is_available() else None


def draw(result: dict[str, Any], path: Path) -> None:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10, 4), layout="constrained")
    left, right = figure.subplots(1, 2, sharey=True)
    returns = [point["return_mean"] for point in result["curve"]]
    left.plot([point["env_steps"] for point in result["curve"]], returns)
    right.plot([point["wall_s"] / 60 for point in result["curve"]], returns)
    left.set(xlabel="env steps", ylabel="raw return, mean of the last 100 episodes")
    right.set(xlabel="minutes")
    env_id, where = result["config"]["env_id"], result["gpu"] or "CPU"
    figure.suptitle(f"{env_id} from pixels, PPO, {result['steps_per_s']:,.0f} steps/s on {where}")
    figure.savefig(path, dpi=110)


def summary_text(result: dict[str, Any]) -> str:
    parts = ", ".join(f"{part} {of['share']:.0%}" for part, of in result["parts"].items())
    last = result["curve"][-1]["return_mean"] if result["curve"] else float("nan")
    return (
        f"{result['env_steps']:,} steps in {result['wall_s']:.0f} s, "
        f"{result['steps_per_s']:,.0f} steps/s ({parts}); return {last:.1f}"
    )


def shown_command(argv: Sequence[str] | None) -> str:
    """What was typed, without the folders, which are this machine's."""
    words = list(sys.argv[1:] if argv is None else argv)
    for flag in ("--out", "--runs-dir"):
        if flag in words:
            del words[words.index(flag) : words.index(flag) + 2]
    return f"python -m benchmarks.{NAME} {shlex.join(words)}".rstrip()


if __name__ == "__main__":
    main()
