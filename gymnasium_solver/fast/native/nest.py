"""The C loops of a kernel, and kernels as C functions of their arrays. Equal kernels are one
function, which keeps the time to compile short: the steps of a sequence differ in their arrays
only."""

import re
from collections.abc import Iterable, Sequence

from gymnasium_solver.fast.native.arrays import ONE, ZERO, Array, Extent, Shape, Storage
from gymnasium_solver.fast.native.kernels import Kernel, Load, Loop, Reduce, is_short
from gymnasium_solver.fast.native.memory import used_by

SHORT = 16  # an inner loop shorter than this is not worth a vector


class Nest:
    """The dimensions of a loop, joined where all arrays are contiguous, in the order of loops."""

    def __init__(self, loop: Loop):
        self.parts = [(i.array, i.strides) for i in loop.body if not isinstance(i, str)]
        self.parts += [(array, strides) for _, array, strides in loop.stores]
        groups: list[list[int]] = []  # dimensions joined, outermost first
        for d in range(len(loop.shape)):
            if groups and self._joins(loop, groups[-1][-1], d):
                groups[-1].append(d)
            else:
                groups.append([d])
        self.groups = groups
        self.sizes = []
        for group in groups:
            size = ONE
            for d in group:
                size = size.times(loop.shape[d])
            self.sizes.append(size)
        self.order = list(range(len(groups)))
        if self.order and not self._is_long(self.order[-1]):
            # Vectors along the samples instead of along a few elements.
            longest = next((d for d in self.order if self.sizes[d].by_rows), self.order[-1])
            self.order.remove(longest)
            self.order.append(longest)

    def _is_long(self, d: int) -> bool:
        return self.sizes[d].by_rows or self.sizes[d].n >= SHORT

    def _joins(self, loop: Loop, outer: int, inner: int) -> bool:
        size = loop.shape[inner]
        if loop.shape[outer].by_rows and size.by_rows:
            return False
        for _, strides in self.parts:
            if strides[inner].by_rows and size.by_rows:
                return False
            if strides[outer] != strides[inner].times(size):
                return False
        return True

    def is_hoisted(self, load: Load) -> bool:
        return not load.more and all(stride == ZERO for stride in load.strides)

    def index(self, strides: Shape) -> str:
        steps = [(f"i{g}", strides[group[-1]]) for g, group in enumerate(self.groups)]
        return joined(i if step == ONE else f"{i} * {step}" for i, step in steps if step != ZERO)

    def element(self, array: Array, strides: Shape, more: str = "") -> str:
        index = joined(part for part in (self.index(strides), more) if part not in ("", "0"))
        return f"({array.start})[{index}]" if array.offset else f"{array.start}[{index}]"

    def load(self, item: Load) -> str:
        ctype = item.array.ctype
        return f"const {ctype} {item.name} = {self.element(item.array, item.strides, item.more)};"


def reduction(item: Reduce, nest: Nest) -> list[str]:
    base, name, ctype = nest.index(item.strides), item.name, item.ctype
    start = f"({item.array.start})" if item.array.offset else item.array.start
    if is_short(item):
        parts = [
            f"{start}[{joined(p for p in (base, at) if p != '0')}]"
            for at in _offsets(item.sizes, item.inner)
        ]
        return _written_out(item.kind, name, ctype, parts)
    loops = [f"for (long j{d} = 0; j{d} < {size}; j{d}++)" for d, size in enumerate(item.sizes)]
    inner = joined(f"j{d} * {stride}" for d, stride in enumerate(item.inner))
    element = f"{start}[{joined(p for p in (base, inner) if p != '0')}]"
    nested = " ".join(loops[:-1])
    if item.kind == "sum":
        pragma = f"SUMS_SIMD({name})"
        return [f"{ctype} {name} = 0;", f"{nested} {pragma} {loops[-1]} {name} += {element};"]
    first = f"{start}[{base}]"
    if item.kind == "argmax":
        (size,) = item.sizes
        return [
            f"int64_t {name} = 0; {{ float best = {first};",
            f"for (long j0 = 1; j0 < {size}; j0++) {{ float x = {element};",
            f"if (x > best || (x != x && best == best)) {{ best = x; {name} = j0; }} }} }}",
        ]
    return [
        f"{ctype} {name} = {first};",
        f"{nested} {loops[-1]} {name} = f_{item.kind}({name}, {element});",
    ]


