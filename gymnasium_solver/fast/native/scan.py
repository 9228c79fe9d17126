"""Sums from the end of a rollout to its start (GAE, returns), in C: the same bits as in NumPy.

A process in which something is compiled uses it for all sums; elsewhere it would cost the time of a
C compiler.
"""

import logging
from collections.abc import Callable
from ctypes import c_long, c_void_p
from functools import cache
from typing import Any

import numpy as np

from gymnasium_solver.fast.native.build import load_file
from gymnasium_solver.fast.tape import Unsupported

log = logging.getLogger(__name__)
_is_used = False


def use_compiled_sums() -> None:
    """From now on in this process."""
    global _is_used
    _is_used = True


def sum_back(x: np.ndarray, carry: np.ndarray) -> np.ndarray:
    """y[t] = x[t] + carry[t] * y[t + 1], arrays [T, N], in float64."""
    compiled = _compiled() if _is_used else None
    if compiled is None:
        return sum_back_numpy(x, carry)
    x, carry = (np.ascontiguousarray(part, np.float64) for part in (x, carry))
    y = np.empty(x.shape)
    compiled(*x.shape, x.ctypes.data, carry.ctypes.data, y.ctypes.data)
    return y


def sum_back_numpy(x: np.ndarray, carry: np.ndarray) -> np.ndarray:
    y = np.empty(x.shape)
    running = np.zeros(x.shape[1])
    for t in range(len(x) - 1, -1, -1):
        running = x[t] + carry[t] * running
        y[t] = running
    return y


@cache
def _compiled() -> Callable[..., Any] | None:
    try:
        function = load_file("scan.c", ["-O2", "-ffp-contract=off"]).sum_back
    except Unsupported as error:
        log.info("sums over rollouts stay in NumPy: %s", error)
        return None
    function.argtypes, function.restype = [c_long, c_long, c_void_p, c_void_p, c_void_p], None
    found: Callable[..., Any] = function
    return found
