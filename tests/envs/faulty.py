"""An environment with one fault at a time, single and vectorised, and what its own code raises."""

import multiprocessing
import sys
import time
from typing import Any

import gymnasium
import numpy as np
from gymnasium.vector import AutoresetMode

FAULTY = "GsolveTest/Faulty-v0"
ENDS = ("terminated", "truncated", "info")  # the last three values of an answer
SPACES: dict[str, gymnasium.spaces.Space[Any]] = {
    "box": gymnasium.spaces.Box(-1.0, 1.0, (3,), np.float32),
    "bytes": gymnasium.spaces.Box(0, 255, (3,), np.uint8),
    "scalar": gymnasium.spaces.Box(-1.0, 1.0, (), np.float32),
    "discrete": gymnasium.spaces.Discrete(4),
}


class SizeError(Exception):
    """An exception that cannot be pickled and made again: its constructor takes two arguments."""

    def __init__(self, size: int, why: str) -> None:
        super().__init__(f"size {size} is {why}")


def fail(where: str) -> None:
    raise SizeError(3, f"wrong in {where}")


def filled(value: Any, like: Any) -> Any:
    """The value; "nan" and "inf", as a config can give them, in the place of what is right."""
    return like + float(value) if isinstance(value, str) and value in ("nan", "inf") else value


class Faulty(gymnasium.Env[Any, int]):
    """Episodes of 4 steps. `fault` names what goes wrong; `at` is the step where it does."""

    action_space: gymnasium.spaces.Space[Any] = gymnasium.spaces.Discrete(2)

    def __init__(self, fault: str = "", at: int = 1, space: str = "box", value: Any = None) -> None:
        self.observation_space = SPACES[space]
        self.fault, self.at, self.value = fault, at, value
        self.steps = 0
        if fault == "init":
            fail("init")

    def reset(self, *, seed: Any = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.steps = 0
        if self.fault == "reset":
            fail("reset")
        if self.fault == "reset_value":
            return self.value, {}
        return self._obs(), {}

    def step(self, action: int) -> Any:
        self.steps += 1
        obs, reward, over = self._obs(), 1.0, self.steps >= 4
        if self.fault and self.steps == self.at:
            if self.fault == "step":
                fail("step")
            if self.fault == "hang":
                time.sleep(60)
            if self.fault == "old":
                return obs, reward, over, {}
            if self.fault == "exit":
                sys.exit(3)
            if self.fault == "long":
                raise ValueError("x" * 100_000)
            if self.fault == "answer":
                return self.value
            if self.fault in ENDS:
                ends = {"terminated": over, "truncated": False, "info": {}, self.fault: self.value}
                return obs, reward, *ends.values()
            obs = filled(self.value, obs) if self.fault == "obs" else obs
            reward = filled(self.value, reward) if self.fault == "reward" else reward
        return obs, reward, over, False, {}

    def close(self) -> None:
        if self.fault == "close":
            fail("close")
        if self.fault == "close_hangs" and multiprocessing.parent_process() is not None:
            time.sleep(60)

    def _obs(self) -> Any:
        space = self.observation_space
        return np.zeros(space.shape or (), space.dtype)


class FaultyVector(gymnasium.vector.VectorEnv[Any, Any, Any]):
    """The same, vectorised: `value` is what the whole batch returns."""

    metadata: dict[str, Any] = {"autoreset_mode": AutoresetMode.NEXT_STEP}

    def __init__(
        self, num_envs: int, fault: str = "", at: int = 1, space: str = "box", value: Any = None
    ) -> None:
        self.num_envs, self.fault, self.at, self.value = num_envs, fault, at, value
        self.single_observation_space = SPACES[space]
        self.single_action_space = Faulty.action_space
        self.steps = 0
        if fault == "init":
            fail("init")

    def reset(self, *, seed: Any = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        if self.fault == "reset":
            fail("reset")
        return self._obs(), {}

    def step(self, actions: np.ndarray) -> Any:
        self.steps += 1
        n = self.num_envs
        obs, reward, flags = self._obs(), np.ones(n, np.float32), np.zeros(n, np.bool_)
        if self.fault and self.steps == self.at:
            if self.fault == "step":
                fail("step")
            if self.fault == "exit":
                sys.exit(3)
            if self.fault == "answer":
                return self.value
            obs = filled(self.value, obs) if self.fault == "obs" else obs
            reward = filled(self.value, reward) if self.fault == "reward" else reward
            if self.fault in ENDS:
                ends = {"terminated": flags, "truncated": flags, "info": {}, self.fault: self.value}
                return obs, reward, *ends.values()
        return obs, reward, flags, flags.copy(), {}

    def close_extras(self, **kwargs: Any) -> None:
        if self.fault == "close":
            fail("close")

    def _obs(self) -> Any:
        space = self.single_observation_space
        return np.zeros((self.num_envs, *(space.shape or ())), space.dtype)


if FAULTY not in gymnasium.registry:
    gymnasium.register(
        FAULTY,
        entry_point=lambda **kwargs: Faulty(**kwargs),
        vector_entry_point=lambda **kwargs: FaultyVector(**kwargs),
        disable_env_checker=True,
    )
