"""How long a run goes and what it aims at: budgets, goals, and the share that is done."""

import numpy as np

from gymnasium_solver.config.schema import Config
from gymnasium_solver.training.collect import EPISODE_WINDOW, Collector
from gymnasium_solver.training.observer import EvalResult
from gymnasium_solver.training.progress import Progress


class Plan:
    """`threshold` is the mean return that counts as solved, where there is one."""

    def __init__(self, config: Config, env_threshold: float | None):
        self.config = config
        own = config.reward_threshold
        self.threshold = env_threshold if own is None else own
        rollout_steps = config.n_envs * config.n_steps
        by_steps = -(-(config.max_env_steps or 0) // rollout_steps)
        # An estimate: reset rows make a rollout hold a little less than n_envs * n_steps.
        self.planned_epochs = min(x for x in (by_steps, config.max_epochs) if x)
        self.total_steps = config.max_env_steps or self.planned_epochs * rollout_steps

    @property
    def evaluates(self) -> bool:
        return bool(self.config.eval_freq_epochs)

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
        """The limit that is reached, if one is."""
        config = self.config
        if self.steps_spent(p):
            return "max_env_steps"
        if config.max_epochs is not None and p.epoch >= config.max_epochs:
            return "max_epochs"
        return None

    def goal_reached(self, result: EvalResult | None, collector: Collector) -> str | None:
        """The early stop that applies, if one does."""
        eval_goal = self._goal(self.config.early_stop_on_eval_threshold)
        if result is not None and eval_goal is not None and result.mean >= eval_goal:
            return "solved_eval"
        train_goal, returns = (
            self._goal(self.config.early_stop_on_train_threshold),
            collector.returns,
        )
        if train_goal is not None and len(returns) == EPISODE_WINDOW:
            return "solved_train" if np.mean(returns) >= train_goal else None
        return None

    def _goal(self, setting: bool | float | None) -> float | None:
        """true: the solved threshold; a number: itself; false or null: none."""
        if setting is True:
            return self.threshold
        return None if setting is None or setting is False else float(setting)

    def solved(self, p: Progress) -> bool | None:
        """None where no threshold says what solved is."""
        if self.threshold is None:
            return None
        score = p.best_score if self.evaluates else p.best_train_mean
        return score is not None and score >= self.threshold
