"""Optimiser steps of fast/optimizer.py in C: clipping and the update in one pass over memory."""

import ctypes
from ctypes import c_double, c_int64, c_void_p

import numpy as np
import torch
from torch import Tensor

from gymnasium_solver.fast.native.program import n_threads
from gymnasium_solver.fast.optimizer import FlatOptimizer

KINDS = ["adam", "adamw", "sgd", "rmsprop", "rmsprop_tf"]  # as in optimizer.c


class Settings(ctypes.Structure):
    """As `Optimizer` in optimizer.c."""

    _fields_ = [
        ("weights", c_void_p), ("mean", c_void_p), ("square", c_void_p), ("target", c_void_p),
        ("size", c_int64), ("kind", c_int64), ("n_steps", c_int64), ("threads", c_int64),
        ("lr", c_double), ("beta1", c_double), ("beta2", c_double), ("eps", c_double),
        ("weight_decay", c_double), ("momentum", c_double), ("tau", c_double),
        ("max_norm", c_double), ("max_value", c_double),
    ]  # fmt: skip


class NativeOptimizer:
    def __init__(self, compiled: ctypes.CDLL):
        self._descend = compiled.descend
        self._descend.argtypes, self._descend.restype = [c_void_p, c_void_p], c_double
        self._settings = Settings()
        self._address = ctypes.addressof(self._settings)

    def settings(
        self, optimizer: FlatOptimizer, lr: float, target: tuple[Tensor, float] | None = None
    ) -> int:
        """Address of the settings of the next steps."""
        s, o = self._settings, optimizer
        s.weights, s.mean = o.flat.data_ptr(), o.mean.data_ptr()
        s.square, s.size = o.mean_square.data_ptr(), o.flat.numel()
        s.kind, s.n_steps, s.lr = KINDS.index(o.kind), o.n_steps, lr
        s.beta1, s.beta2, s.eps = o.beta1, o.beta2, o.eps
        s.weight_decay, s.momentum = o.weight_decay, o.momentum
        s.threads = n_threads()
        s.target, s.tau = (None, 0.0) if target is None else (target[0].data_ptr(), target[1])
        s.max_norm, s.max_value = o.max_grad_norm or 0.0, o.max_grad_value or 0.0
        return self._address

    def step(
        self,
        optimizer: FlatOptimizer,
        grad: Tensor,
        lr: float,
        target: tuple[Tensor, float] | None = None,
    ) -> Tensor:
        """One step along a flat gradient; returns its norm before clipping. `target`: the flat
        parameters of a target network, which then moves towards the network by this factor."""
        norm = self._descend(self.settings(optimizer, lr, target), grad.data_ptr())
        optimizer.n_steps += 1
        return torch.from_numpy(np.array(norm, np.float32))  # faster than torch.tensor
