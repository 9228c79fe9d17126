"""A trained policy as one torch module: raw observations in, the environment's actions out.

It holds all that lies between the environment and the network: the run's observation wrappers, the
normaliser, legal actions, the recurrent core, and the conversion of actions. It is greedy: the
actions of an evaluation. Of a planner (TD-MPC2) it is the learnt policy, without planning.

A written form is compared with the run's own policy on observations of its environment. Half of the
environments follow the policy, the others act at random, so that the observations are not only
those of a good agent. Where the environment cannot be built here, they are drawn from its space.
"""

import math
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from gymnasium_solver.algos.agent import Agent
from gymnasium_solver.config.schema import Config
from gymnasium_solver.envs.as_gymnasium import Applied, Treatment, applied_layers, tap_observations
from gymnasium_solver.envs.make import env_from_config
from gymnasium_solver.envs.vector import VectorWrapper
from gymnasium_solver.envs.wrappers import observations as mapping
from gymnasium_solver.envs.wrappers.actions import ValidActions
from gymnasium_solver.errors import EnvError, RunError
from gymnasium_solver.policies.continuous import DeterministicPolicy, SoftPolicy
from gymnasium_solver.policies.latent import LatentPolicy
from gymnasium_solver.policies.planner import PriorPolicy
from gymnasium_solver.policies.policy import ActorPolicy, Policy
from gymnasium_solver.policies.q_policy import QPolicy
from gymnasium_solver.spaces import actions as kinds
from gymnasium_solver.spaces import observations, space_types
from gymnasium_solver.spaces.actions import ActionKind
from gymnasium_solver.spaces.observations import Obs, Space, map_obs
from gymnasium_solver.spaces.space_types import action_leaves, is_box

Parts = dict[str, Tensor]


class Deployed(nn.Module):
    """`forward` takes and returns tensors in the order of `input_names` and `output_names`."""

    legal: Tensor | None

    def __init__(self, agent: Agent, treatment: Treatment, has_mask: bool):
        super().__init__()
        policy = agent.policy.exported
        actions = policy.actions
        self.kind, self.net = actions, agent.net
        self.has_memory, self.has_mask = policy.has_memory, has_mask
        self._outputs, self._of_outputs = _scores_of(policy)
        self.raw_parts = {
            name: part
            for name, part in observations.part_spaces(treatment.space).items()
            if name not in policy.unread
        }
        wrappers = applied_layers(treatment, actions.space)
        masks = [wrapper.legal for wrapper in wrappers if isinstance(wrapper, ValidActions)]
        self.maps = [_map(w) for w in wrappers if not isinstance(w, ValidActions)]
        legal = torch.from_numpy(np.logical_and.reduce(masks)) if masks else None
        self.register_buffer("legal", legal)
        self.carry_width = policy.initial_carry(1)["core"].shape[1] if self.has_memory else 0
        self._is_dict = space_types.is_dict(agent.observation_space)
        self._parts = list(self.raw_parts)
        self.obs_names = [f"obs.{name}" if name else "obs" for name in self._parts]
        self.input_names = [*self.obs_names, *["action_mask"] * has_mask]
        self.input_names += ["carry", "is_first"] * self.has_memory
        self.output_names = output_names(actions.space) + ["next_carry"] * self.has_memory

    def forward(self, *inputs: Tensor) -> tuple[Tensor, ...]:
        scores, carry = self.scores(*inputs)
        actions = best_actions(self.kind, scores)
        return (*actions, carry) if carry is not None else tuple(actions)

    def scores(self, *inputs: Tensor) -> tuple[Tensor, Tensor | None]:
        """Logits, Q-values or actions in the policy's units; and the next carry."""
        given = dict(zip(self.input_names, inputs, strict=True))
        parts = {p: given[key] for p, key in zip(self._parts, self.obs_names, strict=True)}
        for function in self.maps:
            parts = function(parts)
        obs = parts if self._is_dict else parts[""]
        carry = None
        if self.has_memory:
            net: Any = self.net
            outputs, carry = net.step(obs, given["carry"], given["is_first"])
            scores = self._of_outputs(outputs)
        else:
            scores = self._of_outputs(self._outputs(obs))
        mask = given.get("action_mask")
        if self.legal is not None:
            mask = self.legal if mask is None else mask & self.legal
        return (scores if mask is None else torch.where(mask, scores, -torch.inf)), carry

    def arrays(
        self, obs: Obs, mask: np.ndarray | None, carry: np.ndarray | None, is_first: np.ndarray
    ) -> dict[str, np.ndarray]:
        """The inputs by name; `carry` None: none yet."""
        own = dict(observations.obs_arrays(obs))
        given = {key: own[part] for part, key in zip(self._parts, self.obs_names, strict=True)}
        if self.has_mask:
            assert mask is not None, "this policy takes a mask of legal actions"
            given["action_mask"] = mask
        if self.has_memory:
            zeros = np.zeros((len(is_first), self.carry_width), np.float32)
            given |= {"carry": zeros if carry is None else carry, "is_first": is_first}
        return given


