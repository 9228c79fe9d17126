"""Plays episodes step by step, with everything that a viewer may want to know about each step.

    player = Player(stage, PolicyActor(agent, greedy=True, explains=True), seed=1)
    for moment in player.episode():
        show(moment.frame, moment.decision.probabilities, moment.episode_return)

A `Moment` is a state of one environment and the decision made in it, before it is carried out. The
rewards in a moment are those that led to it. The last moment of an episode has no decision, so an
episode of T steps has T + 1 moments.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from gymnasium_solver.envs.vector import Step
from gymnasium_solver.media.actors import Actor, Decision
from gymnasium_solver.media.stage import Stage
from gymnasium_solver.spaces.observations import take_rows


@dataclass(frozen=True)
class Moment:
    row: int
    """Which of the environments, from 0."""
    episode: int
    """How many episodes this environment has finished."""
    t: int
    """Steps taken in this episode."""
    frame: np.ndarray | None
    """uint8 (height, width, 3); None if nothing is drawn."""
    obs: Any
    """The observation as the agent gets it, after all wrappers."""
    raw: Any
    """Before the wrappers that map observations."""
    mask: np.ndarray | None
    """The legal actions."""
    reward: float = 0.0
    """The reward of the step that led here, before reward wrappers."""
    learner_reward: float = 0.0
    """The same, after them."""
    episode_return: float = 0.0
    """Sum of `reward` so far."""
    terminated: bool = False
    truncated: bool = False
    is_over: bool = False
    info: dict[str, Any] = field(default_factory=dict)
    decision: Decision | None = None
    """None in the last moment of an episode."""


class Player:
    """Steps the environments of a stage with the decisions of an actor."""

    def __init__(self, stage: Stage, actor: Actor, seed: int) -> None:
        self.stage, self.actor = stage, actor
        self.n_envs = stage.env.n_envs
        self._episodes = [0] * self.n_envs
        self._decisions: list[Decision] | None = None
        self.restart(seed)

    def restart(self, seed: int) -> None:
        """Open new episodes; the same seed repeats the same ones."""
        self._obs = self.stage.env.reset(seed)
        self._step: Step | None = None
        self._before = np.zeros(self.n_envs)
        self._decisions = None
        self.actor.start(self.n_envs, seed)
        self._is_first = np.ones(self.n_envs, bool)

    @property
    def is_over(self) -> np.ndarray:
        """bool[n_envs]: the episodes that have just ended."""
        over = np.zeros(self.n_envs, bool) if self._step is None else self._step.is_over
        return np.asarray(over)

    def decide(self) -> list[Decision]:
        """What the actor will do in each env; asked once for each state."""
        if self._decisions is None:
            mask = self.stage.env.action_mask
            self._decisions = self.actor.decide(self._obs, self._is_first, mask)
        return self._decisions

    def moment(self, row: int = 0, *, with_decision: bool = True) -> Moment:
        """The state of one env. Without its decision, the actor may still change its mind."""
        step, mask = self._step, self.stage.env.action_mask
        is_over = bool(self.is_over[row])
        wants = with_decision and not is_over
        common: dict[str, Any] = {
            "row": row,
            "episode": self._episodes[row],
            "frame": self.stage.frame(row),
            "obs": take_rows(self._obs, row),
            "raw": take_rows(self.stage.tap.obs, row),
            "mask": None if mask is None else mask[row],
            "decision": self.decide()[row] if wants else None,
            "info": _row_of(self.stage.env.info, row, self.n_envs),
        }
        if step is None or step.is_reset[row]:
            return Moment(t=0, **common)
        return Moment(
            t=int(step.episode_length[row]),
            reward=float(step.episode_return[row] - self._before[row]),
            learner_reward=float(step.reward[row]),
            episode_return=float(step.episode_return[row]),
            terminated=bool(step.terminated[row]),
            truncated=bool(step.truncated[row]),
            is_over=is_over,
            **common,
        )

    def step(self, action: np.ndarray | None = None) -> None:
        """Carry out the decisions, or in the first env `action`. In an env whose episode is over,
        the next one opens."""
        actions = np.stack([decision.action for decision in self.decide()])
        if action is not None:
            actions[0] = action
        for row in np.flatnonzero(self.is_over):
            self._episodes[row] += 1
        self._before = np.zeros(self.n_envs) if self._step is None else self._step.episode_return
        self._step = self.stage.env.step(actions)
        self._obs, self._is_first = self._step.obs, self._step.is_reset
        self._decisions = None

    def episode(self, most_steps: int | None = None) -> Iterator[Moment]:
        """The moments of the first env's next episode, up to its end or `most_steps`."""
        if self.is_over[0]:
            self.step()
        while True:
            moment = self.moment()
            yield moment
            if moment.is_over or (most_steps is not None and moment.t >= most_steps):
                return
            self.step()


def _row_of(info: dict[str, Any], row: int, n_envs: int) -> dict[str, Any]:
    """One env's values among those of a batch."""
    return {
        name: value[row]
        for name, value in info.items()
        if isinstance(value, np.ndarray) and value.ndim and len(value) == n_envs
    }
