"""Shared parts of the on-policy actor-critics: building the network and preparing a batch.

    net, policy, optimizer = build_actor_critic(learner)
    data = prepare(learner, net, rollout, advantage, returns, values)
    for part in data.minibatches(...): ...

For a feed-forward network the batch holds the valid rows of the rollout, [n, ...]. A recurrent
network trains on sequences of `sequence_length` rows, [S, L, ...], each with the carry that the
acting policy had before its first row; a minibatch is a subset of the sequences.
"""

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from gymnasium_solver.algos import ops
from gymnasium_solver.algos.learner import Learner
from gymnasium_solver.algos.units import watch_units
from gymnasium_solver.data.rollout import Rollout
from gymnasium_solver.data.sequences import Cut
from gymnasium_solver.errors import ConfigError
from gymnasium_solver.fast.optimizer import Optimizer
from gymnasium_solver.fast.recorded import on_device
from gymnasium_solver.nets.actor_critic import ActorCritic
from gymnasium_solver.nets.branches import VALUE
from gymnasium_solver.nets.encoder import in_chunks
from gymnasium_solver.nets.recurrent import Recurrence
from gymnasium_solver.policies.policy import ActorPolicy
from gymnasium_solver.spaces.actions import ActionKind, mask_tensor
from gymnasium_solver.tree import map_tree


class Targets(NamedTuple):
    """What a rollout is learnt from, [T, N] each."""

    advantage: np.ndarray  # as the loss uses it
    returns: np.ndarray
    values: np.ndarray  # before the update
    raw_advantage: np.ndarray  # before standardisation

    def details(self, valid: np.ndarray) -> dict[str, float]:
        """Mean and standard deviation of each, over the valid rows."""
        names = ("adv_norm", "return", "baseline", "adv")
        chosen = np.stack([column[valid] for column in self])
        means, stds = chosen.mean(axis=1).tolist(), chosen.std(axis=1).tolist()
        found = {f"roll/{name}/mean": mean for name, mean in zip(names, means, strict=True)}
        return found | {f"roll/{name}/std": std for name, std in zip(names, stds, strict=True)}


class Batch(NamedTuple):
    """Input of a policy-gradient loss: tensors [n, ...], for sequences [S, L, ...]."""

    obs: Any  # tree of tensors
    actions: Tensor
    log_prob: Tensor  # under the acting policy
    advantage: Tensor
    returns: Tensor
    value: Tensor  # before the update
    mask: Tensor | None = None  # legal actions, if the env provides masks
    # Set for sequences only:
    valid: Tensor | None = None  # [S, L]: rows to learn from
    is_first: Tensor | None = None  # [S, L]
    carry: Tensor | None = None  # state before the first row [S, ...]

    @property
    def is_sequence(self) -> bool:
        return self.valid is not None


class Prepared(NamedTuple):
    batch: Batch
    n: int
    """Number of samples, or of sequences."""
    n_samples: int
    explained_variance: float
    targets: Targets

    def take(self, index: Tensor | None) -> Batch:
        """Select samples or sequences by index; None selects all of them."""
        if index is None:
            return self.batch
        part: Batch = map_tree(lambda column: column[index], self.batch)
        return part

    def minibatches(
        self, batch_size: int, rng: np.random.Generator, device: torch.device, n_rows: int
    ) -> Iterator[Batch]:
        """Yield shuffled minibatches of about `batch_size` samples. For sequences, each minibatch
        has as many sequences as have `batch_size` rows."""
        rows = n_rows if device.type == "cuda" and self.batch.valid is None else None
        parts = [p for p in self.minibatch_rows(batch_size, rng, rows) if p is not None]
        if not parts:
            yield self.take(None)
            return
        order = on_device(np.concatenate(parts), device)  # one transfer for all of them
        for index in order.split([len(part) for part in parts]):
            yield self.take(index)

    def minibatch_rows(
        self, batch_size: int, rng: np.random.Generator, n_rows: int | None = None
    ) -> list[np.ndarray | None]:
        """Indices of the samples or sequences of each minibatch; None: all of them."""
        return list(ops.minibatches(self.n, self._size(batch_size), rng, n_rows))

    def is_one_minibatch(self, batch_size: int) -> bool:
        return self.n <= self._size(batch_size)

    def _size(self, batch_size: int) -> int:
        """Samples or sequences of a minibatch, at most."""
        if self.batch.valid is None:
            return batch_size
        return max(1, round(batch_size / self.batch.valid.shape[1]))


