"""Sums from the end of a rollout to its start (GAE, returns), in C: the same bits as in NumPy."""

import logging
from collections.abc import Callable
from ctypes import c_long, c_void_p
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from gymnasium_solver.errors import Unsupported
from gymnasium_solver.fast.native.build import is_preferred, load_file

log = logging.getLogger(__name__)


def sum_back(x: np.ndarray, carry: np.ndarray) -> np.ndarray:
    """y[t] = x[t] + carry[t] * y[t + 1], arrays [T, N], in float64."""
    compiled = _compiled() if is_preferred() else None
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
        function = load_file(
            Path(__file__).with_name("scan.c"), ["-O2", "-ffp-contract=off"]
        ).sum_back
    except Unsupported as error:
        log.info("sums over rollouts stay in NumPy: %s", error)
        return None
    function.argtypes, function.restype = [c_long, c_long, c_void_p, c_void_p, c_void_p], None
    found: Callable[..., Any] = function
    return found
