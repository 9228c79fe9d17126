"""A vector env that plays a script, for numbers worked by hand, and envs with buttons."""

from typing import Any

import gymnasium
import numpy as np

from gymnasium_solver.envs.spec import EnvSpec
from gymnasium_solver.envs.vector import Engine, Info, RawStep

BUTTONS = "GsolveTest/Buttons-v0"


class Scripted(Engine):
    """obs[t] is what step t brings, obs[0] the reset's; `ends` are (step, env) that terminate,
    `cuts` those that are truncated. Reset rows must be in the script: a row after an end."""

    def __init__(
        self,
        obs: Any,
        *,
        env_id: str = "Scripted-v0",
        reward: Any = None,
        ends: tuple[tuple[int, int], ...] = (),
        cuts: tuple[tuple[int, int], ...] = (),
        infos: list[Info] | None = None,
        action: gymnasium.spaces.Space[Any] | None = None,
        observation: gymnasium.spaces.Space[Any] | None = None,
    ) -> None:
        self.script = np.asarray(obs)
        shape, dtype = self.script.shape[2:], self.script.dtype
        low, high = (0, 255) if dtype == np.uint8 else (-np.inf, np.inf)
        box = gymnasium.spaces.Box(low, high, shape, dtype.type)
        spec = EnvSpec(env_id, "own", "scripted", None, None, "test")
        n_envs = self.script.shape[1]
        space = action or gymnasium.spaces.Discrete(4)
        super().__init__(n_envs, observation or box, space, spec)
        self.rewards = np.ones(self.script.shape[:2], np.float32) if reward is None else reward
        self.ends, self.cuts, self.infos = ends, cuts, infos
        self.t = 0
        self.actions: list[np.ndarray] = []
        self.button_names: list[str] | None = None
        self.button_table: np.ndarray | None = None

    def _flags(self, marked: tuple[tuple[int, int], ...]) -> np.ndarray:
        return np.array([(self.t, row) in marked for row in range(self.n_envs)])

    def _reset(self, seed: int) -> tuple[np.ndarray, Info]:
        self.t = 0
        return self.script[0].copy(), self.infos[0] if self.infos else {}

    def _step(self, actions: np.ndarray, is_reset: np.ndarray, n_reset: int) -> RawStep:
        self.t += 1
        self.actions.append(actions)
        reward = np.where(is_reset, 0, np.asarray(self.rewards)[self.t]).astype(np.float32)
        info = self.infos[self.t] if self.infos else {}
        obs = self.script[self.t].copy()
        return obs, reward, self._flags(self.ends), self._flags(self.cuts), info


class ButtonsEnv(gymnasium.Env[np.ndarray, np.ndarray]):
    """Three buttons; obs = those held; pays 1 for button 2; an episode has 7 steps."""

    observation_space = gymnasium.spaces.Box(0.0, 1.0, (3,), np.float32)
    action_space: gymnasium.spaces.Space[Any] = gymnasium.spaces.MultiBinary(3)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        super().reset(seed=seed)
        self.steps = 0
        return np.zeros(3, np.float32), {}

    def step(self, action: np.ndarray) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        self.steps += 1
        held = np.asarray(action, np.float32)
        return held, float(held[2]), self.steps >= 7, False, {}


if BUTTONS not in gymnasium.registry:
    gymnasium.register(BUTTONS, lambda **_: ButtonsEnv(), disable_env_checker=True)