def build_actor_critic(
    learner: Learner, critic: bool = True
) -> tuple[ActorCritic, ActorPolicy, Optimizer]:
    """Build the network described by the config, its policy and its optimiser."""
    cfg, network = learner.config, learner.network
    recurrence = None
    if cfg.recurrent is not None:
        recurrence = Recurrence(cfg.recurrent, cfg.recurrent_dim)
        if cfg.share_trunk is False:
            raise ConfigError(
                f"share_trunk: false with recurrent: {cfg.recurrent}: policy and value share the "
                "recurrent core; remove share_trunk."
            )
    is_shared = cfg.share_trunk
    if is_shared == "auto":
        is_shared = bool(network.cnns) or recurrence is not None
    if getattr(cfg, "normalize_values", False) and cfg.head != "linear":
        raise ConfigError(
            f"normalize_values rescales a linear output layer; head: {cfg.head} is of a plugin. "
            "Remove one of them."
        )
    if getattr(cfg, "normalize_values", False) and {"*", VALUE} & network.output_dims.keys():
        raise ConfigError("normalize_values rescales one linear layer; remove output_dims of value")
    if network.heads_by is not None and (recurrence or getattr(cfg, "normalize_values", False)):
        other = "recurrent" if recurrence else "normalize_values"
        raise ConfigError(f"heads_by does not work with {other}; remove one of them")
    net = ActorCritic(
        learner.observation_space,
        learner.actions,
        network,
        share_trunk=is_shared,
        log_std_init=cfg.log_std_init,
        normalize_obs=cfg.obs_normalization,
        clip_obs=cfg.clip_obs,
        critic=critic,
        normalize_values=critic and getattr(cfg, "normalize_values", False),
        sde_log_std_init=cfg.sde_log_std_init if getattr(cfg, "sde", False) else None,
        recurrence=recurrence,
        generator=learner.generator,
    ).to(learner.device)
    policy = ActorPolicy(
        net,
        learner.observation_space,
        learner.actions,
        learner.act_rng,
        record=learner.may_record_acting,
        compile=learner.compiles,
        on_host=learner.may_act_on_host,
        sde_sample_freq=getattr(cfg, "sde_sample_freq", -1),
    )
    return net, policy, learner.add_optimizer("policy", net)


Evaluated = tuple[Tensor, Tensor, Tensor | None]
"""Log-probabilities, entropies (or one for all states) and values, where there is a critic."""


def evaluate_actions(net: ActorCritic, actions: ActionKind, batch: Batch) -> Evaluated:
    """Return log-probabilities, entropies and values under the current network.

    For sequences the results are [S * L], in the order of `batch.actions.flatten(0, 1)`.
    """
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


class LossTerms(NamedTuple):
    total: Tensor
    policy: Tensor
    value: Tensor
    entropy: Tensor


def policy_gradient_loss(
    net: ActorCritic,
    actions: ActionKind,
    batch: Batch,
    ent_coef: Tensor,
    vf_coef: Tensor,
    clip_range: Tensor | None = None,
) -> LossTerms:
    """Of REINFORCE and A2C: `batch.advantage` is the weight of the log-probabilities, or with a
    `clip_range` of the clipped probability ratio."""
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
        value_loss = mean_over((value - flat(batch.returns, batch)).square(), batch)
    entropy_mean = mean_over(entropy, batch)
    total = policy_loss + vf_coef * value_loss - ent_coef * entropy_mean
    return LossTerms(total, policy_loss, value_loss, entropy_mean)


