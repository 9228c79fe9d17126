"""A vector env of this program as a Gymnasium env: one copy, or a Gymnasium vector env.

    env = SingleEnv(env_from_config(config, 1), treatment)       # a gymnasium.Env
    env = BatchEnv(env_from_config(config, 8), treatment)        # a gymnasium.vector.VectorEnv

All wrappers of the config are in force. The observations are those before the wrappers that an
agent applies itself (envs/treatment.py); `observation_space` says so. `info` has
`episode_return` and `episode_length` so far, before reward wrappers, and `action_mask` where the
env has one. An episode ends where its score is final: a lost life of a game does not end it.
"""

import weakref
from typing import Any

import gymnasium
import numpy as np
from gymnasium.vector import AutoresetMode
from gymnasium.vector.utils import batch_space

from gymnasium_solver.envs.masks import KEY as MASK_KEY
from gymnasium_solver.envs.treatment import Treatment, tap_observations
from gymnasium_solver.envs.vector import Info, Step, VectorEnv
from gymnasium_solver.errors import EnvError
from gymnasium_solver.spaces.native_actions import from_native, from_native_batch
from gymnasium_solver.spaces.observations import take_rows

FPS = 30
"""Frames per second of a video, where the environment does not say."""


class _Source:
    """The part that both kinds share: resets, and what was observed last."""

    def __init__(self, env: VectorEnv, treatment: Treatment, seed: int | None) -> None:
        self.vector, self._tap = tap_observations(env)
        self.treatment = treatment
        self._rng = np.random.default_rng(seed)
        self._first_seed = seed
        self.last_obs: Any = None
        _made.add(self)

    def reset(self, seed: int | None) -> Any:
        """Open new episodes in all copies; without a seed, others than before."""
        if seed is None:
            seed = self._first_seed
        self._first_seed = None
        self.vector.reset(int(self._rng.integers(2**31)) if seed is None else seed)
        return self._tap.obs

    def step(self, actions: Any) -> tuple[Any, Step]:
        step = self.vector.step(actions)
        return self._tap.obs, step

    def info(self, info: Info) -> Info:
        mask = self.vector.action_mask
        return dict(info) if mask is None else {**info, MASK_KEY: mask}

    def remember(self, obs: Any) -> Any:
        self.last_obs = obs
        return obs


_made: "weakref.WeakSet[_Source]" = weakref.WeakSet()


def is_observed_now(obs: Any, treatment: Treatment) -> bool:
    """Whether an observation is the very one that an env with this treatment returned last."""
    return any(source.last_obs is obs and source.treatment.fits(treatment) for source in _made)


class SingleEnv(gymnasium.Env[Any, Any]):
    """One environment."""

    def __init__(
        self,
        env: VectorEnv,
        treatment: Treatment,
        *,
        seed: int | None = None,
        render_mode: str | None = None,
        fps: int | None = None,
    ) -> None:
        self._source = _Source(env, treatment, seed)
        self.env_id = env.spec.env_id
        self.observation_space = treatment.space
        self.action_space = env.action_space
        self.render_mode = render_mode
        self.metadata = {"render_modes": ["rgb_array"], "render_fps": fps or FPS}
        self._is_over = False
        self._last_actions: np.ndarray | None = None

    def __repr__(self) -> str:
        return f"<{self.env_id} as a run sees it, {self.vector.spec.engine}>"

    __str__ = __repr__  # Gymnasium's says the name of the class only

    @property
    def vector(self) -> VectorEnv:
        """The vector env of one copy beneath."""
        return self._source.vector

    @property
    def treatment(self) -> Treatment:
        return self._source.treatment

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, Info]:
        if options:
            raise EnvError(f"{self.env_id}: reset() takes no options here, got {options!r}.")
        super().reset(seed=seed)
        if seed is None and self._is_over:
            obs, step = self._source.step(self._last_actions)  # a reset row: the stream goes on
            info = step.info
        else:
            obs = self._source.reset(seed)
            info = self.vector.info
        self._is_over = False
        self._last_actions = None
        totals = {"episode_return": 0.0, "episode_length": 0}
        return self._observed(obs), _first_row(self._source.info(info)) | totals

    def step(self, action: Any) -> tuple[Any, float, bool, bool, Info]:
        if self._is_over:
            raise EnvError(f"{self.env_id}: the episode is over; call reset() first.")
        self._last_actions = from_native(self.action_space, action)[None]
        obs, step = self._source.step(self._last_actions)
        self._is_over = bool(step.is_over[0])
        totals = {
            "episode_return": float(step.episode_return[0]),
            "episode_length": int(step.episode_length[0]),
        }
        return (
            self._observed(obs),
            float(step.reward[0]),
            self._is_over and bool(step.terminated[0]),
            self._is_over and bool(step.truncated[0]),
            _first_row(self._source.info(step.info)) | totals,
        )

    def _observed(self, batch: Any) -> Any:
        return self._source.remember(take_rows(batch, 0))

    def render(self) -> Any:
        if self.render_mode is None:
            raise EnvError(f"{self.env_id}: render() needs make_env(..., render_mode='rgb_array').")
        return self.vector.render(0)

    def close(self) -> None:
        self.vector.close()


