"""A small network that learns on a GPU acts from a copy of its weights on the CPU.

    host = HostCopy(net, "actor")
    with host.fresh():                   # copies the weights: they do not change within it
        outputs = host(obs)              # arrays in, an array out

A forward pass of a few rows takes 20 us on a CPU. On a GPU the launch, the copies and the wait take
several times as long, and longer yet if other processes share it. The weights are copied once for
a whole rollout or evaluation. With more rows the GPU is faster.
"""

import copy
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn

from gymnasium_solver.fast.optimizer import flatten_parameters
from gymnasium_solver.fast.recorded import Inference

MOST_WORK = 2**20  # rows times parameters


class HostCopy:
    def __init__(self, module: nn.Module, method: str) -> None:
        """`method`: of the module, the function to be computed."""
        self._source, self._method = module, method
        self._n_weights = sum(p.numel() for p in module.parameters())
        self._infer: Inference | None = None
        self._weights: torch.Tensor | None = None  # of the copy, one vector
        self.module: Any = None
        """The copy, while it is fresh."""
        self._copy: nn.Module | None = None

    def suits(self, n_rows: int) -> bool:
        """Whether so few rows are computed faster here."""
        return n_rows * self._n_weights <= MOST_WORK

    @contextmanager
    def fresh(self) -> Iterator[None]:
        """Within it the copy is that of the present weights, which must not change."""
        if self.module is not None:
            yield
            return
        self._update()
        self.module = self._copy
        try:
            yield
        finally:
            self.module = None

    def __call__(self, obs: Any) -> Any:
        assert self.module is not None, "the copy is used within fresh()"
        assert self._infer is not None
        return self._infer(obs)

    @torch.no_grad()
    def _update(self) -> None:
        if self._copy is None:
            self._copy = copy.deepcopy(self._source).to("cpu")
            self._weights = flatten_parameters(self._copy)
            self._infer = Inference(getattr(self._copy, self._method), self._copy, record=True)
        assert self._weights is not None
        # One transfer for all weights, one for each buffer: statistics of observations.
        flat = torch.cat([p.reshape(-1) for p in self._source.parameters()])
        self._weights.copy_(flat)
        for own, other in zip(self._copy.buffers(), self._source.buffers(), strict=True):
            own.copy_(other)