@torch.no_grad()
def gradient_details(
    learner: Learner, net: ActorCritic, part: Batch, grad: Tensor, data: Prepared, rollout: Rollout
) -> dict[str, float]:
    """Metrics that cost time: gradient norms by part, targets, and hidden units on one batch."""
    with watch_units(net) as units:
        evaluate_actions(net, learner.actions, part)
    norms = learner.optimizers["policy"].part_norms(grad)
    return {
        **{f"opt/grads/norm/{name}": norm for name, norm in norms.items()},
        **data.targets.details(rollout.valid),
        **units.metrics(part.obs),
    }


def mean_over(values: Tensor, batch: Batch) -> Tensor:
    """Mean over the valid samples."""
    if batch.valid is None or values.ndim == 0:
        return values.mean()
    weight = batch.valid.flatten().to(values.dtype)
    return (values * weight).sum() / weight.sum().clamp(min=1.0)


def scaled_losses(
    value: float, entropy: float, hp: Mapping[str, float], has_critic: bool = True
) -> dict[str, float]:
    """The terms of the loss with their weights."""
    found = {
        "opt/loss/entropy": -entropy,
        "opt/loss/entropy_scaled": 0.0 - hp["ent_coef"] * entropy,
    }
    return found | ({"opt/loss/value_scaled": hp["vf_coef"] * value} if has_critic else {})


def flat(column: Tensor, batch: Batch) -> Tensor:
    """Flatten a column of a batch to the order of the results of `evaluate_actions`."""
    return column.flatten() if batch.is_sequence else column


def sequence_cut(learner: Learner, rollout: Rollout) -> Cut:
    """Into sequences of the configured length. It is the same for a rollout cut short by the
    budget: recorded gradients have a fixed length."""
    cfg = learner.config
    return Cut(len(rollout.valid), min(cfg.sequence_length or cfg.rollout_rows, cfg.rollout_rows))


@torch.no_grad()
def rollout_values(net: ActorCritic, rollout: Rollout, device: torch.device) -> np.ndarray:
    """Values [T + 1, N] of every observation of a rollout. With a recurrent core, each has the
    carry of the acting policy, also the final observation of a truncated episode."""
    rows = map_tree(lambda part: part.flatten(0, 1), rollout.obs_on(device))
    if net.core is not None:
        carry, first = (on_device(x, device) for x in (rollout.carry["core"], rollout.is_first))
        given = (rows, carry.flatten(0, 1), first.flatten(0, 1))
        values = in_chunks(lambda parts: net.step_value(*parts), given, net.has_images)
    else:
        values = in_chunks(net.value, rows, net.has_images)
    return values.view(rollout.is_first.shape).cpu().numpy()


@torch.no_grad()
def acting_log_prob(learner: Learner, rollout: Rollout, actions: Tensor) -> Tensor:
    """Log-probabilities [T * N] under the acting policy, as recorded in the rollout or from its
    outputs."""
    if rollout.log_prob is not None:
        return learner.to_device(rollout.log_prob).flatten()
    assert rollout.outputs is not None, "on-policy rollouts must record the policy's outputs"
    outputs = learner.to_device(rollout.outputs).flatten(0, 1)
    log_std = None if rollout.log_std is None else learner.to_device(rollout.log_std)
    log_prob, _ = learner.actions.log_prob_entropy(outputs, log_std, actions)
    return log_prob


@torch.no_grad()
def corrected(net: ActorCritic, actions: ActionKind, batch: Batch) -> Batch:
    """The batch of a rollout that an earlier policy made: advantages weighted by min(1, pi / mu),
    the truncated importance weights of IMPALA's policy gradient (Espeholt et al. 2018)."""
    log_prob, _, _ = evaluate_actions(net, actions, batch)
    weight = (log_prob - flat(batch.log_prob, batch)).exp().clamp(max=1.0)
    return batch._replace(advantage=batch.advantage * weight.view(batch.advantage.shape))


