"""One rollout: T rows of N envs, as the vector contract gives them.

Row t holds the observation acted on, the action, and what the step returned. `obs` has one row
more: obs[t + 1] is the observation after step t, and at the end of an episode that is the true
final observation, so the value to bootstrap a truncation from is simply the value at row t + 1.
`valid` marks the rows to learn from: not the reset rows, and not what exceeds the budget.

Besides, a rollout says how it was acted: by which version of the policy (`version`), from which
carry (`carry`, before each row) and with which distribution (`outputs`, `log_std`), so that the
log-probabilities of its actions can be computed anywhere, whatever the learner's weights are now.
"""

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

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


@dataclass
class Rollout:
    obs: Obs  # [T + 1, N, ...], each part
    actions: np.ndarray  # [T, N, ...] in the policy's units
    reward: np.ndarray  # [T, N] float32
    terminated: np.ndarray  # [T, N] bool
    truncated: np.ndarray  # [T, N] bool
    valid: np.ndarray  # [T, N] bool
    is_first: np.ndarray  # [T + 1, N] bool: obs[t] opens an episode
    mask: np.ndarray | None = None  # [T + 1, N, A] bool: the legal actions, where an env has masks
    outputs: np.ndarray | None = None  # [T, N, W] of the policy that acted
    log_std: np.ndarray | None = None  # of the policy that acted, where its distribution has one
    carry: dict[str, np.ndarray] = field(default_factory=dict)  # before each row, [T, N, ...]
    version: int = 0  # updates that the policy that acted had seen
    is_restart: bool = False  # the envs were reset: obs[0] does not follow the rollout before
    device_obs: Any = None  # `obs` as tensors on the GPU, where the network is on one

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
        """`n_outputs`: width of the outputs to keep; `device`: a GPU, for a second copy of the
        observations there."""
        obs = allocate_obs(observation_space, (n_steps + 1, n_envs))
        device_obs = None
        if device is not None and device.type == "cuda":
            # Rows are copied from pinned memory while the host goes on.
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
    def estimate_bytes(
        cls,
        n_steps: int,
        n_envs: int,
        observation_space: Space,
        actions: ActionKind,
        *,
        n_outputs: int | None = None,
    ) -> int:
        """Bytes of what `allocate` gives, in the host's memory."""
        one = cls.allocate(1, 1, observation_space, actions, n_outputs=n_outputs)
        seen = [one.is_first, *(part for _, part in obs_arrays(one.obs))]
        done = [one.actions, one.reward, one.terminated, one.truncated, one.valid]
        done += [] if one.outputs is None else [one.outputs]
        seen_bytes = (n_steps + 1) * sum(array[0].nbytes for array in seen)
        return n_envs * (seen_bytes + n_steps * sum(array.nbytes for array in done))

    def put_obs(self, row: int, obs: Obs) -> Any:
        """Keep a row of observations; the same to act on, where the network is."""
        put_rows(self.obs, row, obs)
        if self.device_obs is None:
            return obs
        if isinstance(self.obs, dict):
            return {name: self._upload(row, part, self.obs[name]) for name, part in self._parts()}
        return self._upload(row, self.device_obs, self.obs)

    def _parts(self) -> list[tuple[str, Tensor]]:
        return list(self.device_obs.items())

    def _upload(self, row: int, place: Tensor, part: np.ndarray) -> Tensor:
        return place[row].copy_(torch.from_numpy(part[row]), non_blocking=True)

    def first(self, n_rows: int) -> "Rollout":
        """The first rows alone, without copying: a rollout that the budget cut short."""
        rows, more = slice(n_rows), slice(n_rows + 1)
        return replace(
            self,
            obs=take_rows(self.obs, more),
            actions=self.actions[rows],
            reward=self.reward[rows],
            terminated=self.terminated[rows],
            truncated=self.truncated[rows],
            valid=self.valid[rows],
            is_first=self.is_first[more],
            mask=None if self.mask is None else self.mask[more],
            outputs=None if self.outputs is None else self.outputs[rows],
            carry=take_rows(self.carry, rows),
            device_obs=None if self.device_obs is None else take_rows(self.device_obs, more),
        )

    @property
    def done(self) -> np.ndarray:
        return self.terminated | self.truncated

    @property
    def env_steps(self) -> int:
        return int(self.valid.sum())

    def valid_obs(self) -> Obs:
        """The observations acted on, [n, ...]."""
        rows: Obs = map_obs(lambda part: part[:-1][self.valid], self.obs)
        return rows

    def obs_on(self, device: torch.device) -> Any:
        """All observations as tensors on a device, [T + 1, N, ...] each."""
        if self.device_obs is not None:
            return self.device_obs
        return map_obs(lambda part: torch.from_numpy(part).to(device), self.obs)
