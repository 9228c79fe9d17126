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


class _Mark:
    """Marks the start of items on the stack."""


_MARK = _Mark()
_SKIPPED = {"PROTO", "FRAME"}
_VALUES = [
    "BININT",
    "BININT1",
    "BININT2",
    "INT",
    "LONG",
    "LONG1",
    "LONG4",
    "BINFLOAT",
    "FLOAT",
    "BINUNICODE",
    "SHORT_BINUNICODE",
    "BINUNICODE8",
    "UNICODE",
    "BINBYTES",
    "SHORT_BINBYTES",
    "BINBYTES8",
    "BYTEARRAY8",
    "BINSTRING",
    "SHORT_BINSTRING",
    "STRING",
]
_CONSTANTS = {"NONE": None, "NEWTRUE": True, "NEWFALSE": False}
_EMPTY = {"EMPTY_DICT": dict, "EMPTY_LIST": list, "EMPTY_TUPLE": tuple, "EMPTY_SET": list}
_TUPLES = {"TUPLE1": 1, "TUPLE2": 2, "TUPLE3": 3}


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
        if name in _SKIPPED:
            return
        if name in _VALUES:
            self.stack.append(argument)
        elif name in _CONSTANTS:
            self.stack.append(_CONSTANTS[name])
        elif name in _EMPTY:
            self.stack.append(_EMPTY[name]())
        elif name == "MARK":
            self.stack.append(_MARK)
        elif name in ("MEMOIZE", "PUT", "BINPUT", "LONG_BINPUT"):
            self.memo[len(self.memo) if name == "MEMOIZE" else argument] = self.stack[-1]
        elif name in ("GET", "BINGET", "LONG_BINGET"):
            self.stack.append(self.memo[argument])
        else:
            self._build(name, argument)

    def _build(self, name: str, argument: Any) -> None:
        stack = self.stack
        if name in _TUPLES:
            items = [stack.pop() for _ in range(_TUPLES[name])][::-1]
            stack.append(tuple(items))
        elif name == "TUPLE":
            stack.append(tuple(self._to_mark()))
        elif name in ("LIST", "FROZENSET"):
            stack.append(self._to_mark())
        elif name == "GLOBAL":
            stack.append(Inert(str(argument).replace(" ", ".")))
        elif name == "STACK_GLOBAL":
            attribute, module = stack.pop(), stack.pop()
            stack.append(Inert(f"{module}.{attribute}"))
        elif name in ("REDUCE", "NEWOBJ"):
            args, called = stack.pop(), stack.pop()
            stack.append(Inert(called.name, args))
        elif name == "NEWOBJ_EX":
            stack.pop()
            args, called = stack.pop(), stack.pop()
            stack.append(Inert(called.name, args))
        else:
            self._fill(name)

    def _fill(self, name: str) -> None:
        stack = self.stack
        if name == "BUILD":
            state = stack.pop()
            if isinstance(stack[-1], Inert):
                stack[-1].state = state
        elif name == "SETITEM":
            value, key = stack.pop(), stack.pop()
            self._put(key, value)
        elif name == "SETITEMS":
            items = self._to_mark()
            for key, value in zip(items[::2], items[1::2], strict=True):
                self._put(key, value)
        elif name == "DICT":
            items = self._to_mark()
            stack.append(dict(zip(items[::2], items[1::2], strict=True)))
        elif name == "APPEND":
            value = stack.pop()
            self._add([value])
        elif name in ("APPENDS", "ADDITEMS"):
            self._add(self._to_mark())
        elif name == "POP":
            stack.pop()
        elif name == "POP_MARK":
            self._to_mark()
        elif name == "DUP":
            stack.append(stack[-1])
        else:
            raise ValueError(f"opcode {name} is not data")

    def _to_mark(self) -> list[Any]:
        start = len(self.stack) - 1 - self.stack[::-1].index(_MARK)
        items = self.stack[start + 1 :]
        del self.stack[start:]
        return items

    def _put(self, key: Any, value: Any) -> None:
        if isinstance(self.stack[-1], dict):  # an Inert subclass of dict loses its items
            self.stack[-1][key if isinstance(key, str | int) else str(key)] = value

    def _add(self, items: list[Any]) -> None:
        if isinstance(self.stack[-1], list):
            self.stack[-1] += items


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
