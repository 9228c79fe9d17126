"""All parameters of a descent as one flat vector, in named groups with settings of their own.

    group = Group("critic", net.critic, eps=1e-8, ema=Ema(tau=0.005))
    optimizer = FlatOptimizer([group], max_grad_norm=0.5)
    norm = optimizer.step(flat_gradient, lr)
    optimizer.targets["critic"].module            # the target network, which moves after each step

Clipping and the update operate on one tensor instead of a dozen. For small networks this saves most
of the time, which is dispatch, not arithmetic. The parameters of the modules are views of the
vector. What a group declares (rule, learning-rate scale, decay, adaptive clipping, unit rows,
bounds, target network) is data, so that every executor does it: torch here, C in
fast/native/program.py, CUDA graphs, and stacked learners (fast/stacked_descent.py).

The update rules are those of torch.optim, up to rounding (verified by a test). torch.optim itself
is not used: creating an optimiser imports torch's compiler, which adds more than a second to every
start, and its bookkeeping costs more than the update of a small vector. The classes of torch.optim
are in fast/torch_optimizer.py.
"""

import copy
import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, Protocol, get_args

import numpy as np
import torch
from torch import Tensor, nn

from gymnasium_solver.fast.cuda_graph import Graphed, is_inlined

FlatKind = Literal["adam", "adamw", "laprop", "sgd", "rmsprop", "rmsprop_tf"]
FLAT_KINDS: tuple[str, ...] = get_args(FlatKind)
RMS_DECAY = 0.99  # of the mean square in rmsprop
BETA1, BETA2 = 0.9, 0.999
AGC_LEAST = 1e-3  # adaptive clipping takes weights to be at least this long
# torch's fused Adam gives each block of threads on a GPU 65,536 numbers, which leaves most of it
# idle: the vector is passed in parts, at most as many as go into four launches.
GPU_PART, MOST_GPU_PARTS = 4096, 4 * 36


class Ema(NamedTuple):
    """A target network: a copy that moves towards its network after steps."""

    tau: float | None  # factor of a move; None: it never moves, it is copied (`copy_to_targets`)
    every: int = 1  # steps between two moves


@dataclass
class Group:
    """The parameters of a module, and how they are updated."""

    name: str
    module: nn.Module
    kind: FlatKind = "adam"
    eps: float = 1e-5
    weight_decay: float = 0.0
    beta1: float = BETA1
    beta2: float = BETA2
    momentum: float = 0.0  # momentum of sgd
    lr_scale: float = 1.0  # factor of the learning rate
    agc: float | None = None
    """Adaptive gradient clipping: the gradient of a tensor is at most this times as long as the
    tensor (Brock et al. 2021, by tensor as in DreamerV3)."""
    unit_rows: bool = False
    """Scale the weights of each unit to length 1 after every step (SimbaV2, XQC), and what else a
    layer declares (`projected`)."""
    bounds: tuple[float | None, float | None] = (None, None)
    """Clamp the parameters to these after every step."""
    ema: Ema | None = None
    start: int = 0
    stop: int = 0  # its part of the flat vector; set by the optimiser

    @property
    def projects(self) -> bool:
        return self.unit_rows or self.bounds != (None, None)


class Target(NamedTuple):
    """A target network: the copy of a group's module, which is not trained."""

    module: nn.Module
    flat: Tensor  # parameters of the copy as one vector
    source: Tensor  # those of the group


Snapshot = tuple[list[Tensor], dict[str, Tensor]]


class Rows(NamedTuple):
    """Weights that are scaled to a length: numbers [repeat, outer, inputs, inner] of the flat
    vector, over the first and the third axis."""

    start: int
    shape: tuple[int, int, int, int]
    square: int  # of the length: 1 for the weights of a unit


def flatten_parameters(module: nn.Module) -> Tensor:
    """Move all parameters of a module into one vector; they become views of it."""
    params = list(module.parameters())
    flat = torch.cat([p.detach().reshape(-1) for p in params])
    _point_to(params, flat)
    return flat


def _point_to(params: Sequence[nn.Parameter], flat: Tensor) -> None:
    offset = 0
    for p in params:
        p.data = flat[offset : offset + p.numel()].view_as(p)
        offset += p.numel()


