"""Progress of a run, and the row of metrics of an epoch."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from gymnasium_solver.training.collect import EPISODE_WINDOW, Collector
from gymnasium_solver.training.observer import EvalResult


@dataclass
class Progress:
    """Progress of the run; saved with every checkpoint."""

    env_steps: int = 0
    epoch: int = 0
    wall_s: float = 0.0
    best_score: float | None = None
    best_env_steps: int = 0
    best_epoch: int = 0
    best_train_mean: float | None = None
    last_eval: dict[str, Any] | None = None
    failed_tests: int = 0
    next_train_test: int = 0
    """Number of finished episodes before the training goal may trigger a test again."""
    passed_test: dict[str, Any] | None = None
    """The held-out test that ended training."""
    over: str | None = None
    """Why training ended; set in the last checkpoint of a run that needs no more training."""

    def note_score(self, score: float) -> bool:
        """Record an evaluation score; return whether it is the best so far. Ties go to the later
        one."""
        self.last_eval = {"score": score, "env_steps": self.env_steps, "epoch": self.epoch}
        if math.isnan(score) or (self.best_score is not None and score < self.best_score):
            return False
        self.choose(score)
        return True

    def choose(self, score: float) -> None:
        """Mark the current weights as the best."""
        self.best_score, self.best_env_steps, self.best_epoch = score, self.env_steps, self.epoch

    @property
    def best(self) -> dict[str, Any] | None:
        if self.best_score is None:
            return None
        return {
            "score": self.best_score,
            "env_steps": self.best_env_steps,
            "epoch": self.best_epoch,
        }


class Means:
    """Mean metrics of an epoch's updates; scheduled values (hp/) keep their last value.

    Tensors are summed on their device and transferred once, at the end.
    """

    def __init__(self) -> None:
        self._sums: dict[str, Any] = {}
        self._counts: dict[str, int] = {}

    def add(self, metrics: Mapping[str, Any]) -> None:
        for name, value in metrics.items():
            if name in self._sums and not name.startswith("hp/"):
                self._sums[name] = self._sums[name] + value
                self._counts[name] += 1
            else:
                self._sums[name], self._counts[name] = value, 1

    def values(self) -> dict[str, float]:
        return {name: float(value) / self._counts[name] for name, value in self._sums.items()}


def epoch_row(
    p: Progress, collector: Collector, metrics: dict[str, float], result: EvalResult | None
) -> dict[str, Any]:
    """One row of metrics.jsonl, without the timing."""
    row: dict[str, Any] = {"env_steps": p.env_steps, "epoch": p.epoch, "wall_s": p.wall_s}
    returns, lengths = collector.returns, collector.lengths
    if returns:
        mean = float(np.mean(returns))
        if len(returns) == EPISODE_WINDOW:  # a mean over few episodes is too noisy
            p.best_train_mean = max(mean, p.best_train_mean or mean)
        row |= {
            "train/roll/ep_rew/mean": mean,
            "train/roll/ep_rew/best": p.best_train_mean,
            "train/roll/ep_rew/last": returns[-1],
            "train/roll/ep_len/mean": float(np.mean(lengths)),
        }
        if collector.successes:
            row["train/roll/success"] = float(np.mean(collector.successes))
        for name, totals in collector.reward_parts.items():
            row[f"train/roll/ep_part/{name}/mean"] = float(np.mean(totals))
    row |= {
        "train/cnt/total_env_steps": p.env_steps,
        "train/cnt/total_episodes": collector.n_episodes,
        "train/cnt/epoch": p.epoch,
    }
    row |= {f"train/{name}": value for name, value in metrics.items()}
    if result is not None:
        row |= {f"val/roll/ep_rew/{k}": getattr(result, k) for k in ("mean", "std", "min", "max")}
        row["val/roll/ep_rew/best"] = p.best_score
        row["val/roll/ep_len/mean"] = result.length_mean
        if result.success is not None:
            row["val/roll/success"] = result.success
    return row


def timing(
    p: Progress, share_done: float, fps_instant: float, seconds: dict[str, float]
) -> dict[str, float]:
    """Speed, estimated time left, and time by section."""
    total = sum(seconds.values()) or 1.0
    return {
        "train/sys/timing/time_elapsed": p.wall_s,
        "train/sys/timing/fps": p.env_steps / p.wall_s,
        "train/sys/timing/fps_instant": fps_instant,
        "train/sys/timing/eta_s": p.wall_s * (1 - share_done) / share_done,
        **{f"train/sys/timing/{name}_share": s / total for name, s in seconds.items()},
        "progress": share_done,
    }
