"""Actor and critic as one module: encoder and normaliser, torsos, heads.

`ActorCritic` is what is trained, saved (model.safetensors) and exported. Its torch methods carry
gradients; `actor_outputs` is the acting path, which on the CPU runs the same forward pass in
NumPy on views of the same weights: a small MLP for eight envs costs about 20 us there against
more than 100 us of torch dispatch.
"""

import math
from collections.abc import Callable, Sequence
from itertools import pairwise

import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor, nn

from gymnasium_solver.nets.normalizer import PIXEL_MAX, NormalizeMode, ObsNormalizer
from gymnasium_solver.nets.spaces import action_width, observation_width

ACTIVATIONS: dict[str, type[nn.Module]] = {
    "tanh": nn.Tanh,
    "relu": nn.ReLU,
    "leaky_relu": nn.LeakyReLU,
    "elu": nn.ELU,
    "selu": nn.SELU,
    "gelu": nn.GELU,
    "silu": nn.SiLU,
    "swish": nn.SiLU,
    "identity": nn.Identity,
}
# In place on a fresh array. What is missing here (elu, selu, gelu) acts through torch.
NUMPY_ACTIVATIONS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "tanh": lambda x: np.tanh(x, out=x),
    "relu": lambda x: np.maximum(x, 0.0, out=x),
    "leaky_relu": lambda x: np.maximum(x, 0.01 * x, out=x),
    "identity": lambda x: x,
}
# Gains of orthogonal initialisation: sqrt(2) for hidden layers and 1 for the value, after
# Andrychowicz et al. 2021; 0.01 for the actor's head, so that the first policy is near uniform.
HIDDEN_GAIN, ACTOR_GAIN, CRITIC_GAIN = math.sqrt(2.0), 0.01, 1.0


def linear(n_in: int, n_out: int, gain: float, generator: torch.Generator) -> nn.Linear:
    layer = nn.Linear(n_in, n_out)
    nn.init.orthogonal_(layer.weight, gain, generator=generator)
    nn.init.zeros_(layer.bias)
    return layer


def mlp_torso(
    n_in: int, hidden_dims: Sequence[int], activation: str, generator: torch.Generator
) -> nn.Sequential:
    layers: list[nn.Module] = []
    for a, b in pairwise([n_in, *hidden_dims]):
        layers += [linear(a, b, HIDDEN_GAIN, generator), ACTIVATIONS[activation]()]
    return nn.Sequential(*layers)


class ActorCritic(nn.Module):
    """`critic=False` leaves the value out (REINFORCE without a baseline)."""

    def __init__(
        self,
        observation_space: spaces.Space,
        action_space: spaces.Space,
        *,
        hidden_dims: Sequence[int],
        activation: str = "tanh",
        share_trunk: bool = False,
        log_std_init: float = 0.0,
        normalize_obs: NormalizeMode = False,
        clip_obs: float = 10.0,
        critic: bool = True,
        generator: torch.Generator,
    ):
        super().__init__()
        self.activation = activation
        self.n_discrete = (
            observation_space.n if isinstance(observation_space, spaces.Discrete) else 0
        )
        self.obs_start = getattr(observation_space, "start", 0)
        self.is_image = observation_space.dtype == np.uint8
        width = observation_width(observation_space)
        n_features = hidden_dims[-1] if hidden_dims else width

        self.normalizer = ObsNormalizer(
            observation_space, width, False if self.n_discrete else normalize_obs, clip_obs
        )
        self.actor_torso = mlp_torso(width, hidden_dims, activation, generator)
        n_actions = action_width(action_space)
        self.actor_head = linear(n_features, n_actions, ACTOR_GAIN, generator)
        self.log_std: nn.Parameter | None = None
        if isinstance(action_space, spaces.Box):
            self.log_std = nn.Parameter(torch.full((n_actions,), float(log_std_init)))
        self.share_trunk = share_trunk
        self.critic_torso: nn.Sequential | None = None
        self.critic_head: nn.Linear | None = None
        if critic:
            if not share_trunk:
                self.critic_torso = mlp_torso(width, hidden_dims, activation, generator)
            self.critic_head = linear(n_features, 1, CRITIC_GAIN, generator)

    # -- with gradients ---------------------------------------------------------------------

    def encode(self, obs: Tensor) -> Tensor:
        """Observations as the environment gives them [B, ...] -> network input [B, width].

        Done once for a whole rollout. Images stay uint8 here and are cast a minibatch at a time.
        """
        if self.is_image:
            return obs.flatten(1)
        if self.n_discrete:
            return nn.functional.one_hot(obs.long() - self.obs_start, self.n_discrete).float()
        return self.normalizer(obs.flatten(1).float())

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Encoded observations -> the actor's outputs [B, W] and values [B]."""
        x = self._cast(x)
        features = self.actor_torso(x)
        return self.actor_head(features), self._value(x, features)

    def actor(self, x: Tensor) -> Tensor:
        return self.actor_head(self.actor_torso(self._cast(x)))

    def _cast(self, x: Tensor) -> Tensor:
        return self.normalizer(x.float() / PIXEL_MAX) if self.is_image else x

    def _value(self, x: Tensor, actor_features: Tensor) -> Tensor:
        assert self.critic_head is not None, "this policy was built without a critic"
        features = actor_features if self.critic_torso is None else self.critic_torso(x)
        return self.critic_head(features).squeeze(1)

    def observe(self, obs: np.ndarray) -> None:
        """Take raw observations [n, ...] into the normaliser's running moments."""
        if self.normalizer.mode == "rolling":
            x = obs.reshape(len(obs), -1)
            self.normalizer.update(x / PIXEL_MAX if self.is_image else x)

    # -- acting -----------------------------------------------------------------------------

    def actor_outputs(self, obs: np.ndarray) -> np.ndarray:
        """The actor's outputs for a batch of raw observations, without gradients."""
        weight = self.actor_head.weight
        if weight.is_cpu and self.activation in NUMPY_ACTIVATIONS:
            return self._actor_outputs_numpy(obs)
        with torch.no_grad():
            outputs = self.actor(self.encode(torch.as_tensor(obs, device=weight.device)))
        return outputs.cpu().numpy()

    def encode_numpy(self, obs: np.ndarray) -> np.ndarray:
        if self.n_discrete:
            return np.eye(self.n_discrete, dtype=np.float32)[obs - self.obs_start]
        x = obs.reshape(len(obs), -1).astype(np.float32, copy=False)
        return self.normalizer.numpy(x / np.float32(PIXEL_MAX) if self.is_image else x)

    def _actor_outputs_numpy(self, obs: np.ndarray) -> np.ndarray:
        x = self.encode_numpy(obs)
        act = NUMPY_ACTIVATIONS[self.activation]
        for weight_t, bias in self._torso_views():
            x = x @ weight_t
            x += bias
            x = act(x)
        return x @ self.actor_head.weight.detach().numpy().T + self.actor_head.bias.detach().numpy()

    def _torso_views(self) -> list[tuple[np.ndarray, np.ndarray]]:
        """Views of the torso's weights; made anew when the parameters moved in memory."""
        address = self.actor_head.weight.data_ptr()
        if getattr(self, "_views_address", None) != address:
            layers = [m for m in self.actor_torso if isinstance(m, nn.Linear)]
            self._views = [(m.weight.detach().numpy().T, m.bias.detach().numpy()) for m in layers]
            self._views_address = address
        return self._views
