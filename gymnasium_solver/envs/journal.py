"""A record of seed and actions, from which an env's exact state can be rebuilt.

Most engines cannot save the state of an environment (EnvPool has no call for it; Gymnasium's MuJoCo
pickles without error and restores another state), but all are deterministic under their seed. So a
checkpoint holds the seed of the last reset and the actions since then, and `restore` steps through
them again. The trainer resets the env every `env_boundary_steps`, which keeps the journal short.
An engine that can save its state (`Engine.saved`) needs no actions: its arrays are the record.

    env = JournaledEnv(make_vector_env(...))
    state = env.state()              # arrays and ints only, goes into a checkpoint
    obs = other.restore(state)       # an equal env in the same place
"""

from collections.abc import Mapping
from typing import Any, TypeGuard

import numpy as np

from gymnasium_solver.envs.vector import Engine, Step, Totals, VectorEnv, VectorWrapper
from gymnasium_solver.errors import EnvError
from gymnasium_solver.spaces.space_types import action_shape, is_box, is_product, whole_range

CHUNK_STEPS = 1024
SAVED = "saved."  # prefix of the arrays of an engine


class JournaledEnv(VectorWrapper):
    """Records what a VectorEnv, wrappers included, was given since its last reset."""

    def __init__(self, env: VectorEnv) -> None:
        super().__init__(env)
        space = env.action_space
        self._is_real = is_box(space) or is_product(space)
        self._dtype = journal_dtype(space)
        self._seed: int | None = None
        self._chunks: list[np.ndarray] = []
        self.n_steps = 0  # since the last reset, that are kept
        self._last: dict[str, Any] | None = None
        self._row_shape = (env.n_envs, *action_shape(space))
        self._engine = env if can_save(env) else None
        self._keeps_actions = self._engine is None

    def reset(self, seed: int) -> Any:
        obs = self.env.reset(seed)
        self._seed = int(seed)
        self._chunks = []
        self.n_steps = 0
        none = np.zeros(self.n_envs, np.float64), np.zeros(self.n_envs, np.int64)
        self._last = _place(obs, *none)
        return obs

    def step(self, actions: Any) -> Step:
        if self._is_real:  # stepping with what is kept makes the replay exact for any dtype given
            actions = np.asarray(actions).astype(self._dtype, copy=False)
        step = self.env.step(actions)
        if self._keeps_actions:
            at = self._room()
            self._chunks[-1][at] = actions
            self.n_steps += 1
        self._last = _place(step.obs, step.episode_return, step.episode_length)
        return step

    def record_rows(self, actions: np.ndarray, obs: Any, totals: Totals) -> None:
        """Note steps that were done elsewhere, by their actions [T, N, ...], and where they led."""
        while len(actions) and self._keeps_actions:
            at = self._room()
            now, actions = actions[: CHUNK_STEPS - at], actions[CHUNK_STEPS - at :]
            self._chunks[-1][at : at + len(now)] = now
            self.n_steps += len(now)
        self._last = _place(obs, totals.episode_return, totals.episode_length)

    def _room(self) -> int:
        """Where the next row goes in the last chunk; adds a chunk if that is full."""
        at = self.n_steps % CHUNK_STEPS
        if at == 0:
            self._chunks.append(np.empty((CHUNK_STEPS, *self._row_shape), self._dtype))
        return at

    def state(self) -> dict[str, Any]:
        """What `restore` needs: seed, actions (T, N, ...), and where the env stood after them."""
        if self._seed is None or self._last is None:
            raise EnvError(f"{self.spec.env_id}: no state to save before reset(seed).")
        saved = None if self._engine is None else self._engine.saved()
        arrays = {f"{SAVED}{name}": array for name, array in (saved or {}).items()}
        return {"seed": self._seed, "actions": self.actions_since(0), **arrays, **self._last}

    def actions_since(self, step: int) -> np.ndarray:
        """The actions from this step on, counted from the last reset, [T, N, ...]."""
        none = np.empty((0, *self._row_shape), self._dtype)
        first = step // CHUNK_STEPS
        rows = np.concatenate([none, *self._chunks[first:]])
        return rows[step - first * CHUNK_STEPS : self.n_steps - first * CHUNK_STEPS]

    def restore(self, state: Mapping[str, Any]) -> Any:
        """Bring the env to where `state` was taken; returns the observation there."""
        actions = np.asarray(state["actions"])
        if actions.shape[1:] != self._row_shape:
            raise EnvError(
                f"{self.spec.env_id}: the saved actions of a step have shape {actions.shape[1:]}, "
                f"this env takes {self._row_shape}. Restore with the n_envs that was saved."
            )
        obs = self.reset(int(state["seed"]))
        if self._engine is not None:
            saved = {k.removeprefix(SAVED): v for k, v in state.items() if k.startswith(SAVED)}
            totals = [np.asarray(state[name]) for name in ("episode_return", "episode_length")]
            obs = self._engine.restore(saved, *totals)
            self._last = _place(obs, *totals)
        for row in actions:
            obs = self.step(row).obs
        assert self._last is not None
        for name, value in self._last.items():
            if not same_obs(state[name], value):
                raise EnvError(
                    f"{self.spec.env_id} is not deterministic under its seed: {name} differs from "
                    f"what was saved, after replaying {len(actions)} steps. This run cannot be "
                    "resumed exactly. Was the environment, its engine or its version changed?"
                )
        return obs


def can_save(env: VectorEnv) -> TypeGuard[Engine]:
    """Whether the state of the envs can be saved as it is."""
    return isinstance(env, Engine) and env.saved() is not None


def _place(obs: Any, episode_return: np.ndarray, episode_length: np.ndarray) -> dict[str, Any]:
    """Where the env stands: a replay must lead to the same."""
    return {"obs": obs, "episode_return": episode_return, "episode_length": episode_length}


def same_obs(saved: Any, now: Any) -> bool:
    """Whether two arrays, or dicts of arrays, are equal; NaN equals NaN."""
    if isinstance(now, dict):
        return saved.keys() == now.keys() and all(same_obs(saved[name], now[name]) for name in now)
    now = np.asarray(now)
    return np.array_equal(np.asarray(saved), now, equal_nan=now.dtype.kind == "f")


def journal_dtype(space: Any) -> np.dtype[Any]:
    """The smallest dtype that keeps every legal action."""
    if is_product(space):
        return np.dtype(np.float64)
    if is_box(space):
        return np.dtype(space.dtype)
    low, high = (np.asarray(end) for end in whole_range(space))
    for dtype in (np.uint8, np.int16, np.int32):
        if np.iinfo(dtype).min <= low.min() and high.max() <= np.iinfo(dtype).max:
            return np.dtype(dtype)
    return np.dtype(np.int64)
