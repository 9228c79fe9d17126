"""Gymnasium's own vector envs under the contract: an env's vector entry point, sync, or async.

Whatever does not declare NEXT_STEP autoreset is refused: guessing where an episode ended silently
corrupts every target learnt from it. With `sync` envs of array observations are stepped directly:
Gymnasium's SyncVectorEnv spends up to half of a small env's time on batching.
"""

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from functools import partial
from typing import Any, SupportsFloat

import gymnasium
import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv

from gymnasium_solver.envs.observations import ARRAYS, reader
from gymnasium_solver.envs.processes import deaf_to_ctrl_c
from gymnasium_solver.envs.spec import EnvSpec, registry_entry, suite_of
from gymnasium_solver.envs.vector import Engine, Info, RawStep, env_seeds
from gymnasium_solver.envs.wrappers.lowered import FrameSkipEnv
from gymnasium_solver.errors import EnvError

# What constructors of environments raise for bad kwargs and missing packages.
_MAKE_ERRORS = (
    gymnasium.error.Error,
    TypeError,
    ValueError,
    AssertionError,
    ImportError,
    KeyError,
    AttributeError,
)


class DirectEnvs(VectorEnv):
    """Envs whose observations are arrays, stepped one by one: what SyncVectorEnv gives, sooner."""

    metadata: dict[str, Any] = {"autoreset_mode": AutoresetMode.NEXT_STEP}

    def __init__(self, envs: Sequence[gymnasium.Env]) -> None:
        self.envs, self.num_envs = list(envs), len(envs)
        self.single_observation_space = space = envs[0].observation_space
        self.single_action_space = envs[0].action_space
        for env in envs:
            spaces = env.observation_space, env.action_space
            if spaces != (space, self.single_action_space):
                raise ValueError(f"its copies differ in their spaces: {env} has {spaces}")
        self._empty = partial(np.empty, (self.num_envs, *(space.shape or ())), space.dtype)
        self._is_over = [False] * self.num_envs

    def reset(
        self, *, seed: Any = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, Info]:
        obs, info = self._empty(), Info()
        for i, env in enumerate(self.envs):
            obs[i], given = env.reset(seed=None if seed is None else seed[i], options=options)
            info = self._add_info(info, given, i)
            self._is_over[i] = False
        return obs, info

    def step(self, actions: np.ndarray) -> RawStep:
        obs, info = self._empty(), Info()
        rewards: list[SupportsFloat] = [0.0] * self.num_envs
        terminated, truncated = [False] * self.num_envs, [False] * self.num_envs
        for i, env in enumerate(self.envs):
            if self._is_over[i]:
                obs[i], given = env.reset()
                self._is_over[i] = False
            else:
                obs[i], rewards[i], ended, cut, given = env.step(actions[i])
                if ended or cut:
                    terminated[i], truncated[i], self._is_over[i] = ended, cut, True
            if given:
                info = self._add_info(info, given, i)
        flags = np.array([terminated, truncated], np.bool_)
        return obs, np.array(rewards, np.float64), flags[0], flags[1], info

    def close_extras(self, **kwargs: Any) -> None:
        for env in self.envs:
            env.close()


