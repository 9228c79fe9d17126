"""ATen operations in NumPy, which recorded gradients (fast/recorded.py) are replayed with.

The table only affects speed. An entry takes the arguments of the ATen overload and returns the same
numbers, in float32 on the CPU. For operations that are not in the table, `through_torch` runs
torch's own kernel on the same memory, which costs a few microseconds more. For large arrays torch's
kernels (MKL) are faster, and the entries use them too. The choice depends only on the sizes, so a
replay gives the same bits regardless of earlier calls.
"""

import operator
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch

Array = np.ndarray
# Measured on x86-64: below these sizes NumPy is faster because of its lower call overhead, above
# them torch's kernels are.
LARGE_PRODUCT = 1_000_000  # multiplications
LARGE_ARRAY = 16_384  # elements
LONG_ROW = 32  # elements
ZERO, ONE = np.float32(0), np.float32(1)
ONES = np.ones(16_384, np.float32)


def through_torch(name: str) -> Callable[..., Any]:
    """The ATen overload itself ("gelu.default") as a function of arrays."""
    packet, overload = name.split(".")
    kernel = getattr(getattr(torch.ops.aten, packet), overload)
    from_numpy = torch.from_numpy

    def run(*args: Any, **kwargs: Any) -> Any:
        tensors = [from_numpy(a) if type(a) is Array else _to_torch(a) for a in args]
        return _to_numpy(kernel(*tensors, **kwargs))

    return run


def _to_torch(value: Any) -> Any:
    if isinstance(value, Array | np.generic):
        return torch.as_tensor(value)
    return [_to_torch(v) for v in value] if isinstance(value, list) else value


def _to_numpy(value: Any) -> Any:
    if isinstance(value, list | tuple):
        return [_to_numpy(v) for v in value]
    return value if value is None else value.numpy()


# -- products -------------------------------------------------------------------------------


def _is_large(x: Array, y: Array) -> bool:
    # With an inner size of 1 NumPy does not use BLAS and takes a hundred times as long.
    limit = LARGE_ARRAY if x.shape[-1] == 1 else LARGE_PRODUCT
    # Of one matrix of a stack: each is multiplied as it would be alone.
    return x.shape[-2] * x.shape[-1] * y.shape[-1] >= limit


def _product(x: Array, y: Array, out: Array | None = None) -> Array:
    """x @ y for two matrices, or for two stacks of the same length."""
    if not _is_large(x, y):
        return np.multiply(x, y, out=out) if x.shape[-1] == 1 else np.matmul(x, y, out=out)
    product = torch.mm if x.ndim == 2 else torch.bmm
    a, b = torch.from_numpy(x), torch.from_numpy(y)
    if out is None:
        return product(a, b).numpy()
    product(a, b, out=torch.from_numpy(out))
    return out


def _product_masked(x: Array, y: Array, relu_output: Array, threshold: float) -> Array:
    """Backward pass through a linear layer and the ReLU before it."""
    g = _product(x, y)
    return _threshold_backward(g, relu_output, threshold, out=g)


def _affine(bias: Array, x: Array, y: Array, relu: bool = False) -> Array:
    if _is_large(x, y):
        product = torch.addmm if x.ndim == 2 else torch.baddbmm
        out = product(torch.from_numpy(bias), torch.from_numpy(x), torch.from_numpy(y))
        return (out.relu_() if relu else out).numpy()
    out = x @ y
    out += bias
    return np.maximum(out, ZERO, out=out) if relu else out


def _affine_relu(bias: Array, x: Array, y: Array) -> Array:
    return _affine(bias, x, y, relu=True)


# -- elementwise ----------------------------------------------------------------------------


def _relu(x: Array) -> Array:
    if x.size < LARGE_ARRAY:
        return np.maximum(x, ZERO)
    return torch.relu(torch.from_numpy(x)).numpy()


def _threshold_backward(g: Array, x: Array, threshold: float, out: Array | None = None) -> Array:
    if g.size < LARGE_ARRAY:
        return np.multiply(g, x > threshold, out=out)
    out = np.empty_like(g) if out is None else out
    kernel = torch.ops.aten.threshold_backward.grad_input
    kernel(*map(torch.from_numpy, (g, x)), threshold, grad_input=torch.from_numpy(out))
    return out


