"""Addresses of matrices in a stack, and the calls that pack them."""

from collections.abc import Sequence

from gymnasium_solver.fast.native.arrays import ONE, ZERO, Array, Shape
from gymnasium_solver.fast.native.kernels import Kernel, Pack


def is_of_weights(kernel: Kernel) -> bool:
    """Whether a kernel packs a matrix that the caller gives: it depends on no other kernel."""
    return isinstance(kernel, Pack) and kernel.source.storage.place == "tensor"


def is_for_many(source: Array, n_params: int) -> bool:
    """Whether a forward pass packs these weights only for more than a few samples: their columns
    are contiguous, as those of a transposed matrix, and `gsolve_few` reads them as they are."""
    return n_params == 0 and source.storage.place == "tensor" and source.strides[-2] == ONE


def pack_call(kernel: Pack, index: Sequence[str]) -> str:
    """Packs the matrix at this index of the stack."""
    source = kernel.source
    stack, (k, n) = source.shape[:-2], source.shape[-2:]
    row, col = source.strides[-2:]
    at = "0"
    for i, size in zip(index, stack, strict=True):
        at = i if at == "0" else f"({at} * {size} + {i})"
    return (
        f"gsolve_pack({k}, {n}, {address(source, stack, index)}, {row}, {col}, "
        f"{kernel.target.name} + {at} * {kernel.size});"
    )


def address(array: Array, stack: Shape, index: Sequence[str]) -> str:
    missing = len(stack) + 2 - len(array.shape)
    strides = (ZERO,) * missing + array.strides
    parts = [f"{i} * {strides[d]}" for d, i in enumerate(index) if strides[d] != ZERO]
    return " + ".join([array.start, *parts])
