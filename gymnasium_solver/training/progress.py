"""Where a run stands (Progress), and where it goes: its budgets and goals (Plan), and the epochs
after which it evaluates and saves."""

import math
import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from gymnasium_solver.config.schema import Config
from gymnasium_solver.training.observer import EvalResult

MOST_BETWEEN = 8  # evaluations between two comparisons of greedy with sampled actions
CHECKPOINT_SECONDS = 20.0  # the most that a crash can lose; saving takes about 10 ms


@dataclass
class Progress:
    """Progress of the run; saved with every checkpoint."""

    env_steps: int = 0
    epoch: int = 0
    wall_s: float = 0.0
    best_score: float | None = None
    best_env_steps: int = 0
    best_epoch: int = 0
    best_train_mean: float | None = None
    best_train_steps: int = 0
    best_train_epoch: int = 0
    vec_steps: int = 0
    rollouts: int = 0
    last_eval: dict[str, Any] | None = None
    failed_tests: int = 0
    next_train_test: int = 0
    """Number of finished episodes before the training goal may trigger a test again."""
    passed_test: dict[str, Any] | None = None  # the held-out test that ended training
    over: str | None = None
    """Why training ended; set in the last checkpoint of a run that needs no more training."""
    pending_eval: dict[str, int] | None = None
    """Clocks of the evaluation that another process is making (`eval_async`)."""
    greedy: bool = True
    """The actions of evaluations with `eval_deterministic: auto`: those that scored more."""
    best_greedy: bool = True  # the actions by which the best score was reached
    is_best_compared: bool = False  # whether both actions were measured for it
    comparison_gap: int = 1
    """Evaluations from one comparison of greedy with sampled actions to the next."""
    evals_to_comparison: int = 0
    interventions: dict[str, Any] = field(default_factory=dict)
    """State of the rules by name (training/live.py)."""
    curriculum: dict[str, Any] = field(default_factory=dict)
    """The stage, since when, its score and arguments (training/curriculum.py)."""
    cut: dict[str, int] | None = None
    """Of an epoch that was left in a burst of updates: the updates and rows that are to come, and
    the clocks at the start of the epoch and of the rollout that is learnt from."""

    def note_score(self, result: EvalResult) -> bool:
        """Record an evaluation; return whether it is the best so far. Ties go to the later one."""
        score = result.mean
        self.last_eval = {
            "score": score,
            "env_steps": result.env_steps,
            "epoch": result.epoch,
            "greedy": result.greedy,
            "length": result.length_mean,
        }
        if math.isnan(score) or (self.best_score is not None and score < self.best_score):
            return False
        self.choose(result)
        return True

    def note_actions(self, result: EvalResult) -> None:
        """Once the same actions are clearly better again, the others are measured less often."""
        if not result.other:
            self.evals_to_comparison = max(0, self.evals_to_comparison - 1)
            return
        is_settled = result.greedy == self.greedy and result.is_clearly_better
        self.comparison_gap = min(MOST_BETWEEN, 2 * self.comparison_gap) if is_settled else 1
        self.evals_to_comparison = self.comparison_gap - 1
        self.greedy = result.greedy

    def choose(self, result: EvalResult) -> None:
        """Mark the weights that were evaluated as the best."""
        self.best_score = result.mean
        self.best_greedy, self.is_best_compared = result.greedy, bool(result.other)
        self.best_env_steps, self.best_epoch = result.env_steps, result.epoch

    @property
    def best(self) -> dict[str, Any] | None:
        if self.best_score is None:
            return None
        return {
            "score": self.best_score,
            "env_steps": self.best_env_steps,
            "epoch": self.best_epoch,
            "greedy": self.best_greedy,
        }


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
        """Of the budget in steps and epochs, on which schedules depend."""
        by_epochs = p.epoch / self.config.max_epochs if self.config.max_epochs else 0.0
        return min(1.0, max(p.env_steps / self.total_steps, by_epochs))

    def seconds_left(self, p: Progress) -> float:
        """An estimate from the pace so far, at most the rest of the time budget."""
        share, limit = self.share_done(p), self.config.max_minutes
        left_s = p.wall_s * (1 - share) / share if share else math.inf
        return left_s if limit is None else max(0.0, min(left_s, 60.0 * limit - p.wall_s))

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
        if config.max_minutes is not None and p.wall_s >= 60.0 * config.max_minutes:
            return "max_minutes"
        return None

    # -- goals ------------------------------------------------------------------------------

    @property
    def evaluates(self) -> bool:
        return bool(self.config.eval_freq_epochs or self.config.eval_freq_steps)

    @property
    def tests(self) -> bool:
        """Whether the run ends with a held-out test."""
        return self.evaluates or self.threshold is not None


# -- cadences -------------------------------------------------------------------------------


@dataclass(frozen=True)
class EvalCadence:
    """True at every multiple of `n_epochs`, or in the epoch that reaches or passes a multiple of
    `n_steps` env steps; only after the warm-up. None or 0: never. It depends only on the epoch and
    the env steps, so a resumed run does the same things at the same time.

    EvalCadence(15, warmup_epochs=50) is first true at epoch 60."""

    n_epochs: int | None
    n_steps: int | None = None
    warmup_epochs: int = 0

    def __call__(self, epoch: int, steps_before: int, env_steps: int) -> bool:
        """For an epoch that took the clock from `steps_before` to `env_steps`."""
        if epoch <= self.warmup_epochs:
            return False
        if self.n_steps:
            return env_steps // self.n_steps > steps_before // self.n_steps
        return bool(self.n_epochs) and epoch % (self.n_epochs or 1) == 0


def eval_cadence(config: Config, planned_epochs: int) -> EvalCadence:
    """A warm-up below 1 is a fraction of the planned epochs."""
    warmup = config.eval_warmup_epochs
    is_fraction = isinstance(warmup, float) and 0 < warmup < 1
    warmup_epochs = int(warmup * planned_epochs) if is_fraction else int(warmup)
    return EvalCadence(config.eval_freq_epochs, config.eval_freq_steps, warmup_epochs)


class CheckpointCadence:
    """True at every multiple of `n_epochs`; None: when `CHECKPOINT_SECONDS` have passed since it
    was last true, which is not reproducible, and need not be: saving does not affect learning."""

    def __init__(self, n_epochs: int | None):
        self.n_epochs, self._last_s = n_epochs, time.monotonic()

    def __call__(self, epoch: int) -> bool:
        if self.n_epochs:
            return epoch % self.n_epochs == 0
        is_due = time.monotonic() - self._last_s >= CHECKPOINT_SECONDS
        if is_due:
            self._last_s = time.monotonic()
        return is_due
