"""Layers, torsos, and their NumPy twins for acting on the CPU.

A torso is an `nn.Sequential` of Linear, optional LayerNorm and an activation. `NumpyMLP` runs the
same forward pass on views of the same weights: a small MLP for eight envs costs about 20 us there
against more than 100 us of torch dispatch.
"""

import math
from collections.abc import Callable, Sequence
from functools import partial
from itertools import pairwise
from typing import cast

import numpy as np
import torch
from torch import Tensor, nn

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
Step = Callable[[np.ndarray, np.random.Generator | None], np.ndarray]
# Gain of orthogonal initialisation for hidden layers (Andrychowicz et al. 2021).
HIDDEN_GAIN = math.sqrt(2.0)


def linear(n_in: int, n_out: int, gain: float | None, generator: torch.Generator) -> nn.Linear:
    """Orthogonal weights times `gain`, zero bias; with None both uniform in +-1/sqrt(n_in).

    The latter is torch's own, which value-based methods are tuned with.
    """
    layer = nn.Linear(n_in, n_out)
    if gain is None:
        for parameter in (layer.weight, layer.bias):
            nn.init.uniform_(parameter, -(n_in**-0.5), n_in**-0.5, generator=generator)
    else:
        nn.init.orthogonal_(layer.weight, gain, generator=generator)
        nn.init.zeros_(layer.bias)
    return layer


def mlp_torso(
    n_in: int,
    hidden_dims: Sequence[int],
    activation: str,
    generator: torch.Generator,
    *,
    gain: float | None = HIDDEN_GAIN,
    layer_norm: bool = False,
) -> nn.Sequential:
    layers: list[nn.Module] = []
    for a, b in pairwise([n_in, *hidden_dims]):
        layers.append(linear(a, b, gain, generator))
        if layer_norm:
            layers.append(nn.LayerNorm(b))
        layers.append(ACTIVATIONS[activation]())
    return nn.Sequential(*layers)


class NumpyMLP:
    """The forward pass of a Sequential on views of its weights, made anew when these moved.

    `runs` is False where it cannot: weights on a GPU, or an activation NumPy has no word for. A
    layer with a method `numpy(x, rng)` of its own is asked for it (noisy layers).
    """

    def __init__(self, layers: nn.Sequential, activation: str):
        self.layers = layers
        self.activate = NUMPY_ACTIVATIONS.get(activation)
        self._first = next(layers.parameters(), None)
        self._address: int | None = None
        self._steps: list[Step] = []

    @property
    def runs(self) -> bool:
        return self.activate is not None and (self._first is None or self._first.is_cpu)

    def __call__(self, x: np.ndarray, rng: np.random.Generator | None = None) -> np.ndarray:
        address = None if self._first is None else self._first.data_ptr()
        if address != self._address:
            self._steps = [self._step(layer) for layer in self.layers]
            self._address = address
        for step in self._steps:
            x = step(x, rng)
        return x

    def _step(self, layer: nn.Module) -> Step:
        activate = self.activate
        assert activate is not None
        if isinstance(layer, nn.Linear):
            return partial(_affine, layer.weight.detach().numpy().T, layer.bias.detach().numpy())
        if isinstance(layer, nn.LayerNorm):
            return partial(_layer_norm, layer.weight.detach(), layer.bias.detach(), layer.eps)
        if hasattr(layer, "numpy"):
            return cast(Step, layer.numpy)
        return lambda x, rng: activate(x)


def _affine(weight_t: np.ndarray, bias: np.ndarray, x: np.ndarray, rng: object) -> np.ndarray:
    y = x @ weight_t
    y += bias
    return y


def _layer_norm(weight: Tensor, bias: Tensor, eps: float, x: np.ndarray, rng: object) -> np.ndarray:
    """With torch's kernel, which takes half the time that NumPy's six passes do."""
    normed, _, _ = torch.native_layer_norm(torch.from_numpy(x), weight.shape, weight, bias, eps)
    return normed.numpy()
