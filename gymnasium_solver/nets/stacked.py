"""Several MLPs of the same shape as one module: twin critics in one batched product per layer.

Weights are [n, in, out], so two critics cost the dispatch overhead of one. Every layer, including
the last, is initialised uniformly in +-1/sqrt(in), torch's default, as in SB3 and CleanRL.
"""

from collections.abc import Sequence
from itertools import pairwise

import torch
from torch import Tensor, nn

from gymnasium_solver.nets.mlp import ACTIVATIONS
from gymnasium_solver.nets.renorm import BatchRenorm


class StackedLinear(nn.Module):
    """n linear layers: [B, in] (shared input) or [n, B, in] -> [n, B, out].

    With `spectral_norm` each weight matrix is divided by its largest singular value (Miyato et al.
    2018), estimated by `power_iteration`, which is called once per update.
    """

    right: Tensor
    left: Tensor

    def __init__(
        self, n: int, n_in: int, n_out: int, generator: torch.Generator, spectral_norm: bool = False
    ):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(n, n_in, n_out))
        self.bias = nn.Parameter(torch.empty(n, 1, n_out))
        for parameter in (self.weight, self.bias):
            nn.init.uniform_(parameter, -(n_in**-0.5), n_in**-0.5, generator=generator)
        self.spectral_norm = spectral_norm
        if spectral_norm:
            self.register_buffer("left", torch.full((n, 1, n_in), n_in**-0.5))
            self.register_buffer("right", torch.full((n, n_out, 1), n_out**-0.5))
            self.power_iteration(20)

    @torch.no_grad()
    def power_iteration(self, n_iterations: int = 1) -> None:
        """One step of power iteration on the singular vectors of the largest singular value."""
        for _ in range(n_iterations):
            right = torch.bmm(self.left, self.weight).transpose(1, 2)
            self.right.copy_(nn.functional.normalize(right, dim=1))
            left = torch.bmm(self.weight, self.right).transpose(1, 2)
            self.left.copy_(nn.functional.normalize(left, dim=2))

    def forward(self, x: Tensor) -> Tensor:
        weight: Tensor = self.weight
        if self.spectral_norm:
            weight = weight / torch.bmm(torch.bmm(self.left, weight), self.right)
        if x.ndim == 2:
            x = x.expand(len(weight), *x.shape)
        return torch.baddbmm(self.bias, x, weight)


class StackedMLP(nn.Module):
    """n MLPs: [B, in] -> [n, B, out]. `renorm` puts a BatchRenorm before every linear layer."""

    def __init__(
        self,
        n: int,
        n_in: int,
        hidden_dims: Sequence[int],
        n_out: int,
        activation: str,
        generator: torch.Generator,
        *,
        spectral_norm: bool = False,
        renorm: bool = False,
    ):
        super().__init__()
        self.n = n
        layers: list[nn.Module] = []
        for a, b in pairwise([n_in, *hidden_dims, n_out]):
            layers += [ACTIVATIONS[activation]()] if layers else []
            layers += [BatchRenorm((n, 1, a))] if renorm else []
            layers.append(StackedLinear(n, a, b, generator, spectral_norm))
        self.layers = nn.Sequential(*layers)

    def forward(self, x: Tensor) -> Tensor:
        return self.layers(x)

    def first(self, x: Tensor) -> Tensor:
        """The first MLP only: [B, in] -> [B, out]."""
        for layer in self.layers:
            if isinstance(layer, StackedLinear):
                x = torch.addmm(layer.bias[0], x, layer.weight[0])
            else:
                x = layer(x)
        return x

    def power_iteration(self) -> None:
        for layer in self.layers:
            if isinstance(layer, StackedLinear) and layer.spectral_norm:
                layer.power_iteration()
