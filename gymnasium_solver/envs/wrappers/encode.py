"""Wrappers that encode, scale and clip observations."""

from abc import abstractmethod
from typing import Any, Literal

import gymnasium
import numpy as np

from gymnasium_solver.envs.vector import Step, VectorEnv, VectorWrapper
from gymnasium_solver.envs.wrappers.parameters import require

PerComponent = float | list[float]


class ObservationMap(VectorWrapper):
    """Base of wrappers that map each observation by itself."""

    @abstractmethod
    def _map(self, obs: np.ndarray) -> np.ndarray:
        """A fresh array for observations (N, ...)."""

    def reset(self, seed: int) -> np.ndarray:
        return self._map(self.env.reset(seed))

    def step(self, actions: Any) -> Step:
        step = self.env.step(actions)
        return step._replace(obs=self._map(step.obs))


class DiscreteEncoder(ObservationMap):
    """Turns a Discrete observation into a float32 vector, so that an MLP can read it: `array`, the
    number itself; `binary`, its bits, highest first; `onehot`, one place for each value."""

    def __init__(
        self, env: VectorEnv, encoding: Literal["array", "binary", "onehot"] = "onehot"
    ) -> None:
        super().__init__(env)
        space = env.observation_space
        is_discrete = isinstance(space, gymnasium.spaces.Discrete)
        wrong = f"needs Discrete observations; {env.spec.env_id} has {space}"
        require(is_discrete, "DiscreteEncoder", wrong)
        self._start = int(getattr(space, "start", 0))
        self._table = _table(int(getattr(space, "n", 1)), self._start, encoding)
        low, high = self._table.min(axis=0), self._table.max(axis=0)
        self.observation_space = gymnasium.spaces.Box(low, high, dtype=np.float32)

    def _map(self, obs: np.ndarray) -> np.ndarray:
        encoded: np.ndarray = self._table[obs - self._start]
        return encoded


def _table(n: int, start: int, encoding: str) -> np.ndarray:
    """Row i is the encoding of the i-th value."""
    values = np.arange(n)
    if encoding == "onehot":
        return np.eye(n, dtype=np.float32)
    if encoding == "array":
        return (values + start)[:, None].astype(np.float32)
    bits = max(1, int(n - 1).bit_length())
    return ((values[:, None] >> np.arange(bits)[::-1]) & 1).astype(np.float32)


class ObservationScale(ObservationMap):
    """obs * scale + shift, in float32; a number, or one for each component (of the last axis)."""

    def __init__(
        self, env: VectorEnv, scale: PerComponent = 1.0, shift: PerComponent = 0.0
    ) -> None:
        super().__init__(env)
        space = _box(env, "ObservationScale")
        self._scale = _components("ObservationScale", "scale", scale, space)
        self._shift = _components("ObservationScale", "shift", shift, space)
        self.observation_space = _affine(space, self._scale, self._shift)

    def _map(self, obs: np.ndarray) -> np.ndarray:
        mapped: np.ndarray = obs.astype(np.float32) * self._scale + self._shift
        return mapped


class ObservationRescale(ObservationMap):
    """Maps bounded observations from the bounds of their space to [low, high], in float32."""

    def __init__(self, env: VectorEnv, low: float = -1.0, high: float = 1.0) -> None:
        super().__init__(env)
        name = "ObservationRescale"
        space = _box(env, name)
        require(low < high, name, f"low {low} must be below high {high}")
        first, last = (bound.astype(np.float64) for bound in (space.low, space.high))
        # Huge bounds stand for none: scaled by them, what is seen would be all but 0.
        is_bounded = bool((np.maximum(np.abs(first), np.abs(last)) < 1e30).all())
        wrong = f"needs bounded observations; {env.spec.env_id} has {space}. Use ObservationScale"
        require(is_bounded and bool((first < last).all()), name, wrong)
        scale = (high - low) / (last - first)
        self._scale = scale.astype(np.float32)
        self._shift = (low - first * scale).astype(np.float32)
        self._low, self._high = np.float32(low), np.float32(high)
        self.observation_space = gymnasium.spaces.Box(low, high, space.shape, np.float32)

    def _map(self, obs: np.ndarray) -> np.ndarray:
        mapped = obs.astype(np.float32) * self._scale + self._shift
        return np.minimum(np.maximum(mapped, self._low), self._high)  # rounding may step outside


class ObservationClip(ObservationMap):
    """Clips observations to [low, high]; numbers, or one for each component (of the last axis)."""

    def __init__(
        self, env: VectorEnv, low: PerComponent = -10.0, high: PerComponent = 10.0
    ) -> None:
        super().__init__(env)
        space = _box(env, "ObservationClip")
        lows = _components("ObservationClip", "low", low, space).astype(space.dtype)
        highs = _components("ObservationClip", "high", high, space).astype(space.dtype)
        require(bool((lows <= highs).all()), "ObservationClip", f"low {low} is above high {high}")
        self._low, self._high = lows, highs
        first, last = self._map(space.low), self._map(space.high)
        self.observation_space = gymnasium.spaces.Box(first, last, dtype=space.dtype.type)

    def _map(self, obs: np.ndarray) -> np.ndarray:
        return np.minimum(np.maximum(obs, self._low), self._high)


def _box(env: VectorEnv, name: str) -> gymnasium.spaces.Box:
    space = env.observation_space
    is_box = isinstance(space, gymnasium.spaces.Box)
    require(is_box, name, f"needs Box observations; {env.spec.env_id} has {space}")
    assert isinstance(space, gymnasium.spaces.Box)
    return space


def _components(
    name: str, key: str, value: PerComponent, space: gymnasium.spaces.Box
) -> np.ndarray:
    array = np.asarray(value, np.float32)
    wrong = f"{key} has {array.size} numbers, but an observation has shape {space.shape}"
    require(array.ndim == 0 or space.shape[-1:] == array.shape, name, wrong)
    return array


def _affine(space: gymnasium.spaces.Box, scale: np.ndarray, shift: np.ndarray) -> Any:
    with np.errstate(over="ignore", invalid="ignore"):
        ends = [bound.astype(np.float32) * scale + shift for bound in (space.low, space.high)]
    # inf * 0 is no number: such a component may be anything that its shift says.
    ends = [np.where(np.isnan(end), shift, end) for end in ends]
    low, high = np.minimum(*ends), np.maximum(*ends)
    return gymnasium.spaces.Box(low, high, dtype=np.float32)
