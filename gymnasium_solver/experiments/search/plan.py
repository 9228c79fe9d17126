"""What a sweep is to do: `sweep.yaml` in its folder, and what a user's file or flags say.

    config: CartPole-v1:ppo
    params:
      policy_lr: log:1e-5..1e-2
      n_epochs: [4, 10, 20]
    trials: 60
    metric: {name: score, target: 475}

Strict like a config: an unknown key is an error with a suggestion.
"""

from collections.abc import Mapping
from functools import lru_cache
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, model_validator

from gymnasium_solver.config.explain import describe
from gymnasium_solver.config.types import Count, Float, NonNegativeInt, Seed
from gymnasium_solver.errors import ConfigError
from gymnasium_solver.experiments.search.files import param_text
from gymnasium_solver.experiments.search.space import Space, param_of
from gymnasium_solver.suggest import did_you_mean

METRICS = ("auto", "score", "auc", "best", "last", "steps_to_solve")
TRIALS = 30
"""Trials of a sweep that states no number."""

Sampler = Literal["auto", "grid", "random", "tpe", "gp", "cmaes", "stages", "pbt"]


class Block(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, validate_default=True)


class MetricPlan(Block):
    name: str = "auto"
    """auto, score (held-out test), auc (mean validation score over the budget), best, last,
    steps_to_solve, or the name of a logged metric."""
    goal: Literal["maximize", "minimize"] | None = None
    """Unset: minimize for steps_to_solve, else maximize."""
    target: Float | None = None
    """End the search when a trial reaches this value."""
    over: Literal["last", "max", "min", "mean"] = "last"
    """How the values of a logged metric become one."""


class PrunePlan(Block):
    rule: Literal["off", "asha", "hyperband", "median"] = "off"
    """asha and hyperband stop trials that are not among the best 1/eta at a rung; median stops
    trials below the median."""
    first: Annotated[Float, Field(gt=0)] = 0.1
    """The first rung: a share of the budget; above 1, env steps or, with rows, logged rows."""
    eta: Annotated[Float, Field(gt=1)] = 3.0
    """Ratio between rungs, and the share that survives one: 1/eta."""
    unit: Literal["env_steps", "rows"] = "env_steps"
    """rows counts logged values of the metric, as W&B does."""
    warmup: NonNegativeInt = 5
    """Finished trials before the median rule stops any."""


class FinalPlan(Block):
    top: NonNegativeInt | None = None
    """How many of the best are trained again. Unset: about 30 % of all trainings. 0: none."""
    choose: Count | None = None
    """Fresh seeds by which one of them is chosen. Unset: half as many as `seeds`."""
    seeds: Count | None = None
    """Further fresh seeds, on which the chosen one and the config's own values are judged. Unset:
    5, or 4 in a small sweep."""


class PbtPlan(Block):
    interval: Annotated[Float, Field(gt=0)] = 0.2
    """Env steps between exploits; up to 1 a share of the budget."""
    fraction: Annotated[Float, Field(gt=0, le=0.5)] = 0.25
    """Share of the population that is replaced by copies of the best."""
    factor: Annotated[Float, Field(gt=1)] = 1.25
    """A copied value is multiplied or divided by this."""


def _param_text(value: Any) -> Any:
    """A parameter in YAML as the text that `--param` takes."""
    if not isinstance(value, Mapping):
        return value
    return {str(name): param_text(str(name), given) for name, given in value.items()}


