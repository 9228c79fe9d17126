"""Action values: Q(s, a) for every discrete action, plain, dueling, noisy or distributional.

`QHead` is everything after the encoded observation, so that a target network is a copy of it alone;
of images it has the convolutions, too.
It ends in one stream, or in two (dueling: value and advantage, Wang et al. 2016); a stream is the
last hidden layer and the output, and these are the layers that `noisy_sigma` makes noisy (Fortunato
et al. 2018). With `n_atoms` > 1 the outputs are logits over a fixed support (C51, Bellemare 2017).
"""

import math
from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor, nn

from gymnasium_solver.nets.cnn import Cnn, convolutions
from gymnasium_solver.nets.encoder import ObsEncoder
from gymnasium_solver.nets.mlp import ACTIVATIONS, NumpyMLP, linear, mlp_torso
from gymnasium_solver.nets.normalizer import NormalizeMode


class NoisyLinear(nn.Module):
    """Weights with learnt, factorised Gaussian noise: w + sigma * f(e_out) f(e_in)^T.

    `resample` draws one noise for a whole batch; without any it is a plain linear layer.
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

    def numpy(self, x: np.ndarray, rng: np.random.Generator | None) -> np.ndarray:
        """Without gradients; with `rng` every row of `x` gets a noise of its own."""
        y = x @ self.weight.detach().numpy().T + self.bias.detach().numpy()
        if rng is not None:
            noise_in = factor_noise(rng, x.shape)
            noise_out = factor_noise(rng, y.shape)
            spread = (x * noise_in) @ self.weight_sigma.detach().numpy().T
            y += (spread + self.bias_sigma.detach().numpy()) * noise_out
        return y


def factor_noise(rng: np.random.Generator, shape: Sequence[int]) -> np.ndarray:
    """sign(e) sqrt|e| of unit normals."""
    noise = rng.standard_normal(tuple(shape), dtype=np.float32)
    return np.sign(noise) * np.sqrt(np.abs(noise))


class QHead(nn.Module):
    def __init__(
        self,
        n_in: int,
        n_actions: int,
        hidden_dims: Sequence[int],
        activation: str,
        *,
        dueling: bool,
        noisy_sigma: float | None,
        n_atoms: int,
        layer_norm: bool,
        cnn: Cnn | None = None,
        generator: torch.Generator,
    ):
        super().__init__()
        self.n_actions, self.n_atoms, self.activation = n_actions, n_atoms, activation
        *dims, n_last = hidden_dims or (0,)
        conv, n_in = convolutions(cnn, n_in, None, generator)
        dense = mlp_torso(n_in, dims, activation, generator, gain=None, layer_norm=layer_norm)
        self.torso = nn.Sequential(*conv, *dense)
        self.has_convolutions = cnn is not None
        n_features = dims[-1] if dims else n_in

        def stream(n_out: int) -> nn.Sequential:
            sizes = [n_features, n_last, n_out] if n_last else [n_features, n_out]
            layers: list[nn.Module] = []
            for i, (a, b) in enumerate(pairwise(sizes)):
                if noisy_sigma is None:
                    layers.append(linear(a, b, None, generator))
                else:
                    layers.append(NoisyLinear(a, b, noisy_sigma, generator))
                if i < len(sizes) - 2:
                    layers += [nn.LayerNorm(b)] if layer_norm else []
                    layers.append(ACTIVATIONS[activation]())
            return nn.Sequential(*layers)

        self.advantage = stream(n_actions * n_atoms)
        self.value = stream(n_atoms) if dueling else None
        self.noisy_layers = [m for m in self.modules() if isinstance(m, NoisyLinear)]
        self.numpy_torso = NumpyMLP(self.torso, activation)
        self.numpy_advantage = NumpyMLP(self.advantage, activation)
        self.numpy_value = NumpyMLP(self.value, activation) if self.value is not None else None

    def forward(self, x: Tensor) -> Tensor:
        """[B, n_in], or images, -> values [B, A], or logits [B, A, atoms]."""
        features = self.torso(x)
        out = self.advantage(features)
        if self.n_atoms > 1:
            out = out.view(-1, self.n_actions, self.n_atoms)
        if self.value is None:
            return out
        value = self.value(features)
        if self.n_atoms > 1:
            value = value.unsqueeze(1)
        return value + out - out.mean(dim=1, keepdim=True)

    def numpy(self, x: np.ndarray, rng: np.random.Generator | None = None) -> np.ndarray:
        """`forward` without gradients; `rng` draws a noise of its own for every row."""
        if self.has_convolutions:  # by torch: images that went through `cast`
            with torch.no_grad():
                features = self.torso(torch.from_numpy(x)).numpy()
        else:
            features = self.numpy_torso(x)
        out = self.numpy_advantage(features, rng).reshape(len(x), self.n_actions, -1)
        if self.numpy_value is not None:
            value = self.numpy_value(features, rng).reshape(len(x), 1, -1)
            out = value + out - out.mean(axis=1, keepdims=True)
        return out if self.n_atoms > 1 else out[:, :, 0]

    def resample(self, rng: np.random.Generator | None) -> None:
        """Draw new noise for every noisy layer; None: no noise."""
        for layer in self.noisy_layers:
            layer.resample(rng)


class QNetwork(ObsEncoder):
    """An encoder and a QHead; `support` [atoms] are the returns that logits stand for."""

    support: Tensor

    def __init__(
        self,
        observation_space: spaces.Space,
        action_space: spaces.Discrete,
        *,
        hidden_dims: Sequence[int],
        activation: str = "relu",
        dueling: bool = False,
        noisy_sigma: float | None = None,
        n_atoms: int = 1,
        v_min: float = 0.0,
        v_max: float = 0.0,
        layer_norm: bool = False,
        normalize_obs: NormalizeMode = False,
        clip_obs: float = 10.0,
        cnn: Cnn | None = None,
        generator: torch.Generator,
    ):
        super().__init__(observation_space, normalize_obs, clip_obs, cnn)
        self.q = QHead(
            self.width,
            int(action_space.n),
            hidden_dims,
            activation,
            dueling=dueling,
            noisy_sigma=noisy_sigma,
            n_atoms=n_atoms,
            layer_norm=layer_norm,
            cnn=cnn,
            generator=generator,
        )
        self.v_min, self.v_max = v_min, v_max
        self.register_buffer("support", torch.linspace(v_min, v_max, n_atoms), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        """Encoded observations -> Q values [B, A], or logits [B, A, atoms]."""
        return self.q(self.cast(x))

    def q_values(
        self, obs: np.ndarray | Tensor, rng: np.random.Generator | None = None
    ) -> np.ndarray:
        """Expected returns [N, A] of raw observations, to act by; `rng` adds exploration noise."""
        head = self.q
        if head.numpy_advantage.runs:
            assert isinstance(obs, np.ndarray)
            out = head.numpy(self.encode_numpy(obs), rng)
        else:
            head.resample(rng)
            out = self.infer(self, obs, self.support.device)
        if head.n_atoms == 1:
            return out
        probs = np.exp(out - out.max(axis=-1, keepdims=True))
        probs /= probs.sum(axis=-1, keepdims=True)
        return probs @ self.support.cpu().numpy()