def deployed_policy(agent: Agent, treatment: Treatment, has_mask: bool) -> Deployed:
    """The policy of a loaded agent, ready to be exported; RunError if it is of an unknown kind."""
    policy = agent.policy.exported
    if isinstance(policy, QPolicy):
        policy.net.q.resample(None)  # no noise in noisy layers
    if isinstance(policy, LatentPolicy):
        raise RunError(
            "dreamerv3 draws the latents of its state at random, which an exported file cannot do, "
            "and acts worse without: use gs.load_agent(run) in its place"
        )
    return Deployed(agent, treatment, has_mask).eval()


def _scores_of(policy: Policy) -> tuple[Callable[[Any], Tensor], Callable[[Tensor], Tensor]]:
    """Observations to outputs, for a policy without memory; and outputs to scores."""
    if isinstance(policy, ActorPolicy):
        return policy.net.actor, _same
    if isinstance(policy, QPolicy):
        return policy.net.q_values, _same
    if isinstance(policy, SoftPolicy):
        is_box = isinstance(policy.actions, kinds.BoxActions)
        return policy.net.actor_outputs, _squashed_mean if is_box else _same
    if isinstance(policy, DeterministicPolicy):
        return policy.net.actor_outputs, torch.tanh
    if isinstance(policy, PriorPolicy):
        return policy.net.prior_mean, _same
    raise RunError(
        f"the policy {type(policy).__name__} cannot be exported; export knows the policies of the "
        "built-in algorithms."
    )


def _same(outputs: Tensor) -> Tensor:
    return outputs


def _squashed_mean(outputs: Tensor) -> Tensor:
    """Of means and deviations, side by side."""
    return torch.tanh(outputs.chunk(2, dim=1)[0])


# -- observation wrappers ---------------------------------------------------------------------
# envs/as_gymnasium.py says which wrappers an agent applies itself: those that map each observation
# alone. A wrapper without a map here (of a plugin) cannot be exported.


Map = Callable[[Tensor], Tensor]


def _affine(coefficients: tuple[np.ndarray, np.ndarray], *bounds: float) -> Map:
    """clip(x * scale + shift), in float32 as the NumPy wrapper computes it."""
    scale, shift = (torch.from_numpy(np.array(each, np.float32)) for each in coefficients)
    if not bounds:
        return lambda x: x.float() * scale + shift
    return lambda x: (x.float() * scale + shift).clamp(*bounds)


def _clip(low: np.ndarray, high: np.ndarray) -> Map:
    least, most = torch.from_numpy(np.array(low)), torch.from_numpy(np.array(high))
    return lambda x: torch.minimum(torch.maximum(x, least), most)


def _components(kept: list[int]) -> Map:
    return lambda x: torch.cat([x[..., i : i + 1] for i in kept], dim=-1)


def _lookup(table: np.ndarray, start: int) -> Map:
    """Row `x - start` of a table."""
    rows = torch.from_numpy(table.astype(np.float32))
    return lambda x: rows[x.long() - start if start else x.long()]


_MAPS: dict[type, Callable[[Any, Any], Map]] = {
    mapping.DiscreteEncoder: lambda wrapper, space: _lookup(wrapper.table(space), int(space.start)),
    mapping.ObservationScale: lambda wrapper, space: _affine(wrapper.coefficients(space)),
    mapping.ObservationRescale: lambda wrapper, space: _affine(
        wrapper.coefficients(space), float(wrapper.low), float(wrapper.high)
    ),
    mapping.ObservationClip: lambda wrapper, space: _clip(*wrapper.limits(space)),
    mapping.ObservationComponents: lambda wrapper, space: _components(wrapper.kept(space)),
}


def _map(wrapper: VectorWrapper) -> Callable[[Parts], Parts]:
    """What a wrapper does to the parts of an observation; {"": ...} is a plain one."""
    if isinstance(wrapper, mapping.ObservationParts):
        names = wrapper.names
        if len(names) == 1:
            return lambda parts: {"": parts[names[0]]}
        return lambda parts: {name: parts[name] for name in names if name in parts}
    build = _MAPS.get(type(wrapper))
    if build is None or not isinstance(wrapper, mapping.ObservationMap):
        raise RunError(
            f"the wrapper {type(wrapper).__name__} of this run cannot be exported. Wrappers with "
            f"an exported form: {', '.join(kind.__name__ for kind in _MAPS)}, ObservationParts."
        )
    spaces = observations.part_spaces(wrapper.env.observation_space)
    maps = {name: build(wrapper, spaces[name]) for name in wrapper.mapped_parts}
    return lambda parts: (
        parts | {name: function(parts[name]) for name, function in maps.items() if name in parts}
    )


