"""Wrappers that restrict actions.

A config's `spec` block may name the actions that make sense, by number or by label:

    spec: {action_space: {labels: [noop, fire, right, left], valid: [noop, 2, 3]}}

`restrict_actions` reads it; `valid` counts the actions as the agent has them, after `env_wrappers`.
"""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import gymnasium
import numpy as np

from gymnasium_solver.envs.vector import Effect, Step, VectorEnv, VectorWrapper
from gymnasium_solver.errors import ConfigError, EnvError
from gymnasium_solver.suggest import ask, nearest

FIELD = "spec.action_space.valid"


class ValidActions(VectorWrapper):
    """Allows the actions in `valid` only: a constant `action_mask`. Where the env has masks of its
    own, an action must be legal by both."""

    effect: ClassVar[Effect] = "pure"

    def __init__(self, env: VectorEnv, valid: Sequence[int]) -> None:
        super().__init__(env)
        space = env.action_space
        if not isinstance(space, gymnasium.spaces.Discrete):
            raise EnvError(f"ValidActions needs Discrete actions; {env.spec.env_id} has {space}.")
        is_valid = np.isin(np.arange(space.n) + space.start, np.asarray(valid))
        self.legal: np.ndarray = is_valid
        """bool[A]"""
        self._valid = np.tile(is_valid, (env.n_envs, 1))
        self._mask: np.ndarray | None = None

    @property
    def action_mask(self) -> np.ndarray | None:
        return self._mask

    def reset(self, seed: int) -> np.ndarray:
        obs = self.env.reset(seed)
        self._mask = self._both(np.zeros(self.n_envs, np.bool_))
        return obs

    def step(self, actions: Any) -> Step:
        step = self.env.step(actions)
        self._mask = self._both(step.is_over)
        return step

    def _both(self, done: np.ndarray) -> np.ndarray:
        if self.env.action_mask is None:
            return self._valid.copy()
        mask: np.ndarray = self.env.action_mask & self._valid
        empty = ~mask.any(axis=1)
        if empty.any():
            stuck = np.flatnonzero(empty & ~done)
            if len(stuck):
                raise EnvError(
                    f"{self.spec.env_id}: in env {stuck[0]} no action is left: the env forbids all "
                    f"that {FIELD} allows. Allow more actions there."
                )
            mask[empty] = self._valid[
                empty
            ]  # a final row: no action is taken, but one must be legal
        return mask


def restrict_actions(env: VectorEnv, spec: Mapping[str, Any]) -> VectorEnv:
    """`env` with the valid actions that a config's spec block names; as it is where it names none.

    A ConfigError closes the env."""
    block = spec.get("action_space")
    valid = block.get("valid") if isinstance(block, Mapping) else None
    if valid is None:
        return env
    try:
        assert isinstance(block, Mapping)
        numbers = _numbers(valid, block.get("labels"), env.action_space)
        wrapped = ValidActions(env, numbers)
        wrapped.given = {"id": "ValidActions", "valid": numbers}
        return wrapped
    except ConfigError:
        env.close()
        raise


def _numbers(valid: Any, labels: Any, space: Any) -> list[int]:
    """The valid actions as the env counts them."""
    if not isinstance(space, gymnasium.spaces.Discrete):
        raise ConfigError(f"{FIELD} is for Discrete actions, this env has {space}. Remove it.")
    if not isinstance(valid, list | tuple) or not valid:
        raise ConfigError(f"{FIELD} is {valid!r}, expected a list of action numbers or labels.")
    first, n_actions = int(space.start), int(space.n)
    by_label = _by_label(labels, first)
    numbers = []
    for item in valid:
        number = _find(item, by_label) if isinstance(item, str) else item
        if isinstance(number, bool) or not isinstance(number, int):
            raise ConfigError(f"{FIELD} holds {item!r}, expected action numbers or labels.")
        if not first <= number < first + n_actions:
            raise ConfigError(
                f"{FIELD} holds {item!r}, but the actions are {first} to {first + n_actions - 1}."
            )
        numbers.append(number)
    return numbers


def _by_label(labels: Any, first: int) -> dict[str, int]:
    """Label -> action. Labels are a list, or a block {number: label} (its keys are text by now)."""
    if isinstance(labels, Mapping):
        try:
            return {str(label): int(number) for number, label in labels.items()}
        except ValueError:
            keys = ", ".join(map(str, labels))
            raise ConfigError(
                f"spec.action_space.labels has the keys {keys}, expected action numbers."
            ) from None
    listed = labels if isinstance(labels, list | tuple) else ()
    return {str(label): first + i for i, label in enumerate(listed)}


def _find(label: str, by_label: Mapping[str, int]) -> int:
    if label not in by_label:
        near = nearest(label, by_label) or list(by_label)
        hint = ask(near) or "There are no labels to look it up."
        raise ConfigError(f"{FIELD} holds {label!r}, which spec.action_space.labels lacks. {hint}")
    return by_label[label]
