"""Actor and stacked critics apart, as SAC, TD3, DDPG and CrossQ have them, and how they act.

The actor's outputs are those of a Gaussian squashed by tanh (means, then log deviations), of a
deterministic action before its tanh, or logits over discrete actions. Critics take observation and
action, or the observation alone where they give a value for each discrete action. Actions are in
the policy's units: [-1, 1] are the bounds of the env's, which therefore must have some.
"""

import math
from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor, nn

from gymnasium_solver.errors import ConfigError
from gymnasium_solver.nets.cnn import Cnn, convolutions
from gymnasium_solver.nets.encoder import ObsEncoder, on_device
from gymnasium_solver.nets.mlp import ACTIVATIONS, NumpyMLP, linear
from gymnasium_solver.nets.normalizer import NormalizeMode
from gymnasium_solver.nets.renorm import BatchRenorm
from gymnasium_solver.nets.stacked import StackedMLP
from gymnasium_solver.spaces.distributions import LOG_SQRT_2PI
from gymnasium_solver.spaces.spaces import ActionMap, action_width

# Bounds of the log deviation by clamping, as in Haarnoja's code and SB3.
LOG_STD_MIN, LOG_STD_MAX = -20.0, 2.0


def bounded_width(space: spaces.Space, algo_id: str, env_id: str) -> int:
    """Numbers in an action of a bounded Box; ConfigError for any other space."""
    if not isinstance(space, spaces.Box):
        raise ConfigError(
            f"algo_id: {algo_id} needs continuous actions, but {env_id} has {space}; use dqn, ppo, "
            "or sac, which takes both."
        )
    if not ActionMap(space).bounded:
        raise ConfigError(
            f"algo_id: {algo_id} squashes its actions into the env's bounds, but {env_id} has "
            f"{space}, where some are infinite; give the env finite ones "
            "(gymnasium.wrappers.RescaleAction does), or use ppo."
        )
    return action_width(space)


def squash(outputs: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
    """Actions [B, A] in (-1, 1) and their log-probabilities [B], from unit normal noise [B, A].

    `outputs` [B, 2 A] are means and log deviations of what is squashed. The logarithm of tanh's
    slope, 1 - tanh(u)^2, is 2 (log 2 - u - softplus(-2 u)), which does not lose digits at large u.
    """
    mean, log_std = outputs.chunk(2, dim=1)
    log_std = log_std.clamp(LOG_STD_MIN, LOG_STD_MAX)
    u = mean + log_std.exp() * noise
    log_slope = 2.0 * (math.log(2.0) - u - nn.functional.softplus(-2.0 * u))
    log_prob = -0.5 * noise.square() - log_std - LOG_SQRT_2PI - log_slope
    return torch.tanh(u), log_prob.sum(1)


def actor_mlp(
    n_in: int,
    hidden_dims: Sequence[int],
    n_out: int,
    activation: str,
    generator: torch.Generator,
    renorm: bool = False,
) -> nn.Sequential:
    """An MLP with its output layer, initialised like the critics."""
    layers: list[nn.Module] = []
    for a, b in pairwise([n_in, *hidden_dims, n_out]):
        layers += [ACTIVATIONS[activation]()] if layers else []
        layers += [BatchRenorm((1, a))] if renorm else []
        layers.append(linear(a, b, None, generator))
    return nn.Sequential(*layers)


class Temperature(nn.Module):
    """The weight of the entropy, alpha, as its logarithm."""

    def __init__(self, alpha: float):
        super().__init__()
        self.log_alpha = nn.Parameter(torch.tensor([math.log(alpha)]))

    @property
    def alpha(self) -> float:
        return math.exp(float(self.log_alpha.detach()))


class ActorCritics(ObsEncoder):
    """`actor`, `critic` and, with a first `alpha`, `temperature`: each for an optimiser of its own.

    All take observations that went through `encode` and `cast`. Actor and critics have convolutions
    of their own (`cnn`), for discrete actions: with continuous ones critics take flat observations.
    """

    def __init__(
        self,
        observation_space: spaces.Space,
        *,
        n_actor_outputs: int,
        n_critics: int,
        n_critic_actions: int,
        n_critic_outputs: int = 1,
        hidden_dims: Sequence[int],
        critic_hidden_dims: Sequence[int] | None = None,
        activation: str = "relu",
        alpha: float | None = None,
        spectral_norm: bool = False,
        renorm: bool = False,
        normalize_obs: NormalizeMode = False,
        clip_obs: float = 10.0,
        cnn: Cnn | None = None,
        generator: torch.Generator,
    ):
        """`n_critic_actions`: numbers of an action that the critics take; 0: none."""
        super().__init__(observation_space, normalize_obs, clip_obs, cnn)
        if cnn is not None and (n_critic_actions or renorm):
            raise ConfigError(
                "policy: cnn: with continuous actions only ppo and reinforce learn from images; "
                "use one of them."
            )
        conv, n_in = convolutions(cnn, self.width, None, generator)
        dense = actor_mlp(n_in, hidden_dims, n_actor_outputs, activation, generator, renorm)
        self.actor = nn.Sequential(*conv, *dense)
        conv, n_in = convolutions(cnn, self.width, None, generator)
        self.critic = StackedMLP(
            n_critics,
            n_in + n_critic_actions,
            hidden_dims if critic_hidden_dims is None else critic_hidden_dims,
            n_critic_outputs,
            activation,
            generator,
            spectral_norm=spectral_norm,
            renorm=renorm,
            conv=conv if cnn else None,
        )
        self.temperature = None if alpha is None else Temperature(alpha)
        self.numpy_actor = None if cnn else NumpyMLP(self.actor, activation)

    def actor_outputs(self, obs: np.ndarray | Tensor) -> np.ndarray:
        """The actor's outputs for a batch of raw observations, without gradients."""
        if self.numpy_actor is not None and self.numpy_actor.runs:
            assert isinstance(obs, np.ndarray)
            return self.numpy_actor(self.encode_numpy(obs))
        device = next(self.actor.parameters()).device
        with torch.no_grad():
            outputs = self.actor(self.cast(self.encode(on_device(obs, device))))
        return outputs.cpu().numpy()
