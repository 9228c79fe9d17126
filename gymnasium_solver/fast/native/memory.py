"""What is done to kernels once all of them are known, and where values are in memory: ReLU and its
derivative inside the matrix product before them, values computed in their place in a stack, and
offsets of all storages."""

import re
from collections.abc import Iterable, Iterator, Mapping

from gymnasium_solver.fast.native.arrays import C_BYTES, Array, Storage, contiguous
from gymnasium_solver.fast.native.kernels import (
    BatchSum,
    Kernel,
    Load,
    Loop,
    Lowered,
    Matmul,
    Pack,
    Panels,
    Reduce,
    Section,
)

LINE = 64  # bytes of a cache line


def rounded(size: int, to: int) -> int:
    return -(-size // to) * to


def _bytes(storage: Storage, rows: int) -> int:
    n = storage.size.n * (rows if storage.size.by_rows else 1)
    return rounded(max(1, n) * C_BYTES[storage.ctype], LINE)


def place_scratch(program: Lowered, block: int) -> int:
    """Give the values of a block their places; those that are not needed any more are reused."""
    base = 0
    for storage in program.storages:
        if storage.place == "column":
            storage.offset = base
            base += _bytes(storage, block)
    most = base
    for section in program.sections:
        if not section.by_rows:
            continue
        own = [s for s in storages_of(section) if s.place == "scratch"]
        spans = {s: _span(s) for s in own}
        placed: list[tuple[int, int, tuple[int, int]]] = []  # start, stop, span
        for storage in sorted(own, key=lambda s: spans[s]):
            size, span, start = _bytes(storage, block), spans[storage], base
            for low, high, other in sorted(placed):
                if other[0] <= span[1] and span[0] <= other[1] and start + size > low:
                    start = max(start, high)
            storage.index = start
            placed.append((start, start + size, span))
            most = max(most, start + size)
    return most


def _span(storage: Storage) -> tuple[int, int]:
    """The first and the last kernel that uses it."""
    numbers = [*storage.used, *([storage.ready] if storage.ready >= 0 else [])]
    return min(numbers), max(numbers)


def place_uniform(storages: Iterable[Storage]) -> int:
    start = 0
    for storage in storages:
        if storage.place == "uniform":
            storage.index = start
            start += _bytes(storage, 1)
    return start


def place_kept(storages: Iterable[Storage]) -> int:
    """Offsets are a sample's; they are multiplied by the samples, rounded up to a cache line."""
    start = 0
    for storage in storages:
        if storage.place == "kept":
            storage.index = start
            start += storage.size.n * C_BYTES[storage.ctype]
    return start


def storages_of(section: Section) -> list[Storage]:
    found: dict[Storage, None] = {}
    for kernel in section.kernels:
        for storage in used_by(kernel):
            found[storage] = None
    return list(found)


def used_by(kernel: Kernel) -> Iterator[Storage]:
    if isinstance(kernel, Loop):
        for item in kernel.body:
            if not isinstance(item, str):
                yield item.array.storage
        for _, array, _ in kernel.stores:
            yield array.storage
    elif isinstance(kernel, Pack):
        yield kernel.source.storage
        yield kernel.target
    elif isinstance(kernel, Matmul):
        yield kernel.a.storage
        yield kernel.b.storage
        if kernel.b.source is not None:
            yield kernel.b.source.storage
        yield kernel.out.storage
        for beside in (kernel.bias, kernel.gate):
            if beside is not None:
                yield beside.storage
    else:
        yield kernel.source.storage
        yield kernel.out.storage


# As pointwise.py writes them.
_RELU = re.compile(r"const float (\w+) = \((\w+) < 0\.0f \? 0\.0f : \2\);")
_DERIVATIVE = re.compile(r"const float (\w+) = (\w+) <= (?:\(float\))?0(?:\.0f)? \? 0\.0f : (\w+);")


def join_gates(sections: list[Section]) -> None:
    """Where a loop does nothing but gate the result of a product, the product does it."""
    for section in sections:
        for number, kernel in enumerate(section.kernels):
            if isinstance(kernel, Matmul) and section.by_rows and not kernel.k.by_rows:
                _join(section, number, kernel)


def _join(section: Section, number: int, product: Matmul) -> None:
    own = product.out.storage
    if own.place != "scratch" or len(set(own.used)) != 1:
        return
    at = own.used[0]
    loop = section.kernels[at]
    if not isinstance(loop, Loop) or len(loop.stores) != 1 or not isinstance(loop.body[-1], str):
        return
    name, to, strides = loop.stores[0]
    loads = {item.name: item for item in loop.body[:-1] if isinstance(item, Load)}
    whole = contiguous(loop.shape)
    is_plain = all(load.strides == whole and not load.more for load in loads.values())
    if len(loads) != len(loop.body) - 1 or not is_plain or strides != whole or to.offset:
        return
    out = product.out._replace(storage=to.storage)
    gate = _gate(loop.body[-1], name, loads, own, out)
    if gate is None or not _is_ready(gate.storage, to.storage, number, section):
        return
    section.kernels[number] = product._replace(out=out, gate=gate)
    section.kernels[at] = Loop(loop.shape, is_open=False)  # numbers of kernels stay
    to.storage.ready = number
    if gate.storage is not to.storage:
        gate.storage.used.append(number)


def _gate(text: str, name: str, loads: dict[str, Load], own: Storage, out: Array) -> Array | None:
    """What gates the result: the result itself, or the array of the other load."""
    if (found := _RELU.fullmatch(text)) and found[1] == name and len(loads) == 1:
        return out if _reads(loads, found[2], own) else None
    found = _DERIVATIVE.fullmatch(text)
    if not found or found[1] != name or len(loads) != 2 or not _reads(loads, found[3], own):
        return None
    if found[2] == found[3] or found[2] not in loads or loads[found[2]].array.offset:
        return None
    return out._replace(storage=loads[found[2]].array.storage)


def _reads(loads: dict[str, Load], name: str, storage: Storage) -> bool:
    return name in loads and loads[name].array.storage is storage and not loads[name].array.offset


def _is_ready(gate: Storage, to: Storage, number: int, section: Section) -> bool:
    """Whether the gate is there when the product runs."""
    if gate is to:
        return True
    written = any(gate is storage for k in section.kernels for storage in _results(k))
    return gate.place in ("scratch", "kept") and (not written or gate.ready < number)


def _results(kernel: Kernel) -> list[Storage]:
    if isinstance(kernel, Loop):
        return [array.storage for _, array, _ in kernel.stores]
    return [kernel.target if isinstance(kernel, Pack) else kernel.out.storage]


def move(sections: list[Section], places: Mapping[Storage, Array]) -> None:
    """Replace each storage by its place in another one."""
    for storage, place in places.items():
        while place.storage in places:  # a stack in a stack
            outer = places[place.storage]
            place = place._replace(storage=outer.storage, offset=(*outer.offset, *place.offset))
        place.storage.used += [*storage.used, storage.ready]
    for section in sections:
        section.kernels[:] = [_moved(kernel, places) for kernel in section.kernels]


def _array(array: Array, places: Mapping[Storage, Array]) -> Array:
    while array.storage in places:
        place = places[array.storage]
        array = array._replace(storage=place.storage, offset=(*place.offset, *array.offset))
    return array


def _optional(array: Array | None, places: Mapping[Storage, Array]) -> Array | None:
    return None if array is None else _array(array, places)


def _moved(kernel: Kernel, places: Mapping[Storage, Array]) -> Kernel:
    if isinstance(kernel, Loop):
        kernel.body = [
            item._replace(array=_array(item.array, places))
            if isinstance(item, Load | Reduce)
            else item
            for item in kernel.body
        ]
        kernel.stores = [(name, _array(to, places), by) for name, to, by in kernel.stores]
        return kernel
    if isinstance(kernel, Pack):
        return kernel._replace(source=_array(kernel.source, places))
    if isinstance(kernel, BatchSum):
        return kernel._replace(source=_array(kernel.source, places))
    return kernel._replace(
        a=_array(kernel.a, places),
        b=_panels(kernel.b, places),
        out=_array(kernel.out, places),
        bias=_optional(kernel.bias, places),
        gate=_optional(kernel.gate, places),
    )


def _panels(b: Panels, places: Mapping[Storage, Array]) -> Panels:
    """What is packed has a storage of its own; what is read in place does not."""
    rows = _optional(b.rows, places)
    storage = b.storage if rows is None else rows.storage
    return b._replace(storage=storage, rows=rows, source=_optional(b.source, places))
