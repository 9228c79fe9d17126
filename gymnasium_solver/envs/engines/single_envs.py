"""Single environments of Gymnasium: mistakes explained, adapted to arrays, stepped one by one.

    misfit(Box(0, 255, (3,), uint8), [0.5, 0, 0])     # "holds 0.5, expected whole numbers (uint8)"
    DirectEnvs([adapted(env, env_id), ...], env_id)

`Guard` turns exceptions of an environment's own code, and answers that do not fit its spaces, into
an EnvError that names the environment. Only what would be wrong once it is stored counts: another
number of values, values that the dtype cannot hold, numbers outside of a discrete space. Bounds of
real numbers do not: many environments exceed them a little, and networks read such values.

`adapted` gives an env observations that are an array or a flat dict of arrays, and actions that are
arrays. `DirectEnvs` steps adapted envs in this process: Gymnasium's SyncVectorEnv spends up to half
of a small env's time on batching. `async` keeps the guard around each env. `DirectEnvs` steps the
envs without it after the first step, but compares the type, the dtype and the shape of each answer
with what the env usually returns, and asks the guard about anything else.
"""

import warnings
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, SupportsFloat

import gymnasium
import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv

from gymnasium_solver.envs.engines.c.classics import CompiledSingles, compiled_singles
from gymnasium_solver.envs.env_bugs import OLD_GYM, env_bug, one_line, own_frames, text_of
from gymnasium_solver.envs.spec import C_IS_FASTEST
from gymnasium_solver.envs.suites.minigrid import MISSION_SPACE, encode_mission, is_mission
from gymnasium_solver.envs.vector import Info, RawStep
from gymnasium_solver.errors import EnvError
from gymnasium_solver.fast.native.build import is_preferred
from gymnasium_solver.spaces import observations
from gymnasium_solver.spaces.observations import Obs
from gymnasium_solver.spaces.space_types import (
    Space,
    action_shape,
    as_float32,
    choices,
    is_array,
    is_box,
    is_dict,
    is_discrete,
    is_product,
    is_tuple,
    to_native,
    whole_range,
)

Answer = tuple[Any, SupportsFloat, bool, bool, dict[str, Any]]
VALUES = {
    "reset()": "2 values: observation, info",
    "step()": "5 values: observation, reward, terminated, truncated, info",
}


