"""ReLU and its derivative inside the matrix product before them, which saves a pass over memory."""

import re

from gymnasium_solver.fast.native.arrays import Array, Storage, contiguous
from gymnasium_solver.fast.native.kernels import Kernel, Load, Loop, Matmul, Pack, Section

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
