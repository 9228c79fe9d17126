"""Wrappers between the actions an agent has and those of its environment, and what restricts them.

A config's `spec` block may name the actions that make sense, by number or by label:

    spec: {action_space: {labels: [noop, fire, right, left], valid: [noop, 2, 3]}}

`restrict_actions` reads it; `valid` counts the actions as the agent has them, after `env_wrappers`.
"""

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
from gymnasium import spaces

from gymnasium_solver.config.spec import read_spec
from gymnasium_solver.envs.action_checks import action_checker, legal_at_ends
from gymnasium_solver.envs.vector import Effect, Step, VectorEnv, VectorWrapper
from gymnasium_solver.envs.wrappers.options import require, require_actions
from gymnasium_solver.errors import ConfigError
from gymnasium_solver.spaces.space_types import is_box, is_discrete, is_multi_binary, whole_range

FIELD = "spec.action_space.valid"
_STREAM = 0x571C  # keeps the draws of buttons apart from those of the env, which has the same seed


class MaskingWrapper(VectorWrapper):
    """Base of wrappers with masks of their own; a subclass makes them in `_legal`."""

    action_mask: np.ndarray | None = None

    @abstractmethod
    def _legal(self, done: np.ndarray) -> np.ndarray | None:
        """The legal actions at the last observations; `done` marks final ones."""

    def reset(self, seed: int) -> np.ndarray:
        obs = self.env.reset(seed)
        self.action_mask = self._legal(np.zeros(self.n_envs, np.bool_))
        return obs

    def step(self, actions: Any) -> Step:
        step = self.env.step(actions)
        self.action_mask = self._legal(step.is_over)
        return step

    def _some_legal(self, mask: np.ndarray, done: np.ndarray, legal: Any, which: str) -> np.ndarray:
        """The mask, if it leaves an action wherever one is taken."""
        left = f"{self.spec.env_id}: in env {{}} no action is left: the env forbids all that "
        return legal_at_ends(mask, ~mask.any(axis=1), done, legal, (left + which).format)


class ActionRemap(MaskingWrapper):
    """Gives the agent Discrete actions 0, 1, ... that stand for those in `mapping`: numbers where
    the env has Discrete actions; where it has MultiBinary, lists of a 0 or 1 for each button."""

    def __init__(self, env: VectorEnv, mapping: list[int | list[int]]) -> None:
        super().__init__(env)
        is_buttons = is_multi_binary(env.action_space)
        kinds = "Discrete or MultiBinary"
        space = require_actions(self, kinds, lambda space: is_buttons or is_discrete(space))
        require(len(mapping) > 0, self, "mapping is empty: list at least one action")
        for item in mapping:
            is_list = isinstance(item, list | tuple)
            good = is_list == is_buttons and space.contains(np.array(item, space.dtype))
            require(good, self, f"mapping holds {item!r}, which is not in {space}")
        self._mapping = np.array(mapping, np.int64)
        self._columns = None if is_buttons else self._mapping - int(getattr(space, "start", 0))
        self.action_space = spaces.Discrete(len(mapping))
        self._check = action_checker(self.action_space, env.n_envs, env.spec.env_id)

    def step(self, actions: Any) -> Step:
        return super().step(self._mapping[self._check(actions)])

    def _legal(self, done: np.ndarray) -> np.ndarray | None:
        mask = self.env.action_mask
        if mask is None or self._columns is None:
            return mask
        which = "the mapping of DiscreteActionSpaceRemapperWrapper has. Map more actions."
        return self._some_legal(mask[:, self._columns], done, True, which)


