"""Reads the data in a pickle without unpickling it: no class is looked up and nothing is called.

    state = read_inert(path.read_bytes()).state         # an object of a foreign class
    numbers = as_array(state["obs_rms"].state["mean"])

The opcodes are walked by the standard library's disassembler. A class is only its name, and an
object only that name with its arguments and its state (`Inert`), so a hostile file can do nothing.
For the statistics of SB3's VecNormalize, which exist only as a pickle.
"""

import pickletools
from dataclasses import dataclass
from typing import Any

import numpy as np

from gymnasium_solver.errors import RunError

MOST_BYTES = 64 * 1024 * 1024


@dataclass
class Inert:
    """An object of a class that was not imported."""

    name: str
    """module.class, or a function that would have been called."""
    args: Any = ()
    state: Any = None


_MARK = object()  # the start of items on the stack
_VALUES = {
    "BININT", "BININT1", "BININT2", "INT", "LONG", "LONG1", "LONG4", "BINFLOAT", "FLOAT",
    "BINUNICODE", "SHORT_BINUNICODE", "BINUNICODE8", "UNICODE", "BINBYTES", "SHORT_BINBYTES",
    "BINBYTES8", "BYTEARRAY8", "BINSTRING", "SHORT_BINSTRING", "STRING",
}  # fmt: skip
_CONSTANTS = {"NONE": None, "NEWTRUE": True, "NEWFALSE": False, "MARK": _MARK}
_EMPTY = {"EMPTY_DICT": dict, "EMPTY_LIST": list, "EMPTY_TUPLE": tuple, "EMPTY_SET": list}
_TUPLES = {"TUPLE1": 1, "TUPLE2": 2, "TUPLE3": 3}
_OBJECTS = {"REDUCE": 0, "NEWOBJ": 0, "NEWOBJ_EX": 1}
"""Opcode: how many values above the arguments are ignored."""


def read_inert(data: bytes) -> Any:
    """The data as plain values, lists, dicts and `Inert` objects; RunError if it is damaged."""
    if len(data) > MOST_BYTES:
        raise RunError(f"a pickle of {len(data) / 1e6:.0f} MB is too large to be statistics.")
    machine = _Machine()
    try:
        for opcode, argument, _ in pickletools.genops(data):
            if opcode.name == "STOP":
                return machine.stack.pop()
            machine.step(opcode.name, argument)
    except (ValueError, IndexError, KeyError, TypeError, AttributeError) as error:
        raise RunError(f"the statistics cannot be read: {error}.") from None
    raise RunError("the statistics cannot be read: they end too early.")


class _Machine:
    def __init__(self) -> None:
        self.stack: list[Any] = []
        self.memo: dict[int, Any] = {}

    def step(self, name: str, argument: Any) -> None:
        stack = self.stack
        if name in _VALUES:
            stack.append(argument)
        elif name in _CONSTANTS:
            stack.append(_CONSTANTS[name])
        elif name in _EMPTY:
            stack.append(_EMPTY[name]())
        elif name in ("MEMOIZE", "PUT", "BINPUT", "LONG_BINPUT"):
            self.memo[len(self.memo) if name == "MEMOIZE" else argument] = stack[-1]
        elif name in ("GET", "BINGET", "LONG_BINGET"):
            stack.append(self.memo[argument])
        elif name in _TUPLES:
            stack.append(tuple(self._pop(_TUPLES[name])))
        elif name == "TUPLE":
            stack.append(tuple(self._to_mark()))
        elif name in ("LIST", "FROZENSET"):
            stack.append(self._to_mark())
        elif name == "DICT":
            stack.append(self._pairs(self._to_mark()))
        elif name == "GLOBAL":
            stack.append(Inert(str(argument).replace(" ", ".")))
        elif name == "STACK_GLOBAL":
            module, attribute = self._pop(2)
            stack.append(Inert(f"{module}.{attribute}"))
        elif name in _OBJECTS:
            self._pop(_OBJECTS[name])
            called, args = self._pop(2)
            stack.append(Inert(called.name, args))
        elif name not in ("PROTO", "FRAME"):
            self._fill(name)

    def _fill(self, name: str) -> None:
        """Opcodes that add to the value on top of the stack, or drop or double it."""
        stack = self.stack
        if name == "BUILD":
            state = stack.pop()
            if isinstance(stack[-1], Inert):
                stack[-1].state = state
        elif name in ("SETITEM", "SETITEMS"):
            items = self._pop(2) if name == "SETITEM" else self._to_mark()
            if isinstance(stack[-1], dict):  # an Inert subclass of dict loses its items
                stack[-1].update(self._pairs(items))
        elif name in ("APPEND", "APPENDS", "ADDITEMS"):
            items = self._pop(1) if name == "APPEND" else self._to_mark()
            if isinstance(stack[-1], list):
                stack[-1] += items
        elif name == "POP":
            stack.pop()
        elif name == "POP_MARK":
            self._to_mark()
        elif name == "DUP":
            stack.append(stack[-1])
        else:
            raise ValueError(f"opcode {name} is not data")

    def _pop(self, n: int) -> list[Any]:
        """The last n values, in the order in which they were pushed."""
        return [self.stack.pop() for _ in range(n)][::-1]

    def _to_mark(self) -> list[Any]:
        start = len(self.stack) - 1 - self.stack[::-1].index(_MARK)
        items = self.stack[start + 1 :]
        del self.stack[start:]
        return items

    def _pairs(self, items: list[Any]) -> dict[Any, Any]:
        pairs = zip(items[::2], items[1::2], strict=True)
        return {key if isinstance(key, str | int) else str(key): value for key, value in pairs}


def as_array(value: Any) -> np.ndarray:
    """The numbers of a pickled NumPy array, NumPy scalar or Python number, as float64."""
    if isinstance(value, int | float):
        return np.asarray(value, np.float64)
    if not isinstance(value, Inert):
        raise RunError(f"expected numbers, got {type(value).__name__}.")
    try:
        if value.name.endswith("multiarray.scalar"):
            dtype, data = value.args
            return _decoded(data, dtype, ()).reshape(())
        if value.name.endswith("numeric._frombuffer"):
            data, dtype, shape, _order = value.args
            return _decoded(bytes(data), dtype, shape)
        if value.name.endswith("multiarray._reconstruct"):
            _version, shape, dtype, _is_fortran, data = value.state
            return _decoded(data, dtype, shape)
    except (ValueError, TypeError, IndexError) as error:
        raise RunError(f"an array of the statistics cannot be read: {error}.") from None
    raise RunError(f"expected numbers, got {value.name}.")


def _decoded(data: Any, dtype: Inert, shape: Any) -> np.ndarray:
    """`dtype` is what would have been numpy.dtype("f8", ...)."""
    code = str(dtype.args[0])
    if code not in ("f8", "f4", "i8", "i4", "u1", "b1"):
        raise ValueError(f"dtype {code}")
    if isinstance(data, Inert):  # protocol 2 writes bytes as text: _codecs.encode("...", "latin1")
        data = data.args[0]
    raw = data.encode("latin1") if isinstance(data, str) else bytes(data)
    return np.frombuffer(raw, np.dtype(f"<{code}")).reshape(shape).astype(np.float64)