class Plan(Block):
    config: str = ""
    """The config that is searched, as `gsolve train` takes it."""
    name: str | None = None
    """Part of the folder's name."""
    set: dict[str, Any] = {}
    """Fields that all trials share."""
    params: Annotated[dict[str, str], BeforeValidator(_param_text)] = {}
    """Parameters: the text of `--param`, a list of values, or {log: [low, high], if: ...}. Empty:
    the main fields of the algorithm with their own ranges."""
    sampler: Sampler = "auto"
    """auto: tpe if a parameter is a choice or conditional, else gp up to 250 trials, then cmaes."""
    trials: Count | None = None
    """Trials of the search. Unset: 30, or the whole grid."""
    grid_points: Annotated[Count, Field(ge=2)] = 4
    """Values of a continuous parameter in a grid."""
    jobs: Count = 1
    """Trainings at the same time."""
    lag: Count | None = None
    """A trial is suggested from the results of all trials but the newest `lag`, so that the same
    sweep suggests the same whatever finishes first. Unset: 1 with one job, else 2 x jobs."""
    own_first: bool = True
    """Suggestions build on the first trial, which has the config's own values. false: it is trained
    for comparison only."""
    seed: Seed = 0
    """Seed of the suggestions and of the trials' seeds."""
    seeds: Count = 1
    """Seeds of a trial, trained one after another; a trial that cannot win any more ends early."""
    metric: MetricPlan = MetricPlan()
    cost: Literal["env_steps", "wall_s"] | None = None
    """Search for the best trade-off between the metric and this cost."""
    prune: PrunePlan = PrunePlan()
    final: FinalPlan = FinalPlan()
    pbt: PbtPlan = PbtPlan()
    keep: NonNegativeInt | None = None
    """At the end, keep the checkpoints of so many of the best trials only. Unset: of all."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.cost is not None and self.sampler not in ("auto", "tpe", "grid", "random"):
            raise ValueError(f"cost needs the sampler tpe, grid or random, not {self.sampler}")
        if self.prune.rule != "off" and self.cost is not None:
            raise ValueError("cost and prune exclude each other: a pruned trial has no final score")
        if self.prune.rule != "off" and self.seeds > 1:
            raise ValueError("prune compares single runs: use it with seeds: 1")
        if self.sampler == "pbt" and (self.seeds > 1 or self.prune.rule != "off"):
            raise ValueError("pbt trains one population: leave out seeds and prune")
        return self

    def space(self) -> Space:
        return _space(tuple(self.params.items()))

    @property
    def sign(self) -> float:
        """1 if more of the metric is better, else -1."""
        return -1.0 if self.metric.goal == "minimize" else 1.0

    @property
    def directions(self) -> list[str]:
        goal = self.metric.goal or "maximize"
        return [goal, "minimize"] if self.cost is not None else [goal]

    def replace(self, **changes: Any) -> "Plan":
        return read_plan({**self.model_dump(), **changes}, "the sweep")


@lru_cache(maxsize=64)
def _space(params: tuple[tuple[str, str], ...]) -> Space:
    return Space(tuple(param_of(name, text) for name, text in params))


def read_plan(data: Mapping[str, Any], where: str) -> Plan:
    """Check the content of a file; ConfigError has one line per problem."""
    try:
        return Plan(**data)
    except ValidationError as error:
        lines = [_line(problem) for problem in error.errors(include_url=False)]
        raise ConfigError(f"{where}: " + "; ".join(dict.fromkeys(lines))) from None


def _line(problem: Mapping[str, Any]) -> str:
    path = [str(part) for part in problem["loc"]]
    name = ".".join(path)
    blocks: dict[str, type[BaseModel]] = {
        "metric": MetricPlan, "prune": PrunePlan, "final": FinalPlan, "pbt": PbtPlan,
    }  # fmt: skip
    block = blocks.get(path[0], Plan) if len(path) > 1 else Plan
    if problem["type"] == "extra_forbidden":
        return f"{name}: unknown key. {did_you_mean(path[-1], block.model_fields)}".rstrip()
    if problem["type"] == "value_error":
        reason = str(problem["ctx"]["error"])
        return f"{name}: {reason}" if name else reason
    field = block.model_json_schema()["properties"].get(path[-1]) if path else None
    if field is None:
        return f"{name}: got {problem['input']!r}. {problem['msg']}"
    return f"{name}: got {problem['input']!r}, expected {describe(field)}"
