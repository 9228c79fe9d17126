"""Tiny runs in a folder of their own, and small environments."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest

import gymnasium_solver as gs
from tests.small import RUN

SMALL = RUN | {"seed": 1, "max_epochs": 2, "max_episode_steps": 20}

MakeRun = Callable[..., gs.Run]


@pytest.fixture(autouse=True)
def _own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("GSOLVE_RUNS", raising=False)


@pytest.fixture
def make_run() -> MakeRun:
    """make_run(target="CartPole-v1:ppo", **fields): trained for two epochs."""

    def make(target: Any = "CartPole-v1:ppo", **fields: Any) -> gs.Run:
        return gs.train(target, **{**SMALL, **fields})

    return make


class Walk(gymnasium.Env[Any, Any]):
    """Dict observations, Dict actions; an episode of `length` steps whose rewards depend on the
    seed."""

    observation_space = gymnasium.spaces.Dict(
        {
            "place": gymnasium.spaces.Box(-1, 1, (2,), np.float32),
            "inner": gymnasium.spaces.Tuple(
                [gymnasium.spaces.Discrete(3), gymnasium.spaces.MultiBinary(2)]
            ),
        }
    )
    action_space = gymnasium.spaces.Dict(
        {"turn": gymnasium.spaces.Discrete(2), "go": gymnasium.spaces.Box(-1, 1, (1,), np.float32)}
    )
    made = 0

    def __init__(self, length: int = 5) -> None:
        type(self).made += 1
        self.length, self.at = length, 0

    def _look(self) -> Any:
        noise = self.np_random.uniform(-1, 1, 2).astype(np.float32)
        return {"place": noise, "inner": (np.int64(self.at % 3), np.array([0, 1], np.int8))}

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.at = 0
        return self._look(), {}

    def step(self, action: Any) -> Any:
        assert self.action_space.contains(action)
        self.at += 1
        reward = float(action["go"][0]) + float(self.np_random.normal())
        return self._look(), reward, self.at >= self.length, False, {}