def _tanh_backward(g: Array, y: Array) -> Array:
    slope = y * y
    np.subtract(ONE, slope, out=slope)
    slope *= g
    return slope


def _sigmoid(x: Array) -> Array:
    y = np.exp(-x)
    y += ONE
    return np.reciprocal(y, out=y)


def _sigmoid_backward(g: Array, y: Array) -> Array:
    slope = ONE - y
    slope *= y
    slope *= g
    return slope


def _softplus(x: Array, beta: float = 1, threshold: float = 20) -> Array:
    y = np.exp(-np.abs(x if beta == 1 else beta * x))
    np.log1p(y, out=y)
    return np.maximum(x, ZERO) + (y if beta == 1 else y / beta)


def _softplus_backward(g: Array, x: Array, beta: float, threshold: float) -> Array:
    return g * _sigmoid(x if beta == 1 else beta * x)


def _add(x: Any, y: Any, alpha: float = 1) -> Any:
    return x + y if alpha == 1 else x + alpha * y


def _sub(x: Any, y: Any, alpha: float = 1) -> Any:
    return x - y if alpha == 1 else x - alpha * y


def _rsub(x: Any, y: Any, alpha: float = 1) -> Any:
    return _sub(y, x, alpha)


def _div(x: Any, y: Any) -> Any:
    return x * np.float32(1.0 / y) if isinstance(y, int | float) else x / y


def _pow(x: Any, n: float) -> Any:
    return x if n == 1 else x * x if n == 2 else x**n


def _clamp(x: Array, low: Any = None, high: Any = None) -> Array:
    if low is not None:
        x = np.maximum(x, low)
    return x if high is None else np.minimum(x, high)


def _masked_fill(x: Array, mask: Array, value: float) -> Array:
    return np.where(mask, np.float32(value), x)


# -- reductions -----------------------------------------------------------------------------


def _sum(x: Array, dims: Sequence[int], keepdim: bool = False) -> Array:
    if len(dims) != 1 or x.ndim < 2 or x.dtype != np.float32:
        return x.sum(tuple(dims) or None, keepdims=keepdim)
    axis = dims[0] % x.ndim
    # BLAS is faster than a NumPy reduction.
    if axis == x.ndim - 2:
        total = _ones(x.shape[-2]) @ x
    elif x.ndim == 2:
        total = x @ _ones(x.shape[1])
    else:
        total = np.add.reduce(x, axis)
    return _unsqueeze(total, axis) if keepdim else total


def _ones(n: int) -> Array:
    return ONES[:n] if n <= len(ONES) else np.ones(n, np.float32)


def _mean(x: Array, dims: Sequence[int] | None = None, keepdim: bool = False) -> Array:
    total: Array
    if dims is None:
        total = np.add.reduce(x, None)
    elif x.ndim == 2 and list(dims) == [1] and not keepdim and len(x) < LONG_ROW <= x.shape[1]:
        # A few long rows, of several learners (stacked.py): each is summed as it would be alone.
        total = np.add.reduce(x, 1)
    else:
        total = _sum(x, dims, keepdim)
    return total * np.float32(total.size / x.size)


def _reduction(reduce: np.ufunc) -> Callable[..., Array]:
    def run(x: Array, dims: Sequence[int] = (), keepdim: bool = False) -> Array:
        if x.ndim == 2 and len(dims) == 1 and dims[0] in (1, -1):
            # Transposed, so that NumPy processes whole rows: several times faster than a loop of
            # two or six elements per sample.
            best = reduce.reduce(np.ascontiguousarray(x.T))
            return best[:, None] if keepdim else best
        return reduce.reduce(x, tuple(dims) or None, keepdims=keepdim)

    return run


def _argmax(x: Array, dim: int | None = None, keepdim: bool = False) -> Any:
    best: Any = x.argmax(dim)
    return _unsqueeze(best, dim) if keepdim and dim is not None else best


