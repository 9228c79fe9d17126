"""SARSA: on-policy TD learning with the next action taken (Rummery and Niranjan 1994).

It learns the value of its own exploring policy, not of the optimal one. One pass over each rollout,
one gradient step per minibatch, no replay buffer and no target net. `td_lambda` above 0 makes it
SARSA(lambda). Differences from common implementations:
- If no next action was taken (final observation of a truncated episode, last row of the rollout),
  it is sampled from the exploring policy. The common shift of the actions by one row would use the
  first action of the next episode, or action 0.
- Epsilon-greedy draws independently for each env. Illegal actions are never taken or sampled.
"""

import numpy as np

from gymnasium_solver.algos import ops
from gymnasium_solver.algos.configs.sarsa import SarsaConfig
from gymnasium_solver.algos.learner import Learner
from gymnasium_solver.algos.q_learning import QFit, build_q_network
from gymnasium_solver.data.rollout import Rollout
from gymnasium_solver.nets.q_network import QNetwork
from gymnasium_solver.policies.q_policy import QPolicy
from gymnasium_solver.spaces.observations import Obs, map_obs


class Sarsa(Learner):
    Config = SarsaConfig
    config: SarsaConfig
    net: QNetwork
    policy: QPolicy

    def build(self) -> None:
        cfg = self.config
        self.net, self.policy = build_q_network(self, cfg.exploration)
        self.fit = QFit(self)

    def before_rollout(self, env_steps: int, total_steps: int) -> None:
        self.policy.epsilon = self.config.epsilon.at(env_steps, total_steps)
        self.policy.temperature = self.config.temperature.at(env_steps, total_steps)

    def learn(self, rollout: Rollout, hp: dict[str, float]) -> dict[str, float]:
        return self.fit(rollout, self._targets(rollout), 1, hp["policy_lr"])

    def _targets(self, rollout: Rollout) -> np.ndarray:
        """Targets [T, N] of Q(s, a)."""
        cfg, q = self.config, self.fit.values(rollout)
        next_actions = self._next_actions(rollout)[..., None]
        next_q = np.take_along_axis(q[1:], next_actions, axis=2)[..., 0]
        return ops.lambda_returns(
            self.rewards(rollout), next_q,
            rollout.terminated, rollout.truncated, rollout.valid, cfg.gamma, cfg.td_lambda,
        )  # fmt: skip

    def _next_actions(self, rollout: Rollout) -> np.ndarray:
        """The action after each row [T, N]: the one taken, or a sample where none was taken."""
        next_actions = np.zeros_like(rollout.actions)
        next_actions[:-1] = rollout.actions[1:]
        was_taken = ~rollout.done
        was_taken[:-1] &= rollout.valid[1:]
        was_taken[-1] = False
        draws = rollout.valid & ~was_taken & ~rollout.terminated
        if draws.any():
            mask = None if rollout.mask is None else rollout.mask[1:][draws]
            obs: Obs = map_obs(lambda part: part[1:][draws], rollout.obs)
            firsts = rollout.is_first[1:][draws]
            # Not from the acting stream: learning must not change which actions are sampled.
            acting_rng, self.policy.rng = self.policy.rng, self.rng
            try:
                next_actions[draws] = self.policy.sample(obs, {}, firsts, mask).actions
            finally:
                self.policy.rng = acting_rng
        return next_actions