def _statistics(module: nn.Module, target: nn.Module) -> Iterator[tuple[Tensor, Tensor]]:
    """The buffers of layers that their copies in a target network take over as they are, which a
    layer names by `copied_to_targets`."""
    for own, theirs in zip(module.modules(), target.modules(), strict=True):
        for name in getattr(own, "copied_to_targets", ()):
            yield own.get_buffer(name), theirs.get_buffer(name)


def move_target(target: Tensor, source: Tensor, tau: float) -> None:
    """target += tau * (source - target)"""
    if tau == 1.0:
        target.copy_(source)
    else:
        target.lerp_(source, tau)


class NativeStep(Protocol):
    def step(self, optimizer: "FlatOptimizer", grad: Tensor, lr: float) -> Tensor: ...


class Optimizer(ABC):
    """Clips a flat gradient, updates the parameters of its groups along it, and moves their target
    networks."""

    def __init__(
        self,
        groups: Sequence[Group],
        *,
        max_grad_norm: float | None = None,
        max_grad_value: float | None = None,
    ):
        self.max_grad_norm, self.max_grad_value = max_grad_norm, max_grad_value
        self.groups = list(groups)
        self.params = [p for group in groups for p in group.module.parameters()]
        self.flat = torch.cat([p.detach().reshape(-1) for p in self.params])
        _point_to(self.params, self.flat)
        self.n_steps = 0
        start = 0
        for group in self.groups:
            size = sum(p.numel() for p in group.module.parameters())
            group.start, group.stop = start, start + size
            start += size
        self.targets = {
            group.name: self._target_of(group) for group in self.groups if group.ema is not None
        }
        self.unit_rows = {g.name: _rows_of(g) for g in self.groups if g.unit_rows}
        self._followed = [
            pair for g in self.groups if g.ema is not None
            for pair in _statistics(g.module, self.targets[g.name].module)
        ]  # fmt: skip

    def _target_of(self, group: Group) -> Target:
        module = copy.deepcopy(group.module).requires_grad_(False)
        return Target(module, flatten_parameters(module), self.flat[group.start : group.stop])

    @property
    def module(self) -> nn.Module:
        """The module of the only group, or of the first."""
        return self.groups[0].module

    @abstractmethod
    def step(self, grad: Tensor, lr: float | Tensor) -> Tensor:
        """One optimiser step along a flat gradient, which is overwritten; returns its norm before
        clipping. `lr` is a tensor if the step is part of a larger graph."""

    @abstractmethod
    def state(self) -> dict[str, Tensor]:
        """Everything but the weights and targets that the next steps depend on."""

    @abstractmethod
    def load_state(self, state: dict[str, Any]) -> None:
        """Load what `state` returned."""

    @abstractmethod
    def takes(self, state: Mapping[str, Any]) -> bool:
        """Whether `load_state` could load this."""

    def set_count(self, n_steps: int) -> None:
        """Continue as after this many steps."""
        self.n_steps = n_steps

    def follow(self, settings: Mapping[str, float | None]) -> None:
        """Change settings by name, of the optimiser or of all of its groups."""
        for name, value in settings.items():
            if hasattr(self, name):
                setattr(self, name, value)
                continue
            for group in self.groups:
                if name == "tau":
                    group.ema = None if group.ema is None else group.ema._replace(tau=value)
                else:
                    setattr(group, name, value)

    @torch.no_grad()
    def project(self) -> None:
        """Scale and clamp the first weights as those after a step."""
        for group in self.groups:
            project(group, self.unit_rows.get(group.name, ()), self.flat)
        self.copy_to_targets()

    @torch.no_grad()
    def copy_to_targets(self) -> None:
        """Set the target networks to the present weights."""
        for target in self.targets.values():
            move_target(target.flat, target.source, 1.0)
        self._copy_statistics()

    def _copy_statistics(self) -> None:
        for own, theirs in self._followed:
            theirs.copy_(own)

    def _moves(self, group: Group) -> bool:
        """Whether the target network of a group moves after the step that was just taken."""
        ema = group.ema
        return ema is not None and ema.tau is not None and self.n_steps % ema.every == 0

    def _move_targets(self) -> None:
        for group in self.groups:
            if self._moves(group):
                assert group.ema is not None
                assert group.ema.tau is not None
                move_target(*self.targets[group.name][1:], group.ema.tau)
                self._copy_statistics()

    def _clipped(self, grad: Tensor) -> Tensor:
        """Clip a gradient in place and return its norm before that."""
        norm = torch.linalg.vector_norm(grad)
        left = norm
        for group in self.groups:
            if group.agc is not None:
                clip_by_weights(group, self.flat, grad)
                left = torch.linalg.vector_norm(grad)
        if self.max_grad_value is not None:
            grad.clamp_(-self.max_grad_value, self.max_grad_value)
            left = torch.linalg.vector_norm(grad)
        if self.max_grad_norm is not None:
            self._clip(grad, left, self.max_grad_norm)
        return norm

    def _clip(self, grad: Tensor, norm: Tensor, limit: float) -> None:
        if norm.is_cpu:  # on the CPU reading a number needs no synchronisation, and is cheaper
            if float(norm) > limit:
                grad.mul_(limit / (float(norm) + 1e-6))
        else:
            grad.mul_((limit / (norm + 1e-6)).clamp_(max=1.0))

    def part_norms(self, grad: Tensor) -> dict[str, float]:
        """Norms of a flat gradient by part of the modules: direct children and own parameters."""
        values, start = grad.detach().cpu().numpy(), 0
        squares: dict[str, float] = {}
        depth = 1 if len(self.groups) == 1 else 2
        for name, parameter in self.named_parameters():
            part = values[start : start + parameter.numel()]
            key = ".".join(name.split(".")[:depth])
            squares[key] = squares.get(key, 0.0) + float(np.dot(part, part))
            start += parameter.numel()
        return {name: square**0.5 for name, square in squares.items()}

    def named_parameters(self) -> Iterator[tuple[str, nn.Parameter]]:
        """All parameters in the order of the vector; of several groups with the group's name."""
        for group in self.groups:
            prefix = "" if len(self.groups) == 1 else f"{group.name}."
            for name, parameter in group.module.named_parameters():
                yield prefix + name, parameter

    def snapshot(self) -> Snapshot:
        """Copy weights, targets and moments, to restore after an update with NaNs."""
        moments = {name: value.clone() for name, value in self.state().items()}
        return [t.clone() for t in self._weights()], moments

    @torch.no_grad()
    def restore(self, snapshot: Snapshot) -> None:
        weights, moments = snapshot
        for own, saved in zip(self._weights(), weights, strict=True):
            own.copy_(saved)
        self.load_state(moments)

    def _weights(self) -> list[Tensor]:
        return [self.flat, *self.target_tensors().values()]

    def target_tensors(self) -> dict[str, Tensor]:
        """Parameters and buffers of the target networks, by group and name."""
        return {
            f"{group}.{name}": value
            for group, target in self.targets.items()
            for name, value in target.module.state_dict().items()
        }


