"""Gymnasium's environments under the contract: an env's vector entry point, sync, or async.

An env that does not declare NEXT_STEP autoreset is refused: a guess about where an episode ended
would silently corrupt every target learnt from it. `sync` steps the envs in this process
(single_envs.py), `async` each in a process of its own (async_envs.py).

Inside, each single env has observations that are an array or a flat dict of arrays, and takes its
actions as arrays (`adapted`), so that both modes only ever move arrays.
"""

import warnings
from collections.abc import Callable
from functools import partial
from typing import Any

import gymnasium
import numpy as np
from gymnasium.vector import AutoresetMode

from gymnasium_solver.envs.engines import single_envs
from gymnasium_solver.envs.engines.async_envs import AsyncEnvs
from gymnasium_solver.envs.engines.c.classics import (
    CompiledSingles,
    CompiledVector,
    compiled_vector,
)
from gymnasium_solver.envs.engines.single_envs import Answer, DirectEnvs, Guard
from gymnasium_solver.envs.env_bugs import explained, one_line
from gymnasium_solver.envs.goals import goal_functions_of
from gymnasium_solver.envs.spec import EnvRequest, EnvSpec, registry_entry, suite_of
from gymnasium_solver.envs.suites.minigrid import minigrid_view
from gymnasium_solver.envs.vector import RAW_REWARD, Engine, Info, RawStep, env_seeds
from gymnasium_solver.envs.wrappers.wrapping import FrameSkipEnv
from gymnasium_solver.errors import EnvError
from gymnasium_solver.fast.native.build import is_preferred
from gymnasium_solver.lanes import current_lane
from gymnasium_solver.spaces import observations, space_types
from gymnasium_solver.spaces.observations import GoalFunctions, Obs, Reader
from gymnasium_solver.spaces.space_types import Space

_CHECKED: set[str] = set()  # ids of which Gymnasium has checked an environment in this process
VECTOR_REWARDS = "the environment pays vectors: scores are made of the rewards of its wrapper"


