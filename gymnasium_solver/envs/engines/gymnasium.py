"""Gymnasium's environments under the contract: an env's vector entry point, sync, or async.

An env that does not declare NEXT_STEP autoreset is refused: a guess about where an episode ended
would silently corrupt every target learnt from it. `sync` steps the envs directly (`DirectEnvs`):
Gymnasium's SyncVectorEnv spends up to half of a small env's time on batching.

Inside, each single env has observations that are an array or a flat dict of arrays, and takes its
actions as arrays (`adapted`), so that both modes only ever move arrays.
"""

import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, SupportsFloat

import gymnasium
import numpy as np
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, VectorEnv

from gymnasium_solver.envs.processes import deaf_to_ctrl_c
from gymnasium_solver.envs.readers import FlatObservations, Reader, reader
from gymnasium_solver.envs.spec import EnvSpec, registry_entry, suite_of
from gymnasium_solver.envs.suites.minigrid import minigrid_view
from gymnasium_solver.envs.vector import Engine, Info, RawStep, as_float32, env_seeds
from gymnasium_solver.envs.wrappers.lowered import FrameSkipEnv
from gymnasium_solver.errors import EnvError
from gymnasium_solver.spaces.native_actions import (
    action_shape,
    is_product,
    to_native,
    to_native_batch,
)
from gymnasium_solver.spaces.observations import ARRAYS, Obs, map_obs

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


class ArrayActions(gymnasium.Wrapper[Any, Any, Any, Any]):
    """A single env with Dict or Tuple actions that takes them as one row of numbers."""

    def __init__(self, env: gymnasium.Env[Any, Any]) -> None:
        super().__init__(env)
        self.native = env.action_space
        shape = action_shape(self.native)
        self.action_space = gymnasium.spaces.Box(-np.inf, np.inf, shape, np.float64)

    def step(self, action: Any) -> tuple[Any, SupportsFloat, bool, bool, dict[str, Any]]:
        return self.env.step(to_native(self.native, action))


def adapted(env: gymnasium.Env[Any, Any], env_id: str) -> gymnasium.Env[Any, Any]:
    """An env whose observations are arrays or flat dicts of arrays and whose actions are arrays."""
    if not isinstance(env.observation_space, ARRAYS):
        env = FlatObservations(env, env_id)
    return ArrayActions(env) if is_product(env.action_space) else env


