"""The metrics by name: description, precision, which direction is better; and reading of JSONL.

Names are `<train|val>/<group>/<metric>`. A row of metrics.jsonl is
    {"env_steps": int, "epoch": int, "wall_s": float, "<name>": number or null, ...}
Undeclared names may be logged too; `describe` then returns neutral properties.
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
    """Decimal places when printed."""
    better: Better | None = None
    """Which direction is better; None if neither is."""
    group: str = ""
    """Its section of the table: `train/roll`, `train/opt`, `val/roll`, ..."""
    show: bool = False
    """Whether the console table shows it."""

    def format(self, value: float | None) -> str:
        return "-" if value is None else f"{value:,.{self.precision}f}"


def read_jsonl(path: Path) -> list[dict[str, Any]]:
    """The rows of a JSONL file; empty if there is no file.

    An incomplete last line (from a killed or still writing process) is ignored. An invalid line
    before it is an error, since the rows after it would be lost silently.
    """
    return parse_jsonl(path.read_bytes(), path) if path.is_file() else []


def parse_jsonl(data: bytes, path: Path) -> list[dict[str, Any]]:
    """`read_jsonl` for bytes already read from `path`."""
    *whole, _torn = data.split(b"\n")  # the text after the last newline is empty or incomplete
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
        return Metric(name, f"Current value of {last} (scheduled)", precision=6, group=group)
    if "/ep_part/" in name:
        part = name.split("/")[-2]
        text = f"Reward per episode from the reward shaper's part {part}, mean of the last 100"
        return Metric(name, text, group="train/roll")
    return Metric(name, "", group="/".join(name.split("/")[:2]))


def _declare(group: str, *metrics: tuple[str, str, int, Better | None, bool]) -> list[Metric]:
    """(name in the group, description, precision, better, show) -> Metric."""
    return [
        Metric(f"{group}/{name}", description, precision, better, group, show)
        for name, description, precision, better, show in metrics
    ]


_DECLARED = [
    Metric("env_steps", "Agent steps over all envs, the clock of the run", 0),
    Metric("epoch", "Epochs of n_steps rows per env", 0),
    Metric("wall_s", "Seconds of training, over all resumes", 1),
    Metric("progress", "Fraction of the budget used, from 0 to 1", 3, None, "", True),
    *_declare(
        "train/roll",
        ("ep_rew/mean", "Mean return of the last 100 training episodes", 2, "up", True),
        ("ep_rew/best", "Highest mean return so far", 2, "up", True),
        ("ep_rew/last", "Return of the last finished training episode", 2, "up", False),
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
        ("total_episodes", "Finished episodes", 0, None, True),
        ("epoch", "Epochs of n_steps rows per env", 0, None, True),
    ),
    *_declare(
        "train/opt",
        ("loss/total", "Total loss, the weighted sum of its terms", 4, None, True),
        ("loss/policy", "Policy loss", 4, None, True),
        ("loss/value", "Value loss, before its weight", 4, None, True),
        ("loss/td", "TD loss of the Q-values", 4, None, True),
        ("loss/critic", "TD loss of the critics, summed", 4, None, True),
        (
            "loss/alpha",
            "Loss of the entropy coefficient; near 0 at the target entropy",
            4,
            None,
            False,
        ),
        ("q/mean", "Mean Q-value of the actions taken", 3, None, True),
        (
            "policy/entropy",
            "Entropy of the policy in nats; lower means less exploration",
            3,
            None,
            True,
        ),
        ("policy/alpha", "Current entropy coefficient, learnt or scheduled", 5, None, True),
        (
            "value/explained_var",
            "Fraction of the variance of returns explained by the value: 1 perfect, 0 no better "
            "than a constant, below 0 worse",
            3,
            "up",
            True,
        ),
        (
            "ppo/approx_kl",
            "Approximate KL divergence of the update; typically 0.001 to 0.05",
            4,
            None,
            True,
        ),
        ("ppo/clip_fraction", "Fraction of samples outside the clip range", 3, None, True),
        (
            "ppo/kl_stop_triggered",
            "1 if target_kl stopped the update before n_epochs",
            0,
            None,
            False,
        ),
        ("grads/norm/all", "Gradient norm before clipping", 3, None, True),
        ("grads/norm/policy", "Gradient norm of the actor before clipping", 3, None, False),
        ("grads/norm/critic", "Gradient norm of the critics before clipping", 3, None, True),
    ),
    *_declare(
        "train/sys/timing",
        ("time_elapsed", "Seconds of training, over all resumes", 1, None, True),
        ("fps", "Env steps per second over the whole run", 0, "up", True),
        ("fps_instant", "Env steps per second in the last epoch", 0, "up", False),
        ("eta_s", "Estimated seconds until the budget is used up", 0, "down", True),
        ("env_share", "Fraction of the time spent in the envs", 3, None, False),
        ("act_share", "Fraction of the time spent choosing actions", 3, None, False),
        ("update_share", "Fraction of the time spent learning", 3, None, False),
        ("eval_share", "Fraction of the time spent evaluating", 3, None, False),
    ),
    *_declare(
        "train/hp",
        ("policy_lr", "Current learning rate (scheduled)", 6, None, True),
        ("clip_range", "Current clip range of PPO (scheduled)", 4, None, False),
        ("ent_coef", "Current weight of the entropy bonus (scheduled)", 5, None, False),
        ("vf_coef", "Current weight of the value loss (scheduled)", 4, None, False),
        ("epsilon", "Current fraction of random actions (scheduled)", 4, None, True),
        ("temperature", "Current exploration temperature (scheduled)", 4, None, False),
    ),
]

METRICS: dict[str, Metric] = {metric.name: metric for metric in _DECLARED}
"""Declared metrics in the order of the console table."""
