"""Dense layers: one factory for single networks, and for several stacked into one module.

    blocks = Blocks("relu", generator)                       # one network: [B, in] -> [B, out]
    blocks = Blocks("relu", generator, n=2, norm="layer")    # two in one: [B, in] -> [2, B, out]
    nn.Sequential(*blocks.hidden(8, (256, 256)), *blocks.outputs(256, 1))

Stacked weights are [n, in, out], so twin critics cost one batched product per layer. They start
uniform in +-1/sqrt(in), torch's default, in every layer including the last, as in SB3 and CleanRL.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

import numpy as np
import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn import functional

from gymnasium_solver.errors import ConfigError
from gymnasium_solver.nets.hypersphere import Scale, SphereBlock, SphereHead, ToSphere, first_scale
from gymnasium_solver.nets.renorm import BatchRenorm


class Mish(nn.Module):
    """x tanh(log(1 + e^x)), with one exponential: on a CPU several times faster than torch's, and
    it can be compiled."""

    def forward(self, x: Tensor) -> Tensor:
        e = x.clamp(max=20.0).exp()
        n = e * (e + 2.0)
        return x * (n / (n + 2.0))


ACTIVATIONS: dict[str, type[nn.Module]] = {
    "tanh": nn.Tanh,
    "relu": nn.ReLU,
    "leaky_relu": nn.LeakyReLU,
    "elu": nn.ELU,
    "selu": nn.SELU,
    "gelu": nn.GELU,
    "silu": nn.SiLU,
    "swish": nn.SiLU,
    "mish": Mish,
    "identity": nn.Identity,
}
# Gain of orthogonal initialisation for hidden layers (Andrychowicz et al. 2021).
HIDDEN_GAIN = math.sqrt(2.0)
WIDER = 4  # the hidden layer of a residual block, compared with its inputs
FLASH_EPSILON = 1e-5  # of FlashSAC's batch norm
BlockKind = Literal["mlp", "simba", "simbav2", "flash"]
NormKind = Literal["layer", "rms", "batch", "renorm", "spectral"]
Head = Callable[[int, int, torch.Generator], nn.Module]


def linear(
    n_in: int, n_out: int, gain: float | None, generator: torch.Generator, bias: bool = True
) -> nn.Linear:
    """Orthogonal weights times `gain` and zero bias; None: both uniform in +-1/sqrt(n_in).

    The latter is torch's default, for which value-based methods are tuned."""
    layer = nn.Linear(n_in, n_out, bias=bias)
    if gain is None:
        for parameter in layer.parameters():
            nn.init.uniform_(parameter, -(n_in**-0.5), n_in**-0.5, generator=generator)
    else:
        nn.init.orthogonal_(layer.weight, gain, generator=generator)
        if bias:
            nn.init.zeros_(layer.bias)
    return layer


