"""A trained policy as one torch module: raw observations in, the environment's actions out.

    policy = deployed_policy(agent, treatment, has_mask=False)
    policy.input_names              # obs (or obs.NAME), action_mask, carry, is_first
    *actions, carry = policy(*inputs)

It holds all that lies between the environment and the network: the run's observation wrappers, the
normaliser, legal actions, the recurrent core, and the conversion of actions. It is greedy: the
actions of an evaluation.
"""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from gymnasium_solver.algos.agent import Agent
from gymnasium_solver.envs.as_gymnasium import Treatment, applied_layers
from gymnasium_solver.envs.vector import VectorWrapper
from gymnasium_solver.envs.wrappers.actions import ValidActions
from gymnasium_solver.envs.wrappers.observations import (
    DiscreteEncoder,
    ObservationClip,
    ObservationMap,
    ObservationParts,
    ObservationRescale,
    ObservationScale,
)
from gymnasium_solver.errors import RunError
from gymnasium_solver.policies.continuous import DeterministicPolicy, SoftPolicy
from gymnasium_solver.policies.policy import ActorPolicy, Policy
from gymnasium_solver.policies.q_policy import QPolicy
from gymnasium_solver.spaces.actions import (
    ActionKind,
    BoxActions,
    BoxBase,
    DiscreteActions,
    MultiBinaryActions,
    MultiDiscreteActions,
    ProductActions,
)
from gymnasium_solver.spaces.observations import Obs, Space, obs_arrays, part_spaces
from gymnasium_solver.spaces.space_types import action_leaves, is_box, is_dict, is_product, parts_of

Parts = dict[str, Tensor]


class Deployed(nn.Module):
    """`forward` takes and returns tensors in the order of `input_names` and `output_names`."""

    legal: Tensor | None

    def __init__(self, agent: Agent, treatment: Treatment, has_mask: bool):
        super().__init__()
        policy, actions = agent.policy, agent.policy.actions
        self.kind, self.net = actions, agent.net
        self.has_memory, self.has_mask = policy.has_memory, has_mask
        self._scores = _scores_of(policy)
        self.raw_space = treatment.space
        wrappers = applied_layers(treatment, actions.space)
        masks = [wrapper.legal for wrapper in wrappers if isinstance(wrapper, ValidActions)]
        self.maps = nn.Sequential(*(_map(w) for w in wrappers if not isinstance(w, ValidActions)))
        legal = torch.from_numpy(np.logical_and.reduce(masks)) if masks else None
        self.register_buffer("legal", legal)
        self.carry_width = policy.initial_carry(1)["core"].shape[1] if self.has_memory else 0
        self._is_dict = is_dict(agent.observation_space)
        self._parts = list(part_spaces(treatment.space))
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
        parts = self.maps(
            {p: given[key] for p, key in zip(self._parts, self.obs_names, strict=True)}
        )
        obs = parts if self._is_dict else parts[""]
        carry = None
        if self.has_memory:
            net: Any = self.net
            scores, carry = net.step(obs, given["carry"], given["is_first"])
        else:
            scores = self._scores(obs)
        mask = given.get("action_mask")
        if self.legal is not None:
            mask = self.legal if mask is None else mask & self.legal
        return (scores if mask is None else torch.where(mask, scores, -torch.inf)), carry

    def arrays(
        self, obs: Obs, mask: np.ndarray | None, carry: np.ndarray | None, is_first: np.ndarray
    ) -> dict[str, np.ndarray]:
        """The inputs by name; `carry` None: none yet."""
        given = {key: a for key, (_, a) in zip(self.obs_names, obs_arrays(obs), strict=True)}
        if self.has_mask:
            assert mask is not None, "this policy takes a mask of legal actions"
            given["action_mask"] = mask
        if self.has_memory:
            zeros = np.zeros((len(is_first), self.carry_width), np.float32)
            given |= {"carry": zeros if carry is None else carry, "is_first": is_first}
        return given


