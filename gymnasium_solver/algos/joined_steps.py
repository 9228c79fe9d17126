"""All gradient steps of an update in one call of the compiled program.

DQN's updates come in rounds: 128 steps after every 256 env steps. Nothing happens between two steps
that Python is needed for, if batches are sampled uniformly: all of them are sampled first. The
results are the same bits as one gradient and optimiser step after another; a target network that
moves with every step moves in the same call.
"""

from typing import Any

import numpy as np
import torch
from torch import Tensor

from gymnasium_solver.algos.off_policy import OffPolicyLearner
from gymnasium_solver.data.memory import Sample, rows_of
from gymnasium_solver.fast.native.gradient import NativeGradient
from gymnasium_solver.fast.optimizer import FlatOptimizer
from gymnasium_solver.fast.recorded import LossGradient
from gymnasium_solver.tree import leaves_of


class JoinedSteps:
    """Gradient steps of a learner whose `learn` is one gradient, one optimiser step and one target
    network. Outputs of the loss that are numbers become metrics."""

    def __init__(
        self,
        learner: OffPolicyLearner,
        gradient: LossGradient,
        optimizer: FlatOptimizer,
        names: tuple[str, ...],
    ):
        self.learner, self.gradient, self.optimizer = learner, gradient, optimizer
        self.names = (*names, "opt/grads/norm/all")

    def __call__(
        self, n_updates: int, hp: dict[str, float], target: tuple[Tensor, float] | None
    ) -> dict[str, Any]:
        learner, timer = self.learner, self.learner.timer
        memory, found = learner.memory, list[Tensor]()
        assert memory is not None
        details: dict[str, float] = {}
        samples = memory.gathered(n_updates, *learner.reward_shaping())
        for sample in timer.each("sample", samples):
            first = learner.on_device(rows_of(sample, slice(memory.batch_size)))
            if learner.take_details():
                details = learner.details(first)
            # After a resume the program is not there yet.
            native = self.gradient.compiled(first, ())
            if native is None:
                found += self._one_by_one(sample, hp)
            else:
                found.append(self._together(native, sample, hp, target))
        means = torch.cat(found).mean(0).tolist()
        return dict(zip(self.names, means, strict=True)) | details

    def _together(
        self,
        native: NativeGradient,
        sample: Sample,
        hp: dict[str, float],
        target: tuple[Tensor, float] | None,
    ) -> Tensor:
        """A step for each batch of a sample; returns their metrics [steps, names]."""
        columns = leaves_of(self.learner.on_device(sample))
        parts = np.arange(len(sample.index)).reshape(-1, self.learner.config.batch_size)
        outputs = torch.empty(len(parts), len(self.names) - 1)
        with self.learner.timer.detail("gradient"):
            norms = native.descend(
                columns, list(parts), (), self.optimizer, hp["policy_lr"],
                outputs=outputs, target=target,
            )  # fmt: skip
        return torch.cat([outputs, norms.unsqueeze(1)], 1)

    def _one_by_one(self, sample: Sample, hp: dict[str, float]) -> list[Tensor]:
        size, rows = self.learner.config.batch_size, []
        for start in range(0, len(sample.index), size):
            part = rows_of(sample, slice(start, start + size))
            metrics = self.learner.learn(self.learner.on_device(part), part, hp)
            rows.append(torch.tensor([[float(metrics[name]) for name in self.names]]))
        return rows
