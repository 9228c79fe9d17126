"""Arrays of a compiled program: where they are, and shapes and strides that may depend on the
number of samples in a block."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

import torch

from gymnasium_solver.fast.tape import Rows, Unsupported

C_TYPES = {
    torch.float32: "float",
    torch.int64: "int64_t",
    torch.int32: "int32_t",
    torch.bool: "uint8_t",
    torch.uint8: "uint8_t",
}
C_BYTES = {"float": 4, "int64_t": 8, "int32_t": 4, "uint8_t": 1}


class Extent(NamedTuple):
    """A size or a stride: `n`, or `n` times the samples of a block."""

    n: int
    by_rows: bool = False

    def __str__(self) -> str:
        if not self.by_rows:
            return str(self.n)
        return "r" if self.n == 1 else f"({self.n} * r)"

    def times(self, other: "Extent") -> "Extent":
        if self.by_rows and other.by_rows:
            if 0 in (self.n, other.n):
                return ZERO
            raise Unsupported("two batch dimensions")
        return Extent(self.n * other.n, self.by_rows or other.by_rows)


ZERO, ONE = Extent(0), Extent(1)
Shape = tuple[Extent, ...]
Place = Literal[
    "scratch", "kept", "uniform", "sums", "column", "tensor", "number", "out", "row_out"
]


def extents(shape: Iterable[int] | None) -> Shape:
    if shape is None:
        raise Unsupported("a shape that depends on the batch size in an unknown way")
    return tuple(Extent(int(n), isinstance(n, Rows)) for n in shape)


def is_by_rows(shape: Shape) -> bool:
    return any(size.by_rows for size in shape)


def size_of(shape: Iterable[Extent]) -> Extent:
    size = ONE
    for extent in shape:
        size = size.times(extent)
    return size


def contiguous(shape: Shape) -> Shape:
    """Strides of a contiguous array."""
    strides, size = [], ONE
    for extent in reversed(shape):
        strides.append(size)
        size = size.times(extent)
    return tuple(reversed(strides))


def canonical(shape: Shape) -> Shape:
    """Without dimensions of size 1."""
    return tuple(size for size in shape if size != ONE)


@dataclass(eq=False)
class Storage:
    """A piece of memory. `size` is in elements, of a block if it depends on rows."""

    name: str
    place: Place
    ctype: str
    size: Extent
    index: int = 0  # of a column, tensor or output; or the offset in its place
    offset: int = 0  # of a gathered column in the scratch memory
    ready: int = -1  # number of the kernel of its section that writes it
    used: list[int] = field(default_factory=list)  # numbers of kernels, over the whole section


class Array(NamedTuple):
    storage: Storage
    shape: Shape
    strides: Shape
    offset: tuple[Extent, ...] = ()  # a sum

    @property
    def ctype(self) -> str:
        return self.storage.ctype

    @property
    def is_contiguous(self) -> bool:
        pairs = zip(self.shape, self.strides, contiguous(self.shape), strict=True)
        return all(size == ONE or own == wanted for size, own, wanted in pairs)

    def moved(self, by: Extent) -> tuple[Extent, ...]:
        return (*self.offset, by) if by.n else self.offset

    @property
    def start(self) -> str:
        """C text of the address of the first element."""
        return " + ".join([self.storage.name, *(str(part) for part in self.offset)])


def permuted(array: Array, order: Sequence[int]) -> Array:
    return array._replace(
        shape=tuple(array.shape[i] for i in order), strides=tuple(array.strides[i] for i in order)
    )


def expanded(array: Array, shape: Shape) -> Array:
    missing = len(shape) - len(array.shape)
    own = (ONE,) * missing + array.shape
    strides = (ZERO,) * missing + array.strides
    return array._replace(
        shape=shape,
        strides=tuple(
            ZERO if size != wanted else stride
            for size, wanted, stride in zip(own, shape, strides, strict=True)
        ),
    )


def sliced(array: Array, dim: int, start: int | Extent, size: int | Extent, step: int = 1) -> Array:
    """A part of a dimension; of one that depends on the samples, parts that do too: each block of
    samples holds the same share of every batch that was joined."""
    first, n = (part if isinstance(part, Extent) else Extent(part) for part in (start, size))
    if array.shape[dim].by_rows != n.by_rows:
        raise Unsupported("a slice of the batch")
    shape, strides = list(array.shape), list(array.strides)
    offset = array.moved(strides[dim].times(first))
    shape[dim], strides[dim] = n, strides[dim].times(Extent(step))
    return array._replace(shape=tuple(shape), strides=tuple(strides), offset=offset)


def rows_slice(size: Extent, start: Any, end: Any) -> tuple[Extent, Extent]:
    """Start and size of a slice of a dimension that depends on the samples, of whole batches."""
    first = 0 if start is None else _batches(start)
    last = size.n if end in (None, 2**63 - 1) else _batches(end)
    return Extent(first, first > 0), Extent(last - first, True)


def _batches(place: Any) -> int:
    """How many times the batch a place in a batch is (tape.Size)."""
    found = re.fullmatch(r"\((\d+) \* N \+ 0\)", str(place))
    if found is None and place != 0:
        raise Unsupported("a slice of the batch")
    return int(found[1]) if found else 0


def without(array: Array, dim: int) -> Array:
    return array._replace(
        shape=array.shape[:dim] + array.shape[dim + 1 :],
        strides=array.strides[:dim] + array.strides[dim + 1 :],
    )


def viewed(array: Array, shape: Shape) -> Array | None:
    """As another shape on the same memory; None if that needs a copy."""
    if array.is_contiguous:
        return array._replace(shape=shape, strides=contiguous(shape))
    if canonical(array.shape) != canonical(shape):
        return None
    own = [t for n, t in zip(array.shape, array.strides, strict=True) if n != ONE]
    left = iter(own)
    strides = tuple(ZERO if n == ONE else next(left) for n in shape)
    return array._replace(shape=shape, strides=strides)
