"""Running statistics of observations and of returns.

The observation normaliser is part of the policy: its buffers are saved, exported and frozen with
the weights, so an evaluation can not see other statistics than training did. The reward
normaliser only shapes the learning signal and lives in the learner's state.
"""

from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn

NormalizeMode = Literal[False, "rolling", "static"]
EPSILON = 1e-8


def merge_moments(
    mean: np.ndarray, var: np.ndarray, count: float, batch: np.ndarray
) -> tuple[np.ndarray, np.ndarray, float]:
    """Mean and variance of old and new samples together (Chan et al.), in float64."""
    batch = batch.astype(np.float64)
    n = len(batch)
    total = count + n
    batch_mean = batch.mean(axis=0)
    delta = batch_mean - mean
    new_mean = mean + delta * (n / total)
    sum_of_squares = var * count + batch.var(axis=0) * n + delta**2 * (count * n / total)
    return new_mean, sum_of_squares / total, total


class ObsNormalizer(nn.Module):
    """`clip((obs - shift) * scale)`, from running moments ("rolling") or from bounds ("static")."""

    shift: Tensor
    scale: Tensor
    mean: Tensor
    var: Tensor
    count: Tensor

    def __init__(self, bounds: np.ndarray, mode: NormalizeMode, clip: float):
        """`bounds` [2, width]: low and high of each component, which "static" scales by."""
        super().__init__()
        self.mode = mode
        self.clip = clip
        width = bounds.shape[1]
        shift, scale = np.zeros(width), np.ones(width)
        if mode == "static":
            low, high = bounds
            # Infinite bounds, and bounds that are only float limits, leave a component as it is.
            known = (np.abs(low) < 1e30) & (np.abs(high) < 1e30) & (high > low)
            shift[known] = (low[known] + high[known]) / 2.0
            scale[known] = 2.0 / (high[known] - low[known])
        self.register_buffer("shift", torch.from_numpy(shift.astype(np.float32)))
        self.register_buffer("scale", torch.from_numpy(scale.astype(np.float32)))
        # Moments are kept in float64; the float32 shift and scale above are what is applied.
        self.register_buffer("mean", torch.zeros(width, dtype=torch.float64))
        self.register_buffer("var", torch.ones(width, dtype=torch.float64))
        self.register_buffer("count", torch.zeros((), dtype=torch.float64))

    def forward(self, x: Tensor) -> Tensor:
        if not self.mode:
            return x
        return ((x - self.shift) * self.scale).clamp(-self.clip, self.clip)

    def update(self, obs: np.ndarray) -> None:
        """Take observations [n, width] into the running moments; a no-op unless rolling."""
        if self.mode != "rolling" or len(obs) == 0:
            return
        mean, var, count = merge_moments(
            self.mean.cpu().numpy(), self.var.cpu().numpy(), float(self.count), obs
        )
        # In place: recorded programs read these buffers where they are.
        self.mean.copy_(torch.from_numpy(mean))
        self.var.copy_(torch.from_numpy(var))
        self.count.fill_(count)
        self.shift.copy_(self.mean)
        self.scale.copy_((self.var + EPSILON).rsqrt())


class RewardNormalizer:
    """Divides rewards by the running standard deviation of the discounted return.

    The mean is left alone: subtracting it would change which policy is best.
    """

    def __init__(self, n_envs: int, gamma: float, clip: float | None):
        self.gamma, self.clip = gamma, clip
        self.running_return = np.zeros(n_envs)
        self.mean, self.var, self.count = np.zeros(()), np.ones(()), 0.0

    def restart(self) -> None:
        """The envs were reset: no return continues."""
        self.running_return = np.zeros_like(self.running_return)

    def __call__(self, reward: np.ndarray, done: np.ndarray, valid: np.ndarray) -> np.ndarray:
        """Rewards [T, N] of one rollout, scaled by statistics that include it."""
        self.update(reward, done, valid)
        scaled = (reward * self.scale).astype(np.float32)
        return scaled if self.clip is None else np.clip(scaled, -self.clip, self.clip)

    @property
    def scale(self) -> float:
        """What a reward is multiplied with."""
        return float(1.0 / np.sqrt(self.var + EPSILON))

    def update(self, reward: np.ndarray, done: np.ndarray, valid: np.ndarray) -> None:
        """Take the rewards [T, N] of one rollout into the statistics."""
        returns = np.empty(reward.shape)
        for t in range(len(reward)):
            self.running_return = np.where(
                valid[t], self.running_return * self.gamma + reward[t], self.running_return
            )
            returns[t] = self.running_return
            self.running_return[done[t]] = 0.0
        if valid.any():
            self.mean, self.var, self.count = merge_moments(
                self.mean, self.var, self.count, returns[valid]
            )

    def state(self) -> dict[str, Any]:
        return {
            "running_return": self.running_return.tolist(),
            "mean": float(self.mean),
            "var": float(self.var),
            "count": self.count,
        }

    def load_state(self, state: dict[str, Any]) -> None:
        running_return = np.array(state["running_return"])
        if running_return.shape == self.running_return.shape:  # else: other envs, new episodes
            self.running_return = running_return
        self.mean, self.var = np.array(state["mean"]), np.array(state["var"])
        self.count = state["count"]
