"""The nest of C loops of a kernel: joined dimensions, their order, and reductions inside."""

from collections.abc import Iterable, Sequence

from gymnasium_solver.fast.native.arrays import ONE, ZERO, Array, Extent, Shape
from gymnasium_solver.fast.native.kernels import Load, Loop, Reduce, is_short

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
        pragma = f'_Pragma("omp simd reduction(+ : {name})")'
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
