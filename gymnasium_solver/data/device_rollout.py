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
            # A copy: the next rollout is in its place.
            return np.array(column[:, ::stride].cpu().numpy())

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

    def with_final_rows(self) -> Rollout:
        """All of it as arrays, with a row that is not valid after each step that ended an episode
        in some env: it holds what the step led to, as a replay buffer reads it. Of an env that goes
        on this is its next observation, too. Reads the device once."""
        obs, final_obs, actions, reward, terminated, truncated = (
            np.array(column.cpu().numpy())
            for column in (
                self.obs, self.final_obs, self.actions, self.reward, self.terminated, self.truncated
            )
        )  # fmt: skip
        done = terminated | truncated
        n_rows = len(obs)
        more = np.flatnonzero(done.any(axis=1)) + 1  # where such rows are inserted
        is_step = np.insert(np.ones(n_rows, bool), more, False)
        at = np.maximum(np.cumsum(is_step) - 1, 0)  # the step that each row is, or comes after
        valid = np.broadcast_to(is_step[:, None], (len(is_step), self.reward.shape[1]))

        def spread(column: np.ndarray) -> np.ndarray:
            shape = (-1, *[1] * (column.ndim - 1))
            return np.where(is_step.reshape(shape), column[at], np.zeros((), column.dtype))

        shown = np.where(is_step.reshape(-1, *[1] * (obs.ndim - 1)), obs[at], final_obs[at])
        is_first = np.zeros((len(is_step) + 1, valid.shape[1]), bool)
        is_first[1:][~is_step] = done[at[~is_step]]
        is_first[0] = self.is_restart
        return Rollout(
            obs=np.concatenate([shown, final_obs[-1:]]),
            actions=spread(actions),
            reward=spread(reward),
            terminated=spread(terminated),
            truncated=spread(truncated),
            valid=np.array(valid),
            is_first=is_first,
            version=self.version,
            is_restart=self.is_restart,
        )

    def is_finite(self) -> Tensor:
        """One bool: whether all observations and rewards are finite."""
        parts = [self.obs, self.final_obs, self.reward]
        return torch.stack([torch.isfinite(part).all() for part in parts]).all()
