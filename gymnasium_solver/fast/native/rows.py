"""Rows of a rollout whose policy and environments are both compiled: one call of C a row (row.c).

    rows = CompiledRows(program, envs, [obs, noise], [logits, actions, log_prob], arrays)
    rows.begin(done)
    for t in range(n_rows):
        n_done = rows.collect()
    act_s = rows.end()

Both programs read and write the arrays of the rollout in place: nothing is copied between them.
"""

import ctypes
from collections.abc import Sequence
from ctypes import c_int64, c_void_p
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from gymnasium_solver.fast.native.build import CompiledEnvs, load_file
from gymnasium_solver.fast.native.forward import NativeForward

ROWS = ("reward", "terminated", "truncated", "is_first", "valid", "episode_return",
        "episode_length")  # fmt: skip


class Row(ctypes.Structure):
    """As in row.c."""

    _fields_ = [
        ("n", c_int64), ("act", c_void_p), ("call", c_void_p), ("again", c_void_p),
        ("step", c_void_p), ("envs", c_void_p), ("n_moving", c_int64), ("moving", c_void_p),
        ("act_ns", c_int64), ("done", c_void_p), *((name, c_void_p) for name in ROWS),
    ]  # fmt: skip


class Moving(ctypes.Structure):
    """As in row.c."""

    _fields_ = [("pointer", c_void_p), ("start", c_void_p), ("bytes", c_int64)]


class CompiledRows:
    """`inputs` and `outputs` [T, N, ...]: of the program, the observations first and the actions
    second. `rows`: the arrays in ROWS, [T, N], and [T + 1, N] for the totals of episodes."""

    def __init__(
        self,
        program: NativeForward,
        envs: CompiledEnvs,
        inputs: Sequence[np.ndarray],
        outputs: Sequence[np.ndarray],
        rows: dict[str, np.ndarray],
    ):
        self.program, self.envs = program, envs
        self.n = rows["reward"].shape[1]
        self.done = np.zeros(self.n, np.bool_)
        self._held = (*inputs, *outputs, *rows.values())  # their memory must stay
        columns, outs = program.pointers(inputs, outputs)
        obs, actions = inputs[0], outputs[1]
        into = {"obs": obs[1:], "actions": actions} | {
            name: rows[name] for name in ("reward", "terminated", "truncated")
        }
        self._row = row = Row(n=self.n, done=self.done.ctypes.data, envs=_address(envs.arguments))
        row.act, row.call, row.again = program.entry
        row.step = ctypes.cast(envs.function, c_void_p).value
        moving = [
            *zip(columns, inputs, strict=True),
            *zip(outs, outputs, strict=True),
            *((_field(envs.arguments, name), array) for name, array in into.items()),
            *((_field(row, name), rows[name]) for name in ROWS),
        ]
        self._moving = (Moving * len(moving))(
            *(Moving(pointer, array.ctypes.data, array.strides[0]) for pointer, array in moving)
        )
        row.n_moving, row.moving = len(moving), ctypes.addressof(self._moving)
        self._begin, self._collect = _functions()
        self._at = _address(row)

    def begin(self, done: np.ndarray) -> None:
        """The first row is next; `done` [N]: a reset row comes next."""
        self.done[...] = done
        self.program.begin_rows(self.n)
        self._row.act_ns = 0
        self._begin(self._at)

    def collect(self) -> int:
        """Act and step; returns how many episodes ended."""
        self.envs.prepare()
        n_done: int = self._collect(self._at)
        return n_done

    def end(self) -> float:
        """Give the programs back; returns the seconds spent acting."""
        self.envs.release()
        self.program.end_rows()
        return self._row.act_ns * 1e-9


def _address(of: ctypes.Structure) -> int:
    return ctypes.addressof(of)


def _field(of: ctypes.Structure, name: str) -> int:
    """The address of a field."""
    return _address(of) + int(getattr(type(of), name).offset)


@cache
def _functions() -> tuple[Any, Any]:
    library = load_file(Path(__file__).with_name("row.c"), ["-O2"])
    library.begin_rows.argtypes, library.begin_rows.restype = [c_void_p], None
    library.collect_row.argtypes, library.collect_row.restype = [c_void_p], c_int64
    return library.begin_rows, library.collect_row
