"""What a sweep is to do: `sweep.yaml` in its folder, and what a user's file or flags say. `prepare`
makes a complete plan of that: defaults filled in, every value checked.

    config: CartPole-v1:ppo
    params:
      policy_lr: log:1e-5..1e-2
      n_epochs: [4, 10, 20]
    trials: 60
    metric: {name: score, target: 475}

Strict like a config: an unknown key is an error with a suggestion.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from importlib.util import find_spec
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, model_validator

from gymnasium_solver.config.explain import describe
from gymnasium_solver.config.find import DEFAULT_ALGO, locate, read_config_file
from gymnasium_solver.config.load import apply_overrides, choose_variant, config_dict
from gymnasium_solver.config.marks import check_live, live_fields, search_ranges
from gymnasium_solver.config.schema import Config
from gymnasium_solver.config.types import Count, Float, NonNegativeInt, Seed
from gymnasium_solver.config.yaml_file import dump_yaml, unfilled
from gymnasium_solver.envs.baselines import game_settings, random_baseline
from gymnasium_solver.errors import ConfigError, MissingError, told_as
from gymnasium_solver.experiments.search import space as spaces
from gymnasium_solver.experiments.search.files import param_text
from gymnasium_solver.experiments.search.ranges import Options
from gymnasium_solver.experiments.search.space import Param, Space, Values, overrides
from gymnasium_solver.suggest import did_you_mean
from gymnasium_solver.training.prepare import load_config

METRICS = {
    "auto": "chosen by the budget",
    "score": "test score",
    "auc": "mean validation return over the budget",
    "best": "best validation return",
    "last": "last validation return",
    "steps_to_solve": "env steps until solved",
}
"""What a sweep may search for besides logged metrics, and what people call it."""
TRIALS = 30  # trials of a sweep that states no number
EVALS = 10  # a trial is evaluated at least this often
POPULATION, MOST_GP = 8, 250

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
    """At the end, keep the checkpoints of this many of the best trials only. Unset: of all."""

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
    def unseen(self) -> int:
        """How many of the newest trials a suggestion does not see, at least."""
        return self.lag or (1 if self.jobs == 1 else 2 * self.jobs)

    @property
    def directions(self) -> list[str]:
        goal = self.metric.goal or "maximize"
        return [goal, "minimize"] if self.cost is not None else [goal]

    def replace(self, **changes: Any) -> "Plan":
        return read_plan({**self.model_dump(), **changes}, "the sweep")


@lru_cache(maxsize=64)
def _space(params: tuple[tuple[str, str], ...]) -> Space:
    return Space(tuple(spaces.param_of(name, text) for name, text in params))


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
    given = getattr(Plan(), path[0], None) if len(path) > 1 else None
    block: type[BaseModel] = type(given) if isinstance(given, Block) else Plan
    if problem["type"] == "extra_forbidden":
        return f"{name}: unknown key. {did_you_mean(path[-1], block.model_fields)}".rstrip()
    if problem["type"] == "value_error":
        reason = str(problem["ctx"]["error"])
        return f"{name}: {reason}" if name else reason
    field = block.model_json_schema()["properties"].get(path[-1]) if path else None
    if field is None:
        return f"{name}: got {problem['input']!r}. {problem['msg']}"
    return f"{name}: got {problem['input']!r}, expected {describe(field)}"


@dataclass(frozen=True)
class Prepared:
    plan: Plan
    base: str  # the lines of base.yaml
    label: str
    notes: list[str]


LEARNING = ("gp", "tpe", "cmaes")  # samplers that learn from results
MOST_UNSEEN = 0.25  # share of the trials that suggestions may lag behind without a warning


def prepare(plan: Plan, trust: bool = False) -> Prepared:
    """Check a plan against its config and fill in what it leaves open. `trust`: also import code
    that the config of a run made elsewhere names."""
    if not plan.config:
        raise ConfigError("no config is named: gsolve sweep CONFIG, or `config:` in the file")
    notes: list[str] = []
    config = load_config(plan.config, overrides=plan.set, trust=trust)
    plan = _with_space(plan, config, notes)
    space = plan.space()
    spaces.check_names(space, type(config).model_fields)
    if plan.sampler == "pbt":
        with told_as(ConfigError, "pbt", ConfigError):
            check_live(type(config), [param.field for param in space.params])
        plan = plan.replace(set={**_population(plan, config), **plan.set})
    else:
        plan = plan.replace(set={**_cadence(plan, config, notes), **plan.set})
    base = dump_yaml(base_lines(plan.config, plan.set, trust))
    plan = _with_metric(plan, config)
    plan = _with_sampler(plan, config_dict(config), notes)
    _check_values(plan, config_dict(config), trust)
    plan = plan.replace(final=_final(plan), lag=plan.unseen)
    if plan.sampler in LEARNING and plan.unseen > MOST_UNSEEN * (plan.trials or 0):
        notes.append(
            f"with {plan.jobs} jobs a suggestion does not see the newest {plan.unseen} of "
            f"{plan.trials} trials, so that {plan.sampler} is little better than random search: "
            "use fewer jobs or more trials"
        )
    label = f"{config.env_id}-{config.variant or config.algo_id}"
    return Prepared(plan, base, label, notes)


def base_lines(target: str, fixed: Mapping[str, Any], trust: bool) -> dict[str, Any]:
    """The lines of a config as they are written, so that a relative value (`batch_size: 0.25`)
    stays relative; the resolved fields where there is no file."""
    config = load_config(target, overrides=fixed, trust=trust)
    try:
        path, variant = locate(target, None, None if "algo_id" in fixed else DEFAULT_ALGO)
        file = read_config_file(path)
        lines = apply_overrides(file.section(choose_variant(file, variant)), fixed)
        if not any(unfilled(lines)) and lines.get("env_id") == config.env_id:
            return lines
    except ConfigError:
        pass  # an environment without a config file, or an old id of a game
    return config_dict(config)


def budget_of(config: Config) -> int:
    """Env steps of a whole training."""
    return config.max_env_steps or (config.max_epochs or 0) * config.n_envs * config.n_steps


def _with_space(plan: Plan, config: Config, notes: list[str]) -> Plan:
    """The plan with a range for every parameter: those named without one, or the main ones."""
    kind, fields = type(config), config_dict(config)
    ranges = search_ranges(kind)
    live = live_fields(kind) if plan.sampler == "pbt" else ranges
    main = {name: "" for name, item in ranges.items() if item.main and name in live}
    named = dict(plan.params) or main
    if not named:
        raise ConfigError(f"{config.algo_id} declares no ranges: name some with --param")
    params: dict[str, str] = {}
    for name, text in named.items():
        own = fields.get(name)
        is_schedule = isinstance(own, Mapping) and "start" in own
        if text and is_schedule:
            notes.append(
                f"{name} is a schedule in the config; the trials keep it constant. "
                f"{name}.start would keep its shape"
            )
        if text:
            params[name] = text
        elif name not in kind.model_fields:
            raise ConfigError(spaces.unknown_field(name, kind.model_fields))
        elif name not in ranges:
            raise ConfigError(
                f"{name} has no range of its own: give one, --param {name}=LOW..HIGH. Fields with "
                f"a range: {', '.join(ranges)}"
            )
        else:
            params[f"{name}.start" if is_schedule else name] = ranges[name].text
    return plan.replace(params=params)


def _with_metric(plan: Plan, config: Config) -> Plan:
    metric = plan.metric
    name = metric.name
    if name == "auto":
        stops = config.early_stop_on_eval_threshold
        name = "auc" if stops and _has_threshold(config) else "score"
    if "/" not in name and name not in METRICS:
        expected = f"Expected {', '.join(METRICS)}, or a logged one such as val/roll/ep_rew/mean"
        raise ConfigError(f"metric {name!r}: {did_you_mean(name, METRICS) or expected}")
    goal = metric.goal or ("minimize" if name == "steps_to_solve" else "maximize")
    return plan.replace(metric={**metric.model_dump(), "name": name, "goal": goal})


def _has_threshold(config: Config) -> bool:
    goal = config.early_stop_on_eval_threshold
    if config.reward_threshold is not None or not isinstance(goal, bool):
        return goal is not None
    baseline = random_baseline(config.env_id, game_settings(config_dict(config)))
    return baseline is not None and baseline.target_kind == "threshold"


def _cadence(plan: Plan, config: Config, notes: list[str]) -> dict[str, Any]:
    """The same evaluations for every trial, whatever its n_steps."""
    if plan.set.keys() & {"eval_freq_epochs", "eval_freq_steps"}:
        return {}
    budget = budget_of(config)
    own = config.eval_freq_steps or (config.eval_freq_epochs or 0) * config.n_envs * config.n_steps
    wanted = max(1, budget // EVALS)
    varies = {param.partition(".")[0] for param in plan.params} & {"n_envs", "n_steps"}
    if own and own <= wanted and not varies:
        return {}
    every = min(own, wanted) if own else wanted
    notes.append(f"trials are evaluated every {every:,} env steps (eval_freq_steps)")
    return {"eval_freq_steps": every, "eval_freq_epochs": None}


def _population(plan: Plan, config: Config) -> dict[str, Any]:
    """Every member trains to the end, and is evaluated at least where members are compared."""
    epoch_steps = config.n_envs * config.n_steps
    every = generation_ends(plan.pbt.interval, budget_of(config), epoch_steps)[0]
    return {"eval_freq_epochs": every, "early_stop_on_eval_threshold": False,
            "early_stop_on_train_threshold": False}  # fmt: skip


def _with_sampler(plan: Plan, fields: Values, notes: list[str]) -> Plan:
    if plan.sampler == "grid":
        space = plan.space()
        size = len(space.grid(plan.grid_points, fields))
        trials = min(plan.trials or size, size)
        ranges = [p.name for p in space.params if not isinstance(p.latent(), Options)]
        if ranges:
            notes.append(f"grid of {plan.grid_points} values each: {', '.join(ranges)}")
        if trials < size:
            notes.append(f"{trials} of the {size} combinations of the grid")
        return plan.replace(trials=trials)
    plan = plan.replace(trials=plan.trials or (POPULATION if plan.sampler == "pbt" else TRIALS))
    if plan.sampler == "pbt" and plan.trials == 1:
        raise ConfigError("pbt needs a population of at least 2: --trials 8")
    plan = plan.replace(sampler=choose_sampler(plan))
    needed = {"gp": "scipy", "cmaes": "cmaes"}.get(plan.sampler)
    if needed is not None and find_spec(needed) is None:
        raise MissingError(f"the sampler {plan.sampler} needs {needed}: pip install {needed}")
    return plan


def choose_sampler(plan: Plan) -> str:
    """What `auto` means: a model that suits the parameters and the number of trials."""
    if plan.sampler != "auto":
        return plan.sampler
    space = plan.space()
    has_choices = any(isinstance(p.latent(), Options) for p in space.params)
    if has_choices or space.is_conditional or plan.cost is not None or find_spec("scipy") is None:
        return "tpe"
    return "gp" if (plan.trials or 0) < MOST_GP else "cmaes"


def _check_values(plan: Plan, fields: Values, trust: bool) -> None:
    """ConfigError if a value of a parameter is not one that the field takes."""
    for param in plan.space().params:
        for value in param.distribution.grid(3):
            changes = overrides({param.name: value}, fields)
            try:
                load_config(plan.config, overrides={**plan.set, **changes}, trust=trust)
            except ConfigError as error:
                line = str(error).splitlines()[-1].strip()
                if getattr(param.distribution, "kind", "") == "normal":
                    line += f"; give bounds, as in {param.distribution},0.."
                raise ConfigError(f"--param {param.name}={param}: {line}") from None


def _final(plan: Plan) -> FinalPlan:
    """About 30 % of all trainings, judged on 5 fresh seeds, or 4 in a small sweep."""
    if plan.sampler == "pbt":
        return FinalPlan(top=0, seeds=plan.final.seeds or 1)
    runs = (plan.trials or 0) * plan.seeds * 0.43
    seeds = plan.final.seeds or (5 if runs >= 10 else 4)
    top = plan.final.top
    if top is None:
        top = min(max(round(runs / seeds), 1), 6, plan.trials or 1)
    return FinalPlan(top=top, choose=plan.final.choose or -(-seeds // 2), seeds=seeds)


def generation_ends(interval: float, budget: int, epoch_steps: int) -> list[int]:
    """The epochs after which the members of a population are compared; the last one ends the
    training."""
    steps = interval * budget if interval <= 1 else interval
    last = max(1, -(-budget // epoch_steps))
    each = min(max(1, round(steps / epoch_steps)), last)
    return [*range(each, last, each), last]


def own_values(space: Space, config: Mapping[str, Any]) -> Values:
    """The latents nearest to the config's own values."""

    def choose(param: Param) -> Any:
        value: Any = config
        for part in param.name.split("."):
            value = value.get(part) if isinstance(value, Mapping) else value
        if isinstance(value, Mapping):
            value = value.get("start")
        try:
            return param.distribution.encode(value)
        except ValueError:  # auto, or null: the middle of the range
            return param.distribution.encode(param.distribution.grid(1)[0])

    return space.draw(choose, config)
