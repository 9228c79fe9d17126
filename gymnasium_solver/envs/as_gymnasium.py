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
from gymnasium_solver.envs.vector import Info, VectorEnv
from gymnasium_solver.errors import EnvError
from gymnasium_solver.spaces.native_actions import from_native, from_native_batch
from gymnasium_solver.spaces.observations import take_rows

FPS = 30
"""Frames per second of a video, where the environment does not say."""


class _Shared:
    """What both kinds have in common: the vector env beneath, resets, and what was seen last."""

    def __init__(
        self,
        env: VectorEnv,
        treatment: Treatment,
        *,
        seed: int | None = None,
        render_mode: str | None = None,
        fps: int | None = None,
    ) -> None:
        self.vector, self._tap = tap_observations(env)
        self.env_id, self.treatment, self.render_mode = env.spec.env_id, treatment, render_mode
        self.metadata: dict[str, Any] = {
            "render_modes": ["rgb_array"],
            "render_fps": fps or FPS,
        }
        self._rng = np.random.default_rng(seed)
        self._first_seed = seed
        self.last_obs: Any = None
        _made.add(self)

    def _restart(self, seed: int | None) -> None:
        """Open new episodes in all copies; without a seed, others than before."""
        if seed is None:
            seed = self._first_seed
        self._first_seed = None
        self.vector.reset(int(self._rng.integers(2**31)) if seed is None else seed)

    def _with_mask(self, info: Info) -> Info:
        mask = self.vector.action_mask
        return dict(info) if mask is None else {**info, MASK_KEY: mask}

    def _drawn(self, index: int) -> Any:
        if self.render_mode is None:
            raise EnvError(f"{self.env_id}: render() needs make_env(..., render_mode='rgb_array').")
        return self.vector.render(index)

    def _refuse(self, options: Any) -> None:
        if options:
            raise EnvError(f"{self.env_id}: reset() takes no options here, got {options!r}.")


_made: "weakref.WeakSet[_Shared]" = weakref.WeakSet()


def is_observed_now(obs: Any, treatment: Treatment) -> bool:
    """Whether an observation is the very one that an env with this treatment returned last."""
    return any(env.last_obs is obs and env.treatment.fits(treatment) for env in _made)


class SingleEnv(_Shared, gymnasium.Env[Any, Any]):
    """One environment."""

    def __init__(self, env: VectorEnv, treatment: Treatment, **given: Any) -> None:
        super().__init__(env, treatment, **given)
        self.observation_space, self.action_space = treatment.space, env.action_space
        self._is_over = False
        self._last_actions: np.ndarray | None = None

    def __repr__(self) -> str:
        return f"<{self.env_id} as a run sees it, {self.vector.spec.engine}>"

    __str__ = __repr__  # Gymnasium's says the name of the class only

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, Info]:
        self._refuse(options)
        gymnasium.Env.reset(self, seed=seed)
        if seed is None and self._is_over:
            info = self.vector.step(self._last_actions).info  # a reset row: the stream goes on
        else:
            self._restart(seed)
            info = self.vector.info
        self._is_over = False
        self._last_actions = None
        return self._observed(), self._info(info, 0.0, 0)

    def step(self, action: Any) -> tuple[Any, float, bool, bool, Info]:
        if self._is_over:
            raise EnvError(f"{self.env_id}: the episode is over; call reset() first.")
        self._last_actions = from_native(self.action_space, action)[None]
        step = self.vector.step(self._last_actions)
        self._is_over = bool(step.is_over[0])
        return (
            self._observed(),
            float(step.reward[0]),
            self._is_over and bool(step.terminated[0]),
            self._is_over and bool(step.truncated[0]),
            self._info(step.info, float(step.episode_return[0]), int(step.episode_length[0])),
        )

    def _observed(self) -> Any:
        self.last_obs = take_rows(self._tap.obs, 0)
        return self.last_obs

    def _info(self, info: Info, episode_return: float, episode_length: int) -> Info:
        totals = {"episode_return": episode_return, "episode_length": episode_length}
        return _first_row(self._with_mask(info)) | totals

    def render(self) -> Any:
        return self._drawn(0)

    def close(self) -> None:
        self.vector.close()


class BatchEnv(_Shared, gymnasium.vector.VectorEnv):
    """Several copies, stepped together, with NEXT_STEP autoreset."""

    def __init__(self, env: VectorEnv, treatment: Treatment, **given: Any) -> None:
        super().__init__(env, treatment, **given)
        self.num_envs = env.n_envs
        self.single_observation_space, self.single_action_space = treatment.space, env.action_space
        self.observation_space = batch_space(treatment.space, env.n_envs)
        self.action_space = batch_space(env.action_space, env.n_envs)
        self.metadata["autoreset_mode"] = AutoresetMode.NEXT_STEP

    def __repr__(self) -> str:
        engine = self.vector.spec.engine
        return f"<{self.num_envs} x {self.env_id} as a run sees it, {engine}>"

    def reset(self, *, seed: Any = None, options: dict[str, Any] | None = None) -> tuple[Any, Info]:
        self._refuse(options)
        if isinstance(seed, list | tuple):
            raise EnvError(f"{self.env_id}: reset() takes one seed for all copies, got {seed!r}.")
        self._restart(seed)
        self.last_obs = self._tap.obs
        return self.last_obs, self._with_mask(self.vector.info)

    def step(self, actions: Any) -> tuple[Any, np.ndarray, np.ndarray, np.ndarray, Info]:
        step = self.vector.step(from_native_batch(self.single_action_space, actions))
        info = self._with_mask(step.info)
        info |= {"episode_return": step.episode_return, "episode_length": step.episode_length}
        over = step.is_over
        self.last_obs = self._tap.obs
        return self.last_obs, step.reward, step.terminated & over, step.truncated & over, info

    def render(self) -> Any:
        return tuple(self._drawn(i) for i in range(self.num_envs))

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
