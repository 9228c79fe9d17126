"""Separate actor and stacked critics, for SAC, TD3, DDPG and CrossQ.

The actor outputs the parameters of a tanh-squashed Gaussian (means, then log standard deviations),
a deterministic action before its tanh, or logits over discrete actions. The critics take the
observation and the action, or only the observation if they output one value per discrete action.
Actions are in the policy's units: [-1, 1] are the bounds of the environment's Box.

With memory, actor and critics have a recurrent core each, over the features of the observations;
all critics share one. The layers after it get its outputs and the features of the present
observation, and critics also the action.
"""

import math
from collections.abc import Mapping
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor, nn

from gymnasium_solver.errors import ConfigError
from gymnasium_solver.nets.blocks import StackedMLP
from gymnasium_solver.nets.encoder import Encoded, ObsEncoder, TensorObs
from gymnasium_solver.nets.features import Features, ObsNetwork
from gymnasium_solver.nets.heads import CriticHead, ScalarHead
from gymnasium_solver.nets.network import Network
from gymnasium_solver.nets.recurrent import Recurrence, RecurrentCore, by_time
from gymnasium_solver.nets.renorm import batch_norms
from gymnasium_solver.nets.sde import CLIP_MEAN, SdeHead
from gymnasium_solver.spaces.action_dists import log_slope
from gymnasium_solver.spaces.actions import LOG_SQRT_2PI
from gymnasium_solver.spaces.observations import Space

# The log standard deviation is clamped to these bounds, as in Haarnoja's code and SB3, or bounded
# by a tanh, as in SimbaV2 and FlashSAC.
LOG_STD_MIN, LOG_STD_MAX = -20.0, 2.0
TANH_MIN, TANH_MAX = -10.0, 2.0
StdBound = Literal["clamp", "tanh"]


def squash(outputs: Tensor, noise: Tensor, bound: StdBound = "clamp") -> tuple[Tensor, Tensor]:
    """Squashed actions [B, A] in (-1, 1) and their log-probabilities [B], from noise [B, A].

    `outputs` [B, 2 A] are the means and log standard deviations before squashing; the noise is
    standard normal."""
    mean, log_std = outputs.chunk(2, dim=1)
    if bound == "tanh":
        log_std = TANH_MIN + 0.5 * (TANH_MAX - TANH_MIN) * (1.0 + torch.tanh(log_std))
    else:
        log_std = log_std.clamp(LOG_STD_MIN, LOG_STD_MAX)
    u = mean + log_std.exp() * noise
    log_prob = -0.5 * noise.square() - log_std - LOG_SQRT_2PI - log_slope(u)
    return torch.tanh(u), log_prob.sum(1)


