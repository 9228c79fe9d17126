"""Passes over minibatches by several learners on a GPU, as one program over their weights [S, P].

    lanes = Lanes({"descent": Descents(), ...})                             # lanes.py
    norms = lane.together("descent", Asked(gradient, optimizer, batch, rows, ...))

A step of ten small networks takes the GPU hardly longer than a step of one, and the host much
longer: it takes each learner's minibatch, puts weights side by side, and steps each optimiser. Here
weights, moments and batches of all learners are put side by side once for a whole update. A step is
then one CUDA graph: minibatches, gradients, clipping and the optimisers' rules. Afterwards each
learner gets its weights and moments back.

The graph is for a fixed number of learners. If fewer take part, the other rows compute what nobody
reads, so that a learner that ends needs no new graph. The results are those of the learner alone up
to rounding: matrix products of a stack and fused Adam add in another order.
"""

from collections.abc import Hashable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from gymnasium_solver import tree
from gymnasium_solver.fast.cuda_graph import N_PLAIN_CALLS, Staging, capturing
from gymnasium_solver.fast.optimizer import (
    FlatOptimizer,
    Optimizer,
    clip_by_weights,
    project,
    update,
)
from gymnasium_solver.fast.recorded import LossGradient, eager, is_close
from gymnasium_solver.fast.stacked import Rows, flat_of, stacked_loss

STEPS_A_TRANSFER = 32  # minibatches whose rows are uploaded together


class Asked(NamedTuple):
    """What one learner asks for."""

    gradient: LossGradient
    optimizer: FlatOptimizer
    batch: Any  # tree of tensors with up to `n_rows` rows
    n_rows: int
    rows: np.ndarray  # [steps, minibatch] of the batch
    coefficients: Sequence[float]
    lr: float
    n_learners: int  # that may take part


def can_descend_together(gradient: LossGradient, optimizer: Optimizer) -> bool:
    return (
        gradient.mode == "graph"
        and isinstance(optimizer, FlatOptimizer)
        and optimizer.has_constant_settings
        and not optimizer.targets
    )


class Descents:
    """Joint work of lanes: many optimiser steps of each."""

    def __init__(self) -> None:
        self.programs: dict[Hashable, _Program | None] = {}

    def key(self, item: Asked) -> Hashable:
        return self._kind(item), len(item.rows)

    def _kind(self, item: Asked) -> Hashable:
        """What a program is for; it takes any number of steps."""
        o = item.optimizer
        columns = tuple((t.shape[1:], t.dtype) for t in tree.leaves_of(item.batch))
        sizes = item.n_rows, item.rows.shape[1], len(item.coefficients)
        settings = tuple(str(replace(group, module=None)) for group in o.groups)  # type: ignore[arg-type]
        return item.gradient.name, columns, sizes, settings, o.max_grad_norm, o.max_grad_value

    def __call__(self, items: Sequence[Asked]) -> Sequence[Tensor | None]:
        """The norms of the gradients of each; None: not possible, nothing has changed."""
        key = self._kind(items[0])
        program = self.programs.get(key)
        try:
            if key not in self.programs or (program is not None and program.n < len(items)):
                program = self.programs[key] = _made(items)
            if program is not None:
                return program(items)
        except (RuntimeError, TypeError, ValueError, AssertionError):
            self.programs[key] = None
        return [None] * len(items)


def _made(items: Sequence[Asked]) -> "_Program | None":
    """The program for such items, if its first gradient is that of torch."""
    first = items[0]
    program = _Program(first, max(first.n_learners, len(items)))
    program.fill(items)
    program.upload_rows([item.rows[:1] for item in items])
    flat, _ = program.gradient()
    index = torch.from_numpy(first.rows[0]).to(flat.device)
    minibatch = tree.map_tree(lambda column: column[index], first.batch)
    own = first.gradient
    expected, *_ = eager(own.loss, own.params, minibatch, first.coefficients)
    return program if is_close(flat[0], expected) else None


