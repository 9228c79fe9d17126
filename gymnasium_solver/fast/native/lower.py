"""A tape as kernels: loops over elements, matrix products and sums over samples."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from gymnasium_solver.fast.native.arrays import (
    C_TYPES,
    Array,
    Extent,
    contiguous,
    extents,
    is_by_rows,
    size_of,
)
from gymnasium_solver.fast.native.kernels import Local, Lowered, Value
from gymnasium_solver.fast.native.memory import join_gates, move
from gymnasium_solver.fast.native.pointwise import BUILD
from gymnasium_solver.fast.native.products import Products
from gymnasium_solver.fast.native.schedule import When
from gymnasium_solver.fast.tape import Call, Meta, Ref, Rows, Tape, Unsupported


class Lowering(Products):
    forms = BUILD
    """Elementwise operations by name."""

    # -- the tape ---------------------------------------------------------------------------

    def run(self) -> Lowered:
        order = sorted(
            range(len(self.tape.calls)),
            key=lambda i: (self.times[i].level, self.times[i].is_rows, i),
        )
        for i in order:
            call, when = self.tape.calls[i], self.times[i]
            self.section = self.sections[2 * when.level + when.is_rows]
            results = self.lower(call, when)
            for ref, value in results.items():
                if ref.variable in self.late and when.is_rows and not when.is_sum:
                    value = self._kept(value)
                self.values[ref] = value
        outputs, n_outputs, copies = self._finish()
        join_gates(self.sections)
        move(self.sections, self.places)
        sizes = [size for meta in self.metas.values() for size in extents(meta.shape)]
        widest = max((size.n for size in sizes if size.by_rows), default=1)
        return Lowered(
            self.sections, self.storages, self.summed, self.n_sums, n_outputs, outputs, copies,
            widest, self.n_params,
        )  # fmt: skip

    def _kept(self, value: Value) -> Value:
        """Keep a value of all samples for a later pass."""
        if isinstance(value, Local):
            self.kept_variables.add(value.variable)
            array = self.array(value)
        elif isinstance(value, Array):
            array = value
        else:
            return value
        if array.storage.place == "scratch":
            array.storage.place = "kept"
        return array

    def _finish(self) -> tuple[list[tuple[str, Any]], int, list[tuple[Array, int]]]:
        """Outputs and gradients, in the last section."""
        outputs: list[tuple[str, Any]] = []
        n_outputs = n_rows = 0
        for ref in self.tape.outputs:
            meta = self.metas[ref]
            shape = extents(meta.shape)
            if meta.dtype not in C_TYPES:
                raise Unsupported(f"an output of {meta.dtype}")
            if is_by_rows(shape):
                if not shape[0].by_rows or shape[0].n != 1:
                    raise Unsupported("an output whose first dimension is not the batch")
                self.section = self.sections[-2]
                place = self.storage("row_out", C_TYPES[meta.dtype], size_of(shape), n_rows)
                self.copy(self.value(ref), Array(place, shape, contiguous(shape)))
                outputs.append(("rows", (self.static(ref)[1:], meta.dtype)))
                n_rows += 1
            else:
                if meta.dtype != torch.float32:
                    raise Unsupported("an output that is not float32")
                self.section = self.sections[-1]
                size = math.prod(self.static(ref))
                outputs.append(("number", (n_outputs, self.static(ref))))
                target = self.storage("out", "float", Extent(size), n_outputs)
                self.copy(self.value(ref), Array(target, shape, contiguous(shape)))
                n_outputs += size
        copies, start = [], 0
        self.section = self.sections[-1]
        for i, grad in enumerate(self.tape.grads):
            shape = extents(self.static(Ref(f"p{i}")))
            array = self.array(self.value(grad))
            storage = array.storage
            is_there = storage.place == "sums" and storage.index == start
            if not (is_there and array.is_contiguous and not array.offset):
                target = self.storage("sums", "float", size_of(shape), start)
                self.copy(array, Array(target, shape, contiguous(shape)))
                copies.append((array, start))
            start += size_of(shape).n
        return outputs, n_outputs, copies

    def copy(self, value: Value, target: Array) -> None:
        loop, _ = self.store(value, target)
        if target.storage.place == "sums":
            loop.is_open = False

    def lower(self, call: Call, when: When) -> dict[Ref, Value]:
        name = call.name.partition(".")[0]
        method = getattr(self, f"op_{name}", None)
        if method is not None:
            result = method(call, *call.args, **call.kwargs)
            if isinstance(result, list):
                return {Ref(call.variable, i): value for i, value in enumerate(result)}
            return {Ref(call.variable): result}
        if name not in self.forms:
            raise Unsupported(f"{call.name} has no C form")
        kwargs = {key: v for key, v in call.kwargs.items() if key != "dtype" and v is not None}
        return {Ref(call.variable): self.pointwise(call, self.forms[name], call.args, kwargs)}


def lower(tape: Tape, inputs: Mapping[Ref, Meta], n_params: int) -> Lowered:
    return Lowering(tape, inputs, n_params).run()


def input_metas(
    params: Sequence[torch.Tensor],
    constants: Sequence[torch.Tensor],
    columns: Sequence[torch.Tensor],
    n_coefficients: int,
) -> dict[Ref, Meta]:
    metas = {}
    for kind, tensors in (("p", params), ("k", constants)):
        for i, t in enumerate(tensors):
            metas[Ref(f"{kind}{i}")] = Meta(tuple(t.shape), t.dtype)
    for i, t in enumerate(columns):
        metas[Ref(f"b{i}")] = Meta((Rows(1), *t.shape[1:]), t.dtype)
    for i in range(n_coefficients):
        metas[Ref(f"c{i}")] = Meta((), torch.float32)
    return metas
