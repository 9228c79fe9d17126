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

HARDLY = 1e-3  # of the root mean square of the layer
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
        found: dict[str, float] = {}
        n_dead = n_units = 0
        worst = 0.0
        for name, output in self.outputs.items():
            mean, std, dead, size = _statistics(output)
            prefix = f"opt/activations/{name}"
            found |= {f"{prefix}/mean": mean, f"{prefix}/std": std, f"{prefix}/dead": dead / size}
            n_dead, n_units, worst = n_dead + dead, n_units + size, max(worst, dead / size)
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


def _statistics(output: Tensor) -> tuple[float, float, int, int]:
    """Mean, standard deviation, number of dead units, number of units."""
    y = _by_unit(output)
    means = y.mean(dim=0)
    variances = (y - means).square_().mean(dim=0)  # on the CPU, var_mean takes six times as long
    variance, mean = torch.stack((variances, means)).double().cpu().numpy()
    scale = float((variance + mean * mean).mean())  # mean square of the outputs
    n_dead = int((variance <= HARDLY**2 * scale).sum())
    average = float(mean.mean())
    return average, max(0.0, scale - average * average) ** 0.5, n_dead, len(mean)


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