class BatchEnv(gymnasium.vector.VectorEnv):
    """Several copies, stepped together, with NEXT_STEP autoreset."""

    def __init__(
        self,
        env: VectorEnv,
        treatment: Treatment,
        *,
        seed: int | None = None,
        render_mode: str | None = None,
        fps: int | None = None,
    ) -> None:
        self._source = _Source(env, treatment, seed)
        self.env_id, self.num_envs = env.spec.env_id, env.n_envs
        self.single_observation_space, self.single_action_space = treatment.space, env.action_space
        self.observation_space = batch_space(treatment.space, env.n_envs)
        self.action_space = batch_space(env.action_space, env.n_envs)
        self.render_mode = render_mode
        self.metadata = {
            "autoreset_mode": AutoresetMode.NEXT_STEP,
            "render_modes": ["rgb_array"],
            "render_fps": fps or FPS,
        }

    def __repr__(self) -> str:
        engine = self.vector.spec.engine
        return f"<{self.num_envs} x {self.env_id} as a run sees it, {engine}>"

    @property
    def vector(self) -> VectorEnv:
        return self._source.vector

    @property
    def treatment(self) -> Treatment:
        return self._source.treatment

    def reset(self, *, seed: Any = None, options: dict[str, Any] | None = None) -> tuple[Any, Info]:
        if options:
            raise EnvError(f"{self.env_id}: reset() takes no options here, got {options!r}.")
        if isinstance(seed, list | tuple):
            raise EnvError(f"{self.env_id}: reset() takes one seed for all copies, got {seed!r}.")
        obs = self._source.reset(seed)
        return self._source.remember(obs), self._source.info(self.vector.info)

    def step(self, actions: Any) -> tuple[Any, np.ndarray, np.ndarray, np.ndarray, Info]:
        rows = from_native_batch(self.single_action_space, actions)
        obs, step = self._source.step(rows)
        info = self._source.info(step.info)
        info |= {"episode_return": step.episode_return, "episode_length": step.episode_length}
        over = step.is_over
        flags = step.terminated & over, step.truncated & over
        return self._source.remember(obs), step.reward, *flags, info

    def render(self) -> Any:
        if self.render_mode is None:
            raise EnvError(f"{self.env_id}: render() needs make_env(..., render_mode='rgb_array').")
        return tuple(self.vector.render(i) for i in range(self.num_envs))

    def close_extras(self, **kwargs: Any) -> None:
        self.vector.close()


def _first_row(info: Info) -> Info:
    """The info of the only copy. Keys with a leading _ say which copies have a value."""
    single: Info = {}
    for name, value in info.items():
        if isinstance(value, dict):
            single[name] = _first_row(value)
        elif not name.startswith("_") and info.get(f"_{name}", (True,))[0]:
            has_rows = isinstance(value, np.ndarray) and value.ndim > 0 and len(value) == 1
            single[name] = value[0] if has_rows else value
    return single