def deployed_policy(agent: Agent, treatment: Treatment, has_mask: bool) -> Deployed:
    """The policy of a loaded agent, ready to be exported; RunError if it is of an unknown kind."""
    policy = agent.policy
    if isinstance(policy, QPolicy):
        policy.net.q.resample(None)  # no noise in noisy layers
    if policy.has_memory and not isinstance(policy, ActorPolicy | QPolicy):
        raise RunError(
            f"a {type(policy).__name__} with memory cannot be exported; recurrent networks "
            "with an actor or with Q-values can."
        )
    return Deployed(agent, treatment, has_mask).eval()


def _scores_of(policy: Policy) -> Callable[[Any], Tensor]:
    """Observations to scores, for a policy without memory."""
    if isinstance(policy, ActorPolicy):
        return policy.net.actor
    if isinstance(policy, QPolicy):
        return policy.net.q_values
    if isinstance(policy, SoftPolicy):
        outputs = policy.net.actor_outputs
        if not isinstance(policy.actions, BoxActions):
            return outputs
        return lambda obs: torch.tanh(outputs(obs).chunk(2, dim=1)[0])
    if isinstance(policy, DeterministicPolicy):
        net = policy.net
        return lambda obs: torch.tanh(net.actor_outputs(obs))
    raise RunError(
        f"the policy {type(policy).__name__} cannot be exported; export knows the policies of the "
        "built-in algorithms."
    )


# -- observation wrappers ---------------------------------------------------------------------
# envs/as_gymnasium.py says which wrappers an agent applies itself: those that map each observation
# alone. A wrapper without a map here (of a plugin) cannot be exported.


class Affine(nn.Module):
    """clip(x * scale + shift), in float32 as the NumPy wrapper computes it."""

    scale: Tensor
    shift: Tensor

    def __init__(self, coefficients: tuple[np.ndarray, np.ndarray], *bounds: float):
        super().__init__()
        for name, values in zip(("scale", "shift"), coefficients, strict=True):
            self.register_buffer(name, torch.from_numpy(np.array(values, np.float32)))
        self.bounds = bounds

    def forward(self, x: Tensor) -> Tensor:
        y = x.float() * self.scale + self.shift
        return y.clamp(*self.bounds) if self.bounds else y


class Clip(nn.Module):
    low: Tensor
    high: Tensor

    def __init__(self, low: np.ndarray, high: np.ndarray):
        super().__init__()
        self.register_buffer("low", torch.from_numpy(np.array(low)))
        self.register_buffer("high", torch.from_numpy(np.array(high)))

    def forward(self, x: Tensor) -> Tensor:
        return torch.minimum(torch.maximum(x, self.low), self.high)


class Lookup(nn.Module):
    """Row `x - start` of a table."""

    table: Tensor

    def __init__(self, table: np.ndarray, start: int):
        super().__init__()
        self.register_buffer("table", torch.from_numpy(table.astype(np.float32)))
        self.start = start

    def forward(self, x: Tensor) -> Tensor:
        return self.table[x.long() - self.start if self.start else x.long()]


class MapParts(nn.Module):
    """A map for some parts of an observation; {"": ...} of a plain one."""

    def __init__(self, maps: dict[str, nn.Module]):
        super().__init__()
        self.names, self.maps = list(maps), nn.ModuleList(maps.values())

    def forward(self, parts: Parts) -> Parts:
        mapped = zip(self.names, self.maps, strict=True)
        return parts | {name: function(parts[name]) for name, function in mapped}


class KeepParts(nn.Module):
    def __init__(self, names: list[str]):
        super().__init__()
        self.names = names

    def forward(self, parts: Parts) -> Parts:
        if len(self.names) == 1:
            return {"": parts[self.names[0]]}
        return {name: parts[name] for name in self.names}


