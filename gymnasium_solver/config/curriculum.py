"""The fields `curriculum` and `tasks`: easier environments first, or several at once.

curriculum:                          # then the environment of the config itself
  stages:
    - {env_kwargs: {map_name: 4x4}, promote_at: 0.7}
    - {env_id: Other-v0, promote_at: 20, demote_at: 5}

curriculum: {env_kwargs: {gravity: {start: 5, to: 0.5}}}      # from 5 to env_kwargs.gravity

tasks: [CartPole-v0, {env_kwargs: {length: 2}, reward_threshold: 90}]
"""

import re
from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Field, InstanceOf, PlainSerializer, model_validator

from gymnasium_solver.config.blocks import BudgetFields, EnvFields, Fields, IdentityFields
from gymnasium_solver.config.nested import dump_block, read_block, read_blocks
from gymnasium_solver.config.schedule import Schedule
from gymnasium_solver.config.types import BLOCK, Block, Count, Float, Name, takes
from gymnasium_solver.errors import told_as

_TASK_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.=,+-]*")
_LEVELS = 10


class Place(Fields):
    """An environment that differs from that of the config."""

    env_id: Name | None = None
    """Its id. Unset: that of the config."""
    env_kwargs: Block = {}
    """Arguments of its constructor: with the config's env_id, changes of the config's env_kwargs;
    with another id, all of them."""
    max_episode_steps: Count | None = None
    """Time limit of an episode in steps. Unset: that of the config."""

    def changes(self, config: Any) -> dict[str, Any]:
        """The fields of the config to change for this environment."""
        is_other = self.env_id is not None and self.env_id != config.env_id
        below = {} if is_other else config.env_kwargs
        found: dict[str, Any] = {"env_kwargs": {**below, **self.env_kwargs}}
        if is_other:
            found["env_id"] = self.env_id
        if self.max_episode_steps is not None:
            found["max_episode_steps"] = self.max_episode_steps
        return found

    def text(self) -> str:
        """How it differs, in a few words."""
        kwargs = ",".join(f"{name}={value}" for name, value in self.env_kwargs.items())
        limit = self.max_episode_steps and f"max_episode_steps={self.max_episode_steps}"
        return " ".join(part for part in (self.env_id, kwargs, limit) if part)


# -- curriculum -------------------------------------------------------------------------------


class Stage(Place):
    promote_at: Float | None = None
    """Score from which the next stage begins."""
    demote_at: Float | None = None
    """Score below which the stage before begins again. Unset: never."""
    max_env_steps: Count | None = None
    """Env steps in this stage after which the next one begins whatever the score is."""

    @model_validator(mode="after")
    def _check_stage(self) -> Self:
        if self.promote_at is None and self.max_env_steps is None:
            raise ValueError("a stage needs promote_at or max_env_steps, or it never ends")
        if None not in (self.promote_at, self.demote_at) and self.demote_at >= self.promote_at:  # type: ignore[operator]
            raise ValueError(
                f"demote_at {self.demote_at} must be below promote_at {self.promote_at}"
            )
        return self


