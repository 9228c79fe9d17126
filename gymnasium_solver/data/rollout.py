"""A rollout: T rows of N envs, as returned by the vector environments.

Row t holds the observation, the action, and the result of the step. `obs` has one more row: obs[t +
1] is the observation after step t. At the end of an episode this is the true final observation, so
the bootstrap value of a truncation is the value at row t + 1. `valid` marks the rows to learn from:
no reset rows, and no rows beyond the budget.

A rollout also records how its actions were chosen: the version of the policy (`version`), its carry
before each observation (`carry`) and its distribution (`outputs`, `log_std`). The log-probabilities
of its actions can therefore be computed anywhere, independent of the learner's current weights.
Rollouts of several collectors, whose policies may differ, have the log-probabilities instead.
"""

from dataclasses import dataclass, field, replace
from operator import itemgetter
from typing import Any

import numpy as np
import torch

from gymnasium_solver.spaces.actions import ActionKind
from gymnasium_solver.spaces.observations import (
    Obs,
    Space,
    allocate_obs,
    map_obs,
    obs_arrays,
    put_rows,
    take_rows,
)
from gymnasium_solver.tree import map_tree

_PER_OBSERVATION = ("obs", "is_first", "mask", "carry", "device_obs")
_PER_STEP = (
    "actions", "reward", "terminated", "truncated", "valid", "outputs", "log_prob", "value", "bonus"
)  # fmt: skip


@dataclass
class Rollout:
    obs: Obs  # [T + 1, N, ...], each part
    actions: np.ndarray  # [T, N, ...] in the policy's units
    reward: np.ndarray  # [T, N] float32
    terminated: np.ndarray  # [T, N] bool
    truncated: np.ndarray  # [T, N] bool
    valid: np.ndarray  # [T, N] bool
    is_first: np.ndarray  # [T + 1, N] bool: obs[t] starts an episode
    mask: np.ndarray | None = None  # [T + 1, N, A] bool: legal actions, if the env provides masks
    outputs: np.ndarray | None = None  # [T, N, W] of the acting policy
    log_std: np.ndarray | None = None  # of the acting policy, if its distribution has one
    log_prob: np.ndarray | None = None  # [T, N] of the actions, in place of outputs and log_std
    value: np.ndarray | None = None  # [T, N] of obs, under the acting policy's critic, if known
    bonus: np.ndarray | None = None  # [T, N]: rewards that extensions of the learner added
    carry: dict[str, np.ndarray] = field(default_factory=dict)  # before each row, [T + 1, N, ...]
    version: int = 0  # number of updates of the acting policy
    is_restart: bool = False  # the envs were reset: obs[0] does not follow the previous rollout
    device_obs: Any = None  # `obs` as tensors on the GPU, if the network is on one

    @classmethod
    def allocate(
        cls,
        n_steps: int,
        n_envs: int,
        observation_space: Space,
        actions: ActionKind,
        *,
        n_outputs: int | None = None,
        device: torch.device | None = None,
    ) -> "Rollout":
        """`n_outputs`: width of the outputs to store; `device`: a GPU for a second copy of the
        observations."""
        obs = allocate_obs(observation_space, (n_steps + 1, n_envs))
        device_obs = None
        if device is not None and device.type == "cuda":
            # Rows are copied asynchronously from pinned memory.
            pinned = map_obs(lambda part: torch.from_numpy(part).pin_memory(), obs)
            obs = map_obs(lambda part: part.numpy(), pinned)
            device_obs = map_obs(lambda part: torch.zeros_like(part, device=device), pinned)
        grid = (n_steps, n_envs)
        return cls(
            obs=obs,
            actions=actions.store(grid),
            reward=np.zeros(grid, np.float32),
            terminated=np.zeros(grid, bool),
            truncated=np.zeros(grid, bool),
            valid=np.zeros(grid, bool),
            is_first=np.zeros((n_steps + 1, n_envs), bool),
            outputs=None if n_outputs is None else np.zeros((*grid, n_outputs), np.float32),
            device_obs=device_obs,
        )

    @classmethod
    def estimate_bytes(cls, n_steps: int, n_envs: int, *given: Any, **options: Any) -> int:
        """Host memory that `allocate` uses with these arguments, in bytes."""
        one = cls.allocate(1, 1, *given, **options)
        seen = [one.is_first, *(part for _, part in obs_arrays(one.obs))]
        done = [one.actions, one.reward, one.terminated, one.truncated, one.valid]
        done += [] if one.outputs is None else [one.outputs]
        seen_bytes = (n_steps + 1) * sum(array[0].nbytes for array in seen)
        return n_envs * (seen_bytes + n_steps * sum(array.nbytes for array in done))

    def put_obs(self, row: int, obs: Obs) -> Any:
        """Store a row of observations; return it on the network's device, for acting."""
        put_rows(self.obs, row, obs)
        if self.device_obs is None:
            return obs
        parts = dict(obs_arrays(self.device_obs))
        for name, part in obs_arrays(self.obs):
            parts[name][row].copy_(torch.from_numpy(part[row]), non_blocking=True)
        return take_rows(self.device_obs, row)

    def first(self, n_rows: int) -> "Rollout":
        """A view of the first rows: a rollout cut short by the budget."""
        steps, more = itemgetter(slice(n_rows)), itemgetter(slice(n_rows + 1))
        cut: dict[str, Any] = {n: map_tree(steps, getattr(self, n)) for n in _PER_STEP}
        cut |= {n: map_tree(more, getattr(self, n)) for n in _PER_OBSERVATION}
        return replace(self, **cut)

    @property
    def done(self) -> np.ndarray:
        return self.terminated | self.truncated

    @property
    def n_rows(self) -> int:
        return len(self.valid)

    @property
    def env_steps(self) -> int:
        return int(self.valid.sum())

    def valid_obs(self) -> Obs:
        """The observations of the valid rows, [n, ...]."""
        rows: Obs = map_obs(lambda part: part[:-1][self.valid], self.obs)
        return rows

    def obs_on(self, device: torch.device) -> Any:
        """All observations as tensors on a device, [T + 1, N, ...] each."""
        if self.device_obs is not None:
            return self.device_obs
        return map_obs(lambda part: torch.from_numpy(part).to(device), self.obs)
