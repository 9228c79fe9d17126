"""Composite operations of a tape as simpler ones, and when each of them runs.

A pass runs the operations on samples block by block. A sum over samples is complete after the pass,
so an operation that reads it belongs to a later pass. Operations on values that do not depend on
the sample run once, before the pass.

Operations on samples run in the last pass possible: what is computed early would have to be kept
for all samples.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import torch

from gymnasium_solver.fast.native.arrays import extents, is_by_rows
from gymnasium_solver.fast.tape import (
    Call,
    Meta,
    Ref,
    Rows,
    Size,
    Tape,
    Unsupported,
    map_refs,
    needed,
    refs_in,
)

Shape = tuple[int, ...]


class _Splitter:
    def __init__(self, metas: dict[Ref, Meta]):
        self.metas = metas
        self.calls: list[Call] = []
        self.alias: dict[Ref, Ref] = {}

    def named(self, ref: Ref) -> Ref:
        """The value that has replaced another."""
        return self.alias.get(ref, ref)

    def shape(self, ref: Ref) -> Shape:
        shape = self.metas[ref].shape
        if shape is None:
            raise Unsupported("a shape that depends on the batch size in an unknown way")
        return shape

    def add(self, name: str, *args: Any, shape: Shape, **kwargs: Any) -> Ref:
        """Append an operation with a float32 result."""
        ref = Ref(f"x{len(self.calls)}")
        meta = Meta(shape, torch.float32)
        self.metas[ref] = meta
        self.calls.append(Call(name, list(args), kwargs, ref.variable, (meta,)))
        return ref

    def reduced(self, name: str, x: Ref, dims: Sequence[int], keepdim: bool = True) -> Ref:
        shape = list(self.shape(x))
        dims = [d % len(shape) for d in dims] or list(range(len(shape)))
        if keepdim:
            kept = tuple(1 if i in dims else n for i, n in enumerate(shape))
        else:
            kept = tuple(n for i, n in enumerate(shape) if i not in dims)
        return self.add(name, x, dims, keepdim, shape=kept)

    def mean(self, x: Ref, dims: Sequence[int], keepdim: bool) -> Ref:
        shape = self.shape(x)
        dims = [d % len(shape) for d in dims] or list(range(len(shape)))
        count, rows = 1, 0
        for d in dims:
            count, rows = count * int(shape[d]), rows + isinstance(shape[d], Rows)
        if rows > 1:
            raise Unsupported("a mean over two batch dimensions")
        total = self.reduced("sum.dim_IntList", x, dims, keepdim)
        scale: Any = Size(f"(1.0 / ({count}.0 * N))") if rows else 1.0 / count
        return self.add("mul.Scalar", total, scale, shape=self.shape(total))

    def pointwise(self, name: str, *args: Any) -> Ref:
        shapes = [self.shape(a) for a in args if isinstance(a, Ref)]
        return self.add(name, *args, shape=broadcast(shapes))


def broadcast(shapes: Sequence[Shape]) -> Shape:
    width = max(len(s) for s in shapes)
    padded = [(1,) * (width - len(s)) + s for s in shapes]
    return tuple(
        next((n for n in sizes if isinstance(n, Rows) or n != 1), 1)
        for sizes in zip(*padded, strict=True)
    )


def _mean(s: _Splitter, x: Ref, dims: Any = None, keepdim: bool = False) -> list[Ref]:
    return [s.mean(x, dims or (), keepdim)]


def _log_softmax(s: _Splitter, x: Ref, dim: int, half: bool) -> list[Ref]:
    shifted = s.pointwise("sub.Tensor", x, s.reduced("amax.default", x, [dim]))
    total = s.reduced("sum.dim_IntList", s.pointwise("exp.default", shifted), [dim])
    return [s.pointwise("sub.Tensor", shifted, s.pointwise("log.default", total))]


def _log_softmax_backward(s: _Splitter, g: Ref, y: Ref, dim: int, dtype: Any) -> list[Ref]:
    total = s.reduced("sum.dim_IntList", g, [dim])
    share = s.pointwise("mul.Tensor", s.pointwise("exp.default", y), total)
    return [s.pointwise("sub.Tensor", g, share)]


def _softmax(s: _Splitter, x: Ref, dim: int, half: bool) -> list[Ref]:
    shifted = s.pointwise("sub.Tensor", x, s.reduced("amax.default", x, [dim]))
    e = s.pointwise("exp.default", shifted)
    return [s.pointwise("div.Tensor", e, s.reduced("sum.dim_IntList", e, [dim]))]


def _softmax_backward(s: _Splitter, g: Ref, y: Ref, dim: int, dtype: Any) -> list[Ref]:
    gy = s.pointwise("mul.Tensor", g, y)
    share = s.pointwise("mul.Tensor", y, s.reduced("sum.dim_IntList", gy, [dim]))
    return [s.pointwise("sub.Tensor", gy, share)]


def _layer_norm(
    s: _Splitter, x: Ref, over: Sequence[int], weight: Ref | None, bias: Ref | None, eps: float
) -> list[Ref]:
    dims = list(range(-len(over), 0))
    mean = s.mean(x, dims, True)
    centred = s.pointwise("sub.Tensor", x, mean)
    square = s.pointwise("mul.Tensor", centred, centred)
    variance = s.pointwise("add.Scalar", s.mean(square, dims, True), eps)
    scale = s.pointwise("rsqrt.default", variance)
    y = s.pointwise("mul.Tensor", centred, scale)
    if weight is not None:
        y = s.pointwise("mul.Tensor", y, weight)
    if bias is not None:
        y = s.pointwise("add.Tensor", y, bias)
    return [y, mean, scale]


def _layer_norm_backward(
    s: _Splitter,
    g: Ref,
    x: Ref,
    over: Sequence[int],
    mean: Ref,
    scale: Ref,
    weight: Ref | None,
    bias: Ref | None,
    wanted: Sequence[bool],
) -> list[Ref]:
    n, dims = len(s.shape(x)), list(range(-len(over), 0))
    y = s.pointwise("mul.Tensor", s.pointwise("sub.Tensor", x, mean), scale)
    slope = g if weight is None else s.pointwise("mul.Tensor", g, weight)
    along = s.mean(s.pointwise("mul.Tensor", slope, y), dims, True)
    rest = s.pointwise("sub.Tensor", slope, s.mean(slope, dims, True))
    rest = s.pointwise("sub.Tensor", rest, s.pointwise("mul.Tensor", y, along))
    samples = list(range(n - len(over)))
    d_weight = s.pointwise("mul.Tensor", g, y)
    return [
        s.pointwise("mul.Tensor", rest, scale),
        s.reduced("sum.dim_IntList", d_weight, samples, False),
        s.reduced("sum.dim_IntList", g, samples, False),
    ]


_SPLIT: dict[str, Callable[..., list[Ref]]] = {
    "mean.default": _mean,
    "mean.dim": _mean,
    "_log_softmax.default": _log_softmax,
    "_log_softmax_backward_data.default": _log_softmax_backward,
    "_softmax.default": _softmax,
    "_softmax_backward_data.default": _softmax_backward,
    "native_layer_norm.default": _layer_norm,
    "native_layer_norm_backward.default": _layer_norm_backward,
}


def split(tape: Tape, inputs: dict[Ref, Meta]) -> tuple[Tape, dict[Ref, Meta]]:
    """The tape with composite operations replaced, and the shapes of all its values."""
    s = _Splitter(dict(inputs))
    for call in tape.calls:
        args, kwargs = map_refs(call.args, s.named), map_refs(call.kwargs, s.named)
        results = list(_refs(call))
        if call.name not in _SPLIT:
            s.calls.append(call._replace(args=args, kwargs=kwargs))
            s.metas |= {ref: meta for ref, meta in results if meta is not None}
            continue
        parts = _SPLIT[call.name](s, *args, **kwargs)
        for (ref, meta), part in zip(results, parts, strict=True):
            s.alias[ref] = part
            if meta is not None and meta.dtype != torch.float32:
                raise Unsupported(f"{call.name} of {meta.dtype}")
    grads, outputs = (map_refs(refs, s.named) for refs in (tape.grads, tape.outputs))
    return needed(tape._replace(calls=s.calls, grads=grads, outputs=outputs)), s.metas


def _refs(call: Call) -> Iterator[tuple[Ref, Meta | None]]:
    """The results of a call. Of a call with one result, `Ref(variable)`."""
    if len(call.results) == 1 and not call.name.startswith(("split", "unbind", "chunk")):
        yield Ref(call.variable), call.results[0]
        return
    for i, meta in enumerate(call.results):
        yield Ref(call.variable, i), meta


SUMS = {"sum.dim_IntList", "sum.default", "mm.default", "bmm.default"}


class When(NamedTuple):
    level: int
    is_rows: bool  # runs on samples; a sum over samples too
    is_sum: bool = False


def schedule(tape: Tape, metas: Mapping[Ref, Meta]) -> tuple[list[When], int]:
    """When each call runs, and the number of passes."""
    by_rows = {ref.variable: _is_rows(meta) for ref, meta in metas.items()}
    available: dict[str, int] = {}  # by variable: the first pass that can read it
    found: list[When] = []
    for call in tape.calls:
        inputs = {ref.variable for ref in refs_in(call)}
        level = max((available.get(v, 0) for v in inputs), default=0)
        reads_rows = any(by_rows[v] for v in inputs)
        is_rows = reads_rows or by_rows[call.variable]
        is_sum = reads_rows and not by_rows[call.variable]
        if is_sum and call.name not in SUMS:
            raise Unsupported(f"{call.name} over samples")
        available[call.variable] = level + is_sum
        found.append(When(level, is_rows, is_sum))
    n_passes = 1 + max((w.level for w in found if w.is_rows), default=0)
    return _as_late_as_possible(tape.calls, found, n_passes), n_passes


def _as_late_as_possible(calls: Sequence[Call], found: list[When], n_passes: int) -> list[When]:
    needed: dict[str, int] = {}  # by variable: the first pass that reads it
    late = list(found)
    for i in range(len(calls) - 1, -1, -1):
        when, first = found[i], needed.get(calls[i].variable, n_passes)
        if when.is_sum:
            late[i] = when._replace(level=min(first, n_passes) - 1)
        elif when.is_rows:
            late[i] = when._replace(level=min(first, n_passes - 1))
        for ref in refs_in(calls[i]):
            level = late[i].level
            needed[ref.variable] = min(needed.get(ref.variable, n_passes), level)
    return late


def _is_rows(meta: Meta) -> bool:
    return is_by_rows(extents(meta.shape))
