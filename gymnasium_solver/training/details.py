"""Statistics of what was collected in an epoch: observations, rewards, actions.

    details = RolloutDetails(observation_space, actions, n_rollouts=1)
    details.add(rollout)
    details.metrics()            # {"roll/obs/mean": ..., "roll/actions/hist/00": ...}

They cost time, so the loop asks for them only every few epochs (`log_details_freq_epochs`), and
they are measured on evenly spaced rows. They read rollouts and change nothing.
"""

import math
import os

import numpy as np
from gymnasium import spaces

from gymnasium_solver.config.schema import Config
from gymnasium_solver.data.rollout import Rollout
from gymnasium_solver.spaces.actions import ActionKind, action_histogram
from gymnasium_solver.spaces.observations import Space, obs_arrays, part_spaces

MOST_NUMBERS = 2**18  # measured per part of the observations
MOST_ROWS, LEAST_ROWS = 4096, 16
STEPS_BETWEEN = 4096
N_CPUS = os.cpu_count() or 1  # asking takes a system call or three
TOLERANCE = 1e-4  # of a bound: rounding of 32-bit numbers is not a violation


def detail_epochs(config: Config) -> int | None:
    """Epochs between two rows with details; None: never."""
    freq = config.log_details_freq_epochs
    if freq == "auto":
        return max(1, round(STEPS_BETWEEN / (config.n_envs * config.n_steps)))
    return freq or None


def is_detailed(epoch: int, freq: int | None) -> bool:
    """Whether this epoch logs details: the first one, and every multiple of `freq`."""
    return freq is not None and (epoch == 1 or epoch % freq == 0)


class RolloutDetails:
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

    def add(self, rollout: Rollout) -> None:
        valid = np.flatnonzero(rollout.valid)
        self._rewards.append(rollout.reward.reshape(-1)[valid])
        self._actions.append(_flat(rollout.actions)[valid])
        if rollout.mask is not None:
            self._legal.append(float(rollout.mask[:-1].mean()))
        rows = valid[:: max(1, -(-len(valid) // self.rows_each))]
        for name, part in obs_arrays(rollout.obs):
            self._obs[name].append(_flat(part)[rows])

    def metrics(self) -> dict[str, float]:
        rewards, actions = np.concatenate(self._rewards), np.concatenate(self._actions)
        if len(rewards) == 0:
            return {}
        found = _mean_std("roll/reward", rewards)
        found |= {"roll/reward/min": float(rewards.min()), "roll/reward/max": float(rewards.max())}
        found |= _mean_std("roll/actions", actions)
        if self._legal:
            found["roll/actions/legal"] = sum(self._legal) / len(self._legal)
        for name, fraction in action_histogram(self.actions, actions).items():
            found[f"roll/actions/hist/{name}"] = fraction
        return found | self._observed() | _load()

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


def _load() -> dict[str, float]:
    """The load average per CPU, where the system reports it."""
    if not hasattr(os, "getloadavg"):
        return {}
    return {"sys/load": os.getloadavg()[0] / N_CPUS}


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
