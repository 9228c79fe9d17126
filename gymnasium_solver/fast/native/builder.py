"""Values of a tape, and the loops that compute them.

Consecutive elementwise operations of the same shape become one loop; a value gets memory only if
something outside its loop reads it.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from gymnasium_solver.fast.native import arrays
from gymnasium_solver.fast.native.arrays import (
    C_TYPES,
    ONE,
    Array,
    Extent,
    Place,
    Shape,
    Storage,
    canonical,
    contiguous,
    extents,
    size_of,
)
from gymnasium_solver.fast.native.kernels import (
    Constant,
    Load,
    Local,
    Loop,
    Section,
    Value,
    Variable,
    literal,
)
from gymnasium_solver.fast.native.pointwise import Operand
from gymnasium_solver.fast.native.schedule import schedule, split
from gymnasium_solver.fast.tape import Call, Meta, Ref, Size, Tape, Unsupported, refs_in


class Builder:
    """Values of the tape, and the loops that compute them."""

    def __init__(self, tape: Tape, inputs: Mapping[Ref, Meta], n_params: int):
        self.tape, self.metas = split(tape, dict(inputs))
        self.times, n_passes = schedule(self.tape, self.metas)
        self.sections = [Section(i // 2, bool(i % 2)) for i in range(2 * n_passes + 1)]
        self.values: dict[Ref, Value] = {}
        self.homes: dict[Ref, int] = {}  # pass in which a value by rows is computed
        self.storages: list[Storage] = []
        self.packed: dict[Any, tuple[Storage, Extent]] = {}
        self.places: dict[Storage, Array] = {}  # storages that are parts of another
        self.n_params = n_params
        self.grad_places = self._grad_places()
        self.n_sums = sum(math.prod(self.static(Ref(f"p{i}"))) for i in range(n_params))
        self.summed: list[list[tuple[int, int]]] = [[] for _ in range(n_passes)]
        self.count = 0
        self.section = self.sections[0]
        self.late = self._read_later()
        self.owner: dict[Storage, Section] = {}
        self.kept_variables: set[Variable] = set()

    # -- places -----------------------------------------------------------------------------

    def static(self, ref: Ref) -> tuple[int, ...]:
        shape = self.metas[ref].shape
        assert shape is not None
        return tuple(int(n) for n in shape)

    def _grad_places(self) -> dict[str, tuple[int, int]]:
        """Where the result of a call is the gradient of a parameter: (offset, size)."""
        places: dict[str, tuple[int, int]] = {}
        source = {c.variable: c for c in self.tape.calls}
        start, taken = 0, set()
        for i, grad in enumerate(self.tape.grads):
            size = math.prod(self.static(Ref(f"p{i}")))
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
            for ref in refs_in(call):
                if when.is_rows and home.get(ref.variable, when.level) < when.level:
                    later.add(ref.variable)
        for call in reversed(self.tape.calls):
            if call.variable in later and call.name in _VIEWS:
                later |= {ref.variable for ref in refs_in(call)}
        return later

    def name(self) -> str:
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
            return Constant(self.scalar(given), ())
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

    def scalar(self, value: Any) -> Operand:
        if isinstance(value, Size):
            return Operand(f"(float){value}", "float")
        if isinstance(value, bool | int | float):
            return literal(value)
        raise Unsupported(f"an argument of type {type(value).__name__}")

    def result(self, call: Call) -> tuple[Shape, str]:
        """The shape and the C type of what a call returns."""
        meta = call.results[0]
        assert meta is not None
        return extents(meta.shape), C_TYPES.get(meta.dtype, "")

    def array(self, value: Value) -> Array:
        """The value in memory."""
        if isinstance(value, Array):
            return value
        if isinstance(value, Constant):
            loop, _ = self.loop(value.shape, [])
            variable = self.define(loop, value.operand.ctype, value.operand.text, value.shape)
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

    def ready(self, value: Value) -> int:
        """The first kernel of the section that can read a value, and for a local variable the loop
        that computes it."""
        if isinstance(value, Local) and value.variable.section is self.section:
            return value.variable.number
        if isinstance(value, Array) and value.storage.place in ("scratch", "kept", "uniform"):
            return value.storage.ready + 1 if self._is_of_section(value.storage) else 0
        return 0

    def _is_of_section(self, storage: Storage) -> bool:
        return self.owner.get(storage) is self.section

    def loop(self, shape: Shape, operands: Sequence[Value], own: bool = False) -> tuple[Loop, int]:
        """A loop of this shape that can read the operands: an existing one, or a new one."""
        wanted = canonical(shape)
        kernels = self.section.kernels
        first = max((self.ready(value) for value in operands), default=0)
        for number in range(first, len(kernels)):
            kernel = kernels[number]
            if not isinstance(kernel, Loop) or not kernel.is_open or own:
                continue
            if kernel.shape == wanted and all(self.may_read(v, number) for v in operands):
                return kernel, number
        loop = Loop(wanted, is_open=not own)
        kernels.append(loop)
        return loop, len(kernels) - 1

    def may_read(self, value: Value, number: int) -> bool:
        """Whether loop `number` can read a value. A variable of the same loop must be read at the
        same place, which is the case for the same shape."""
        if not isinstance(value, Local) or value.variable.section is not self.section:
            return True
        variable = value.variable
        if variable.number != number:
            return variable.number < number
        return variable.shape == canonical(value.shape)

    def operand(self, loop: Loop, number: int, value: Value, shape: Shape) -> Operand:
        """A value as an operand of a loop whose full shape is `shape`."""
        if isinstance(value, Constant):
            return value.operand
        if isinstance(value, Local):
            variable = value.variable
            is_own = variable.section is self.section and variable.number == number
            if is_own and canonical(value.shape) == loop.shape:
                return Operand(variable.name, variable.ctype)
        array = arrays.expanded(self.array(value), shape)
        self.uses(array.storage, number)
        strides = aligned(array, shape)
        key = (array.storage, strides, array.offset)
        if key not in loop.loaded:
            name = self.name()
            loop.loaded[key] = name
            loop.body.append(Load(name, array, strides))
        return Operand(loop.loaded[key], array.ctype)

    def store(self, value: Value, target: Array, own: bool = False) -> tuple[Loop, int]:
        """Copy a value to an array, in a loop that may be its own."""
        loop, number = self.loop(target.shape, [value], own)
        operand = self.operand(loop, number, value, target.shape)
        loop.stores.append((operand.text, target, aligned(target, target.shape)))
        return loop, number

    def uses(self, storage: Storage, number: int) -> None:
        storage.used.append(number)

    def define(self, loop: Loop, ctype: str, text: str, shape: Shape) -> Variable:
        number = self.section.kernels.index(loop)
        variable = Variable(self.name(), ctype, self.section, number, canonical(shape))
        loop.body.append(f"const {ctype} {variable.name} = {text};")
        return variable

    def pointwise(self, call: Call, build: Any, args: Sequence[Any], kwargs: Any) -> Value:
        shape, ctype = self.result(call)
        if not ctype:
            raise Unsupported(f"{call.name} of this type")
        given = [None if a is None else self.value(a) for a in args]
        named = {key: self.value(a) for key, a in kwargs.items()}
        values = [v for v in (*given, *named.values()) if v is not None]
        # Views of values that are computed in a loop of the section are read from memory.
        loop, number = self.loop(shape, values)
        operands = [None if v is None else self.operand(loop, number, v, shape) for v in given]
        options = {key: self.operand(loop, number, v, shape) for key, v in named.items()}
        text = build(*operands, **options)
        return Local(self.define(loop, ctype, text, shape), shape)


_RESHAPES = {"view.default", "_unsafe_view.default", "squeeze.dim", "unsqueeze.default"}
_VIEWS = _RESHAPES | {
    "t.default", "transpose.int", "permute.default", "expand.default", "slice.Tensor",
    "select.int", "unbind.int", "split.Tensor", "split_with_sizes.default", "alias.default",
    "lift_fresh.default", "squeeze.default", "squeeze.dims",
}  # fmt: skip


def aligned(array: Array, shape: Shape) -> Shape:
    """Strides of an array of this shape by dimension of the loop, which has none of size 1."""
    pairs = zip(array.strides, shape, strict=True)
    return tuple(stride for stride, size in pairs if size != ONE)
