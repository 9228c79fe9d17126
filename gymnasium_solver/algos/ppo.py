"""PPO: proximal policy optimisation with a clipped objective (Schulman et al. 2017).

An update computes the values of the rollout in one pass, then GAE, then does `n_epochs` passes over
shuffled minibatches. Differences from common implementations:
- Values are computed here and not while acting, so acting runs the actor only; a policy with memory
  shares all but the last layer, and computes them. Log-probabilities come from the acting
  distribution, which the rollout records.
- Truncated episodes bootstrap from their true final observation (see ops.gae).
- Minibatches have nearly equal sizes and never contain reset rows.
- Loss metrics describe the policy after the update. They are measured once over the whole rollout,
  or over a subset of it for image observations.
"""

from collections.abc import Sequence
from contextlib import nullcontext
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from gymnasium_solver.algos import ops
from gymnasium_solver.algos.advantages import AdvantageScale
from gymnasium_solver.algos.agent import Tensors
from gymnasium_solver.algos.configs.ppo import PPOConfig
from gymnasium_solver.algos.learner import hp_metrics
from gymnasium_solver.algos.on_policy import (
    Batch,
    Evaluated,
    Prepared,
    evaluate_actions,
    flat,
    mean_over,
    prepare,
    scaled_losses,
)
from gymnasium_solver.algos.rollout_learner import RolloutLearner
from gymnasium_solver.algos.stacked_passes import passes_together
from gymnasium_solver.algos.units import watch_units
from gymnasium_solver.data.rollout import Rollout
from gymnasium_solver.fast.compiled import CompiledForward
from gymnasium_solver.fast.optimizer import FlatOptimizer
from gymnasium_solver.nets.actor_critic import ActorCritic
from gymnasium_solver.nets.value_scale import ValueScale
from gymnasium_solver.spaces.actions import ActionKind
from gymnasium_solver.spaces.observations import Space
from gymnasium_solver.tree import leaves_of

LR_STEP, LR_MOST = 1.5, 100.0  # of adaptive_kl
IMAGES_MEASURED = 512  # samples of a rollout used for the metrics of an update
MEASURED = (
    "opt/loss/total", "opt/loss/policy", "opt/loss/value", "opt/policy/entropy",
    "opt/ppo/approx_kl", "opt/ppo/kl", "opt/ppo/clip_fraction", "opt/ppo/clip_fraction_vf",
)  # fmt: skip


class Coefficients(NamedTuple):
    """Coefficients of the loss at the current point of their schedules, as scalar tensors.

    None drops the term from the loss.
    """

    clip_range: Tensor
    vf_coef: Tensor
    ent_coef: Tensor | None = None
    clip_range_vf: Tensor | None = None
    dual_clip: float | None = None


class LossTerms(NamedTuple):
    total: Tensor
    policy: Tensor
    value: Tensor
    entropy: Tensor
    log_ratio: Tensor  # [B]
    values: Tensor  # [B]


def ppo_loss(net: ActorCritic, actions: ActionKind, batch: Batch, c: Coefficients) -> LossTerms:
    return loss_terms(evaluate_actions(net, actions, batch), batch, c, net.value_scale)


def loss_terms(
    evaluated: Evaluated, batch: Batch, c: Coefficients, scale: ValueScale | None = None
) -> LossTerms:
    """From what the network says about the batch. `scale`: of its values."""
    log_prob, entropy, value = evaluated
    assert value is not None
    advantage, returns = flat(batch.advantage, batch), flat(batch.returns, batch)
    log_ratio = log_prob - flat(batch.log_prob, batch)
    ratio = log_ratio.exp()
    clipped_ratio = ratio.clamp(1 - c.clip_range, 1 + c.clip_range)
    gain = torch.min(ratio * advantage, clipped_ratio * advantage)
    if c.dual_clip is not None:
        gain = torch.where(advantage < 0, torch.max(gain, c.dual_clip * advantage), gain)
    policy_loss = -mean_over(gain, batch)

    error = (value - returns).square()
    if c.clip_range_vf is not None:
        old = flat(batch.value, batch)
        near = old + (value - old).clamp(-c.clip_range_vf, c.clip_range_vf)
        error = torch.max(error, (near - returns).square())
    if scale is not None:
        error = error / scale.std.square()
    value_loss = mean_over(error, batch)

    entropy_mean = mean_over(entropy, batch)
    total = policy_loss + c.vf_coef * value_loss
    if c.ent_coef is not None:
        total = total - c.ent_coef * entropy_mean
    return LossTerms(total, policy_loss, value_loss, entropy_mean, log_ratio, value)


