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

import numpy as np

from gymnasium_solver.algos import ops
from gymnasium_solver.algos.configs.pqn import PQNConfig
from gymnasium_solver.algos.learner import Learner, hp_metrics
from gymnasium_solver.algos.q_learning import QFit, build_q_network
from gymnasium_solver.data.rollout import Rollout
from gymnasium_solver.nets.q_network import QNetwork
from gymnasium_solver.policies.q_policy import QPolicy, legal


class PQN(Learner):
    Config = PQNConfig
    takes_stale = True  # Q-learning is off-policy
    config: PQNConfig
    net: QNetwork
    policy: QPolicy

    def build(self) -> None:
        self.net, self.policy = build_q_network(self, "epsilon_greedy")
        self.fit = QFit(self)

    def before_rollout(self, env_steps: int, total_steps: int) -> None:
        self.policy.epsilon = self.config.epsilon.at(env_steps, total_steps)

    def update(self, rollout: Rollout, env_steps: int, total_steps: int) -> dict[str, float]:
        """Update from one rollout and return the metrics."""
        hp = self.scheduled_values(env_steps, total_steps)
        with self.observing(rollout):
            target = self._targets(rollout)
            metrics = self.fit(rollout, target, self.config.n_epochs, hp["policy_lr"])
        return metrics | hp_metrics(hp)

    def _targets(self, rollout: Rollout) -> np.ndarray:
        """Targets [T, N] of Q(s, a)."""
        cfg, q = self.config, self.fit.values(rollout)
        mask = None if rollout.mask is None else rollout.mask[1:]
        return ops.lambda_returns(
            self.rewards(rollout), legal(q[1:], mask).max(axis=2),
            rollout.terminated, rollout.truncated, rollout.valid, cfg.gamma, cfg.td_lambda,
        )  # fmt: skip
