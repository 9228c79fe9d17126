"""All parameters of a module as one flat vector, with Adam, AdamW, SGD or RMSprop on it.

Clipping and the update then operate on one tensor instead of a dozen. For small networks this saves
most of the time, which is dispatch, not arithmetic. The module's parameters are views of the
vector.

On a GPU a step is a CUDA graph (fast/cuda_graph.py).

The update rules are those of torch.optim, up to rounding (verified by a test). torch.optim itself
is not used here: creating an optimiser imports torch's compiler, which adds more than a second to
every start, and its bookkeeping costs more than the update of a small vector. The classes
of torch.optim are in fast/torch_optimizer.py.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, Literal, Protocol, get_args

import numpy as np
import torch
from torch import Tensor, nn

from gymnasium_solver.fast.cuda_graph import Graphed, is_inlined

FlatKind = Literal["adam", "adamw", "sgd", "rmsprop", "rmsprop_tf"]
FLAT_KINDS: tuple[str, ...] = get_args(FlatKind)
RMS_DECAY = 0.99  # of the mean square in rmsprop
BETA1, BETA2 = 0.9, 0.999
# torch's fused Adam gives each block of threads on a GPU 65,536 numbers, which leaves most of it
# idle: the vector is passed in parts, at most as many as go into four launches.
GPU_PART, MOST_GPU_PARTS = 4096, 4 * 36


def flatten_parameters(module: nn.Module) -> Tensor:
    """Move all parameters of a module into one vector; they become views of it."""
    params = list(module.parameters())
    flat = torch.cat([p.detach().reshape(-1) for p in params])
    offset = 0
    for p in params:
        p.data = flat[offset : offset + p.numel()].view_as(p)
        offset += p.numel()
    return flat


def move_target(target: Tensor, source: Tensor, tau: float) -> None:
    """target += tau * (source - target)"""
    if tau == 1.0:
        target.copy_(source)
    else:
        target.lerp_(source, tau)


class NativeStep(Protocol):
    def step(
        self,
        optimizer: "FlatOptimizer",
        grad: Tensor,
        lr: float,
        target: tuple[Tensor, float] | None = None,
    ) -> Tensor: ...


class Optimizer(ABC):
    """Clips a flat gradient and updates the parameters of a module along it."""

    def __init__(
        self,
        module: nn.Module,
        *,
        max_grad_norm: float | None = None,
        max_grad_value: float | None = None,
    ):
        self.max_grad_norm, self.max_grad_value = max_grad_norm, max_grad_value
        self.module = module
        self.params = list(module.parameters())
        self._part_names = [name.partition(".")[0] for name, _ in module.named_parameters()]
        self.flat = flatten_parameters(module)
        self.n_steps = 0

    @abstractmethod
    def step(self, grad: Tensor, lr: float | Tensor) -> Tensor:
        """One optimiser step along a flat gradient, which is overwritten; returns its norm before
        clipping. `lr` is a tensor if the step is part of a larger graph."""

    @torch.no_grad()
    def step_with_target(
        self, grad: Tensor, lr: float | Tensor, target: Tensor, tau: float
    ) -> Tensor:
        """A step, after which a target network, as one vector, moves towards the network."""
        norm = self.step(grad, lr)
        move_target(target, self.flat, tau)
        return norm

    @abstractmethod
    def state(self) -> dict[str, Tensor]:
        """Everything but the weights that the next steps depend on."""

    @abstractmethod
    def load_state(self, state: dict[str, Any]) -> None:
        """Load what `state` returned."""

    def set_count(self, n_steps: int) -> None:
        """Continue as after so many steps."""
        self.n_steps = n_steps

    def _clipped(self, grad: Tensor) -> Tensor:
        """Clip a gradient in place and return its norm before that."""
        norm = torch.linalg.vector_norm(grad)
        if self.max_grad_value is not None:
            grad.clamp_(-self.max_grad_value, self.max_grad_value)
            self._clip_to_norm(grad, torch.linalg.vector_norm(grad))
        else:
            self._clip_to_norm(grad, norm)
        return norm

    def _clip_to_norm(self, grad: Tensor, norm: Tensor) -> None:
        if self.max_grad_norm is not None:
            self._clip(grad, norm, self.max_grad_norm)

    def _clip(self, grad: Tensor, norm: Tensor, limit: float) -> None:
        if norm.is_cpu:  # on the CPU reading a number needs no synchronisation, and is cheaper
            if float(norm) > limit:
                grad.mul_(limit / (float(norm) + 1e-6))
        else:
            grad.mul_((limit / (norm + 1e-6)).clamp_(max=1.0))

    def part_norms(self, grad: Tensor) -> dict[str, float]:
        """Norms of a flat gradient by part of the module: its direct children and own
        parameters."""
        values, start = grad.detach().cpu().numpy(), 0
        squares: dict[str, float] = {}
        for name, parameter in zip(self._part_names, self.params, strict=True):
            part = values[start : start + parameter.numel()]
            squares[name] = squares.get(name, 0.0) + float(np.dot(part, part))
            start += parameter.numel()
        return {name: square**0.5 for name, square in squares.items()}

    def snapshot(self) -> tuple[Tensor, dict[str, Tensor]]:
        """Copy weights and moments, to restore after an update with NaNs."""
        return self.flat.clone(), {k: v.clone() for k, v in self.state().items()}

    def restore(self, snapshot: tuple[Tensor, dict[str, Tensor]]) -> None:
        weights, moments = snapshot
        self.flat.copy_(weights)
        self.load_state(moments)


class FlatOptimizer(Optimizer):
    def __init__(
        self,
        module: nn.Module,
        kind: FlatKind,
        *,
        eps: float = 1e-5,
        weight_decay: float = 0.0,
        max_grad_norm: float | None = None,
        max_grad_value: float | None = None,
        beta1: float = BETA1,
        beta2: float = BETA2,
        momentum: float = 0.0,
        graph: bool = True,
    ):
        """`momentum`: of sgd. `graph`: False if settings change, of which a graph would keep the
        first values."""
        super().__init__(module, max_grad_norm=max_grad_norm, max_grad_value=max_grad_value)
        self.has_constant_settings = graph
        self.kind, self.eps, self.weight_decay, self.beta1 = kind, eps, weight_decay, beta1
        self.beta2, self.momentum = beta2, momentum
        self.native: NativeStep | None = None
        """Takes the steps in C, if the gradients are compiled programs."""
        self.mean = torch.zeros_like(self.flat)
        # TensorFlow's RMSprop starts at 1: its first steps are short.
        start = 1.0 if kind == "rmsprop_tf" else 0.0
        self.mean_square = torch.full_like(self.flat, start)
        # The tensors through which a graph reads values that change from step to step.
        self._count, self._lr = (torch.zeros((), device=self.flat.device) for _ in range(2))
        self._parts = _sizes_of_parts(self.flat)
        self._graphed = Graphed(self._descend_from_places) if self.flat.is_cuda and graph else None

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

    def step_with_target(
        self, grad: Tensor, lr: float | Tensor, target: Tensor, tau: float
    ) -> Tensor:
        if self.native is not None and grad.is_contiguous() and tau < 1.0:
            return self.native.step(self, grad, float(lr), (target, tau))
        return super().step_with_target(grad, lr, target, tau)

    def set_count(self, n_steps: int) -> None:
        super().set_count(n_steps)
        self._count.fill_(n_steps)

    def _descend_from_places(self, inputs: Sequence[Tensor]) -> list[Tensor]:
        return [self._descend(inputs[0], self._lr)]

    def _descend(self, grad: Tensor, lr: float | Tensor) -> Tensor:
        norm = self._clipped(grad)
        if self.weight_decay and self.kind == "adamw":
            self.flat.mul_(1 - lr * self.weight_decay)
        elif self.weight_decay:
            grad.add_(self.flat, alpha=self.weight_decay)
        if self.kind == "sgd" and self.momentum:
            self.mean.mul_(self.momentum).add_(grad)
            self.flat.sub_(self.mean * lr)
        elif self.kind == "sgd":
            self.flat.sub_(grad.mul_(lr))
        elif self.kind.startswith("rmsprop"):
            self._rmsprop(grad, lr)
        else:
            self._adam(grad, lr)
        return norm

    def _rmsprop(self, grad: Tensor, lr: float | Tensor) -> None:
        """As torch has it, epsilon is added to the root; as TensorFlow has it, inside the root."""
        self.mean_square.mul_(RMS_DECAY).addcmul_(grad, grad, value=1 - RMS_DECAY)
        if self.kind == "rmsprop_tf":
            root = self.mean_square.add(self.eps).sqrt_()
        else:
            root = self.mean_square.sqrt().add_(self.eps)
        self.flat.sub_(grad.mul_(lr).div_(root))

    def _adam(self, grad: Tensor, lr: float | Tensor) -> None:
        # torch's fused kernel makes one pass over memory instead of five: half the time of separate
        # operations. Weight decay is already applied.
        vectors = (self.flat, grad, self.mean, self.mean_square)
        flat, grads, mean, mean_square = (
            [vector] if len(self._parts) == 1 else list(vector.split(self._parts))
            for vector in vectors
        )
        rate: Any = lr  # for mypy, which does not try all overloads
        torch._fused_adam_(
            flat, grads, mean, mean_square, [], [self._count] * len(flat),
            lr=rate, beta1=self.beta1, beta2=self.beta2, weight_decay=0.0, eps=self.eps,
            amsgrad=False, maximize=False,
        )  # fmt: skip

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


def _sizes_of_parts(flat: Tensor) -> list[int]:
    """Sizes of the parts in which Adam gets a vector: one on a CPU."""
    n = len(flat)
    n_parts = min(-(-n // GPU_PART), MOST_GPU_PARTS) if flat.is_cuda else 1
    size = -(-n // (4 * n_parts)) * 4  # four numbers are loaded at a time
    return [min(size, n - start) for start in range(0, n, size)]


def share_native(owner: Optimizer, other: Optimizer) -> None:
    """Let another optimiser, whose gradient is no program, step in C where `owner` does."""
    if isinstance(owner, FlatOptimizer) and isinstance(other, FlatOptimizer):
        other.native = owner.native
