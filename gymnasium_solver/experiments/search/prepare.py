"""From what a user asks for to a complete plan: defaults filled in, every value checked."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gymnasium_solver.config.find import DEFAULT_ALGO, locate, read_config_file
from gymnasium_solver.config.load import apply_overrides, choose_variant, config_dict
from gymnasium_solver.config.marks import check_live, live_fields, search_ranges
from gymnasium_solver.config.schema import Config
from gymnasium_solver.config.yaml_file import dump_yaml, unfilled
from gymnasium_solver.envs.baselines import game_settings, random_baseline
from gymnasium_solver.errors import ConfigError
from gymnasium_solver.experiments.search.folder import Sweep, create
from gymnasium_solver.experiments.search.plan import METRICS, TRIALS, FinalPlan, Plan
from gymnasium_solver.experiments.search.ranges import Options
from gymnasium_solver.experiments.search.samplers import check_sampler, choose_sampler, lag_of
from gymnasium_solver.experiments.search.space import (
    Param,
    Space,
    Values,
    check_names,
    overrides,
    unknown_field,
)
from gymnasium_solver.experiments.statistics import FEWEST_SEEDS
from gymnasium_solver.suggest import did_you_mean
from gymnasium_solver.training.prepare import load_config

EVALS = 10
"""A trial is evaluated at least this often."""
POPULATION = 8


@dataclass(frozen=True)
class Prepared:
    plan: Plan
    base: str
    """The lines of base.yaml."""
    label: str
    notes: list[str]

    def create(self, runs: Path) -> Sweep:
        return create(self.plan, self.base, self.label, runs)


def prepare(plan: Plan) -> Prepared:
    """Check a plan against its config and fill in what it leaves open."""
    if not plan.config:
        raise ConfigError("no config is named: gsolve sweep CONFIG, or `config:` in the file")
    notes: list[str] = []
    config = load_config(plan.config, overrides=plan.set)
    plan = _with_space(plan, config, notes)
    space = plan.space()
    check_names(space, type(config).model_fields)
    if plan.sampler == "pbt":
        try:
            check_live(type(config), [param.field for param in space.params])
        except ConfigError as error:
            raise ConfigError(f"pbt: {error}") from None
        plan = plan.replace(set={**_population(plan, config), **plan.set})
    else:
        plan = plan.replace(set={**_cadence(plan, config, notes), **plan.set})
    base = dump_yaml(base_lines(plan.config, plan.set))
    plan = _with_metric(plan, config)
    plan = _with_sampler(plan, config_dict(config), notes)
    _check_values(plan, config_dict(config))
    plan = plan.replace(final=_final(plan), lag=lag_of(plan))
    label = f"{config.env_id}-{config.variant or config.algo_id}"
    return Prepared(plan, base, label, notes)


def base_lines(target: str, fixed: Mapping[str, Any]) -> dict[str, Any]:
    """The lines of a config as they are written, so that a relative value (`batch_size: 0.25`)
    stays relative; the resolved fields where there is no file."""
    config = load_config(target, overrides=fixed)
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
    named = dict(plan.params)
    if not named:
        live = live_fields(kind) if plan.sampler == "pbt" else ranges
        named = {name: "" for name, item in ranges.items() if item.main and name in live}
        if not named:
            raise ConfigError(f"{config.algo_id} declares no ranges: name some with --param")
    params: dict[str, str] = {}
    for name, text in named.items():
        own = fields.get(name)
        is_schedule = isinstance(own, Mapping) and "start" in own
        if text:
            if is_schedule:
                notes.append(
                    f"{name} is a schedule in the config; the trials keep it constant. "
                    f"{name}.start would keep its shape"
                )
            params[name] = text
            continue
        if name not in kind.model_fields:
            raise ConfigError(unknown_field(name, kind.model_fields))
        if name not in ranges:
            raise ConfigError(
                f"{name} has no range of its own: give one, --param {name}=LOW..HIGH. Fields with "
                f"a range: {', '.join(ranges)}"
            )
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
    check_sampler(plan.sampler)
    return plan


def _check_values(plan: Plan, fields: Values) -> None:
    """ConfigError if a value of a parameter is not one that the field takes."""
    for param in plan.space().params:
        for value in param.distribution.grid(3):
            changes = overrides({param.name: value}, fields)
            try:
                load_config(plan.config, overrides={**plan.set, **changes})
            except ConfigError as error:
                line = str(error).splitlines()[-1].strip()
                raise ConfigError(f"--param {param.name}={param}: {line}") from None


def _final(plan: Plan) -> FinalPlan:
    """About 30 % of all trainings, judged on 5 fresh seeds, or 4 in a small sweep."""
    if plan.sampler == "pbt":
        return FinalPlan(top=0, seeds=plan.final.seeds or 1)
    runs = (plan.trials or 0) * plan.seeds * 0.43
    seeds = plan.final.seeds or (5 if runs >= 10 else FEWEST_SEEDS)
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
