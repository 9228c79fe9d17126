"""Action distributions as functions of the actor's output.

Training needs log-probabilities and entropies with gradients (torch); acting needs draws and
modes (NumPy: a draw for eight envs costs microseconds there). One class a family, no state.
"""

import math
from typing import Protocol

import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor

LOG_SQRT_2PI = 0.5 * math.log(2 * math.pi)
MASKED_LOGIT = -1e8  # of a forbidden action: its probability is exactly 0, its entropy too


class Distribution(Protocol):
    """`outputs` [B, W] are the actor head's; `log_std` [W] is used by Gaussians alone.

    An entropy is [B], or a scalar where it is the same for every state.
    """

    def log_prob_entropy(
        self, outputs: Tensor, log_std: Tensor | None, actions: Tensor
    ) -> tuple[Tensor, Tensor]: ...

    def sample(
        self, outputs: np.ndarray, log_std: np.ndarray | None, rng: np.random.Generator
    ) -> np.ndarray: ...

    def mode(self, outputs: np.ndarray) -> np.ndarray: ...


class Categorical:
    def log_prob_entropy(
        self, outputs: Tensor, log_std: Tensor | None, actions: Tensor
    ) -> tuple[Tensor, Tensor]:
        log_probs = torch.log_softmax(outputs, dim=-1)
        entropy = -(log_probs.exp() * log_probs).sum(-1)
        return log_probs.gather(1, actions.unsqueeze(1)).squeeze(1), entropy

    def sample(
        self, outputs: np.ndarray, log_std: np.ndarray | None, rng: np.random.Generator
    ) -> np.ndarray:
        return gumbel_max(outputs, rng.standard_exponential(outputs.shape, dtype=np.float32))

    def mode(self, outputs: np.ndarray) -> np.ndarray:
        return outputs.argmax(axis=1)


def gumbel_max(logits: np.ndarray, noise: np.ndarray) -> np.ndarray:
    """Draws [B] from softmax(logits) by unit exponential noise [B, A]: argmax(logit - log E)."""
    noise = noise + np.float32(1e-30)  # a draw of exactly 0 happens, and has no logarithm
    return (logits - np.log(noise, out=noise)).argmax(axis=1)


class DiagGaussian:
    """Independent normals; the standard deviation does not depend on the state."""

    def log_prob_entropy(
        self, outputs: Tensor, log_std: Tensor | None, actions: Tensor
    ) -> tuple[Tensor, Tensor]:
        assert log_std is not None
        z = (actions - outputs) * (-log_std).exp()
        log_prob = -(0.5 * z.square() + log_std + LOG_SQRT_2PI).sum(-1)
        entropy = (log_std + (0.5 + LOG_SQRT_2PI)).sum()
        return log_prob, entropy

    def sample(
        self, outputs: np.ndarray, log_std: np.ndarray | None, rng: np.random.Generator
    ) -> np.ndarray:
        assert log_std is not None
        noise = rng.standard_normal(outputs.shape, dtype=np.float32)
        return outputs + np.exp(log_std) * noise

    def mode(self, outputs: np.ndarray) -> np.ndarray:
        return outputs


def distribution_for(space: spaces.Space) -> Distribution:
    return Categorical() if isinstance(space, spaces.Discrete) else DiagGaussian()