class StickyButtons(VectorWrapper):
    """Presses the buttons of `sticky_buttons` ({button: probability}) by chance, whether or not the
    agent does; for MultiBinary actions. Drawn for each env and step from the env's seed."""

    def __init__(self, env: VectorEnv, sticky_buttons: Mapping[int | str, float]) -> None:
        super().__init__(env)
        space = require_actions(
            self, "MultiBinary", lambda space: is_multi_binary(space) and len(space.shape) == 1
        )
        n_buttons = space.shape[0]
        require(len(sticky_buttons) > 0, self, "sticky_buttons is empty: give {button: chance}")
        for key, chance in sticky_buttons.items():
            good = str(key).isdecimal() and int(key) < n_buttons
            last = n_buttons - 1
            require(good, self, f"sticky_buttons has the button {key!r}, expected 0 to {last}")
            wrong = f"sticky_buttons gives button {key} the chance {chance}, expected 0 to 1"
            require(0.0 <= chance <= 1.0, self, wrong)
        self._buttons = np.array([int(key) for key in sticky_buttons])
        self._chances = np.array([*sticky_buttons.values()])
        self._check = action_checker(space, env.n_envs, env.spec.env_id)
        self._rng = np.random.default_rng(0)

    def reset(self, seed: int) -> np.ndarray:
        obs = self.env.reset(seed)
        self._rng = np.random.default_rng([seed, _STREAM])
        return obs

    def step(self, actions: Any) -> Step:
        pressed = self._check(actions).copy()
        stuck = self._rng.random((self.n_envs, len(self._buttons))) < self._chances
        pressed[:, self._buttons] |= stuck
        return self.env.step(pressed)


class ActionRescale(VectorWrapper):
    """Lets the agent act in [low, high], mapped to the bounds of the env's Box actions."""

    def __init__(self, env: VectorEnv, low: float = -1.0, high: float = 1.0) -> None:
        super().__init__(env)
        space = require_actions(self, "Box", is_box)
        require_actions(self, "bounded", lambda box: bool(box.is_bounded()))
        require(low < high, self, f"low {low} must be below high {high}")
        self.action_space = spaces.Box(low, high, space.shape, np.float32)
        self._check = action_checker(self.action_space, env.n_envs, env.spec.env_id)
        self._low = low
        self._first = space.low.astype(np.float64)
        self._scale = (space.high.astype(np.float64) - self._first) / (high - low)

    def step(self, actions: Any) -> Step:
        share = self._check(actions).astype(np.float64) - self._low
        return self.env.step((self._first + share * self._scale).astype(np.float32))


class ValidActions(MaskingWrapper):
    """Allows the actions in `valid` only: a constant `action_mask`. Where the env has masks of its
    own, an action must be legal by both."""

    effect: ClassVar[Effect] = "pure"

    def __init__(self, env: VectorEnv, valid: Sequence[int]) -> None:
        super().__init__(env)
        space = require_actions(self)
        is_valid = np.isin(np.arange(space.n) + space.start, np.asarray(valid))
        self.legal: np.ndarray = is_valid
        """bool[A]"""
        self._valid = np.tile(is_valid, (env.n_envs, 1))

    def _legal(self, done: np.ndarray) -> np.ndarray:
        if self.env.action_mask is None:
            return self._valid.copy()
        mask = self.env.action_mask & self._valid
        which = f"{FIELD} allows. Allow more actions there."
        return self._some_legal(mask, done, self.legal, which)


def restrict_actions(env: VectorEnv, spec: Mapping[str, Any]) -> VectorEnv:
    """`env` with the valid actions that a config's spec block names; as it is where it names none.

    A ConfigError closes the env."""
    if not spec.get("action_space"):
        return env
    try:
        stated, space = read_spec(spec).action_space, env.action_space
        if stated.valid is None:
            return env
        if not is_discrete(space):
            raise ConfigError(f"{FIELD} is for Discrete actions, this env has {space}. Remove it.")
        first, last = whole_range(space)
        labels = stated.labels
        if not isinstance(labels, dict):
            labels = {str(first + i): label for i, label in enumerate(labels)}
        named = {label: int(number) for number, label in labels.items()}
        numbers = [named[item] if isinstance(item, str) else item for item in stated.valid]
        for item, number in zip(stated.valid, numbers, strict=True):
            if not first <= number <= last:
                raise ConfigError(f"{FIELD} holds {item!r}, but the actions are {first} to {last}.")
        wrapped = ValidActions(env, numbers)
        wrapped.given = {"id": "ValidActions", "valid": numbers}
        return wrapped
    except ConfigError:
        env.close()
        raise
