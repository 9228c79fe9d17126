"""Action spaces in torch, for exported policies: the most likely action, in the env's units.

The counterpart of `ActionKind.mode` and `to_env` (spaces/actions.py), which act in NumPy.
"""

import math
from collections.abc import Callable
from typing import Any

import torch
from gymnasium import spaces
from torch import Tensor

from gymnasium_solver.errors import RunError
from gymnasium_solver.spaces.action_base import ActionKind
from gymnasium_solver.spaces.action_dists import (
    EDGE,
    BetaActions,
    MultivariateActions,
    SquashedActions,
    StateGaussianActions,
)
from gymnasium_solver.spaces.actions import (
    BoxActions,
    BoxBase,
    DiscreteActions,
    MultiBinaryActions,
    MultiDiscreteActions,
    ProductActions,
)
from gymnasium_solver.spaces.native_actions import action_leaves
from gymnasium_solver.spaces.observations import Space


def best_actions(kind: ActionKind, outputs: Tensor) -> list[Tensor]:
    """The most likely action of each row, in the env's units: one tensor per leaf of the space."""
    if isinstance(kind, ProductActions):
        widths = [leaf.n_outputs for leaf in kind.leaves]
        parts = zip(kind.leaves, outputs.split(widths, dim=1), strict=True)
        leaves = [action for leaf, part in parts for action in best_actions(leaf, part)]
        spaces_of = action_leaves(kind.space)
        return [_typed(space, action) for space, action in zip(spaces_of, leaves, strict=True)]
    mode = _MODES.get(type(kind))
    if mode is None:
        raise RunError(f"actions of the kind {type(kind).__name__} cannot be exported.")
    return [mode(kind, outputs)]


def output_names(space: Space, prefix: str = "action") -> list[str]:
    """`action`, or for a Dict or Tuple one name per leaf: `action.steer`, `action.0`."""
    if isinstance(space, spaces.Dict):
        inner: dict[str, Any] = dict(space.spaces)
    elif isinstance(space, spaces.Tuple):
        inner = {str(i): part for i, part in enumerate(space.spaces)}
    else:
        return [prefix]
    return [n for key, part in inner.items() for n in output_names(part, f"{prefix}.{key}")]


def _discrete(kind: DiscreteActions, outputs: Tensor) -> Tensor:
    best = outputs.argmax(dim=1)
    return best + kind.start if kind.start else best


def _box(kind: BoxBase, outputs: Tensor) -> Tensor:
    shaped = outputs.reshape(-1, *(kind.space.shape or ()))
    if not kind.is_bounded:
        return shaped
    middle, half_width = (torch.from_numpy(p) for p in (kind.middle, kind.half_width))
    return middle + half_width * shaped.clamp(-1.0, 1.0)


def _first_half(kind: StateGaussianActions, outputs: Tensor) -> Tensor:
    return _box(kind, outputs[:, : kind.width])


def _squashed(kind: SquashedActions, outputs: Tensor) -> Tensor:
    return _box(kind, outputs[:, : kind.width].tanh())


def _beta(kind: BetaActions, outputs: Tensor) -> Tensor:
    alpha, beta = (1.0 + torch.nn.functional.softplus(outputs)).chunk(2, dim=-1)
    return _box(kind, 2.0 * (alpha - 1.0) / (alpha + beta - 2.0).clamp(min=EDGE) - 1.0)


def _multi_discrete(kind: MultiDiscreteActions, outputs: Tensor) -> Tensor:
    parts = outputs.split(kind.sizes, dim=1)
    best = torch.stack([part.argmax(dim=1) for part in parts], dim=1)
    return (best + torch.from_numpy(kind.start)).reshape(-1, *(kind.space.shape or ()))


def _multi_binary(kind: MultiBinaryActions, outputs: Tensor) -> Tensor:
    return (outputs > 0).long().reshape(-1, *(kind.space.shape or ()))


_MODES: dict[type, Callable[[Any, Tensor], Tensor]] = {
    DiscreteActions: _discrete,
    BoxActions: _box,
    MultivariateActions: _box,
    StateGaussianActions: _first_half,
    SquashedActions: _squashed,
    BetaActions: _beta,
    MultiDiscreteActions: _multi_discrete,
    MultiBinaryActions: _multi_binary,
}
_DTYPES = {"f": torch.float32, "i": torch.int64, "b": torch.int64, "u": torch.int64}


def _typed(space: Space, action: Tensor) -> Tensor:
    """In the type of the leaf, inside its bounds."""
    if isinstance(space, spaces.Box):
        low, high = torch.from_numpy(space.low.copy()), torch.from_numpy(space.high.copy())
        action = torch.minimum(torch.maximum(action, low), high)
    assert space.dtype is not None
    return action.to(_DTYPES[space.dtype.kind])


def score_gap(kind: ActionKind, outputs: Tensor) -> Tensor:
    """[N]: how close each row is to a tie between actions; infinite for real-valued actions."""
    if isinstance(kind, ProductActions):
        widths = [leaf.n_outputs for leaf in kind.leaves]
        parts = zip(kind.leaves, outputs.split(widths, dim=1), strict=True)
        return torch.stack([score_gap(leaf, part) for leaf, part in parts]).amin(dim=0)
    if isinstance(kind, MultiBinaryActions):
        return outputs.abs().amin(dim=1)
    if isinstance(kind, BoxBase):
        return torch.full((len(outputs),), math.inf)
    sizes = kind.sizes if isinstance(kind, MultiDiscreteActions) else [kind.n_outputs]
    gaps = []
    for part in outputs.split(sizes, dim=1):
        if part.shape[1] == 1:
            continue
        top = part.topk(2, dim=1).values
        gaps.append((top[:, 0] - top[:, 1]) / top.abs().amax(dim=1).clamp(min=1.0))
    return torch.stack(gaps).amin(dim=0) if gaps else torch.full((len(outputs),), math.inf)
