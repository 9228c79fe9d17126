"""CrossQ: SAC without target networks, using batch renormalisation (Bhatt et al. 2024).

The critics process (s, a) and (s', a') in one forward pass, so both are normalised by the
statistics of the same mixture. This makes targets from the online critics stable, and learning fast
with a low update-to-data ratio. Batch renormalisation precedes every linear layer of the critics
and the actor. Adam uses beta1 0.5, the actor is updated every third step, and the critics are wide.
Next actions, the critics in the actor's loss, and acting use running statistics. Differences from
the authors' code: truncated episodes bootstrap from their true final observation; log standard
deviations are clamped to [-20, 2]; layers use torch's default initialisation; only Box actions are
supported.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from gymnasium_solver.algos import ops
from gymnasium_solver.algos.configs.crossq import CrossQConfig
from gymnasium_solver.algos.off_policy import OffPolicyLearner, ReplayBatch
from gymnasium_solver.algos.soft import learn_alpha
from gymnasium_solver.data.memory import Draw, Sample
from gymnasium_solver.nets.actor_critics import ActorCritics, squash
from gymnasium_solver.nets.encoder import TensorObs
from gymnasium_solver.nets.renorm import take_moments, train_pass
from gymnasium_solver.policies.continuous import SoftPolicy
from gymnasium_solver.spaces.action_dists import require_bounded_box
from gymnasium_solver.spaces.observations import Space

ALPHA_BETA1 = 0.9  # Adam's, of the temperature


def critic_loss(
    net: ActorCritics, batch: ReplayBatch, alpha: Tensor, r_max: Tensor, d_max: Tensor
) -> tuple[list[Tensor], list[Tensor]]:
    """Return [loss, mean Q-value, absolute TD errors [B]] and the critics' batch statistics."""
    assert batch.noise is not None
    next_x = net.encoder(batch.next_obs)
    with torch.no_grad():
        next_actions, next_log_prob = squash(net.actor(next_x), batch.noise)
    now = net.critic.inputs(net.encoder(batch.obs), batch.actions)
    following = net.critic.inputs(next_x, next_actions)
    both, moments = train_pass(net.critic.mlps.layers, torch.cat([now, following]), r_max, d_max)
    halves = both.view(len(both), 2, -1)  # [n, current and next, B]
    next_value = halves[:, 1].detach().amin(0) - alpha * next_log_prob
    wanted = batch.reward + batch.discount * next_value
    return list(ops.critics_loss(halves[:, 0], wanted, batch.weight)), moments


def actor_loss(
    net: ActorCritics,
    obs: TensorObs,
    noise: Tensor,
    alpha: Tensor,
    r_max: Tensor,
    d_max: Tensor,
) -> tuple[list[Tensor], list[Tensor]]:
    """Return [loss, estimate of the entropy] and the actor's batch statistics."""
    x = net.encoder(obs)
    outputs, moments = train_pass(net.actor.layers, net.actor.features(x), r_max, d_max)
    actions, log_prob = squash(outputs, noise)
    q = net.critic(x, actions).squeeze(2).amin(0)
    return [(alpha * log_prob - q).mean(), -log_prob.detach().mean()], moments


