"""Shared parts of the on-policy actor-critics: building the network and preparing a batch.

    net, policy, optimizer = build_actor_critic(learner)
    data = prepare(learner, net, rollout, advantage, returns, values)
    for part in data.minibatches(...): ...

For a feed-forward network the batch holds the valid rows of the rollout, [n, ...]. A recurrent
network trains on whole sequences: the batch keeps the rows [T + 1, N, ...], and a minibatch is a
subset of the envs.
"""

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from gymnasium_solver.algos import ops
from gymnasium_solver.algos.learner import Learner
from gymnasium_solver.data.rollout import Rollout
from gymnasium_solver.errors import ConfigError
from gymnasium_solver.fast.optimizer import FlatOptimizer
from gymnasium_solver.nets.actor_critic import ActorCritic, Recurrence
from gymnasium_solver.nets.encoder import in_chunks
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
        found = {}
        for name, column in zip(names, self, strict=True):
            chosen = column[valid]
            found[f"roll/{name}/mean"] = float(chosen.mean())
            found[f"roll/{name}/std"] = float(chosen.std())
        return found


class Batch(NamedTuple):
    """Input of a policy-gradient loss. Feed-forward: all tensors are [n, ...]."""

    obs: Any  # tree of tensors; [T + 1, B, ...] for sequences
    actions: Tensor
    log_prob: Tensor  # under the acting policy
    advantage: Tensor
    returns: Tensor
    value: Tensor  # before the update
    mask: Tensor | None = None  # legal actions, if the env provides masks
    # Set for sequences only:
    valid: Tensor | None = None  # [T, B]: valid rows
    is_first: Tensor | None = None  # [T + 1, B]
    carry: Tensor | None = None  # state before the first row [B, ...]

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
        if not self.batch.is_sequence:
            return map_tree(lambda column: column[index], self.batch)
        carry = self.batch.carry
        part: Batch = map_tree(lambda column: column[:, index], self.batch._replace(carry=None))
        return part._replace(carry=None if carry is None else carry[index])

    def minibatches(
        self, batch_size: int, rng: np.random.Generator, device: torch.device, n_rows: int
    ) -> Iterator[Batch]:
        """Yield shuffled minibatches of about `batch_size` samples. For sequences, each minibatch
        has the number of sequences that contains about `batch_size` samples."""
        size, rows = batch_size, n_rows if device.type == "cuda" else None
        if self.batch.is_sequence:
            size, rows = max(1, round(batch_size * self.n / max(1, self.n_samples))), None
        for index in ops.minibatches(self.n, size, rng, rows):
            yield self.take(None if index is None else torch.from_numpy(index).to(device))


def build_actor_critic(
    learner: Learner, critic: bool = True
) -> tuple[ActorCritic, ActorPolicy, FlatOptimizer]:
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
    net = ActorCritic(
        learner.observation_space,
        learner.actions,
        network,
        share_trunk=is_shared,
        log_std_init=cfg.log_std_init,
        normalize_obs=cfg.obs_normalization,
        clip_obs=cfg.clip_obs,
        critic=critic,
        recurrence=recurrence,
        generator=learner.generator,
    ).to(learner.device)
    policy = ActorPolicy(
        net,
        learner.observation_space,
        learner.actions,
        learner.act_rng,
        record=learner.may_record_acting,
    )
    return net, policy, learner.add_optimizer("policy", net)


def evaluate_actions(
    net: ActorCritic, actions: ActionKind, batch: Batch
) -> tuple[Tensor, Tensor, Tensor | None]:
    """Return log-probabilities, entropies and values under the current network.

    For sequences the results are [T * B], in the order of `batch.actions.flatten(0, 1)`.
    """
    if not batch.is_sequence:
        if net.critic_head is None:
            outputs, value = net.actor(batch.obs), None
        else:
            outputs, value = net(batch.obs)
        outputs = mask_tensor(outputs, batch.mask)
        log_prob, entropy = actions.log_prob_entropy(outputs, net.log_std, batch.actions)
        return log_prob, entropy, value
    assert batch.is_first is not None
    assert batch.carry is not None
    obs = map_tree(lambda part: part[:-1], batch.obs)
    outputs, value, _ = net.sequence(obs, batch.carry, batch.is_first[:-1])
    mask = None if batch.mask is None else batch.mask.flatten(0, 1)
    outputs = mask_tensor(outputs, mask)
    log_prob, entropy = actions.log_prob_entropy(outputs, net.log_std, batch.actions.flatten(0, 1))
    return log_prob, entropy, value


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


@torch.no_grad()
def rollout_values(net: ActorCritic, rollout: Rollout, device: torch.device) -> np.ndarray:
    """Values [T + 1, N] of every observation of a rollout."""
    obs = rollout.obs_on(device)
    n_rows, n_envs = rollout.is_first.shape
    if net.core is not None:
        carry = torch.from_numpy(rollout.carry["core"][0]).to(device)
        _, values, _ = net.sequence(obs, carry, torch.from_numpy(rollout.is_first).to(device))
        assert values is not None
    else:
        rows = map_tree(lambda part: part.flatten(0, 1), obs)
        values = in_chunks(net.value, rows, net.has_images)
    return values.view(n_rows, n_envs).cpu().numpy()


@torch.no_grad()
def acting_log_prob(learner: Learner, rollout: Rollout, actions: Tensor) -> Tensor:
    """Log-probabilities [T * N] under the acting policy, from the outputs recorded in the
    rollout."""
    assert rollout.outputs is not None, "on-policy rollouts must record the policy's outputs"
    outputs = learner.to_device(rollout.outputs).flatten(0, 1)
    log_std = None if rollout.log_std is None else learner.to_device(rollout.log_std)
    log_prob, _ = learner.actions.log_prob_entropy(outputs, log_std, actions)
    return log_prob


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
        batch = Batch(
            obs=rollout.obs_on(device),
            actions=actions,
            log_prob=log_prob.view(valid.shape),
            mask=mask,
            valid=learner.to_device(valid),
            is_first=learner.to_device(rollout.is_first),
            carry=learner.to_device(rollout.carry["core"][0]),
            **columns,
        )
        return Prepared(batch, valid.shape[1], int(valid.sum()), quality, targets)
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
