"""Running statistics of observations and returns.

The observation normaliser is part of the policy: its buffers are saved, exported and frozen with
the weights, so evaluation uses the same statistics as training. The reward normaliser only scales
the learning signal and is part of the learner's state.
"""

from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn

from gymnasium_solver import processes

NormalizeMode = Literal[False, "rolling", "static"]
EPSILON = 1e-8


def merge_moments(
    mean: np.ndarray, var: np.ndarray, count: float, batch: np.ndarray
) -> tuple[np.ndarray, np.ndarray, float]:
    """Mean and variance of old and new samples combined (Chan et al.), in float64."""
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
        """`bounds` [2, width]: low and high of each component, used by "static"."""
        super().__init__()
        self.mode = mode
        self.clip = clip
        width = bounds.shape[1]
        shift, scale = np.zeros(width), np.ones(width)
        if mode == "static":
            low, high = bounds
            # Components with infinite bounds, or with bounds at the float limits, are left
            # unchanged.
            known = (np.abs(low) < 1e30) & (np.abs(high) < 1e30) & (high > low)
            shift[known] = (low[known] + high[known]) / 2.0
            scale[known] = 2.0 / (high[known] - low[known])
        self.register_buffer("shift", torch.from_numpy(shift.astype(np.float32)))
        self.register_buffer("scale", torch.from_numpy(scale.astype(np.float32)))
        # Moments are kept in float64; the float32 shift and scale above are applied.
        self.register_buffer("mean", torch.zeros(width, dtype=torch.float64))
        self.register_buffer("var", torch.ones(width, dtype=torch.float64))
        self.register_buffer("count", torch.zeros((), dtype=torch.float64))

    def forward(self, x: Tensor) -> Tensor:
        if not self.mode:
            return x
        return ((x - self.shift) * self.scale).clamp(-self.clip, self.clip)

    def update(self, obs: np.ndarray) -> None:
        """Update the running moments with observations [n, width]; no effect unless "rolling"."""
        if self.mode != "rolling" or len(obs) == 0:
            return
        mean, var, count = merge_moments(
            self.mean.cpu().numpy(), self.var.cpu().numpy(), float(self.count), obs
        )
        # In place: recorded programs hold references to these buffers.
        self.mean.copy_(torch.from_numpy(mean))
        self.var.copy_(torch.from_numpy(var))
        self.count.fill_(count)
        self._rescale()

    def update_on_device(self, obs: Tensor) -> None:
        """The same of a tensor on the buffers' device, without waiting for it."""
        if self.mode != "rolling":
            return
        n, mean, var = processes.moments(obs.double())
        total, delta = self.count + n, mean - self.mean
        spread = var * n + delta.square() * (self.count * n / total)
        self.var.copy_((self.var * self.count + spread) / total)
        self.mean.add_(delta * (n / total))
        self.count.copy_(total)
        self._rescale()

    def _rescale(self) -> None:
        self.shift.copy_(self.mean)
        self.scale.copy_((self.var + EPSILON).rsqrt())


