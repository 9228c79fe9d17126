"""PPO: proximal policy optimisation with a clipped objective (Schulman et al. 2017).

An update computes the values of the rollout in one pass, then GAE, then does `n_epochs` passes over
shuffled minibatches. Differences from common implementations:
- Values are computed here and not while acting, so acting runs the actor only; a policy with memory
  shares all but the last layer, and computes them. Log-probabilities come from the acting
  distribution, which the rollout records.
- Truncated episodes bootstrap from their true final observation (see ops.gae).
- Minibatches have nearly equal sizes and never contain reset rows.
- Loss metrics describe the policy after the update. They are measured once, on at most 1,024 evenly
  spaced samples of the rollout, 512 with images; on all of them if adaptive_kl reads the KL.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from gymnasium_solver.algos import ops
from gymnasium_solver.algos.advantages import AdvantageScale
from gymnasium_solver.algos.agent import Tensors
from gymnasium_solver.algos.configs.ppo import PPOConfig
from gymnasium_solver.algos.extensions.extension import Learnt
from gymnasium_solver.algos.learner import Learner
from gymnasium_solver.algos.on_policy import (
    Prepared,
    RolloutValues,
    build_actor_critic,
    details,
    prepare,
)
from gymnasium_solver.algos.policy_loss import (
    MEASURED,
    Batch,
    ClippedTerms,
    Evaluated,
    adapted,
    approx_kl,
    critic_losses,
    evaluate_actions,
    flat,
    mean_over,
    measured,
    scaled_losses,
)
from gymnasium_solver.algos.ppo_device import PPODeviceUpdate
from gymnasium_solver.data.device_rollout import DeviceRollout
from gymnasium_solver.data.rollout import Rollout
from gymnasium_solver.fast.descent import Part
from gymnasium_solver.fast.program import by_name
from gymnasium_solver.nets.actor_critic import ActorCritic

MEASURED_ROWS, MEASURED_IMAGES = 1024, 512  # samples used for the metrics of an update, at most
LEAST_MEASURED = 256  # and at least; between them a quarter of what the passes learnt from
NUMBERS = ("clip_range", "vf_coef", "ent_coef", "clip_range_vf")


def ppo_loss(
    net: ActorCritic,
    evaluated: Evaluated,
    batch: Batch,
    c: Mapping[str, Tensor],
    *,
    dual_clip: float | None = None,
) -> ClippedTerms:
    """From what the network says about the batch. A number that `c` lacks drops its term: the
    entropy bonus, the clipping of values."""
    log_prob, entropy, outputs = evaluated
    assert outputs is not None
    advantage, returns = flat(batch.advantage, batch), flat(batch.returns, batch)
    log_ratio = log_prob - flat(batch.log_prob, batch)
    ratio = log_ratio.exp()
    # min(ratio * A, clip(ratio) * A), in a third of the operations that its gradient takes.
    limit = torch.where(advantage < 0, 1 - c["clip_range"], 1 + c["clip_range"]) * advantage
    gain = ratio * advantage
    gain = torch.where(gain > limit, limit, gain)
    if dual_clip is not None:
        gain = torch.where(advantage < 0, torch.max(gain, dual_clip * advantage), gain)
    policy_loss = -mean_over(gain, batch)

    value, error = net.value_of(outputs), critic_losses(net, outputs, batch)
    if "clip_range_vf" in c:
        old = flat(batch.value, batch)
        near = old + (value - old).clamp(-c["clip_range_vf"], c["clip_range_vf"])
        error = torch.max(error, (near - returns).square())
    if net.value_scale is not None:
        error = error / net.value_scale.std.square()
    value_loss = mean_over(error, batch)

    entropy_mean = mean_over(entropy, batch)
    total = policy_loss + c["vf_coef"] * value_loss
    if "ent_coef" in c:
        total = total - c["ent_coef"] * entropy_mean
    return ClippedTerms(total, policy_loss, value_loss, entropy_mean, log_ratio, value)


class PPO(Learner):
    Config = PPOConfig
    takes_stale = True  # the ratio is to the policy that acted
    config: PPOConfig
    net: ActorCritic
    device_update: PPODeviceUpdate

    def build(self) -> None:
        cfg = self.config
        self.net, self.policy = build_actor_critic(self)
        is_short = cfg.has_short_sequences
        self.descent = self.add_descent("policy", self.loss, self.net, norm="all", record=is_short)
        self.values = RolloutValues(self)
        has_bonus = any(cfg.ent_coef.values)
        self.numbers = [
            n for n in NUMBERS if n in self.schedules and (n != "ent_coef" or has_bonus)
        ]
        self.measure = self.add_forward(
            "measure", self.measured, wanted=is_short, n_numbers=len(self.numbers), is_metric=True
        )
        self.advantage_scale = AdvantageScale(cfg.normalize_advantages)
        self.lr_factor = 1.0  # of adaptive_kl
        self.device_update = PPODeviceUpdate(self, self.descent)

    def _terms(self, batch: Batch, c: Mapping[str, Tensor]) -> ClippedTerms:
        evaluated = evaluate_actions(self.net, self.actions, batch)
        return ppo_loss(self.net, evaluated, batch, c, dual_clip=self.config.dual_clip)

    def loss(self, batch: Batch, c: Mapping[str, Tensor]) -> tuple[Tensor, dict[str, Tensor]]:
        terms = self._terms(batch, c)
        has_limit = self.config.target_kl is not None
        return terms.total, {"kl": approx_kl(terms.log_ratio, batch)} if has_limit else {}

    # -- the update -------------------------------------------------------------------------

    def scheduled_values(self, env_steps: int, total_steps: int) -> dict[str, float]:
        hp = super().scheduled_values(env_steps, total_steps)
        return hp | {"policy_lr": self.lr_factor * hp["policy_lr"]}

    def update(
        self, rollout: Rollout | DeviceRollout, env_steps: int, total_steps: int
    ) -> dict[Any, Any]:
        metrics = super().update(rollout, env_steps, total_steps)
        if (target := self.config.adaptive_kl) is not None:
            kl = by_name(metrics)["opt/ppo/approx_kl"]
            self.lr_factor = adapted(self.lr_factor, float(kl), target)
        return metrics

    def learn(self, rollout: Rollout, hp: dict[str, float]) -> dict[str, float]:
        cfg, lr = self.config, hp["policy_lr"]
        numbers = {name: hp[name] for name in self.numbers}
        stop = None if cfg.target_kl is None else ("kl", 1.5 * cfg.target_kl)
        extrinsic, bonus = self.scaled_reward(rollout), self.bonus(rollout)
        reward, values = extrinsic if bonus is None else extrinsic + bonus, self.values(rollout)
        is_detailed, more, norms = self.take_details(), dict[str, float](), list[Tensor]()
        is_stopped = False
        for data, batch, parts in self._passes(rollout, reward, values):
            if is_detailed and not norms:
                more = details(self, self.descent, data, numbers, parts[0], rollout)
            n_rows = None if batch.is_sequence else data.n_rows
            steps = self.descent(batch, numbers, lr, parts, stop=stop, n_rows=n_rows)
            norms.append(steps.norms)
            if is_stopped := steps.is_stopped:
                break
        self.n_updates += 1
        for extension in self.extensions:
            more |= extension.learn(Learnt(rollout, extrinsic, values, lr))
        measured = self._measure(data, numbers)
        if len(taken := torch.cat(norms)):
            measured["opt/grads/norm/all"] = taken.mean()
        numbers_now = torch.stack(list(measured.values())).tolist()  # the only synchronisation
        metrics = {"opt/grads/norm/all": 0.0, **dict(zip(measured, numbers_now, strict=True))}
        return {
            **metrics,
            **scaled_losses(metrics, hp),
            **more,
            "opt/value/explained_var": data.explained_variance,
            "opt/ppo/kl_stop_triggered": float(is_stopped),
        }

    def _passes(
        self, rollout: Rollout, reward: np.ndarray, values: np.ndarray
    ) -> Iterator[tuple[Prepared, Batch, list[Part]]]:
        """Data, batch and minibatches: of all passes at once, unless something changes between
        them."""
        cfg, data = self.config, self._prepare(rollout, reward, values)
        by_part, n_left = cfg.normalize_advantages == "batch", cfg.n_epochs
        while n_left:
            parts = data.batch.minibatches(self.descent, cfg.batch_size, self.rng, data.n_rows)
            n_left, is_changed = n_left - 1, by_part and parts[0] is not None
            while n_left and not (is_changed or cfg.recompute_advantages or cfg.target_kl):
                parts += data.batch.minibatches(self.descent, cfg.batch_size, self.rng, data.n_rows)
                n_left -= 1
            yield data, data.standardized(parts) if by_part else data.batch, parts
            if n_left and cfg.recompute_advantages:
                values = self.values(rollout, is_new=False)
                data = self._prepare(rollout, reward, values, is_first=False)

    def _prepare(
        self, rollout: Rollout, reward: np.ndarray, values: np.ndarray, is_first: bool = True
    ) -> Prepared:
        """Compute advantages and build the training batch. `is_first`: for the first pass over the
        rollout, which also updates running statistics."""
        cfg, valid = self.config, rollout.valid
        advantage = ops.gae(
            reward, values, rollout.terminated, rollout.truncated, valid, cfg.gamma, cfg.gae_lambda
        )
        returns = advantage + values[:-1]
        if is_first and valid.any():
            self.net.rescale_values(self.to_device(returns[valid]))
        used = self.advantage_scale(advantage, returns, valid, learns=is_first)
        return prepare(self, rollout, used, returns, values[:-1], advantage)

    # -- metrics and state ------------------------------------------------------------------

    @torch.no_grad()
    def _measure(self, data: Prepared, numbers: Mapping[str, float]) -> dict[str, Tensor]:
        """Compute the loss terms after the update. Measuring all samples would cost another third
        of a pass over them."""
        batch, most = data.batch, MEASURED_IMAGES if self.net.has_images else MEASURED_ROWS
        if self.config.adaptive_kl is None:
            most = min(most, max(LEAST_MEASURED, batch.n * self.config.n_epochs // 4))
        elif not self.net.has_images:
            most = batch.n  # the learning rate follows from it
        if not batch.is_sequence and batch.n > most:
            batch = batch.take(slice(None, None, -(-batch.n // most)))
        found = self.measure.on((batch,), list(numbers.values()))
        return dict(zip(MEASURED, found, strict=False))

    def measured(self, batch: Batch, numbers: Sequence[Tensor]) -> list[Tensor]:
        c = dict(zip(self.numbers, numbers, strict=True))
        return measured(self._terms(batch, c), batch, c)

    def state(self) -> tuple[Tensors, dict[str, Any]]:
        tensors, extra = super().state()
        scale = self.advantage_scale.state()
        own = {"lr_factor": self.lr_factor, "advantage_scale": scale}
        return tensors, extra | own

    def load_state(self, tensors: dict[str, dict[str, Any]], extra: dict[str, Any]) -> None:
        super().load_state(tensors, extra)
        self.lr_factor = extra.get("lr_factor", 1.0)
        self.advantage_scale.load_state(extra.get("advantage_scale", {"range": None}))