def _log_softmax(x: Array, dim: int, half: bool) -> Array:
    y = np.array(np.moveaxis(x, dim, 0), order="C")
    y -= np.maximum.reduce(y)
    y -= np.log(np.add.reduce(np.exp(y)))
    return np.moveaxis(y, 0, dim)


def _log_softmax_backward(g: Array, y: Array, dim: int, dtype: Any = None) -> Array:
    total = np.add.reduce(np.ascontiguousarray(np.moveaxis(g, dim, 0)))
    return g - np.exp(y) * _unsqueeze(total, dim)


# -- indexing and shapes --------------------------------------------------------------------


def _gather(x: Array, dim: int, index: Array) -> Array:
    if dim != 1 or x.ndim != 2 or index.shape[1] != 1 or len(index) != len(x):
        return np.take_along_axis(x, index, dim)
    return x[np.arange(len(index)), index[:, 0]][:, None]


def _scatter_add(x: Array, dim: int, index: Array, src: Array) -> Array:
    if dim != 1 or x.ndim != 2 or index.shape[1] != 1:
        tensors = torch.from_numpy(index), torch.from_numpy(np.ascontiguousarray(src))
        return torch.from_numpy(x).scatter_add(dim, *tensors).numpy()
    x = x.copy()
    x[np.arange(len(index)), index[:, 0]] += src[:, 0]
    return x


def _to_copy(x: Any, dtype: Any) -> Any:
    return x.astype(dtype, copy=False) if hasattr(x, "astype") else dtype(x)  # or a plain number


def _view(x: Any, shape: Sequence[int]) -> Array:
    return x.reshape(shape)


def _unsqueeze(x: Any, dim: int) -> Array:
    return x[(slice(None),) * (dim if dim >= 0 else dim + x.ndim + 1) + (None,)]


def _expand(x: Any, shape: Sequence[int]) -> Array:
    if -1 in shape:  # keep this size
        sizes = (1,) * (len(shape) - x.ndim) + x.shape
        shape = [own if size == -1 else size for own, size in zip(sizes, shape, strict=True)]
    if x.shape == tuple(shape):
        return x
    # A copy instead of np.broadcast_to, which runs in Python and returns a read-only view.
    out = np.empty(shape, x.dtype)
    out[...] = x
    return out


def _slice(x: Array, dim: int = 0, start: Any = None, end: Any = None, step: int = 1) -> Array:
    return x[(slice(None),) * (dim % x.ndim) + (slice(start, end, step),)]


def _select(x: Array, dim: int, i: int) -> Array:
    return x[(slice(None),) * (dim % x.ndim) + (i,)]


def _split(x: Array, size: int, dim: int = 0) -> list[Array]:
    return [_slice(x, dim, a, a + size) for a in range(0, x.shape[dim], size)]


def _split_sizes(x: Array, sizes: Sequence[int], dim: int = 0) -> list[Array]:
    stops = np.cumsum(sizes).tolist()
    return [_slice(x, dim, b - n, b) for n, b in zip(sizes, stops, strict=True)]


