"""Actor and critic as one module: encoder and normaliser, torsos, heads.

A torso is an MLP; with a `cnn`, convolutions and then an MLP.

`ActorCritic` is what is trained, saved (model.safetensors) and exported. Its torch methods carry
gradients; `actor_outputs` is the acting path, which on the CPU runs in NumPy (nets/mlp.py).
"""

from collections.abc import Sequence

import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor, nn

from gymnasium_solver.nets.cnn import Cnn, convolutions
from gymnasium_solver.nets.encoder import ObsEncoder
from gymnasium_solver.nets.mlp import HIDDEN_GAIN, NumpyMLP, linear, mlp_torso
from gymnasium_solver.nets.normalizer import NormalizeMode
from gymnasium_solver.spaces.spaces import action_width

# Gains of orthogonal initialisation: 1 for the value, after Andrychowicz et al. 2021; 0.01 for the
# actor's head, so that the first policy is near uniform.
ACTOR_GAIN, CRITIC_GAIN = 0.01, 1.0


class ActorCritic(ObsEncoder):
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
        cnn: Cnn | None = None,
        generator: torch.Generator,
    ):
        super().__init__(observation_space, normalize_obs, clip_obs, cnn)

        def torso() -> tuple[nn.Sequential, int]:
            conv, n_in = convolutions(cnn, self.width, HIDDEN_GAIN, generator)
            dense = mlp_torso(n_in, hidden_dims, activation, generator)
            return nn.Sequential(*conv, *dense), hidden_dims[-1] if hidden_dims else n_in

        self.actor_torso, n_features = torso()
        self.numpy_torso = None if cnn else NumpyMLP(self.actor_torso, activation)
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
                self.critic_torso, _ = torso()
            self.critic_head = linear(n_features, 1, CRITIC_GAIN, generator)

    # -- with gradients ---------------------------------------------------------------------

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Encoded observations -> the actor's outputs [B, W] and values [B]."""
        x = self.cast(x)
        features = self.actor_torso(x)
        return self.actor_head(features), self._value(x, features)

    def actor(self, x: Tensor) -> Tensor:
        return self.actor_head(self.actor_torso(self.cast(x)))

    def _value(self, x: Tensor, actor_features: Tensor) -> Tensor:
        assert self.critic_head is not None, "this policy was built without a critic"
        features = actor_features if self.critic_torso is None else self.critic_torso(x)
        return self.critic_head(features).squeeze(1)

    # -- acting -----------------------------------------------------------------------------

    def actor_outputs(self, obs: np.ndarray | Tensor) -> np.ndarray:
        """The actor's outputs for a batch of raw observations, without gradients."""
        head = self.actor_head
        if self.numpy_torso is not None and self.numpy_torso.runs and head.weight.is_cpu:
            assert isinstance(obs, np.ndarray)
            features = self.numpy_torso(self.encode_numpy(obs))
            return features @ head.weight.detach().numpy().T + head.bias.detach().numpy()
        return self.infer(self.actor, obs, head.weight.device)
