"""One rollout: T rows of N envs, as the vector contract gives them.

Row t holds the observation acted on, the action, and what the step returned. `obs` has one row
more: obs[t + 1] is the observation after step t, and at the end of an episode that is the true
final observation, so the value to bootstrap a truncation from is simply the value at row t + 1.
`valid` marks the rows to learn from: not the reset rows, and not what exceeds the budget.
"""

from dataclasses import dataclass

import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor


@dataclass
class Rollout:
    obs: np.ndarray  # [T + 1, N, ...]
    actions: np.ndarray  # [T, N, ...] in the policy's units
    reward: np.ndarray  # [T, N] float32
    terminated: np.ndarray  # [T, N] bool
    truncated: np.ndarray  # [T, N] bool
    valid: np.ndarray  # [T, N] bool
    mask: np.ndarray | None = None  # [T + 1, N, A] bool: the legal actions, where an env has masks
    is_restart: bool = False  # the envs were reset: obs[0] does not follow the rollout before
    device_obs: Tensor | None = None  # `obs` on the GPU, where the network is on one

    @classmethod
    def allocate(
        cls,
        n_steps: int,
        n_envs: int,
        observation_space: spaces.Space,
        action_space: spaces.Space,
        device: torch.device | None = None,
    ) -> "Rollout":
        """`device`: a GPU, for a second copy of the observations there."""
        obs_shape = observation_space.shape or ()
        obs = np.zeros((n_steps + 1, n_envs, *obs_shape), observation_space.dtype)
        device_obs = None
        if device is not None and device.type == "cuda":
            # From pinned memory rows go up while the host goes on.
            pinned = torch.from_numpy(obs).pin_memory()
            obs, device_obs = pinned.numpy(), torch.zeros_like(pinned, device=device)
        is_discrete = isinstance(action_space, spaces.Discrete)
        action_shape = () if is_discrete else (int(np.prod(action_space.shape or (), dtype=int)),)
        grid = (n_steps, n_envs)
        return cls(
            obs=obs,
            actions=np.zeros((*grid, *action_shape), np.int64 if is_discrete else np.float32),
            reward=np.zeros(grid, np.float32),
            terminated=np.zeros(grid, bool),
            truncated=np.zeros(grid, bool),
            valid=np.zeros(grid, bool),
            device_obs=device_obs,
        )

    @classmethod
    def estimate_bytes(
        cls, n_steps: int, n_envs: int, observation_space: spaces.Space, action_space: spaces.Space
    ) -> int:
        """Bytes of what `allocate` gives, in the host's memory."""
        one = cls.allocate(1, 1, observation_space, action_space)
        arrays = (one.actions, one.reward, one.terminated, one.truncated, one.valid)
        obs_bytes = (n_steps + 1) * one.obs[0].nbytes
        return n_envs * (obs_bytes + n_steps * sum(array.nbytes for array in arrays))

    def put_obs(self, row: int, obs: np.ndarray) -> np.ndarray | Tensor:
        """Keep a row of observations; the same to act on, where the network is."""
        self.obs[row] = obs
        if self.device_obs is None:
            return obs
        place = self.device_obs[row]
        return place.copy_(torch.from_numpy(self.obs[row]), non_blocking=True)

    def first(self, n_rows: int) -> "Rollout":
        """The first rows alone, without copying: a rollout that the budget cut short."""
        return Rollout(
            self.obs[: n_rows + 1],
            self.actions[:n_rows],
            self.reward[:n_rows],
            self.terminated[:n_rows],
            self.truncated[:n_rows],
            self.valid[:n_rows],
            None if self.mask is None else self.mask[: n_rows + 1],
            self.is_restart,
            None if self.device_obs is None else self.device_obs[: n_rows + 1],
        )

    @property
    def done(self) -> np.ndarray:
        return self.terminated | self.truncated

    @property
    def env_steps(self) -> int:
        return int(self.valid.sum())

    def valid_obs(self) -> np.ndarray:
        """The observations acted on, [n, ...]."""
        return self.obs[:-1][self.valid]