class FlatOptimizer(Optimizer):
    def __init__(
        self,
        groups: Sequence[Group],
        *,
        max_grad_norm: float | None = None,
        max_grad_value: float | None = None,
        graph: bool = True,
    ):
        """`graph`: False if settings change, of which a graph would keep the first values."""
        super().__init__(groups, max_grad_norm=max_grad_norm, max_grad_value=max_grad_value)
        self.has_constant_settings = graph
        self.native: NativeStep | None = None
        """Takes the steps in C, if the gradients are compiled programs."""
        self.mean = torch.zeros_like(self.flat)
        self.mean_square = torch.zeros_like(self.flat)
        for group in self.groups:
            if group.kind == "rmsprop_tf":  # TensorFlow's starts at 1: its first steps are short
                self.mean_square[group.start : group.stop] = 1.0
        # The tensors through which a graph reads values that change from step to step.
        self._count, self._lr = (torch.zeros((), device=self.flat.device) for _ in range(2))
        has_turns = any(g.ema is not None and g.ema.every > 1 for g in self.groups)
        uses_graph = self.flat.is_cuda and graph and not has_turns
        self._graphed = Graphed(self._descend_from_places) if uses_graph else None

    def step(self, grad: Tensor, lr: float | Tensor) -> Tensor:
        if self.native is not None and grad.is_contiguous():
            return self.native.step(self, grad, float(lr))
        return self._step_in_torch(grad, lr)

    @torch.no_grad()
    def _step_in_torch(self, grad: Tensor, lr: float | Tensor) -> Tensor:
        self.n_steps += 1
        if is_inlined():
            self._count.add_(1)
            return self._descend(grad, lr)
        self._count.fill_(self.n_steps)
        if self._graphed is None:
            return self._descend(grad, lr)
        self._lr.fill_(lr)
        return self._graphed([grad])[0].clone()

    def set_count(self, n_steps: int) -> None:
        super().set_count(n_steps)
        self._count.fill_(n_steps)

    def _descend_from_places(self, inputs: Sequence[Tensor]) -> list[Tensor]:
        return [self._descend(inputs[0], self._lr)]

    def _descend(self, grad: Tensor, lr: float | Tensor) -> Tensor:
        norm = self._clipped(grad)
        vectors = (self.flat, grad, self.mean, self.mean_square)
        for group in self.groups:
            w, g, mean, square = vectors
            if len(self.groups) > 1:
                w, g, mean, square = (v[group.start : group.stop] for v in vectors)
            rate = lr if group.lr_scale == 1.0 else lr * group.lr_scale
            if group.kind in ("adam", "adamw"):
                _fused_adam(group, w, g, mean, square, self._count, rate)
            else:
                update(group, w, g, mean, square, self._count, rate)
            project(group, self.unit_rows.get(group.name, ()), self.flat)
        self._move_targets()
        return norm

    def state(self) -> dict[str, Tensor]:
        return {
            "mean": self.mean,
            "mean_square": self.mean_square,
            "n_steps": torch.tensor(self.n_steps),
        }

    def load_state(self, state: dict[str, Any]) -> None:
        self.mean.copy_(torch.as_tensor(state["mean"]))
        self.mean_square.copy_(torch.as_tensor(state["mean_square"]))
        self.set_count(int(state["n_steps"]))

    def takes(self, state: Mapping[str, Any]) -> bool:
        own = {name: tuple(value.shape) for name, value in self.state().items()}
        return own == {name: tuple(value.shape) for name, value in state.items()}