# -- actions ----------------------------------------------------------------------------------
# The counterpart of `ActionKind.mode` and `to_env` (spaces/actions.py), which act in NumPy.


def best_actions(kind: ActionKind, outputs: Tensor) -> list[Tensor]:
    """The most likely action of each row, in the env's units: one tensor per leaf of the space."""
    shape = (-1, *(kind.space.shape or ()))
    if isinstance(kind, kinds.ProductActions):
        leaves = [a for leaf, own in _leaves(kind, outputs) for a in best_actions(leaf, own)]
        return [_typed(s, a) for s, a in zip(action_leaves(kind.space), leaves, strict=True)]
    if isinstance(kind, kinds.BoxBase):
        return [_box(kind, kind.centre(outputs).reshape(shape))]
    if isinstance(kind, kinds.DiscreteActions):
        best = outputs.argmax(dim=1)
        return [best + kind.start if kind.start else best]
    if isinstance(kind, kinds.MultiDiscreteActions):
        choices = [part.argmax(dim=1) for part in outputs.split(kind.sizes, dim=1)]
        return [(torch.stack(choices, dim=1) + torch.from_numpy(kind.start)).reshape(shape)]
    if isinstance(kind, kinds.MultiBinaryActions):
        return [(outputs > 0).long().reshape(shape)]
    raise RunError(f"actions of the kind {type(kind).__name__} cannot be exported.")


def _box(kind: kinds.BoxBase, actions: Tensor) -> Tensor:
    if not kind.is_bounded:
        return actions
    middle, half_width = (torch.from_numpy(p) for p in (kind.middle, kind.half_width))
    return middle + half_width * actions.clamp(-1.0, 1.0)


def _leaves(kind: kinds.ProductActions, outputs: Tensor) -> list[tuple[ActionKind, Tensor]]:
    widths = [leaf.n_outputs for leaf in kind.leaves]
    return list(zip(kind.leaves, outputs.split(widths, dim=1), strict=True))


def output_names(space: Space, prefix: str = "action") -> list[str]:
    """`action`, or for a Dict or Tuple one name per leaf: `action.steer`, `action.0`."""
    if not space_types.is_product(space):
        return [prefix]
    parts = space_types.parts_of(space).items()
    return [name for key, part in parts for name in output_names(part, f"{prefix}.{key}")]


def _typed(space: Space, action: Tensor) -> Tensor:
    """An action in the type of its leaf, inside its bounds."""
    if is_box(space):
        low, high = torch.from_numpy(space.low.copy()), torch.from_numpy(space.high.copy())
        action = torch.minimum(torch.maximum(action, low), high)
    assert space.dtype is not None
    return action.to(torch.float32 if space.dtype.kind == "f" else torch.int64)


def score_gap(kind: ActionKind, outputs: Tensor) -> Tensor:
    """[N]: how close each row is to a tie between actions; infinite for real-valued actions."""
    if isinstance(kind, kinds.ProductActions):
        gaps = [score_gap(leaf, own) for leaf, own in _leaves(kind, outputs)]
        return torch.stack(gaps).amin(dim=0)
    if isinstance(kind, kinds.MultiBinaryActions):
        return outputs.abs().amin(dim=1)
    sizes = kind.sizes if isinstance(kind, kinds.MultiDiscreteActions) else [outputs.shape[1]]
    gaps = [torch.full((len(outputs),), math.inf)]
    for part in outputs.split(sizes, dim=1):
        if part.shape[1] > 1 and not isinstance(kind, kinds.BoxBase):
            top = part.topk(2, dim=1).values
            gaps.append((top[:, 0] - top[:, 1]) / top.abs().amax(dim=1).clamp(min=1.0))
    return torch.stack(gaps).amin(dim=0)


# -- comparison ------------------------------------------------------------------------------

N_ENVS = 8
SEED = 20_240_117  # the seed of the episodes. Any number does: two forms of one policy are compared
TOLERANCE = 1e-4
"""Largest difference of a real-valued action, as a share of its range in the observed steps."""
TIE = 1e-5  # two choices whose scores differ less are a tie: rounding decides, and either is right
Written = tuple[bytes, float, dict[str, str], dict[str, str]]
"""A file, its largest difference from the policy, and a description of its inputs and outputs."""


