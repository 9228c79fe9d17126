"""An extension of a learner, and what it is given after an update."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np
from torch import Tensor

from gymnasium_solver.data.demonstrations import Demonstrations
from gymnasium_solver.data.hindsight import Hindsight
from gymnasium_solver.data.rollout import Rollout
from gymnasium_solver.spaces.observations import GoalFunctions

if TYPE_CHECKING:
    from gymnasium_solver.algos.learner import Learner


class Learnt(NamedTuple):
    """What an update of an actor and a critic has learnt from."""

    rollout: Rollout
    reward: np.ndarray  # [T, N]: of the environment, scaled as the critic learns it
    values: np.ndarray  # [T + 1, N]: before the update
    lr: float


class Extension:
    name: ClassVar[str]  # its file and key in a checkpoint
    bytes_per_transition = 0  # memory that it needs in a replay buffer
    gives_bonus = False  # it adds rewards, which a replay buffer stores in a column of their own
    tracks_episodes = False  # a replay buffer keeps track of episodes for it
    needs_host = False  # its batches are made on the host, not from a copy of the replay on a GPU
    demonstrations: Demonstrations | None = None  # what is learnt from in place of the environment

    def __init__(self, learner: "Learner"):
        self.learner = learner

    def attach(self) -> None:
        """Add descents; called once the learner has its networks."""

    def use_goals(self, goals: Callable[[], GoalFunctions]) -> None:
        """Take the environment's goal functions, if it needs them."""

    def start_training(self) -> list[str]:
        """Validate the setup before training; returns notes for the user."""
        return []

    def follow(self, env_steps: int, total_steps: int) -> None:
        """Called before each rollout, once `learner.config` has the values of this clock."""

    def bonus(self, rollout: Rollout) -> np.ndarray | None:
        """Rewards [T, N] to add to the environment's, on a scale of their own."""
        return None

    def observed(self, obs: Any) -> Any:
        """The observations that the normaliser of a replay learner is updated with."""
        return obs

    @property
    def hindsight(self) -> Hindsight | None:
        """Replaces goals in batches of the replay."""
        return None

    def learn(self, learnt: Learnt) -> dict[str, float]:
        """Gradient steps of its own after those of an update; returns metrics."""
        return {}

    def report(self, rollout: Rollout) -> dict[str, float]:
        """Metrics after the update from a rollout."""
        return {}

    def state(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """Tensors, and the remaining state as JSON."""
        return {}, {}

    def load_state(self, tensors: dict[str, Any], extra: dict[str, Any]) -> None:
        """Load what `state` returned."""
