"""Wrappers between the actions an agent has and those of its environment."""

from collections.abc import Mapping
from typing import Any

import gymnasium
import numpy as np

from gymnasium_solver.envs.action_checks import action_checker
from gymnasium_solver.envs.vector import Step, VectorEnv, VectorWrapper
from gymnasium_solver.envs.wrappers.parameters import require
from gymnasium_solver.errors import EnvError

_STREAM = 0x571C  # keeps the draws of buttons apart from those of the env, which has the same seed


class ActionRemap(VectorWrapper):
    """Gives the agent Discrete actions 0, 1, ... that stand for those in `mapping`: numbers where
    the env has Discrete actions; where it has MultiBinary, lists of a 0 or 1 for each button."""

    def __init__(self, env: VectorEnv, mapping: list[int | list[int]]) -> None:
        super().__init__(env)
        name, space = "DiscreteActionSpaceRemapperWrapper", env.action_space
        spaces = gymnasium.spaces
        is_buttons = isinstance(space, spaces.MultiBinary)
        wrong = f"needs Discrete or MultiBinary actions; {env.spec.env_id} has {space}"
        require(is_buttons or isinstance(space, spaces.Discrete), name, wrong)
        require(len(mapping) > 0, name, "mapping is empty: list at least one action")
        for item in mapping:
            is_list = isinstance(item, list | tuple)
            good = is_list == is_buttons and space.contains(np.array(item, space.dtype))
            require(good, name, f"mapping holds {item!r}, which is not in {space}")
        self._mapping = np.array(mapping, np.int64)
        self._columns = None if is_buttons else self._mapping - int(getattr(space, "start", 0))
        self._mask: np.ndarray | None = None
        self.action_space = spaces.Discrete(len(mapping))
        self._check = action_checker(self.action_space, env.n_envs, env.spec.env_id)

    @property
    def action_mask(self) -> np.ndarray | None:
        return self.env.action_mask if self._columns is None else self._mask

    def reset(self, seed: int) -> np.ndarray:
        obs = self.env.reset(seed)
        self._mask = self._legal(np.zeros(self.n_envs, np.bool_))
        return obs

    def step(self, actions: Any) -> Step:
        step = self.env.step(self._mapping[self._check(actions)])
        self._mask = self._legal(step.is_over)
        return step

    def _legal(self, done: np.ndarray) -> np.ndarray | None:
        if self.env.action_mask is None or self._columns is None:
            return None
        mask: np.ndarray = self.env.action_mask[:, self._columns]
        empty = ~mask.any(axis=1)
        stuck = np.flatnonzero(empty & ~done)
        if len(stuck):
            raise EnvError(
                f"{self.spec.env_id}: in env {stuck[0]} no action is left: the env forbids all "
                "that the mapping of DiscreteActionSpaceRemapperWrapper has. Map more actions."
            )
        mask[empty] = True  # a final row: no action is taken, but one must be legal
        return mask


class StickyButtons(VectorWrapper):
    """Presses the buttons of `sticky_buttons` ({button: probability}) by chance, whether or not the
    agent does; for MultiBinary actions. Drawn for each env and step from the env's seed."""

    def __init__(self, env: VectorEnv, sticky_buttons: Mapping[int | str, float]) -> None:
        super().__init__(env)
        name, space = "StickyActionsWrapper", env.action_space
        is_buttons = isinstance(space, gymnasium.spaces.MultiBinary) and len(space.shape) == 1
        require(is_buttons, name, f"needs MultiBinary actions; {env.spec.env_id} has {space}")
        n_buttons = int(np.prod(space.shape or ()))
        require(len(sticky_buttons) > 0, name, "sticky_buttons is empty: give {button: chance}")
        buttons, chances = [], []
        for key, chance in sticky_buttons.items():
            good = str(key).isdecimal() and int(key) < n_buttons
            last = n_buttons - 1
            require(good, name, f"sticky_buttons has the button {key!r}, expected 0 to {last}")
            wrong = f"sticky_buttons gives button {key} the chance {chance}, expected 0 to 1"
            require(0.0 <= chance <= 1.0, name, wrong)
            buttons.append(int(key))
            chances.append(chance)
        self._buttons, self._chances = np.array(buttons), np.array(chances)
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
        name, space = "ActionRescale", env.action_space
        is_box = isinstance(space, gymnasium.spaces.Box)
        require(is_box, name, f"needs Box actions; {env.spec.env_id} has {space}")
        assert isinstance(space, gymnasium.spaces.Box)
        wrong = f"needs bounded actions; {env.spec.env_id} has {space}"
        require(bool(space.is_bounded()), name, wrong)
        require(low < high, name, f"low {low} must be below high {high}")
        self.action_space = gymnasium.spaces.Box(low, high, space.shape, np.float32)
        self._check = action_checker(self.action_space, env.n_envs, env.spec.env_id)
        self._low = low
        self._first = space.low.astype(np.float64)
        self._scale = (space.high.astype(np.float64) - self._first) / (high - low)

    def step(self, actions: Any) -> Step:
        share = self._check(actions).astype(np.float64) - self._low
        return self.env.step((self._first + share * self._scale).astype(np.float32))