class CrossQ(OffPolicyLearner):
    Config = CrossQConfig
    net: ActorCritics
    policy: SoftPolicy

    def __init__(
        self,
        config: CrossQConfig,
        observation_space: Space,
        action_space: Space,
        seed: int,
        device: str = "cpu",
    ):
        super().__init__(config, observation_space, action_space, seed, device)
        self.config: CrossQConfig = config
        self.width = require_bounded_box(action_space, "crossq", config.env_id).width
        self.net = ActorCritics(
            observation_space,
            self.network,
            n_actor_outputs=2 * self.width,
            n_critics=config.n_critics,
            n_critic_actions=self.width,
            critic_hidden_dims=config.critic_hidden_dims,
            alpha=config.first_alpha(is_discrete=False),
            renorm=True,
            normalize_obs=config.obs_normalization,
            clip_obs=config.clip_obs,
            generator=self.generator,
        ).to(self.device)
        self.policy = SoftPolicy(
            self.net,
            observation_space,
            self.actions,
            self.act_rng,
            config.noise_correlation,
            record=self.may_record_acting,
            compile=self.compiles,
        )
        self.forwards["act"] = self.policy.explorer
        self.actor_optimizer = self.add_optimizer("policy", self.net.actor)
        self.critic_optimizer = self.add_optimizer("critic", self.net.critic)
        if self.net.temperature is not None:
            free = {"max_grad_norm": None, "weight_decay": 0.0}
            self.alpha_optimizer = self.add_optimizer(
                "alpha", self.net.temperature, beta1=ALPHA_BETA1, **free
            )
        actor, critic = self.net.actor, self.net.critic
        self.critic_gradient = self.add_gradient(
            "critic",
            self._critic_loss,
            self.critic_optimizer,
            constants=[*actor.parameters(), *actor.buffers(), *critic.buffers()],
        )
        self.actor_gradient = self.add_gradient(
            "policy",
            self._actor_loss,
            self.actor_optimizer,
            constants=[*critic.parameters(), *critic.buffers(), *actor.buffers()],
        )

    def _critic_loss(
        self, batch: ReplayBatch, coefficients: Sequence[Tensor]
    ) -> tuple[Tensor, list[Tensor]]:
        terms, moments = critic_loss(self.net, batch, *coefficients)
        return terms[0], [*terms, *moments]

    def _actor_loss(
        self, batch: tuple[TensorObs, Tensor], coefficients: Sequence[Tensor]
    ) -> tuple[Tensor, list[Tensor]]:
        terms, moments = actor_loss(self.net, *batch, *coefficients)
        return terms[0], [*terms, *moments]

    # -- the update -------------------------------------------------------------------------

    def learn(
        self, batch: ReplayBatch, sample: Sample | Draw, hp: dict[str, float]
    ) -> dict[str, Any]:
        """Update the critics and, every `policy_delay` steps, the actor and the temperature."""
        net, timer = self.net, self.timer
        alpha = hp["ent_coef"] if net.temperature is None else net.temperature.alpha
        bounds = self._bounds(self.critic_optimizer.n_steps)
        noisy = batch._replace(noise=self.normal_noise(*batch.actions.shape))
        with timer.detail("gradient"):
            grad, loss, q_mean, error, *moments = self.critic_gradient(noisy, [alpha, *bounds])
        with timer.detail("optimiser"):
            norm = self.critic_optimizer.step(grad, hp.get("critic_lr", hp["policy_lr"]))
        take_moments(net.critic.mlps.layers, moments)
        metrics: dict[str, Any] = {
            "opt/loss/critic": loss,
            "opt/q/mean": q_mean,
            "opt/grads/norm/critic": norm,
        }
        self.set_priorities(sample, error)
        if self.critic_optimizer.n_steps % self.config.policy_delay == 0:
            metrics |= self._learn_actor(batch, alpha, hp)
        return metrics

    def _learn_actor(
        self, batch: ReplayBatch, alpha: float | Tensor, hp: dict[str, float]
    ) -> dict[str, Any]:
        """One gradient step of the actor and, if it is learnt, of the temperature."""
        cfg, net, timer = self.config, self.net, self.timer
        bounds = self._bounds(self.actor_optimizer.n_steps)
        noise = self.normal_noise(*batch.actions.shape)
        with timer.detail("gradient"):
            grad, loss, entropy, *moments = self.actor_gradient(
                (batch.obs, noise), [alpha, *bounds]
            )
        with timer.detail("optimiser"):
            norm = self.actor_optimizer.step(grad, hp["policy_lr"])
        take_moments(net.actor.layers, moments)
        metrics = {
            "opt/loss/policy": loss,
            "opt/grads/norm/policy": norm,
            "opt/policy/entropy": entropy,
            "opt/policy/alpha": alpha,
        }
        if net.temperature is not None:
            gap = entropy - hp.get("target_entropy", -self.width)
            lr = hp.get("alpha_lr", hp["policy_lr"])
            limits = (cfg.log_alpha_min, cfg.log_alpha_max)
            metrics["opt/loss/alpha"] = learn_alpha(
                net.temperature, self.alpha_optimizer, gap, lr, limits
            )
        return metrics

    def forward_all(self, batch: ReplayBatch) -> None:
        self.net(batch.obs, batch.actions)

    def _bounds(self, n_steps: int) -> tuple[float, float]:
        """Bounds on r and d after n updates."""
        cfg = self.config
        return (1.0, 0.0) if n_steps < cfg.renorm_warmup else (cfg.renorm_r_max, cfg.renorm_d_max)
