"""The one way to take gradient steps.

    descent = Descent("policy", loss, optimizer, record=True, compile=True)
    steps = descent(batch, {"clip_range": 0.2}, lr, parts, stop=("kl", 0.03))
    steps.means()                       # of the named outputs of the loss, and of the gradient norm

`loss(batch, c) -> (total, {name: output})` is a pure function in plain torch of a tree of tensors
and of named numbers. `parts` are the samples of each step. How the steps are made is decided here:
by torch, as a recorded NumPy program, in one call of a compiled C program, as CUDA graphs, or
together with other learners (lanes.py). Several processes (processes.py) step along the mean of
their gradients. All of them do what the groups of the optimiser declare
(fast/optimizer.py), and on a CPU a form gives the same bits however its steps are grouped.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor, nn

from gymnasium_solver import processes
from gymnasium_solver.fast.cuda_graph import on_device
from gymnasium_solver.fast.optimizer import FlatOptimizer, Optimizer
from gymnasium_solver.fast.recorded import LossGradient, Mode
from gymnasium_solver.fast.stacked_descent import Asked, can_descend_together
from gymnasium_solver.lanes import current_lane
from gymnasium_solver.timing import OFF, Timer
from gymnasium_solver.tree import leaves_of, map_tree

Numbers = Mapping[str, float | Tensor]
Part = np.ndarray | None  # indices of samples; None: all of them
Rows = Part | slice  # the same, or samples that follow one another
WHOLE: tuple[Part] = (None,)


class Loss(Protocol):
    def __call__(
        self, batch: Any, c: dict[str, Tensor], /
    ) -> tuple[Tensor, Mapping[str, Tensor]]: ...


class Steps:
    """What gradient steps report."""

    def __init__(
        self,
        names: tuple[str, ...],
        values: Tensor | list[Tensor],
        norms: Tensor | list[Tensor],
        by_sample: dict[str, Tensor] | None = None,
        is_stopped: bool = False,
        norm: str = "norm",
    ):
        """`values` [steps, names]: the outputs of the loss that are numbers, as a table or one by
        one; `norms` [steps]: of the gradients, before clipping; `norm`: what these are called."""
        self.names, self._values, self._norms, self._norm = names, values, norms, norm
        self.by_sample = by_sample or {}  # outputs with one row per sample, from the last step
        self.is_stopped = is_stopped

    def __len__(self) -> int:
        return len(self._norms)

    @property
    def norms(self) -> Tensor:
        if isinstance(self._norms, list):
            self._norms = torch.stack(self._norms) if self._norms else torch.empty(0)
        return self._norms

    @property
    def values(self) -> Tensor:
        if isinstance(self._values, list):
            n = len(self._norms)
            self._values = (
                torch.stack(self._values).view(n, -1)
                if self._values
                else (torch.empty(n, 0, device=self.norms.device))
            )
        return self._values

    def last(self) -> dict[str, Tensor]:
        """Outputs by name, and the norm of the gradient, of the last step."""
        k = len(self.names)
        row = self._values[-k:] if isinstance(self._values, list) else self._values[-1].unbind()
        return {**dict(zip(self.names, row, strict=True)), self._norm: self._norms[-1]}

    def means(self) -> dict[str, Tensor]:
        """The same, averaged over the steps."""
        if not len(self):
            return {}
        found = torch.cat([self.values, self.norms.unsqueeze(1)], 1).mean(0).unbind()
        return dict(zip((*self.names, self._norm), found, strict=True))

    def numbers(self) -> dict[str, float]:
        """The means as numbers; on a GPU this waits for the steps."""
        means = self.means()
        if not means:
            return {}
        return dict(zip(means, torch.stack(list(means.values())).tolist(), strict=True))


class Descent:
    def __init__(
        self,
        name: str,
        loss: Loss | None,
        optimizer: Optimizer,
        *,
        record: bool = False,
        compile: bool = False,
        constants: Sequence[Tensor] | Callable[[], Sequence[Tensor]] = (),
        steps_in_c: bool = True,
        bf16: bool = False,
        fuse: bool = False,
        norm: str = "norm",
    ):
        """`loss`: None if gradients are known (`along`). `record`, `compile`, `fuse`: see
        LossGradient.
        `constants`: other tensors that the loss reads and that may change in place. `steps_in_c`:
        False for a second loss on the parameters of another descent, whose optimiser steps in that
        one's form. `bf16`: the loss computes in bfloat16 where that is safe; on a GPU only.
        `norm`: what steps call the norm of their gradient."""
        self.name, self.loss, self.optimizer, self.norm = name, loss, optimizer, norm
        self.timer: Timer = OFF
        self._bf16 = bf16 and optimizer.flat.is_cuda
        self._given: tuple[str, ...] = ()  # names of the numbers
        self._outputs: tuple[str, ...] = ()  # names of the outputs
        own = optimizer if isinstance(optimizer, FlatOptimizer) and steps_in_c else None
        self._gradient: LossGradient | None = None
        if loss is not None:
            self._gradient = LossGradient(
                self._on_list,
                optimizer.params,
                record=record,
                constants=constants,
                compile=compile,
                fuse=fuse,
                optimizer=own,
                name=f"{getattr(loss, '__qualname__', type(loss).__name__)} {name}",
            )

    @property
    def gradient(self) -> LossGradient:
        assert self._gradient is not None, f"{self.name} has no loss"
        return self._gradient

    @property
    def has_loss(self) -> bool:
        return self._gradient is not None

    @property
    def device(self) -> torch.device:
        return self.optimizer.flat.device

    @property
    def target(self) -> nn.Module:
        """The target network of the only group that has one."""
        (target,) = self.optimizer.targets.values()
        return target.module

    @property
    def mode(self) -> Mode | None:
        return self.gradient.mode

    # -- steps ------------------------------------------------------------------------------

    def minibatches(
        self, n: int, size: int, rng: np.random.Generator, n_rows: int | None = None
    ) -> list[Part]:
        """Shuffled samples of each step of a pass: parts of nearly equal sizes, at most `size`.

        Sizes are equal so that a small remainder does not get the weight of a whole minibatch. None
        means all samples: a single minibatch needs no shuffle and no copy. `n_rows` (>= n): on a
        GPU the sizes are those for this many samples, and some samples are used twice; so shapes
        stay the same from rollout to rollout, which CUDA graphs need."""
        return minibatches(n, size, rng, n_rows if self.device.type == "cuda" else None)

    def __call__(
        self,
        batch: Any,
        numbers: Numbers,
        lr: float | Tensor,
        parts: Sequence[Rows] = WHOLE,
        *,
        stop: tuple[str, float] | None = None,
        n_rows: int | None = None,
    ) -> Steps:
        """A gradient and an optimiser step for each part.

        `stop`: (output, limit); ends before the step of a part whose output exceeds the limit.
        `n_rows`: rows that the batches of other updates may have, at most."""
        self._given = tuple(numbers)
        if n_rows is not None and stop is None:
            found = self._together(batch, numbers, lr, _indexed(parts), n_rows)
            if found is not None:
                return found
        is_compiled = self._form == "compiled" and isinstance(self.optimizer, FlatOptimizer)
        if is_compiled and len(parts) > 1 and processes.count() == 1:
            found = self._in_one_call(batch, numbers, lr, _indexed(parts), stop)
            if found is not None:
                return found
        return self._one_by_one(batch, numbers, lr, parts, stop)

    def along(self, gradient: Tensor, lr: float | Tensor, like: "Descent") -> Tensor:
        """A step along a known gradient, which may be overwritten; returns its norm. `like`: a
        descent of the same learner, in whose form the step is made."""
        own, other = self.optimizer, like.optimizer
        if isinstance(own, FlatOptimizer) and isinstance(other, FlatOptimizer):
            own.native = other.native
        with self.timer.detail("optimiser"):
            return own.step(gradient, lr)

    def gradient_norms(self, batch: Any, numbers: Numbers, part: Part = None) -> dict[str, float]:
        """Norms of the gradient by part of the network, as metrics; takes no step."""
        self._given = tuple(numbers)
        grad, *_ = self.gradient.alone(self._taken(batch, part), list(numbers.values()))
        norms = self.optimizer.part_norms(grad)
        return {f"opt/grads/norm/{name}": norm for name, norm in norms.items()}

    # -- how they are made ------------------------------------------------------------------

    @property
    def _form(self) -> str | None:
        return self.gradient.mode or self.gradient.form

    def _one_by_one(
        self, batch: Any, numbers: Numbers, lr: float | Tensor, parts: Sequence[Rows],
        stop: tuple[str, float] | None,
    ) -> Steps:  # fmt: skip
        values: list[Tensor] = []
        norms: list[Tensor] = []
        by_sample: dict[str, Tensor] = {}
        names: tuple[str, ...] = ()
        is_stopped = False
        coefficients = list(numbers.values())
        for index in self._indices(parts):
            with self.timer.detail("gradient"):
                part = self._taken(batch, index)
                grad, *outputs = self.gradient(part, coefficients)
                processes.mean_(grad)
            if len(outputs) != len(self._outputs):  # recorded by another learner of a stack
                self._learn_names(part, numbers)
            named = dict(zip(self._outputs, outputs, strict=True))
            if stop is not None and float(named[stop[0]]) > stop[1]:
                is_stopped = True
                break
            with self.timer.detail("optimiser"):
                norms.append(self.optimizer.step(grad, lr))
            single = {name: output for name, output in named.items() if output.ndim == 0}
            names = tuple(single)
            values += single.values()
            by_sample = {name: output for name, output in named.items() if output.ndim}
        return Steps(names, values, norms, by_sample, is_stopped, self.norm)

    def _in_one_call(
        self, batch: Any, numbers: Numbers, lr: float | Tensor, parts: Sequence[Part],
        stop: tuple[str, float] | None,
    ) -> Steps | None:  # fmt: skip
        """All steps in one call of the compiled program: the same bits as one after another."""
        coefficients = list(numbers.values())
        native = self.gradient.native
        if native is None:
            native = self.gradient.compiled(self._taken(batch, parts[0]), coefficients)
        if native is None:
            return None
        assert isinstance(self.optimizer, FlatOptimizer)
        names = tuple(self._outputs[i] for i in native.numbers)
        limit = None if stop is None else (names.index(stop[0]), stop[1])
        with self.timer.detail("gradient"):
            values, norms = native.descend(
                leaves_of(batch), parts, coefficients, self.optimizer, float(lr), limit
            )
        return Steps(names, values, norms, None, len(norms) < len(parts), self.norm)

    def _together(
        self, batch: Any, numbers: Numbers, lr: float | Tensor, parts: Sequence[Part], n_rows: int
    ) -> Steps | None:
        """All steps together with the other seeds of a stack, on a GPU; None: make them alone."""
        lane, optimizer = current_lane(), self.optimizer
        if lane is None or "descent" not in lane.lanes.works:
            return None
        if not can_descend_together(self.gradient, optimizer):
            return None
        assert isinstance(optimizer, FlatOptimizer)
        n = len(leaves_of(batch)[0])
        rows = [np.arange(n) if part is None else part for part in parts]
        if len({len(part) for part in rows}) > 1:
            return None
        asked = Asked(
            self.gradient, optimizer, batch, n_rows, np.stack(rows),
            [float(number) for number in numbers.values()], float(lr), len(lane.lanes.active),
        )  # fmt: skip
        with self.timer.detail("gradient"):
            norms: Tensor | None = lane.together("descent", asked)
        if norms is None:
            return None
        values = torch.empty(len(norms), 0, device=norms.device)
        return Steps((), values, norms, norm=self.norm)

    def _indices(self, parts: Sequence[Rows]) -> Sequence[Tensor | slice | None]:
        """The parts as tensors on the device, in one transfer."""
        given = [part for part in parts if isinstance(part, np.ndarray)]
        if not given:
            return [part for part in parts if not isinstance(part, np.ndarray)]
        order = on_device(np.concatenate(given), self.device)
        return list(order.split([len(part) for part in given]))

    def _taken(self, batch: Any, index: np.ndarray | Tensor | slice | None) -> Any:
        if index is None:
            return batch
        rows = index if isinstance(index, slice) else on_device(index, self.device)
        return map_tree(lambda column: column[rows], batch)

    @torch.no_grad()
    def _learn_names(self, batch: Any, numbers: Numbers) -> None:
        self._on_list(batch, [torch.as_tensor(number) for number in numbers.values()])

    def _on_list(self, batch: Any, numbers: Sequence[Tensor]) -> tuple[Tensor, Sequence[Tensor]]:
        """The loss as programs take it: numbers and outputs without names."""
        assert self.loss is not None
        named = dict(zip(self._given, numbers, strict=True))
        if not self._bf16:
            total, outputs = self.loss(batch, named)
        else:
            with torch.autocast("cuda", torch.bfloat16, cache_enabled=False):
                total, outputs = self.loss(batch, named)
            total, outputs = total.float(), {k: v.float() for k, v in outputs.items()}
        self._outputs = tuple(outputs)
        return total, list(outputs.values())


def _indexed(parts: Sequence[Rows]) -> list[Part]:
    """Parts as indices, for programs that take no others."""
    return [np.arange(p.start, p.stop) if isinstance(p, slice) else p for p in parts]


def minibatches(
    n: int, size: int, rng: np.random.Generator, n_rows: int | None = None
) -> list[Part]:
    """Shuffled index sets of nearly equal size, at most `size` each; see Descent.minibatches."""
    n_parts = -(-(n_rows or n) // size)
    if n_parts <= 1 and n_rows in (None, n):
        return [None]
    order = rng.permutation(n)
    return list(np.array_split(order if n_rows is None else np.resize(order, n_rows), n_parts))
