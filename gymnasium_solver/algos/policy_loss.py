"""Losses of a policy and its critic on a batch of samples or of sequences."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from gymnasium_solver.fast.descent import Descent, Part
from gymnasium_solver.nets.actor_critic import ActorCritic
from gymnasium_solver.spaces.actions import ActionKind, mask_tensor
from gymnasium_solver.tree import map_tree

LR_STEP, LR_MOST = 1.5, 100.0  # of adaptive_kl


class Batch(NamedTuple):
    """Input of a loss on a rollout: tensors [n, ...], for sequences [S, L, ...], or None for those
    that a loss does not read."""

    obs: Any  # tree of tensors
    actions: Tensor
    log_prob: Any = None  # under the acting policy
    advantage: Any = None
    returns: Any = None  # what the critic is fitted to
    value: Any = None  # before the update
    mask: Tensor | None = None  # legal actions, if the env provides masks
    # Set for sequences only:
    valid: Tensor | None = None  # [S, L]: rows to learn from
    is_first: Tensor | None = None  # [S, L]
    carry: Tensor | None = None  # state before the first row [S, ...]

    @property
    def is_sequence(self) -> bool:
        return self.valid is not None

    @property
    def n(self) -> int:
        """Number of samples, or of sequences."""
        return len(self.actions)

    def take(self, index: Tensor | slice | None) -> "Batch":
        """Select samples or sequences; None: all of them."""
        return self if index is None else map_tree(lambda column: column[index], self)

    def minibatches(
        self, descent: Descent, batch_size: int, rng: np.random.Generator, n_rows: int | None = None
    ) -> list[Part]:
        """Shuffled minibatches of about `batch_size` samples. For sequences, each has as many
        sequences as have `batch_size` rows. `n_rows`: see Descent.minibatches."""
        if self.valid is None:
            return descent.minibatches(self.n, batch_size, rng, n_rows)
        return descent.minibatches(self.n, max(1, round(batch_size / self.valid.shape[1])), rng)


Evaluated = tuple[Tensor, Tensor, Tensor | None]
"""Log-probabilities, entropies (or one for all states), and the critic's outputs where there is
one."""


def evaluate_actions(net: ActorCritic, actions: ActionKind, batch: Batch) -> Evaluated:
    """Return log-probabilities, entropies and values under the current network.

    For sequences the results are [S * L], in the order of `batch.actions.flatten(0, 1)`."""
    if not batch.is_sequence:
        return evaluate_rows(net, actions, batch.obs, batch.actions, batch.mask)
    assert batch.is_first is not None
    assert batch.carry is not None
    outputs, value, _ = net.sequence(batch.obs, batch.carry, batch.is_first)
    mask = None if batch.mask is None else batch.mask.flatten(0, 1)
    outputs = mask_tensor(outputs, mask)
    log_prob, entropy = actions.log_prob_entropy(outputs, net.log_std, batch.actions.flatten(0, 1))
    return log_prob, entropy, value


def evaluate_rows(
    net: ActorCritic, actions: ActionKind, obs: Any, taken: Tensor, mask: Tensor | None = None
) -> Evaluated:
    """The same for single rows, without a recurrent core."""
    if net.critic_head is None:
        outputs, value = net.actor(obs), None
    else:
        outputs, value = net(obs)
    outputs = mask_tensor(outputs, mask)
    return *actions.log_prob_entropy(outputs, net.log_std, taken), value


def policy_gradient_loss(
    net: ActorCritic, actions: ActionKind, batch: Batch, c: Mapping[str, Tensor]
) -> tuple[Tensor, dict[str, Tensor]]:
    """The loss of REINFORCE and A2C: `batch.advantage` is the weight of the log-probabilities, or
    with a `clip_range` of the clipped probability ratio."""
    clip_range = c.get("clip_range")
    log_prob, entropy, value = evaluate_actions(net, actions, batch)
    advantage = flat(batch.advantage, batch)
    if clip_range is None:
        gain = log_prob * advantage
    else:
        ratio = (log_prob - flat(batch.log_prob, batch)).exp()
        clipped = ratio.clamp(1 - clip_range, 1 + clip_range)
        gain = torch.min(ratio * advantage, clipped * advantage)
    policy_loss = -mean_over(gain, batch)
    if value is None:
        value_loss = policy_loss.new_zeros(())
    else:
        value_loss = mean_over(critic_losses(net, value, batch), batch)
    entropy_mean = mean_over(entropy, batch)
    total = policy_loss + c["vf_coef"] * value_loss - c["ent_coef"] * entropy_mean
    terms = (total, policy_loss, value_loss, entropy_mean)
    return total, dict(zip(MEASURED, terms, strict=False))


def critic_losses(net: ActorCritic, outputs: Tensor, batch: Batch) -> Tensor:
    """The losses [B] of the critic's outputs, from the returns of the batch."""
    returns = flat(batch.returns, batch)
    if net.value_scale is not None:
        return (net.value_of(outputs) - returns).square()
    return net.head.loss(outputs, net.head.known(returns))[0]