def prepare(
    learner: Learner,
    net: ActorCritic,
    rollout: Rollout,
    advantage: np.ndarray,
    returns: np.ndarray,
    values: np.ndarray,
    raw_advantage: np.ndarray | None = None,
) -> Prepared:
    """Build the training batch from a rollout and its advantages, returns and values [T, N].

    `raw_advantage`: before standardisation, for the metrics."""
    valid, device = rollout.valid, learner.device
    raw_advantage = advantage if raw_advantage is None else raw_advantage
    targets = Targets(advantage, returns, values, raw_advantage)
    if net.core is None and device.type == "cpu":
        return _prepared_rows(learner, rollout, targets)
    actions = learner.to_device(rollout.actions)
    flat_actions = actions.flatten(0, 1)
    log_prob = acting_log_prob(learner, rollout, flat_actions)
    columns = {
        "advantage": learner.to_device(np.asarray(advantage, np.float32)),
        "returns": learner.to_device(np.asarray(returns, np.float32)),
        "value": learner.to_device(np.asarray(values, np.float32)),
    }
    mask = None if rollout.mask is None else learner.to_device(rollout.mask[:-1])
    quality = ops.explained_variance(values[valid], returns[valid])
    if net.core is not None:
        cut = sequence_cut(learner, rollout)
        batch = Batch(
            obs=map_tree(cut, rollout.obs_on(device)),
            actions=cut(actions),
            log_prob=cut(log_prob.view(valid.shape)),
            mask=None if mask is None else cut(mask),
            valid=cut.valid(learner.to_device(valid)),
            is_first=cut(learner.to_device(rollout.is_first)),
            carry=cut.starts(learner.to_device(rollout.carry["core"])),
            **{name: cut(column) for name, column in columns.items()},
        )
        return Prepared(batch, len(batch.advantage), int(valid.sum()), quality, targets)
    rows = learner.to_device(np.flatnonzero(valid))
    batch = Batch(
        obs=map_tree(lambda part: part[:-1].flatten(0, 1)[rows], rollout.obs_on(device)),
        actions=flat_actions[rows],
        log_prob=log_prob[rows],
        mask=None if mask is None else mask.flatten(0, 1)[rows],
        **{name: column.flatten()[rows] for name, column in columns.items()},
    )
    n = len(rows)
    return Prepared(batch, n, n, quality, targets)


def _prepared_rows(learner: Learner, rollout: Rollout, targets: Targets) -> Prepared:
    """The same for single rows on a CPU. Rows are taken in NumPy, which takes half of torch's time
    for those of a small rollout."""
    rows = np.flatnonzero(rollout.valid)

    def chosen(column: np.ndarray) -> Tensor:
        return torch.from_numpy(column.reshape(-1, *column.shape[2:])[rows])

    log_prob = rollout.log_prob
    if log_prob is None:
        flat_actions = learner.to_device(rollout.actions).flatten(0, 1)
        log_prob = acting_log_prob(learner, rollout, flat_actions).numpy()[None]
    advantage, returns, value = (
        chosen(np.asarray(column, np.float32))
        for column in (targets.advantage, targets.returns, targets.values)
    )
    batch = Batch(
        obs=map_tree(lambda part: chosen(part[:-1]), rollout.obs),
        actions=chosen(rollout.actions),
        log_prob=chosen(log_prob),
        advantage=advantage,
        returns=returns,
        value=value,
        mask=None if rollout.mask is None else chosen(rollout.mask[:-1]),
    )
    quality = ops.explained_variance(value.numpy(), returns.numpy())
    return Prepared(batch, len(rows), len(rows), quality, targets)
