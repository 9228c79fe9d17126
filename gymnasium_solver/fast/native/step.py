"""Optimiser steps of fast/optimizer.py in C: clipping and the update in one pass over memory."""

import ctypes
import math
from ctypes import POINTER, c_double, c_int64, c_void_p
from typing import Any

import numpy as np
import torch
from torch import Tensor

from gymnasium_solver.fast.native.program import n_threads
from gymnasium_solver.fast.optimizer import FlatOptimizer, Group, tensor_bounds

KINDS = ["adam", "adamw", "laprop", "sgd", "rmsprop", "rmsprop_tf"]  # as in optimizer.c


class GroupSettings(ctypes.Structure):
    """As `Group` in optimizer.c."""

    _fields_ = [
        ("start", c_int64), ("stop", c_int64), ("kind", c_int64), ("ema_every", c_int64),
        ("target", c_void_p), ("tensors", c_void_p), ("n_tensors", c_int64),
        ("rows", c_void_p), ("n_rows", c_int64),
        ("lr_scale", c_double), ("beta1", c_double), ("beta2", c_double), ("eps", c_double),
        ("weight_decay", c_double), ("momentum", c_double), ("tau", c_double),
        ("agc", c_double), ("low", c_double), ("high", c_double),
    ]  # fmt: skip


class Settings(ctypes.Structure):
    """As `Optimizer` in optimizer.c."""

    _fields_ = [
        ("weights", c_void_p), ("mean", c_void_p), ("square", c_void_p),
        ("groups", POINTER(GroupSettings)),
        ("n_groups", c_int64), ("size", c_int64), ("n_steps", c_int64), ("threads", c_int64),
        ("has_targets", c_int64), ("lr", c_double), ("max_norm", c_double), ("max_value", c_double),
    ]  # fmt: skip


class NativeOptimizer:
    """Takes the steps of any optimiser; of the last ones it keeps what does not change."""

    def __init__(self, compiled: ctypes.CDLL):
        self._descend = compiled.descend
        self._descend.argtypes, self._descend.restype = [c_void_p, c_void_p], c_double
        self._known: dict[int, tuple[FlatOptimizer, Settings, Any]] = {}

    def settings(self, optimizer: FlatOptimizer, lr: float) -> int:
        """Address of the settings of the next steps."""
        _, s, _ = self._known.get(id(optimizer)) or self._prepared(optimizer)
        o = optimizer
        s.n_steps, s.lr, s.threads = o.n_steps, lr, n_threads()
        s.max_norm, s.max_value = o.max_grad_norm or 0.0, o.max_grad_value or 0.0
        for i, g in enumerate(o.groups):
            own = s.groups[i]
            own.beta1, own.beta2, own.eps = g.beta1, g.beta2, g.eps
            own.weight_decay, own.momentum = g.weight_decay, g.momentum
            if g.ema is not None and g.ema.tau is not None:
                own.tau = g.ema.tau
        return ctypes.addressof(s)

    def step(self, optimizer: FlatOptimizer, grad: Tensor, lr: float) -> Tensor:
        """One step along a flat gradient; returns its norm before clipping."""
        norm = self._descend(self.settings(optimizer, lr), grad.data_ptr())
        optimizer.n_steps += 1
        return torch.from_numpy(np.array(norm, np.float32))  # faster than torch.tensor

    def _prepared(self, o: FlatOptimizer) -> tuple[FlatOptimizer, Settings, Any]:
        groups = (GroupSettings * len(o.groups))()
        held: list[Any] = [groups]
        for own, group in zip(groups, o.groups, strict=True):
            held += self._fill(own, group, o)
        s = Settings()
        s.weights, s.mean = o.flat.data_ptr(), o.mean.data_ptr()
        s.square, s.size = o.mean_square.data_ptr(), o.flat.numel()
        s.groups, s.n_groups = groups, len(groups)
        s.has_targets = any(g.ema is not None and g.ema.tau is not None for g in o.groups)
        self._known[id(o)] = (o, s, held)
        return self._known[id(o)]

    def _fill(self, own: GroupSettings, group: Group, o: FlatOptimizer) -> list[np.ndarray]:
        """Set what does not change, and return the arrays that it points to."""
        own.start, own.stop = group.start, group.stop
        own.kind, own.lr_scale, own.agc = KINDS.index(group.kind), group.lr_scale, group.agc or 0.0
        if group.ema is not None and group.ema.tau is not None:
            own.target, own.ema_every = o.targets[group.name].flat.data_ptr(), group.ema.every
        low, high = group.bounds
        own.low, own.high = 1.0, 0.0  # none
        if group.bounds != (None, None):
            own.low = -math.inf if low is None else low
            own.high = math.inf if high is None else high
        starts = [*(start for start, _ in tensor_bounds(group)), group.stop]
        tensors = np.array(starts, np.int64)
        rows = np.array(
            [
                (start, math.prod(shape[:axis]), shape[axis], math.prod(shape[axis + 1 :]))
                for start, shape, axis in o.unit_rows.get(group.name, ())
            ],
            np.int64,
        )
        own.tensors, own.n_tensors = tensors.ctypes.data, len(tensors) - 1
        own.rows, own.n_rows = rows.ctypes.data, len(rows)
        return [tensors, rows]
