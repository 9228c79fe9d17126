"""How cost grows: steps/s of PPO on CartPole-v1 against n_envs, batch size and hidden size.

Epochs of a training (collect, then learn) are timed in this process, without evaluation, logging
and checkpoints; the first ones, which allocate and record, are not timed. `collect` is acting and
stepping alone. Only one setting changes along a curve.
"""

import time
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from gymnasium_solver.bench.harness import Options, say, spread, table
from gymnasium_solver.chart_style import COLOURS, GREY, saved_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from gymnasium_solver.config.schema import Config
    from gymnasium_solver.training.trainer import Trainer

ROWS = {"n_envs": 2_048, "batch_size": 8_192, "hidden": 2_048}  # fewest env steps in a rollout
SWEEPS: dict[str, tuple[str, list[int]]] = {
    "n_envs": ("environments", [2**i for i in range(13)]),
    "batch_size": ("batch size", [2**i for i in range(5, 14)]),
    "hidden": ("width of two hidden layers", [2**i for i in range(4, 11)]),
}
QUICK = {"n_envs": [1, 64, 4096], "batch_size": [64, 1024], "hidden": [16, 256]}
N_WARM, FEWEST_EPOCHS = 2, 2


def measure(options: Options) -> dict[str, Any]:
    """One row per point of a sweep, with its repeats; all points take turns in each repeat."""
    seconds = 0.1 if options.quick else 0.3
    rows: list[dict[str, Any]] = [
        {"sweep": sweep, "x": x, "steps_per_s": [], "collect_steps_per_s": []}
        for sweep, (_, points) in SWEEPS.items()
        for x in (QUICK[sweep] if options.quick else points)
    ]
    for repeat in range(options.repeats):
        say(f"scaling: repeat {repeat + 1} of {options.repeats}, {len(rows)} points")
        for row in rows[::-1] if repeat % 2 else rows:
            for name, rate in rates(point_config(row["sweep"], row["x"]), seconds).items():
                row[name].append(rate)
    return {"rows": rows}


def point_config(sweep: str, x: int) -> "Config":
    """The config of one point; all other settings are the same at all points."""
    from gymnasium_solver.training.prepare import build_config

    n_envs = x if sweep == "n_envs" else 64
    rows = max(ROWS[sweep], 8 * n_envs)
    width = x if sweep == "hidden" else 64
    return build_config(
        {
            "env_id": "CartPole-v1",
            "algo_id": "ppo",
            "seed": 1,
            "n_envs": n_envs,
            "n_steps": rows // n_envs,
            "batch_size": x if sweep == "batch_size" else 256,
            "n_epochs": 4,
            "hidden_dims": [width, width],
            "max_env_steps": 10**9,
            "device": "cpu",
        }
    )


def _collecting_s(trainer: "Trainer") -> float:
    return trainer.timer.seconds["env"] + trainer.timer.seconds["act"]


def rates(config: "Config", seconds: float) -> dict[str, float]:
    """Env steps per second of whole epochs, and of collecting alone."""
    from gymnasium_solver.envs.make import env_from_config
    from gymnasium_solver.training import threads
    from gymnasium_solver.training.loop import collect_and_learn
    from gymnasium_solver.training.observer import Observer
    from gymnasium_solver.training.trainer import Trainer

    n_threads = threads.pick_threads(config)
    with threads.limited_threads(n_threads, threads.pick_compiled_threads(config, n_threads)):
        env = env_from_config(config, config.n_envs)
        with closing(Trainer(config, env, Observer())) as trainer:
            for _ in range(N_WARM):
                collect_and_learn(trainer)
            start, first = time.perf_counter(), trainer.progress.env_steps
            collect_s, n_epochs = _collecting_s(trainer), 0
            while time.perf_counter() - start < seconds or n_epochs < FEWEST_EPOCHS:
                collect_and_learn(trainer)
                n_epochs += 1
            took_s = time.perf_counter() - start
            collect_s = _collecting_s(trainer) - collect_s
            n_steps = trainer.progress.env_steps - first
    return {"steps_per_s": n_steps / took_s, "collect_steps_per_s": n_steps / collect_s}


def sections(result: dict[str, Any]) -> list[str]:
    parts = [
        "## How cost grows",
        "PPO on CartPole-v1, 2×64 tanh, 4 passes in batches of 256; one of these changes along a "
        "curve. Without evaluation, logging and checkpoints.",
    ]
    for sweep, (title, _) in SWEEPS.items():
        cells = [
            (f"{row['x']:,}", spread(row["steps_per_s"]), spread(row["collect_steps_per_s"]))
            for row in result["rows"]
            if row["sweep"] == sweep
        ]
        parts.append(table((title, "training, steps/s", "acting and stepping alone"), cells))
    return parts


def draw(result: dict[str, Any], path: Path) -> None:
    title, n = "PPO on CartPole-v1: env steps per second", len(SWEEPS)
    with saved_figure(path, n, n, (11, 3.6), title, sharey=True) as axes:
        for ax, (sweep, (name, _)) in zip(axes, SWEEPS.items(), strict=True):
            _draw_sweep(ax, [row for row in result["rows"] if row["sweep"] == sweep])
            ax.set_title(name)
        axes[0].set_ylabel("env steps per second")
        axes[0].legend(fontsize=9, loc="upper left")


def _draw_sweep(ax: "Axes", rows: list[dict[str, Any]]) -> None:
    x = [row["x"] for row in rows]
    curves = {"collect_steps_per_s": (GREY, "acting and stepping"),
              "steps_per_s": (COLOURS[0], "training")}  # fmt: skip
    for name, (colour, label) in curves.items():
        values = [np.asarray(row[name]) for row in rows]
        ax.plot(x, [np.median(v) for v in values], "o-", color=colour, ms=4, lw=2, label=label)
        low, high = [v.min() for v in values], [v.max() for v in values]
        ax.fill_between(x, low, high, color=colour, alpha=0.15, linewidth=0)
    ax.set_xscale("log", base=2)
    ax.set_yscale("log")
    ticks = x[:: max(1, len(x) // 5)]
    ax.set_xticks(ticks, [f"{tick // 1024}k" if tick >= 1024 else str(tick) for tick in ticks])
