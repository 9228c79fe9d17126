"""Work on rollouts in C (rollout.c).

    y = sum_back(x, carry)      # sums from the end to the start (GAE): the same bits as in NumPy

    rows = CompiledRows(program, envs, obs, [noise], [logits, actions, log_prob], arrays)
    rows.begin(done)
    n_done = rows.collect(n_rows)
    act_s = rows.end()

Rows of a rollout whose policy and environments are both compiled are one call of C; where the
environments need Python for new episodes, one for each row that ends some. Both programs read and
write the arrays of the rollout in place: nothing is copied between them.
"""

import ctypes
import logging
from collections.abc import Sequence
from ctypes import CFUNCTYPE, c_int64, c_long, c_void_p
from functools import cache
from typing import TYPE_CHECKING

import numpy as np

from gymnasium_solver.errors import Unsupported
from gymnasium_solver.fast.native.build import ROLLOUT, CompiledEnvs, is_preferred, load_file
from gymnasium_solver.tree import leaves_of

if TYPE_CHECKING:
    from gymnasium_solver.fast.native.program import NativeForward  # imports torch

log = logging.getLogger(__name__)

ROWS = ("reward", "terminated", "truncated", "is_first", "valid", "episode_return",
        "episode_length")  # fmt: skip


class Row(ctypes.Structure):
    """As in rollout.c."""

    _fields_ = [
        ("n", c_int64), ("act", c_void_p), ("call", c_void_p), ("again", c_void_p),
        ("step", c_void_p), ("envs", c_void_p), ("waits", c_int64),
        ("n_moving", c_int64), ("moving", c_void_p),
        ("act_ns", c_int64), ("done", c_void_p), *((name, c_void_p) for name in ROWS),
    ]  # fmt: skip


class Moving(ctypes.Structure):
    """As in rollout.c."""

    _fields_ = [("pointer", c_void_p), ("start", c_void_p), ("bytes", c_int64)]


class CompiledRows:
    """`obs` [T + 1, N, ...] or a dict of them, `inputs` and `outputs` [T, N, ...]: of the program,
    the actions second. `rows`: the arrays in ROWS, [T, N], and [T + 1, N] for the totals of
    episodes."""

    def __init__(
        self,
        program: "NativeForward",
        envs: CompiledEnvs,
        obs: np.ndarray | dict[str, np.ndarray],
        inputs: Sequence[np.ndarray],
        outputs: Sequence[np.ndarray],
        rows: dict[str, np.ndarray],
        units: tuple[np.ndarray, np.ndarray] | None = None,
        masks: np.ndarray | None = None,
    ):
        """`units`: of the actions (`ActionKind.env_units`). `masks` [T + 1, N, A], if there are
        any: of legal actions."""
        self.program, self.envs, self._units = program, envs, units
        self.n = rows["reward"].shape[1]
        self.done = np.zeros(self.n, np.bool_)
        inputs = [*leaves_of(obs), *inputs]
        self._held = (*inputs, *outputs, *rows.values())  # their memory must stay
        columns, outs = program.pointers(inputs, outputs)
        into = {"actions": outputs[1]} | {
            name: rows[name] for name in ("reward", "terminated", "truncated")
        }
        seen = []
        if isinstance(obs, dict):
            first, parts = _field(envs.arguments, "parts"), list(envs.parts)
            for name, part in obs.items():
                place = first + parts.index(name) * ctypes.sizeof(c_void_p)
                seen.append((place, part[1:]))
        else:
            into["obs"] = obs[1:]
        if masks is not None:
            into["legal"] = masks[1:]
        self._row = row = Row(n=self.n, done=self.done.ctypes.data, envs=_address(envs.arguments))
        row.waits = envs.needs_python
        row.act, row.call, row.again = program.entry
        row.step = ctypes.cast(envs.function, c_void_p).value
        moving = [
            *zip(columns, inputs, strict=True),
            *zip(outs, outputs, strict=True),
            *((_field(envs.arguments, name), array) for name, array in into.items()),
            *seen,
            *((_field(row, name), rows[name]) for name in ROWS),
        ]
        self._moving = (Moving * len(moving))(
            *(Moving(pointer, array.ctypes.data, array.strides[0]) for pointer, array in moving)
        )
        row.n_moving, row.moving = len(moving), ctypes.addressof(self._moving)
        library = _library()
        if library is None:
            raise Unsupported("no C compiler")
        self._begin, self._collect = library.begin_rows, library.collect_rows
        self._at = _address(row)

    def begin(self, done: np.ndarray) -> None:
        """The first row is next; `done` [N]: a reset row comes next."""
        self.done[...] = done
        self.envs.begin(self._units)
        self.program.begin_rows(self.n)
        self._row.act_ns = 0
        self._begin(self._at)

    def collect(self, n_rows: int) -> np.ndarray:
        """Act and step; returns how many episodes ended at each row."""
        n_done, t = np.zeros(n_rows, np.int64), 0
        while t < n_rows:
            self.envs.prepare()
            t += self._collect(self._at, n_rows - t, n_done[t:].ctypes.data)
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


