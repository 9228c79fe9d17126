"""Shared parts of the on-policy actor-critics: building the network and preparing a batch.

    net, policy = build_actor_critic(learner)
    values = RolloutValues(learner)(rollout)
    data = prepare(learner, rollout, advantage, returns, values)
    steps = descent(data.batch, numbers, lr, data.minibatches(descent, batch_size, rng))

For a feed-forward network the batch holds the valid rows of the rollout, [n, ...]. A recurrent
network trains on sequences of `sequence_length` rows, [S, L, ...], each with the carry that the
acting policy had before its first row; a minibatch is a subset of the sequences.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from gymnasium_solver.algos import ops
from gymnasium_solver.algos.learner import Learner
from gymnasium_solver.algos.policy_loss import Batch, evaluate_actions
from gymnasium_solver.algos.units import watch_units
from gymnasium_solver.data.rollout import Rollout
from gymnasium_solver.data.sequences import Cut
from gymnasium_solver.errors import ConfigError
from gymnasium_solver.fast.cuda_graph import on_device
from gymnasium_solver.fast.descent import Descent, Part
from gymnasium_solver.nets.actor_critic import ActorCritic
from gymnasium_solver.nets.branches import VALUE
from gymnasium_solver.nets.encoder import in_chunks
from gymnasium_solver.nets.heads import critic_head
from gymnasium_solver.nets.recurrent import Recurrence
from gymnasium_solver.policies.policy import ActorPolicy
from gymnasium_solver.spaces.observations import map_obs
from gymnasium_solver.tree import map_tree

UNITS_MEASURED = 256  # samples on which hidden units are measured


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


class Prepared(NamedTuple):
    batch: Batch
    n: int
    """Number of samples, or of sequences."""
    n_samples: int
    explained_variance: float
    targets: Targets
    n_rows: int
    """Rows of the rollout, reset rows included."""

    def take(self, index: Tensor | slice) -> Batch:
        """Select samples or sequences."""
        part: Batch = map_tree(lambda column: column[index], self.batch)
        return part

    def minibatches(
        self, descent: Descent, batch_size: int, rng: np.random.Generator, n_rows: int | None = None
    ) -> list[Part]:
        """Shuffled minibatches of about `batch_size` samples. For sequences, each has as many
        sequences as have `batch_size` rows. `n_rows`: see Descent.minibatches."""
        valid = self.batch.valid
        if valid is None:
            return descent.minibatches(self.n, batch_size, rng, n_rows)
        return descent.minibatches(self.n, max(1, round(batch_size / valid.shape[1])), rng)

    def standardized(self, parts: Sequence[Part]) -> Batch:
        """The batch with advantages that are standardised within each minibatch of a pass."""
        given, valid = self.batch.advantage, self.batch.valid
        if parts[0] is None:
            return self.batch._replace(advantage=_standardized(given, valid))
        advantage = torch.empty_like(given)
        for rows in parts:
            assert rows is not None
            where = on_device(rows, given.device)
            chosen = None if valid is None else valid[where]
            advantage[where] = _standardized(given[where], chosen)
        return self.batch._replace(advantage=advantage)


def _standardized(x: Tensor, valid: Tensor | None) -> Tensor:
    chosen = x if valid is None else x[valid]
    return (x - chosen.mean()) / (chosen.std(correction=0) + 1e-8)


def build_actor_critic(learner: Learner, critic: bool = True) -> tuple[ActorCritic, ActorPolicy]:
    """Build the network described by the config, and its policy."""
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
    if network.critic_keys and is_shared:
        raise ConfigError(
            "critic_keys: policy and value share their hidden layers here, which would show the "
            "actor what only the critic sees: set share_trunk: false, without recurrent"
        )
    if getattr(cfg, "normalize_values", False) and cfg.head != "linear":
        raise ConfigError(
            f"normalize_values rescales a linear output layer; head: {cfg.head} is of a plugin. "
            "Remove one of them."
        )
    if getattr(cfg, "normalize_values", False) and cfg.block == "simbav2":
        raise ConfigError("normalize_values rescales a linear output layer; remove block: simbav2")
    if getattr(cfg, "normalize_values", False) and {"*", VALUE} & network.output_dims.keys():
        raise ConfigError("normalize_values rescales one linear layer; remove output_dims of value")
    if network.heads_by is not None and (recurrence or getattr(cfg, "normalize_values", False)):
        other = "recurrent" if recurrence else "normalize_values"
        raise ConfigError(f"heads_by does not work with {other}; remove one of them")
    head = None
    if critic and cfg.critic_head != "scalar":
        if cfg.critic_head == "c51":
            raise ConfigError(
                "critic_head: c51 projects the distribution of the next state, but the returns of "
                "a rollout are numbers: use two_hot or hl_gauss"
            )
        others = ("normalize_values", "clip_range_vf", "output_dims", "heads_by")
        given = [name for name in others if getattr(cfg, name, None)]
        if given:
            raise ConfigError(
                f"critic_head: {cfg.critic_head} does not work with {given[0]}; remove one of them"
            )
        head = critic_head(cfg.critic_head, **cfg.head_settings).to(learner.device)
    net = ActorCritic(
        learner.observation_space,
        learner.actions,
        network,
        head=head,
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
        record=learner.execution.records_acting,
        compile=learner.execution.compiles,
        on_host=learner.execution.acts_on_host,
        sde_sample_freq=getattr(cfg, "sde_sample_freq", -1),
    )
    return net, policy


def details(
    learner: Learner, descent: Descent, data: Prepared, numbers: Mapping[str, float],
    part: Part, rollout: Rollout,
) -> dict[str, float]:  # fmt: skip
    """Metrics that cost time: gradient norms by part of the network in the first minibatch, hidden
    units on some of its samples, and targets."""
    some = np.arange(data.n)[:UNITS_MEASURED] if part is None else part[:UNITS_MEASURED]
    first = data.take(learner.to_device(some))
    with torch.no_grad(), watch_units(learner.net) as units:
        evaluate_actions(learner.net, learner.actions, first)
    return {
        **descent.gradient_norms(data.batch, numbers, part),
        **data.targets.details(rollout.valid),
        **units.metrics(first.obs),
    }


def sequence_cut(learner: Learner, rollout: Rollout) -> Cut:
    """Into sequences of the configured length. It is the same for a rollout cut short by the
    budget: recorded gradients have a fixed length."""
    cfg = learner.config
    return Cut(len(rollout.valid), min(cfg.sequence_length or cfg.rollout_rows, cfg.rollout_rows))


class RolloutValues:
    """Values [T + 1, N] of every observation of a rollout, by the critic of an ActorCritic. With a
    recurrent core, each has the carry of the acting policy, also the final observation of a
    truncated episode."""

    def __init__(self, learner: Learner):
        self.learner, net = learner, learner.net
        value = net.value if net.core is None else net.step_value
        self._forward = learner.add_forward("value", value, wanted=net.critic_head is not None)

    def __call__(self, rollout: Rollout, is_new: bool = True) -> np.ndarray:
        """`is_new`: the network is still the one that acted, whose values the rollout may have."""
        learner, acted = self.learner, rollout.value
        # The first rollout changes the scale of observations before the update: see `observing`.
        is_rescaled = learner.encoder.learns_moments and learner.n_updates == 0
        is_new = is_new and rollout.version == learner.n_updates and not is_rescaled
        if acted is None or not is_new:
            return self._computed(rollout, 0)
        return np.concatenate([acted, self._computed(rollout, len(rollout.valid))])

    def _computed(self, rollout: Rollout, first: int) -> np.ndarray:
        """Values of the observations from row `first` on."""
        given: list[Any] = [map_obs(lambda part: _flat_rows(part[first:]), rollout.obs)]
        if self.learner.net.core is not None:
            given += [_flat_rows(rollout.carry["core"][first:])]
            given += [_flat_rows(rollout.is_first[first:])]
        found = self._forward(*given)
        if found is None:
            return self._by_torch(rollout)[first:]
        return found[0].reshape(-1, rollout.is_first.shape[1])

    @torch.no_grad()
    def _by_torch(self, rollout: Rollout) -> np.ndarray:
        net, device = self.learner.net, self.learner.device
        rows = map_tree(lambda part: part.flatten(0, 1), rollout.obs_on(device))
        if net.core is not None:
            carry, first = (on_device(x, device) for x in (rollout.carry["core"], rollout.is_first))
            given = (rows, carry.flatten(0, 1), first.flatten(0, 1))
            values = in_chunks(lambda parts: net.step_value(*parts), given, net.has_images)
        else:
            values = in_chunks(net.value, rows, net.has_images)
        return values.view(rollout.is_first.shape).cpu().numpy()


def _flat_rows(part: np.ndarray) -> np.ndarray:
    """[T, N, ...] as [T * N, ...]."""
    return part.reshape(-1, *part.shape[2:])


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


def prepare(
    learner: Learner,
    rollout: Rollout,
    advantage: np.ndarray,
    returns: np.ndarray,
    values: np.ndarray,
    raw_advantage: np.ndarray | None = None,
) -> Prepared:
    """Build the training batch from a rollout and its advantages, returns and values [T, N].

    `raw_advantage`: before standardisation, for the metrics."""
    valid, device, net = rollout.valid, learner.device, learner.net
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
        return Prepared(batch, len(batch.advantage), int(valid.sum()), quality, targets, valid.size)
    rows = learner.to_device(np.flatnonzero(valid))
    batch = Batch(
        obs=map_tree(lambda part: part[:-1].flatten(0, 1)[rows], rollout.obs_on(device)),
        actions=flat_actions[rows],
        log_prob=log_prob[rows],
        mask=None if mask is None else mask.flatten(0, 1)[rows],
        **{name: column.flatten()[rows] for name, column in columns.items()},
    )
    n = len(rows)
    return Prepared(batch, n, n, quality, targets, valid.size)


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
    return Prepared(batch, len(rows), len(rows), quality, targets, rollout.valid.size)
