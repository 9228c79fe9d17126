"""ATen operations in NumPy: what a recorded gradient (nets/recorded.py) is replayed with.

The table holds what the losses of small MLP policies are made of, in float32 on the CPU. What is
not in it is not replayed but left to torch. An entry takes the arguments of the ATen overload.
"""

from collections.abc import Callable
from typing import Any

import numpy as np


def _rows(index: np.ndarray) -> np.ndarray:
    return np.arange(len(index))


def _gather(x: np.ndarray, dim: int, index: np.ndarray) -> np.ndarray:
    if dim != 1 or index.shape[1] != 1:
        return np.take_along_axis(x, index, dim)
    return x[_rows(index), index[:, 0]][:, None]


def _scatter_add(x: np.ndarray, dim: int, index: np.ndarray, src: np.ndarray) -> np.ndarray:
    x = x.copy()
    if dim == 1 and index.shape[1] == 1:
        x[_rows(index), index[:, 0]] += src[:, 0]
    else:
        rows = np.broadcast_to(_rows(index)[:, None], index.shape)
        np.add.at(x, (rows, index), src)
    return x


def _log_softmax(x: np.ndarray, dim: int, half: bool) -> np.ndarray:
    # Transposed, as are all sums over a short last axis here: NumPy then adds whole rows, which is
    # several times faster than a loop of two or six elements for each sample.
    y = np.ascontiguousarray(np.moveaxis(x, dim, 0))
    y -= np.maximum.reduce(y)
    y -= np.log(np.add.reduce(np.exp(y)))
    return np.moveaxis(y, 0, dim)


def _log_softmax_backward(g: np.ndarray, y: np.ndarray, dim: int) -> np.ndarray:
    total = np.add.reduce(np.ascontiguousarray(np.moveaxis(g, dim, 0)))
    return g - np.exp(y) * np.expand_dims(total, dim)


def _tanh_backward(g: np.ndarray, y: np.ndarray) -> np.ndarray:
    slope = y * y
    np.subtract(np.float32(1.0), slope, out=slope)
    slope *= g
    return slope


def _addmm(bias: np.ndarray, x: np.ndarray, weight: np.ndarray) -> np.ndarray:
    y = x @ weight
    y += bias
    return y


def _sum(x: np.ndarray, dims: Any, keepdim: bool = False) -> np.ndarray:
    if x.ndim == 2 and list(dims) == [0]:
        total = np.ones(len(x), np.float32) @ x  # BLAS sums columns faster than a reduction does
        return total[None] if keepdim else total
    if x.ndim == 2 and list(dims) in ([1], [-1]):
        total = np.add.reduce(np.ascontiguousarray(x.T))
        return total[:, None] if keepdim else total
    return x.sum(tuple(dims), keepdims=keepdim)


def _masked_fill(x: np.ndarray, mask: np.ndarray, value: float) -> np.ndarray:
    return np.where(mask, np.float32(value), x)


def _expand(x: np.ndarray, shape: Any) -> np.ndarray:
    # np.full is several times faster than broadcast_to, which runs in Python.
    return np.full(shape, x, np.float32) if np.ndim(x) == 0 else np.broadcast_to(x, shape)


def _add(x: Any, y: Any) -> Any:
    return x + y


def _mul(x: Any, y: Any) -> Any:
    return x * y


def _sub(x: Any, y: Any) -> Any:
    return x - y


def _div(x: Any, y: Any) -> Any:
    return x * np.float32(1.0 / y) if isinstance(y, int | float) else x / y


OPERATIONS: dict[str, Callable[..., Any]] = {
    "t.default": lambda x: x.T,
    "detach.default": lambda x: x,
    "view.default": np.reshape,
    "_unsafe_view.default": np.reshape,
    "expand.default": _expand,
    "squeeze.dim": lambda x, d: x.squeeze(d) if x.shape[d] == 1 else x,
    "unsqueeze.default": lambda x, d: np.expand_dims(x, d),
    "addmm.default": _addmm,
    "mm.default": lambda x, y: x @ y,
    "tanh.default": np.tanh,
    "tanh_backward.default": _tanh_backward,
    "relu.default": lambda x: np.maximum(x, np.float32(0)),
    "threshold_backward.default": lambda g, x, t: g * (x > t),
    "exp.default": np.exp,
    "neg.default": np.negative,
    "add.Tensor": _add,
    "add.Scalar": _add,
    "mul.Tensor": _mul,
    "mul.Scalar": _mul,
    "sub.Tensor": _sub,
    "sub.Scalar": _sub,
    "rsub.Scalar": lambda x, y: y - x,
    "div.Tensor": _div,
    "div.Scalar": _div,
    "pow.Tensor_Scalar": lambda x, n: x if n == 1 else x * x if n == 2 else x**n,
    "minimum.default": np.minimum,
    "maximum.default": np.maximum,
    "clamp.Tensor": lambda x, low, high: np.minimum(np.maximum(x, low), high),
    "mean.default": lambda x: x.mean(),
    "sum.default": lambda x: x.sum(),
    "sum.dim_IntList": _sum,
    "gather.default": _gather,
    "scatter_add.default": _scatter_add,
    "_log_softmax.default": _log_softmax,
    "_log_softmax_backward_data.default": _log_softmax_backward,
    "eq.Tensor": np.equal,
    "lt.Tensor": np.less,
    "gt.Tensor": np.greater,
    "ge.Tensor": np.greater_equal,
    "le.Tensor": np.less_equal,
    "logical_and.default": np.logical_and,
    "where.self": np.where,
    "masked_fill_.Scalar": _masked_fill,
    "masked_fill.Scalar": _masked_fill,
    "new_zeros.default": lambda x, s: np.zeros(s, np.float32),
    "ones_like.default": np.ones_like,
    "zeros_like.default": np.zeros_like,
    "scalar_tensor.default": np.float32,
}
