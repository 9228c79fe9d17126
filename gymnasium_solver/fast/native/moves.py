"""Values that are computed in their place in a stack, which saves a copy."""

from collections.abc import Mapping

from gymnasium_solver.fast.native.arrays import Array, Storage
from gymnasium_solver.fast.native.kernels import (
    BatchSum,
    Kernel,
    Load,
    Loop,
    Pack,
    Panels,
    Reduce,
    Section,
)


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
