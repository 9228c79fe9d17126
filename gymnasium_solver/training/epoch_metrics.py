"""The row of metrics of an epoch: its episodes, its data, its updates, and how fast they were."""

import math
import os
import time
from collections import deque
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from gymnasium import spaces

from gymnasium_solver.config.schema import Config
from gymnasium_solver.data.rollout import Rollout
from gymnasium_solver.envs.random_steps import RepeatedPairs
from gymnasium_solver.envs.vector import Step
from gymnasium_solver.envs.wrappers.shaping import EPISODE_PARTS
from gymnasium_solver.spaces.actions import ActionKind, action_histogram
from gymnasium_solver.spaces.observations import Space, obs_arrays, part_spaces
from gymnasium_solver.training.activity import Activity
from gymnasium_solver.training.observer import EvalResult
from gymnasium_solver.training.progress import Plan, Progress

EPISODE_WINDOW = 100
WINDOWS = ("returns", "lengths", "truncations", "successes")  # of EpisodeStats, as saved

# Limits of RolloutDetails:
MOST_NUMBERS = 2**18  # measured per part of the observations
MOST_ROWS, LEAST_ROWS = 4096, 16
STEPS_BETWEEN, EPOCHS_BETWEEN = 4096, 8  # at least, but not for more than:
STEPS_MOST = 16_384
DEVICE_EPOCHS_BETWEEN = 50  # at least, of rollouts on a device
N_CPUS = os.cpu_count() or 1  # asking takes a system call or three
PAGE = os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else 4096
TOLERANCE = 1e-4  # of a bound: rounding of 32-bit numbers is not a violation


# -- episodes -------------------------------------------------------------------------------


class Ended(NamedTuple):
    """Episodes that ended at the same step, [n] each."""

    returns: np.ndarray
    lengths: np.ndarray
    terminated: np.ndarray
    success: np.ndarray | None = None  # where the env reports it
    numbers: Mapping[str, np.ndarray] = {}  # by the name of their metric; NaN: not reported

    def only(self, which: np.ndarray) -> "Ended":
        success = None if self.success is None else self.success[which]
        numbers = {name: values[which] for name, values in self.numbers.items()}
        columns = (self.returns[which], self.lengths[which], self.terminated[which])
        return Ended(*columns, success, numbers)


PART_NAME = "train/roll/ep_part/{}/mean"


def episode_numbers(step: Step) -> dict[str, np.ndarray]:
    """Further numbers of an episode that ends at this step, by the name of their metric: rewards
    added by shapers, and what the environment or a wrapper reports: info["metrics"] = {"coins": 3}
    is `own/coins`."""
    info = step.info
    found = {PART_NAME.format(name): sums for name, sums in info.get(EPISODE_PARTS, {}).items()}
    given = info.get("metrics")
    if not isinstance(given, Mapping):
        return found
    for name, values in given.items():
        column, reported = np.asarray(values), given.get(f"_{name}", True)
        if column.shape == step.reward.shape and column.dtype.kind in "fiub" and name[:1] != "_":
            found[f"own/{name}"] = np.where(reported, column.astype(np.float64), np.nan)
    return found


