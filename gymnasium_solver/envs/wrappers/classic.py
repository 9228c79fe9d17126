"""Reward shapers for CartPole and MountainCar."""

from typing import Any, Literal

import numpy as np

from gymnasium_solver.envs.vector import Step, VectorEnv
from gymnasium_solver.envs.wrappers.parameters import require
from gymnasium_solver.envs.wrappers.shaping import Parts, PotentialShaper, RewardShaper
from gymnasium_solver.errors import EnvError

_CAR_LOW, _CAR_HIGH, _CAR_GOAL, _CAR_SPEED = -1.2, 0.6, 0.5, 0.07


class CartPoleRewardShaper(PotentialShaper):
    """CartPole: rewards bringing the pole upright and the cart to the middle. Parts: position,
    angle.

    Potential-based: adds gamma * P(next obs) - P(obs), where P = angle_reward_scale * (1 - |angle|
    / 12°) + position_reward_scale * (1 - |position| / 2.4), and P = 0 once the episode has
    terminated. It speeds up learning without changing which policy is best. `clip_potential` keeps
    both terms >= 0. `gamma` defaults to the run's discount.
    """

    names = ("position", "angle")

    def __init__(
        self,
        env: VectorEnv,
        angle_reward_scale: float = 1.0,
        position_reward_scale: float = 0.25,
        clip_potential: bool = True,
        gamma: float = 0.99,
    ) -> None:
        super().__init__(env, gamma)
        _made_for(env, "CartPoleV1_RewardShaper", "CartPole", (4,))
        self._scales = np.array([position_reward_scale, angle_reward_scale], np.float32)
        self._clip = clip_potential

    def potentials(self, obs: np.ndarray) -> np.ndarray:
        # Columns 0 and 2: cart position, pole angle; over the values at which the episode ends.
        closeness = 1.0 - np.abs(obs[:, ::2]) / np.array([2.4, np.deg2rad(12)], np.float32)
        if self._clip:
            closeness = np.maximum(closeness, 0.0)
        potentials: np.ndarray = closeness * self._scales
        return potentials


class MountainCarRewardShaper(PotentialShaper):
    """MountainCar: rewards position, velocity and height gained since the last observation. Parts:
    position, velocity, height.

    Potential-based: adds gamma * P(next obs) - P(obs), where P = position_reward_scale * (x - 0.5)
    / 1.7 + velocity_reward_scale * v / 0.14 + height_reward_scale * (sin(3 x) - sin(1.5)) / 2. P is
    about 0 at the goal (x = 0.5) and exactly 0 once the episode has terminated there. `gamma`
    defaults to the run's discount.
    """

    names = ("position", "velocity", "height")

    def __init__(
        self,
        env: VectorEnv,
        position_reward_scale: float = 100.0,
        velocity_reward_scale: float = 10.0,
        height_reward_scale: float = 50.0,
        gamma: float = 0.99,
    ) -> None:
        super().__init__(env, gamma)
        _made_for(env, "MountainCarV0_RewardShaper", "MountainCar", (2,))
        scales = [position_reward_scale, velocity_reward_scale, height_reward_scale]
        self._scales = np.array(scales, np.float32)

    def potentials(self, obs: np.ndarray) -> np.ndarray:
        x, v = obs[:, 0], obs[:, 1]
        position = (x - _CAR_GOAL) / (_CAR_GOAL - _CAR_LOW)
        velocity = v / (2 * _CAR_SPEED)
        height = (np.sin(3 * x) - np.sin(3 * _CAR_GOAL)) / 2
        return np.stack([position, velocity, height], axis=1).astype(np.float32) * self._scales


class MountainCarStateCountBonus(RewardShaper):
    """MountainCar: rewards rarely visited states. Part: exploration_bonus.

    Position and velocity are sorted into bins; each env counts its own visits n of each bin, this
    one not included and at least `min_count`, over its episodes. The bonus is bonus_scale over
    sqrt(n) (`count`), n (`inverse`) or ln(n + 1) (`log`). Counts start again where the run resets
    its environments from a seed (`env_boundary_steps`), which an exact resume needs.
    """

    def __init__(
        self,
        env: VectorEnv,
        position_bins: int = 50,
        velocity_bins: int = 50,
        bonus_scale: float = 1.0,
        bonus_type: Literal["count", "inverse", "log"] = "count",
        min_count: int = 1,
    ) -> None:
        super().__init__(env)
        name = "MountainCarV0_StateCountBonus"
        _made_for(env, name, "MountainCar", (2,))
        counts = {"position_bins": position_bins, "velocity_bins": velocity_bins}
        for key, value in {**counts, "min_count": min_count}.items():
            require(value >= 1, name, f"{key} must be >= 1, got {value}")
        self._bins = np.array([position_bins, velocity_bins])
        self._scale, self._type, self._least = bonus_scale, bonus_type, min_count
        self._rows = np.arange(env.n_envs)

    def open(self, obs: np.ndarray) -> None:
        self._counts = np.zeros((self.n_envs, *self._bins), np.int64)

    def parts(self, actions: np.ndarray, step: Step) -> Parts:
        low, span = np.array([_CAR_LOW, -_CAR_SPEED]), np.array([_CAR_HIGH - _CAR_LOW, 0.14])
        share = (step.obs - low) / span
        position, velocity = np.clip((share * self._bins).astype(np.int64), 0, self._bins - 1).T
        n = np.maximum(self._counts[self._rows, position, velocity], self._least)
        # A reset row is not a step: it gets no bonus and is not counted.
        self._counts[self._rows, position, velocity] += ~step.is_reset
        over = np.sqrt(n) if self._type == "count" else np.log1p(n) if self._type == "log" else n
        return {"exploration_bonus": (self._scale / over).astype(np.float32)}


def _made_for(env: VectorEnv, wrapper: str, family: str, shape: tuple[int, ...]) -> None:
    if not env.spec.env_id.rpartition("/")[2].startswith(f"{family}-"):
        raise EnvError(f"Wrapper {wrapper} is for {family}, not {env.spec.env_id}.")
    given: Any = env.observation_space.shape
    if given != shape:
        raise EnvError(
            f"Wrapper {wrapper} reads observations of shape {shape}, here they are {given}. Put it "
            "before the wrappers that change observations."
        )
