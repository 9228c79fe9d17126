"""What a program is made of: loops over elements, packed matrices, products, sums over samples."""

import math
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from gymnasium_solver.fast.native.arrays import Array, Extent, Shape, Storage, size_of
from gymnasium_solver.fast.native.pointwise import Operand

UNROLLED = 8  # longest reduction over a dimension that is written out


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
    size: Extent  # floats of each matrix, at most


class Panels(NamedTuple):
    """The second factor of a product: packed, or as it is."""

    storage: Storage
    size: Extent  # floats of each packed matrix
    is_shared: bool  # one matrix for the whole stack
    rows: Array | None = None  # [stack..., k, n] with contiguous rows: not packed
    source: Array | None = None  # what is packed


class Matmul(NamedTuple):
    a: Array
    b: Panels
    out: Array
    bias: Array | None
    k: Extent
    gate: Array | None = None  # where it is not positive, the result is 0; a ReLU if it is `out`


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
    n_params: int


def literal(value: float | bool) -> Operand:
    if isinstance(value, bool):
        return Operand(str(int(value)), "uint8_t", float(value))
    if isinstance(value, int):
        return Operand(str(value), "int64_t", float(value))
    if math.isnan(value):
        return Operand("NAN", "float", value)
    if math.isinf(value):
        return Operand("INFINITY" if value > 0 else "-INFINITY", "float", value)
    return Operand(f"{value!r}f" if value >= 0 else f"({value!r}f)", "float", value)
