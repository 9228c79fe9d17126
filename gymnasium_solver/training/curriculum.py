"""Moves a run through the stages of its curriculum, between epochs.

    stages = Stages(config, env, collector, tell)    # of a config with a curriculum
    stages.make_due(p, total)                        # before an epoch: the stage's environments
    stages.decide(p, total)                          # after it: promote, demote, change arguments

Only the training environments are those of the stage (docs/curriculum.md). What decides is part of
every checkpoint: the stage and its score in the progress `p.curriculum`, the last returns in the
collector's state. A new stage starts new episodes and empties the windows of the last returns.
"""

from collections.abc import Callable, Mapping
from typing import Any

from gymnasium_solver.config.schema import Config
from gymnasium_solver.envs.joined import difference
from gymnasium_solver.envs.journal import JournaledEnv
from gymnasium_solver.envs.make import env_from_config, training_env
from gymnasium_solver.envs.vector import VectorEnv
from gymnasium_solver.errors import ConfigError, EnvError, RunError, told_as
from gymnasium_solver.policies.policy import Policy
from gymnasium_solver.training.activity import Activity
from gymnasium_solver.training.collect import Collector, DemoFeed
from gymnasium_solver.training.epoch_metrics import EpisodeStats
from gymnasium_solver.training.evaluate import Evaluator, Validation
from gymnasium_solver.training.observer import EvalResult
from gymnasium_solver.training.progress import Progress