def _map(wrapper: VectorWrapper) -> nn.Module:
    if isinstance(wrapper, ObservationParts):
        return KeepParts(wrapper.names)
    build = _MAPS.get(type(wrapper))
    if build is None or not isinstance(wrapper, ObservationMap):
        raise RunError(
            f"the wrapper {type(wrapper).__name__} of this run cannot be exported. Wrappers with "
            f"an exported form: {', '.join(kind.__name__ for kind in _MAPS)}, ObservationParts."
        )
    parts = part_spaces(wrapper.env.observation_space)
    return MapParts({name: build(wrapper, parts[name]) for name in wrapper.mapped_parts})


_MAPS: dict[type, Callable[[Any, Any], nn.Module]] = {
    DiscreteEncoder: lambda wrapper, space: Lookup(wrapper.table(space), int(space.start)),
    ObservationScale: lambda wrapper, space: Affine(wrapper.coefficients(space)),
    ObservationRescale: lambda wrapper, space: Affine(
        wrapper.coefficients(space), float(wrapper.low), float(wrapper.high)
    ),
    ObservationClip: lambda wrapper, space: Clip(*wrapper.limits(space)),
}


# -- actions ----------------------------------------------------------------------------------
# The counterpart of `ActionKind.mode` and `to_env` (spaces/actions.py), which act in NumPy.


def best_actions(kind: ActionKind, outputs: Tensor) -> list[Tensor]:
    """The most likely action of each row, in the env's units: one tensor per leaf of the space."""
    shape = (-1, *(kind.space.shape or ()))
    if isinstance(kind, ProductActions):
        leaves = [a for leaf, own in _leaves(kind, outputs) for a in best_actions(leaf, own)]
        return [_typed(s, a) for s, a in zip(action_leaves(kind.space), leaves, strict=True)]
    if isinstance(kind, BoxBase):
        return [_box(kind, kind.centre(outputs).reshape(shape))]
    if isinstance(kind, DiscreteActions):
        best = outputs.argmax(dim=1)
        return [best + kind.start if kind.start else best]
    if isinstance(kind, MultiDiscreteActions):
        choices = [part.argmax(dim=1) for part in outputs.split(kind.sizes, dim=1)]
        return [(torch.stack(choices, dim=1) + torch.from_numpy(kind.start)).reshape(shape)]
    if isinstance(kind, MultiBinaryActions):
        return [(outputs > 0).long().reshape(shape)]
    raise RunError(f"actions of the kind {type(kind).__name__} cannot be exported.")


def _box(kind: BoxBase, actions: Tensor) -> Tensor:
    if not kind.is_bounded:
        return actions
    middle, half_width = (torch.from_numpy(p) for p in (kind.middle, kind.half_width))
    return middle + half_width * actions.clamp(-1.0, 1.0)


def _leaves(kind: ProductActions, outputs: Tensor) -> list[tuple[ActionKind, Tensor]]:
    widths = [leaf.n_outputs for leaf in kind.leaves]
    return list(zip(kind.leaves, outputs.split(widths, dim=1), strict=True))


def output_names(space: Space, prefix: str = "action") -> list[str]:
    """`action`, or for a Dict or Tuple one name per leaf: `action.steer`, `action.0`."""
    if not is_product(space):
        return [prefix]
    parts = parts_of(space).items()
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
    if isinstance(kind, ProductActions):
        gaps = [score_gap(leaf, own) for leaf, own in _leaves(kind, outputs)]
        return torch.stack(gaps).amin(dim=0)
    if isinstance(kind, MultiBinaryActions):
        return outputs.abs().amin(dim=1)
    sizes = kind.sizes if isinstance(kind, MultiDiscreteActions) else [outputs.shape[1]]
    gaps = [torch.full((len(outputs),), math.inf)]
    for part in outputs.split(sizes, dim=1):
        if part.shape[1] > 1 and not isinstance(kind, BoxBase):
            top = part.topk(2, dim=1).values
            gaps.append((top[:, 0] - top[:, 1]) / top.abs().amax(dim=1).clamp(min=1.0))
    return torch.stack(gaps).amin(dim=0)