def squash_sde(outputs: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
    """The same with the noise of state-dependent exploration [B, A], which has its deviation
    already."""
    mean, log_std = outputs.chunk(2, dim=1)
    u = mean + noise
    z = noise * (-log_std).exp()
    log_prob = -0.5 * z.square() - log_std - LOG_SQRT_2PI - log_slope(u)
    return torch.tanh(u), log_prob.sum(1)


class Temperature(nn.Module):
    """The entropy coefficient alpha, parameterised by its logarithm."""

    def __init__(self, alpha: float):
        super().__init__()
        self.log_alpha = nn.Parameter(torch.tensor([math.log(alpha)]))

    @property
    def alpha(self) -> Tensor:
        """A scalar tensor on the device; reading it does not synchronise with a GPU."""
        return self.log_alpha.detach().exp().squeeze(0)


class SharedFeatures(nn.Module):
    """The features of the critics as an actor uses them: not a module of its own, so that its loss
    does not train them. A copy of the actor alone uses the same features."""

    def __init__(self, features: Features):
        super().__init__()
        self._of = [features]
        self.width = features.width

    @property
    def trained(self) -> Features:
        return self._of[0]

    def forward(self, x: Encoded) -> Tensor:
        return self.trained(x)

    def __deepcopy__(self, memo: dict[int, Any]) -> "SharedFeatures":
        return SharedFeatures(memo.get(id(self.trained), self.trained))


class Branch(nn.Module):
    """Base of actor and critics: features and, with memory, a recurrent core over them."""

    carry_name: ClassVar[str]  # of its core's state in the policy's carry

    def __init__(
        self,
        features: Features | SharedFeatures,
        recurrence: Recurrence | None,
        generator: torch.Generator,
    ):
        super().__init__()
        self.features: Any = features
        self.core = None
        self.width = features.width  # of what the layers take
        if recurrence is not None:
            self.core = RecurrentCore(recurrence, features.width, generator)
            self.width += recurrence.dim

    def remembered(self, x: Encoded, carry: Tensor, is_first: Tensor) -> tuple[Tensor, Tensor]:
        """One row of every env: what the layers take [B, width], and the new carry."""
        assert self.core is not None
        features = self.features(x)
        y, carry = self.core.step(features, carry, is_first)
        return torch.cat([features, y], dim=1), carry

    def sequence(self, x: Encoded, carry: Tensor, is_first: Tensor) -> Tensor:
        """Encoded sequences, flattened to [B * L, ...] -> what the layers take [B * L, width]."""
        assert self.core is not None
        n, n_rows = is_first.shape
        features = self.features(x)
        y, _ = self.core.rows(by_time(features, n), carry, is_first)
        return torch.cat([features, by_time(y, n_rows)], dim=1)

    def carry_after(self, x: Encoded, carry: Tensor, is_first: Tensor) -> Tensor:
        """The carry after encoded sequences, flattened to [B * L, ...]."""
        assert self.core is not None
        return self.core(self.features(x).view(*is_first.shape, -1), carry, is_first)[1]


class Actor(Branch):
    """Features and an MLP, initialised like the critics: encoded observations -> actor outputs."""

    carry_name = "core"

    def __init__(
        self,
        encoder: ObsEncoder,
        network: Network,
        n_outputs: int,
        generator: torch.Generator,
        sde_log_std_init: float | None = None,
        shared: Features | None = None,
        log_std_bound: StdBound | None = None,
    ):
        """`sde_log_std_init`: outputs are means and deviations of state-dependent exploration.
        `shared`: features of the critics, which are used and not trained by the actor.
        `log_std_bound`: outputs are means and log standard deviations, bounded so."""
        features: Features | SharedFeatures = (
            Features(encoder, network, None, generator) if shared is None
            else SharedFeatures(shared)
        )  # fmt: skip
        super().__init__(features, network.recurrence, generator)
        self.log_std_bound: StdBound = log_std_bound or "clamp"
        n_in = self.width
        dims = network.hidden_dims
        n_last = dims[-1] if dims else n_in
        blocks = network.blocks(generator)
        n_outputs = n_outputs if sde_log_std_init is None else n_outputs // 2
        n_branches = 1 if log_std_bound is None or sde_log_std_init is not None else 2
        hidden = blocks.hidden(n_in, dims)  # first: the order decides the initial weights
        layers = [*hidden, *blocks.outputs(n_last, n_outputs, n_branches=n_branches)]
        if sde_log_std_init is not None:
            layers[-1] = SdeHead(
                layers[-1], n_last, n_outputs, sde_log_std_init,
                learns_features=True, clip_mean=CLIP_MEAN,
            )  # fmt: skip
        self.layers = nn.Sequential(*layers)

    @property
    def sde(self) -> SdeHead | None:
        """The output layer, if exploration depends on the state."""
        last = self.layers[-1]
        return last if isinstance(last, SdeHead) else None

    def forward(self, x: Encoded) -> Tensor:
        return self.layers(self.features(x))

    def latent(self, y: Tensor) -> Tensor:
        """What the output layer takes, from what the first layer takes."""
        for layer in list(self.layers)[:-1]:
            y = layer(y)
        return y

    def outputs(self, y: Tensor, next_y: Tensor | None = None) -> Tensor:
        """The outputs from what the layers take. `next_y`: that of the next observations, which
        share the statistics of batch norms with these."""
        if next_y is None:
            return self.layers(y)
        return self.layers(torch.cat([y, next_y]))[: len(y)]

    def sampled(
        self, y: Tensor, noise: Tensor | None, next_y: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """Squashed actions [B, A] and their log-probabilities [B], from what the layers take and
        standard normal noise, or with state-dependent exploration the matrix in `sde.draw`.
        `next_y`: see `outputs`."""
        if self.sde is None:
            assert noise is not None
            return squash(self.outputs(y, next_y), noise, self.log_std_bound)
        latent = self.latent(y)
        return squash_sde(self.sde(latent), self.sde.noise(latent))


class Critics(Branch):
    """Several critics of the same shape. They share the image features, as in DrQ, and a recurrent
    core. What their outputs mean is up to the critic head (nets/heads.py)."""

    carry_name = "critic_core"
    features: Features

    def __init__(
        self,
        encoder: ObsEncoder,
        network: Network,
        n_critics: int,
        n_actions: int,
        shape: tuple[int, ...],
        generator: torch.Generator,
    ):
        """`n_actions`: width of the action input; `shape`: of the outputs for one sample, () for
        one number."""
        features = Features(encoder, network, None, generator)
        super().__init__(features, network.recurrence, generator)
        n_in = self.width + n_actions
        blocks = network.blocks(generator, n=n_critics)
        self.mlps = StackedMLP(blocks, n_in, network.hidden_dims, math.prod(shape))
        self.shape = shape

    def forward(self, x: Encoded, actions: Tensor | None = None) -> Tensor:
        """Outputs [n, B, *shape]."""
        return self.values(self.features(x), actions)

    def values(self, y: Tensor, actions: Tensor | None) -> Tensor:
        """The same from what the layers take."""
        return self.shaped(self.mlps(with_actions(y, actions)))

    def first(self, y: Tensor, actions: Tensor) -> Tensor:
        """Outputs [B, *shape] of the first critic only, from what the layers take."""
        return self.shaped(self.mlps.first(with_actions(y, actions)))

    def shaped(self, outputs: Tensor) -> Tensor:
        """Outputs of the MLPs [..., W] as [..., *shape]."""
        if len(self.shape) == 1:
            return outputs
        return outputs.squeeze(-1) if not self.shape else outputs.unflatten(-1, self.shape)

    def inputs(self, x: Encoded, actions: Tensor | None) -> Tensor:
        return with_actions(self.features(x), actions)


def with_actions(y: Tensor, actions: Tensor | None) -> Tensor:
    """The inputs of critics: features, and actions if they take them."""
    return y if actions is None else torch.cat([y, actions], dim=1)


class ActorCritics(ObsNetwork):
    """`actor`, `critic` and, if `alpha` is given, `temperature`, each with its own optimiser.

    Actor and critics take encoded observations (`encoder`). Their features are separate, or with
    `share_encoder` those of the critics, which the critics' loss trains."""

    def __init__(
        self,
        observation_space: Space,
        network: Network,
        *,
        n_actor_outputs: int,
        n_critics: int,
        n_critic_actions: int,
        n_values: int = 0,
        head: CriticHead | None = None,
        critic_network: Network | None = None,
        share_encoder: bool = False,
        alpha: float | None = None,
        sde_log_std_init: float | None = None,
        log_std_bound: StdBound | None = None,
        generator: torch.Generator,
    ):
        """`n_critic_actions`: width of the action input of the critics; 0: no action input.
        `n_values`: values of a critic, one for each discrete action; 0: one.
        `critic_network`: the layers of the critics; None: as those of the actor.
        `log_std_bound`: of a Gaussian actor."""
        super().__init__(observation_space, network)
        self.head: CriticHead = ScalarHead() if head is None else head
        shape: tuple[int, ...] = (n_values,) if n_values else ()
        if self.head.n_outputs > 1:
            shape += (self.head.n_outputs,)

        def actor(shared: Features | None = None) -> Actor:
            return Actor(
                self.actor_encoder, network.of_actor(), n_actor_outputs, generator,
                sde_log_std_init, shared, log_std_bound,
            )  # fmt: skip

        own_actor = None if share_encoder else actor()
        critic_layers = network if critic_network is None else critic_network
        self.critic = Critics(
            self.encoder, critic_layers, n_critics, n_critic_actions, shape, generator
        )
        if share_encoder and not any(True for _ in self.critic.features.parameters()):
            raise ConfigError(
                "share_encoder: observations of this environment are not encoded by learnt layers "
                "(a CNN, embeddings, input_dims or layers); remove it"
            )
        self.actor = own_actor or actor(self.critic.features)
        self.temperature = None if alpha is None else Temperature(alpha)

    def renamed(self, model: Mapping[str, Any]) -> dict[str, Any]:
        """Tensors of another network under the names that they have here: an actor of `ActorCritic`
        (of bc, PPO, A2C) has the same layers."""
        last = f"actor.layers.{len(self.actor.layers) - 1}."
        places = (
            ("actor_features.", "actor.features."),
            ("actor_torso.", "actor.layers."),
            ("actor_head.", last),
        )

        def own(name: str) -> str:
            for there, here in places:
                if name.startswith(there):
                    return here + name.removeprefix(there)
            return name

        return {own(name): value for name, value in model.items()}

    def encoder_of(self, part: "Branch") -> ObsEncoder:
        return self.actor_encoder if isinstance(part, Actor) else self.encoder

    @property
    def actor_features(self) -> Features:
        """What the actor's layers take as inputs."""
        features = self.actor.features
        return features.trained if isinstance(features, SharedFeatures) else features

    @property
    def has_batch_norm(self) -> bool:
        return bool(batch_norms(self))

    def forward(self, obs: TensorObs, actions: Tensor | None) -> tuple[Tensor, Tensor]:
        """The actor's outputs, and the critics' outputs for `actions` [B, A]; None: critics with a
        value for each discrete action."""
        return self.actor_outputs(obs), self.critic(self.encoder(obs), actions)

    def actor_outputs(self, obs: TensorObs) -> Tensor:
        """The actor's outputs for raw observations."""
        return self.actor(self.actor_encoder(obs))

    def actor_latent(self, obs: TensorObs) -> list[Tensor]:
        """The actor's outputs, and the features that they are computed from."""
        latent = self.actor.latent(self.actor.features(self.actor_encoder(obs)))
        return [self.actor.layers[-1](latent), latent]

    # -- with memory ------------------------------------------------------------------------

    @property
    def has_memory(self) -> bool:
        return self.actor.core is not None

    def initial_carry(self, n: int) -> dict[str, Tensor]:
        """The state of the cores of n envs before their first observation."""
        return {
            part.carry_name: torch.zeros(n, part.core.carry_width, device=self.device)
            for part in (self.actor, self.critic)
            if part.core is not None
        }

    def step(self, obs: TensorObs, carry: Tensor, is_first: Tensor) -> list[Tensor]:
        """One row of every env: the actor's outputs and its new carry."""
        y, carry = self.actor.remembered(self.actor_encoder(obs), carry, is_first)
        return [self.actor.layers(y), carry]

    def step_both(
        self, obs: TensorObs, carry: Tensor, critic_carry: Tensor, is_first: Tensor
    ) -> list[Tensor]:
        """The same, and the new carry of the critics, which learning starts from."""
        outputs, carry = self.step(obs, carry, is_first)
        _, critic_carry = self.critic.remembered(self.encoder(obs), critic_carry, is_first)
        return [outputs, carry, critic_carry]