class RewardNormalizer:
    """Divides rewards by the running standard deviation of the discounted return.

    The mean is not subtracted, since that would change the optimal policy. With `max_return` they
    are scaled down further, so that the largest return so far does not exceed it. `by_size`: by
    the mean size of a reward instead, whose moments are then kept."""

    def __init__(
        self,
        n_envs: int,
        gamma: float,
        clip: float | None,
        max_return: float | None = None,
        by_size: bool = False,
    ):
        self.gamma, self.clip, self.max_return = gamma, clip, max_return
        self.by_size = by_size
        self.running_return, self.largest = np.zeros(n_envs), 0.0
        self.mean, self.var, self.count = np.zeros(()), np.ones(()), 0.0

    def restart(self) -> None:
        """Reset the running returns after a reset of the envs."""
        self.running_return = np.zeros_like(self.running_return)

    def __call__(self, reward: np.ndarray, done: np.ndarray, valid: np.ndarray) -> np.ndarray:
        """Scale the rewards [T, N] of one rollout, with statistics that include it."""
        self.update(reward, done, valid)
        scaled = (reward * self.scale).astype(np.float32)
        return scaled if self.clip is None else np.clip(scaled, -self.clip, self.clip)

    @property
    def scale(self) -> float:
        """Factor applied to rewards."""
        size = self.mean + EPSILON if self.by_size else np.sqrt(self.var + EPSILON)
        if self.max_return is not None:
            size = np.maximum(size, self.largest / self.max_return)
        return float(1.0 / size)

    def update(self, reward: np.ndarray, done: np.ndarray, valid: np.ndarray) -> None:
        """Update the statistics with the rewards [T, N] of one rollout."""
        returns = np.empty(reward.shape)
        for t in range(len(reward)):
            self.running_return = np.where(
                valid[t], self.running_return * self.gamma + reward[t], self.running_return
            )
            returns[t] = self.running_return
            self.running_return[done[t]] = 0.0
        if valid.any():
            values = np.abs(reward, dtype=np.float64) if self.by_size else returns
            self.mean, self.var, self.count = merge_moments(
                self.mean, self.var, self.count, values[valid]
            )
            self.largest = max(self.largest, float(np.abs(returns[valid]).max()))

    def state(self) -> dict[str, Any]:
        return {
            "running_return": self.running_return.tolist(),
            "mean": float(self.mean),
            "var": float(self.var),
            "count": self.count,
            "largest": self.largest,
        }

    def load_state(self, state: dict[str, Any]) -> None:
        self.largest = state.get("largest", 0.0)
        running_return = np.array(state["running_return"])
        if running_return.shape == self.running_return.shape:  # else n_envs changed: new episodes
            self.running_return = running_return
        self.mean, self.var = np.array(state["mean"]), np.array(state["var"])
        self.count = state["count"]


class DeviceRewardNormalizer:
    """The same of tensors, without waiting for their device: all rows are valid.

    `push` takes the numbers of a RewardNormalizer, `pull` gives them back: to save a run."""

    def __init__(self, host: RewardNormalizer, device: torch.device):
        self.host = host
        n_envs = len(host.running_return)
        self.running_return = torch.zeros(n_envs, dtype=torch.float64, device=device)
        # Mean, variance, count and the largest return so far.
        self.moments = torch.zeros(4, dtype=torch.float64, device=device)
        self.push()

    def push(self) -> None:
        host = self.host
        self.running_return.copy_(torch.from_numpy(host.running_return))
        numbers = [float(host.mean), float(host.var), host.count, host.largest]
        self.moments.copy_(torch.tensor(numbers, dtype=torch.float64))

    def pull(self) -> None:
        host = self.host
        host.running_return = self.running_return.cpu().numpy().copy()
        mean, var, host.count, host.largest = self.moments.tolist()
        host.mean, host.var = np.array(mean), np.array(var)

    def __call__(self, reward: Tensor, done: Tensor) -> Tensor:
        """Scale the rewards [T, N] of one rollout, with statistics that include it."""
        goes_on = self.host.gamma * (~done).double()
        rows = list(reward.double().unbind())
        rows[0] = rows[0] + self.host.gamma * self.running_return
        for t in range(1, len(rows)):
            rows[t] = torch.addcmul(rows[t], goes_on[t - 1], rows[t - 1])
        returns = torch.stack(rows)
        self.running_return.copy_(rows[-1].masked_fill(done[-1], 0.0))
        self._merge(returns, reward.double().abs() if self.host.by_size else returns)
        scaled = (reward * self._scale()).float()
        return scaled if self.host.clip is None else scaled.clamp(-self.host.clip, self.host.clip)

    def _merge(self, returns: Tensor, values: Tensor) -> None:
        mean, var, count, largest = self.moments.unbind()
        n, new_mean, new_var = processes.moments(values.flatten())
        total, delta = count + n, new_mean - mean
        squares = var * count + new_var * n + delta.square() * (count * n / total)
        now = (mean + delta * (n / total), squares / total, total)
        new_largest = processes.largest_(returns.abs().max())
        self.moments.copy_(torch.stack([*now, torch.maximum(largest, new_largest)]))

    def _scale(self) -> Tensor:
        size = (self.moments[1] + EPSILON).sqrt()
        if self.host.by_size:
            size = self.moments[0] + EPSILON
        if self.host.max_return is not None:
            size = torch.maximum(size, self.moments[3] / self.host.max_return)
        return 1.0 / size