def approx_kl(log_ratio: Tensor, batch: Batch) -> Tensor:
    """KL(old || new), the low-variance estimator (r - 1) - log r."""
    return mean_over(log_ratio.exp() - 1 - log_ratio, batch)


class PPO(RolloutLearner):
    Config = PPOConfig
    takes_stale = True  # the ratio is to the policy that acted
    config: PPOConfig

    def __init__(
        self,
        config: PPOConfig,
        observation_space: Space,
        action_space: Space,
        seed: int,
        device: str = "cpu",
    ):
        super().__init__(config, observation_space, action_space, seed, device)
        has_entropy_bonus = any(config.ent_coef.values)
        self.coefficient_names = [
            name
            for name in Coefficients._fields
            if name in self.schedules and (name != "ent_coef" or has_entropy_bonus)
        ]
        self.forwards["measure"] = CompiledForward(
            self._measured, self.net, wanted=self.compiles and config.has_short_sequences,
            n_numbers=len(self.coefficient_names),
        )  # fmt: skip
        self.advantage_scale = AdvantageScale(config.normalize_advantages)
        self.lr_factor = 1.0  # of adaptive_kl

    def _loss(self, batch: Batch, coefficients: Sequence[Tensor]) -> tuple[Tensor, list[Tensor]]:
        terms = ppo_loss(self.net, self.actions, batch, self._named(coefficients))
        return terms.total, [approx_kl(terms.log_ratio, batch)] if self.config.target_kl else []

    def _named(self, coefficients: Sequence[Tensor]) -> Coefficients:
        scheduled = dict(zip(self.coefficient_names, coefficients, strict=True))
        return Coefficients(**scheduled, dual_clip=self.config.dual_clip)

    def _update(self, rollout: Rollout, env_steps: int, total_steps: int) -> dict[str, float]:
        cfg, timer = self.config, self.timer
        hp = self.scheduled_values(env_steps, total_steps)
        hp["policy_lr"] *= self.lr_factor
        coefficients = {name: hp[name] for name in self.coefficient_names}
        reward = self.normalized_reward(rollout)
        data = self._prepare(rollout, reward)
        norms: list[Tensor] = []
        part_norms: dict[str, float] = {}
        kl_stop, is_detailed = False, self.take_details()
        epoch = 0
        while epoch < cfg.n_epochs and not kl_stop:
            if epoch and cfg.recompute_advantages:
                data = self._prepare(rollout, reward, is_first=False)
            # Details need the first gradient by itself.
            if self._has_compiled_steps and (norms or not is_detailed):
                n_passes = self._passes_a_call(data, cfg.n_epochs - epoch)
                with timer.detail("gradient"):
                    taken, kl_stop = self._compiled_passes(
                        n_passes, data, coefficients, hp["policy_lr"]
                    )
                norms.append(taken)
                epoch += n_passes
                continue
            if norms or not is_detailed:
                lr, n_left = hp["policy_lr"], cfg.n_epochs - epoch
                joint = passes_together(
                    self, self.gradient, n_left, data, rollout.valid.size, coefficients, lr
                )
                if joint is not None:
                    norms.append(joint)
                    break
            for part in data.minibatches(cfg.batch_size, self.rng, self.device, rollout.valid.size):
                if cfg.normalize_advantages == "batch":
                    part = part._replace(advantage=_standardize(part))
                with timer.detail("gradient"):
                    grad, *kl = self.gradient(part, list(coefficients.values()))
                kl_stop = bool(kl) and float(kl[0]) > 1.5 * (cfg.target_kl or 0)
                if kl_stop:
                    break
                if is_detailed and not norms:
                    part_norms = self.optimizer.part_norms(grad)
                with timer.detail("optimiser"):
                    norms.append(self.optimizer.step(grad, hp["policy_lr"]).reshape(1))
            epoch += 1
        self.n_updates += 1
        imitated: dict[str, float] = {}
        if self.imitation is not None:
            self.imitation.add(rollout, reward)
            imitated = self.imitation.update(hp["policy_lr"])
        with watch_units(self.net) if is_detailed else nullcontext() as units:
            measured = self._measure(data, coefficients, is_watched=is_detailed)
        if norms:
            measured["opt/grads/norm/all"] = torch.cat(norms).mean()
        values = torch.stack(list(measured.values())).tolist()  # the only device synchronisation
        metrics = {"opt/grads/norm/all": 0.0, **dict(zip(measured, values, strict=True))}
        self._adapt_lr(metrics["opt/ppo/approx_kl"])
        metrics |= scaled_losses(metrics["opt/loss/value"], metrics["opt/policy/entropy"], hp)
        metrics |= {f"opt/grads/norm/{name}": norm for name, norm in part_norms.items()}
        if units is not None:
            metrics |= data.targets.details(rollout.valid) | units.metrics(data.batch.obs)
        return {
            **metrics,
            **imitated,
            "opt/value/explained_var": data.explained_variance,
            "opt/ppo/kl_stop_triggered": float(kl_stop),
            **hp_metrics(hp),
        }

    @property
    def _has_compiled_steps(self) -> bool:
        return self.gradient.native is not None and isinstance(self.optimizer, FlatOptimizer)

    def _passes_a_call(self, data: Prepared, n_left: int) -> int:
        """How many passes one call of the compiled program makes: all of them, unless something
        happens between them."""
        cfg = self.config
        is_changed = cfg.normalize_advantages == "batch" and not data.is_one_minibatch(
            cfg.batch_size
        )
        return 1 if is_changed or cfg.recompute_advantages or cfg.target_kl else n_left

    def _compiled_passes(
        self, n_passes: int, data: Prepared, coefficients: dict[str, float], lr: float
    ) -> tuple[Tensor, bool]:
        """Passes over the minibatches in one call of the compiled program: the same bits as one
        gradient and optimiser step after another. Returns the norms, and whether the KL divergence
        stopped it."""
        cfg, native, optimizer = self.config, self.gradient.native, self.optimizer
        assert native is not None
        assert isinstance(optimizer, FlatOptimizer)
        batch, parts = data.batch, list[np.ndarray | None]()
        if data.is_one_minibatch(cfg.batch_size):
            parts = [None] * n_passes
        else:
            for _ in range(n_passes):
                parts += data.minibatch_rows(cfg.batch_size, self.rng)
        if cfg.normalize_advantages == "batch":
            batch = batch._replace(advantage=_standardize_parts(data, parts))
        limit = None if cfg.target_kl is None else 1.5 * cfg.target_kl
        norms = native.descend(
            leaves_of(batch), parts, list(coefficients.values()), optimizer, lr, limit
        )
        return norms, len(norms) < len(parts)

    def _prepare(
        self, rollout: Rollout, reward: np.ndarray | None = None, is_first: bool = True
    ) -> Prepared:
        """Compute values and advantages and build the training batch. `reward`: normalised already.
        `is_first`: for the first pass over the rollout, which also updates running statistics."""
        cfg, valid = self.config, rollout.valid
        reward = self.normalized_reward(rollout) if reward is None else reward
        values = self.values(rollout, is_new=is_first)
        advantage = ops.gae(
            reward, values, rollout.terminated, rollout.truncated, valid, cfg.gamma, cfg.gae_lambda
        )
        returns = advantage + values[:-1]
        if is_first and self.net.value_scale is not None and valid.any():
            head = self.net.critic_head
            assert isinstance(head, nn.Linear)
            self.net.value_scale.update(self.to_device(returns[valid]), head)
        used = self.advantage_scale(advantage, returns, valid, learns=is_first)
        return prepare(self, self.net, rollout, used, returns, values[:-1], advantage)

    def _adapt_lr(self, kl: float) -> None:
        target = self.config.adaptive_kl
        if target is None:
            return
        if kl > 2 * target:
            self.lr_factor /= LR_STEP
        elif kl < target / 2:
            self.lr_factor *= LR_STEP
        self.lr_factor = min(max(self.lr_factor, 1 / LR_MOST), LR_MOST)

    def state(self) -> tuple[Tensors, dict[str, Any]]:
        tensors, extra = super().state()
        scale = self.advantage_scale.state()
        return tensors, extra | {"lr_factor": self.lr_factor, "advantage_scale": scale}

    def load_state(self, tensors: dict[str, dict[str, Any]], extra: dict[str, Any]) -> None:
        super().load_state(tensors, extra)
        self.lr_factor = extra.get("lr_factor", 1.0)
        self.advantage_scale.load_state(extra.get("advantage_scale", {"range": None}))

    @torch.no_grad()
    def _measure(
        self, data: Prepared, coefficients: dict[str, float], is_watched: bool
    ) -> dict[str, Tensor]:
        """Compute the loss terms after the update. Image observations are measured on evenly spaced
        rows: measuring all of them would cost another third of an epoch. `is_watched`: the units of
        the network are, which only torch's pass shows."""
        batch = data.batch
        if self.net.has_images and not batch.is_sequence and data.n > IMAGES_MEASURED:
            rows = torch.arange(IMAGES_MEASURED, device=self.device) * data.n // IMAGES_MEASURED
            batch = data.take(rows)
        numbers = list(coefficients.values())
        found = None if batch.mask is not None else self.forwards["measure"].on((batch,), numbers)
        if found is None or is_watched:
            scalars = self.to_device(np.array(numbers, np.float32)).unbind()
            by_torch = self._measured(batch, scalars)
            found = by_torch if found is None else found
        return dict(zip(MEASURED, found, strict=False))

    def _measured(self, batch: Batch, coefficients: Sequence[Tensor]) -> list[Tensor]:
        """The metrics of `MEASURED`; the last one only if the change of values is clipped."""
        c = self._named(coefficients)
        after = ppo_loss(self.net, self.actions, batch, c)
        moved = (after.log_ratio.exp() - 1).abs() > c.clip_range
        found = [
            after.total,
            after.policy,
            after.value,
            after.entropy,
            approx_kl(after.log_ratio, batch),
            -mean_over(after.log_ratio, batch),
            mean_over(moved.float(), batch),
        ]
        if c.clip_range_vf is not None:
            change = (after.values - flat(batch.value, batch)).abs()
            found.append(mean_over((change > c.clip_range_vf).float(), batch))
        return found


def _standardize_parts(data: Prepared, parts: Sequence[np.ndarray | None]) -> Tensor:
    """The advantages, each standardised within its minibatch."""
    if parts[0] is None:
        return _standardize(data.batch)
    result = torch.empty_like(data.batch.advantage)
    for rows in parts:
        assert rows is not None
        index = torch.from_numpy(rows)
        result[index] = _standardize(data.take(index))
    return result


def _standardize(batch: Batch) -> Tensor:
    x = batch.advantage
    chosen = x if batch.valid is None else x[batch.valid]
    return (x - chosen.mean()) / (chosen.std(correction=0) + 1e-8)