class EpisodeStats:
    """The last training episodes: returns, lengths and how they ended, and the last reset of all
    environments. Saved with every checkpoint; both classes of collectors derive from it."""

    def __init__(self) -> None:
        self._boundary = self._restarted_at = 0
        self.returns: deque[float] = deque(maxlen=EPISODE_WINDOW)
        self.lengths: deque[int] = deque(maxlen=EPISODE_WINDOW)
        self.truncations: deque[int] = deque(maxlen=EPISODE_WINDOW)
        """1 for each of these episodes that was cut off and did not terminate, else 0."""
        self.successes: deque[int] = deque(maxlen=EPISODE_WINDOW)
        self.numbers: dict[str, deque[float]] = {}  # by the name of their metric
        self.task_returns: dict[str, deque[float]] = {}  # where a run has several tasks
        self.n_episodes = 0
        self._statistics: tuple[int, dict[str, float]] = (0, {})
        """`n_episodes` when they were computed, and the statistics."""
        self.activity = Activity()  # replaced by that of the training loop

    def count_episodes(self, ended: Ended) -> None:
        self.returns.extend(ended.returns.tolist())
        self.lengths.extend(ended.lengths.tolist())
        self.truncations.extend((~ended.terminated).astype(int).tolist())
        self.n_episodes += len(ended.returns)
        self.activity.episodes = self.n_episodes
        if ended.success is not None:
            self.successes.extend(ended.success.astype(int).tolist())
        for name, values in ended.numbers.items():
            window = self.numbers.setdefault(name, deque(maxlen=EPISODE_WINDOW))
            window.extend(values[np.isfinite(values)].tolist())

    def statistics(self) -> dict[str, float]:
        """The metrics of returns, lengths and truncations; {} before the first episode ended.

        Many epochs end no episode: then those of the epoch before are still right."""
        if not self.returns:
            return {}
        if self._statistics[0] != self.n_episodes:
            self._statistics = self.n_episodes, self._measured()
        return self._statistics[1]

    def _measured(self) -> dict[str, float]:
        # Plain Python: for a hundred numbers it is faster than NumPy.
        returns, lengths, cut = list(self.returns), self.lengths, self.truncations
        mean = sum(returns) / len(returns)
        spread = math.sqrt(sum([(x - mean) ** 2 for x in returns]) / len(returns))
        found = {
            "train/roll/ep_rew/mean": mean,
            "train/roll/ep_rew/last": returns[-1],
            "train/roll/ep_rew/std": spread,
            "train/roll/ep_rew/min": min(returns),
            "train/roll/ep_rew/max": max(returns),
            "train/roll/ep_len/mean": sum(lengths) / len(lengths),
            "train/roll/ep_len/last": lengths[-1],
        }
        if cut:  # a run that was started by an earlier version has none at first
            found["train/roll/ep_truncated"] = sum(cut) / len(cut)
        return found

    def forget_episodes(self) -> None:
        """Empty the windows: what follows is another environment."""
        self._statistics = 0, {}
        for name in WINDOWS:
            getattr(self, name).clear()
        self.numbers.clear()

    def episode_state(self) -> dict[str, Any]:
        return {
            "boundary": self._boundary,
            "restarted_at": self._restarted_at,
            **{name: list(getattr(self, name)) for name in WINDOWS},
            "reward_parts": {name: list(window) for name, window in self.numbers.items()},
            "task_returns": {name: list(window) for name, window in self.task_returns.items()},
            "n_episodes": self.n_episodes,
        }

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Load everything except the envs; call `restore_envs` or `restart_envs` next."""
        self._boundary, self._restarted_at = state["boundary"], state["restarted_at"]
        self._statistics = 0, {}
        for name in WINDOWS:  # an earlier version saved less
            getattr(self, name).extend(state.get(name, ()))
        for name, window in self.task_returns.items():
            window.extend(state.get("task_returns", {}).get(name, ()))
        for name, values in state.get("reward_parts", {}).items():
            # An earlier version had the rewards of shapers only.
            metric = name if "/" in name else PART_NAME.format(name)
            self.numbers[metric] = deque(values, maxlen=EPISODE_WINDOW)
        self.n_episodes = self.activity.episodes = state["n_episodes"]


# -- what was collected ---------------------------------------------------------------------


def detail_epochs(config: Config, on_device: bool = False) -> int | None:
    """Epochs between two rows with details; None: never. `on_device`: rollouts are on a device, and
    details are copied from there, which takes as long as an epoch."""
    freq = config.log_details_freq_epochs
    if freq == "auto":
        steps = config.n_envs * config.n_steps  # of an epoch
        fewest = DEVICE_EPOCHS_BETWEEN if on_device else min(EPOCHS_BETWEEN, STEPS_MOST // steps)
        return max(1, fewest, round(STEPS_BETWEEN / steps))
    return freq or None


def is_detailed(epoch: int, freq: int | None) -> bool:
    """Whether this epoch logs details: the first one, and every multiple of `freq`."""
    return freq is not None and (epoch == 1 or epoch % freq == 0)


class RolloutDetails:
    """Statistics of the observations, rewards and actions of an epoch.

    details = RolloutDetails(observation_space, actions, n_rollouts=1)
    details.add(rollout)
    details.metrics()            # {"roll/obs/mean": ..., "roll/actions/hist/00": ...}

    They cost time, so the loop asks for them only every few epochs (`log_details_freq_epochs`), and
    they are measured on evenly spaced rows. They read rollouts and change nothing."""

    def __init__(self, observation_space: Space, actions: ActionKind, n_rollouts: int = 1):
        """`n_rollouts`: how many rollouts the epoch will have."""
        self.actions, self.spaces = actions, part_spaces(observation_space)
        widest = max(math.prod(part.shape or ()) for part in self.spaces.values())
        rows = min(MOST_ROWS, max(LEAST_ROWS, MOST_NUMBERS // max(1, widest)))
        self.rows_each = max(1, rows // n_rollouts)
        self._obs: dict[str, list[np.ndarray]] = {name: [] for name in self.spaces}
        self._actions: list[np.ndarray] = []
        self._rewards: list[np.ndarray] = []
        self._legal: list[float] = []
        self._pairs = RepeatedPairs()

    def add(self, rollout: Rollout) -> None:
        valid = np.flatnonzero(rollout.valid)
        self._rewards.append(rollout.reward.reshape(-1)[valid])
        self._actions.append(_flat(rollout.actions)[valid])
        if rollout.mask is not None:
            self._legal.append(float(rollout.mask[:-1].mean()))
        rows = valid[:: max(1, -(-len(valid) // self.rows_each))]
        parts = [_flat(part)[rows] for _, part in obs_arrays(rollout.obs)]
        self._pairs.add([*parts, _flat(rollout.actions)[rows]], rollout.reward.reshape(-1)[rows])
        for name, part in obs_arrays(rollout.obs):
            self._obs[name].append(_flat(part)[rows])

    def metrics(self) -> dict[str, float]:
        if not self._rewards:  # the epoch was taken up after its last rollout
            return {}
        rewards, actions = np.concatenate(self._rewards), np.concatenate(self._actions)
        if len(rewards) == 0:
            return {}
        found = _mean_std("roll/reward", rewards)
        found |= {"roll/reward/min": float(rewards.min()), "roll/reward/max": float(rewards.max())}
        if (ambiguous := self._pairs.ambiguous) is not None:
            found["roll/reward/ambiguous"] = ambiguous
        found |= _mean_std("roll/actions", actions)
        if self._legal:
            found["roll/actions/legal"] = sum(self._legal) / len(self._legal)
        for name, fraction in action_histogram(self.actions, actions).items():
            found[f"roll/actions/hist/{name}"] = fraction
        return found | machine_use() | self._observed()

    def _observed(self) -> dict[str, float]:
        found: dict[str, float] = {}
        n_outside = n_bounded = 0
        for name, kept in self._obs.items():
            values = np.concatenate(kept)
            if values.dtype == bool or values.size == 0:
                continue
            found |= _mean_std(f"roll/obs/{name}" if name else "roll/obs", values)
            outside, bounded = _outside(values, self.spaces[name])
            n_outside, n_bounded = n_outside + outside, n_bounded + bounded
        if n_bounded:
            found["roll/obs/outside"] = n_outside / n_bounded
        return found


_last_use = {"cpu_s": time.process_time(), "now_s": time.perf_counter()}


def machine_use() -> dict[str, float]:
    """What the process takes of the machine; its CPU time is that since the last call."""
    cpu_s, now_s = time.process_time(), time.perf_counter()
    before_s, passed_s = _last_use["cpu_s"], max(now_s - _last_use["now_s"], 1e-9)
    _last_use.update(cpu_s=cpu_s, now_s=now_s)
    found = {"sys/cpus": (cpu_s - before_s) / passed_s}
    if hasattr(os, "getloadavg"):
        found["sys/load"] = os.getloadavg()[0] / N_CPUS
    # Only Linux has this file.
    with suppress(OSError, ValueError, IndexError), open("/proc/self/statm", "rb") as file:
        found["sys/memory"] = int(file.read().split()[1]) * PAGE / 1e6
    if torch.cuda.is_initialized():
        found["sys/gpu_memory"] = torch.cuda.memory_allocated() / 1e6
    return found


def _flat(array: np.ndarray) -> np.ndarray:
    """[T, N, ...] -> [T * N, ...]."""
    return array.reshape(-1, *array.shape[2:])


def _mean_std(name: str, values: np.ndarray) -> dict[str, float]:
    wide = np.float64 if values.dtype.kind != "f" else None  # sums of bytes would overflow
    mean = values.mean(dtype=wide, keepdims=True)
    std = values.std(dtype=wide, mean=mean)
    return {f"{name}/mean": float(mean.item()), f"{name}/std": float(std)}


def _outside(values: np.ndarray, space: Space) -> tuple[int, int]:
    """How many numbers lie outside finite bounds of a Box, and how many have such bounds."""
    if not isinstance(space, spaces.Box) or values.dtype.kind != "f":
        return 0, 0
    low, high = space.low.astype(np.float64), space.high.astype(np.float64)
    slack = TOLERANCE * (1.0 + np.minimum(np.abs(low), np.abs(high)))
    is_bounded = np.isfinite(low) | np.isfinite(high)
    outside = (values < low - slack) | (values > high + slack)
    return int(outside[:, is_bounded].sum()), len(values) * int(is_bounded.sum())


# -- what was learnt ------------------------------------------------------------------------


class Means:
    """Mean metrics of an epoch's updates; scheduled values (hp/) keep their last value.

    Tensors on a GPU are summed there and transferred once, at the end. The key of a tensor of
    several metrics is the tuple of their names."""

    def __init__(self) -> None:
        self._sums: dict[str | tuple[str, ...], Any] = {}
        self._counts: dict[str | tuple[str, ...], int] = {}

    def add(self, metrics: Mapping[Any, Any]) -> None:
        for name, value in metrics.items():
            is_packed = isinstance(name, tuple)
            if not is_packed and not getattr(value, "is_cuda", False):
                value = float(value)
            if name in self._sums and (is_packed or not name.startswith("hp/")):
                self._sums[name] = self._sums[name] + value
                self._counts[name] += 1
            else:  # the next update may overwrite a tensor of several metrics
                self._sums[name] = value.clone() if is_packed else value
                self._counts[name] = 1

    def values(self) -> dict[str, float]:
        """The means. A name that was added alone and in a tuple is averaged over both."""
        sums: dict[str, float] = {}
        counts: dict[str, int] = {}
        for key, total in self._sums.items():
            names, totals = ([key], [total]) if isinstance(key, str) else (key, total.tolist())
            for name, value in zip(names, totals, strict=True):
                sums[name] = sums.get(name, 0.0) + float(value)
                counts[name] = counts.get(name, 0) + self._counts[key]
        return {name: value / counts[name] for name, value in sums.items()}


# -- the row --------------------------------------------------------------------------------


@dataclass(frozen=True)
class EpochStart:
    """The clocks at the start of an epoch."""

    now_s: float
    env_steps: int
    vec_steps: int
    episodes: int
    collect_s: float  # seconds of collecting so far


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
    if result.other:
        row |= {
            "val/roll/ep_rew/greedy": result.mean if result.greedy else result.other["mean"],
            "val/roll/ep_rew/sampled": result.other["mean"] if result.greedy else result.mean,
        }
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
    return row | {name: float(np.mean(seen)) for name, seen in collector.numbers.items() if seen}


def timing(
    p: Progress, plan: Plan, start: EpochStart, now: EpochStart, seconds: dict[str, float]
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
        "train/sys/timing/eta_s": plan.seconds_left(p),
        **{f"train/sys/timing/{name}_share": s / total for name, s in seconds.items()},
        "progress": plan.share_done(p),
    }
