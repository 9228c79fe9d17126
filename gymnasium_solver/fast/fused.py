"""A function of tensors on a GPU with its elementwise operations fused into few kernels.

    fused = fuse(function, inputs)           # seconds to a minute
    outputs = fused(inputs)                  # inputs of the same shapes

A CUDA graph removes the time between kernels, not that of starting each: a normalised critic has
400 of them in an update, of 3 to 6 us. The function is traced to torch's operations, gradients
included, and compiled by torch's own compiler (inductor), which needs Triton and a C compiler.
Tensors that the function reads and that are not inputs, such as weights, are read in place.
"""

import logging
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import torch
from torch import Tensor, fx

log = logging.getLogger(__name__)

Function = Callable[[Sequence[Tensor]], list[Tensor]]


def fuse(function: Function, inputs: Sequence[Tensor]) -> Function | None:
    """The same function, or None if it cannot be compiled here or does not agree."""
    _tell()
    try:
        fused = _compiled(function, inputs)
        pairs = zip(fused(inputs), function(inputs), strict=True)
        if all(_agree(a, b) for a, b in pairs):
            return fused
        log.warning("a fused update does not agree with torch, so it is not used")
    except Exception as error:  # of a compiler that can fail in many ways
        log.info("not fused: %s", str(error).splitlines()[0] if str(error) else type(error))
    return None


def _agree(a: Tensor, b: Tensor) -> bool:
    """Whether they are close, small numbers by the size of the tensor's others, except for at most
    one number in a thousand: rounding can change which class is sampled."""
    b = b.double()
    size = min(1e-3, 0.1 * b.square().mean().sqrt().item())  # gradients are much smaller than 1
    off = ~torch.isclose(a.double(), b, rtol=1e-2, atol=size)
    return int(off.sum()) <= off.numel() // 1000


@cache
def _tell() -> None:
    """Say once why nothing seems to happen."""
    log.info("torch's compiler fuses the kernels of the GPU, which takes up to a minute")


def _compiled(function: Function, inputs: Sequence[Tensor]) -> Function:
    from torch._inductor import compile as inductor
    from torch.fx.experimental.proxy_tensor import make_fx

    module = make_fx(lambda *tensors: function(list(tensors)))(*inputs)
    read = _lifted(module)
    compiled: Any = inductor(module, [*read, *inputs])

    def fused(given: Sequence[Tensor]) -> list[Tensor]:
        with torch.no_grad():
            return list(compiled(*read, *given))

    return fused


def _lifted(module: fx.GraphModule) -> list[Tensor]:
    """Make inputs of the tensors that a traced function holds: the compiler would copy small ones
    into its code. Returns them in order."""
    held: dict[str, fx.Node] = {}
    first = next(iter(module.graph.nodes))
    for node in list(module.graph.nodes):
        if node.op != "get_attr":
            continue
        name = str(node.target)
        if name not in held:
            with module.graph.inserting_before(first):
                held[name] = module.graph.placeholder(f"held{len(held)}")
            held[name].meta = dict(node.meta)
        node.replace_all_uses_with(held[name])
        module.graph.erase_node(node)
    module.recompile()
    return [getattr(module, name).detach() for name in held]