class GymnasiumEngine(Engine):
    """Registered environments in one of three modes: vector (entry point), sync, async."""

    def __init__(self, request: EnvRequest, reason: str) -> None:
        env_id, n_envs, mode = request.env_id, request.n_envs, request.mode
        limit, render_mode = request.max_episode_steps, request.render_mode
        entry = registry_entry(env_id)
        assert entry is not None, "make.py asks for registered ids only"
        suite = suite_of(entry.entry_point)
        kwargs = dict(request.env_kwargs)
        view = kwargs.pop("observation", "onehot") if suite == "minigrid" else None
        if limit is not None:
            kwargs["max_episode_steps"] = limit
        if render_mode is not None:
            kwargs["render_mode"] = render_mode
        self._vec, action, notes = _make_vec(request, kwargs)
        self._make_single = partial(gymnasium.make, entry, disable_env_checker=True, **kwargs)
        self._goal_env: gymnasium.Env[Any, Any] | None = None
        declared = self._vec.metadata.get("autoreset_mode")
        if declared is not AutoresetMode.NEXT_STEP:
            self._vec.close()
            raise EnvError(
                f"{env_id}: its {mode} engine declares autoreset_mode={declared!r}, expected "
                "AutoresetMode.NEXT_STEP in its metadata. Use vectorization_mode sync, or give the "
                "vector env NEXT_STEP autoreset."
            )
        space = self._vec.single_observation_space
        self._read = observations.flatten_space(space, env_id)
        if view is not None and space_types.is_dict(space):  # MiniGrid's env_kwargs key
            self._read = Reader(*minigrid_view(space["image"], env_id, view))
        threshold = entry.reward_threshold
        threshold = None if threshold is None else float(threshold)
        limit, notes = limit or entry.max_episode_steps, notes + self._read.notes
        spec = EnvSpec(env_id, mode, reason, limit, threshold, suite, notes=notes)
        super().__init__(n_envs, self._read.space, action, spec)
        self._to_vec = self._action_conversion(action, mode)
        # As it comes: a single env returns new arrays, and MiniGrid observations are mapped first.
        self._is_fresh = mode == "sync" and view is None and space_types.is_array(self._read.space)
        self._is_batch = mode == "vector"
        self._render_mode = render_mode
        self._compiled: CompiledVector | None = None
        self._may_compile = mode == "vector"
        if mode == "vector" and hasattr(self._vec, "action_space"):
            # CartPole's class checks its actions at each step, for 12 of 45 us: ours are checked.
            self._vec.action_space.contains = lambda actions: True

    def _action_conversion(self, native: Space, mode: str) -> Callable[[np.ndarray], Any] | None:
        """A function from checked actions to what the vectorised env takes; None: the same."""
        if space_types.is_product(native):
            return partial(space_types.to_native, native) if mode == "vector" else None
        if space_types.is_box(native) and native != self.action_space:
            low, high = native.low, native.high
            # float32 bounds may be a hair outside the env's own float64 ones
            return lambda actions: np.clip(actions.astype(np.float64), low, high)
        return None

    def _reset(self, seed: int) -> tuple[Obs, Info]:
        seeds = env_seeds(seed, self.n_envs)
        # Entry points take one seed for the whole batch.
        answer = self._vec.reset(seed=seeds[0] if self._is_batch else seeds)
        obs, info = self._checked("reset()", answer, 2) if self._is_batch else answer
        return self._fresh(obs), info

    def _step(self, actions: np.ndarray, is_reset: np.ndarray, n_reset: int) -> RawStep:
        given = actions if self._to_vec is None else self._to_vec(actions)
        if (compiled := self.compiled) is not None:
            return compiled(given)
        answer = self._vec.step(given)
        if not self._is_batch:  # single envs are checked one by one
            obs, reward, terminated, truncated, info = answer
            if self._is_fresh:
                return obs, reward, terminated, truncated, info
            return self._fresh(obs), np.array(reward, np.float32), terminated, truncated, info
        obs, reward, terminated, truncated, info = self._checked("step()", answer, 5)
        ends = self._flags("terminated", terminated), self._flags("truncated", truncated)
        if n_reset and ((ends[0] | ends[1]) & is_reset).any():
            raise self._wrong(
                "an episode that ends in the step that resets it. NEXT_STEP autoreset returns the "
                "first observation of the new episode there, with both flags false"
            )
        return self._fresh(obs), self._rewards(reward), *ends, info

    def _fresh(self, native: Any) -> Obs:
        """The delivered observation, copied: engines may reuse their buffers."""
        obs = self._read(native)
        return obs if self._is_fresh else observations.map_obs(np.array, obs)

    def _checked(self, call: str, answer: Any, n_values: int) -> Any:
        """What a vectorised env returned; EnvError if it is not in the declared form."""
        if not isinstance(answer, tuple) or len(answer) != n_values:
            raise self._wrong(
                f"{single_envs.count_of(answer)} from {call}, expected {single_envs.VALUES[call]}"
            )
        if not isinstance(answer[-1], dict):
            raise self._wrong(f"info={answer[-1]!r:.60} from {call}, expected a dict")
        self._check_obs(answer[0])
        return answer

    def _check_obs(self, native: Any) -> None:
        try:
            seen = dict(observations.obs_arrays(self._read(native)))
        except Exception as error:  # no array, or a part is missing
            raise self._wrong(f"observations that cannot be read: {one_line(error)}") from error
        for name, part in observations.part_spaces(self._read.space).items():
            array, shape = seen[name], (self.n_envs, *(part.shape or ()))
            is_usual = isinstance(array, np.ndarray) and array.dtype == part.dtype
            if is_usual and array.shape == shape and not space_types.choices(part):
                continue
            if problem := single_envs.misfit(part, array, self.n_envs):
                what = f"observation part {name!r}" if name else "observations"
                of = f"of {self.n_envs} envs that do not fit {part}"
                raise self._wrong(f"{what} {of}: the batch {problem}")

    def _rewards(self, reward: Any) -> np.ndarray:
        array = np.asarray(reward)
        if array.dtype.kind not in "fiub":
            raise self._wrong(f"the rewards {reward!r:.60}, expected numbers")
        if array.shape not in ((self.n_envs,), (self.n_envs, 1)):
            raise self._wrong(
                f"rewards of shape {array.shape}, expected ({self.n_envs},): a number for each env"
            )
        return array.reshape(self.n_envs).astype(np.float32)

    def _flags(self, name: str, given: Any) -> np.ndarray:
        """`terminated` or `truncated` as fresh bool[N]."""
        flags = np.array(given)
        if flags.shape != (self.n_envs,):
            raise self._wrong(f"{name} of shape {flags.shape}, expected ({self.n_envs},)")
        if flags.dtype != np.bool_:
            if flags.dtype.kind not in "fiu" or not np.isin(flags, (0, 1)).all():
                raise self._wrong(f"{name}={given!r:.60}, expected true or false for each env")
            flags = flags.astype(np.bool_)
        return flags

    def _wrong(self, what: str) -> EnvError:
        return EnvError(f"{self.spec.env_id}: it returned {what}.")

    def goal_functions(self) -> GoalFunctions:
        """The functions of another copy of the env: some change the goal in compute_terminated."""
        if self._goal_env is None:
            with explained(f"her: {self.spec.env_id}: another copy raised"):
                self._goal_env = self._make_single()
                self._goal_env.reset(seed=0)
        return goal_functions_of(self._goal_env, self.spec.env_id)

    @property
    def compiled(self) -> CompiledVector | CompiledSingles | None:
        if isinstance(self._vec, DirectEnvs):
            return self._vec.compiled
        if self._may_compile and (is_preferred() or current_lane() is not None):
            self._may_compile = False
            self._compiled = compiled_vector(self._vec)
        return self._compiled

    @property
    def single_env(self) -> gymnasium.Env[Any, Any] | None:
        """The first environment itself, in mode sync."""
        return self._vec.envs[0] if self.spec.engine == "sync" else None

    def render(self, env_index: int = 0) -> np.ndarray | None:
        if self._render_mode is None:
            raise EnvError(f"{self.spec.env_id}: render() needs render_mode='rgb_array'.")
        with explained(f"{self.spec.env_id}: render() raised"):
            if self.spec.engine == "sync":
                frame = self._vec.envs[env_index].render()
            else:
                frame = self._vec.render()[env_index]
        return None if frame is None else np.asarray(frame)

    def close(self) -> None:
        if not self._closed:
            try:
                self._vec.close()
                if self._goal_env is not None:
                    self._goal_env.close()
            except Exception as error:  # what was learnt is worth more than an orderly end
                text = f"{self.spec.env_id}: close() raised {one_line(error)}"
                warnings.warn(text, stacklevel=2)
        super().close()