class DirectEnvs(VectorEnv):
    """Adapted envs stepped one by one: what SyncVectorEnv gives, sooner, with float32 for float64.

    The arrays are fresh at every step."""

    metadata: dict[str, Any] = {"autoreset_mode": AutoresetMode.NEXT_STEP}

    def __init__(self, envs: Sequence[gymnasium.Env], env_id: str = "DirectEnvs") -> None:
        self.envs, self.num_envs, self._env_id = list(envs), len(envs), env_id
        self.single_observation_space = space = envs[0].observation_space
        self.single_action_space = envs[0].action_space
        for env in envs:
            spaces = env.observation_space, env.action_space
            if spaces != (space, self.single_action_space):
                raise ValueError(f"its copies differ in their spaces: {env} has {spaces}")
        self._is_dict = isinstance(space, gymnasium.spaces.Dict)
        parts = space.spaces if isinstance(space, gymnasium.spaces.Dict) else {"": space}
        self._empty = {
            name: partial(np.empty, (self.num_envs, *(part.shape or ())), as_float32(part).dtype)
            for name, part in parts.items()
        }
        self._empty_array = self._empty[next(iter(parts))]
        self._is_over = [False] * self.num_envs

    def _new_obs(self) -> Any:
        if self._is_dict:
            return {name: empty() for name, empty in self._empty.items()}
        return self._empty_array()

    def reset(self, *, seed: Any = None, options: dict[str, Any] | None = None) -> tuple[Obs, Info]:
        obs, info = self._new_obs(), Info()
        for i, env in enumerate(self.envs):
            seen, given = env.reset(seed=None if seed is None else seed[i], options=options)
            self._put(obs, i, seen)
            info = self._add_info(info, given, i)
            self._is_over[i] = False
        return obs, info

    def step(self, actions: np.ndarray) -> RawStep:
        obs, info = self._new_obs(), Info()
        rewards: list[SupportsFloat] = [0.0] * self.num_envs
        terminated, truncated = [False] * self.num_envs, [False] * self.num_envs
        is_dict = self._is_dict
        for i, env in enumerate(self.envs):
            if self._is_over[i]:
                seen, given = env.reset()
                self._is_over[i] = False
            else:
                seen, rewards[i], ended, cut, given = env.step(actions[i])
                if ended or cut:
                    terminated[i], truncated[i], self._is_over[i] = ended, cut, True
            if is_dict:
                self._put(obs, i, seen)
            else:
                try:  # here and not in `_put`: calls are 3 % of a CartPole's step
                    obs[i] = seen
                except (ValueError, TypeError) as error:
                    raise self._misfit(i, seen, error) from error
            if given:
                info = self._add_info(info, given, i)
        flags = np.array([terminated, truncated], np.bool_)
        return obs, self._numbers(rewards), flags[0], flags[1], info

    def _put(self, obs: Any, i: int, seen: Any) -> None:
        """Store what env i returned."""
        try:
            if not self._is_dict:
                obs[i] = seen
                return
            for name, part in obs.items():
                part[i] = seen[name]
        except (ValueError, TypeError, KeyError, IndexError) as error:
            raise self._misfit(i, seen, error) from error

    def _misfit(self, i: int, seen: Any, error: Exception) -> EnvError:
        return EnvError(
            f"{self._env_id}: env {i} returned an observation that does not fit "
            f"{self.single_observation_space}: {str(seen)[:100]} ({error})."
        )

    def _numbers(self, rewards: list[Any]) -> np.ndarray:
        """The rewards as float32[N]; an array with one element counts as its number."""
        try:
            numbers = np.array(rewards, np.float32)
        except ValueError:  # some are numbers, others arrays
            numbers = np.empty(0, np.float32)
        if numbers.shape == (self.num_envs,):
            return numbers
        for i, reward in enumerate(rewards):
            if np.size(reward) != 1:
                raise EnvError(
                    f"{self._env_id}: env {i} returned the reward {reward!r}, expected a number."
                )
        return np.array([np.asarray(reward).item() for reward in rewards], np.float32)

    def close_extras(self, **kwargs: Any) -> None:
        for env in self.envs:
            env.close()


@dataclass
class Made:
    """A vectorised env, and what is known of its native spaces."""

    vec: Any
    action: gymnasium.spaces.Space[Any]
    notes: tuple[str, ...] = ()


