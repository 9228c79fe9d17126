"""PQN: parallelised Q-learning without replay buffer and target net (Gallici et al. 2024).

Many parallel envs replace the replay buffer, and layer normalisation replaces the target net. An
update computes the Q(lambda) returns of the rollout with the current net, then fits Q(s, a) to them
in `n_epochs` passes over shuffled minibatches. Differences from the authors' code:
- Truncated episodes bootstrap from their true final observation (see ops.lambda_returns).
- Adam instead of RAdam. The `warmup` of a learning-rate schedule has the same effect as RAdam's
  built-in warm-up.
- Epsilon-greedy draws independently for each env. Illegal actions are neither taken nor used in the
  bootstrap.
- Rewards are scaled by normalize_reward instead of a constant.
"""

from collections.abc import Hashable, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from gymnasium_solver.algos import ops
from gymnasium_solver.algos.configs.pqn import PQNConfig
from gymnasium_solver.algos.device_update import MEASURED_ROWS, DeviceUpdate
from gymnasium_solver.algos.learner import Learner
from gymnasium_solver.algos.policy_loss import Batch
from gymnasium_solver.algos.q_learning import QFit, build_q_network
from gymnasium_solver.data.device_rollout import DeviceRollout
from gymnasium_solver.data.rollout import Rollout
from gymnasium_solver.nets.q_network import QNetwork
from gymnasium_solver.policies.q_policy import QPolicy, legal


class PQN(Learner):
    Config = PQNConfig
    takes_stale = True  # Q-learning is off-policy
    config: PQNConfig
    net: QNetwork
    policy: QPolicy
    device_update: "PQNDeviceUpdate"

    def build(self) -> None:
        self.net, self.policy = build_q_network(self, "epsilon_greedy")
        self.fit = QFit(self)
        self.device_update = PQNDeviceUpdate(self, self.fit.descent)

    def before_rollout(self, env_steps: int, total_steps: int) -> None:
        self.policy.epsilon = self.config.epsilon.at(env_steps, total_steps)

    def learn(self, rollout: Rollout, hp: dict[str, float]) -> dict[str, float]:
        return self.fit(rollout, self._targets(rollout), self.config.n_epochs, hp["policy_lr"])

    def _targets(self, rollout: Rollout) -> np.ndarray:
        """Targets [T, N] of Q(s, a)."""
        cfg, q = self.config, self.fit.values(rollout)
        mask = None if rollout.mask is None else rollout.mask[1:]
        return ops.lambda_returns(
            self.rewards(rollout), legal(q[1:], mask).max(axis=2),
            rollout.terminated, rollout.truncated, rollout.valid, cfg.gamma, cfg.td_lambda,
        )  # fmt: skip


class PQNDeviceUpdate(DeviceUpdate):
    learner: PQN

    def settings(self) -> Hashable:
        cfg = self.learner.config
        return cfg.gamma, cfg.td_lambda, cfg.n_epochs, cfg.batch_size

    def learn(self, rollout: DeviceRollout, hp: Mapping[str, Any]) -> dict[str, Tensor]:
        cfg, net = self.learner.config, self.learner.net
        # The Q(lambda) returns are GAE of the best values, and these values.
        obs, advantage, value = self.advantages(
            rollout, lambda part: net(part).amax(1), cfg.td_lambda
        )
        batch = self._newest = Batch(obs, rollout.actions.flatten(), returns=advantage + value)
        found = self.passes(batch, {}, hp["policy_lr"])
        outputs = torch.cat([steps.values for steps in found]).mean(0)
        norm = torch.cat([steps.norms for steps in found]).mean()
        return {**dict(zip(found[0].names, outputs, strict=True)), self.descent.norm: norm}

    def details(self, hp: Mapping[str, float]) -> dict[str, float]:
        stride = -(-self._newest.n // MEASURED_ROWS)
        return self.learner.fit.details(self._newest.take(slice(None, None, stride)))
