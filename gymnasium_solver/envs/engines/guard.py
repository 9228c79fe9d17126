"""A single environment whose mistakes are explained.

Exceptions of its own code, and answers that do not fit its spaces, become an EnvError that names
the environment. `async` keeps the guard around each env; `sync` drops it for steps once an env has
answered well (direct.py), and asks it for an explanation when something fails later.

    misfit(Box(0, 255, (3,), uint8), [0.5, 0, 0])     # "holds 0.5, expected whole numbers (uint8)"

Only what would be wrong once it is stored counts: another number of values, values that the dtype
cannot hold, numbers outside of a discrete space. Bounds of real numbers do not: many environments
exceed them a little, and networks read such values.
"""

import warnings
from typing import Any

import gymnasium
import numpy as np

from gymnasium_solver.envs.env_bugs import env_bug, one_line, own_frames
from gymnasium_solver.errors import EnvError
from gymnasium_solver.spaces.observations import part_spaces
from gymnasium_solver.spaces.space_types import Space, is_box, is_dict, is_discrete, whole_range

Answer = tuple[Any, float, bool, bool, dict[str, Any]]


class Guard(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Checks each answer of one adapted env (direct.py)."""

    def __init__(self, env: gymnasium.Env[Any, Any], env_id: str, index: int) -> None:
        super().__init__(env)
        self._name = f"{env_id}: env {index}"
        self._space = env.observation_space
        self._parts = part_spaces(self._space)
        self._is_dict = is_dict(self._space)
        self.is_exact = True
        """Whether all answers so far could be stored as they are."""

    def reset(self, *, seed: Any = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        try:
            answer = self.env.reset(seed=seed, options=options)
        except EnvError:
            raise
        except Exception as error:
            raise env_bug(f"{self._name}: reset() raised", error) from error
        if not isinstance(answer, tuple) or len(answer) != 2:
            raise self._wrong(f"reset() returned {_count(answer)}, expected 2: observation, info")
        return self._checked(answer[0]), answer[1]

    def step(self, action: Any) -> Answer:
        try:
            answer = self.env.step(action)
        except EnvError:
            raise
        except Exception as error:
            raise env_bug(f"{self._name}: step() raised", error) from error
        return self.checked_answer(answer)

    def close(self) -> None:
        try:
            self.env.close()
        except Exception as error:  # what was learnt is worth more than an orderly end
            warnings.warn(f"{self._name}: close() raised {one_line(error)}", stacklevel=2)

    def checked_answer(self, answer: Any) -> Answer:
        """What step() returned, in the declared form; EnvError if it has none."""
        if not isinstance(answer, tuple) or len(answer) != 5:
            raise self._wrong(
                f"step() returned {_count(answer)}, expected 5: observation, reward, terminated, "
                "truncated, info"
            )
        seen, reward, terminated, truncated, info = answer
        number = reward_number(reward)
        if number is None:
            raise self.no_reward(reward)
        for name, flag in (("terminated", terminated), ("truncated", truncated)):
            if reward_number(flag) is None:
                raise self._wrong(f"returned {name}={str(flag)[:60]}, expected true or false")
        return self._checked(seen), number, bool(terminated), bool(truncated), info

    def explain(self, answer: Any, error: Exception) -> EnvError:
        """Why a step without checks failed: in the env's own code, or by what it returned."""
        if not own_frames(error):
            try:
                self.checked_answer(answer)
            except EnvError as wrong:
                return wrong
        return env_bug(f"{self._name}: step() raised", error)

    def no_reward(self, reward: Any) -> EnvError:
        return self._wrong(f"returned the reward {reward!r:.60}, expected a number")

    def misfit(self, value: Any, part: str = "") -> EnvError:
        """What is wrong with a part of an observation."""
        problem = misfit(self._parts[part], value)
        return self._misfit(value, problem or "cannot be read", part)

    def _is_usual(self, seen: Any) -> bool:
        """The usual cases, at a tenth of the cost of a check: small envs are reset every few
        steps."""
        space = self._space
        if isinstance(seen, np.ndarray):
            return is_box(space) and seen.shape == space.shape and seen.dtype == space.dtype
        if isinstance(seen, int | np.integer) and is_discrete(space):
            return bool(0 <= seen - space.start < space.n)
        return False

    def _checked(self, seen: Any) -> Any:
        if self._is_usual(seen):
            return seen
        if self._is_dict and not isinstance(seen, dict):
            raise self._misfit(seen, "is not a dict")
        obs = {}
        for name, space in self._parts.items():
            part = seen.get(name) if self._is_dict else seen
            if problem := misfit(space, part):
                raise self._misfit(part, problem, name)
            if not fits_exactly(space, part):
                self.is_exact = False
                part = shaped(space, part)
            obs[name] = part
        return obs if self._is_dict else obs[""]

    def _misfit(self, value: Any, problem: str, part: str = "") -> EnvError:
        what = f"an observation part {part!r}" if part else "an observation"
        space = self._parts[part] if part else self._space
        given = " ".join(str(value).split())[:100]
        return self._wrong(f"returned {what} that does not fit {space}: it {problem} ({given})")

    def _wrong(self, problem: str) -> EnvError:
        return EnvError(f"{self._name} {problem}.")


def _count(answer: Any) -> str:
    return f"{len(answer)} values" if isinstance(answer, tuple) else f"a {type(answer).__name__}"


# -- whether a value fits a space ----------------------------------------------------------------


def misfit(space: Space, value: Any, n_envs: int | None = None) -> str | None:
    """Why a value, or a batch of `n_envs`, does not fit an array space; None if it fits."""
    try:
        array = np.asarray(value)
    except ValueError as error:  # rows of different lengths
        return f"is not an array ({error})"
    if array.dtype.kind not in "fiub":
        return f"has dtype {array.dtype}, expected numbers"
    expected = _shape(space) if n_envs is None else (n_envs, *_shape(space))
    # A single observation may have axes of length 1 in front: (1, 3) for (3,).
    lead = max(0, array.ndim - len(expected)) if n_envs is None else 0
    if array.shape != (1,) * lead + expected:
        return f"has shape {array.shape}, expected {expected}"
    return _values_misfit(space, array.reshape(expected))


def fits_exactly(space: Space, value: Any) -> bool:
    """Whether a value that fits can be stored as it is."""
    return not isinstance(value, list) and np.shape(value) == _shape(space)


def shaped(space: Space, value: Any) -> np.ndarray:
    """A value that fits, with the shape of the space."""
    return np.asarray(value).reshape(_shape(space))


def reward_number(reward: Any) -> float | None:
    """A reward as a number; an array with one element counts as its number."""
    array = np.asarray(reward) if reward is not None else np.empty(0)
    return float(array.item()) if array.size == 1 and array.dtype.kind in "fiub" else None


def _shape(space: Space) -> tuple[int, ...]:
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