class RawReward(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Beneath the wrappers of a single env: adds up what it pays during one step of the outermost
    one. Scores are those of the environment itself, whatever a wrapper does to the reward; unless
    the environment pays vectors, of which a wrapper makes numbers: then scores are made of these.
    """

    def __init__(self, env: gymnasium.Env[Any, Any]) -> None:
        super().__init__(env)
        self.total: float | None = 0.0

    def step(self, action: Any) -> Answer:
        answer = self.env.step(action)
        if isinstance(answer, tuple) and len(answer) == 5:  # anything else is reported above
            number = single_envs.reward_number(answer[1])
            is_sum = number is not None and self.total is not None
            self.total = self.total + number if is_sum else None  # type: ignore[operator]
        return answer


class Scored(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Around them: reports what `raw` has added up, which the engine scores by."""

    def __init__(self, env: gymnasium.Env[Any, Any], raw: RawReward) -> None:
        super().__init__(env)
        self._raw = raw

    def step(self, action: Any) -> Answer:
        self._raw.total = 0.0
        obs, reward, terminated, truncated, info = self.env.step(action)
        total = single_envs.reward_number(reward) if self._raw.total is None else self._raw.total
        return obs, reward, terminated, truncated, {**info, RAW_REWARD: total}


def _wrapped(env: gymnasium.Env, request: EnvRequest) -> gymnasium.Env:
    """A single env with its wrappers."""
    raw = RawReward(env) if request.singles else None
    env = raw or env
    if request.frame_skip:
        env = FrameSkipEnv(env, *request.frame_skip)
    for single in request.singles:
        with explained(f"{request.env_id}: wrapper {single.id}:"):
            env = single.around(env)
    return env if raw is None else Scored(env, raw)


def _make_vec(request: EnvRequest, kwargs: dict[str, Any]) -> tuple[Any, Space, tuple[str, ...]]:
    """A vectorised env, its native actions, and notes for the user."""
    env_id, n_envs, mode = request.env_id, request.n_envs, request.mode
    spec = registry_entry(env_id) or env_id

    def make() -> gymnasium.Env:
        # Gymnasium's own checker warns in colours: once is enough. `Guard` and `gsolve doctor env`
        # check the rest.
        unchecked = {"disable_env_checker": True} if env_id in _CHECKED else {}
        _CHECKED.add(env_id)
        return _wrapped(gymnasium.make(spec, **kwargs, **unchecked), request)

    def make_adapted() -> gymnasium.Env:
        return single_envs.adapted(make(), env_id)

    given = f" with {kwargs}" if kwargs else ""
    with explained(f"{env_id} cannot be made by gymnasium ({mode}){given}:"):
        if mode == "vector":
            vec = gymnasium.make_vec(
                env_id, num_envs=n_envs, vectorization_mode="vector_entry_point", **kwargs
            )
            return vec, vec.single_action_space, ()
        first = make()
        action, is_flat = first.action_space, space_types.is_array(first.observation_space)
        first = single_envs.adapted(first, env_id)
        notes = () if is_flat else first.get_wrapper_attr("notes")
        if request.singles and hasattr(first.unwrapped, "reward_space"):
            notes += (VECTOR_REWARDS,)
        if mode == "sync":
            vec = DirectEnvs([first, *(make_adapted() for _ in range(1, n_envs))], env_id)
            return vec, action, notes
        Guard(first, env_id, 0).close()
        return AsyncEnvs(make_adapted, n_envs, env_id, request.timeout_s), action, notes
