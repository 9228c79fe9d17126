"""Hindsight experience replay (`her`): learn again from transitions with goals that were reached.

data/hindsight.py chooses the goals and computes their rewards.
"""

from collections.abc import Callable
from typing import Any

from gymnasium_solver.algos.extensions.extension import Extension
from gymnasium_solver.data.hindsight import Hindsight, with_achieved_goals
from gymnasium_solver.errors import ConfigError
from gymnasium_solver.spaces.observations import GoalFunctions, check_goal_space


class HindsightReplay(Extension):
    name = "hindsight"
    bytes_per_transition = 16  # the bounds of its episode
    tracks_episodes = True
    needs_host = True
    goals: GoalFunctions | None = None

    def use_goals(self, goals: Callable[[], GoalFunctions]) -> None:
        check_goal_space(self.learner.observation_space, self.learner.config.env_id)
        self.goals = goals()

    def observed(self, obs: Any) -> Any:
        return with_achieved_goals(obs)

    @property
    def hindsight(self) -> Hindsight:
        if self.goals is None:
            raise ConfigError("her: the agent was given no goal functions (use_goals).")
        return Hindsight(self.learner.config.her, self.goals)
