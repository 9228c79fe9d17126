"""Actor and critic in one module: encoder, torsos, an optional recurrent core, heads.

`ActorCritic` is trained, saved (model.safetensors) and exported. It takes raw observations as
tensors. Acting and learning use the same methods (policies/policy.py, fast/recorded.py).
"""

import torch
from torch import Tensor, nn

from gymnasium_solver.nets.blocks import HIDDEN_GAIN
from gymnasium_solver.nets.branches import VALUE, KeepTask, outputs_of
from gymnasium_solver.nets.encoder import Encoded, ObsEncoder, TensorObs
from gymnasium_solver.nets.features import Features, ObsNetwork
from gymnasium_solver.nets.heads import CriticHead, ScalarHead, ValueScale
from gymnasium_solver.nets.network import Network, named_dims
from gymnasium_solver.nets.recurrent import RecurrentCore, by_time
from gymnasium_solver.nets.sde import SdeHead
from gymnasium_solver.spaces.actions import ActionKind
from gymnasium_solver.spaces.observations import Space
from gymnasium_solver.tree import map_tree

# Gains of the orthogonal initialisation: 1 for the value (Andrychowicz et al. 2021); 0.01 for the
# actor's head, so that the initial policy is nearly uniform.
ACTOR_GAIN, CRITIC_GAIN = 0.01, 1.0


