"""The wrappers that an engine carries out itself: their options and their documentation.

`lower` (this package's `__init__`) reads them, make.py hands them to the engine. Frames are skipped
by `FrameSkipEnv`, around each env of Gymnasium's sync and async engines, or by EnvPool's
(`SkippingPool`). In both an env whose episode ends within a skip stops there: its row shows the
true final observation and the rewards up to it, and no frame of the next episode is touched.
"""

from typing import Any, SupportsFloat

import gymnasium
import numpy as np

from gymnasium_solver.envs.wrappers.options import require

_STREAM = 0x5C1B  # keeps the draws of skips apart from those of the env, which has the same seed


class TimeLimit:
    """Cuts an episode (truncated) after `max_episode_steps`; the smallest of all limits holds. With
    frames skipped, the limit is in frames."""

    def __init__(self, env: Any, max_episode_steps: int) -> None:
        wrong = f"max_episode_steps must be an int >= 1, got {max_episode_steps!r}"
        require(max_episode_steps >= 1, "TimeLimit", wrong)
        self.max_episode_steps = max_episode_steps


class FrameSkip:
    """Holds an action for `skip` frames and adds up their rewards; `[low, high]` draws a number of
    frames for each step, both ends included. One env step is one action, however many frames."""

    def __init__(self, env: Any, skip: int | list[int]) -> None:
        ends = [skip, skip] if isinstance(skip, int) else list(skip)
        wrong = f"skip must be a whole number >= 1 or [low, high] of such, got {skip!r}"
        require(len(ends) == 2 and 1 <= ends[0] <= ends[1], "FrameSkipWrapper", wrong)
        self.range: tuple[int, int] = (ends[0], ends[1])


def skip_generator(seed: int) -> np.random.Generator:
    """Draws the lengths of stochastic skips: from the seed of a reset alone."""
    return np.random.default_rng([seed, _STREAM])


class FrameSkipEnv(gymnasium.Wrapper[Any, Any, Any, Any]):
    """FrameSkip around one env of Gymnasium."""

    def __init__(self, env: gymnasium.Env[Any, Any], low: int, high: int) -> None:
        super().__init__(env)
        self._low, self._high = low, high
        self._rng = skip_generator(0)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        if seed is not None:
            self._rng = skip_generator(seed)
        return self.env.reset(seed=seed, options=options)

    def step(self, action: Any) -> tuple[Any, SupportsFloat, bool, bool, dict[str, Any]]:
        total = 0.0
        is_fixed = self._low == self._high
        n_frames = self._low if is_fixed else int(self._rng.integers(self._low, self._high + 1))
        for _ in range(n_frames):
            obs, reward, terminated, truncated, info = self.env.step(action)
            total += float(reward)
            if terminated or truncated:
                break
        return obs, total, terminated, truncated, info
