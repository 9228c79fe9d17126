"""What every action space provides (`ActionKind`), and the masks and sampling they share.

See actions.py for the kinds themselves and for the units of actions.
"""

import math
from abc import ABC, abstractmethod
from typing import Any

import numpy as np
import torch
from torch import Tensor

from gymnasium_solver.spaces.native_actions import to_native, to_native_batch
from gymnasium_solver.spaces.observations import Space

LOG_SQRT_2PI = 0.5 * math.log(2 * math.pi)
Moments = tuple[np.ndarray, np.ndarray]
MASKED_LOGIT = -1e8  # of an illegal action: its probability and entropy contribution are 0


class ActionKind(ABC):
    """Everything the rest of the program needs to know about an action space."""

    space: Space
    shape: tuple[int, ...]
    """Shape of one stored action."""
    dtype: type[np.generic]
    n_outputs: int
    """Number of outputs of the actor's head per state."""
    n_log_std: int = 0
    """Number of learnt, state-independent log standard deviations (Box parts)."""
    n_mask: int | None = None
    """Columns of a mask of legal actions; None: the space cannot be masked."""
    is_real: bool = False
    """Whether an action, or a part of it, is a real number."""

    @abstractmethod
    def log_prob_entropy(
        self, outputs: Tensor, log_std: Tensor | None, actions: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Log-probabilities [B], and entropies [B], or a scalar if the entropy is the same in all
        states."""

    @abstractmethod
    def sample(
        self, outputs: np.ndarray, log_std: np.ndarray | None, rng: np.random.Generator
    ) -> np.ndarray:
        """One sample for each row of outputs [B, n_outputs]."""

    def noise(self, n: int, rng: np.random.Generator) -> np.ndarray | None:
        """The random numbers that `sample` would draw for n rows, if `from_noise` can use them."""
        return None

    def from_noise(self, outputs: Tensor, log_std: Tensor | None, noise: Tensor) -> Tensor:
        """The samples that these random numbers give, in torch: for programs that sample."""
        raise NotImplementedError(f"{type(self).__name__} samples in NumPy only")

    @abstractmethod
    def mode(self, outputs: np.ndarray) -> np.ndarray:
        """The most likely action of each row."""

    @abstractmethod
    def uniform(
        self, n: int, rng: np.random.Generator, mask: np.ndarray | None = None
    ) -> np.ndarray:
        """Sample n actions uniformly from the legal ones; an unbounded Box from a standard
        normal."""

    @abstractmethod
    def to_env(self, actions: np.ndarray) -> np.ndarray:
        """Convert to the environment's units, [N, *shape of the environment's action].

        For a Dict or Tuple: [N, width], the leaves concatenated as float64.
        """

    @abstractmethod
    def from_env(self, actions: np.ndarray) -> np.ndarray:
        """Actions [N, ...] in the environment's units, as stored: the inverse of `to_env`."""

    def mode_error(self, outputs: Tensor, log_std: Tensor | None, actions: Tensor) -> Tensor:
        """How far the most likely action is from these [B]: the mean squared difference of real
        numbers, where a bounded Box is [-1, 1]; of choices the negative log-probability."""
        return -self.log_prob_entropy(outputs, log_std, actions)[0]

    def spread_loss(self, outputs: Tensor, log_std: Tensor | None, actions: Tensor) -> Tensor:
        """The negative log-probability of real numbers as a function of the deviation alone, with
        the mean held; 0 if the distribution has no deviation of its own. With `mode_error` it fits
        mean and deviation, without the steep gradients that a small deviation gives the mean."""
        return outputs.new_zeros(())

    def output_parts(self) -> dict[str, int]:
        """The outputs by part of the action: names and widths, in order."""
        return {"action": self.n_outputs}

    def probabilities(self, outputs: np.ndarray) -> np.ndarray | None:
        """Of each choice, in the order of the outputs; of each bit, that it is set. None: the
        distribution is not over choices."""
        return None

    def moments(self, outputs: np.ndarray, log_std: np.ndarray | None) -> Moments | None:
        """Mean and standard deviation of real-valued actions [B, width], in the policy's units,
        before a squashing to the bounds. None: not of this kind."""
        return None

    def first_log_std(self, value: float) -> Tensor:
        """Initial log standard deviations [n_log_std]."""
        return torch.full((self.n_log_std,), float(value))

    def to_native(self, action: np.ndarray) -> Any:
        """Convert one row of `to_env` to the action of a single environment."""
        return to_native(self.space, action)

    def to_native_batch(self, actions: np.ndarray) -> Any:
        """Convert rows of `to_env` to the actions of a vectorised environment."""
        return to_native_batch(self.space, actions)

    def store(self, lead: tuple[int, ...]) -> np.ndarray:
        """Zeros for actions [*lead, *shape]."""
        return np.zeros((*lead, *self.shape), self.dtype)


def mask_outputs(outputs: np.ndarray, mask: np.ndarray | None) -> np.ndarray:
    """Mask the outputs so that illegal actions (mask False) have probability 0."""
    return outputs if mask is None else np.where(mask, outputs, np.float32(MASKED_LOGIT))


def mask_tensor(outputs: Tensor, mask: Tensor | None) -> Tensor:
    return outputs if mask is None else outputs.masked_fill(~mask, MASKED_LOGIT)


def softmax(logits: np.ndarray) -> np.ndarray:
    """Over the last axis."""
    weights = np.exp(logits - logits.max(axis=-1, keepdims=True))
    return weights / weights.sum(axis=-1, keepdims=True)


TINY = 1e-30  # exponential noise can be exactly 0, whose logarithm is undefined


def gumbel_max(logits: np.ndarray, noise: np.ndarray) -> np.ndarray:
    """Sample from softmax(logits) over the last axis, using standard exponential noise of that
    shape."""
    noise = noise + np.float32(TINY)
    return (logits - np.log(noise, out=noise)).argmax(axis=-1)
