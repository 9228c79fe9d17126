"""Constants, views, which cost nothing, and joined arrays."""

from collections.abc import Sequence
from typing import Any

import torch

from gymnasium_solver.fast.native import arrays
from gymnasium_solver.fast.native.arrays import (
    ONE,
    ZERO,
    Array,
    Extent,
    Shape,
    canonical,
    extents,
    is_by_rows,
    size_of,
)
from gymnasium_solver.fast.native.builder import Builder
from gymnasium_solver.fast.native.kernels import Constant, Local, Value, literal
from gymnasium_solver.fast.tape import Call, Unsupported


class Views(Builder):
    # -- constants --------------------------------------------------------------------------

    def filled(self, call: Call, number: float) -> Value:
        shape, ctype = self.result(call)
        if ctype != "float":
            return Constant(literal(int(number))._replace(ctype=ctype), shape)
        return Constant(literal(float(number)), shape)

    def op_scalar_tensor(self, call: Call, number: float, dtype: Any = None) -> Value:
        return self.filled(call, number)

    def op_new_zeros(self, call: Call, *args: Any, **kwargs: Any) -> Value:
        return self.filled(call, 0.0)

    op_zeros_like = op_zeros = op_new_zeros

    def op_ones_like(self, call: Call, *args: Any, **kwargs: Any) -> Value:
        return self.filled(call, 1.0)

    op_ones = op_new_ones = op_ones_like

    def op_full(self, call: Call, shape: Any, number: float, **kwargs: Any) -> Value:
        return self.filled(call, number)

    op_full_like = op_full

    # -- views ------------------------------------------------------------------------------

    def reshaped(self, call: Call, x: Any) -> Value:
        (shape, _), value = self.result(call), self.value(x)
        if isinstance(value, Constant):
            return value._replace(shape=shape)
        if canonical(value.shape) == canonical(shape) and isinstance(value, Local):
            return value._replace(shape=shape)
        array = self.array(value)
        view = arrays.viewed(array, shape)
        if view is None:  # a copy
            made = self.new_array(array.shape, array.ctype)
            _, made.storage.ready = self.store(array, made, own=True)
            view = arrays.viewed(made, shape)
            assert view is not None
        return view

    def op_view(self, call: Call, x: Any, shape_or_dim: Any = None) -> Value:
        return self.reshaped(call, x)

    op__unsafe_view = op_reshape = op__reshape_alias = op_unsqueeze = op_squeeze = op_view

    def op_lift_fresh(self, call: Call, x: Any) -> Value:
        return self.value(x)

    op_alias = op_detach = op_lift_fresh

    def op__to_copy(self, call: Call, x: Any, dtype: Any = None) -> Value:
        (_, ctype), value = self.result(call), self.value(x)
        if isinstance(value, Local):
            before = value.variable.ctype
        else:
            before = value.operand.ctype if isinstance(value, Constant) else value.ctype
        if before == ctype:
            return value
        is_bool = call.results[0] is not None and call.results[0].dtype == torch.bool
        return self.pointwise(call, lambda a: f"{a.text} != 0" if is_bool else a.text, [x], {})

    def op_expand(self, call: Call, x: Any, shape: Any, implicit: bool = False) -> Value:
        (wanted, _), value = self.result(call), self.value(x)
        if isinstance(value, Constant):
            return value._replace(shape=wanted)
        if canonical(value.shape) == canonical(wanted):
            return self.reshaped(call, x)
        return arrays.expanded(self.array(value), wanted)

    def op_permute(self, call: Call, x: Any, order: Sequence[int]) -> Value:
        array = self.array(self.value(x))
        return arrays.permuted(array, [d % len(array.shape) for d in order])

    def op_t(self, call: Call, x: Any) -> Value:
        array = self.array(self.value(x))
        return arrays.permuted(array, range(len(array.shape))[::-1])

    def op_transpose(self, call: Call, x: Any, one: int, two: int) -> Value:
        array = self.array(self.value(x))
        order = list(range(len(array.shape)))
        order[one], order[two] = order[two], order[one]
        return arrays.permuted(array, order)

    def op_slice(
        self, call: Call, x: Any, dim: int = 0, start: Any = None, end: Any = None, step: int = 1
    ) -> Value:
        array = self.array(self.value(x))
        dim %= len(array.shape)
        size = array.shape[dim]
        if size.by_rows:
            if step != 1:
                raise Unsupported("a slice of the batch")
            return arrays.sliced(array, dim, *arrays.rows_slice(size, start, end))
        first, last, step = slice(start, end, step).indices(size.n)
        return arrays.sliced(array, dim, first, max(0, -(-(last - first) // step)), step)

    def op_select(self, call: Call, x: Any, dim: int, i: int) -> Value:
        array = self.array(self.value(x))
        dim %= len(array.shape)
        return arrays.without(arrays.sliced(array, dim, i % array.shape[dim].n, 1), dim)

    def op_unbind(self, call: Call, x: Any, dim: int = 0) -> list[Value]:
        array = self.array(self.value(x))
        dim %= len(array.shape)
        n = array.shape[dim].n
        return [self.op_select(call, x, dim, i) for i in range(n)]

    def op_split(self, call: Call, x: Any, size: int, dim: int = 0) -> list[Value]:
        array = self.array(self.value(x))
        dim %= len(array.shape)
        total = array.shape[dim].n
        return [
            arrays.sliced(array, dim, start, min(size, total - start))
            for start in range(0, total, size)
        ]

    def op_split_with_sizes(
        self, call: Call, x: Any, sizes: Sequence[int], dim: int = 0
    ) -> list[Value]:
        array, start, parts = self.array(self.value(x)), 0, list[Value]()
        for size in sizes:
            parts.append(arrays.sliced(array, dim % len(array.shape), start, size))
            start += size
        return parts

    # -- joined -----------------------------------------------------------------------------

    def op_cat(self, call: Call, parts: Sequence[Any], dim: int = 0) -> Value:
        shape, ctype = self.result(call)
        dim %= len(shape)
        made = self.new_array(shape, ctype)
        start = 0
        for part in parts:
            value = self.value(part)
            size = value.shape[dim]
            at = Extent(start, size.by_rows and start > 0)
            _, number = self.store(value, arrays.sliced(made, dim, at, size))
            made.storage.ready = max(made.storage.ready, number)
            made.storage.used.append(number)
            start += size.n
        return made

    def op_stack(self, call: Call, parts: Sequence[Any], dim: int = 0) -> Value:
        shape, ctype = self.result(call)
        made = self.new_array(shape, ctype)
        for i, part in enumerate(parts):
            value = self.value(part)
            target = arrays.without(arrays.sliced(made, dim % len(shape), i, 1), dim % len(shape))
            if self.moves(value, target):
                continue
            _, number = self.store(value, target)
            made.storage.ready = max(made.storage.ready, number)
            made.storage.used.append(number)
        return made

    def moves(self, value: Value, target: Array) -> bool:
        """Whether a part of a stack is computed in its place, instead of copied to it: a value that
        has an array of its own in this section."""
        array = value.variable.array if isinstance(value, Local) else value
        if not isinstance(array, Array) or not array.is_contiguous or array.offset:
            return False
        storage = array.storage
        is_own = storage.place == "scratch" and self.owner.get(storage) is self.section
        is_whole = storage.size == size_of(array.shape) and storage not in self.places
        if not (is_own and is_whole and target.is_contiguous):
            return False
        self.places[storage] = target
        storage.used.append(storage.ready)
        target.storage.ready = max(target.storage.ready, storage.ready)
        return True

    def op_slice_backward(
        self, call: Call, g: Any, shape: Any, dim: int, start: int, end: int, step: int
    ) -> Value:
        return self.placed(call, g, dim, start, step)

    def op_select_backward(self, call: Call, g: Any, shape: Any, dim: int, i: int) -> Value:
        return self.placed(call, g, dim, i, 1)

    def placed(self, call: Call, g: Any, dim: int, start: int, step: int) -> Value:
        """Zeros, with `g` in a part of a dimension."""
        (shape, ctype), value = self.result(call), self.value(g)
        dim %= len(shape)
        made = self.new_array(shape, ctype)
        at: int | Extent = start
        size = value.shape[dim] if len(value.shape) == len(shape) else ONE
        if shape[dim].by_rows and step == 1:
            at, _ = arrays.rows_slice(shape[dim], start, None)
        elif start < 0:
            at = start + shape[dim].n
        part = arrays.sliced(made, dim, at, size, step)
        if len(value.shape) < len(shape):
            part = arrays.without(part, dim)
        return self.inlaid(made, 0.0, part, value)

    def inlaid(self, made: Array, number: float, part: Array, value: Value) -> Array:
        """`made`, filled with a number, and with a value in a part of it."""
        for target, source in ((made, Constant(literal(number), made.shape)), (part, value)):
            _, kernel = self.store(source, target, own=True)
            made.storage.ready = kernel
            made.storage.used.append(kernel)
        return made

    def op_constant_pad_nd(
        self, call: Call, x: Any, pads: Sequence[int], number: float = 0.0
    ) -> Value:
        """`pads`: before and after, from the last dimension on; below 0 they cut off."""
        (shape, ctype), value = self.result(call), self.value(x)
        pairs = list(enumerate(zip(pads[::2], pads[1::2], strict=True), start=1))
        if max(pads) <= 0:
            array = self.array(value)
            for back, (before, after) in pairs:
                size = array.shape[-back]
                if size.by_rows and (before or after):
                    raise Unsupported("a batch that is cut")
                kept = size._replace(n=size.n + before + after)
                array = arrays.sliced(array, len(shape) - back, -before, kept)
            return array
        made = part = self.new_array(shape, ctype)
        for back, (before, after) in pairs:
            if before < 0 or after < 0:
                raise Unsupported("padding that also cuts off")
            part = arrays.sliced(part, len(shape) - back, before, value.shape[-back])
        return self.inlaid(made, float(number), part, value)

    def op_arange(self, call: Call, *args: Any, **kwargs: Any) -> Value:
        meta = call.results[0]
        assert meta is not None
        shape = extents(meta.shape)
        if is_by_rows(shape) or meta.dtype != torch.int64 or len(args) != 1 or kwargs.get("start"):
            raise Unsupported("an arange of this form")
        return self.positions(shape, 0)

    def positions(self, shape: Shape, dim: int) -> Array:
        """The indices along a dimension, as an array."""
        storage = self.storage("tensor", "int64_t", shape[dim], -1)
        strides = tuple(ONE if i == dim else ZERO for i in range(len(shape)))
        return Array(storage, shape, strides)