@dataclass(frozen=True)
class Blocks:
    """How the dense layers of a network are made."""

    activation: str
    generator: torch.Generator
    gain: float | None = None  # of the initial weights: see `linear`
    kind: BlockKind = "mlp"
    """simba: residual blocks with layer norm (Lee et al. 2025). simbav2: with features on a sphere
    (nets/hypersphere.py). flash: with batch norm (FlashSAC, 2026)."""
    norm: NormKind | None = None
    """layer, rms: of the outputs of each hidden layer. batch: also of the inputs. renorm: batch
    renormalisation before every linear layer. spectral: of the weights of stacked networks."""
    n: int = 0  # networks in one stack; 0: a single network
    noisy_sigma: float | None = None
    """Initial deviation of noisy linear layers; None: without noise."""
    head: Head | None = None  # makes the output layer of a plugin; None: linear

    def hidden(self, n_in: int, dims: Sequence[int]) -> list[nn.Module]:
        """Hidden layers of these widths."""
        if self.kind != "mlp" and dims:
            return self._residual(n_in, dims)
        layers: list[nn.Module] = [self._batch_norm(n_in)] if self.norm == "batch" else []
        for a, b in pairwise([n_in, *dims]):
            layers += [*self._renorm(a), self.linear(a, b, bias=self.norm != "batch")]
            if self.norm in ("layer", "rms"):
                layers.append(self._norm(b, self.norm))
            elif self.norm == "batch":
                layers.append(self._batch_norm(b))
            layers.append(ACTIVATIONS[self.activation]())
        return layers

    def outputs(
        self, n_in: int, n_out: int, gain: float | None = None, n_branches: int = 1
    ) -> list[nn.Module]:
        """The output layer, with what normalises its inputs. `n_branches`: kinds of outputs, such
        as means and deviations, that have layers of their own in SimbaV2."""
        if self.kind == "simbav2":
            return [self._sphere_head(n_in, n_out, n_branches)]
        if self.head is not None and not self.n and self.noisy_sigma is None:
            return [*self._renorm(n_in), self.head(n_in, n_out, self.generator)]
        return [*self._renorm(n_in), self.linear(n_in, n_out, gain)]

    def linear(
        self, n_in: int, n_out: int, gain: float | None = None, bias: bool = True
    ) -> nn.Module:
        if self.noisy_sigma is not None:
            return NoisyLinear(n_in, n_out, self.noisy_sigma, self.generator)
        # Weights that are scaled to length 1, or followed by batch norm, start orthogonal.
        gain = 1.0 if self.kind in ("simbav2", "flash") or self.norm == "batch" else gain
        if self.n:
            return StackedLinear(
                self.n, n_in, n_out, self.generator, self.norm == "spectral", gain, bias
            )
        return linear(n_in, n_out, self.gain if gain is None else gain, self.generator, bias)

    def _residual(self, n_in: int, dims: Sequence[int]) -> list[nn.Module]:
        """A first layer and a residual block for each width: all of one width."""
        width = dims[0]
        if set(dims) != {width}:
            raise ConfigError(
                f"block: {self.kind} needs hidden layers of one width, not {list(dims)}"
            )
        if self.norm is not None and (self.kind != "simba" or self.norm in ("renorm", "batch")):
            raise ConfigError(f"block: {self.kind} has norms of its own; remove norm: {self.norm}")
        make = {"simba": self._simba, "simbav2": self._simbav2, "flash": self._flash}[self.kind]
        return make(n_in, width, len(dims))

    def _simba(self, n_in: int, width: int, n_blocks: int) -> list[nn.Module]:
        norm: Literal["layer", "rms"] = "rms" if self.norm == "rms" else "layer"
        layers: list[nn.Module] = [self.linear(n_in, width)]
        for _ in range(n_blocks):
            inner = [
                self._norm(width, norm),
                self.linear(width, WIDER * width),
                ACTIVATIONS[self.activation](),
                self.linear(WIDER * width, width),
            ]
            layers.append(Residual(nn.Sequential(*inner)))
        return [*layers, self._norm(width, norm)]

    def _simbav2(self, n_in: int, width: int, n_blocks: int) -> list[nn.Module]:
        start, wide = first_scale(width), WIDER * width
        inside = start / math.sqrt(WIDER)
        first = self.linear(n_in + 1, width, bias=False)
        layers: list[nn.Module] = [ToSphere(first, Scale(self._shape(width), start, start))]
        for _ in range(n_blocks):
            layers.append(
                SphereBlock(
                    self.linear(width, wide, bias=False),
                    Scale(self._shape(wide), inside, inside),
                    self.linear(wide, width, bias=False),
                    Scale(self._shape(width), 1.0 / (n_blocks + 1), width**-0.5),
                )
            )
        return layers

    def _sphere_head(self, n_in: int, n_out: int, n_branches: int) -> nn.Module:
        branches = []
        for _ in range(n_branches):
            inner = self.linear(n_in, n_in, bias=False)
            outer = self.linear(n_in, n_out // n_branches)
            branches.append((inner, Scale(self._shape(n_in)), outer))
        return SphereHead(branches)

    def _flash(self, n_in: int, width: int, n_blocks: int) -> list[nn.Module]:
        layers = [self._batch_norm(n_in), self.linear(n_in, width, bias=False)]
        for _ in range(n_blocks):
            inner: list[nn.Module] = []
            for a, b in ((width, WIDER * width), (WIDER * width, width)):
                inner += [self.linear(a, b, bias=False), self._batch_norm(b), nn.ReLU()]
            layers.append(Residual(nn.Sequential(*inner)))
        return [*layers, RMSNorm(self._shape(width), is_unit=True)]

    def _shape(self, width: int) -> tuple[int, ...]:
        """Of parameters for each unit."""
        return (self.n, 1, width) if self.n else (width,)

    def _batch_norm(self, width: int) -> nn.Module:
        shape = (self.n, 1, width) if self.n else (1, width)
        given = (FLASH_EPSILON, True) if self.kind == "flash" else ()
        return BatchRenorm(shape, *given)

    def _renorm(self, width: int) -> list[nn.Module]:
        return [self._batch_norm(width)] if self.norm == "renorm" else []

    def _norm(self, width: int, norm: Literal["layer", "rms"]) -> nn.Module:
        if norm == "rms":
            return RMSNorm(self._shape(width))
        return StackedLayerNorm(self.n, width) if self.n else nn.LayerNorm(width)


class Residual(nn.Module):
    """x + layers(x)"""

    def __init__(self, layers: nn.Sequential):
        super().__init__()
        self.layers = layers

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = x + self.layers(x)
        return out


class RMSNorm(nn.Module):
    """Divides by the root mean square over the last axis. `shape` of the weights: (width,), or
    (n, 1, width) in a stack. `is_unit`: see BatchRenorm."""

    def __init__(self, shape: tuple[int, ...], is_unit: bool = False):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(shape))
        self.is_unit = is_unit

    def projected(self) -> tuple[nn.Parameter, tuple[int, int, int, int], int] | None:
        width = self.weight.shape[-1]
        shape = (1, self.weight.numel() // width, width, 1)
        return (self.weight, shape, width) if self.is_unit else None

    def forward(self, x: Tensor) -> Tensor:
        return x * (x.square().mean(dim=-1, keepdim=True) + 1e-6).rsqrt() * self.weight


class StackedLayerNorm(nn.Module):
    """LayerNorm of n networks, [n, B, width], with weights for each."""

    def __init__(self, n: int, width: int):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(n, 1, width))
        self.bias = nn.Parameter(torch.zeros(n, 1, width))

    def forward(self, x: Tensor) -> Tensor:
        return functional.layer_norm(x, x.shape[-1:]) * self.weight + self.bias