# -- what a group declares, on vectors [..., P] of one learner or of several ---------------------


def update(
    group: Group, weights: Tensor, grad: Tensor, mean: Tensor, square: Tensor,
    count: Tensor, lr: float | Tensor,
) -> None:  # fmt: skip
    """One step of the group's rule, in place. `count`: steps so far, this one included."""
    g = group
    if g.weight_decay and g.kind == "adamw":
        weights.mul_(1 - lr * g.weight_decay)
    elif g.weight_decay:
        grad = grad.add(weights, alpha=g.weight_decay)
    if g.kind in ("adam", "adamw"):
        mean.lerp_(grad, 1 - g.beta1)
        square.mul_(g.beta2).addcmul_(grad, grad, value=1 - g.beta2)
        root = square.sqrt() / (1 - torch.pow(g.beta2, count)).sqrt()
        weights.sub_(lr / (1 - torch.pow(g.beta1, count)) * mean / (root + g.eps))
    elif g.kind == "laprop":  # the mean is of normalised gradients (Ziyin et al. 2020)
        square.mul_(g.beta2).addcmul_(grad, grad, value=1 - g.beta2)
        root = (square / (1 - torch.pow(g.beta2, count))).sqrt_().add_(g.eps)
        mean.lerp_(grad / root, 1 - g.beta1)
        weights.sub_(lr / (1 - torch.pow(g.beta1, count)) * mean)
    elif g.kind == "sgd" and g.momentum:
        mean.mul_(g.momentum).add_(grad)
        weights.sub_(mean * lr)
    elif g.kind == "sgd":
        weights.sub_(grad * lr)
    else:  # torch adds epsilon to the root, TensorFlow inside the root
        square.mul_(RMS_DECAY).addcmul_(grad, grad, value=1 - RMS_DECAY)
        is_tf = g.kind == "rmsprop_tf"
        root = square.add(g.eps).sqrt_() if is_tf else square.sqrt().add_(g.eps)
        weights.sub_((grad * lr).div_(root))


