"""The networks of TD-MPC2: an encoder to a latent state, and what is predicted from it.

    z = net.encode(obs)                          # [B, latent_dim], groups that each sum to 1
    z = net.next(z, actions)                     # the latent state after the actions [B, A]
    net.reward(z, actions), net.end_logits(z)    # of the step; of a termination at z
    net.prior_action(z, noise)                   # of the learnt policy
    net.q(z, actions)                            # outputs of the critics [n, B, bins]

Hidden layers are linear, layer norm, Mish. Weights start from a truncated normal distribution, and
the output layers of rewards and critics at zero. Critics drop a few units of their first layer in
learning, by masks that they are given.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from gymnasium_solver.nets.actor_critics import TANH_MAX, TANH_MIN
from gymnasium_solver.nets.blocks import Blocks, StackedLinear, StackedMLP
from gymnasium_solver.nets.encoder import Encoded, TensorObs
from gymnasium_solver.nets.features import Features, ObsNetwork
from gymnasium_solver.nets.heads import SymlogCategoricalHead
from gymnasium_solver.nets.layers import SimNorm
from gymnasium_solver.nets.network import Network
from gymnasium_solver.spaces.observations import Space

INIT_STD = 0.02


def _mlp(blocks: Blocks, n_in: int, dims: Sequence[int], n_out: int) -> list[nn.Module]:
    return [*blocks.hidden(n_in, dims), blocks.linear([n_in, *dims][-1], n_out)]


def _to_latent(
    blocks: Blocks, n_in: int, dims: Sequence[int], width: int, groups_of: int
) -> nn.Sequential:
    """An MLP whose outputs are a latent state."""
    layers = _mlp(blocks, n_in, dims, width)
    return nn.Sequential(*layers, nn.LayerNorm(width), SimNorm(groups_of))


@torch.no_grad()
def _initialise(module: nn.Module, generator: torch.Generator) -> None:
    for layer in module.modules():
        if isinstance(layer, nn.Linear | StackedLinear):
            nn.init.trunc_normal_(layer.weight, std=INIT_STD, generator=generator)
            if layer.bias is not None:
                nn.init.zeros_(layer.bias)


class Representation(nn.Module):
    """Encoded observations to a latent state: an MLP, after convolutions only its last layer."""

    def __init__(
        self, features: Features, blocks: Blocks, dims: Sequence[int], width: int, groups_of: int
    ):
        super().__init__()
        self.features = features
        self.layers = _to_latent(blocks, features.width, dims, width, groups_of)

    def forward(self, x: Encoded) -> Tensor:
        z: Tensor = self.layers(self.features(x))
        return z


class Dynamics(nn.Module):
    """What follows a latent state and an action: the next state, the reward, a termination."""

    def __init__(
        self, blocks: Blocks, latent_dim: int, n_actions: int, mlp_dim: int, groups_of: int,
        n_atoms: int, episodic: bool,
    ):  # fmt: skip
        super().__init__()
        n_in, dims = latent_dim + n_actions, (mlp_dim, mlp_dim)
        self.next = _to_latent(blocks, n_in, dims, latent_dim, groups_of)
        self.reward = nn.Sequential(*_mlp(blocks, n_in, dims, n_atoms))
        self.end = nn.Sequential(*_mlp(blocks, latent_dim, dims, 1)) if episodic else None


class CriticEnsemble(nn.Module):
    def __init__(self, blocks: Blocks, n_in: int, mlp_dim: int, n_atoms: int):
        super().__init__()
        self.mlps = StackedMLP(blocks, n_in, (mlp_dim, mlp_dim), n_atoms)

    def forward(self, z: Tensor, actions: Tensor, keep: Tensor | None = None) -> Tensor:
        """Outputs [n, B, bins]. `keep` [n, B, width]: factors of the first layer's outputs, 0 for
        units that are dropped."""
        first, *rest = self.mlps.layers
        x: Tensor = first(torch.cat([z, actions], dim=1))
        x = x if keep is None else x * keep
        for layer in rest:
            x = layer(x)
        return x


class WorldModel(ObsNetwork):
    q_scale: Tensor

    def __init__(
        self,
        observation_space: Space,
        network: Network,
        n_actions: int,
        *,
        enc_dims: Sequence[int],
        latent_dim: int,
        mlp_dim: int,
        n_critics: int,
        simnorm_dim: int,
        head: SymlogCategoricalHead,
        episodic: bool,
        generator: torch.Generator,
    ):
        """`enc_dims`: hidden layers of the encoder, for observations without images. `episodic`:
        terminations are predicted."""
        super().__init__(observation_space, network)
        self.head, self.n_actions, self.n_critics = head, n_actions, n_critics
        self.latent_dim, self.mlp_dim = latent_dim, mlp_dim
        features = Features(self.encoder, network, None, generator)
        blocks = Blocks(network.activation if not network.cnns else "mish", generator, norm="layer")
        several = Blocks(blocks.activation, generator, norm="layer", n=n_critics)
        dims = () if self.encoder.layouts else enc_dims
        self.representation = Representation(features, blocks, dims, latent_dim, simnorm_dim)
        self.dynamics = Dynamics(
            blocks, latent_dim, n_actions, mlp_dim, simnorm_dim, head.n_outputs, episodic
        )
        self.prior = nn.Sequential(*_mlp(blocks, latent_dim, (mlp_dim, mlp_dim), 2 * n_actions))
        self.critic = CriticEnsemble(several, latent_dim + n_actions, mlp_dim, head.n_outputs)
        # The spread of values that the policy's loss is divided by.
        self.register_buffer("q_scale", torch.ones(()))
        for module in (self.representation.layers, self.dynamics, self.prior, self.critic):
            _initialise(module, generator)
        outputs: list[Any] = [self.dynamics.reward[-1], self.critic.mlps.layers[-1]]
        for layer in outputs:
            nn.init.zeros_(layer.weight)

    @property
    def episodic(self) -> bool:
        return self.dynamics.end is not None

    def encode(self, obs: TensorObs, shift: Tensor | None = None, most: int = 0) -> Tensor:
        """The latent states [B, L] of raw observations. `shift` [B, 2]: images move by these shares
        of `most` pixels (see `shifted`)."""
        x = self.encoder(obs)
        if shift is not None and isinstance(x, dict):
            x = {
                name: shifted(part, shift, most) if name.startswith("image ") else part
                for name, part in x.items()
            }
        z: Tensor = self.representation(x)
        return z

    def next(self, z: Tensor, actions: Tensor) -> Tensor:
        return self.dynamics.next(torch.cat([z, actions], dim=1))

    def reward_outputs(self, z: Tensor, actions: Tensor) -> Tensor:
        return self.dynamics.reward(torch.cat([z, actions], dim=1))

    def reward(self, z: Tensor, actions: Tensor) -> Tensor:
        """Rewards [B] of a step."""
        return self.head.value(self.reward_outputs(z, actions))

    def end_logits(self, z: Tensor) -> Tensor | None:
        """Logits [B] of an episode that terminates as it reaches z; None if they are not learnt."""
        end = self.dynamics.end
        return None if end is None else end(z).squeeze(1)

    def prior_moments(self, z: Tensor) -> tuple[Tensor, Tensor]:
        """Means and log standard deviations [B, A] of the policy, before tanh."""
        mean, log_std = self.prior(z).chunk(2, dim=1)
        return mean, TANH_MIN + 0.5 * (TANH_MAX - TANH_MIN) * (1.0 + torch.tanh(log_std))

    def prior_action(self, z: Tensor, noise: Tensor) -> Tensor:
        """The policy's actions [B, A] in (-1, 1), from standard normal noise."""
        mean, log_std = self.prior_moments(z)
        return torch.tanh(mean + log_std.exp() * noise)

    def prior_mean(self, obs: TensorObs) -> Tensor:
        """The policy's actions without noise, for raw observations."""
        return torch.tanh(self.prior_moments(self.encode(obs))[0])

    def value(self, z: Tensor, actions: Tensor, pick: Tensor) -> Tensor:
        """The mean value [B] of the critics with a 1 in `pick` [B, n]."""
        return mean_of_picked(self.head.value(self.critic(z, actions)), pick.t())

    def forward(self, obs: TensorObs, actions: Tensor) -> tuple[Tensor, ...]:
        """A pass through every network, for one step of each row [B]."""
        z = self.encode(obs)
        ends = self.end_logits(z)
        found = (
            self.next(z, actions), self.reward_outputs(z, actions), self.prior(z),
            self.critic(z, actions),
        )  # fmt: skip
        return found if ends is None else (*found, ends)


def mean_of_picked(q: Tensor, pick: Tensor) -> Tensor:
    """The mean over critics [n, B] of those with a 1 in `pick` [n, B]."""
    return (q * pick).sum(0) / pick.sum(0)


def lowest_of_picked(q: Tensor, pick: Tensor) -> Tensor:
    return torch.where(pick > 0, q, torch.inf).amin(0)


def shifted(images: Tensor, shift: Tensor, most: int) -> Tensor:
    """Images [B, C, H, W] moved by up to `most` pixels; their border is repeated (DrQ-v2). `shift`
    [B, 2] in [0, 1): down and to the right."""
    offset = (shift * (2 * most + 1)).long() - most
    for axis, size in enumerate(images.shape[2:]):
        place = torch.arange(size, device=images.device) + offset[:, axis : axis + 1]
        place = place.clamp(0, size - 1)
        place = place[:, None, :, None] if axis == 0 else place[:, None, None, :]
        images = images.gather(2 + axis, place.expand_as(images))
    return images
