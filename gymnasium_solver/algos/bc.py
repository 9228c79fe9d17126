"""BC: behaviour cloning, supervised learning of the actions in demonstrations (Pomerleau 1989).

    gsolve record RUN --episodes 20 --out data/cartpole-v0
    gsolve train CartPole-v1:bc --dataset data/cartpole-v0

The environment is stepped in evaluations only. What a rollout is to other algorithms is here a
batch of demonstrated steps, drawn without replacement from pass to pass over the dataset. So the
clock of the run, `env_steps`, counts demonstrated steps learnt from, and budgets, schedules and
cadences mean what they mean elsewhere.

The network is the actor that PPO and A2C have, with the same names, so that they can start from the
weights of a bc run (`init_from_run`); SAC takes them over from `action_dist: squashed`.
"""

from collections.abc import Mapping

import torch
from torch import Tensor

from gymnasium_solver.algos.configs.bc import BCConfig
from gymnasium_solver.algos.learner import Learner
from gymnasium_solver.algos.on_policy import build_actor_critic
from gymnasium_solver.algos.policy_loss import Batch
from gymnasium_solver.algos.units import unit_metrics
from gymnasium_solver.data.rollout import Rollout
from gymnasium_solver.errors import ConfigError
from gymnasium_solver.nets.actor_critic import ActorCritic
from gymnasium_solver.nets.encoder import in_chunks
from gymnasium_solver.policies.policy import ActorPolicy
from gymnasium_solver.spaces.actions import ActionKind
from gymnasium_solver.spaces.observations import map_obs, take_rows

MOST_HELD_OUT = 8192  # held-out steps that the metrics of an epoch are computed on


def bc_loss(
    net: ActorCritic, actions: ActionKind, batch: Batch, ent_coef: Tensor, *, by_mode: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """Total loss, imitation loss and entropy. `by_mode`: the error of the most likely action."""
    outputs = net.actor(batch.obs)
    log_prob, entropy = actions.log_prob_entropy(outputs, net.log_std, batch.actions)
    loss = -log_prob.mean()
    spread = loss.new_zeros(())
    if by_mode:
        loss = actions.mode_error(outputs, net.log_std, batch.actions).mean()
        spread = actions.spread_loss(outputs, net.log_std, batch.actions).mean()
    return loss + spread - ent_coef * entropy.mean(), loss, entropy.mean()


class BC(Learner):
    Config = BCConfig
    config: BCConfig
    net: ActorCritic
    policy: ActorPolicy

    def build(self) -> None:
        cfg, is_real = self.config, self.actions.is_real
        if cfg.imitation_loss == "mse" and not is_real:
            raise ConfigError(
                f"imitation_loss: mse needs real-valued actions, not {self.action_space}; use nll"
            )
        self.by_mode = cfg.imitation_loss == "mse" or (cfg.imitation_loss == "auto" and is_real)
        self.net, self.policy = build_actor_critic(self, critic=False)
        self.descent = self.add_descent("policy", self.loss, self.net, norm="all")

    def loss(self, batch: Batch, c: Mapping[str, Tensor]) -> tuple[Tensor, dict[str, Tensor]]:
        total, loss, entropy = bc_loss(
            self.net, self.actions, batch, c["ent_coef"], by_mode=self.by_mode
        )
        found = {"opt/loss/total": total, "opt/loss/imitation": loss}
        return total, found | {"opt/policy/entropy": entropy}

    def learn(self, rollout: Rollout, hp: dict[str, float]) -> dict[str, float]:
        """One gradient step per minibatch of the rollout."""
        cfg, numbers = self.config, {"ent_coef": hp["ent_coef"]}
        data = Batch(
            map_obs(self.to_device, rollout.valid_obs()),
            self.to_device(rollout.actions[rollout.valid]),
        )
        n_rows = cfg.n_envs * cfg.n_steps
        parts = data.minibatches(self.descent, cfg.batch_size, self.rng, n_rows)
        details: dict[str, float] = {}
        if self.take_details():
            first = data.take(None if parts[0] is None else self.to_device(parts[0]))
            units = unit_metrics(self.net, first.obs, lambda: self.net.actor(first.obs))
            details = self.descent.gradient_norms(first, numbers) | units
        steps = self.descent(data, numbers, hp["policy_lr"], parts)
        self.n_updates += len(parts)
        return steps.numbers() | self._held_out_metrics() | details

    @torch.no_grad()
    def _held_out_metrics(self) -> dict[str, float]:
        """The loss on demonstrations that are not learnt from, and how often the most likely action
        is the demonstrated one."""
        demos = self.demonstrations
        if demos is None or not len(demos.held_out):
            return {}
        rows = demos.held_out[:: max(1, -(-len(demos.held_out) // MOST_HELD_OUT))]
        obs = map_obs(self.to_device, take_rows(demos.obs, rows))
        given = demos.actions[rows]
        outputs = in_chunks(self.net.actor, obs, self.net.has_images)
        actions = self.to_device(given)
        if self.by_mode:
            loss = self.actions.mode_error(outputs, self.net.log_std, actions)
        else:
            loss = -self.actions.log_prob_entropy(outputs, self.net.log_std, actions)[0]
        found = {"opt/loss/held_out": float(loss.mean())}
        if not self.actions.is_real:
            same = self.actions.mode(outputs.cpu().numpy()) == given
            found["opt/imitation/accuracy"] = float(same.mean())
        return found
