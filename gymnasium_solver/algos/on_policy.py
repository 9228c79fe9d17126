"""Shared parts of the on-policy actor-critics: building the network and preparing a batch.

    net, policy = build_actor_critic(learner)
    values = RolloutValues(learner)(rollout)
    data = prepare(learner, rollout, advantage, returns, values)
    steps = descent(data.batch, numbers, lr, data.batch.minibatches(descent, batch_size, rng))

For a feed-forward network the batch holds the valid rows of the rollout, [n, ...]. A recurrent
network trains on sequences of `sequence_length` rows, [S, L, ...], each with the carry that the
acting policy had before its first row; a minibatch is a subset of the sequences.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from gymnasium_solver.algos import ops
from gymnasium_solver.algos.learner import Learner
from gymnasium_solver.algos.policy_loss import Batch, evaluate_actions
from gymnasium_solver.algos.units import unit_metrics
from gymnasium_solver.data.rollout import Rollout
from gymnasium_solver.data.sequences import Cut
from gymnasium_solver.errors import ConfigError
from gymnasium_solver.fast.cuda_graph import on_device
from gymnasium_solver.fast.descent import Descent, Part
from gymnasium_solver.nets.actor_critic import ActorCritic
from gymnasium_solver.nets.branches import VALUE
from gymnasium_solver.nets.encoder import in_chunks
from gymnasium_solver.nets.heads import critic_head
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
    explained_variance: float
    targets: Targets
    n_rows: int  # rows of the rollout, reset rows included

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
    recurrence = network.recurrence
    if recurrence is not None and cfg.share_trunk is False:
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
    normalizes = critic and getattr(cfg, "normalize_values", False)
    conflicts = {
        f"a linear output layer; head: {cfg.head} is of a plugin. Remove one of them.": (
            cfg.head != "linear"
        ),
        "a linear output layer; remove block: simbav2": cfg.block == "simbav2",
        "one linear layer; remove output_dims of value": bool(
            {"*", VALUE} & network.output_dims.keys()
        ),
    }
    for what, is_given in conflicts.items():
        if normalizes and is_given:
            raise ConfigError(f"normalize_values rescales {what}")
    if network.heads_by is not None and (recurrence or normalizes):
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
        critic=critic,
        normalize_values=normalizes,
        sde_log_std_init=cfg.sde_log_std_init if getattr(cfg, "sde", False) else None,
        generator=learner.generator,
    ).to(learner.device)
    policy: ActorPolicy = learner.make_policy(
        ActorPolicy, net, on_host=learner.execution.acts_on_host,
        sde_sample_freq=getattr(cfg, "sde_sample_freq", -1),
    )  # fmt: skip
    return net, policy


def details(
    learner: Learner, descent: Descent, data: Prepared, numbers: Mapping[str, float],
    part: Part, rollout: Rollout,
) -> dict[str, float]:  # fmt: skip
    """Metrics that cost time: gradient norms by part of the network in the first minibatch, hidden
    units on some of its samples, and targets."""
    net, batch = learner.net, data.batch
    some = np.arange(batch.n)[:UNITS_MEASURED] if part is None else part[:UNITS_MEASURED]
    first = batch.take(learner.to_device(some))
    return {
        **descent.gradient_norms(batch, numbers, part),
        **data.targets.details(rollout.valid),
        **unit_metrics(net, first.obs, lambda: evaluate_actions(net, learner.actions, first)),
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
        self._forward = learner.add_forward("value", net.value, wanted=net.critic_head is not None)

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
        learner, net = self.learner, self.learner.net
        given: list[Any] = [map_obs(lambda part: _flat_rows(part[first:]), rollout.obs)]
        if net.core is not None:
            given += [_flat_rows(rollout.carry["core"][first:])]
            given += [_flat_rows(rollout.is_first[first:])]
        found = self._forward(*given)
        if found is None:
            return outputs_by_torch(learner, rollout, net.value, net.core is not None)[first:]
        return found[0].reshape(-1, rollout.is_first.shape[1])


@torch.no_grad()
def outputs_by_torch(
    learner: Learner, rollout: Rollout, function: Callable[..., Any], has_core: bool
) -> np.ndarray:
    """What a network computes for every observation of a rollout [T + 1, N, ...]. With a recurrent
    core, each has the carry of the acting policy."""
    device = learner.device
    given = [rollout.obs_on(device)]
    if has_core:
        given += [on_device(x, device) for x in (rollout.carry["core"], rollout.is_first)]
    rows = map_tree(lambda part: part.flatten(0, 1), given)
    found: Tensor = in_chunks(lambda parts: function(*parts), rows, learner.net.has_images)
    return found.view(*rollout.is_first.shape, *found.shape[1:]).cpu().numpy()


def _flat_rows(part: np.ndarray) -> np.ndarray:
    """[T, N, ...] as [T * N, ...]."""
    return part.reshape(-1, *part.shape[2:])


def learnt_columns(
    learner: Learner, rollout: Rollout, has_core: bool, columns: dict[str, Any]
) -> dict[str, Any]:
    """Columns [T, N, ...] of a rollout, and its observations, as a batch on the device: the valid
    rows [n, ...]. Of a recurrent network sequences [S, L, ...], with what these need."""
    device, valid = learner.device, rollout.valid
    if has_core or device.type != "cpu":
        columns = map_tree(learner.to_device, columns) | {"obs": rollout.obs_on(device)}
    if has_core:
        cut = sequence_cut(learner, rollout)
        return {
            **map_tree(cut, columns),
            "valid": cut.valid(learner.to_device(valid)),
            "is_first": cut(learner.to_device(rollout.is_first)),
            "carry": cut.starts(learner.to_device(rollout.carry["core"])),
        }
    rows, n = np.flatnonzero(valid), len(valid)
    if device.type != "cpu":
        index = learner.to_device(rows)
        return map_tree(lambda part: part[:n].flatten(0, 1)[index], columns)

    def taken(part: Any) -> Tensor:  # NumPy needs half of torch's time, for a small rollout
        return torch.from_numpy(_flat_rows(np.asarray(part)[:n])[rows])

    return map_tree(taken, columns | {"obs": rollout.obs})


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
    valid = rollout.valid
    raw_advantage = advantage if raw_advantage is None else raw_advantage
    targets = Targets(advantage, returns, values, raw_advantage)
    log_prob: Any = rollout.log_prob
    if log_prob is None:
        flat_actions = learner.to_device(rollout.actions).flatten(0, 1)
        log_prob = acting_log_prob(learner, rollout, flat_actions).view(valid.shape)
    columns: dict[str, Any] = {
        "advantage": np.asarray(advantage, np.float32),
        "returns": np.asarray(returns, np.float32),
        "value": np.asarray(values, np.float32),
        "actions": rollout.actions,
        "log_prob": log_prob,
        "mask": rollout.mask,
    }
    batch = Batch(**learnt_columns(learner, rollout, learner.net.core is not None, columns))
    quality = ops.explained_variance(columns["value"][valid], columns["returns"][valid])
    return Prepared(batch, quality, targets, valid.size)
