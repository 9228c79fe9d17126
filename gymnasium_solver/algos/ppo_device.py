"""PPO's update from a rollout on the learner's device (device_update.py)."""

from collections.abc import Hashable, Mapping
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from gymnasium_solver import processes
from gymnasium_solver.algos.device_update import MEASURED_ROWS, DeviceUpdate
from gymnasium_solver.algos.policy_loss import MEASURED, Batch, evaluate_actions, scaled_losses
from gymnasium_solver.algos.units import unit_metrics
from gymnasium_solver.data.device_rollout import DeviceRollout

if TYPE_CHECKING:
    from gymnasium_solver.algos.ppo import PPO


class PPODeviceUpdate(DeviceUpdate):
    learner: "PPO"
    _measured_rows: Batch | None = None  # those of the newest update

    def reasons(self) -> dict[str, bool]:
        cfg = self.learner.config
        return {
            "sde": cfg.sde,
            "target_kl": cfg.target_kl is not None,
            "recompute_advantages": cfg.recompute_advantages,
            "normalize_advantages: percentile": cfg.normalize_advantages == "percentile",
            "normalize_values": cfg.normalize_values,
            **super().reasons(),
        }

    def settings(self) -> Hashable:
        cfg = self.learner.config
        return cfg.gamma, cfg.gae_lambda, cfg.n_epochs, cfg.batch_size, cfg.normalize_advantages

    def learn(self, rollout: DeviceRollout, hp: Mapping[str, Any]) -> dict[str, Tensor]:
        learner = self.learner
        c = {name: hp[name] for name in learner.numbers}
        batch = self._batch(rollout)
        found = self.passes(batch, c, hp["policy_lr"], self._standardized)
        return self._measured(batch, c, hp, torch.cat([steps.norms for steps in found]).mean())

    @torch.no_grad()
    def _batch(self, rollout: DeviceRollout) -> Batch:
        learner, cfg = self.learner, self.learner.config
        obs, advantage, value = self.advantages(rollout, learner.net.value, cfg.gae_lambda)
        returns = advantage + value
        if cfg.normalize_advantages == "rollout":
            advantage = _standardized(advantage)
        elif cfg.normalize_advantages == "symlog":
            advantage = advantage.sign() * advantage.abs().log1p()
        actions, log_prob = rollout.actions.flatten(0, 1), rollout.log_prob.flatten()
        return Batch(obs, actions, log_prob, advantage, returns, value)

    def _standardized(self, batch: Batch, parts: list[slice]) -> Batch:
        """With advantages that are standardised within each minibatch, if the config says so."""
        if self.learner.config.normalize_advantages != "batch":
            return batch
        scaled = torch.cat([_standardized(batch.advantage[part]) for part in parts])
        return batch._replace(advantage=scaled)

    @torch.no_grad()
    def _measured(
        self, batch: Batch, c: Mapping[str, Any], hp: Mapping[str, Any], norm: Tensor
    ) -> dict[str, Tensor]:
        """The metrics of the policy after the update, on evenly spaced rows."""
        stride = -(-len(batch.returns) // MEASURED_ROWS)
        some = batch.take(slice(None, None, stride))
        self._measured_rows = some
        numbers = [x if isinstance(x, Tensor) else torch.tensor(x) for x in c.values()]
        found = dict(zip(MEASURED, self.learner.measured(some, numbers), strict=False))
        variance = batch.returns.var(correction=0)
        left = (batch.returns - batch.value).var(correction=0)
        return found | {
            "opt/grads/norm/all": norm,
            **scaled_losses(found, hp),
            "opt/ppo/kl_stop_triggered": torch.zeros_like(norm),
            "opt/value/explained_var": torch.where(variance == 0, torch.nan, 1 - left / variance),
        }

    def details(self, hp: Mapping[str, float]) -> dict[str, float]:
        """Gradient norms by part of the network and hidden units, on the measured rows."""
        net, kind, rows = self.learner.net, self.learner.actions, self._measured_rows
        assert rows is not None
        numbers = {name: hp[name] for name in self.learner.numbers}
        units = unit_metrics(net, rows.obs, lambda: evaluate_actions(net, kind, rows))
        return self.descent.gradient_norms(rows, numbers) | units


def _standardized(x: Tensor) -> Tensor:
    _, mean, var = processes.moments(x)
    return (x - mean) / (var.sqrt() + 1e-8)
