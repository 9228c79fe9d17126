"""The metrics by name: what each means, how to print it, which way is better; and JSONL reading.

Names are `<train|val>/<group>/<metric>`. A row of metrics.jsonl is
`{"env_steps": int, "epoch": int, "wall_s": float, "<name>": number or null, ...}`.
A name that is not declared here may still be logged; `describe` then gives neutral properties.
"""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from gymnasium_solver.errors import RunError

Better = Literal["up", "down"]


@dataclass(frozen=True)
class Metric:
    name: str
    description: str
    precision: int = 4
    """Digits after the point when printed."""
    better: Better | None = None
    """Which way is better; None where neither is good in itself."""
    group: str = ""
    """The part of the table it belongs to: `train/roll`, `train/opt`, `val/roll`, ..."""
    show: bool = False
    """Whether the console table has a row for it."""

    def format(self, value: float | None) -> str:
        return "-" if value is None else f"{value:,.{self.precision}f}"


def read_jsonl(path: Path) -> list[dict[str, Any]]:
    """The rows of a JSONL file; none where there is no file.

    A torn last line (a killed or a still writing process) is left out; a bad line before it is
    an error, for rows after it would silently be lost.
    """
    return parse_jsonl(path.read_bytes(), path) if path.is_file() else []


def parse_jsonl(data: bytes, path: Path) -> list[dict[str, Any]]:
    """`read_jsonl` for bytes already read from `path`."""
    *whole, _torn = data.split(b"\n")  # what follows the last line end is empty or torn
    rows = []
    for number, line in enumerate(whole, start=1):
        try:
            row = json.loads(line)
        except ValueError as error:
            raise RunError(
                f"{path} line {number} is not JSON: {error}. Delete the line to use the others."
            ) from None
        if not isinstance(row, dict):
            raise RunError(
                f"{path} line {number} is a {type(row).__name__}, expected a mapping. "
                "Delete the line to use the others."
            )
        rows.append(row)
    return rows


def describe(name: str) -> Metric:
    """The declared metric of this name, or a neutral one."""
    metric = METRICS.get(name)
    if metric is not None:
        return metric
    group, _, last = name.rpartition("/")
    if group.endswith("/hp"):
        return Metric(name, f"Value of {last} now, after its schedule", precision=6, group=group)
    if "/ep_part/" in name:
        part = name.split("/")[-2]
        text = f"What the reward shaper's part {part} added to an episode, mean of the last 100"
        return Metric(name, text, group="train/roll")
    return Metric(name, "", group="/".join(name.split("/")[:2]))


def _declare(group: str, *metrics: tuple[str, str, int, Better | None, bool]) -> list[Metric]:
    """(name inside the group, description, precision, better, show) -> Metric."""
    return [
        Metric(f"{group}/{name}", description, precision, better, group, show)
        for name, description, precision, better, show in metrics
    ]


_DECLARED = [
    Metric("env_steps", "Agent steps over all envs: the clock of everything", 0),
    Metric("epoch", "Stretches of n_steps rows collected and learnt from", 0),
    Metric("wall_s", "Seconds of training, over all resumes", 1),
    Metric("progress", "Part of the budget used, from 0 to 1", 3, None, "", True),
    *_declare(
        "train/roll",
        ("ep_rew/mean", "Mean return of the last 100 training episodes", 2, "up", True),
        ("ep_rew/best", "Highest such mean so far", 2, "up", True),
        ("ep_rew/last", "Return of the training episode that ended last", 2, "up", False),
        ("ep_len/mean", "Mean length of the last 100 training episodes, in steps", 1, None, True),
    ),
    *_declare(
        "val/roll",
        ("ep_rew/mean", "Mean return of the evaluation", 2, "up", True),
        ("ep_rew/std", "Standard deviation of the evaluation's returns", 2, "down", True),
        ("ep_rew/min", "Lowest return of the evaluation", 2, "up", False),
        ("ep_rew/max", "Highest return of the evaluation", 2, "up", False),
        ("ep_rew/best", "Highest mean return of an evaluation so far", 2, "up", True),
        ("ep_len/mean", "Mean episode length of the evaluation, in steps", 1, None, True),
    ),
    *_declare(
        "train/cnt",
        ("total_env_steps", "Agent steps over all envs", 0, None, True),
        ("total_episodes", "Episodes that ended", 0, None, True),
        ("epoch", "Stretches of n_steps rows collected and learnt from", 0, None, True),
    ),
    *_declare(
        "train/opt",
        ("loss/total", "The loss that is minimised, all terms with their weights", 4, None, True),
        ("loss/policy", "Policy term of the loss", 4, None, True),
        ("loss/value", "Value term of the loss, before its weight", 4, None, True),
        ("loss/td", "Error of the action values against their targets", 4, None, True),
        ("loss/critic", "Error of the critics against their targets, added up", 4, None, True),
        (
            "loss/alpha",
            "Loss of the entropy's weight; near 0 at the target entropy",
            4,
            None,
            False,
        ),
        ("q/mean", "Mean value of the actions taken, as discounted return", 3, None, True),
        (
            "policy/entropy",
            "Entropy of the policy in nats; it explores less as this falls",
            3,
            None,
            True,
        ),
        ("policy/alpha", "Weight of the entropy now, learnt or scheduled", 5, None, True),
        (
            "value/explained_var",
            "Share of the returns' variance that the value explains: 1 perfect, 0 no better "
            "than a constant, below 0 worse",
            3,
            "up",
            True,
        ),
        (
            "ppo/approx_kl",
            "How far the update moved the policy; healthy is about 0.001 to 0.05",
            4,
            None,
            True,
        ),
        ("ppo/clip_fraction", "Share of samples that the clip range cut", 3, None, True),
        (
            "ppo/kl_stop_triggered",
            "1 when target_kl ended the update before n_epochs",
            0,
            None,
            False,
        ),
        ("grads/norm/all", "Norm of the gradient before clipping", 3, None, True),
        ("grads/norm/policy", "Norm of the actor's gradient before clipping", 3, None, False),
        ("grads/norm/critic", "Norm of the critics' gradient before clipping", 3, None, True),
    ),
    *_declare(
        "train/sys/timing",
        ("time_elapsed", "Seconds of training, all resumes together", 1, None, True),
        ("fps", "Env steps per second over the whole run", 0, "up", True),
        ("fps_instant", "Env steps per second in the last epoch", 0, "up", False),
        ("eta_s", "Seconds left until the budget is used, at the present speed", 0, "down", True),
        ("env_share", "Share of the time spent in the envs", 3, None, False),
        ("act_share", "Share of the time spent choosing actions", 3, None, False),
        ("update_share", "Share of the time spent learning", 3, None, False),
        ("eval_share", "Share of the time spent evaluating", 3, None, False),
    ),
    *_declare(
        "train/hp",
        ("policy_lr", "Learning rate now, after its schedule", 6, None, True),
        ("clip_range", "PPO's clip range now, after its schedule", 4, None, False),
        ("ent_coef", "Weight of the entropy bonus now, after its schedule", 5, None, False),
        ("vf_coef", "Weight of the value loss now, after its schedule", 4, None, False),
        ("epsilon", "Share of random actions now, after its schedule", 4, None, True),
        ("temperature", "Temperature of the exploration now, after its schedule", 4, None, False),
    ),
]

METRICS: dict[str, Metric] = {metric.name: metric for metric in _DECLARED}
"""Declared metrics in the order of the console table."""
