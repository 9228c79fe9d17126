"""TD3: twin delayed deep deterministic policy gradient (Fujimoto et al. 2018).

An update trains both critics on the minimum of the target critics, at the target actor's action
plus clipped noise (target policy smoothing). Every `policy_delay` updates, the actor is trained to
maximise the first critic, and the target networks are updated. Differences from common
implementations: truncated episodes bootstrap from their true final observation; noise is in the
policy's units, in which the action bounds are [-1, 1]; layers use torch's default initialisation.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from gymnasium_solver.algos import ops
from gymnasium_solver.algos.configs.td3 import TD3Config
from gymnasium_solver.algos.deterministic import DeterministicLearner
from gymnasium_solver.algos.off_policy import ReplayBatch
from gymnasium_solver.data.memory import Draw, Sample
from gymnasium_solver.nets.actor_critics import Actor, ActorCritics, Critics
from gymnasium_solver.spaces.observations import Space


def critic_loss(
    net: ActorCritics,
    target_actor: Actor,
    target_critic: Critics,
    batch: ReplayBatch,
    noise_std: Tensor,
    noise_clip: Tensor,
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the loss, the mean Q-value and the absolute TD errors [B]."""
    assert batch.noise is not None
    with torch.no_grad():
        next_x = net.encoder(batch.next_obs)
        smoothing = (batch.noise * noise_std).clamp(-noise_clip, noise_clip)
        next_actions = (torch.tanh(target_actor(next_x)) + smoothing).clamp(-1.0, 1.0)
        next_q = target_critic(next_x, next_actions).squeeze(2).amin(0)
        wanted = batch.reward + batch.discount * next_q
    q = net.critic(net.encoder(batch.obs), batch.actions).squeeze(2)
    return ops.critics_loss(q, wanted, batch.weight)


class TD3(DeterministicLearner):
    Config = TD3Config

    def __init__(
        self,
        config: TD3Config,
        observation_space: Space,
        action_space: Space,
        seed: int,
        device: str = "cpu",
    ):
        super().__init__(config, observation_space, action_space, seed, device, config.n_critics)
        self.config: TD3Config = config

    def critic_terms(
        self, batch: ReplayBatch, coefficients: Sequence[Tensor]
    ) -> tuple[Tensor, list[Tensor]]:
        terms = critic_loss(self.net, self.target_actor, self.target_critic, batch, *coefficients)
        return terms[0], list(terms)

    def step_kind(self) -> bool:
        """Whether the next gradient step trains the actor too."""
        return (self.critic_optimizer.n_steps + 1) % self.config.policy_delay == 0

    def learn(
        self, batch: ReplayBatch, sample: Sample | Draw, hp: dict[str, float]
    ) -> dict[str, Any]:
        """Update the critics and, every `policy_delay` steps, the actor and the target networks."""
        cfg = self.config
        noisy = batch._replace(noise=self.normal_noise(*batch.actions.shape))
        smoothing = [cfg.target_noise, cfg.target_noise_clip]
        critic_lr = hp.get("critic_lr", hp["policy_lr"])
        if not self.step_kind():
            return self.learn_critic(noisy, sample, smoothing, critic_lr)
        metrics = self.learn_critic(noisy, sample, smoothing, critic_lr, cfg.tau)
        return metrics | self.learn_actor(batch, hp["policy_lr"], cfg.tau)
