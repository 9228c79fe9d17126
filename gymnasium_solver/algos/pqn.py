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

from gymnasium_solver.algos import ops
from gymnasium_solver.algos.configs.pqn import PQNConfig
from gymnasium_solver.algos.learner import Learner, hp_metrics
from gymnasium_solver.algos.q_targets import QBatch, QFit, build_q_network
from gymnasium_solver.data.rollout import Rollout
from gymnasium_solver.nets.q_network import QNetwork
from gymnasium_solver.policies.q_policy import QPolicy, legal
from gymnasium_solver.spaces.observations import Space


class PQN(Learner):
    Config = PQNConfig
    takes_stale = True  # Q-learning is off-policy
    net: QNetwork
    policy: QPolicy

    def __init__(
        self,
        config: PQNConfig,
        observation_space: Space,
        action_space: Space,
        seed: int,
        device: str = "cpu",
    ):
        super().__init__(config, observation_space, action_space, seed, device)
        self.config: PQNConfig = config
        self.net, self.policy, optimizer = build_q_network(
            self, "epsilon_greedy", layer_norm=config.layer_norm
        )
        self.fit = QFit(self, self.net, optimizer)

    def before_rollout(self, env_steps: int, total_steps: int) -> None:
        self.policy.epsilon = self.config.epsilon.at(env_steps, total_steps)

    def update(self, rollout: Rollout, env_steps: int, total_steps: int) -> dict[str, float]:
        """Update from one rollout and return the metrics."""
        with self.observing(rollout):
            return self._update(rollout, env_steps, total_steps)

    def _update(self, rollout: Rollout, env_steps: int, total_steps: int) -> dict[str, float]:
        cfg, hp = self.config, self.scheduled_values(env_steps, total_steps)
        batch = self._prepare(rollout)
        metrics = self.fit(batch, cfg.n_epochs, cfg.batch_size, hp["policy_lr"], rollout.valid.size)
        return metrics | hp_metrics(hp)

    def _prepare(self, rollout: Rollout) -> QBatch:
        """The rollout's valid rows with the targets of Q(s, a)."""
        cfg, q = self.config, self.fit.values(rollout)
        mask = None if rollout.mask is None else rollout.mask[1:]
        target = ops.lambda_returns(
            self.normalized_reward(rollout), legal(q[1:], mask).max(axis=2),
            rollout.terminated, rollout.truncated, rollout.valid, cfg.gamma, cfg.td_lambda,
        )  # fmt: skip
        return self.fit.batch(rollout, target)
