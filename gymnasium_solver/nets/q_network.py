"""Q-networks: Q(s, a) for every discrete action, plain, dueling, noisy or distributional.

`QHead` is everything after the encoder, including convolutions, so a target network is a copy of
the head only. It ends in one stream, or in two (dueling: value and advantage, Wang et al. 2016). A
stream is the last hidden layer and the output layer; `noisy_sigma` makes these layers noisy
(Fortunato et al. 2018). What the outputs mean is up to the critic head (nets/heads.py): one number
for each action, or several. A recurrent core stands before the streams, so that a target network
has one of its own.
"""

import math
from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor, nn

from gymnasium_solver.nets.encoder import Encoded, ObsEncoder, TensorObs
from gymnasium_solver.nets.features import Features, encoder_for
from gymnasium_solver.nets.heads import CriticHead, ScalarHead
from gymnasium_solver.nets.mlp import ACTIVATIONS, linear, mlp_torso, output_layer
from gymnasium_solver.nets.network import Network
from gymnasium_solver.nets.normalizer import NormalizeMode
from gymnasium_solver.nets.recurrent import Recurrence, RecurrentCore, by_time
from gymnasium_solver.spaces.observations import Space
from gymnasium_solver.tree import map_tree


class NoisyLinear(nn.Module):
    """Linear layer with learnt, factorised Gaussian noise: w + sigma * f(e_out) f(e_in)^T.

    `resample` draws one noise for the whole batch. Without noise it is a plain linear layer.
    """

    noise_in: Tensor
    noise_out: Tensor

    def __init__(self, n_in: int, n_out: int, sigma0: float, generator: torch.Generator):
        super().__init__()
        base = linear(n_in, n_out, None, generator)
        self.weight, self.bias = base.weight, base.bias
        self.weight_sigma = nn.Parameter(torch.full((n_out, n_in), sigma0 / math.sqrt(n_in)))
        self.bias_sigma = nn.Parameter(torch.full((n_out,), sigma0 / math.sqrt(n_in)))
        self.register_buffer("noise_in", torch.zeros(n_in), persistent=False)
        self.register_buffer("noise_out", torch.zeros(n_out), persistent=False)

    def resample(self, rng: np.random.Generator | None) -> None:
        for buffer in (self.noise_in, self.noise_out):
            if rng is None:
                buffer.zero_()
            else:
                buffer.copy_(torch.from_numpy(factor_noise(rng, buffer.shape)))

    def forward(self, x: Tensor) -> Tensor:
        noise = self.noise_out.unsqueeze(1) * self.noise_in
        weight = self.weight + self.weight_sigma * noise
        return nn.functional.linear(x, weight, self.bias + self.bias_sigma * self.noise_out)

    def with_row_noise(self, x: Tensor, noise_in: Tensor, noise_out: Tensor) -> Tensor:
        """Forward pass with separate noise per row of `x`: [B, n_in] and [B, n_out]."""
        y = nn.functional.linear(x, self.weight, self.bias)
        spread = (x * noise_in) @ self.weight_sigma.t() + self.bias_sigma
        return y + spread * noise_out


def factor_noise(rng: np.random.Generator, shape: Sequence[int]) -> np.ndarray:
    """sign(e) sqrt|e| of standard normal e."""
    noise = rng.standard_normal(tuple(shape), dtype=np.float32)
    return np.sign(noise) * np.sqrt(np.abs(noise))


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
        layer_norm: bool,
        recurrence: Recurrence | None = None,
        generator: torch.Generator,
    ):
        super().__init__()
        self.n_actions, self.n_outputs = n_actions, n_outputs
        activation = network.activation
        *dims, n_last = network.hidden_dims or (0,)
        self.features = Features(encoder, network, None, generator)
        n_in = self.features.width
        self.torso = mlp_torso(n_in, dims, activation, generator, gain=None, layer_norm=layer_norm)
        n_features = dims[-1] if dims else n_in
        self.core: RecurrentCore | None = None
        if recurrence is not None:
            self.core = RecurrentCore(recurrence.kind, n_features, recurrence.dim, generator)
            n_features = recurrence.dim

        def stream(n_out: int) -> nn.Sequential:
            sizes = [n_features, n_last, n_out] if n_last else [n_features, n_out]
            layers: list[nn.Module] = []
            for i, (a, b) in enumerate(pairwise(sizes)):
                if noisy_sigma is not None:
                    layers.append(NoisyLinear(a, b, noisy_sigma, generator))
                elif i == len(sizes) - 2:
                    layers.append(output_layer(network, a, b, None, generator))
                else:
                    layers.append(linear(a, b, None, generator))
                if i < len(sizes) - 2:
                    layers += [nn.LayerNorm(b)] if layer_norm else []
                    layers.append(ACTIVATIONS[activation]())
            return nn.Sequential(*layers)

        self.advantage = stream(n_actions * n_outputs)
        self.value = stream(n_outputs) if dueling else None
        self.noisy_layers = [m for m in self.modules() if isinstance(m, NoisyLinear)]

    def forward(self, x: Encoded, noise: Sequence[Tensor] = ()) -> Tensor:
        """Encoded observations -> outputs [B, A], or several for each action [B, A, K].

        `noise` gives each row its own noise: two tensors per noisy layer (`row_noise`).
        """
        return self._streams(self.torso(self.features(x)), noise)

    def sequence(self, x: Encoded, carry: Tensor, is_first: Tensor) -> Tensor:
        """Encoded sequences, flattened to [B * L, ...] -> outputs [B * L, A], or [B * L, A, K]."""
        assert self.core is not None
        n, n_rows = is_first.shape
        features = self.torso(by_time(self.features(x), n)).view(n_rows, n, -1)
        y, _ = self.core.by_time(features, carry, is_first.t())
        return by_time(self._streams(y.flatten(0, 1)), n_rows)

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


class QNetwork(nn.Module):
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
        layer_norm: bool = False,
        recurrence: Recurrence | None = None,
        normalize_obs: NormalizeMode = False,
        clip_obs: float = 10.0,
        generator: torch.Generator,
    ):
        super().__init__()
        self.encoder = encoder_for(observation_space, network, normalize_obs, clip_obs)
        self.head: CriticHead = ScalarHead() if head is None else head
        self.q = QHead(
            self.encoder,
            network,
            n_actions,
            dueling=dueling,
            noisy_sigma=noisy_sigma,
            n_outputs=self.head.n_outputs,
            layer_norm=layer_norm,
            recurrence=recurrence,
            generator=generator,
        )

    @property
    def has_images(self) -> bool:
        return bool(self.encoder.layouts)

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
