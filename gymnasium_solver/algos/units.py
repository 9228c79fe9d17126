"""Statistics of a network's hidden units, from a forward pass that is made anyway or for this.

    with watch_units(net) as units:
        net(batch.obs)
    metrics |= units.metrics(batch.obs)

A unit is dead if its output hardly varies over the batch: a ReLU that never fires, a saturated
tanh. It passes on no information and gets no gradient.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from gymnasium_solver.nets.mlp import ACTIVATIONS
from gymnasium_solver.tree import leaves_of

HARDLY = 1e-3  # of the layer's mean size
_HIDDEN = tuple(kind for kind in set(ACTIVATIONS.values()) if kind is not nn.Identity)
_N_COMPARED = 32


class Units:
    def __init__(self) -> None:
        self.outputs: dict[str, Tensor] = {}

    def metrics(self, obs: Any) -> dict[str, float]:
        """Mean, standard deviation and dead fraction by layer; {} if all observations of the batch
        are the same, since then no unit can vary."""
        if not self.outputs or not _varies(obs):
            return {}
        numbers = torch.stack([_statistics(y) for y in self.outputs.values()]).tolist()
        found: dict[str, float] = {}
        n_dead = n_units = 0.0
        for name, (mean, std, dead, size) in zip(self.outputs, numbers, strict=True):
            prefix = f"opt/activations/{name}"
            found |= {f"{prefix}/mean": mean, f"{prefix}/std": std, f"{prefix}/dead": dead / size}
            n_dead, n_units = n_dead + dead, n_units + size
        worst = max(dead / size for _, _, dead, size in numbers)
        return found | {"opt/activations/dead": n_dead / n_units, "opt/activations/dead_max": worst}


@contextmanager
def watch_units(net: nn.Module) -> Iterator[Units]:
    """Record the outputs of the activation functions of `net` in forward passes of the block."""
    units, hooks = Units(), []

    def recorder(name: str) -> Any:
        def record(module: nn.Module, args: Any, output: Tensor) -> None:
            units.outputs[name] = output.detach()

        return record

    for name, module in net.named_modules():
        if isinstance(module, _HIDDEN):
            hooks.append(module.register_forward_hook(recorder(name)))
    try:
        yield units
    finally:
        for hook in hooks:
            hook.remove()


def _statistics(output: Tensor) -> Tensor:
    """Mean, standard deviation, number of dead units, number of units."""
    y = _by_unit(output)
    spread = y.std(dim=0, correction=0)
    n_dead = (spread <= HARDLY * y.abs().mean()).sum()
    size = torch.tensor(float(y.shape[1]), device=y.device)
    return torch.stack([y.mean(), y.std(correction=0), n_dead.to(y.dtype), size])


def _by_unit(y: Tensor) -> Tensor:
    """[samples, units]: the channels of a convolution and all units of stacked networks."""
    if y.ndim == 4:  # [B, channels, height, width]
        return y.movedim(1, 3).flatten(0, 2)
    if y.ndim == 3:  # [networks, B, units]
        return y.movedim(0, 1).flatten(1)
    return y


def _varies(obs: Any) -> bool:
    return any(
        len(part) > 1 and bool((part[1 : 1 + _N_COMPARED] != part[:1]).any())
        for part in leaves_of(obs)
    )
