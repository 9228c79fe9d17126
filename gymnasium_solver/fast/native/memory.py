"""Where the values of a program are in memory."""

from collections.abc import Iterable, Iterator

from gymnasium_solver.fast.native.arrays import C_BYTES, Storage
from gymnasium_solver.fast.native.kernels import Kernel, Loop, Lowered, Matmul, Pack, Section

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
