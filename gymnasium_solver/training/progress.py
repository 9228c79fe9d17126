"""Progress of a run, and the row of metrics of an epoch."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from gymnasium_solver.training.episodes import EPISODE_WINDOW, EpisodeStats
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
    best_train_steps: int = 0
    best_train_epoch: int = 0
    vec_steps: int = 0
    rollouts: int = 0
    last_eval: dict[str, Any] | None = None
    failed_tests: int = 0
    next_train_test: int = 0
    """Number of finished episodes before the training goal may trigger a test again."""
    passed_test: dict[str, Any] | None = None
    """The held-out test that ended training."""
    over: str | None = None
    """Why training ended; set in the last checkpoint of a run that needs no more training."""
    pending_eval: dict[str, int] | None = None
    """Clocks of the evaluation that another process is making (`eval_async`)."""
    interventions: dict[str, Any] = field(default_factory=dict)
    """State of the rules by name (training/interventions.py)."""
    curriculum: dict[str, Any] = field(default_factory=dict)
    """The stage, since when, its score and arguments (training/curriculum.py)."""

    def note_score(self, result: EvalResult) -> bool:
        """Record an evaluation; return whether it is the best so far. Ties go to the later one."""
        score = result.mean
        self.last_eval = {"score": score, "env_steps": result.env_steps, "epoch": result.epoch}
        if math.isnan(score) or (self.best_score is not None and score < self.best_score):
            return False
        self.choose(result)
        return True

    def choose(self, result: EvalResult) -> None:
        """Mark the weights that were evaluated as the best."""
        self.best_score = result.mean
        self.best_env_steps, self.best_epoch = result.env_steps, result.epoch

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

    Tensors on a GPU are summed there and transferred once, at the end. The key of a tensor of
    several metrics is the tuple of their names.
    """

    def __init__(self) -> None:
        self._sums: dict[str | tuple[str, ...], Any] = {}
        self._counts: dict[str | tuple[str, ...], int] = {}

    def add(self, metrics: Mapping[Any, Any]) -> None:
        for name, value in metrics.items():
            if isinstance(name, tuple):
                self._add_packed(name, value)
                continue
            if not getattr(value, "is_cuda", False):
                value = float(value)
            if name in self._sums and not name.startswith("hp/"):
                self._sums[name] = self._sums[name] + value
                self._counts[name] += 1
            else:
                self._sums[name], self._counts[name] = value, 1

    def _add_packed(self, names: tuple[str, ...], values: Any) -> None:
        """Add a tensor of several metrics, which the next update may overwrite."""
        if names in self._sums:
            self._sums[names] += values
            self._counts[names] += 1
        else:
            self._sums[names], self._counts[names] = values.clone(), 1

    def values(self) -> dict[str, float]:
        """The means. A name that was added alone and in a tuple is averaged over both."""
        sums: dict[str, float] = {}
        counts: dict[str, int] = {}
        for key, total in self._sums.items():
            found = (
                {key: total}
                if isinstance(key, str)
                else dict(zip(key, total.tolist(), strict=True))
            )
            for name, value in found.items():
                sums[name] = sums.get(name, 0.0) + float(value)
                counts[name] = counts.get(name, 0) + self._counts[key]
        return {name: value / counts[name] for name, value in sums.items()}


@dataclass(frozen=True)
class EpochStart:
    """The clocks at the start of an epoch."""

    now_s: float
    env_steps: int
    vec_steps: int
    episodes: int
    collect_s: float
    """Seconds of collecting so far."""


def epoch_row(
    p: Progress,
    start: EpochStart,
    collector: EpisodeStats,
    metrics: dict[str, float],
    result: EvalResult | None,
) -> dict[str, Any]:
    """One row of metrics.jsonl, without the timing."""
    row: dict[str, Any] = {"env_steps": p.env_steps, "epoch": p.epoch, "wall_s": p.wall_s}
    if collector.returns:
        row |= _episodes(p, collector)
    row |= {
        "train/roll/env_steps": p.env_steps - start.env_steps,
        "train/roll/vec_steps": p.vec_steps - start.vec_steps,
        "train/roll/episodes": collector.n_episodes - start.episodes,
        "train/cnt/total_env_steps": p.env_steps,
        "train/cnt/total_vec_steps": p.vec_steps,
        "train/cnt/total_episodes": collector.n_episodes,
        "train/cnt/total_rollouts": p.rollouts,
        "train/cnt/epoch": p.epoch,
    }
    row |= {f"train/{name}": value for name, value in metrics.items()}
    return row if result is None else row | validation_row(p, result)


def validation_row(p: Progress, result: EvalResult) -> dict[str, Any]:
    """The metrics of an evaluation."""
    row = {f"val/roll/ep_rew/{k}": getattr(result, k) for k in ("mean", "std", "min", "max")}
    row["val/roll/ep_rew/best"] = p.best_score
    row["val/roll/ep_len/mean"] = result.length_mean
    if result.success is not None:
        row["val/roll/success"] = result.success
    row["val/roll/episodes"] = result.episodes
    row |= {f"val/task/{name}/ep_rew/mean": score["mean"] for name, score in result.tasks.items()}
    return row


def _episodes(p: Progress, collector: EpisodeStats) -> dict[str, Any]:
    """Statistics of the last training episodes; notes the best mean."""
    found = collector.statistics()
    mean = found["train/roll/ep_rew/mean"]
    # A mean over few episodes is too noisy.
    is_full = len(collector.returns) == EPISODE_WINDOW
    if is_full and (p.best_train_mean is None or mean > p.best_train_mean):
        p.best_train_mean = mean
        p.best_train_steps, p.best_train_epoch = p.env_steps, p.epoch
    row = {
        **found,
        "train/roll/ep_rew/best": p.best_train_mean,
        "train/plateau/env_steps": p.env_steps - p.best_train_steps,
        "train/plateau/epochs": p.epoch - p.best_train_epoch,
    }
    if collector.successes:
        row["train/roll/success"] = float(np.mean(collector.successes))
    for name, window in collector.task_returns.items():
        if window:
            row[f"train/task/{name}/ep_rew/mean"] = sum(window) / len(window)
    for name, totals in collector.reward_parts.items():
        row[f"train/roll/ep_part/{name}/mean"] = float(np.mean(totals))
    return row


def timing(
    p: Progress,
    start: EpochStart,
    now: EpochStart,
    share_done: float,
    seconds: dict[str, float],
) -> dict[str, float]:
    """Speed, estimated time left, and time by section."""
    total = sum(seconds.values()) or 1.0
    steps = p.env_steps - start.env_steps
    return {
        "train/sys/timing/time_elapsed": p.wall_s,
        "train/sys/timing/fps": p.env_steps / p.wall_s,
        "train/sys/timing/fps_instant": steps / (now.now_s - start.now_s),
        "train/sys/timing/collect_fps": steps / max(now.collect_s - start.collect_s, 1e-9),
        "train/sys/timing/eps": now.episodes / p.wall_s,
        "train/sys/timing/eta_s": p.wall_s * (1 - share_done) / share_done,
        **{f"train/sys/timing/{name}_share": s / total for name, s in seconds.items()},
        "progress": share_done,
    }
