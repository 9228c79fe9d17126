"""Fitting action values to targets computed from a rollout: what PQN and SARSA share."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from gymnasium_solver.algos import ops
from gymnasium_solver.data.rollout import Rollout
from gymnasium_solver.fast.optimizer import FlatOptimizer
from gymnasium_solver.fast.recorded import LossGradient
from gymnasium_solver.nets.encoder import upload
from gymnasium_solver.nets.q_network import QNetwork


class Batch(NamedTuple):
    x: Tensor  # encoded observations [B, width]
    actions: Tensor  # [B]
    target: Tensor  # what Q(s, a) should be [B]

    def take(self, index: Tensor) -> "Batch":
        return Batch(*(column[index] for column in self))


def q_loss(net: QNetwork, batch: Batch) -> tuple[Tensor, Tensor]:
    """Mean square error of Q(s, a), and the mean of Q(s, a)."""
    q = net(batch.x).gather(1, batch.actions.unsqueeze(1)).squeeze(1)
    return (q - batch.target).square().mean(), q.mean()


class QFit:
    """Gradient steps of a net towards targets."""

    def __init__(self, net: QNetwork, optimizer: FlatOptimizer, device: torch.device, record: bool):
        self.net, self.optimizer, self.device = net, optimizer, device
        self.gradient = LossGradient(self._loss, optimizer.params, record=record)

    def _loss(
        self, columns: Sequence[Tensor], coefficients: Sequence[Tensor]
    ) -> tuple[Tensor, list[Tensor]]:
        loss, q_mean = q_loss(self.net, Batch(*columns))
        return loss, [loss, q_mean]

    def values(self, rollout: Rollout) -> tuple[Tensor, np.ndarray]:
        """All observations of a rollout encoded [(T + 1) N, width], and their Q [T + 1, N, A]."""
        obs = rollout.obs.reshape(-1, *rollout.obs.shape[2:])
        with torch.no_grad():
            if rollout.device_obs is not None:
                x = self.net.encode(rollout.device_obs.flatten(0, 1))
            else:
                x = self.net.encoded(obs, self.device)
            q = self.net.forward_parts(x).cpu().numpy().reshape(*rollout.obs.shape[:2], -1)
        return x, q

    def batch(self, rollout: Rollout, x: Tensor, target: np.ndarray) -> Batch:
        """The rollout's valid rows, with targets [T, N]."""
        valid = rollout.valid
        rows, actions, wanted = np.flatnonzero(valid), rollout.actions[valid], target[valid]
        rows_t, actions_t, wanted_t = (
            upload(array, self.device) for array in (rows, actions, wanted)
        )
        return Batch(x[rows_t], actions_t, wanted_t)

    def __call__(
        self,
        batch: Batch,
        n_epochs: int,
        batch_size: int,
        lr: float,
        rng: np.random.Generator,
        n_rows: int | None = None,
    ) -> dict[str, float]:
        """So many passes over shuffled minibatches; the metrics, averaged over the steps.

        `n_rows` of the rollout decide the sizes of minibatches on a GPU (ops.minibatches)."""
        terms = []
        n_rows = n_rows if self.device.type == "cuda" else None
        for _ in range(n_epochs):
            for index in ops.minibatches(len(batch.x), batch_size, rng, n_rows):
                part = batch
                if index is not None:
                    part = batch.take(upload(index, self.device))
                grad, loss, q_mean = self.gradient(part, [])
                norm = self.optimizer.step(grad, lr)
                terms.append(torch.stack([loss, q_mean, norm]))
        loss, q_mean, norm = torch.stack(terms).mean(0).tolist()
        return {"opt/loss/td": loss, "opt/q/mean": q_mean, "opt/grads/norm/all": norm}
