"""Shared parts of Q-learning: building a Q-network, and fitting it to targets from a rollout.

net, policy = build_q_network(learner, "epsilon_greedy")       # DQN, PQN, SARSA
fit = QFit(learner)                                            # PQN, SARSA
metrics = fit(rollout, target, n_epochs, lr)
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
from torch import Tensor

from gymnasium_solver.algos.learner import Learner
from gymnasium_solver.algos.on_policy import learnt_columns, outputs_by_torch
from gymnasium_solver.algos.policy_loss import Batch, flat, mean_over
from gymnasium_solver.algos.units import unit_metrics
from gymnasium_solver.data.rollout import Rollout
from gymnasium_solver.nets.q_network import QNetwork
from gymnasium_solver.policies.q_policy import Exploration, QPolicy
from gymnasium_solver.spaces.action_dists import require_discrete


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


def q_loss(net: QNetwork, batch: Batch) -> tuple[Tensor, Tensor]:
    """Mean squared error of Q(s, a) to the returns, and the mean of Q(s, a)."""
    if batch.is_sequence:
        assert batch.is_first is not None
        assert batch.carry is not None
        values = net.sequence(batch.obs, batch.carry, batch.is_first)
    else:
        values = net(batch.obs)
    q = values.gather(1, batch.actions.flatten().unsqueeze(1)).squeeze(1)
    return mean_over((q - flat(batch.returns, batch)).square(), batch), mean_over(q, batch)


class QFit:
    """Gradient steps that fit the Q-network of a learner to targets."""

    def __init__(self, learner: Learner):
        self.learner, self.net = learner, learner.net
        is_short = getattr(learner.config, "has_short_sequences", True)
        self.descent = learner.add_descent("q", self._loss, self.net.q, norm="all", record=is_short)

    def _loss(self, batch: Batch, c: Mapping[str, Tensor]) -> tuple[Tensor, dict[str, Tensor]]:
        loss, q = q_loss(self.net, batch)
        return loss, {"opt/loss/td": loss, "opt/q/mean": q}

    def values(self, rollout: Rollout) -> np.ndarray:
        """Q-values of all observations of a rollout [T + 1, N, A]; with a recurrent core, each with
        the carry of the acting policy."""
        net, has_core = self.net, self.net.q.core is not None
        function = (lambda *given: net.step(*given)[0]) if has_core else net
        return outputs_by_torch(self.learner, rollout, function, has_core)

    def batch(self, rollout: Rollout, target: np.ndarray) -> Batch:
        """The rollout's valid rows, with targets [T, N]."""
        columns = {"actions": rollout.actions, "returns": target}
        has_core = self.net.q.core is not None
        return Batch(**learnt_columns(self.learner, rollout, has_core, columns))

    def __call__(
        self, rollout: Rollout, target: np.ndarray, n_epochs: int, lr: float
    ) -> dict[str, float]:
        """Do `n_epochs` passes over shuffled minibatches and return the mean metrics."""
        learner, batch = self.learner, self.batch(rollout, target)
        size, n_rows = learner.config.batch_size, rollout.valid.size
        parts = [
            part
            for _ in range(n_epochs)
            for part in batch.minibatches(self.descent, size, learner.rng, n_rows)
        ]
        details: dict[str, float] = {}
        if learner.take_details():
            first = None if parts[0] is None else learner.to_device(parts[0])
            details = self.details(batch.take(first))
        steps = self.descent(batch, {}, lr, parts)
        learner.n_updates += 1
        return steps.numbers() | details

    def details(self, batch: Batch) -> dict[str, float]:
        """Metrics that cost time."""
        return {
            **self.descent.gradient_norms(batch, {}),
            "roll/return/mean": float(batch.returns.mean()),
            "roll/return/std": float(batch.returns.std(correction=0)),
            **unit_metrics(self.net, batch.obs, lambda: q_loss(self.net, batch)),
        }
