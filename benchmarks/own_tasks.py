"""Three environments as a user writes them, each with a trait that defaults must cope with.

    Grid-v0    walk to a goal; a Dict of integer coordinates, a small reward at the end
    Board-v0   catch falling balls; a 6 x 6 board of uint8 zeros and ones, not an image
    Huge-v0    steer to the origin; observations of a million, rewards of ten thousand, no bounds

They need only Gymnasium and NumPy, so that every library can make them:
`gymnasium.make("benchmarks.own_tasks:Grid-v0")`.
"""

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

GRID = 8  # cells on a side
BOARD, N_BALLS = 6, 6
MOVES = np.array([[1, 0], [0, 1], [-1, 0], [0, -1]])


class Grid(gymnasium.Env[Any, Any]):
    """Each step costs 0.01 and the goal pays 1. The best mean return is 0.96, waiting has -1.2."""

    action_space = spaces.Discrete(4)
    observation_space = spaces.Dict(
        {name: spaces.Box(0, GRID - 1, (2,), np.int64) for name in ("agent", "goal")}
    )

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.agent = self.goal = self._draw()
        while np.array_equal(self.agent, self.goal):
            self.goal = self._draw()
        return self._obs(), {}

    def step(self, action: int) -> Any:
        self.agent = np.clip(self.agent + MOVES[int(action)], 0, GRID - 1)
        is_there = bool(np.array_equal(self.agent, self.goal))
        return self._obs(), 1.0 if is_there else -0.01, is_there, False, {}

    def _draw(self) -> np.ndarray:
        return self.np_random.integers(0, GRID, 2)

    def _obs(self) -> dict[str, np.ndarray]:
        return {"agent": self.agent.copy(), "goal": self.goal.copy()}


class Board(gymnasium.Env[Any, Any]):
    """Six balls fall one after the other; a ball caught pays 1, a ball missed costs 1."""

    action_space = spaces.Discrete(3)  # left, stay, right
    observation_space = spaces.Box(0, 1, (BOARD, BOARD), np.uint8)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.paddle, self.n_fallen = int(self.np_random.integers(BOARD)), 0
        self._drop()
        return self._obs(), {}

    def step(self, action: int) -> Any:
        self.paddle = int(np.clip(self.paddle + int(action) - 1, 0, BOARD - 1))
        self.row += 1
        reward = 0.0
        if self.row == BOARD - 1:
            reward = 1.0 if self.column == self.paddle else -1.0
            self.n_fallen += 1
            self._drop()
        return self._obs(), reward, self.n_fallen == N_BALLS, False, {}

    def _drop(self) -> None:
        self.row, self.column = 0, int(self.np_random.integers(BOARD))

    def _obs(self) -> np.ndarray:
        board = np.zeros((BOARD, BOARD), np.uint8)
        board[self.row, self.column] = 1
        board[-1, self.paddle] = 1
        return board


class Huge(gymnasium.Env[Any, Any]):
    """A point with inertia, in metres: it starts up to 1,000 km from the origin and pays a
    hundredth of its distance at every step."""

    action_space = spaces.Box(-1.0, 1.0, (2,), np.float32)
    observation_space = spaces.Box(-np.inf, np.inf, (4,), np.float32)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.place, self.speed = self.np_random.uniform(-1e6, 1e6, 2), np.zeros(2)
        return self._obs(), {}

    def step(self, action: np.ndarray) -> Any:
        self.speed = 0.5 * self.speed + 5e4 * np.clip(action, -1.0, 1.0)
        self.place = np.clip(self.place + self.speed, -2e6, 2e6)
        return self._obs(), -0.01 * float(np.linalg.norm(self.place)), False, False, {}

    def _obs(self) -> np.ndarray:
        return np.concatenate([self.place, self.speed]).astype(np.float32)


for _name, _class, _limit in (("Grid", Grid, 120), ("Board", Board, None), ("Huge", Huge, 100)):
    if f"{_name}-v0" not in gymnasium.registry:
        entry_point: Any = _class
        gymnasium.register(f"{_name}-v0", entry_point, max_episode_steps=_limit)