def sum_back(x: np.ndarray, carry: np.ndarray) -> np.ndarray:
    """y[t] = x[t] + carry[t] * y[t + 1], arrays [T, N], in float64."""
    library = _library() if is_preferred() else None
    return sum_back_numpy(x, carry) if library is None else _sum_back(library, x, carry)


def _sum_back(library: ctypes.CDLL, x: np.ndarray, carry: np.ndarray) -> np.ndarray:
    x, carry = (np.ascontiguousarray(part, np.float64) for part in (x, carry))
    y = np.empty(x.shape)
    library.sum_back(*x.shape, x.ctypes.data, carry.ctypes.data, y.ctypes.data)
    return y


def sum_back_numpy(x: np.ndarray, carry: np.ndarray) -> np.ndarray:
    y = np.empty(x.shape)
    running = np.zeros(x.shape[1])
    for t in range(len(x) - 1, -1, -1):
        running = x[t] + carry[t] * running
        y[t] = running
    return y


@cache
def _library() -> ctypes.CDLL | None:
    try:
        return _declared(load_file(*ROLLOUT, _agrees))
    except Unsupported as error:
        log.info("rollouts stay in NumPy: %s", error)
        return None


def _declared(library: ctypes.CDLL) -> ctypes.CDLL:
    library.sum_back.argtypes = [c_long, c_long, c_void_p, c_void_p, c_void_p]
    library.begin_rows.argtypes = [c_void_p]
    library.collect_rows.argtypes = [c_void_p, c_int64, c_void_p]
    library.sum_back.restype = library.begin_rows.restype = None
    library.collect_rows.restype = c_int64
    return library


def _agrees(library: ctypes.CDLL) -> bool:
    """Whether a new library computes what NumPy does."""
    _declared(library)
    rng = np.random.default_rng(0)
    x, carry = rng.normal(size=(2, 5, 3))
    sums = _sum_back(library, x, carry)
    return np.array_equal(sums, sum_back_numpy(x, carry)) and _rows_agree(library, rng)


def _rows_agree(library: ctypes.CDLL, rng: np.random.Generator, n_rows: int = 5) -> bool:
    """Rows of three environments that do nothing but end episodes."""
    n, again, n_acts = 3, c_int64(1), [0]
    ends = rng.random((2, n_rows, n)) < 0.4
    given = {"reward": rng.normal(size=(n_rows, n)).astype(np.float32),
             "terminated": ends[0], "truncated": ends[1]}  # fmt: skip
    made: dict[str, np.ndarray] = {
        name: np.full((n_rows, n), 7, np.bool_) for name in ("is_first", "valid")
    }
    made |= {"episode_return": np.zeros((n_rows + 1, n)),
             "episode_length": np.zeros((n_rows + 1, n), np.int64)}  # fmt: skip

    def act(_: int | None) -> None:
        n_acts[0] += 1

    arrays, done = given | made, np.zeros(n, np.bool_)
    row = Row(n=n, done=done.ctypes.data, again=ctypes.addressof(again))
    functions = CFUNCTYPE(None, c_void_p)(act), CFUNCTYPE(c_int64, c_void_p)(lambda _: 11)
    row.act, row.step = (ctypes.cast(function, c_void_p).value for function in functions)
    moving = (Moving * len(ROWS))(
        *(Moving(_field(row, k), arrays[k].ctypes.data, arrays[k].strides[0]) for k in ROWS)
    )
    row.n_moving, row.moving = len(ROWS), ctypes.addressof(moving)
    library.begin_rows(_address(row))
    is_right = again.value == 0
    total, length = np.zeros(n), np.zeros(n, np.int64)
    was_done = np.zeros(n, np.bool_)
    for t in range(n_rows):
        n_done = c_int64(0)
        library.collect_rows(_address(row), 1, ctypes.addressof(n_done))
        is_right &= n_done.value == 11 and again.value == 1 and n_acts[0] == t + 1
        total = np.where(was_done, 0.0, total + given["reward"][t])
        length = np.where(was_done, 0, length + 1)
        found = [made["is_first"][t], made["valid"][t], made["episode_return"][t + 1],
                 made["episode_length"][t + 1]]  # fmt: skip
        expected = [was_done, ~was_done, total, length]
        is_right &= all(map(np.array_equal, found, expected))
        was_done = ends[0, t] | ends[1, t]
        is_right &= np.array_equal(done, was_done)
    return bool(is_right)
