"""Budgets, goals and the held-out test of a run, and its fraction done.

Validation scores select a checkpoint but do not judge it: the maximum of many noisy scores is
biased upwards. A run is solved only if the selected checkpoint reaches the threshold on test
episodes that were not used for the selection.
"""

import math
from collections.abc import Collection, Mapping
from typing import Any, NamedTuple

import numpy as np

from gymnasium_solver.config.schema import Config
from gymnasium_solver.envs.spec import EnvSpec
from gymnasium_solver.training.episodes import EPISODE_WINDOW, EpisodeStats
from gymnasium_solver.training.observer import EvalResult
from gymnasium_solver.training.progress import Progress

TEST_EPISODES, FEWEST_TEST_EPISODES = 100, 30
TEST_STEPS = 100_000  # if all episodes reach the time limit


class Goal(NamedTuple):
    """A mean return that ends the run when reached."""

    value: float
    reason: str  # the stop reason
    needs_test: bool  # goal >= threshold: an evaluation alone does not end the run


# The goals that can end a run with this stop reason.
_GOALS = {
    "solved": ("early_stop_on_eval_threshold", "early_stop_on_train_threshold"),
    "goal_reached_eval": ("early_stop_on_eval_threshold",),
    "goal_reached_train": ("early_stop_on_train_threshold",),
}


def goals_behind(config: Config, meta: Mapping[str, Any], given: Collection[str]) -> list[str]:
    """Goals that a finished run has already reached, by field name. A resume switches them off,
    since the run would stop again at its next evaluation. Fields in `given` keep their values, and
    a new threshold is a new goal."""
    if meta.get("status") != "finished" or "reward_threshold" in given:
        return []
    names = _GOALS.get(str(meta.get("stop_reason")), ())
    set_goals = [n for n in names if getattr(config, n) is not None]
    return [n for n in set_goals if getattr(config, n) is not False and n not in given]


def n_test_episodes(config: Config, spec: EnvSpec) -> int:
    """Number of episodes of a held-out test, from the config and the time limit only."""
    if config.test_episodes != "auto":
        return config.test_episodes
    limit = spec.max_episode_steps
    affordable = TEST_EPISODES if limit is None else TEST_STEPS // limit
    by_length = min(TEST_EPISODES, max(FEWEST_TEST_EPISODES, affordable))
    return max(by_length, config.eval_episodes)


class Plan:
    """`threshold` is the mean return that counts as solved, if the env defines one."""

    def __init__(self, config: Config, env_threshold: float | None):
        self.config = config
        own = None if config.tasks else config.reward_threshold  # of tasks: in env_threshold
        self.threshold = env_threshold if own is None else own
        rollout_steps = config.n_envs * config.n_steps
        by_steps = -(-(config.max_env_steps or 0) // rollout_steps)
        # An estimate: reset rows leave a little less than n_envs * n_steps env steps per rollout.
        self.planned_epochs = min(x for x in (by_steps, config.max_epochs) if x)
        self.total_steps = config.max_env_steps or self.planned_epochs * rollout_steps
        self.eval_goal = self._goal("eval", config.early_stop_on_eval_threshold)
        self.train_goal = self._goal("train", config.early_stop_on_train_threshold)

    def _goal(self, stage: str, setting: bool | float | None) -> Goal | None:
        """true: the solved threshold; a number: that return; false or null: no goal."""
        if setting is None or setting is False:
            return None
        value, threshold = self.threshold if setting is True else float(setting), self.threshold
        if value is None:
            return None
        reason = "solved" if value == threshold else f"goal_reached_{stage}"
        return Goal(value, reason, threshold is not None and value >= threshold)

    # -- budgets ----------------------------------------------------------------------------

    def share_done(self, p: Progress) -> float:
        by_epochs = p.epoch / self.config.max_epochs if self.config.max_epochs else 0.0
        return min(1.0, max(p.env_steps / self.total_steps, by_epochs))

    def steps_left(self, p: Progress) -> int | None:
        limit = self.config.max_env_steps
        return None if limit is None else limit - p.env_steps

    def steps_spent(self, p: Progress) -> bool:
        limit = self.config.max_env_steps
        return limit is not None and p.env_steps >= limit

    def budget_spent(self, p: Progress) -> str | None:
        """The budget that is used up, if any."""
        config = self.config
        if self.steps_spent(p):
            return "max_env_steps"
        if config.max_epochs is not None and p.epoch >= config.max_epochs:
            return "max_epochs"
        return None

    # -- goals ------------------------------------------------------------------------------

    @property
    def evaluates(self) -> bool:
        return bool(self.config.eval_freq_epochs or self.config.eval_freq_steps)

    @property
    def tests(self) -> bool:
        """Whether the run ends with a held-out test."""
        return self.evaluates or self.threshold is not None

    def train_goal_reached(self, p: Progress, collector: EpisodeStats) -> Goal | None:
        """The training goal, if the last 100 episodes reach it; after a failed test, only new
        episodes count."""
        goal, returns = self.train_goal, collector.returns
        if goal is None or len(returns) < EPISODE_WINDOW:
            return None
        if goal.needs_test and collector.n_episodes < p.next_train_test:
            return None
        return goal if np.mean(returns) >= goal.value else None

    def eval_goal_reached(self, result: EvalResult | None) -> Goal | None:
        goal = self.eval_goal
        if goal is None or result is None:
            return None
        required = goal.value
        if result.tasks and goal.value == self.threshold:
            required = self.required_mean(result, 0)
        return goal if result.mean >= required else None

    # -- the verdict ------------------------------------------------------------------------

    def required_mean(self, result: EvalResult, n_failed: int) -> float:
        """Mean that a test during training must reach after `n_failed` failed tests.

        The first test must reach the threshold. With repeated tests one would eventually pass by
        luck, so test k must exceed the threshold by sqrt(2 ln k) standard errors, about the
        expected maximum of k tests: 1.2 for the second, 2.1 for the tenth.

        Of several tasks each must do so; what is missing in the worst one is added to the mean.
        """
        assert self.threshold is not None
        surplus = math.sqrt(2 * math.log(n_failed + 1))
        if not result.tasks:
            return self.threshold + surplus * (result.stderr or 0.0)
        missing = [
            score["threshold"] + surplus * (score["stderr"] or 0.0) - score["mean"]
            for score in result.tasks.values()
        ]
        return result.mean + max(missing)

    def solved(self, test: EvalResult | None) -> bool | None:
        """None if there is no threshold; False without a test."""
        if self.threshold is None:
            return None
        return test is not None and test.mean >= self.required_mean(test, 0)