class GymnasiumEngine(Engine):
    """Registered environments in one of three modes: vector (entry point), sync, async."""

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
        entry = registry_entry(env_id)
        assert entry is not None, "make.py asks for registered ids only"
        suite = suite_of(entry.entry_point)
        kwargs = dict(env_kwargs)
        view = kwargs.pop("observation", "onehot") if suite == "minigrid" else None
        if max_episode_steps is not None:
            kwargs["max_episode_steps"] = max_episode_steps
        if render_mode is not None:
            kwargs["render_mode"] = render_mode
        inner = [partial(FrameSkipEnv, low=frame_skip[0], high=frame_skip[1])] if frame_skip else []
        made = _make_vec(env_id, n_envs, mode, kwargs, inner)
        self._vec = made.vec
        self._refuse_other_autoreset(env_id, mode)
        self._read = _reader(self._vec.single_observation_space, env_id, view)
        threshold = entry.reward_threshold
        spec = EnvSpec(
            env_id=env_id,
            engine=mode,
            engine_reason=reason,
            max_episode_steps=max_episode_steps or entry.max_episode_steps,
            reward_threshold=None if threshold is None else float(threshold),
            suite=suite,
            notes=made.notes + self._read.notes,
        )
        super().__init__(n_envs, self._read.space, made.action, spec)
        self._to_vec = self._action_conversion(made.action, mode)
        self._is_fresh = mode == "sync" and self._read.read is None
        self._render_mode = render_mode
        if mode == "vector" and hasattr(self._vec, "action_space"):
            # CartPole's class checks its actions at each step, for 12 of 45 us: ours are checked.
            self._vec.action_space.contains = lambda actions: True

    def _action_conversion(
        self, native: gymnasium.spaces.Space[Any], mode: str
    ) -> Callable[[np.ndarray], Any] | None:
        """From checked actions to what the vectorised env takes; None: the same."""
        if is_product(native):
            return partial(to_native_batch, native) if mode == "vector" else None
        if isinstance(native, gymnasium.spaces.Box) and native != self.action_space:
            low, high = native.low, native.high
            # float32 bounds may be a hair outside the env's own float64 ones
            return lambda actions: np.clip(actions.astype(np.float64), low, high)
        return None

    def _refuse_other_autoreset(self, env_id: str, mode: str) -> None:
        declared = self._vec.metadata.get("autoreset_mode")
        if declared is not AutoresetMode.NEXT_STEP:
            self._vec.close()
            raise EnvError(
                f"{env_id}: its {mode} engine declares autoreset_mode={declared!r}, expected "
                "AutoresetMode.NEXT_STEP in its metadata. Use vectorization_mode sync, or give the "
                "vector env NEXT_STEP autoreset."
            )

    def _reset(self, seed: int) -> tuple[Obs, Info]:
        seeds = env_seeds(seed, self.n_envs)
        # Entry points take one seed for the whole batch.
        obs, info = self._vec.reset(seed=seeds[0] if self.spec.engine == "vector" else seeds)
        return self._fresh(obs), info

    def _step(self, actions: np.ndarray, is_reset: np.ndarray, n_reset: int) -> RawStep:
        given = actions if self._to_vec is None else self._to_vec(actions)
        obs, reward, terminated, truncated, info = self._vec.step(given)
        if self._is_fresh:
            return obs, reward, terminated, truncated, info
        return (
            self._fresh(obs),
            np.array(reward, np.float32),
            np.array(terminated, np.bool_),
            np.array(truncated, np.bool_),
            info,
        )

    def _fresh(self, native: Any) -> Obs:
        """The delivered observation, copied: engines may reuse their buffers."""
        obs = self._read(native)
        return obs if self._is_fresh else map_obs(np.array, obs)

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


def _reader(space: gymnasium.spaces.Space[Any], env_id: str, view: Any) -> Reader:
    """How to read batches of what the (adapted) envs give; `view` is MiniGrid's env_kwargs key."""
    if view is not None and isinstance(space, gymnasium.spaces.Dict):
        return Reader(*minigrid_view(space["image"], env_id, view))
    return reader(space, env_id)


def _make_vec(
    env_id: str, n_envs: int, mode: str, kwargs: dict[str, Any], inner: list[Any]
) -> Made:
    spec = registry_entry(env_id) or env_id

    def make() -> gymnasium.Env:
        env = gymnasium.make(spec, **kwargs)
        for wrapper in inner:
            env = wrapper(env)
        return env

    def make_adapted() -> gymnasium.Env:
        return adapted(make(), env_id)

    try:
        if mode == "vector":
            vec = gymnasium.make_vec(
                env_id, num_envs=n_envs, vectorization_mode="vector_entry_point", **kwargs
            )
            return Made(vec, vec.single_action_space)
        first = make()
        action, is_flat = first.action_space, isinstance(first.observation_space, ARRAYS)
        first = adapted(first, env_id)
        notes = () if is_flat else first.get_wrapper_attr("notes")
        if mode == "sync":
            vec = DirectEnvs([first, *(make_adapted() for _ in range(1, n_envs))], env_id)
            return Made(vec, action, notes)
        first.close()
        # copy=False: the buffer is copied once, by the engine, while it is cast.
        options: dict[str, Any] = {"autoreset_mode": AutoresetMode.NEXT_STEP, "copy": False}
        with deaf_to_ctrl_c():
            return Made(AsyncVectorEnv([make_adapted] * n_envs, **options), action, notes)
    except _MAKE_ERRORS as error:
        given = f" with {kwargs}" if kwargs else ""
        raise EnvError(
            f"{env_id} cannot be made by gymnasium ({mode}){given}: {type(error).__name__}: {error}"
            f"{_place(error)}"
        ) from error


def _place(error: BaseException) -> str:
    """Where in the environment's own code an error was raised; "" for errors of Gymnasium."""
    frames = traceback.extract_tb(error.__traceback__)
    if not frames or "/gymnasium/" in frames[-1].filename.replace("\\", "/"):
        return ""
    return f" ({frames[-1].filename}, line {frames[-1].lineno})"
