"""Initial weights by name (`init`, `init_gain`) and zeros in the output layers (`zero_last`).

    reinitialise(module, "orthogonal", 1.0, zero_last=False, generator=generator)

It applies to dense layers, convolutions, stacked critics and noisy layers alike. Recurrent cores,
embeddings and norms keep their own.
"""

import math

import torch
from torch import Tensor, nn

from gymnasium_solver.nets.blocks import NoisyLinear, StackedLinear
from gymnasium_solver.nets.branches import Branches

# Names of output layers, or of the modules that end in one.
LAST = ("actor_head", "critic_head", "advantage", "value")
Weighted = nn.Linear | nn.Conv2d | NoisyLinear | StackedLinear


@torch.no_grad()
def reinitialise(
    module: nn.Module, init: str, gain: float, zero_last: bool, generator: torch.Generator
) -> None:
    """Set the weights of all hidden layers by name, and those of the output layers to zero."""
    outputs = {id(layer) for layer in output_layers(module)}
    for part in module.modules():
        if not isinstance(part, Weighted) or not isinstance(part.weight, nn.Parameter):
            continue  # a parametrised weight has its own start
        if id(part) in outputs:
            values = [part.weight, part.bias] if zero_last else []
        else:
            values = [] if init == "auto" else [part.bias]
            if init != "auto":
                for matrix in _matrices(part):
                    _fill(matrix, init, gain, generator)
        for value in values:
            if value is not None:
                nn.init.zeros_(value)
    for part in module.modules():
        if isinstance(part, StackedLinear) and part.spectral_norm:
            part.power_iteration(20)


def _matrices(part: Weighted) -> list[Tensor]:
    """The weights as matrices or kernels with the outputs in front."""
    if isinstance(part, StackedLinear):
        return [weight.t() for weight in part.weight]
    return [part.weight]


def _fill(weight: Tensor, init: str, gain: float, generator: torch.Generator) -> None:
    if init == "orthogonal":
        nn.init.orthogonal_(weight, gain * math.sqrt(2.0), generator=generator)
    elif init == "kaiming":
        nn.init.kaiming_uniform_(weight, nonlinearity="relu", generator=generator)
        weight.mul_(gain)
    elif init == "xavier":
        nn.init.xavier_uniform_(weight, gain, generator=generator)
    else:
        bound = gain * weight[0].numel() ** -0.5
        nn.init.uniform_(weight, -bound, bound, generator=generator)


def output_layers(module: nn.Module) -> list[nn.Module]:
    """The output layers: by name, or the last dense layer of a network without named outputs."""
    named = [part for name, part in module.named_modules() if name.rpartition(".")[2] in LAST] or [
        module
    ]
    return [layer for part in named for layer in _last_of(part)]


def _last_of(part: nn.Module) -> list[nn.Module]:
    for several in part.modules():
        if isinstance(several, Branches):
            return [layer for branch in several.branches for layer in _last_of(branch)]
    dense: list[nn.Module] = [
        one for one in part.modules() if isinstance(one, nn.Linear | NoisyLinear | StackedLinear)
    ]
    return dense[-1:]