def _written_out(kind: str, name: str, ctype: str, parts: Sequence[str]) -> list[str]:
    if kind == "sum":
        return [f"const {ctype} {name} = {' + '.join(f'({ctype}){p}' for p in parts)};"]
    if kind == "argmax":
        lines = [f"int64_t {name} = 0; float {name}_best = {parts[0]};"]
        for i, part in enumerate(parts[1:], 1):
            lines.append(
                f"{{ const float x = {part}; const int more = x > {name}_best || "
                f"(x != x && {name}_best == {name}_best); {name} = more ? {i} : {name}; "
                f"{name}_best = more ? x : {name}_best; }}"
            )
        return lines
    text = parts[0]
    for part in parts[1:]:
        text = f"f_{kind}({text}, {part})"
    return [f"const {ctype} {name} = {text};"]


def _offsets(sizes: Shape, strides: Shape) -> list[str]:
    """Of all elements of some dimensions."""
    found: list[list[Extent]] = [[]]
    for size, stride in zip(sizes, strides, strict=True):
        steps = [stride.times(Extent(i)) for i in range(size.n)]
        found = [[*before, step] for before in found for step in steps]
    return [joined(str(e) for e in parts if e.n) for parts in found]


def joined(parts: Iterable[str]) -> str:
    return " + ".join(part for part in parts if part) or "0"


# An array, or a part of one at an offset, as nest.py writes it.
_PART = re.compile(r"\(((s\d+)(?: \+ (?:\d+|\(\d+ \* r\)|r))+)\)\[")


class Functions:
    def __init__(self) -> None:
        self._names: dict[str, str] = {}  # text of a kernel -> name of its function

    def texts(self) -> list[str]:
        return [text.replace("NAME", name, 1) for text, name in self._names.items()]

    def declarations(self) -> list[str]:
        return [text.partition(" {\n")[0] + ";" for text in self.texts()]

    def call(self, kernel: Kernel, body: str) -> str:
        """The call of the function that has this body."""
        # A part of an array has a pointer of its own: the compiler does not vectorise two reads of
        # one array, such as the mean and the deviation of each action, if it sees that they are.
        parts: dict[str, str] = {}

        def part(found: re.Match[str]) -> str:
            return parts.setdefault(found[1], f"{found[2]}o{len(parts)}") + "["

        body = _PART.sub(part, body)
        storages = {s.name: s for s in used_by(kernel)}
        order = list(dict.fromkeys(re.findall(r"\bs\d+(?:o\d+)?\b", body)))
        names = {name: f"p{i}" for i, name in enumerate(order)}
        locals_ = list(dict.fromkeys(re.findall(r"\ba\d+\b", body)))
        names |= {name: f"x{i}" for i, name in enumerate(locals_)}
        body = re.sub(r"\b[as]\d+(?:o\d+)?\b", lambda m: names[m[0]], body)
        kinds = [_pointer(storages[name.partition("o")[0]]) for name in order]
        places = "".join(f", {kind} *p{i}" for i, kind in enumerate(kinds))
        text = f"HIDDEN void NAME(const double N, long r, int first{places}) {{\n{body}\n}}"
        name = self._names.setdefault(text, f"kernel_{len(self._names)}")
        whole = {short: long for long, short in parts.items()}
        given = [whole.get(short, short) for short in order]
        return f"{name}({', '.join(['N', 'r', 'first', *given])});"


def _pointer(storage: Storage) -> str:
    is_input = storage.place in ("tensor", "number")
    return f"const {storage.ctype}" if is_input else storage.ctype