class Guard(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Checks each answer of one adapted env."""

    def __init__(self, env: gymnasium.Env[Any, Any], env_id: str, index: int) -> None:
        super().__init__(env)
        self._name = f"{env_id}: env {index}"
        self._space = env.observation_space
        self._parts = observations.part_spaces(self._space)
        self._is_dict = is_dict(self._space)

    def reset(self, *, seed: Any = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        seen, info = self._asked("reset()", lambda: self.env.reset(seed=seed, options=options))
        return self.checked(seen), self.checked_info(info)

    def _asked(self, call: str, ask: Callable[[], Any]) -> tuple[Any, ...]:
        try:
            answer = ask()
        except EnvError:
            raise
        except (Exception, SystemExit) as error:
            raise self.raised(call, error) from error
        n_values = len(answer) if isinstance(answer, tuple) else 0
        if n_values == int(VALUES[call][0]):
            return answer
        got = f"{call} returned {count_of(answer)}, expected {VALUES[call]}"
        is_old = call == "reset()" or n_values == 4
        raise self._wrong(f"{got}. {OLD_GYM}" if is_old else got)

    def step(self, action: Any) -> Answer:
        answer = self._asked("step()", lambda: self.env.step(action))
        seen, reward, terminated, truncated, info = answer
        number = reward_number(reward)
        if number is None:
            raise self.no_reward(reward)
        return (
            self.checked(seen),
            number,
            self.flag("terminated", terminated),
            self.flag("truncated", truncated),
            self.checked_info(info),
        )

    def close(self) -> None:
        try:
            self.env.close()
        except (Exception, SystemExit) as error:  # what was learnt is worth more than its end
            warnings.warn(f"{self._name}: close() raised {one_line(error)}", stacklevel=2)

    def raised(self, call: str, error: BaseException) -> EnvError:
        """What to raise for an exception during a call of the env."""
        if "unpack" in text_of(error)[:40] and not own_frames(error):  # in a wrapper around it
            return self._wrong(f"{call} must return {VALUES[call]} ({one_line(error)})")
        return env_bug(f"{self._name}: {call} raised", error)

    def flag(self, name: str, flag: Any) -> bool:
        """`terminated` or `truncated` as a bool."""
        if type(flag) in (bool, np.bool_):
            return bool(flag)
        if reward_number(flag) not in (0.0, 1.0):
            raise self._wrong(f"returned {name}={flag!r:.60}, expected true or false")
        return bool(flag)

    def checked_info(self, info: Any) -> dict[str, Any]:
        if not isinstance(info, dict):
            raise self._wrong(f"returned info={info!r:.60}, expected a dict")
        return info

    def no_reward(self, reward: Any) -> EnvError:
        wrong = self._wrong(f"returned the reward {reward!r:.60}, expected a number")
        n = np.size(reward) if isinstance(reward, np.ndarray | list | tuple) else 0
        if n < 2:
            return wrong
        weights = ", ".join([f"{1 / n:.3g}"] * n)
        return EnvError(
            f"{wrong} A wrapper makes one of a vector: --env-wrappers "
            f"\"[{{id: 'mo_gymnasium.wrappers:LinearReward', weight: [{weights}]}}]\", or one of "
            "your own."
        )

    def _is_usual(self, seen: Any) -> bool:
        """The usual cases, at a tenth of the cost of a check: small envs are reset every few
        steps."""
        space = self._space
        if isinstance(seen, np.ndarray):
            return is_box(space) and seen.shape == space.shape and seen.dtype == space.dtype
        if isinstance(seen, int | np.integer) and is_discrete(space):
            return bool(0 <= seen - space.start < space.n)
        return False

    def checked(self, seen: Any) -> Any:
        """An observation in the declared form; EnvError if it has none."""
        if self._is_usual(seen):
            return seen
        obs = {name: self.checked_part(name, self.part_of(seen, name)) for name in self._parts}
        return obs if self._is_dict else obs[""]

    def part_of(self, seen: Any, name: str) -> Any:
        """A part of an observation; None if it has none of this name."""
        if not self._is_dict:
            return seen
        if not isinstance(seen, dict):
            raise self.misfit(seen, "", "is not a dict")
        return seen.get(name)

    def checked_part(self, name: str, part: Any) -> Any:
        space = self._parts[name]
        if problem := misfit(space, part):
            raise self.misfit(part, name, problem)
        if isinstance(part, list) or np.shape(part) != _shape_of(space):
            return np.asarray(part).reshape(_shape_of(space))
        return part

    def misfit(self, value: Any, part: str, problem: str | None = None) -> EnvError:
        """What is wrong with an observation, or with a part of it."""
        problem = problem or misfit(self._parts[part], value) or "cannot be read"
        what = f"an observation part {part!r}" if part else "an observation"
        space = self._parts[part] if part else self._space
        given = " ".join(str(value).split())[:100]
        return self._wrong(f"returned {what} that does not fit {space}: it {problem} ({given})")

    def _wrong(self, problem: str) -> EnvError:
        return EnvError(f"{self._name} {problem}.")


def count_of(answer: Any) -> str:
    return f"{len(answer)} values" if isinstance(answer, tuple) else f"a {type(answer).__name__}"


# -- whether a value fits a space -----------------------------------------------------------------


def misfit(space: Space, value: Any, n_envs: int | None = None) -> str | None:
    """Why a value, or a batch of `n_envs`, does not fit an array space; None if it fits."""
    try:
        array = np.asarray(value)
    except ValueError as error:  # rows of different lengths
        return f"is not an array ({error})"
    if array.dtype.kind not in "fiub":
        return f"has dtype {array.dtype}, expected numbers"
    expected = _shape_of(space) if n_envs is None else (n_envs, *_shape_of(space))
    # A single observation may have axes of length 1 in front: (1, 3) for (3,).
    lead = max(0, array.ndim - len(expected)) if n_envs is None else 0
    if array.shape != (1,) * lead + expected:
        return f"has shape {array.shape}, expected {expected}"
    return _values_misfit(space, array.reshape(expected))


def reward_number(reward: Any) -> float | None:
    """A reward as a number; an array with one element counts as its number."""
    try:
        array = np.asarray(reward) if reward is not None else np.empty(0)
    except ValueError:  # rows of different lengths
        return None
    return float(array.item()) if array.size == 1 and array.dtype.kind in "fiub" else None


def _shape_of(space: Space) -> tuple[int, ...]:
    return tuple(space.shape or ())


def _values_misfit(space: Space, array: np.ndarray) -> str | None:
    if space.dtype is None or space.dtype.kind not in "iub":
        return None
    if array.dtype.kind == "f":
        fractions = array != np.rint(array)  # true for NaN too
        if fractions.any():
            return f"holds {array[fractions].flat[0]:g}, expected whole numbers ({space.dtype})"
    lowest, highest = whole_range(space)
    outside = (array < lowest) | (array > highest)
    if outside.any():
        ends = (np.broadcast_to(end, array.shape)[outside].flat[0] for end in (lowest, highest))
        return f"holds {array[outside].flat[0]:g}, expected {next(ends)} to {next(ends)}"
    return None


# -- adapted to arrays, and stepped one by one ----------------------------------------------------


class FlatObservations(gymnasium.ObservationWrapper[Any, Any, Any]):
    """A single env whose Dict or Tuple observations are a flat dict of arrays. Text is tokenised
    where a suite knows its words (MiniGrid's missions), else left out with a note."""

    def __init__(self, env: gymnasium.Env[Any, Any], env_id: str) -> None:
        super().__init__(env)
        flat = observations.flatten_space(_tokenised(env.observation_space), env_id)
        self.observation_space, self.notes = flat.space, flat.notes
        parts = observations.part_spaces(flat.space)
        self._names = list(parts)
        self._missions = [name for name, part in parts.items() if part is MISSION_SPACE]

    def observation(self, observation: Any) -> dict[str, Any]:
        parts = {name: observations.native_part(observation, name) for name in self._names}
        return parts | {name: encode_mission(parts[name]) for name in self._missions}


def _tokenised(space: Space) -> Space:
    """The space with the text that can be tokenised replaced by what it becomes."""
    if is_dict(space):
        return observations.space_of({key: _tokenised(part) for key, part in space.spaces.items()})
    if is_tuple(space):
        return gymnasium.spaces.Tuple([_tokenised(part) for part in space.spaces])
    return MISSION_SPACE if is_mission(space) else space


class ArrayActions(gymnasium.Wrapper[Any, Any, Any, Any]):
    """A single env with Dict or Tuple actions that takes them as one row of numbers."""

    def __init__(self, env: gymnasium.Env[Any, Any]) -> None:
        super().__init__(env)
        self.native = env.action_space
        shape = action_shape(self.native)
        self.action_space = gymnasium.spaces.Box(-np.inf, np.inf, shape, np.float64)

    def step(self, action: Any) -> Answer:
        return self.env.step(to_native(self.native, action))


def adapted(env: gymnasium.Env[Any, Any], env_id: str) -> gymnasium.Env[Any, Any]:
    """An env whose observations are arrays or flat dicts of arrays and whose actions are arrays."""
    if not is_array(env.observation_space):
        env = FlatObservations(env, env_id)
    return ArrayActions(env) if is_product(env.action_space) else env


class _Usual:
    """What a part of the observations of an env usually is. That is stored without a check."""

    def __init__(self, space: Space, is_index: bool) -> None:
        self.shape, self.dtype = _shape_of(space), space.dtype
        self.size = self.shape[0] if len(self.shape) == 1 else 0
        self._stored: Any = as_float32(space).dtype
        is_real = self.shape == () and self.dtype is not None and self.dtype.kind == "f"
        is_index = self.shape == () and is_index  # its range is checked for the batch
        numbers = (float, np.float64, np.float32) * is_real + (int, np.int64) * is_index
        self.numbers = frozenset(numbers)

    def holds(self, dtype: np.dtype[Any]) -> bool:
        """Whether all values of this dtype can be stored."""
        return np.can_cast(dtype, self._stored, "same_kind" if self._stored.kind == "f" else "safe")


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
        self._guards = [Guard(env, env_id, i) for i, env in enumerate(envs)]
        self._steps: list[Callable[[Any], Any]] = [guard.step for guard in self._guards]
        self._is_checked = False
        self._is_dict = is_dict(space)
        parts = observations.part_spaces(space)
        self._empty = {
            name: partial(np.empty, (self.num_envs, *(part.shape or ())), as_float32(part).dtype)
            for name, part in parts.items()
        }
        # Networks take these numbers as indices: one outside would fail there, without a name.
        ranges = {n: whole_range(part) for n, part in parts.items() if choices(part)}
        self._ranges = [(n, low, np.uint64(high - low)) for n, (low, high) in ranges.items()]
        self._is_over = [False] * self.num_envs
        self._usual = {name: _Usual(part, name in ranges) for name, part in parts.items()}
        self._first = _Usual(space, False) if self._is_dict else self._usual[""]
        self._compiled: CompiledSingles | None = None
        self._may_compile, self._has_begun = True, False
        spec = envs[0].spec
        self._is_faster = spec is not None and spec.id in C_IS_FASTEST

    @property
    def compiled(self) -> CompiledSingles | None:
        """The envs in C, if they are Gymnasium's classics and this process compiles, or they are
        faster than EnvPool's only in C."""
        if self._may_compile and self._has_begun and (is_preferred() or self._is_faster):
            self._may_compile = False
            self._compiled = compiled_singles(self.envs)
            if self._compiled is not None:
                self._compiled.take(self._is_over)
        return self._compiled

    def _new_obs(self) -> Any:
        if self._is_dict:
            return {name: empty() for name, empty in self._empty.items()}
        return self._empty[""]()

    def reset(self, *, seed: Any = None, options: dict[str, Any] | None = None) -> tuple[Obs, Info]:
        obs, info = self._new_obs(), Info()
        for i, guard in enumerate(self._guards):
            seen, given = guard.reset(seed=None if seed is None else seed[i], options=options)
            self._put(obs, i, seen)
            info = self._add_info(info, given, i)
            self._is_over[i] = False
        if self._compiled is not None:
            self._compiled.take(self._is_over)
        self._has_begun = True
        return obs, info

    def step(self, actions: np.ndarray) -> RawStep:
        """The usual answers are recognised here: calls of a guard are a tenth of a CartPole's
        step, these lines a hundredth."""
        if (compiled := self.compiled) is not None:
            return compiled(actions)
        obs, info = self._new_obs(), Info()
        rewards: list[SupportsFloat] = [0.0] * self.num_envs
        flags = np.zeros((2, self.num_envs), np.bool_)
        guards, is_over, usual, array = self._guards, self._is_over, self._first, np.ndarray
        dtype, shape, size = usual.dtype, usual.shape, usual.size
        are_floats, i, seen = True, 0, None
        try:
            for i, step in enumerate(self._steps):
                if is_over[i]:
                    seen, given = guards[i].reset()
                    is_over[i] = False
                else:
                    seen, reward, ended, cut, given = step(actions[i])
                    rewards[i] = reward
                    if reward.__class__ is not float:
                        are_floats = False
                    if ended is not False or cut is not False:
                        flags[0, i] = ended = guards[i].flag("terminated", ended)
                        flags[1, i] = cut = guards[i].flag("truncated", cut)
                        is_over[i] = ended or cut
                if (
                    seen.__class__ is array
                    and seen.dtype is dtype
                    and (len(seen) == size if size else seen.shape == shape)
                ):
                    obs[i] = seen
                else:
                    self._put(obs, i, seen)
                if given or given.__class__ is not dict:
                    info = self._add_info(info, guards[i].checked_info(given), i)
        except EnvError:
            raise
        except (Exception, SystemExit) as error:
            if seen is not None and not own_frames(error):  # it could not be stored
                guards[i].checked(seen)
            raise guards[i].raised("step()", error) from error
        if self._ranges:
            self._check_ranges(obs)
        if not self._is_checked:  # step the envs themselves from now on
            self._is_checked, self._steps = True, [env.step for env in self.envs]
        return obs, self._numbers(rewards, are_floats), flags[0], flags[1], info

    def _put(self, obs: Any, i: int, seen: Any) -> None:
        """Store what env i returned, if it fits the space."""
        if not self._is_dict:
            obs[i] = self._fitting(i, "", self._first, seen)
            return
        guard = self._guards[i]
        for name, usual in self._usual.items():
            obs[name][i] = self._fitting(i, name, usual, guard.part_of(seen, name))

    def _fitting(self, i: int, name: str, usual: "_Usual", seen: Any) -> Any:
        """A part of what env i returned, in the declared form."""
        kind = type(seen)
        if kind is np.ndarray and seen.dtype is usual.dtype and seen.shape == usual.shape:
            return seen
        if kind in usual.numbers:
            return seen
        fitting = self._guards[i].checked_part(name, seen)
        if kind is np.ndarray and usual.holds(seen.dtype):
            usual.dtype = seen.dtype  # what this env returns, though its space says otherwise
        return fitting

    def _check_ranges(self, obs: Any) -> None:
        for name, low, span in self._ranges:
            numbers = obs[name] if self._is_dict else obs
            # Read as unsigned a negative number is huge: one comparison checks both ends.
            fits = (numbers - low).astype(np.int64, copy=False).view(np.uint64) <= span
            if np.count_nonzero(fits) != fits.size:
                i = int(np.argwhere(~fits)[0][0])
                raise self._guards[i].misfit(numbers[i], name)

    def _numbers(self, rewards: list[Any], are_floats: bool) -> np.ndarray:
        """The rewards as float32[N]; an array with one element counts as its number."""
        if are_floats:
            return np.array(rewards, np.float32)
        try:
            numbers = np.array(rewards)
        except ValueError:  # some are numbers, others arrays
            numbers = np.empty(0)
        if numbers.shape == (self.num_envs,) and numbers.dtype.kind in "fiub":
            return numbers.astype(np.float32)
        for i, reward in enumerate(rewards):
            if reward_number(reward) is None:
                raise self._guards[i].no_reward(reward)
        return np.array([reward_number(reward) for reward in rewards], np.float32)

    def close_extras(self, **kwargs: Any) -> None:
        for guard in self._guards:
            guard.close()