class ActorCritic(ObsNetwork):
    """`critic=False` builds no value head (REINFORCE without a baseline)."""

    def __init__(
        self,
        observation_space: Space,
        actions: ActionKind,
        network: Network,
        *,
        share_trunk: bool = False,
        log_std_init: float = 0.0,
        critic: bool = True,
        head: CriticHead | None = None,
        normalize_values: bool = False,
        sde_log_std_init: float | None = None,
        generator: torch.Generator,
    ):
        """`sde_log_std_init`: of state-dependent exploration (gSDE); None: without."""
        super().__init__(observation_space, network)
        n_tasks = network.n_tasks
        parts = actions.output_parts()
        network = network._replace(
            output_dims=named_dims("output_dims", network.output_dims, [*parts, VALUE])
        )

        def torso(encoder: ObsEncoder) -> tuple[Features, nn.Module, int]:
            own = network.of_actor() if encoder is self.own_encoder else network
            features = Features(encoder, own, HIDDEN_GAIN, generator)
            dims = network.hidden_dims
            blocks = network.blocks(generator, HIDDEN_GAIN)
            dense: nn.Module = nn.Sequential(*blocks.hidden(features.width, dims))
            if network.heads_by is not None:  # the task stands at the end of the features
                stop = features.positions[network.heads_by][1]
                dense = KeepTask(dense, stop - n_tasks, stop)
            return features, dense, (dims[-1] if dims else features.width) + n_tasks

        self.actor_features, self.actor_torso, n_features = torso(self.actor_encoder)
        self.core = None
        if network.recurrence is not None:
            assert share_trunk or not critic, "a recurrent core requires a shared trunk"
            self.core = RecurrentCore(network.recurrence, n_features, generator)
            n_features = self.core.dim
        if sde_log_std_init is not None:
            parts = dict.fromkeys(parts, actions.shape[0])
        self.actor_head = outputs_of(network, n_features, parts, ACTOR_GAIN, generator, n_tasks)
        if sde_log_std_init is not None:
            width = actions.shape[0]
            self.actor_head = SdeHead(self.actor_head, n_features, width, sde_log_std_init)
        self.log_std: nn.Parameter | None = None
        if actions.n_log_std:
            self.log_std = nn.Parameter(actions.first_log_std(log_std_init))
        self.critic_features: Features | None = None
        self.critic_torso: nn.Module | None = None
        self.critic_head: nn.Module | None = None
        n_values = 1 if head is None else head.n_outputs
        if critic:
            if not share_trunk:
                self.critic_features, self.critic_torso, _ = torso(self.encoder)
            self.critic_head = outputs_of(
                network, n_features, {VALUE: n_values}, CRITIC_GAIN, generator, n_tasks
            )
        self.head: CriticHead = ScalarHead() if head is None else head
        self.value_scale = ValueScale() if normalize_values else None

    def forward(self, obs: TensorObs) -> tuple[Tensor, Tensor]:
        """Observations -> the actor's outputs [B, W] and the critic's [B], or [B, K]."""
        x = self.actor_encoder(obs)
        features = self.actor_torso(self.actor_features(x))
        outputs = self.actor_head(features)
        if self.critic_torso is None:
            return outputs, self._critic(features)
        return outputs, self._critic(
            self._own(x if self.own_encoder is None else self.encoder(obs))
        )

    def value_of(self, outputs: Tensor) -> Tensor:
        """Values [B] from the critic's outputs."""
        value = self.head.value(outputs)
        return value if self.value_scale is None else self.value_scale(value)

    def rescale_values(self, returns: Tensor) -> None:
        """Take the returns of a rollout into the scale of normalised values, if they are."""
        if self.value_scale is not None:
            assert isinstance(self.critic_head, nn.Linear)
            self.value_scale.update(returns, self.critic_head)

    def latent(self, obs: TensorObs) -> Tensor:
        """The features that the actor's outputs are computed from, without a recurrent core."""
        return self.actor_torso(self.actor_features(self.actor_encoder(obs)))

    def actor(self, obs: TensorObs) -> Tensor:
        return self.actor_head(self.latent(obs))

    def value(self, obs: TensorObs, *memory: Tensor) -> Tensor:
        """Values [B] only. `memory`: see `step`."""
        if self.critic_torso is None:
            return self.value_of(self._critic(self._remember(obs, *memory)[0]))
        return self.value_of(self._critic(self._own(self.encoder(obs))))

    def _own(self, x: Encoded) -> Tensor:
        """The features of a critic that shares none with the actor."""
        assert self.critic_features is not None
        assert self.critic_torso is not None
        features: Tensor = self.critic_torso(self.critic_features(x))
        return features

    def _critic(self, features: Tensor) -> Tensor:
        assert self.critic_head is not None, "this network was built without a critic"
        outputs: Tensor = self.critic_head(features)
        return outputs.squeeze(1) if self.head.n_outputs == 1 else outputs

    # -- sequences --------------------------------------------------------------------------

    def sequence(
        self, obs: TensorObs, carry: Tensor, is_first: Tensor
    ) -> tuple[Tensor, Tensor | None, Tensor]:
        """Sequences [B, L, ...] -> the actor's outputs [B * L, W], the critic's [B * L, ...] if
        there is one, and the carry after them."""
        assert self.core is not None
        n, n_rows = is_first.shape
        x = self.encoder(map_tree(lambda part: part.flatten(0, 1), obs))
        rows = by_time(self.actor_features(x), n)
        y, carry = self.core.rows(self.actor_torso(rows), carry, is_first)
        value = None if self.critic_head is None else by_time(self._critic(y), n_rows)
        return by_time(self.actor_head(y), n_rows), value, carry

    def step(self, obs: TensorObs, *memory: Tensor) -> list[Tensor]:
        """One row of every env [B, ...] -> the actor's outputs [B, W]. With a recurrent core
        `memory` is the carry and `is_first`, and the new carry is returned, too."""
        y, *carry = self._remember(obs, *memory)
        return [self.actor_head(y), *carry]

    def step_valued(self, obs: TensorObs, *memory: Tensor) -> list[Tensor]:
        """The same, and with a core the values [B] if there is a critic."""
        y, *carry = self._remember(obs, *memory)
        value = []
        if carry and self.critic_head is not None:
            value = [self.value_of(self._critic(y))]
        return [self.actor_head(y), *carry, *value]

    def step_latent(self, obs: TensorObs, *memory: Tensor) -> list[Tensor]:
        """The same as `step`, and the features [B, H] of the outputs."""
        y, *carry = self._remember(obs, *memory)
        return [self.actor_head(y), *carry, y]

    def _remember(self, obs: TensorObs, *memory: Tensor) -> list[Tensor]:
        y = self.latent(obs)
        return [y] if self.core is None else [*self.core.step(y, *memory)]
