"""A tape as kernels: loops over elements, reductions, indices, matrix products and sums over
samples."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from gymnasium_solver.fast.native import arrays
from gymnasium_solver.fast.native.arrays import (
    C_TYPES,
    ONE,
    ZERO,
    Array,
    Extent,
    Shape,
    Storage,
    canonical,
    contiguous,
    extents,
    is_by_rows,
    size_of,
)
from gymnasium_solver.fast.native.builder import aligned
from gymnasium_solver.fast.native.kernels import (
    UNROLLED,
    BatchSum,
    Load,
    Local,
    Lowered,
    Matmul,
    Pack,
    Panels,
    Reduce,
    Value,
    Variable,
)
from gymnasium_solver.fast.native.memory import join_gates, move
from gymnasium_solver.fast.native.pointwise import BUILD
from gymnasium_solver.fast.native.schedule import When
from gymnasium_solver.fast.native.views import Views
from gymnasium_solver.fast.tape import Call, Meta, Ref, Rows, Tape, Unsupported

MOST_SCATTERED = 8
PANEL = 32  # widest panel of a packed matrix, on any CPU
SMALL, MOST_COPIED = 8192, 512  # as in matmul.c
WIDE = 32_768  # floats of a matrix of weights that blocks of many samples use


class Lowering(Views):
    forms = BUILD  # elementwise operations by name

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

    # -- reductions -------------------------------------------------------------------------

    def op_sum(self, call: Call, x: Any, dims: Any = (), keepdim: bool = False, **_: Any) -> Value:
        value, (shape, ctype) = self.value(x), self.result(call)
        dims = tuple(d % len(value.shape) for d in dims or range(len(value.shape)))
        if not any(value.shape[d].by_rows for d in dims):
            return self.reduced("sum", value, dims, shape, ctype)
        if ctype != "float":
            raise Unsupported("a sum over samples that is not float32")
        source = self.array(value)
        out = self.sum_array(call.variable, shape)
        kept = canonical(tuple(n for i, n in enumerate(source.shape) if i not in dims))
        target = Array(out.storage, kept, contiguous(kept))
        self.section.kernels.append(BatchSum(source, dims, target))
        self.uses(source.storage, len(self.section.kernels) - 1)
        return out

    def sum_array(self, variable: str, shape: Shape) -> Array:
        size = size_of(shape).n
        if variable in self.grad_places and self.grad_places[variable][1] == size:
            start = self.grad_places[variable][0]
        else:
            start, self.n_sums = self.n_sums, self.n_sums + size
        self.summed[self.section.level].append((start, size))
        storage = self.storage("sums", "float", Extent(size), start)
        return Array(storage, shape, contiguous(shape))

    def reduced(
        self, kind: str, value: Value, dims: Sequence[int], shape: Shape, ctype: str
    ) -> Value:
        array = self.array(value)
        if any(array.shape[d].by_rows for d in dims):
            raise Unsupported(f"{kind} over samples")
        rest = [i for i in range(len(array.shape)) if i not in dims]
        left = arrays.permuted(array, rest)
        whole = tuple(array.shape[i] for i in rest)
        sizes, inner = (tuple(part[d] for d in dims) for part in (array.shape, array.strides))
        is_long = size_of(sizes).n > UNROLLED
        source = array._replace(shape=whole, strides=left.strides)
        loop, number = self.loop(whole, [source], own=is_long)
        name = self.name()
        self.uses(array.storage, number)
        own = ctype if kind in ("argmax", "sum") else array.ctype
        loop.body.append(Reduce(name, kind, own, source, aligned(source, whole), sizes, inner))
        variable = Variable(name, own, self.section, number, canonical(whole))
        return Local(variable, shape)

    def op_amax(self, call: Call, x: Any, dims: Any = (), keepdim: bool = False) -> Value:
        return self._extreme(call, "max", x, dims)

    def op_amin(self, call: Call, x: Any, dims: Any = (), keepdim: bool = False) -> Value:
        return self._extreme(call, "min", x, dims)

    def op_argmax(self, call: Call, x: Any, dim: Any = None, keepdim: bool = False) -> Value:
        if dim is None:
            raise Unsupported("an argmax over all elements")
        return self._extreme(call, "argmax", x, [dim])

    def _extreme(self, call: Call, kind: str, x: Any, dims: Any) -> Value:
        value = self.value(x)
        dims = [d % len(value.shape) for d in dims or range(len(value.shape))]
        return self.reduced(kind, value, dims, *self.result(call))

    # -- indices ----------------------------------------------------------------------------

    def op_gather(self, call: Call, x: Any, dim: int, index: Any, **_: Any) -> Value:
        array, where, shape = self.array(self.value(x)), self.value(index), self.result(call)[0]
        dim %= len(shape)
        if array.shape[dim].by_rows:
            raise Unsupported("a gather over samples")
        loop, number = self.loop(shape, [array, where])
        chosen = self.operand(loop, number, where, shape)
        strides = tuple(ZERO if i == dim else s for i, s in enumerate(array.strides))
        source = array._replace(shape=shape, strides=strides)
        self.uses(array.storage, number)
        name = self.name()
        more = f"{chosen.text} * {array.strides[dim]}"
        loop.body.append(Load(name, source, aligned(source, shape), more))
        return Local(Variable(name, array.ctype, self.section, number, canonical(shape)), shape)

    def op_scatter_add(self, call: Call, x: Any, dim: int, index: Any, source: Any) -> Value:
        """As a comparison of each position with the indices, which needs no order."""
        shape, _ = self.result(call)
        dim %= len(shape)
        base, where, added = self.value(x), self.value(index), self.value(source)
        n = where.shape[dim]
        if n.by_rows or n.n > MOST_SCATTERED or shape[dim].by_rows:
            raise Unsupported("a scatter of many values")
        rest = [i for i in range(len(shape)) if i != dim]
        if any(where.shape[i] != shape[i] for i in rest):
            raise Unsupported("a scatter into a part")
        indices, values = self.array(where), self.array(added)
        position = self.positions(shape, dim)
        picks = []
        for j in range(n.n):
            picks.append(tuple(arrays.sliced(array, dim, j, 1) for array in (indices, values)))
        operands = [base, position, *(part for pick in picks for part in pick)]
        loop, number = self.loop(shape, operands)
        text = self.operand(loop, number, base, shape).real
        own = self.operand(loop, number, position, shape).text
        for pick in picks:
            at, what = (self.operand(loop, number, part, shape) for part in pick)
            text += f" + ({at.text} == {own} ? {what.real} : 0.0f)"
        return Local(self.define(loop, "float", text, shape), shape)

    # -- products ---------------------------------------------------------------------------

    def op_mm(self, call: Call, x: Any, y: Any) -> Value:
        return self._product(call, x, y, None)

    op_bmm = op_mm

    def op_addmm(self, call: Call, bias: Any, x: Any, y: Any, **kwargs: Any) -> Value:
        if kwargs:
            raise Unsupported("a scaled product")
        return self._product(call, x, y, bias)

    op_baddbmm = op_addmm

    def _product(self, call: Call, x: Any, y: Any, bias: Any) -> Value:
        a, b = self.array(self.value(x)), self.array(self.value(y))
        shape, _ = self.result(call)
        k, n = a.shape[-1], b.shape[-1]
        stack = shape[:-2]
        if n.by_rows or is_by_rows(stack) or {a.ctype, b.ctype} != {"float"}:
            raise Unsupported("a product of this form")
        panels = self.panels(b, k)
        is_sum = k.by_rows
        if is_sum:
            out = self.sum_array(call.variable, shape)
        else:
            out = self.new_array(shape, "float")
        row, after = None, None
        if bias is not None:
            given = arrays.expanded(self.array(self.value(bias)), shape)
            is_row = (given.strides[-2] == ZERO and given.strides[-1] == ONE) or (
                given.strides[-2] == ZERO and n == ONE
            )
            row, after = (given, None) if is_row and not is_sum else (None, bias)
        if after is not None and is_sum:
            raise Unsupported("a bias of a sum over samples")
        kernels = self.section.kernels
        kernels.append(Matmul(a, panels, out, row, k))
        number = len(kernels) - 1
        out.storage.ready = number
        for storage in (a.storage, panels.storage, *([row.storage] if row else [])):
            self.uses(storage, number)
        if after is not None:
            value = self.value(after)
            loop, at = self.loop(shape, [out, value])
            text = " + ".join(self.operand(loop, at, v, shape).real for v in (out, value))
            return Local(self.define(loop, "float", text, shape), shape)
        return out

    def panels(self, b: Array, k: Extent) -> Panels:
        """B as a product reads it: packed once, or for each block of samples if it depends on them;
        or as it is, if its rows are contiguous."""
        stack = b.shape[:-2]
        is_shared = all(stride == ZERO for stride in b.strides[:-2])
        n = b.shape[-1].n
        size = k.times(Extent(-(-n // PANEL) * PANEL))
        is_rows = b.storage.place in ("scratch", "kept", "column", "row_out")
        if is_read_in_place(b, k, is_rows):
            return Panels(b.storage, size, is_shared, b)
        source = b
        if is_shared:
            source = b._replace(shape=b.shape[-2:], strides=b.strides[-2:])
            stack = ()
        home = self.section if is_rows else None
        key = (source.storage, source.shape, source.strides, source.offset, home)
        if key not in self.packed:
            if home is None:  # before the pass, where B is ready
                home = self.sections[2 * self._uniform_level(b.storage)]
            before, self.section = self.section, home
            whole = (*stack, size) if not size.by_rows else (size, *stack)
            target = self.storage("scratch" if is_rows else "uniform", "float", size_of(whole))
            home.kernels.append(Pack(source, target, size))
            target.ready = len(home.kernels) - 1
            self.uses(b.storage, target.ready)
            self.section = before
            self.packed[key] = (target, size)
        return Panels(*self.packed[key], is_shared, source=b)

    def _uniform_level(self, storage: Storage) -> int:
        if storage.place == "sums":
            return next(
                level + 1
                for level, ranges in enumerate(self.summed)
                if any(start == storage.index for start, _ in ranges)
            )
        return self.owner[storage].level if storage.place == "uniform" else 0


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


def is_read_in_place(b: Array, k: Extent, is_rows: bool) -> bool:
    """Whether a product reads B itself, because packing it would cost more: see SMALL in matmul.c.
    Values of a block of samples are used once. Weights are used by each block: a block of few
    samples does not pay for a copy, one of a wide network does."""
    row, col = b.strides[-2:]
    if col != ONE or row.by_rows or row == ZERO:
        return False
    if k.by_rows:
        return True
    is_small, is_copied = k.n * row.n <= SMALL, k.n <= MOST_COPIED
    return is_small or (is_copied and (is_rows or k.n * b.shape[-1].n >= WIDE))