class GymnasiumEngine(Engine):
    """`gymnasium.make_vec` in one of its modes: vector (entry point), sync, async."""

    def __init__(
        self,
        env_id: str,
        n_envs: int,
        mode: str,
        *,
        env_kwargs: Mapping[str, Any],
        max_episode_steps: int | None,
        render_mode: str | None,
        reason: str,
        frame_skip: tuple[int, int] | None = None,
    ) -> None:
        kwargs = dict(env_kwargs)
        if max_episode_steps is not None:
            kwargs["max_episode_steps"] = max_episode_steps
        if render_mode is not None:
            kwargs["render_mode"] = render_mode
        inner = [partial(FrameSkipEnv, low=frame_skip[0], high=frame_skip[1])] if frame_skip else []
        self._vec = _make_vec(env_id, n_envs, mode, kwargs, inner)
        self._refuse_other_autoreset(env_id, mode)
        entry = registry_entry(env_id)
        assert entry is not None, "make.py asks for registered ids only"
        threshold = entry.reward_threshold
        spec = EnvSpec(
            env_id=env_id,
            engine=mode,
            engine_reason=reason,
            max_episode_steps=max_episode_steps or entry.max_episode_steps,
            reward_threshold=None if threshold is None else float(threshold),
            suite=suite_of(entry.entry_point),
        )
        native_action = self._vec.single_action_space
        self._read = reader(self._vec.single_observation_space, env_id)
        super().__init__(n_envs, self._read.space, native_action, spec)
        self._native = native_action if native_action != self.action_space else None
        self._render_mode = render_mode
        if mode == "vector" and hasattr(self._vec, "action_space"):
            # CartPole's class checks its actions at each step, for 12 of 45 us: ours are checked.
            self._vec.action_space.contains = lambda actions: True

    def _refuse_other_autoreset(self, env_id: str, mode: str) -> None:
        declared = self._vec.metadata.get("autoreset_mode")
        if declared is not AutoresetMode.NEXT_STEP:
            self._vec.close()
            raise EnvError(
                f"{env_id}: its {mode} engine declares autoreset_mode={declared!r}, expected "
                "AutoresetMode.NEXT_STEP in its metadata. Use vectorization_mode sync, or give the "
                "vector env NEXT_STEP autoreset."
            )

    def _reset(self, seed: int) -> tuple[np.ndarray, Info]:
        seeds = env_seeds(seed, self.n_envs)
        # Entry points take one seed for the whole batch.
        obs, info = self._vec.reset(seed=seeds[0] if self.spec.engine == "vector" else seeds)
        return np.array(self._read(obs), self._obs_dtype, order="C"), info

    def _step(self, actions: np.ndarray, is_reset: np.ndarray, n_reset: int) -> RawStep:
        if self._native is not None:
            # float32 bounds may lie a hair outside the env's own float64 ones
            actions = np.clip(actions.astype(np.float64), self._native.low, self._native.high)
        obs, reward, terminated, truncated, info = self._vec.step(actions)
        # Copies: engines may reuse their buffers.
        return (
            np.array(self._read(obs), self._obs_dtype, order="C"),
            np.array(reward, np.float32),
            np.array(terminated, np.bool_),
            np.array(truncated, np.bool_),
            info,
        )

    def render(self, env_index: int = 0) -> np.ndarray | None:
        if self._render_mode is None:
            raise EnvError(f"{self.spec.env_id}: render() needs render_mode='rgb_array'.")
        try:
            if self.spec.engine == "sync":
                frame = self._vec.envs[env_index].render()
            else:
                frame = self._vec.render()[env_index]
        except gymnasium.error.DependencyNotInstalled as error:
            raise EnvError(f"{self.spec.env_id}: cannot draw: {error}") from error
        return None if frame is None else np.asarray(frame)

    def close(self) -> None:
        if not self._closed:
            self._vec.close()
        super().close()


def _make_vec(env_id: str, n_envs: int, mode: str, kwargs: dict[str, Any], inner: list[Any]) -> Any:
    gym_mode = "vector_entry_point" if mode == "vector" else mode
    # copy=False: the buffer is copied once, here, while it is cast.
    options = {"autoreset_mode": AutoresetMode.NEXT_STEP, "copy": False} if mode != "vector" else {}

    def make() -> gymnasium.Env:
        env = gymnasium.make(env_id, **kwargs)
        for wrapper in inner:
            env = wrapper(env)
        return env

    try:
        if mode == "sync":
            first = make()
            if isinstance(first.observation_space, ARRAYS):
                return DirectEnvs([first, *(make() for _ in range(1, n_envs))])
            first.close()
        with deaf_to_ctrl_c() if mode == "async" else nullcontext():
            return gymnasium.make_vec(
                env_id,
                num_envs=n_envs,
                vectorization_mode=gym_mode,
                vector_kwargs=options,
                wrappers=inner or None,
                **kwargs,
            )
    except _MAKE_ERRORS as error:
        given = f" with {kwargs}" if kwargs else ""
        raise EnvError(
            f"{env_id} cannot be made by gymnasium ({mode}){given}: {type(error).__name__}: {error}"
        ) from error
