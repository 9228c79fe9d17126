"""The numbers that the inspector keeps of each step, in the columns of runs/episodes.py.

plan = Plan.of(stage, agent, first_moment)
plan.facts()                                  # what episode.json says about columns and actions
plan.row(moment, action, after, forced=False) # f32[width]
derived(columns, gamma, gae_lambda)           # return to go, TD error, advantage
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from gymnasium_solver.algos.agent import Agent
from gymnasium_solver.algos.ops import gae, returns_to_go
from gymnasium_solver.envs.journal import journal_dtype
from gymnasium_solver.media.explain_step import component_names
from gymnasium_solver.media.labels import Feature, action_names, features, finite, numbers
from gymnasium_solver.media.player import Decision, Moment, encoder_of
from gymnasium_solver.media.stage import Stage
from gymnasium_solver.spaces.space_types import (
    action_leaves,
    action_shape,
    is_box,
    is_discrete,
    is_multi_discrete,
)

MOST_NUMBERS = 512  # of an observation, of the network's input, of a carry
MOST_CHOICES = 2048
SINGLE = ("reward", "learner_reward", "return", "value", "entropy")
FLAGS = ("is_greedy", "forced", "terminated", "truncated")
KINDS = {
    "Discrete": "discrete", "Box": "box",
    "MultiDiscrete": "multi_discrete", "MultiBinary": "multi_binary",
}  # fmt: skip
PICTURED = ("reconstructed", "imagined")  # beside "seen"
NUMBERS = ("probabilities", "q_values", "mean", "std")  # of a decision


@dataclass(frozen=True)
class Plan:
    stage: Stage
    agent: Agent
    names: list[str]  # names of the actions
    features: list[Feature]
    columns: dict[str, list[str]]  # the labels of each column, one for each number

    @classmethod
    def of(cls, stage: Stage, agent: Agent, moment: Moment) -> "Plan":
        """`moment`: the first one, with its decision."""
        decision = moment.decision
        assert decision is not None, "an episode has a first decision"
        names, known = action_names(stage), features(stage, MOST_NUMBERS)
        if known and numbers(moment.raw).size != len(known):
            known = []
        space = stage.env.action_space
        parts = action_parts(space, names)
        columns: dict[str, list[str]] = {name: [name] for name in (*SINGLE, *FLAGS)}
        columns["action"] = parts
        if decision.best is not None:
            columns["greedy_action"] = parts
        if moment.mask is not None and moment.mask.size <= MOST_CHOICES:
            columns["legal"] = choice_labels(space, names)
        for name in NUMBERS:
            array = getattr(decision, name)
            if array is not None and 0 < array.size <= MOST_CHOICES:
                columns[name] = _labels(space, names, array.size)
        known_names = [feature.name for feature in known]
        if known:
            columns["obs"] = known_names
        seen = decision.seen.get("")
        if seen is not None and 0 < seen.size <= MOST_NUMBERS:
            labels = component_names(encoder_of(agent), known_names, seen.size)
            pictured = [n for n in PICTURED if getattr(decision, n).get("") is not None]
            columns |= dict.fromkeys(("seen", *pictured), labels)
        for name, carry in decision.carry.items():
            if carry.size <= MOST_NUMBERS:
                columns[f"carry {name}"] = [str(i) for i in range(carry.size)]
        return cls(stage, agent, names, known, columns)

    def facts(self) -> dict[str, Any]:
        space = self.stage.env.action_space
        return {
            "columns": [
                {"name": name, "width": len(labels), "labels": [] if labels == [name] else labels}
                for name, labels in self.columns.items()
            ],
            "features": [asdict(one) for one in self.features],
            "action": {
                "kind": KINDS.get(type(space).__name__, "product"),
                "names": self.names,
                "dtype": journal_dtype(space).newbyteorder("<").str,
                "shape": list(action_shape(space)),
                "leaves": [_leaf(leaf) for leaf in action_leaves(space)],
            },
        }

    def exact(self, action: Any) -> np.ndarray:
        """An action in the type that the record keeps, which the environment gets too."""
        space = self.stage.env.action_space
        return np.asarray(action).reshape(action_shape(space)).astype(journal_dtype(space))

    def row(
        self, moment: Moment, action: np.ndarray | None, after: Moment | None, forced: bool = False
    ) -> np.ndarray:
        """`after`: the next moment, which has the reward; None in the last one."""
        decision = moment.decision or Decision(np.array(np.nan))
        values: dict[str, Any] = {
            "return": moment.episode_return,
            "value": decision.value,
            "legal": moment.mask,
            "obs": numbers(moment.raw) if self.features else None,
            "seen": decision.seen.get(""),
            **{name: getattr(decision, name).get("") for name in PICTURED},
        }
        if after is not None and action is not None:
            best = decision.best
            values |= {name: getattr(decision, name) for name in NUMBERS}
            values |= {
                "reward": after.reward,
                "learner_reward": self._learnt(after.learner_reward),
                "entropy": decision.entropy,
                "is_greedy": None if best is None else np.allclose(best, action, atol=1e-6),
                "forced": forced,
                "terminated": after.terminated,
                "truncated": after.truncated,
                "action": action,
                "greedy_action": best,
            }
        values |= {f"carry {name}": part for name, part in decision.carry.items()}
        return np.concatenate(
            [_numbers(values.get(name), len(labels)) for name, labels in self.columns.items()]
        )

    def _learnt(self, reward: float) -> float:
        """The reward in the units in which the agent learns values."""
        if not self.agent.config.scales_reward:
            return reward
        normalizer = self.agent.reward_normalizer  # type: ignore[attr-defined]
        scaled = reward * float(normalizer.scale)
        clip = normalizer.clip
        return scaled if clip is None else float(np.clip(scaled, -clip, clip))


def _numbers(value: Any, width: int) -> np.ndarray:
    flat = np.asarray(np.nan if value is None else value, np.float64).reshape(-1)
    if value is None or flat.size != width:
        return np.full(width, np.nan, np.float32)
    with np.errstate(over="ignore"):
        return flat.astype(np.float32)


def _leaf(space: Any) -> dict[str, Any]:
    """What a person needs to know to choose an action."""
    kind = KINDS.get(type(space).__name__, "other")
    told: dict[str, Any] = {"kind": kind, "shape": list(space.shape)}
    if is_discrete(space):
        told |= {"n": int(space.n), "start": int(space.start)}
    elif is_multi_discrete(space):
        sizes, start = (one.reshape(-1).tolist() for one in (space.nvec, space.start))
        told |= {"sizes": sizes, "start": start}
    elif is_box(space):
        low, high = (np.broadcast_to(b, space.shape).reshape(-1) for b in (space.low, space.high))
        told |= {"low": [finite(x) for x in low], "high": [finite(x) for x in high]}
    return told


def action_parts(space: Any, names: list[str]) -> list[str]:
    """A label for each number of an action."""
    if is_discrete(space):
        return ["action"]
    width = sum(int(np.prod(leaf.shape or ())) for leaf in action_leaves(space))
    return names if len(names) == width else [f"component {i}" for i in range(width)]


def choice_labels(space: Any, names: list[str]) -> list[str]:
    """A label for each choice: `names`, or for several components "name = value"."""
    if not is_multi_discrete(space):
        return names
    sizes, starts = space.nvec.reshape(-1), space.start.reshape(-1)
    return [
        f"{name} = {start + value}"
        for name, size, start in zip(names, sizes, starts, strict=True)
        for value in range(size)
    ]


def _labels(space: Any, names: list[str], size: int) -> list[str]:
    known = (choice_labels(space, names), action_parts(space, names))
    return next((labels for labels in known if len(labels) == size), [str(i) for i in range(size)])


# -- what needs the whole episode -------------------------------------------------------------


def derived(
    columns: Mapping[str, np.ndarray], gamma: float, gae_lambda: float, start: int = 0
) -> tuple[np.ndarray, str]:
    """[rows, 3] (runs.episodes.DERIVED) in the units in which the agent learns values, and where
    the advantages are from: Q(s, a) - V(s) where there are Q-values, otherwise GAE. `start`: the
    first action of a Discrete space."""
    reward, value = columns["learner_reward"][:-1, None], columns["value"][:, None]
    terminated = columns["terminated"][:-1, None] == 1
    truncated = columns["truncated"][:-1, None] == 1
    rows, n = len(value), len(reward)
    table = np.full((rows, 3), np.nan, np.float32)
    if not n:
        return table, "none"
    valid = np.ones((n, 1), bool)
    table[:-1, 0] = returns_to_go(reward, terminated | truncated, valid, gamma)[:, 0]
    if not np.isfinite(value[:-1]).all():
        return table, "none"
    value = np.where(np.isfinite(value), value, 0.0)  # at the end of a terminated episode
    goes_on = gamma * ~terminated * value[1:]
    chosen = _chosen_q(columns, n, start)
    if chosen is not None:
        table[:-1, 1] = (reward + goes_on)[:, 0] - chosen
        table[:-1, 2] = chosen - value[:-1, 0]
        return table, "Q(s, a) - V(s)"
    table[:-1, 1] = (reward + goes_on - value[:-1])[:, 0]
    table[:-1, 2] = gae(reward, value, terminated, truncated, valid, gamma, gae_lambda)[:, 0]
    return table, f"GAE with lambda {gae_lambda:g}"


def _chosen_q(columns: Mapping[str, np.ndarray], n: int, start: int) -> np.ndarray | None:
    q, action = columns.get("q_values"), columns["action"]
    if q is None or action.ndim != 1 or q.ndim != 2:
        return None
    index = (action[:n] - start).astype(int)
    is_known = ((index >= 0) & (index < q.shape[1])).all()
    return np.asarray(q[np.arange(n), index]) if is_known else None