class _Program:
    def __init__(self, like: Asked, n: int) -> None:
        self.n, self.one, self.optimizer = n, like.gradient, like.optimizer
        columns = tree.leaves_of(like.batch)
        self._structure = tree.structure_of(like.batch)
        self._n_rows, self._n_taken = like.n_rows, like.rows.shape[1]
        weights = flat_of(like.gradient.params)
        assert weights is not None
        self._weights, self._mean, self._square = Rows([weights] * 3, n).places
        for place in (self._weights, self._mean, self._square):
            place.zero_()
        self._constants = Rows(like.gradient.constants, n)
        self._columns = [
            torch.zeros((n, like.n_rows, *t.shape[1:]), dtype=t.dtype, device=t.device)
            for t in columns
        ]
        device, n_numbers = weights.device, 2 + len(like.coefficients)
        self._numbers = np.ones((n, n_numbers), np.float32)
        # Row i of learner s is row s * n_rows + i of all: those of absent learners are their first.
        starts = np.arange(n)[:, None] * like.n_rows
        self._starts = starts
        self._rows = np.broadcast_to(starts, (STEPS_A_TRANSFER, n, self._n_taken)).copy()
        self._number_staging = Staging([self._numbers], device)
        self._row_staging = Staging([self._rows], device)
        self._step = torch.zeros(1, dtype=torch.int64, device=device)
        self._count = torch.zeros((n, 1), device=device)
        self._norms = torch.zeros((STEPS_A_TRANSFER, n), device=device)
        self._graph: torch.cuda.CUDAGraph | None = None
        self._n_plain = N_PLAIN_CALLS if weights.is_cuda else None  # None: never a graph

    def __call__(self, items: Sequence[Asked]) -> list[Tensor | None]:
        self.fill(items)
        n_steps = len(items[0].rows)
        assert all(len(item.rows) == n_steps for item in items)
        norms = []
        for start in range(0, n_steps, STEPS_A_TRANSFER):
            chunk = slice(start, min(start + STEPS_A_TRANSFER, n_steps))
            self.upload_rows([item.rows[chunk] for item in items])
            for _ in range(start, chunk.stop):
                self._take_step()
            norms.append(self._norms[: chunk.stop - start].clone())
        self._give_back(items, n_steps)
        return list(torch.cat(norms).T[: len(items)])

    @torch.no_grad()
    def fill(self, items: Sequence[Asked]) -> None:
        """Put what the learners have side by side."""
        k = len(items)
        optimizers = [item.optimizer for item in items]
        torch.stack([o.flat for o in optimizers], out=self._weights[:k])
        torch.stack([o.mean for o in optimizers], out=self._mean[:k])
        torch.stack([o.mean_square for o in optimizers], out=self._square[:k])
        for place, *rows in zip(
            self._constants.places, *(item.gradient.constants for item in items), strict=True
        ):
            torch.stack(rows, out=place[:k])
        for column, *given in zip(
            self._columns, *(tree.leaves_of(item.batch) for item in items), strict=True
        ):
            places = [column[i, : len(rows)] for i, rows in enumerate(given)]
            torch._foreach_copy_(places, given)
        for i, item in enumerate(items):
            self._numbers[i] = item.optimizer.n_steps, item.lr, *item.coefficients
        self._number_staging.upload([self._numbers])
        self._count.copy_(self._number_staging.tensors[0][:, :1])

    @torch.no_grad()
    def upload_rows(self, rows: Sequence[np.ndarray]) -> None:
        for i, own in enumerate(rows):
            self._rows[: len(own), i] = own + self._starts[i]
        self._row_staging.upload([self._rows])
        self._step.zero_()

    def gradient(self) -> tuple[Tensor, Tensor]:
        """Gradients [S, P] of the minibatches that are next, and their norms."""
        rows = self._row_staging.tensors[0].index_select(0, self._step).view(-1)
        columns = [
            column.flatten(0, 1).index_select(0, rows).view(self.n, -1, *column.shape[2:])
            for column in self._columns
        ]
        weights = self._weights.detach().requires_grad_()
        coefficients = self._number_staging.tensors[0][:, 2:].unbind(1)
        total, _ = stacked_loss(
            self.one, self._structure, weights, self._constants.places, coefficients, columns, 0
        )
        (grad,) = torch.autograd.grad(total, [weights])
        return grad, torch.linalg.vector_norm(grad, dim=1)

    def _take_step(self) -> None:
        if self._graph is not None:
            self._graph.replay()
        elif self._n_plain is None or self._n_plain > 0:
            self._n_plain = None if self._n_plain is None else self._n_plain - 1
            self._descend()
        else:
            graph = torch.cuda.CUDAGraph()
            with capturing(graph):
                self._descend()
            self._graph = graph
            graph.replay()

    def _descend(self) -> None:
        grad, norm = self.gradient()
        with torch.no_grad():
            self._norms.index_copy_(0, self._step, norm[None])
            self._update(self._clipped(grad, norm))
            self._step.add_(1)

    def _clipped(self, grad: Tensor, norm: Tensor) -> Tensor:
        """As `Optimizer` clips the gradient of one."""
        o = self.optimizer
        for group in o.groups:
            if group.agc is not None:
                clip_by_weights(group, self._weights, grad)
                norm = torch.linalg.vector_norm(grad, dim=1)
        if o.max_grad_value is not None:
            grad = grad.clamp(-o.max_grad_value, o.max_grad_value)
            norm = torch.linalg.vector_norm(grad, dim=1)
        if o.max_grad_norm is not None:
            grad = grad * (o.max_grad_norm / (norm + 1e-6)).clamp(max=1.0)[:, None]
        return grad

    def _update(self, grad: Tensor) -> None:
        lr = self._number_staging.tensors[0][:, 1:2]
        self._count.add_(1)
        vectors = (self._weights, grad, self._mean, self._square)
        for group in self.optimizer.groups:
            weights, grads, means, squares = (v[:, group.start : group.stop] for v in vectors)
            update(group, weights, grads, means, squares, self._count, lr * group.lr_scale)
            project(group, self.optimizer.unit_rows.get(group.name, ()), self._weights)

    @torch.no_grad()
    def _give_back(self, items: Sequence[Asked], n_steps: int) -> None:
        optimizers = [item.optimizer for item in items]
        k = len(items)
        for places, rows in (
            ([o.flat for o in optimizers], self._weights),
            ([o.mean for o in optimizers], self._mean),
            ([o.mean_square for o in optimizers], self._square),
        ):
            torch._foreach_copy_(places, list(rows[:k].unbind()))
        for optimizer in optimizers:
            optimizer.set_count(optimizer.n_steps + n_steps)
