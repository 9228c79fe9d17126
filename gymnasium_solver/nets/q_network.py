"""Q-networks: Q(s, a) for every discrete action, plain, dueling, noisy or distributional.

`QHead` is everything after the encoder, including convolutions, so a target network is a copy of
the head only. It ends in one stream, or in two (dueling: value and advantage, Wang et al. 2016). A
stream is the last hidden layer and the output layer; `noisy_sigma` makes these layers noisy
(Fortunato et al. 2018). What the outputs mean is up to the critic head (nets/heads.py): one number
for each action, or several. A recurrent core stands before the streams, so that a target network
has one of its own.
"""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor, nn

from gymnasium_solver.nets.blocks import NoisyLinear, factor_noise
from gymnasium_solver.nets.encoder import Encoded, ObsEncoder, TensorObs
from gymnasium_solver.nets.features import Features, ObsNetwork
from gymnasium_solver.nets.heads import CriticHead, ScalarHead
from gymnasium_solver.nets.network import Network
from gymnasium_solver.nets.recurrent import RecurrentCore, by_time
from gymnasium_solver.spaces.observations import Space
from gymnasium_solver.tree import map_tree


class QHead(nn.Module):
    """Features, dense layers and output streams."""

    def __init__(
        self,
        encoder: ObsEncoder,
        network: Network,
        n_actions: int,
        *,
        dueling: bool,
        noisy_sigma: float | None,
        n_outputs: int,
        generator: torch.Generator,
    ):
        super().__init__()
        self.n_actions, self.n_outputs = n_actions, n_outputs
        *dims, n_last = network.hidden_dims or (0,)
        self.features = Features(encoder, network, None, generator)
        n_in = self.features.width
        blocks = network.blocks(generator)
        self.torso = nn.Sequential(*blocks.hidden(n_in, dims))
        n_features = dims[-1] if dims else n_in
        self.core = None
        if network.recurrence is not None:
            self.core = RecurrentCore(network.recurrence, n_features, generator)
            n_features = self.core.dim

        streams = network._replace(block="mlp").blocks(generator, noisy_sigma=noisy_sigma)

        def stream(n_out: int) -> nn.Sequential:
            hidden = [n_last] if n_last else []
            return nn.Sequential(
                *streams.hidden(n_features, hidden), *streams.outputs(n_last or n_features, n_out)
            )

        self.advantage = stream(n_actions * n_outputs)
        self.value = stream(n_outputs) if dueling else None
        ends = nn.ModuleList([self.advantage, *([self.value] if self.value is not None else [])])
        self.noisy_layers = [m for m in ends.modules() if isinstance(m, NoisyLinear)]

    def forward(self, x: Encoded, noise: Sequence[Tensor] = ()) -> Tensor:
        """Encoded observations -> outputs [B, A], or several for each action [B, A, K].

        `noise` gives each row its own noise: two tensors per noisy layer (`row_noise`)."""
        return self._streams(self.torso(self.features(x)), noise)

    def sequence(self, x: Encoded, carry: Tensor, is_first: Tensor) -> Tensor:
        """Encoded sequences, flattened to [B * L, ...] -> outputs [B * L, A], or [B * L, A, K]."""
        assert self.core is not None
        n, n_rows = is_first.shape
        y, _ = self.core.rows(self.torso(by_time(self.features(x), n)), carry, is_first)
        return by_time(self._streams(y), n_rows)

    def carry_after(self, x: Encoded, carry: Tensor, is_first: Tensor) -> Tensor:
        """The carry after encoded sequences, flattened to [B * L, ...]."""
        assert self.core is not None
        features = self.torso(self.features(x)).view(*is_first.shape, -1)
        return self.core(features, carry, is_first)[1]

    def step(
        self, x: Encoded, carry: Tensor, is_first: Tensor, noise: Sequence[Tensor] = ()
    ) -> tuple[Tensor, Tensor]:
        """One row of every env: outputs [B, A], or [B, A, K], and the new carry."""
        assert self.core is not None
        y, carry = self.core.step(self.torso(self.features(x)), carry, is_first)
        return self._streams(y, noise), carry

    def _streams(self, features: Tensor, noise: Sequence[Tensor] = ()) -> Tensor:
        given = list(noise)
        out = _run(self.advantage, features, given)
        if self.n_outputs > 1:
            out = out.view(-1, self.n_actions, self.n_outputs)
        if self.value is None:
            return out
        value = _run(self.value, features, given)
        if self.n_outputs > 1:
            value = value.unsqueeze(1)
        return value + out - out.mean(dim=1, keepdim=True)

    def resample(self, rng: np.random.Generator | None) -> None:
        """Draw new noise for every noisy layer; None: remove the noise."""
        for layer in self.noisy_layers:
            layer.resample(rng)

    def row_noise(self, n: int, rng: np.random.Generator) -> list[np.ndarray]:
        """Noise for `forward`, independent for each of n rows."""
        shapes = [
            (n, noise.shape[0])
            for layer in self.noisy_layers
            for noise in (layer.noise_in, layer.noise_out)
        ]
        return [factor_noise(rng, shape) for shape in shapes]


def _run(layers: nn.Sequential, x: Tensor, noise: list[Tensor]) -> Tensor:
    """Run the layers in order; each noisy layer takes two tensors from the front of `noise`, if
    given."""
    for layer in layers:
        if noise and isinstance(layer, NoisyLinear):
            x = layer.with_row_noise(x, noise.pop(0), noise.pop(0))
        else:
            x = layer(x)
    return x


class QNetwork(ObsNetwork):
    """An encoder, a QHead, and what its outputs mean (`head`)."""

    def __init__(
        self,
        observation_space: Space,
        n_actions: int,
        network: Network,
        *,
        dueling: bool = False,
        noisy_sigma: float | None = None,
        head: CriticHead | None = None,
        generator: torch.Generator,
    ):
        super().__init__(observation_space, network)
        self.head: CriticHead = ScalarHead() if head is None else head
        self.q = QHead(
            self.encoder,
            network,
            n_actions,
            dueling=dueling,
            noisy_sigma=noisy_sigma,
            n_outputs=self.head.n_outputs,
            generator=generator,
        )

    def forward(self, obs: TensorObs) -> Tensor:
        """Observations -> outputs [B, A], or [B, A, K]."""
        return self.q(self.encoder(obs))

    def q_values(self, obs: TensorObs, noise: Sequence[Tensor] = ()) -> Tensor:
        """Expected returns [B, A], for acting; `noise`: see QHead.forward."""
        return self.head.value(self.q(self.encoder(obs), noise))

    def step(
        self, obs: TensorObs, carry: Tensor, is_first: Tensor, noise: Sequence[Tensor] = ()
    ) -> list[Tensor]:
        """The same with a recurrent core: expected returns [B, A] and the new carry."""
        out, carry = self.q.step(self.encoder(obs), carry, is_first, noise)
        return [self.head.value(out), carry]

    def sequence(self, obs: TensorObs, carry: Tensor, is_first: Tensor) -> Tensor:
        """Sequences [B, L, ...] -> outputs [B * L, A], or [B * L, A, K]."""
        flat = map_tree(lambda part: part.flatten(0, 1), obs)
        return self.q.sequence(self.encoder(flat), carry, is_first)
