"""Shared parts of Q-learning: building a Q-network, and fitting it to targets from a rollout.

net, policy = build_q_network(learner, "epsilon_greedy")       # DQN, PQN, SARSA
fit = QFit(learner)                                            # PQN, SARSA
metrics = fit(rollout, target, n_epochs, lr)
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from gymnasium_solver.algos.learner import Learner
from gymnasium_solver.algos.on_policy import learnt_columns, outputs_by_torch
from gymnasium_solver.algos.units import watch_units
from gymnasium_solver.data.rollout import Rollout
from gymnasium_solver.fast.descent import Part
from gymnasium_solver.nets.q_network import QNetwork
from gymnasium_solver.policies.q_policy import Exploration, QPolicy
from gymnasium_solver.spaces.action_dists import require_discrete
from gymnasium_solver.tree import map_tree


def build_q_network(
    learner: Learner, exploration: Exploration, **options: Any
) -> tuple[QNetwork, QPolicy]:
    """Build the Q-network described by the config, and its policy."""
    cfg = learner.config
    actions = require_discrete(learner.action_space, cfg.algo_id, cfg.env_id)
    net = QNetwork(
        learner.observation_space,
        actions.n,
        learner.network,
        generator=learner.generator,
        **options,
    ).to(learner.device)
    policy: QPolicy = learner.make_policy(QPolicy, net, exploration)
    learner.forwards["act"] = policy.explorer
    # Initial values, until a checkpoint or the training schedule sets them.
    last = {name: schedule.values[-1] for name, schedule in learner.schedules.items()}
    policy.epsilon, policy.temperature = last.get("epsilon", 0.0), last.get("temperature", 1.0)
    read_by = {"epsilon": "epsilon_greedy", "temperature": "boltzmann"}
    learner.ignore(*(name for name, kind in read_by.items() if kind != exploration))
    return net, policy


class QBatch(NamedTuple):
    """Rows [B, ...], or with a recurrent core sequences [S, L, ...]."""

    obs: Any  # tree of tensors
    actions: Tensor
    target: Tensor  # target of Q(s, a)
    # Set for sequences only:
    valid: Tensor | None = None  # [S, L]: rows to learn from
    is_first: Tensor | None = None  # [S, L]
    carry: Tensor | None = None  # state before the first row [S, ...]


def q_loss(net: QNetwork, batch: QBatch) -> tuple[Tensor, Tensor]:
    """Mean squared error of Q(s, a), and the mean of Q(s, a)."""
    if batch.valid is None:
        q = net(batch.obs).gather(1, batch.actions.unsqueeze(1)).squeeze(1)
        return (q - batch.target).square().mean(), q.mean()
    assert batch.is_first is not None
    assert batch.carry is not None
    values = net.sequence(batch.obs, batch.carry, batch.is_first)
    q = values.gather(1, batch.actions.reshape(-1, 1)).squeeze(1)
    weight = batch.valid.flatten().to(q.dtype)
    n = weight.sum().clamp(min=1.0)
    error = (q - batch.target.flatten()).square()
    return (error * weight).sum() / n, (q * weight).sum() / n


class QFit:
    """Gradient steps that fit the Q-network of a learner to targets."""

    def __init__(self, learner: Learner):
        self.learner, self.net = learner, learner.net
        is_short = getattr(learner.config, "has_short_sequences", True)
        self.descent = learner.add_descent("q", self._loss, self.net.q, norm="all", record=is_short)

    def _loss(self, batch: QBatch, c: Mapping[str, Tensor]) -> tuple[Tensor, dict[str, Tensor]]:
        loss, q = q_loss(self.net, batch)
        return loss, {"opt/loss/td": loss, "opt/q/mean": q}

    def values(self, rollout: Rollout) -> np.ndarray:
        """Q-values of all observations of a rollout [T + 1, N, A]; with a recurrent core, each with
        the carry of the acting policy."""
        net, has_core = self.net, self.net.q.core is not None
        function = (lambda *given: net.step(*given)[0]) if has_core else net
        return outputs_by_torch(self.learner, rollout, function, has_core)

    def batch(self, rollout: Rollout, target: np.ndarray) -> QBatch:
        """The rollout's valid rows, with targets [T, N]."""
        columns = {"actions": rollout.actions, "target": target}
        has_core = self.net.q.core is not None
        return QBatch(**learnt_columns(self.learner, rollout, has_core, columns))

    def __call__(
        self, rollout: Rollout, target: np.ndarray, n_epochs: int, lr: float
    ) -> dict[str, float]:
        """Do `n_epochs` passes over shuffled minibatches and return the mean metrics."""
        learner, batch = self.learner, self.batch(rollout, target)
        size: int = learner.config.batch_size
        n_rows: int | None = rollout.valid.size
        if batch.valid is not None:  # a minibatch is of whole sequences
            size, n_rows = max(1, round(size / batch.valid.shape[1])), None
        parts: list[Part] = []
        for _ in range(n_epochs):
            parts += self.descent.minibatches(len(batch.target), size, learner.rng, n_rows)
        details = self._first_details(batch, parts[0]) if learner.take_details() else {}
        steps = self.descent(batch, {}, lr, parts)
        learner.n_updates += 1
        return steps.numbers() | details

    def _first_details(self, batch: QBatch, part: Part) -> dict[str, float]:
        index = slice(None) if part is None else self.learner.to_device(part)
        return self.details(map_tree(lambda column: column[index], batch))

    def details(self, batch: QBatch) -> dict[str, float]:
        """Metrics that cost time."""
        with torch.no_grad(), watch_units(self.net) as units:
            q_loss(self.net, batch)
        return {
            **self.descent.gradient_norms(batch, {}),
            "roll/return/mean": float(batch.target.mean()),
            "roll/return/std": float(batch.target.std(correction=0)),
            **units.metrics(batch.obs),
        }