@dataclass(frozen=True)
class Seen:
    """One step of N environments."""

    obs: Obs  # observations of the environment, before the wrappers that an agent applies itself
    mask: np.ndarray | None
    is_first: np.ndarray
    action: Any  # the policy's greedy action, as the environment takes it


@dataclass(frozen=True)
class Observed:
    steps: list[Seen]
    source: str  # where the observations come from, in words

    @property
    def n(self) -> int:
        return sum(len(step.is_first) for step in self.steps)


def observe(config: Config, agent: Agent, treatment: Treatment, n: int = 1000) -> Observed:
    """At least n observations of the environment, or of its space if it cannot be built."""
    try:
        return _played(config, agent, n)
    except EnvError as error:
        steps = _drawn(agent, treatment, n)
        return Observed(steps, f"{n} random points of the observation space ({error})")


def _played(config: Config, agent: Agent, n: int) -> Observed:
    policy, rng = agent.policy.exported, np.random.default_rng(SEED)
    env, tap = tap_observations(env_from_config(config, min(N_ENVS, n)))
    steps: list[Seen] = []
    with closing(env):
        obs, is_first = env.reset(SEED), np.ones(env.n_envs, bool)
        carry = policy.initial_carry(env.n_envs)
        while len(steps) * env.n_envs < n:
            acted = policy.greedy(obs, carry, is_first, env.action_mask)
            carry, best = acted.carry, policy.to_env(acted.actions)
            mask = None if tap.action_mask is None else tap.action_mask.copy()
            native = policy.actions.to_native(best)
            steps.append(Seen(map_obs(np.copy, tap.obs), mask, is_first.copy(), native))
            chance = policy.to_env(policy.actions.uniform(env.n_envs, rng, env.action_mask))
            taken = best.copy()
            taken[1::2] = chance[1::2]
            step = env.step(taken)
            obs, is_first = step.obs, step.is_reset
    return Observed(steps, f"{len(steps) * env.n_envs} observations of {config.env_id}")


def _drawn(agent: Agent, treatment: Treatment, n: int) -> list[Seen]:
    policy, apply = agent.policy.exported, Applied(treatment, agent.action_space)
    treatment.space.seed(SEED)
    steps, carry = [], policy.initial_carry(N_ENVS)
    is_first = np.ones(N_ENVS, bool)
    for _ in range(-(-n // N_ENVS)):
        raw = observations.allocate_obs(treatment.space, (N_ENVS,))
        for row in range(N_ENVS):
            for name, drawn in observations.obs_arrays(treatment.space.sample()):
                (raw[name] if isinstance(raw, dict) else raw)[row] = drawn
        obs, legal = apply(raw)
        mask = None if legal is None else np.broadcast_to(legal, (N_ENVS, legal.shape[1]))
        acted = policy.greedy(obs, carry, is_first, mask)
        carry = acted.carry
        native = policy.actions.to_native(policy.to_env(acted.actions))
        steps.append(Seen(raw, None, is_first, native))
        is_first = np.zeros(N_ENVS, bool)
    return steps


def compare_actions(
    policy: Deployed,
    step: Seen,
    inputs: Mapping[str, np.ndarray],
    actions: list[np.ndarray],
    rows: int | None = None,
) -> float:
    """The largest difference between these actions and the policy's own in this step.

    RunError if an action differs by more than rounding."""
    own = space_types.from_native_batch(policy.kind.space, step.action)[:rows]
    own = own.reshape(len(own), -1).astype(np.float64)
    got = np.concatenate([a.reshape(len(a), -1).astype(np.float64) for a in actions], axis=1)
    gap = np.abs(own - got).max(axis=1, initial=0.0)
    scale = max(1.0, float(np.abs(own).max(initial=0.0)))
    different = ~(gap <= TOLERANCE * scale)
    if different.any() and not _are_ties(policy, inputs, different):
        row = int(np.flatnonzero(different)[0])
        raise RunError(
            f"the exported file acts differently: {got[row].tolist()} where the run's policy "
            f"takes {own[row].tolist()}. Nothing was written; please report this run's config."
        )
    return float(gap[~different].max(initial=0.0))


@torch.no_grad()
def _are_ties(policy: Deployed, inputs: Mapping[str, np.ndarray], rows: np.ndarray) -> bool:
    n = len(rows)
    tensors = [torch.from_numpy(inputs[name][:n].copy()) for name in policy.input_names]
    scores, _ = policy.scores(*tensors)
    return bool((score_gap(policy.kind, scores).numpy()[rows] < TIE).all())