def _fused_adam(
    group: Group, weights: Tensor, grad: Tensor, mean: Tensor, square: Tensor,
    count: Tensor, lr: float | Tensor,
) -> None:  # fmt: skip
    """Adam by torch's fused kernel: one pass over memory instead of five, half the time of separate
    operations."""
    if group.weight_decay and group.kind == "adamw":
        weights.mul_(1 - lr * group.weight_decay)
    elif group.weight_decay:
        grad.add_(weights, alpha=group.weight_decay)
    sizes = _sizes_of_parts(weights)
    vectors = (weights, grad, mean, square)
    split: list[Any] = [[v] if len(sizes) == 1 else list(v.split(sizes)) for v in vectors]
    rate: Any = lr  # for mypy, which does not try all overloads
    flat, grads, means, squares = split
    torch._fused_adam_(
        flat, grads, means, squares, [], [count] * len(sizes),
        lr=rate, beta1=group.beta1, beta2=group.beta2, weight_decay=0.0, eps=group.eps,
        amsgrad=False, maximize=False,
    )  # fmt: skip


def clip_by_weights(group: Group, weights: Tensor, grad: Tensor) -> None:
    """Adaptive gradient clipping: each tensor's gradient, in place, to `agc` times its weights."""
    assert group.agc is not None
    sizes = [stop - start for start, stop in tensor_bounds(group)]
    own, given = (v[..., group.start : group.stop].split(sizes, dim=-1) for v in (weights, grad))
    longest = group.agc * _lengths(own).clamp_(min=AGC_LEAST)
    factors = (longest / _lengths(given).clamp_(min=1e-30)).clamp_(max=1.0)
    for part, factor in zip(given, factors, strict=True):
        part.mul_(factor)


def _lengths(parts: Sequence[Tensor]) -> Tensor:
    """Of tensors [size], or of several learners [n, size]: [parts], or [parts, n, 1]."""
    if parts[0].ndim == 1:  # a few launches on a GPU for all of them
        return torch.stack(torch._foreach_norm(list(parts)))
    return torch.stack([torch.linalg.vector_norm(part, dim=-1, keepdim=True) for part in parts])


def project(group: Group, rows: Sequence[Rows], weights: Tensor) -> None:
    """Scale units to length 1 and clamp to the bounds, as the group declares, in place."""
    for start, shape, square in rows:
        size = math.prod(shape)
        matrix = weights[..., start : start + size].unflatten(-1, shape)
        length = torch.linalg.vector_norm(matrix, dim=(-4, -2), keepdim=True).clamp_(min=1e-8)
        matrix.div_(length if square == 1 else length.mul_(square**-0.5))
    if group.bounds != (None, None):
        weights[..., group.start : group.stop].clamp_(*group.bounds)


def tensor_bounds(group: Group) -> Iterator[tuple[int, int]]:
    """Where each tensor of a group starts and stops in the flat vector."""
    start = group.start
    for parameter in group.module.parameters():
        yield start, start + parameter.numel()
        start += parameter.numel()


def _rows_of(group: Group) -> list[Rows]:
    """The weights of a group's dense layers. A layer other than `nn.Linear` says by `projected()`
    what is scaled: the first parameter, a shape and a squared length as in `Rows`, or None."""
    starts = {
        id(parameter): start
        for parameter, (start, _) in zip(
            group.module.parameters(), tensor_bounds(group), strict=True
        )
    }
    found = []
    for layer in group.module.modules():
        if isinstance(layer, nn.Linear):
            found.append(Rows(starts[id(layer.weight)], (1, *layer.weight.shape, 1), 1))
        elif (given := getattr(layer, "projected", lambda: None)()) is not None:
            parameter, shape, square = given
            found.append(Rows(starts[id(parameter)], shape, square))
    return found


def _sizes_of_parts(flat: Tensor) -> list[int]:
    """Sizes of the parts in which Adam gets a vector: one on a CPU."""
    n = len(flat)
    n_parts = min(-(-n // GPU_PART), MOST_GPU_PARTS) if flat.is_cuda else 1
    size = -(-n // (4 * n_parts)) * 4  # four numbers are loaded at a time
    return [min(size, n - start) for start in range(0, n, size)]
