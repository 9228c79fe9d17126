"""CrossQ: SAC without target networks, using batch renormalisation (Bhatt et al. 2024).

The critics process (s, a) and (s', a') in one forward pass, so both are normalised by the
statistics of the same mixture. This makes targets from the online critics stable, and learning fast
with a low update-to-data ratio. Batch renormalisation precedes every linear layer of the critics
and the actor. Adam uses beta1 0.5, the actor is updated every third step, and the critics are wide.
Next actions, the critics in the actor's loss, and acting use running statistics. Differences from
the authors' code: truncated episodes bootstrap from their true final observation; log standard
deviations are clamped to [-20, 2]; layers use torch's default initialisation.

Discrete actions: the critics take the observation and give a value for each action, and
expectations over actions are exact, as in discrete SAC (Christodoulou 2019).
"""

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from gymnasium_solver.algos import soft
from gymnasium_solver.algos.configs.crossq import CrossQConfig
from gymnasium_solver.algos.continuous import (
    Loss,
    actor_turn,
    next_values,
    noisy_policy,
    taken_values,
)
from gymnasium_solver.algos.replay_learner import ReplayLearner
from gymnasium_solver.fast.descent import Descent
from gymnasium_solver.fast.program import Hp, Learnt
from gymnasium_solver.nets.actor_critics import ActorCritics
from gymnasium_solver.policies.continuous import SoftPolicy

ALPHA_BETA1 = 0.9  # Adam's, of the temperature


class CrossQ(ReplayLearner):
    Config = CrossQConfig
    config: CrossQConfig
    net: ActorCritics
    policy: SoftPolicy
    n_actions: int  # 0 for a Box

    def build(self) -> None:
        self.net = soft.build_soft_networks(self, norm="renorm")
        self.policy = noisy_policy(self, SoftPolicy, self.config.noise_correlation)
        self.actor = self.add_descent("policy", self.actor_loss, self.net.actor)
        self.critic = self.add_descent("critic", self.critic_loss, self.net.critic)
        self.alpha = soft.add_alpha(self, beta1=ALPHA_BETA1)
        turn = lambda: actor_turn(self)  # noqa: E731
        self.program = self.add_program(self.step, turn=turn, one_graph=False)

    def critic_loss(self, batch: Any, c: Mapping[str, Tensor]) -> Loss:
        loss = soft.discrete_critic_loss if self.n_actions else soft.critic_loss
        return loss(self.net, None, batch, c)

    def actor_loss(self, batch: Any, c: Mapping[str, Tensor]) -> Loss:
        loss = soft.discrete_actor_loss if self.n_actions else soft.actor_loss
        return loss(self.net, batch, c)

    def step(self, batch: Any, hp: Hp, trains_actor: bool) -> Learnt:
        """Update the critics and, every `policy_delay` steps, the actor and the temperature."""
        metrics, errors = soft.train_critics(self, batch, hp, self._bounds(self.critic))
        if trains_actor:
            metrics |= soft.train_actor(self, batch, hp, self.critic, self._bounds(self.actor))
        return Learnt(metrics, errors)

    def _bounds(self, descent: Descent) -> dict[str, float]:
        """Bounds on r and d of a network after its updates so far."""
        cfg = self.config
        if descent.optimizer.n_steps < cfg.renorm_warmup:
            return {"r_max": 1.0, "d_max": 0.0}
        return {"r_max": cfg.renorm_r_max, "d_max": cfg.renorm_d_max}

    forward_all, next_values = taken_values, next_values
