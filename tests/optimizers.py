"""Optimisers with a single group of parameters, for tests."""

from typing import Any

from torch import nn

from gymnasium_solver.fast.optimizer import FlatOptimizer, Group
from gymnasium_solver.fast.torch_optimizer import TorchOptimizer

OF_OPTIMIZER = ("max_grad_norm", "max_grad_value", "graph")


def flat_optimizer(module: nn.Module, kind: Any = "adam", **settings: Any) -> FlatOptimizer:
    own = {name: settings.pop(name) for name in OF_OPTIMIZER if name in settings}
    return FlatOptimizer([Group("net", module, kind, **settings)], **own)


def torch_optimizer(
    module: nn.Module, name: str, options: Any = None, *, weight_decay: float = 0.0, **own: Any
) -> TorchOptimizer:
    return TorchOptimizer([Group("net", module, weight_decay=weight_decay)], name, options, **own)
