"""BC: behaviour cloning, supervised learning of the actions in demonstrations (Pomerleau 1989).

    gsolve record RUN --episodes 20 --out data/cartpole-v0
    gsolve train CartPole-v1:bc --dataset data/cartpole-v0

The environment is stepped in evaluations only. What a rollout is to other algorithms is here a
batch of demonstrated steps, drawn without replacement from pass to pass over the dataset
(training/demo_feed.py). So the clock of the run, `env_steps`, counts demonstrated steps learnt
from, and budgets, schedules and cadences mean what they mean elsewhere.

The network is the actor that PPO and A2C have, with the same names, so that they can start from the
weights of a bc run (`init_from_run`); SAC takes them over from `action_dist: squashed`.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from gymnasium_solver.algos import ops
from gymnasium_solver.algos.agent import Tensors
from gymnasium_solver.algos.configs.bc import BCConfig
from gymnasium_solver.algos.learner import Learner, hp_metrics
from gymnasium_solver.algos.on_policy import build_actor_critic
from gymnasium_solver.algos.units import watch_units
from gymnasium_solver.data.demonstrations import HOW, load_demonstrations
from gymnasium_solver.data.rollout import Rollout
from gymnasium_solver.errors import ConfigError, RunError
from gymnasium_solver.nets.actor_critic import ActorCritic
from gymnasium_solver.nets.encoder import in_chunks
from gymnasium_solver.policies.policy import ActorPolicy
from gymnasium_solver.spaces.actions import ActionKind
from gymnasium_solver.spaces.observations import Space, map_obs, take_rows
from gymnasium_solver.tree import map_tree

MOST_HELD_OUT = 8192  # held-out steps that the metrics of an epoch are computed on


class DemoBatch(NamedTuple):
    obs: Any  # tree of tensors [n, ...]
    actions: Tensor


def bc_loss(
    net: ActorCritic, actions: ActionKind, batch: DemoBatch, ent_coef: Tensor, *, by_mode: bool
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
    net: ActorCritic
    policy: ActorPolicy

    def __init__(
        self,
        config: BCConfig,
        observation_space: Space,
        action_space: Space,
        seed: int,
        device: str = "cpu",
    ):
        if config.intrinsic is not None:
            raise ConfigError("intrinsic: bc learns from no rewards; remove it")
        super().__init__(config, observation_space, action_space, seed, device)
        self.config: BCConfig = config
        if config.imitation_loss == "mse" and not self.actions.is_real:
            raise ConfigError(
                f"imitation_loss: mse needs real-valued actions, not {action_space}; use nll"
            )
        self.by_mode = config.imitation_loss == "mse" or (
            config.imitation_loss == "auto" and self.actions.is_real
        )
        self._split_seed = seed
        self.net, self.policy, self.optimizer = build_actor_critic(self, critic=False)
        self.gradient = self.add_gradient("policy", self._loss, self.optimizer)

    def start_training(self) -> None:
        """Load the demonstrations."""
        cfg = self.config
        if cfg.dataset is None:
            raise ConfigError(
                f"dataset: bc learns from demonstrations: give --dataset PATH. {HOW}."
            )
        demos = load_demonstrations(cfg.dataset, self.observation_space, self.actions, cfg.env_id)
        rng = np.random.default_rng(self._split_seed)
        demos.split(cfg.dataset_held_out, rng, cfg.dataset_top)
        self.demonstrations = demos
        self.notes.append(demos.summary())
        if demos.env_id is not None and demos.env_id != cfg.env_id:
            self.notes.append(
                f"warning: the demonstrations are of {demos.env_id}, not of {cfg.env_id}"
            )

    def _loss(
        self, batch: DemoBatch, coefficients: Sequence[Tensor]
    ) -> tuple[Tensor, list[Tensor]]:
        terms = bc_loss(self.net, self.actions, batch, *coefficients, by_mode=self.by_mode)
        return terms[0], list(terms)

    def update(self, rollout: Rollout, env_steps: int, total_steps: int) -> dict[str, float]:
        """One gradient step per minibatch of the rollout, and the metrics."""
        with self.observing(rollout):
            return self._update(rollout, env_steps, total_steps)

    def _update(self, rollout: Rollout, env_steps: int, total_steps: int) -> dict[str, float]:
        hp = self.scheduled_values(env_steps, total_steps)
        cfg, valid = self.config, rollout.valid
        data = DemoBatch(
            map_obs(self.to_device, rollout.valid_obs()),
            self.to_device(rollout.actions[valid]),
        )
        n_rows = cfg.n_envs * cfg.n_steps if self.device.type == "cuda" else None
        terms: list[Tensor] = []
        details: dict[str, float] = {}
        for index in ops.minibatches(len(data.actions), cfg.batch_size, self.rng, n_rows):
            part = data if index is None else _rows(data, torch.from_numpy(index).to(self.device))
            with self.timer.detail("gradient"):
                grad, *losses = self.gradient(part, [hp["ent_coef"]])
            if self.take_details():
                details = self._details(part, grad)
            with self.timer.detail("optimiser"):
                norm = self.optimizer.step(grad, hp["policy_lr"])
            terms.append(torch.stack([*losses, norm]))
            self.n_updates += 1
        total, loss, entropy, norm_all = torch.stack(terms).mean(0).tolist()
        return {
            "opt/loss/total": total,
            "opt/loss/imitation": loss,
            "opt/policy/entropy": entropy,
            "opt/grads/norm/all": norm_all,
            **self._held_out_metrics(),
            **details,
            **hp_metrics(hp),
        }

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

    @torch.no_grad()
    def _details(self, part: DemoBatch, grad: Tensor) -> dict[str, float]:
        """Metrics that cost time: gradient norms by part, and hidden units on one batch."""
        with watch_units(self.net) as units:
            self.net.actor(part.obs)
        norms = self.optimizer.part_norms(grad)
        return {
            **{f"opt/grads/norm/{name}": norm for name, norm in norms.items()},
            **units.metrics(part.obs),
        }

    # -- state ------------------------------------------------------------------------------

    def state(self) -> tuple[Tensors, dict[str, Any]]:
        tensors, extra = super().state()
        if self.demonstrations is not None:
            extra["demonstrations"] = self.demonstrations.digest
        return tensors, extra

    def load_state(self, tensors: dict[str, dict[str, Any]], extra: dict[str, Any]) -> None:
        demos, digest = self.demonstrations, extra.get("demonstrations")
        if demos is not None and digest is not None and demos.digest != digest:
            raise RunError(
                f"the dataset {self.config.dataset} is not the one that this run learnt from; "
                "give that one, or start from its weights with --init-from-run"
            )
        super().load_state(tensors, extra)


def _rows(data: DemoBatch, index: Tensor) -> DemoBatch:
    part: DemoBatch = map_tree(lambda column: column[index], data)
    return part
