"""A tape as kernels: loops over elements, matrix products and sums over samples.

Consecutive elementwise operations of the same shape become one loop; a value gets memory only if
something outside its loop reads it. Views (transpose, slice, expand, ...) cost nothing.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch

from gymnasium_solver.fast.native import arrays
from gymnasium_solver.fast.native.arrays import (
    C_TYPES,
    ONE,
    ZERO,
    Array,
    Extent,
    Place,
    Shape,
    Storage,
    canonical,
    contiguous,
    extents,
    is_by_rows,
    size_of,
)
from gymnasium_solver.fast.native.levels import When, schedule
from gymnasium_solver.fast.native.pointwise import BUILD, Operand
from gymnasium_solver.fast.native.split import split
from gymnasium_solver.fast.tape import Call, Meta, Ref, Rows, Size, Tape, Unsupported, refs_in

UNROLLED = 8  # longest reduction over a dimension that is written out
MOST_SCATTERED = 8
PANEL = 32  # widest panel of a packed matrix, on any CPU


class Load(NamedTuple):
    """name = storage[offset + strides . indices + more]"""

    name: str
    array: Array
    strides: Shape  # by dimension of the loop
    more: str = ""


class Reduce(NamedTuple):
    """name = the sum, maximum, minimum or argmax over `sizes` of an array"""

    name: str
    kind: str
    ctype: str
    array: Array
    strides: Shape
    sizes: Shape
    inner: Shape  # strides by reduced dimension


@dataclass(eq=False)
class Loop:
    shape: Shape  # without dimensions of size 1
    body: list[Load | Reduce | str] = field(default_factory=list)
    stores: list[tuple[str, Array, Shape]] = field(default_factory=list)
    is_open: bool = True  # further operations may join
    loaded: dict[Any, str] = field(default_factory=dict)

    @property
    def has_inner_loops(self) -> bool:
        return any(isinstance(item, Reduce) and not is_short(item) for item in self.body)


def is_short(reduce: Reduce) -> bool:
    size = size_of(reduce.sizes)
    return not size.by_rows and size.n <= UNROLLED


class Pack(NamedTuple):
    source: Array  # [stack..., k, n]
    target: Storage
    size: int  # floats of each matrix, at most


class Matmul(NamedTuple):
    a: Array
    b: Storage  # packed
    b_size: int
    b_is_shared: bool  # one matrix for the whole stack
    out: Array
    bias: Array | None
    k: Extent


class BatchSum(NamedTuple):
    source: Array
    dims: tuple[int, ...]  # summed over
    out: Array  # of the other dimensions


Kernel = Loop | Pack | Matmul | BatchSum


@dataclass(eq=False)
class Variable:
    """An elementwise result: a local variable of its loop, in memory if something asks for it."""

    name: str
    ctype: str
    section: "Section"
    number: int  # of its loop
    shape: Shape  # canonical
    array: Array | None = None


class Local(NamedTuple):
    variable: Variable
    shape: Shape


class Constant(NamedTuple):
    operand: Operand
    shape: Shape


Value = Array | Local | Constant


@dataclass(eq=False)
class Section:
    """Kernels that run in this order: once (not by rows), or for each block of samples."""

    level: int
    by_rows: bool
    kernels: list[Kernel] = field(default_factory=list)


class Lowered(NamedTuple):
    sections: list[Section]  # once, by rows, once, by rows, ..., once
    storages: list[Storage]
    summed: list[list[tuple[int, int]]]  # by pass: ranges (start, size) of the sums
    n_sums: int
    n_outputs: int  # floats
    outputs: list[tuple[str, Any]]  # ("number", (offset, shape)) or ("rows", (shape, dtype))
    copies: list[tuple[Array, int]]  # gradients that are not sums themselves: to this offset
    widest: int  # most rows of an array for one sample


def _number(value: float | bool) -> Operand:
    if isinstance(value, bool):
        return Operand(str(int(value)), "uint8_t", float(value))
    if isinstance(value, int):
        return Operand(str(value), "int64_t", float(value))
    if math.isnan(value):
        return Operand("NAN", "float", value)
    if math.isinf(value):
        return Operand("INFINITY" if value > 0 else "-INFINITY", "float", value)
    return Operand(f"{value!r}f" if value >= 0 else f"({value!r}f)", "float", value)


class Lowering:
    def __init__(self, tape: Tape, inputs: Mapping[Ref, Meta], n_params: int):
        self.tape, self.metas = split(tape, dict(inputs))
        self.times, n_passes = schedule(self.tape, self.metas)
        self.sections = [Section(i // 2, bool(i % 2)) for i in range(2 * n_passes + 1)]
        self.values: dict[Ref, Value] = {}
        self.homes: dict[Ref, int] = {}  # pass in which a value by rows is computed
        self.storages: list[Storage] = []
        self.packed: dict[Any, tuple[Storage, int]] = {}
        self.n_params = n_params
        self.grad_places = self._grad_places()
        self.n_sums = sum(math.prod(self._static(Ref(f"p{i}"))) for i in range(n_params))
        self.summed: list[list[tuple[int, int]]] = [[] for _ in range(n_passes)]
        self.count = 0
        self.section = self.sections[0]
        self.late = self._read_later()
        self.owner: dict[Storage, Section] = {}
        self.kept_variables: set[Variable] = set()

    # -- places -----------------------------------------------------------------------------

    def _static(self, ref: Ref) -> tuple[int, ...]:
        shape = self.metas[ref].shape
        assert shape is not None
        return tuple(int(n) for n in shape)

    def _grad_places(self) -> dict[str, tuple[int, int]]:
        """Where the result of a call is the gradient of a parameter: (offset, size)."""
        places: dict[str, tuple[int, int]] = {}
        source = {c.variable: c for c in self.tape.calls}
        start, taken = 0, set()
        for i, grad in enumerate(self.tape.grads):
            size = math.prod(self._static(Ref(f"p{i}")))
            variable = grad.variable
            while variable in source and source[variable].name in _RESHAPES:
                variable = source[variable].args[0].variable
            if variable in source and variable not in taken and grad.index is None:
                places[variable] = (start, size)
                taken.add(variable)
            start += size
        return places

    def _read_later(self) -> set[str]:
        """Variables by rows that a later pass reads, views of them included."""
        home, later = {}, set()
        for call, when in zip(self.tape.calls, self.times, strict=True):
            home[call.variable] = when.level
            for ref in _refs(call):
                if when.is_rows and home.get(ref.variable, when.level) < when.level:
                    later.add(ref.variable)
        for call in reversed(self.tape.calls):
            if call.variable in later and call.name in _VIEWS:
                later |= {ref.variable for ref in _refs(call)}
        return later

    def _name(self) -> str:
        self.count += 1
        return f"a{self.count}"

    def storage(self, place: Place, ctype: str, size: Extent, index: int = 0) -> Storage:
        made = Storage(f"s{len(self.storages)}", place, ctype, size, index)
        self.storages.append(made)
        self.owner[made] = self.section
        return made

    def new_array(self, shape: Shape, ctype: str, keeps: bool = False) -> Array:
        place: Place = "uniform"
        if self.section.by_rows:
            place = "kept" if keeps else "scratch"
        made = self.storage(place, ctype, size_of(shape))
        return Array(made, shape, contiguous(shape))

    # -- values -----------------------------------------------------------------------------

    def value(self, given: Any) -> Value:
        if not isinstance(given, Ref):
            return Constant(self._scalar(given), ())
        if given in self.values:
            return self.values[given]
        kind, number = given.variable[0], int(given.variable[1:])
        meta = self.metas[given]
        shape = extents(meta.shape)
        if meta.dtype not in C_TYPES:
            raise Unsupported(f"an input of {meta.dtype}")
        ctype = C_TYPES[meta.dtype]
        kinds: dict[str, Place] = {"b": "column", "c": "number"}
        place = kinds.get(kind, "tensor")
        index = number + (self.n_params if kind == "k" else 0)
        self.values[given] = Array(
            self.storage(place, ctype, size_of(shape), index), shape, contiguous(shape)
        )
        return self.values[given]

    def _scalar(self, value: Any) -> Operand:
        if isinstance(value, Size):
            return Operand(f"(float){value}", "float")
        if isinstance(value, bool | int | float):
            return _number(value)
        raise Unsupported(f"an argument of type {type(value).__name__}")

    def array(self, value: Value) -> Array:
        """The value in memory."""
        if isinstance(value, Array):
            return value
        if isinstance(value, Constant):
            loop, _ = self._loop(value.shape, [])
            variable = self._define(loop, value.operand.ctype, value.operand.text, value.shape)
            return self.array(Local(variable, value.shape))
        variable = value.variable
        if variable.array is None:
            before, self.section = self.section, variable.section
            keeps = variable in self.kept_variables
            made = self.new_array(variable.shape, variable.ctype, keeps)
            made.storage.ready = variable.number
            self.section = before
            variable.array = made
            kernel = variable.section.kernels[variable.number]
            assert isinstance(kernel, Loop)
            kernel.stores.append((variable.name, made, contiguous(variable.shape)))
        return variable.array._replace(shape=value.shape, strides=contiguous(value.shape))

    # -- loops ------------------------------------------------------------------------------

    def _ready(self, value: Value) -> int:
        """The first kernel of the section that can read a value, and for a local variable the loop
        that computes it."""
        if isinstance(value, Local) and value.variable.section is self.section:
            return value.variable.number
        if isinstance(value, Array) and value.storage.place in ("scratch", "kept", "uniform"):
            return value.storage.ready + 1 if self._is_of_section(value.storage) else 0
        return 0

    def _is_of_section(self, storage: Storage) -> bool:
        return self.owner.get(storage) is self.section

    def _loop(self, shape: Shape, operands: Sequence[Value], own: bool = False) -> tuple[Loop, int]:
        """A loop of this shape that can read the operands: an existing one, or a new one."""
        wanted = canonical(shape)
        kernels = self.section.kernels
        first = max((self._ready(value) for value in operands), default=0)
        for number in range(first, len(kernels)):
            kernel = kernels[number]
            if not isinstance(kernel, Loop) or not kernel.is_open or own:
                continue
            if kernel.shape == wanted and all(self._may_read(v, number) for v in operands):
                return kernel, number
        loop = Loop(wanted, is_open=not own)
        kernels.append(loop)
        return loop, len(kernels) - 1

    def _may_read(self, value: Value, number: int) -> bool:
        """Whether loop `number` can read a value. A variable of the same loop must be read at the
        same place, which is the case for the same shape."""
        if not isinstance(value, Local) or value.variable.section is not self.section:
            return True
        variable = value.variable
        if variable.number != number:
            return variable.number < number
        return variable.shape == canonical(value.shape)

    def _operand(self, loop: Loop, number: int, value: Value, shape: Shape) -> Operand:
        """A value as an operand of a loop whose full shape is `shape`."""
        if isinstance(value, Constant):
            return value.operand
        if isinstance(value, Local):
            variable = value.variable
            is_own = variable.section is self.section and variable.number == number
            if is_own and canonical(value.shape) == loop.shape:
                return Operand(variable.name, variable.ctype)
        array = arrays.expanded(self.array(value), shape)
        self._uses(array.storage, number)
        strides = _aligned(array, shape)
        key = (array.storage, strides, array.offset)
        if key not in loop.loaded:
            name = self._name()
            loop.loaded[key] = name
            loop.body.append(Load(name, array, strides))
        return Operand(loop.loaded[key], array.ctype)

    def _uses(self, storage: Storage, number: int) -> None:
        storage.used.append(number)

    def _define(self, loop: Loop, ctype: str, text: str, shape: Shape) -> Variable:
        number = self.section.kernels.index(loop)
        variable = Variable(self._name(), ctype, self.section, number, canonical(shape))
        loop.body.append(f"const {ctype} {variable.name} = {text};")
        return variable

    def pointwise(self, call: Call, build: Any, args: Sequence[Any], kwargs: Any) -> Value:
        meta = call.results[0]
        assert meta is not None
        shape, ctype = extents(meta.shape), C_TYPES[meta.dtype]
        given = [None if a is None else self.value(a) for a in args]
        named = {key: self.value(a) for key, a in kwargs.items()}
        values = [v for v in (*given, *named.values()) if v is not None]
        # Views of values that are computed in a loop of the section are read from memory.
        loop, number = self._loop(shape, values)
        operands = [None if v is None else self._operand(loop, number, v, shape) for v in given]
        options = {key: self._operand(loop, number, v, shape) for key, v in named.items()}
        text = build(*operands, **options)
        return Local(self._define(loop, ctype, text, shape), shape)

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
        widest = max(s.n for m in self.metas.values() for s in extents(m.shape) if s.by_rows)
        return Lowered(
            self.sections, self.storages, self.summed, self.n_sums, n_outputs, outputs, copies,
            widest,
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
                self._copy(self.value(ref), Array(place, shape, contiguous(shape)))
                outputs.append(("rows", (self._static(ref)[1:], meta.dtype)))
                n_rows += 1
            else:
                if meta.dtype != torch.float32:
                    raise Unsupported("an output that is not float32")
                self.section = self.sections[-1]
                size = math.prod(self._static(ref))
                outputs.append(("number", (n_outputs, self._static(ref))))
                target = self.storage("out", "float", Extent(size), n_outputs)
                self._copy(self.value(ref), Array(target, shape, contiguous(shape)))
                n_outputs += size
        copies, start = [], 0
        self.section = self.sections[-1]
        for i, grad in enumerate(self.tape.grads):
            shape = extents(self._static(Ref(f"p{i}")))
            array = self.array(self.value(grad))
            storage = array.storage
            is_there = storage.place == "sums" and storage.index == start
            if not (is_there and array.is_contiguous and not array.offset):
                target = self.storage("sums", "float", size_of(shape), start)
                self._copy(array, Array(target, shape, contiguous(shape)))
                copies.append((array, start))
            start += size_of(shape).n
        return outputs, n_outputs, copies

    def _copy(self, value: Value, target: Array) -> None:
        loop, number = self._loop(target.shape, [value])
        operand = self._operand(loop, number, value, target.shape)
        loop.stores.append((operand.text, target, _aligned(target, target.shape)))
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
        if name not in BUILD:
            raise Unsupported(f"{call.name} has no C form")
        kwargs = {key: v for key, v in call.kwargs.items() if key != "dtype" and v is not None}
        return {Ref(call.variable): self.pointwise(call, BUILD[name], call.args, kwargs)}

    # -- constants --------------------------------------------------------------------------

    def _filled(self, call: Call, number: float) -> Value:
        meta = call.results[0]
        assert meta is not None
        ctype = C_TYPES[meta.dtype]
        if ctype != "float":
            return Constant(_number(int(number))._replace(ctype=ctype), extents(meta.shape))
        return Constant(_number(float(number)), extents(meta.shape))

    def op_scalar_tensor(self, call: Call, number: float, dtype: Any = None) -> Value:
        return self._filled(call, number)

    def op_new_zeros(self, call: Call, *args: Any, **kwargs: Any) -> Value:
        return self._filled(call, 0.0)

    op_zeros_like = op_zeros = op_new_zeros

    def op_ones_like(self, call: Call, *args: Any, **kwargs: Any) -> Value:
        return self._filled(call, 1.0)

    op_ones = op_new_ones = op_ones_like

    def op_full(self, call: Call, shape: Any, number: float, **kwargs: Any) -> Value:
        return self._filled(call, number)

    op_full_like = op_full

    # -- views ------------------------------------------------------------------------------

    def _reshaped(self, call: Call, x: Any) -> Value:
        meta = call.results[0]
        assert meta is not None
        shape, value = extents(meta.shape), self.value(x)
        if isinstance(value, Constant):
            return value._replace(shape=shape)
        if canonical(value.shape) == canonical(shape) and isinstance(value, Local):
            return value._replace(shape=shape)
        array = self.array(value)
        view = arrays.viewed(array, shape)
        if view is None:  # a copy
            made = self.new_array(array.shape, array.ctype)
            loop, number = self._loop(array.shape, [array], own=True)
            operand = self._operand(loop, number, array, array.shape)
            loop.stores.append((operand.text, made, _aligned(made, made.shape)))
            made.storage.ready = number
            view = arrays.viewed(made, shape)
            assert view is not None
        return view

    def op_view(self, call: Call, x: Any, shape: Any) -> Value:
        return self._reshaped(call, x)

    op__unsafe_view = op_reshape = op__reshape_alias = op_view

    def op_unsqueeze(self, call: Call, x: Any, dim: int) -> Value:
        return self._reshaped(call, x)

    def op_squeeze(self, call: Call, x: Any, dim: Any = None) -> Value:
        return self._reshaped(call, x)

    def op_lift_fresh(self, call: Call, x: Any) -> Value:
        return self.value(x)

    op_alias = op_detach = op_lift_fresh

    def op__to_copy(self, call: Call, x: Any, dtype: Any = None) -> Value:
        meta, value = call.results[0], self.value(x)
        assert meta is not None
        before = value.operand if isinstance(value, Constant) else None
        if isinstance(value, Local):
            before = Operand("", value.variable.ctype)
        elif isinstance(value, Array):
            before = Operand("", value.ctype)
        assert before is not None
        if before.ctype == C_TYPES[meta.dtype]:
            return value
        is_bool = meta.dtype == torch.bool
        return self.pointwise(call, lambda a: f"{a.text} != 0" if is_bool else a.text, [x], {})

    def op_expand(self, call: Call, x: Any, shape: Any, implicit: bool = False) -> Value:
        meta = call.results[0]
        assert meta is not None
        wanted, value = extents(meta.shape), self.value(x)
        if isinstance(value, Constant):
            return value._replace(shape=wanted)
        if canonical(value.shape) == canonical(wanted):
            return self._reshaped(call, x)
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
        if size.by_rows and start in (None, 0) and end in (None, 2**63 - 1) and step == 1:
            return array
        if size.by_rows:
            raise Unsupported("a slice of the batch")
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
        meta = call.results[0]
        assert meta is not None
        shape = extents(meta.shape)
        dim %= len(shape)
        if shape[dim].by_rows:
            raise Unsupported("batches that are joined")
        made = self.new_array(shape, C_TYPES[meta.dtype])
        start = 0
        for part in parts:
            value = self.value(part)
            size = value.shape[dim].n
            target = arrays.sliced(made, dim, start, size)
            loop, number = self._loop(target.shape, [value])
            operand = self._operand(loop, number, value, target.shape)
            loop.stores.append((operand.text, target, _aligned(target, target.shape)))
            made.storage.ready = max(made.storage.ready, number)
            made.storage.used.append(number)
            start += size
        return made

    def op_stack(self, call: Call, parts: Sequence[Any], dim: int = 0) -> Value:
        meta = call.results[0]
        assert meta is not None
        shape = extents(meta.shape)
        made = self.new_array(shape, C_TYPES[meta.dtype])
        for i, part in enumerate(parts):
            value = self.value(part)
            target = arrays.without(arrays.sliced(made, dim % len(shape), i, 1), dim % len(shape))
            loop, number = self._loop(target.shape, [value])
            operand = self._operand(loop, number, value, target.shape)
            loop.stores.append((operand.text, target, _aligned(target, target.shape)))
            made.storage.ready = max(made.storage.ready, number)
            made.storage.used.append(number)
        return made

    def op_slice_backward(
        self, call: Call, g: Any, shape: Any, dim: int, start: int, end: int, step: int
    ) -> Value:
        return self._placed(call, g, dim, start, step)

    def op_select_backward(self, call: Call, g: Any, shape: Any, dim: int, i: int) -> Value:
        return self._placed(call, g, dim, i, 1)

    def _placed(self, call: Call, g: Any, dim: int, start: int, step: int) -> Value:
        """Zeros, with `g` in a part of a dimension."""
        meta, value = call.results[0], self.value(g)
        assert meta is not None
        shape = extents(meta.shape)
        dim %= len(shape)
        if shape[dim].by_rows:
            raise Unsupported("a slice of the batch")
        if start < 0:
            start += shape[dim].n
        made = self.new_array(shape, C_TYPES[meta.dtype])
        size = value.shape[dim].n if len(value.shape) == len(shape) else 1
        part = arrays.sliced(made, dim, start, size, step)
        given: Value = value
        if len(value.shape) < len(shape):
            part = arrays.without(part, dim)
        for target, source in ((made, Constant(_number(0.0), shape)), (part, given)):
            loop, number = self._loop(target.shape, [source], own=True)
            operand = self._operand(loop, number, source, target.shape)
            loop.stores.append((operand.text, target, _aligned(target, target.shape)))
            made.storage.ready = number
            made.storage.used.append(number)
        return made

    def op_arange(self, call: Call, *args: Any, **kwargs: Any) -> Value:
        meta = call.results[0]
        assert meta is not None
        shape = extents(meta.shape)
        if is_by_rows(shape) or meta.dtype != torch.int64 or len(args) != 1 or kwargs.get("start"):
            raise Unsupported("an arange of this form")
        return self._positions(shape, 0)

    # -- reductions -------------------------------------------------------------------------

    def op_sum(self, call: Call, x: Any, dims: Any = (), keepdim: bool = False, **_: Any) -> Value:
        meta = call.results[0]
        assert meta is not None
        value, shape = self.value(x), extents(meta.shape)
        dims = tuple(d % len(value.shape) for d in dims or range(len(value.shape)))
        if not any(value.shape[d].by_rows for d in dims):
            return self._reduced("sum", value, dims, shape, C_TYPES[meta.dtype])
        if meta.dtype != torch.float32:
            raise Unsupported("a sum over samples that is not float32")
        source = self.array(value)
        out = self._sum_array(call.variable, shape)
        kept = canonical(tuple(n for i, n in enumerate(source.shape) if i not in dims))
        target = Array(out.storage, kept, contiguous(kept))
        self.section.kernels.append(BatchSum(source, dims, target))
        self._uses(source.storage, len(self.section.kernels) - 1)
        return out

    def _sum_array(self, variable: str, shape: Shape) -> Array:
        size = size_of(shape).n
        if variable in self.grad_places and self.grad_places[variable][1] == size:
            start = self.grad_places[variable][0]
        else:
            start, self.n_sums = self.n_sums, self.n_sums + size
        self.summed[self.section.level].append((start, size))
        storage = self.storage("sums", "float", Extent(size), start)
        return Array(storage, shape, contiguous(shape))

    def _reduced(
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
        loop, number = self._loop(whole, [source], own=is_long)
        name = self._name()
        self._uses(array.storage, number)
        own = ctype if kind in ("argmax", "sum") else array.ctype
        loop.body.append(Reduce(name, kind, own, source, _aligned(source, whole), sizes, inner))
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
        meta, value = call.results[0], self.value(x)
        assert meta is not None
        dims = [d % len(value.shape) for d in dims or range(len(value.shape))]
        return self._reduced(kind, value, dims, extents(meta.shape), C_TYPES[meta.dtype])

    # -- indices ----------------------------------------------------------------------------

    def op_gather(self, call: Call, x: Any, dim: int, index: Any, **_: Any) -> Value:
        meta = call.results[0]
        assert meta is not None
        array, where, shape = self.array(self.value(x)), self.value(index), extents(meta.shape)
        dim %= len(shape)
        if array.shape[dim].by_rows:
            raise Unsupported("a gather over samples")
        loop, number = self._loop(shape, [array, where])
        chosen = self._operand(loop, number, where, shape)
        strides = tuple(ZERO if i == dim else s for i, s in enumerate(array.strides))
        source = array._replace(shape=shape, strides=strides)
        self._uses(array.storage, number)
        name = self._name()
        more = f"{chosen.text} * {array.strides[dim]}"
        loop.body.append(Load(name, source, _aligned(source, shape), more))
        return Local(Variable(name, array.ctype, self.section, number, canonical(shape)), shape)

    def op_scatter_add(self, call: Call, x: Any, dim: int, index: Any, source: Any) -> Value:
        """As a comparison of each position with the indices, which needs no order."""
        meta = call.results[0]
        assert meta is not None
        shape = extents(meta.shape)
        dim %= len(shape)
        base, where, added = self.value(x), self.value(index), self.value(source)
        n = where.shape[dim]
        if n.by_rows or n.n > MOST_SCATTERED or shape[dim].by_rows:
            raise Unsupported("a scatter of many values")
        rest = [i for i in range(len(shape)) if i != dim]
        if any(where.shape[i] != shape[i] for i in rest):
            raise Unsupported("a scatter into a part")
        indices, values = self.array(where), self.array(added)
        position = self._positions(shape, dim)
        picks = []
        for j in range(n.n):
            picks.append(tuple(arrays.sliced(array, dim, j, 1) for array in (indices, values)))
        operands = [base, position, *(part for pick in picks for part in pick)]
        loop, number = self._loop(shape, operands)
        text = self._operand(loop, number, base, shape).real
        own = self._operand(loop, number, position, shape).text
        for pick in picks:
            at, what = (self._operand(loop, number, part, shape) for part in pick)
            text += f" + ({at.text} == {own} ? {what.real} : 0.0f)"
        return Local(self._define(loop, "float", text, shape), shape)

    def _positions(self, shape: Shape, dim: int) -> Array:
        """The indices along a dimension, as an array."""
        storage = self.storage("tensor", "int64_t", shape[dim], -1)
        strides = tuple(ONE if i == dim else ZERO for i in range(len(shape)))
        return Array(storage, shape, strides)

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
        meta = call.results[0]
        assert meta is not None
        shape = extents(meta.shape)
        k, n = a.shape[-1], b.shape[-1]
        stack = shape[:-2]
        if n.by_rows or is_by_rows(stack) or {a.ctype, b.ctype} != {"float"}:
            raise Unsupported("a product of this form")
        packed, size, is_shared = self._packed(b, k)
        is_sum = k.by_rows
        if is_sum:
            out = self._sum_array(call.variable, shape)
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
        kernels.append(Matmul(a, packed, size, is_shared, out, row, k))
        number = len(kernels) - 1
        out.storage.ready = number
        for storage in (a.storage, packed, *([row.storage] if row else [])):
            self._uses(storage, number)
        if after is not None:
            value = self.value(after)
            loop, at = self._loop(shape, [out, value])
            text = " + ".join(self._operand(loop, at, v, shape).real for v in (out, value))
            return Local(self._define(loop, "float", text, shape), shape)
        return out

    def _packed(self, b: Array, k: Extent) -> tuple[Storage, int, bool]:
        """B as panels: once, or for each block of samples if it depends on them."""
        stack = b.shape[:-2]
        is_shared = all(stride == ZERO for stride in b.strides[:-2])
        source = b
        if is_shared:
            source = b._replace(shape=b.shape[-2:], strides=b.strides[-2:])
            stack = ()
        n = b.shape[-1].n
        size = k.times(Extent(-(-n // PANEL) * PANEL))
        is_rows = b.storage.place in ("scratch", "kept", "column", "row_out")
        home = self.section if is_rows else None
        key = (source.storage, source.shape, source.strides, source.offset, home)
        if key not in self.packed:
            if home is None:  # before the pass, where B is ready
                home = self.sections[2 * self._uniform_level(b.storage)]
            before, self.section = self.section, home
            whole = (*stack, size) if not size.by_rows else (size, *stack)
            target = self.storage("scratch" if is_rows else "uniform", "float", size_of(whole))
            home.kernels.append(Pack(source, target, size.n))
            target.ready = len(home.kernels) - 1
            self._uses(b.storage, target.ready)
            self.section = before
            self.packed[key] = (target, size.n)
        target, n_floats = self.packed[key]
        return target, n_floats, is_shared

    def _uniform_level(self, storage: Storage) -> int:
        if storage.place == "sums":
            return next(
                level + 1
                for level, ranges in enumerate(self.summed)
                if any(start == storage.index for start, _ in ranges)
            )
        return self.owner[storage].level if storage.place == "uniform" else 0


_RESHAPES = {"view.default", "_unsafe_view.default", "squeeze.dim", "unsqueeze.default"}
_VIEWS = _RESHAPES | {
    "t.default", "transpose.int", "permute.default", "expand.default", "slice.Tensor",
    "select.int", "unbind.int", "split.Tensor", "split_with_sizes.default", "alias.default",
    "lift_fresh.default", "squeeze.default", "squeeze.dims",
}  # fmt: skip


def _refs(call: Call) -> list[Ref]:
    return refs_in([call.args, call.kwargs])


def _aligned(array: Array, shape: Shape) -> Shape:
    """Strides of an array of this shape by dimension of the loop, which has none of size 1."""
    pairs = zip(array.strides, shape, strict=True)
    return tuple(stride for stride, size in pairs if size != ONE)


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
