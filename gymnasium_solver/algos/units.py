"""Statistics of a network's hidden units, from a forward pass that is made anyway or for this; and
how values and TD errors of a batch are spread.

    metrics |= unit_metrics(net, batch.obs, lambda: net(batch.obs))

A unit is dead if its output hardly varies over the batch: a ReLU that never fires, a saturated
tanh. It passes on no information and gets no gradient.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from gymnasium_solver.nets.blocks import ACTIVATIONS
from gymnasium_solver.tree import leaves_of

HARDLY = 1e-3  # of the root mean square of the layer
_HIDDEN = tuple(kind for kind in set(ACTIVATIONS.values()) if kind is not nn.Identity)
_N_COMPARED = 32


PERCENTILES = (5, 25, 50, 75, 95)
N_BINS, WIDTH = 12, 3.0  # of the histogram of TD errors, and its half width in standard deviations


def value_spread(q: Tensor) -> dict[str, float]:
    """Percentiles of Q-values [B]."""
    found = torch.quantile(q.float(), q.new_tensor(PERCENTILES, dtype=torch.float32) / 100)
    pairs = zip(PERCENTILES, found.tolist(), strict=True)
    return {f"opt/q/percentile/{p:02}": value for p, value in pairs}


def percentiles(values: Tensor, shares: Sequence[float]) -> list[Tensor]:
    """Of values [B], interpolated; for losses, which may be captured as a CUDA graph."""
    ordered, found = values.sort().values, []
    for share in shares:
        place = share * (len(values) - 1)
        low = int(place)
        high, rest = min(low + 1, len(values) - 1), place - low
        found.append(ordered[low] * (1.0 - rest) + ordered[high] * rest)
    return found


def error_spread(error: Tensor) -> dict[str, float]:
    """Mean, standard deviation and histogram around the mean of TD errors [B]. The outer bins
    have the tails."""
    std, mean = torch.std_mean(error, correction=0)
    scaled = ((error - mean) / std.clamp(min=1e-12)).clamp(-WIDTH, WIDTH).float().cpu()
    shares = torch.histc(scaled, N_BINS, -WIDTH, WIDTH) / len(error)
    found = {"opt/td_error/mean": float(mean), "opt/td_error/std": float(std)}
    return found | {f"opt/td_error/hist/{i:02}": x for i, x in enumerate(shares.tolist())}


class Units:
    def __init__(self) -> None:
        self.outputs: dict[str, Tensor] = {}

    def metrics(self, obs: Any) -> dict[str, float]:
        """Mean, standard deviation and dead fraction by layer; {} if all observations of the batch
        are the same, since then no unit can vary."""
        if not self.outputs or not _varies(obs):
            return {}
        sizes, means, spreads, n_dead = _statistics([*map(_by_unit, self.outputs.values())])
        dead = n_dead / sizes
        found: dict[str, float] = {}
        columns = means.tolist(), spreads.tolist(), dead.tolist()
        for name, mean, std, share in zip(self.outputs, *columns, strict=True):
            prefix = f"opt/activations/{name}"
            found |= {f"{prefix}/mean": mean, f"{prefix}/std": std, f"{prefix}/dead": share}
        found["opt/activations/dead"] = float(n_dead.sum() / sizes.sum())
        found["opt/activations/dead_max"] = float(dead.max())
        return found


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


def unit_metrics(net: nn.Module, obs: Any, forward: Callable[[], Any]) -> dict[str, float]:
    """Metrics of the units in a forward pass over these observations."""
    with torch.no_grad(), watch_units(net) as units:
        forward()
    return units.metrics(obs)


def _statistics(layers: Sequence[Tensor]) -> tuple[np.ndarray, ...]:
    """By layer: number of units, mean and standard deviation of the outputs, number of dead units.

    `layers`: outputs [samples, units]. All units are one array, since operations on small arrays
    take as long as their calls."""
    by_unit = []
    for y in layers:
        mean = y.mean(dim=0)
        # On the CPU, var_mean takes six times as long.
        by_unit.append(torch.stack(((y - mean).square_().mean(dim=0), mean)))
    variance, mean_by_unit = torch.cat(by_unit, dim=1).double().cpu().numpy()
    sizes = np.array([y.shape[1] for y in layers])
    starts = np.cumsum(sizes) - sizes
    squares = variance + mean_by_unit * mean_by_unit
    square, means = (np.add.reduceat(x, starts) / sizes for x in (squares, mean_by_unit))
    is_dead = variance <= HARDLY**2 * np.repeat(square, sizes)
    spreads = np.sqrt(np.maximum(0.0, square - means * means))
    return sizes, means, spreads, np.add.reduceat(is_dead.astype(np.int64), starts)


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