def mean_over(values: Tensor, batch: Batch) -> Tensor:
    """Mean over the valid samples."""
    if batch.valid is None or values.ndim == 0:
        return values.mean()
    weight = batch.valid.flatten().to(values.dtype)
    return (values * weight).sum() / weight.sum().clamp(min=1.0)


def scaled_losses(
    metrics: Mapping[str, Any], hp: Mapping[str, Any], has_critic: bool = True
) -> dict[str, Any]:
    """The terms of the loss with their weights, from its metrics."""
    entropy, value = metrics["opt/policy/entropy"], metrics["opt/loss/value"]
    found = {
        "opt/loss/entropy": -entropy,
        "opt/loss/entropy_scaled": 0.0 - hp["ent_coef"] * entropy,
    }
    return found | ({"opt/loss/value_scaled": hp["vf_coef"] * value} if has_critic else {})


def flat(column: Tensor, batch: Batch) -> Tensor:
    """Flatten a column of a batch to the order of the results of `evaluate_actions`."""
    return column.flatten() if batch.is_sequence else column


@torch.no_grad()
def corrected(net: ActorCritic, actions: ActionKind, batch: Batch) -> Batch:
    """The batch of a rollout that an earlier policy made: advantages weighted by min(1, pi / mu),
    the truncated importance weights of IMPALA's policy gradient (Espeholt et al. 2018)."""
    log_prob, _, _ = evaluate_actions(net, actions, batch)
    weight = (log_prob - flat(batch.log_prob, batch)).exp().clamp(max=1.0)
    return batch._replace(advantage=batch.advantage * weight.view(batch.advantage.shape))


def approx_kl(log_ratio: Tensor, batch: Batch) -> Tensor:
    """KL(old || new), the low-variance estimator (r - 1) - log r."""
    return mean_over(log_ratio.exp() - 1 - log_ratio, batch)


def adapted(factor: float, kl: float, target: float) -> float:
    """The factor of the learning rate that keeps the KL divergence of an update near its target
    (`adaptive_kl`)."""
    if kl > 2 * target:
        factor /= LR_STEP
    elif kl < target / 2:
        factor *= LR_STEP
    return min(max(factor, 1 / LR_MOST), LR_MOST)


MEASURED = (
    "opt/loss/total", "opt/loss/policy", "opt/loss/value", "opt/policy/entropy",
    "opt/ppo/approx_kl", "opt/ppo/kl", "opt/ppo/clip_fraction", "opt/ppo/clip_fraction_vf",
)  # fmt: skip


class ClippedTerms(NamedTuple):
    """Of a loss with a clipped ratio."""

    total: Tensor
    policy: Tensor
    value: Tensor
    entropy: Tensor
    log_ratio: Tensor  # [B]
    values: Tensor  # [B]


def measured(after: ClippedTerms, batch: Batch, c: Mapping[str, Tensor]) -> list[Tensor]:
    """The metrics of `MEASURED`; the last one only if the change of values is clipped."""
    moved = (after.log_ratio.exp() - 1).abs() > c["clip_range"]
    found = [
        after.total, after.policy, after.value, after.entropy,
        approx_kl(after.log_ratio, batch),
        -mean_over(after.log_ratio, batch),
        mean_over(moved.float(), batch),
    ]  # fmt: skip
    if "clip_range_vf" in c:
        change = (after.values - flat(batch.value, batch)).abs()
        found.append(mean_over((change > c["clip_range_vf"]).float(), batch))
    return found