class Curriculum(Fields):
    stages: Annotated[list[InstanceOf[Stage]], BeforeValidator(lambda value: _stages(value))] = []
    """Environments before that of the config, easiest first: each {env_id, env_kwargs,
    max_episode_steps, promote_at, demote_at, max_env_steps}."""
    score: Literal["train", "eval"] = "train"
    """What promotes: the mean return of the last training episodes of the stage, or an evaluation
    in the stage, made beside each evaluation of the run."""
    window: Annotated[int, Field(ge=1, le=100)] = 50
    """Training episodes that a score is the mean of."""
    demote_at: Float | None = None
    """Score in the environment of the config below which the last stage begins again."""
    env_kwargs: dict[str, Block] = {}
    """Numbers that change in the course of the run, in all stages: {name: {start: X, from: 0, to:
    1.0, levels: 10, schedule: linear}} leads from X to the number in env_kwargs."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        if not self.stages and not self.env_kwargs:
            raise ValueError("expected stages, or env_kwargs with schedules")
        if self.demote_at is not None and not self.stages:
            raise ValueError("demote_at needs stages")
        return self

    def schedules(self, final: Mapping[str, Any]) -> "dict[str, KwargSchedule]":
        """By argument; `final` are the env_kwargs of the config. ValueError if one is wrong."""
        return {name: _kwarg(name, block, final) for name, block in self.env_kwargs.items()}


class KwargSchedule:
    """A number that changes in steps: every change builds the environments anew."""

    def __init__(self, schedule: Schedule, levels: int, is_whole: bool):
        self.schedule, self.levels, self.is_whole = schedule, levels, is_whole

    def at(self, env_steps: int, total_steps: int) -> float | int:
        s = self.schedule
        done = (s.at(env_steps, total_steps) - s.start) / (s.end - s.start)
        level = int(done * self.levels + 1e-9) / self.levels
        value = s.start * (1 - level) + s.end * level
        return round(value) if self.is_whole else value


def _kwarg(name: str, block: Mapping[str, Any], final: Mapping[str, Any]) -> KwargSchedule:
    where, end = f"env_kwargs.{name}", final.get(name)
    if not _is_number(end):
        given = "is not given" if end is None else f"is {end!r}"
        raise ValueError(
            f"{where} leads to the number {name} in the env_kwargs of the config, which {given}"
        )
    if "end" in block:
        raise ValueError(f"{where}: remove end; the schedule leads to env_kwargs.{name}, {end}")
    if "warmup" in block:
        raise ValueError(f"{where}: remove warmup, which would lead from 0 to start at first")
    if block.get("schedule") == "periodic":
        raise ValueError(f"{where}: a periodic schedule returns to start and never leads to {end}")
    levels = block.get("levels", _LEVELS)
    if isinstance(levels, bool) or not isinstance(levels, int) or levels < 1:
        raise ValueError(f"{where}: levels must be a whole number >= 1, not {levels!r}")
    rest = {key: value for key, value in block.items() if key != "levels"}
    if not _is_number(rest.get("start")) or rest["start"] == end:
        raise ValueError(f"{where}: start must be a number other than {end}, where it leads to")
    with told_as(ValueError, where, ValueError):
        schedule = Schedule.parse({**rest, "end": end})
    return KwargSchedule(schedule, levels, isinstance(end, int) and isinstance(rest["start"], int))


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _stages(value: Any) -> list[Stage]:
    return read_blocks(Stage, value, "stage", "{env_kwargs: {...}, promote_at: SCORE}")


# -- tasks ------------------------------------------------------------------------------------


class Task(Place):
    name: str = ""
    """Name in metrics and reports. Unset: how it differs from the other tasks."""
    reward_threshold: Float | None = None
    """Mean return at which this task counts as solved. Unset: that of the config, or the one that
    the environment is registered with."""


def _tasks(value: Any) -> list[Task]:
    expected = "env ids, or of {env_id, env_kwargs, ...}"
    found = []
    for place, task in enumerate(read_blocks(Task, value, "task", expected, shorthand="env_id")):
        text = (task.text() or "own").replace("/", "-").replace(" ", ",")
        name = task.name or re.sub(r"[^A-Za-z0-9_.=,+-]", "", text)
        if not _TASK_NAME.fullmatch(name):
            raise ValueError(
                f"task {place + 1}: the name {name!r} must have letters, digits and _.=,+- only"
            )
        found.append(task.model_copy(update={"name": name}))
    names = [task.name for task in found]
    if len(set(names)) < len(names):
        raise ValueError(f"two tasks have the same name: {', '.join(names)}")
    if len(found) == 1:
        raise ValueError("expected at least two tasks")
    return found


class CurriculumFields(EnvFields, BudgetFields, IdentityFields):
    title = "curriculum and tasks"

    curriculum: Annotated[
        InstanceOf[Curriculum] | None,
        BeforeValidator(lambda value: None if value is None else read_block(Curriculum, value)),
        PlainSerializer(dump_block),
        takes("{stages: [{env_kwargs: {...}, promote_at: SCORE}]}", BLOCK),
    ] = None
    """Train in easier environments first: stages with promotion by score, and arguments of the
    environment that change. Evaluations, the test and the verdict are always those of the
    environment of the config itself."""
    tasks: Annotated[
        list[InstanceOf[Task]],
        BeforeValidator(_tasks),
        PlainSerializer(lambda tasks: [dump_block(task) for task in tasks]),
        takes("a list of env ids, or of {env_id, env_kwargs, ...}", {"type": "array"}),
    ] = []
    """Train in several environments at once: env ids, or {env_id, env_kwargs, max_episode_steps,
    reward_threshold, name}. The n_envs environments are shared out evenly. Solved means that every
    task reaches its own threshold."""
    task_one_hot: bool = False
    """Tell the policy which task it is in: a one-hot vector beside the observation."""

    @model_validator(mode="after")
    def _check_curriculum(self) -> Self:
        if self.curriculum is not None:
            if self.tasks:
                raise ValueError("curriculum and tasks cannot be combined: remove one of them")
            with told_as(ValueError, "curriculum", ValueError):
                self.curriculum.schedules(self.env_kwargs)
        if self.task_one_hot and not self.tasks:
            raise ValueError("task_one_hot needs tasks")
        if self.tasks and self.n_envs < len(self.tasks):
            raise ValueError(
                f"n_envs {self.n_envs} is less than the {len(self.tasks)} tasks: every task needs "
                "an environment"
            )
        return self
