"""A rollout that stays on its device: T rows of N envs as tensors (envs/device.py).

Unlike in a `Rollout` every row is an env step, since environments on a device open the next episode
in the step that ends one. `final_obs[t]` is what step t led to: at the end of an episode the true
final observation, else obs[t + 1]. The tensors are overwritten by the next rollout.
"""

from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from gymnasium_solver import processes
from gymnasium_solver.data.rollout import Rollout


@dataclass
class DeviceRollout:
    obs: Tensor  # [T, N, ...]
    final_obs: Tensor  # [T, N, ...]
    actions: Tensor  # [T, N, ...] in the policy's units
    log_prob: Tensor  # [T, N] under the acting policy
    reward: Tensor  # [T, N]
    terminated: Tensor  # [T, N] bool
    truncated: Tensor  # [T, N] bool
    version: int = field(default=0, kw_only=True)  # number of updates of the acting policy
    is_restart: bool = field(default=False, kw_only=True)  # obs[0] opens new episodes of all envs

    @property
    def n_rows(self) -> int:
        return len(self.reward)

    @property
    def env_steps(self) -> int:
        """Of all processes, each of which has such a rollout."""
        return self.reward.numel() * processes.count()

    def first(self, n_rows: int) -> "DeviceRollout":
        """The first rows, in the same memory."""
        columns = (column for column in vars(self).values() if isinstance(column, Tensor))
        return DeviceRollout(*(column[:n_rows] for column in columns), version=self.version)

    def on_host(self, n_samples: int) -> Rollout:
        """About this many samples as arrays, those of evenly spaced envs; reads the device."""
        n_rows, n_envs = self.reward.shape
        stride = max(1, -(-n_rows * n_envs // max(n_samples, n_rows)))

        def some(column: Tensor) -> np.ndarray:
            return np.array(
                column[:, ::stride].cpu().numpy()
            )  # a copy: the next rollout is in its place

        obs, valid = some(self.obs), np.ones((n_rows, len(range(0, n_envs, stride))), bool)
        return Rollout(
            obs=np.concatenate([obs, some(self.final_obs[-1:])]),
            actions=some(self.actions),
            reward=some(self.reward),
            terminated=some(self.terminated),
            truncated=some(self.truncated),
            valid=valid,
            is_first=np.zeros((n_rows + 1, valid.shape[1]), bool),
            log_prob=some(self.log_prob),
            version=self.version,
        )

    def is_finite(self) -> Tensor:
        """One bool: whether all observations and rewards are finite."""
        parts = [self.obs, self.final_obs, self.reward]
        return torch.stack([torch.isfinite(part).all() for part in parts]).all()
