"""Optuna's samplers on a study in memory, built for one suggestion."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from gymnasium_solver.experiments.search.distributions import Latent, Options
from gymnasium_solver.experiments.search.journal import (
    COMPLETE,
    FAILED,
    PRUNED,
    Trial,
    load_optuna,
    optuna_distribution,
)
from gymnasium_solver.experiments.search.plan import Plan
from gymnasium_solver.experiments.search.space import Param, Space, Values

STARTUP = 10
"""Random trials before a model is fitted."""


def directions(plan: Plan) -> list[str]:
    goal = plan.metric.goal or "maximize"
    return [goal, "minimize"] if plan.cost is not None else [goal]


def from_optuna(
    kind: str,
    plan: Plan,
    space: Space,
    fields: Mapping[str, Any],
    done: Sequence[Trial],
    pending: Sequence[Trial],
    seed: int,
) -> Values:
    optuna = load_optuna()
    study = optuna.create_study(sampler=_sampler(kind, space, seed), directions=directions(plan))
    worst = worst_value(plan, done)
    study.add_trials(
        frozen(trial, space, plan, worst, is_pending=trial in pending)
        for trial in (*done, *pending)
        if trial.latents.keys() <= {param.name for param in space.params}
        and (plan.own_first or not trial.attrs.get("own"))
    )
    trial = study.ask()

    def choose(param: Param) -> Any:
        return trial._suggest(param.name, optuna_distribution(param.distribution.latent()))

    return space.draw(choose, fields)


def _sampler(kind: str, space: Space, seed: int) -> Any:
    optuna = load_optuna()
    if kind == "random":
        return optuna.samplers.RandomSampler(seed=seed)
    if kind == "gp":
        return optuna.samplers.GPSampler(
            seed=seed, n_startup_trials=STARTUP, warn_independent_sampling=False
        )
    return optuna.samplers.TPESampler(
        seed=seed,
        n_startup_trials=STARTUP,
        multivariate=True,
        group=space.is_conditional,
        constant_liar=True,
    )


def worst_value(plan: Plan, trials: Sequence[Trial]) -> float:
    """What a failed trial counts as: the worst of the others."""
    values = [trial.value for trial in trials if trial.value is not None]
    pick = min if directions(plan)[0] == "maximize" else max
    return pick(values, default=0.0)


def frozen(
    trial: Trial, space: Space, plan: Plan, worst: float, *, is_pending: bool = False
) -> Any:
    """A trial for the study in memory. Latents outside of a narrowed range are moved into it."""
    from optuna.trial import FrozenTrial, TrialState

    kinds = {n: optuna_distribution(space.get(n).distribution.latent()) for n in trial.latents}
    params = {n: inside(v, space.get(n).distribution.latent()) for n, v in trial.latents.items()}
    now = datetime(2000, 1, 1)
    state, values = TrialState.COMPLETE, [trial.value if trial.value is not None else worst]
    if trial.state == FAILED:
        values = [worst]
    values += [trial.cost] if plan.cost is not None else []
    rungs: dict[int, float] = {}
    if is_pending:
        state, values = TrialState.RUNNING, []
    elif trial.state == PRUNED and plan.sampler != "gp":
        rungs = {int(trial.attrs.get("rung", 0)): values[0]}
        state, values = TrialState.PRUNED, []
    return FrozenTrial(
        number=trial.number, state=state, value=None, values=values or None, datetime_start=now,
        datetime_complete=None if is_pending else now, params=params, distributions=kinds,
        user_attrs={}, system_attrs={}, intermediate_values=rungs, trial_id=trial.number,
    )  # fmt: skip


def inside(value: Any, latent: Latent) -> Any:
    if isinstance(latent, Options):
        return value if value in latent.options else latent.options[0]
    clamped = min(max(value, latent.low), latent.high)
    return int(clamped) if latent.is_int else clamped


def ranked(plan: Plan, trials: Sequence[Trial]) -> list[Trial]:
    """Trials with a value, best first; of equal ones the one with fewer env steps."""
    sign = -1.0 if directions(plan)[0] == "maximize" else 1.0
    valued = [trial for trial in trials if trial.state == COMPLETE and trial.value is not None]
    return sorted(
        valued,
        key=lambda t: (sign * (t.value or 0.0), t.attrs.get("env_steps") or 0, t.number),
    )