class Stages:
    def __init__(
        self,
        config: Config,
        env: VectorEnv,
        collector: EpisodeStats,
        tell: Callable[[str, Mapping[str, Any]], None],
    ):
        """`env`: that of the config, which all stages must resemble; ConfigError if one does not.
        `tell`: takes the text and the facts of a change of the stage."""
        assert config.curriculum is not None
        if not isinstance(collector, Collector) or isinstance(collector, DemoFeed):
            raise ConfigError(
                f"curriculum: {config.algo_id} steps no environment to learn; remove it"
            )
        self.collector, self.tell = collector, tell
        self.config, self.curriculum, self.spec = config, config.curriculum, env.spec
        self.last = len(self.curriculum.stages)  # the environment of the config
        self.schedules = self.curriculum.schedules(config.env_kwargs)
        self._evaluator: Evaluator | None = None
        self._check_spaces(env)

    def _check_spaces(self, env: VectorEnv) -> None:
        for number, stage in enumerate(self.curriculum.stages):
            name = f"curriculum: stage {number + 1} ({stage.text() or 'as the config'})"
            with told_as(ConfigError, name, EnvError, ConfigError):
                own = env_from_config(self.stage_config(number, {}), 1)
            own.close()
            if found := difference(own, name, env, env.spec.env_id):
                raise ConfigError(f"{found}; all stages need the same spaces")

    def stage_config(self, number: int, values: dict[str, Any]) -> Config:
        """The config with the environment of a stage, and these arguments."""
        changes: dict[str, Any] = {"env_kwargs": dict(self.config.env_kwargs)}
        if number < self.last:
            changes = self.curriculum.stages[number].changes(self.config)
        if "env_id" not in changes:
            changes["env_kwargs"] = changes["env_kwargs"] | values
        return self.config.replace(curriculum=None, **changes)

    def name(self, number: int) -> str:
        text = "" if number == self.last else self.curriculum.stages[number].text()
        return f"{number + 1} of {self.last + 1}" + f" ({text or self.config.env_id})"

    # -- between epochs ---------------------------------------------------------------------

    def decide(self, p: Progress, total_steps: int) -> None:
        """After an epoch, before it is saved: the stage and the arguments of the next one."""
        now, score = p.curriculum["stage"], self.score(p)
        number, why = self._next(p, score)
        before, values = p.curriculum["kwargs"], self._values(p, total_steps)
        if number == now and values == before:
            return
        p.curriculum |= {"stage": number, "kwargs": values, "is_due": True}
        if number == now:
            text = ", ".join(f"{name} {value:g}" for name, value in values.items())
            self._tell(p, text)
            return
        p.curriculum |= {"since": p.env_steps, "score": None}
        self.collector.forget_episodes()
        self._tell(p, f"stage {self.name(number)}: {why}", before=now + 1, score=score)

    def make_due(self, p: Progress, total_steps: int) -> None:
        """Before an epoch: new episodes in other environments, if that was decided."""
        if not p.curriculum:
            first = {"stage": 0, "since": p.env_steps, "score": None, "is_due": True}
            p.curriculum = {**first, "kwargs": self._values(p, total_steps)}
            self._tell(p, f"stage {self.name(0)}")
        if p.curriculum["is_due"]:
            self._build(p)
            self.collector.restart_envs(p.env_steps)
            p.curriculum["is_due"] = False

    def _values(self, p: Progress, total_steps: int) -> dict[str, Any]:
        return {name: s.at(p.env_steps, total_steps) for name, s in self.schedules.items()}

    def _tell(self, p: Progress, text: str, **facts: Any) -> None:
        kwargs = {"env_kwargs": p.curriculum["kwargs"]} if self.schedules else {}
        self.tell(text, {"stage": p.curriculum["stage"] + 1, **facts, **kwargs})

    def score(self, p: Progress) -> float | None:
        """The score of the current stage, or None before there is one."""
        if self.curriculum.score == "eval":
            found: float | None = p.curriculum.get("score")
            return found
        window, returns = self.curriculum.window, list(self.collector.returns)
        return None if len(returns) < window else sum(returns[-window:]) / window

    def _next(self, p: Progress, score: float | None) -> tuple[int, str]:
        """The stage to be in, and why."""
        now = p.curriculum["stage"]
        demote_at = self.curriculum.demote_at
        if now < self.last:
            stage = self.curriculum.stages[now]
            demote_at, steps = stage.demote_at, p.env_steps - p.curriculum["since"]
            if score is not None and stage.promote_at is not None and score >= stage.promote_at:
                return now + 1, f"the score of {score:.4g} reached {stage.promote_at:g}"
            if stage.max_env_steps is not None and steps >= stage.max_env_steps:
                return now + 1, f"{steps:,} env steps in the stage before"
        if now > 0 and score is not None and demote_at is not None and score < demote_at:
            return now - 1, f"the score of {score:.4g} fell below {demote_at:g}"
        return now, ""

    def _build(self, p: Progress) -> None:
        """Build the training environments that `p.curriculum` says."""
        env = training_env(self.stage_config(p.curriculum["stage"], p.curriculum["kwargs"]))
        self.collector.take_env(JournaledEnv(env))
        self.close()

    def resume(self, p: Progress) -> bool:
        """Build the environments that a checkpoint was made in; False if others are due next, so
        that there is nothing to restore."""
        state = p.curriculum
        if not state:
            return True
        number, kwargs = state.get("stage"), state.get("kwargs")
        is_stage = type(number) is int and 0 <= number <= self.last
        if not is_stage or not isinstance(kwargs, dict) or kwargs.keys() != self.schedules.keys():
            raise RunError(
                f"the checkpoint is in stage {number!r} of a curriculum, which the config does not "
                "have. Resume with the curriculum that the run was started with."
            )
        if state.get("is_due"):
            return False
        self._build(p)
        return True

    # -- evaluation -------------------------------------------------------------------------

    def evaluate(
        self, p: Progress, policy: Policy, activity: Activity, how: Validation
    ) -> EvalResult | None:
        """Evaluate in the current stage, if evaluations promote."""
        if self.curriculum.score != "eval" or not p.curriculum:
            return None
        if self._evaluator is None:
            config = self.stage_config(p.curriculum["stage"], p.curriculum["kwargs"])
            self._evaluator = Evaluator(config, self.spec, activity)
        result = self._evaluator.evaluate(
            "val", policy, p.env_steps, p.epoch, greedy=how.greedy, episodes=how.episodes
        )
        p.curriculum["score"] = result.mean
        return result

    def metrics(self, p: Progress) -> dict[str, float]:
        found = {"train/curriculum/stage": p.curriculum["stage"] + 1.0}
        score = self.score(p)
        if score is not None:
            found["train/curriculum/score"] = score
        values = p.curriculum["kwargs"].items()
        return found | {f"train/curriculum/kwargs/{name}": float(value) for name, value in values}

    def is_last(self, p: Progress) -> bool:
        """Whether the run has come to the environment of the config."""
        return bool(p.curriculum) and p.curriculum["stage"] == self.last

    def close(self) -> None:
        if self._evaluator is not None:
            self._evaluator.close()
            self._evaluator = None
