"""Shared parts of the Q-learning algorithms PQN, SARSA and DQN.

`build_q_network` creates a Q-network and its policy. `QFit` fits the network to targets computed
from a rollout (PQN, SARSA).
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from gymnasium_solver.algos import ops
from gymnasium_solver.algos.learner import Learner
from gymnasium_solver.algos.on_policy import sequence_cut
from gymnasium_solver.algos.units import watch_units
from gymnasium_solver.data.rollout import Rollout
from gymnasium_solver.fast.optimizer import FlatOptimizer, Optimizer
from gymnasium_solver.fast.recorded import on_device
from gymnasium_solver.nets.encoder import in_chunks
from gymnasium_solver.nets.q_network import QNetwork
from gymnasium_solver.nets.recurrent import Recurrence
from gymnasium_solver.policies.q_policy import Exploration, QPolicy
from gymnasium_solver.spaces.action_dists import require_discrete
from gymnasium_solver.tree import leaves_of, map_tree


def build_q_network(
    learner: Learner, exploration: Exploration, **options: Any
) -> tuple[QNetwork, QPolicy, Optimizer]:
    """Build the Q-network described by the config, its policy and its optimiser."""
    cfg = learner.config
    actions = require_discrete(learner.action_space, cfg.algo_id, cfg.env_id)
    recurrence = None
    if getattr(cfg, "recurrent", None) is not None:
        recurrence = Recurrence(cfg.recurrent, cfg.recurrent_dim)
    net = QNetwork(
        learner.observation_space,
        actions.n,
        learner.network,
        normalize_obs=cfg.obs_normalization,
        clip_obs=cfg.clip_obs,
        recurrence=recurrence,
        generator=learner.generator,
        **options,
    ).to(learner.device)
    policy = QPolicy(
        net,
        learner.observation_space,
        actions,
        learner.act_rng,
        exploration,
        record=learner.may_record_acting,
        compile=learner.compiles,
    )
    learner.forwards["act"] = policy.explorer
    # Initial values, until a checkpoint or the training schedule sets them.
    last = {name: schedule.values[-1] for name, schedule in learner.schedules.items()}
    policy.epsilon, policy.temperature = last.get("epsilon", 0.0), last.get("temperature", 1.0)
    read_by = {"epsilon": "epsilon_greedy", "temperature": "boltzmann"}
    learner.ignore(*(name for name, kind in read_by.items() if kind != exploration))
    return net, policy, learner.add_optimizer("q", net.q)


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


def take_rows_of(batch: QBatch, index: Tensor) -> QBatch:
    part: QBatch = map_tree(lambda column: column[index], batch)
    return part


class QFit:
    """Gradient steps that fit a Q-network to targets."""

    def __init__(self, learner: Learner, net: QNetwork, optimizer: Optimizer):
        self.learner, self.net, self.optimizer = learner, net, optimizer
        is_short = getattr(learner.config, "has_short_sequences", True)
        self.gradient = learner.add_gradient("q", self._loss, optimizer, record=is_short)

    def _loss(self, batch: QBatch, coefficients: Sequence[Tensor]) -> tuple[Tensor, list[Tensor]]:
        loss, q_mean = q_loss(self.net, batch)
        return loss, [loss, q_mean]

    def values(self, rollout: Rollout) -> np.ndarray:
        """Q-values of all observations of a rollout [T + 1, N, A]; with a recurrent core, each with
        the carry of the acting policy."""
        device = self.learner.device
        rows = map_tree(lambda part: part.flatten(0, 1), rollout.obs_on(device))
        if self.net.q.core is None:
            q: Tensor = in_chunks(self.net, rows, self.net.has_images)
        else:
            carry, first = (
                on_device(x, device).flatten(0, 1)
                for x in (rollout.carry["core"], rollout.is_first)
            )
            given = (rows, carry, first)
            q = in_chunks(lambda parts: self.net.step(*parts)[0], given, self.net.has_images)
        return q.cpu().numpy().reshape(*rollout.is_first.shape, -1)

    def batch(self, rollout: Rollout, target: np.ndarray) -> QBatch:
        """The rollout's valid rows, with targets [T, N]."""
        learner, valid = self.learner, rollout.valid
        if self.net.q.core is not None:
            cut = sequence_cut(learner, rollout)
            return QBatch(
                map_tree(cut, rollout.obs_on(learner.device)),
                cut(learner.to_device(rollout.actions)),
                cut(learner.to_device(target)),
                cut.valid(learner.to_device(valid)),
                cut(learner.to_device(rollout.is_first)),
                cut.starts(learner.to_device(rollout.carry["core"])),
            )
        rows = learner.to_device(np.flatnonzero(valid))
        obs = rollout.obs_on(learner.device)
        return QBatch(
            map_tree(lambda part: part[:-1].flatten(0, 1)[rows], obs),
            learner.to_device(rollout.actions[valid]),
            learner.to_device(target[valid]),
        )

    def __call__(
        self, batch: QBatch, n_epochs: int, batch_size: int, lr: float, n_rows: int
    ) -> dict[str, float]:
        """Do `n_epochs` passes over shuffled minibatches and return the mean metrics.

        On a GPU the minibatch sizes are those for `n_rows` samples (see ops.minibatches).
        """
        learner = self.learner
        fixed_rows = n_rows if learner.device.type == "cuda" else None
        if batch.valid is not None:  # a minibatch is of whole sequences
            batch_size, fixed_rows = max(1, round(batch_size / batch.valid.shape[1])), None
        parts = [
            index
            for _ in range(n_epochs)
            for index in ops.minibatches(len(batch.target), batch_size, learner.rng, fixed_rows)
        ]
        native = None
        if self.gradient.mode == "compiled" and isinstance(self.optimizer, FlatOptimizer):
            # After a resume the program is not there yet.
            native = self.gradient.compiled(self._part(batch, parts[0]), ())
        steps = self._one_by_one if native is None else self._together
        terms, details = steps(batch, parts, lr, learner.take_details())
        learner.n_updates += 1
        loss, q_mean, norm = terms.mean(0).tolist()
        metrics = {"opt/loss/td": loss, "opt/q/mean": q_mean, "opt/grads/norm/all": norm}
        return metrics | details

    def _one_by_one(
        self, batch: QBatch, parts: list[np.ndarray | None], lr: float, is_detailed: bool
    ) -> tuple[Tensor, dict[str, float]]:
        """A gradient step for each minibatch. Returns loss, mean of Q and norm [steps, 3], and
        details."""
        timer, terms = self.learner.timer, list[Tensor]()
        details: dict[str, float] = {}
        for index in parts:
            part = self._part(batch, index)
            with timer.detail("gradient"):
                grad, loss, q_mean = self.gradient(part, [])
            if is_detailed and not terms:
                details = self._details(part, grad)
            with timer.detail("optimiser"):
                norm = self.optimizer.step(grad, lr)
            terms.append(torch.stack([loss, q_mean, norm]))
        return torch.stack(terms), details

    def _together(
        self, batch: QBatch, parts: list[np.ndarray | None], lr: float, is_detailed: bool
    ) -> tuple[Tensor, dict[str, float]]:
        """The same bits in one call of the compiled program."""
        native, optimizer, details = self.gradient.native, self.optimizer, dict[str, float]()
        assert native is not None
        assert isinstance(optimizer, FlatOptimizer)
        if is_detailed:
            first = self._part(batch, parts[0])
            details = self._details(first, self.gradient(first, [])[0])
        outputs = torch.empty(len(parts), 2)
        with self.learner.timer.detail("gradient"):
            norms = native.descend(leaves_of(batch), parts, (), optimizer, lr, outputs=outputs)
        return torch.cat([outputs, norms.unsqueeze(1)], 1), details

    def _part(self, batch: QBatch, index: np.ndarray | None) -> QBatch:
        return batch if index is None else take_rows_of(batch, self.learner.to_device(index))

    @torch.no_grad()
    def _details(self, part: QBatch, grad: Tensor) -> dict[str, float]:
        """Metrics that cost time, from the first minibatch."""
        with watch_units(self.net) as units:
            q_loss(self.net, part)
        norms = self.optimizer.part_norms(grad)
        found = {f"opt/grads/norm/{name}": norm for name, norm in norms.items()}
        target = part.target
        return {
            **found,
            "roll/return/mean": float(target.mean()),
            "roll/return/std": float(target.std(correction=0)),
            **units.metrics(part.obs),
        }