class StackedLinear(nn.Module):
    """n linear layers: [B, in] (shared input) or [n, B, in] -> [n, B, out].

    With `spectral_norm` each weight matrix is divided by its largest singular value (Miyato et al.
    2018), estimated by `power_iteration`, which is called once per update."""

    right: Tensor
    left: Tensor

    def __init__(
        self,
        n: int,
        n_in: int,
        n_out: int,
        generator: torch.Generator,
        spectral_norm: bool = False,
        gain: float | None = None,
        bias: bool = True,
    ):
        """`gain`: of orthogonal weights, with biases of zero; None: see `linear`."""
        super().__init__()
        self.weight = nn.Parameter(torch.empty(n, n_in, n_out))
        self.bias = nn.Parameter(torch.zeros(n, 1, n_out)) if bias else None
        if gain is not None:
            for weight in self.weight.data:
                nn.init.orthogonal_(weight, gain, generator=generator)
        else:
            for parameter in self.parameters():
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
            self.right.copy_(functional.normalize(right, dim=1))
            left = torch.bmm(self.weight, self.right).transpose(1, 2)
            self.left.copy_(functional.normalize(left, dim=2))

    def forward(self, x: Tensor) -> Tensor:
        weight: Tensor = self.weight
        if weight.ndim == 2:  # of one network, see `StackedMLP.first`
            return x @ weight if self.bias is None else torch.addmm(self.bias, x, weight)
        if self.spectral_norm:
            weight = weight / torch.bmm(torch.bmm(self.left, weight), self.right)
        if x.ndim == 2:
            x = x.expand(len(weight), *x.shape)
        return torch.bmm(x, weight) if self.bias is None else torch.baddbmm(self.bias, x, weight)

    def projected(self) -> tuple[nn.Parameter, tuple[int, int, int, int], int]:
        """See fast/optimizer.py."""
        n, n_in, n_out = self.weight.shape
        return self.weight, (1, n, n_in, n_out), 1


class StackedMLP(nn.Module):
    """n networks: [B, in] -> [n, B, out]."""

    def __init__(self, blocks: Blocks, n_in: int, hidden_dims: Sequence[int], n_out: int):
        super().__init__()
        self.n = blocks.n
        n_last = hidden_dims[-1] if hidden_dims else n_in
        self.layers = nn.Sequential(
            *blocks.hidden(n_in, hidden_dims), *blocks.outputs(n_last, n_out)
        )

    def forward(self, x: Tensor) -> Tensor:
        return self.layers(x)

    def first(self, x: Tensor) -> Tensor:
        """The first network only: [B, in] -> [B, out]."""
        stacks = (*self.layers.named_parameters(), *self.layers.named_buffers())
        y: Tensor = functional_call(self.layers, {name: stack[0] for name, stack in stacks}, x)
        return y

    def power_iteration(self) -> None:
        for layer in self.modules():
            if isinstance(layer, StackedLinear) and layer.spectral_norm:
                layer.power_iteration()


class NoisyLinear(nn.Module):
    """Linear layer with learnt, factorised Gaussian noise: w + sigma * f(e_out) f(e_in)^T.

    `resample` draws one noise for the whole batch. Without noise it is a plain linear layer."""

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
        return functional.linear(x, weight, self.bias + self.bias_sigma * self.noise_out)

    def with_row_noise(self, x: Tensor, noise_in: Tensor, noise_out: Tensor) -> Tensor:
        """Forward pass with separate noise per row of `x`: [B, n_in] and [B, n_out]."""
        y = functional.linear(x, self.weight, self.bias)
        spread = (x * noise_in) @ self.weight_sigma.t() + self.bias_sigma
        return y + spread * noise_out


def factor_noise(rng: np.random.Generator, shape: Sequence[int]) -> np.ndarray:
    """sign(e) sqrt|e| of standard normal e."""
    noise = rng.standard_normal(tuple(shape), dtype=np.float32)
    return np.sign(noise) * np.sqrt(np.abs(noise))