_BINARY: dict[str, Callable[..., Any]] = {
    "add": _add,
    "sub": _sub,
    "mul": operator.mul,
    "div": _div,
    "eq": np.equal,
    "lt": np.less,
    "gt": np.greater,
    "ge": np.greater_equal,
    "le": np.less_equal,
}
OPERATIONS: dict[str, Callable[..., Any]] = {
    # shapes
    "t.default": lambda x: x.T,
    "transpose.int": np.swapaxes,
    "lift_fresh.default": lambda x: x,
    "view.default": _view,
    "_unsafe_view.default": _view,
    "expand.default": _expand,
    "permute.default": lambda x, dims: x.transpose(dims),
    "clone.default": lambda x: x.copy(),
    "squeeze.dims": lambda x, dims: x.squeeze(tuple(d for d in dims if x.shape[d] == 1)),
    "squeeze.dim": lambda x, d: x.squeeze(d) if x.shape[d] == 1 else x,
    "unsqueeze.default": _unsqueeze,
    "slice.Tensor": _slice,
    "select.int": _select,
    "split.Tensor": _split,
    "split_with_sizes.default": _split_sizes,
    "unbind.int": lambda x, d=0: [_select(x, d, i) for i in range(x.shape[d])],
    "cat.default": lambda arrays, dim=0: np.concatenate(arrays, dim),
    "stack.default": lambda arrays, dim=0: np.stack(arrays, dim),
    "_to_copy.default": _to_copy,
    # products
    "mm.default": _product,
    "bmm.default": _product,
    "addmm.default": _affine,
    "baddbmm.default": _affine,
    # elementwise
    "relu.default": _relu,
    "threshold_backward.default": _threshold_backward,
    "tanh.default": np.tanh,
    "tanh_backward.default": _tanh_backward,
    "sigmoid.default": _sigmoid,
    "sigmoid_backward.default": _sigmoid_backward,
    "softplus.default": _softplus,
    "softplus_backward.default": _softplus_backward,
    "exp.default": np.exp,
    "log.default": np.log,
    "sqrt.default": np.sqrt,
    "abs.default": np.abs,
    "neg.default": np.negative,
    "sgn.default": np.sign,
    **{f"{name}.{y}": function for name, function in _BINARY.items() for y in ("Tensor", "Scalar")},
    "rsub.Scalar": _rsub,
    "pow.Tensor_Scalar": _pow,
    "minimum.default": np.minimum,
    "maximum.default": np.maximum,
    "clamp.default": _clamp,
    "clamp.Tensor": _clamp,
    "clamp_min.default": np.maximum,
    "clamp_max.default": np.minimum,
    "logical_and.default": np.logical_and,
    "logical_not.default": np.logical_not,
    "where.self": np.where,
    "masked_fill.Scalar": _masked_fill,
    # reductions
    "mean.default": _mean,
    "mean.dim": _mean,
    "sum.default": lambda x: np.add.reduce(x, None),
    "sum.dim_IntList": _sum,
    "amax.default": _reduction(np.maximum),
    "amin.default": _reduction(np.minimum),
    "argmax.default": _argmax,
    "_log_softmax.default": _log_softmax,
    "_log_softmax_backward_data.default": _log_softmax_backward,
    # indexing
    "gather.default": _gather,
    "scatter_add.default": _scatter_add,
    # new arrays
    "new_zeros.default": lambda x, s, dtype=None: np.zeros(s, dtype or x.dtype),
    "ones_like.default": lambda x, dtype=None: np.ones_like(x, dtype),
    "zeros_like.default": lambda x, dtype=None: np.zeros_like(x, dtype),
    "scalar_tensor.default": lambda x, dtype=np.float32: dtype(x),
}
# Two operations fused: the second acts on the result of the first, which nothing else reads.
FUSED: dict[tuple[str, str], Callable[..., Any]] = {
    ("addmm.default", "relu.default"): _affine_relu,
    ("baddbmm.default", "relu.default"): _affine_relu,
    ("mm.default", "threshold_backward.default"): _product_masked,
    ("bmm.default", "threshold_backward.default"): _product_masked,
}
# These can write their result into a given array.
WITH_OUT = {"mm.default", "bmm.default"}


def inlined(name: str, args: Sequence[str]) -> str | None:
    """An operation as a Python expression of its written arguments, which saves a call; None for
    those that are called."""
    if name in ("mul.Tensor", "add.Tensor", "sub.Tensor"):
        sign = {"mul": "*", "add": "+", "sub": "-"}[name.partition(".")[0]]
        return f"{args[0]} {sign} {args[1]}"
    if name == "t.default":
        return f"{args[0]}.T"
    if name in ("view.default", "_unsafe_view.default"):
        return f"{args[0]}.reshape({args[1]})"
    if name not in ("select.int", "slice.Tensor", "unsqueeze.default") or not args[1].isdigit():
        return None
    if name == "slice.Tensor":
        index = ":".join(args[2:])
    else:
        index = args[2] if name == "select.int" else "None"
    return f"{args[0]}[{':, ' * int(args[1])}{index}]"
