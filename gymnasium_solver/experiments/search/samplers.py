"""Samplers: from the results so far to the parameters of the next trial.

`suggest` is a pure function of the plan, the trial's number and the results that it may see: a
sweep that was killed suggests the same when it goes on. Optuna's samplers work on a study in memory
that is built for each suggestion; CMA-ES is replayed from the results. A trial may see the results
of the trials before `first_pending(number)`; the ones after that count as running, even if one has
finished meanwhile.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from statistics import fmean, pstdev
from typing import Any

import numpy as np

from gymnasium_solver.experiments.search import journal
from gymnasium_solver.experiments.search.journal import COMPLETE, FAILED, PRUNED, Trial, load_optuna
from gymnasium_solver.experiments.search.plan import Plan
from gymnasium_solver.experiments.search.ranges import Latent, Numbers, Options
from gymnasium_solver.experiments.search.ranking import ranked
from gymnasium_solver.experiments.search.space import Space, Values
from gymnasium_solver.training.seeds import derive

STARTUP = 10  # random trials before a model is fitted
STAGES = (0.3, 0.5, 0.2)
"""Shares of the trials: a coarse grid, a search near the best tenth, a finer one."""
SPREADS = (2.0, 1.0)  # half-widths of the two ranges, in standard deviations of the best trials
BEST, LEAST = 0.1, 0.1
"""Share of the trials that are the best; share of the whole range that a narrowed one keeps at
least, per standard deviation."""

Fields = Mapping[str, Any]  # the config, for conditions on fields that are not searched


def first_pending(plan: Plan, number: int) -> int:
    """The trials before this one are seen, and must be over, when `number` is suggested."""
    if plan.sampler == "cmaes":
        size = _cma_population(plan)
        return 1 + (number - 1) // size * size if number else 0
    seen = max(0, number - plan.unseen + 1)
    if plan.sampler == "stages":
        return max(seen, max(end for end in (0, *stage_ends(plan)) if end <= number))
    is_blind = plan.sampler in ("grid", "random")
    waits = plan.metric.target is not None or plan.prune.rule != "off" or plan.seeds > 1
    return 0 if is_blind and not waits else seen


def suggest(plan: Plan, fields: Fields, trials: Sequence[Trial]) -> Values:
    """The latents of the next trial, after `trials`."""
    number = len(trials)
    seen = first_pending(plan, number)
    if plan.sampler == "grid":
        return plan.space().grid(plan.grid_points, fields)[number]
    if plan.sampler == "cmaes":
        return _from_cma(plan, fields, trials[:seen], number)
    if plan.sampler == "stages":
        stage = sum(end <= number for end in stage_ends(plan))
        if stage == 0:
            return _coarse(plan, fields, number)
        narrow = _narrowed(plan, trials[: stage_ends(plan)[stage - 1]], SPREADS[stage - 1])
        return _from_optuna("tpe", plan, narrow, fields, trials, seen)
    kind = "random" if plan.sampler == "gp" and seen < STARTUP else plan.sampler
    return _from_optuna(kind, plan, plan.space(), fields, trials, seen)


def random_values(plan: Plan, fields: Fields, *stream: str | int) -> Values:
    """Latents drawn at random, from a stream of the sweep's seed."""
    study = load_optuna().create_study(sampler=_optuna_sampler("random", False, plan, *stream))
    return _asked(study, plan.space(), fields)


# -- Optuna's -------------------------------------------------------------------------------------


def _from_optuna(
    kind: str, plan: Plan, space: Space, fields: Fields, trials: Sequence[Trial], seen: int
) -> Values:
    """A suggestion for `space`, which may be narrower than that of the trials."""
    sampler = _optuna_sampler(kind, space.is_conditional, plan, "suggest", len(trials))
    study = load_optuna().create_study(sampler=sampler, directions=plan.directions)
    worst = _worst_value(plan, trials[:seen])
    names = {param.name for param in space.params}
    study.add_trials(
        _frozen(trial, space, plan, worst, is_pending=trial.number >= seen)
        for trial in trials
        if trial.latents.keys() <= names
        and (plan.own_first or not trial.attrs.get("own"))
        # What is outside of a narrowed range says nothing about it.
        and (trial.number >= seen or _is_inside(trial, space))
    )
    return _asked(study, space, fields)


def _asked(study: Any, space: Space, fields: Fields) -> Values:
    trial = study.ask()
    return space.draw(lambda p: trial._suggest(p.name, journal.distribution(p.latent())), fields)


def _optuna_sampler(kind: str, is_conditional: bool, plan: Plan, *stream: str | int) -> Any:
    samplers, seed = load_optuna().samplers, derive(plan.seed, *stream)
    if kind == "random":
        return samplers.RandomSampler(seed=seed)
    if kind == "gp":
        return samplers.GPSampler(
            seed=seed, n_startup_trials=STARTUP, warn_independent_sampling=False
        )
    return samplers.TPESampler(
        seed=seed, n_startup_trials=STARTUP, multivariate=True, group=is_conditional,
        constant_liar=True,
    )  # fmt: skip


def _worst_value(plan: Plan, trials: Sequence[Trial]) -> float:
    """What a failed trial counts as: the worst of the others."""
    values = [trial.value for trial in trials if trial.value is not None]
    return min(values, key=lambda value: plan.sign * value, default=0.0)


def _frozen(trial: Trial, space: Space, plan: Plan, worst: float, *, is_pending: bool) -> Any:
    """A trial for the study in memory. Latents outside of a narrowed range are moved into it."""
    from optuna.trial import TrialState, create_trial

    latents = {name: space.get(name).latent() for name in trial.latents}
    value = trial.value if trial.value is not None and trial.state != FAILED else worst
    state, values = TrialState.COMPLETE, [value] + [trial.cost] * (plan.cost is not None)
    rungs: dict[int, float] = {}
    if is_pending:
        state, values = TrialState.RUNNING, []
    elif trial.state == PRUNED and plan.sampler != "gp":
        rungs = {int(trial.attrs.get("rung", 0)): value}
        state, values = TrialState.PRUNED, []
    return create_trial(
        state=state,
        values=values or None,
        params={name: latents[name].clamp(at) for name, at in trial.latents.items()},
        distributions={name: journal.distribution(latent) for name, latent in latents.items()},
        intermediate_values=rungs,
    )


# -- CMA-ES ---------------------------------------------------------------------------------------


def _cma_population(plan: Plan) -> int:
    return max(5, 4 + int(3 * math.log(max(len(plan.params), 1))))


def _from_cma(plan: Plan, fields: Fields, done: Sequence[Trial], number: int) -> Values:
    """CMA-ES, replayed from the results: generation after generation, each of which must be over
    before the next begins. Choices and conditional parameters are drawn at random."""
    import cmaes  # type: ignore[import-untyped]

    size, space = _cma_population(plan), plan.space()
    numeric = {p.name: p.latent() for p in space.params if isinstance(p.latent(), Numbers)}
    random = random_values(plan, fields, "cma", number)
    if len(numeric) < 2 or number == 0:
        return random
    own = done[0].latents if done and plan.own_first else {}
    shares = [latent.share(own[n]) if n in own else 0.5 for n, latent in numeric.items()]
    state = cmaes.CMA(
        mean=np.array(shares), sigma=0.3, bounds=np.array([[0.0, 1.0]] * len(numeric)),
        seed=derive(plan.seed, "cma"), population_size=size,
    )  # fmt: skip
    worst = _worst_value(plan, done)
    generation, index = divmod(number - 1, size)
    for start in range(1, 1 + generation * size, size):
        results = [t.value if t.state in (COMPLETE, PRUNED) and t.value is not None else worst
                   for t in done[start : start + size]]  # fmt: skip
        state.tell([(state.ask(), -plan.sign * value) for value in results])
    point = [state.ask() for _ in range(size)][index]
    chosen = {n: latent.at(float(x)) for (n, latent), x in zip(numeric.items(), point, strict=True)}
    return space.draw(lambda p: chosen.get(p.name, random.get(p.name)), fields)


# -- from coarse to fine: a grid, then the neighbourhood of its best, then a closer one -----------


def stage_ends(plan: Plan) -> list[int]:
    """The trial with which the second stage begins, and the third."""
    trials = plan.trials or 0
    first = max(2, round(trials * STAGES[0]))
    return [first, max(first + 1, round(trials * (STAGES[0] + STAGES[1])))]


def _coarse(plan: Plan, fields: Fields, number: int) -> Values:
    """A cell of the finest grid with at least three points each that fits the first stage. Where
    none fits, a Latin hypercube: each parameter takes evenly spread values, in random order."""
    size, space = stage_ends(plan)[0], plan.space()
    for points in (5, 4, 3):
        n_cells = math.prod(len(param.distribution.grid(points)) for param in space.params)
        if n_cells <= size:
            cells = space.grid(points, fields)
            if number < len(cells):
                return cells[number]
            break
    rng = np.random.default_rng(derive(plan.seed, "coarse"))
    orders = {param.name: rng.permutation(size) for param in space.params}
    jitters = {param.name: rng.random(size) for param in space.params}
    row = number % size
    return space.draw(
        lambda p: p.latent().at((orders[p.name][row] + jitters[p.name][row]) / size), fields
    )


def _narrowed(plan: Plan, trials: Sequence[Trial], spread: float) -> Space:
    """The space around the best tenth of the trials: mean +- `spread` standard deviations of the
    latents, and the options that occur there."""
    best = [t for t in ranked(plan, trials) if plan.own_first or not t.attrs.get("own")]
    best = best[: max(3, round(len(trials) * BEST))]
    params = []
    for param in plan.space().params:
        seen = [trial.latents[param.name] for trial in best if param.name in trial.latents]
        params.append(replace(param, part=_around(param.latent(), seen, spread)))
    return Space(tuple(params))


def _around(latent: Latent, seen: Sequence[Any], deviations: float) -> Latent:
    """The part of a range within some standard deviations of these latents; all of it without."""
    if not seen:
        return latent
    if isinstance(latent, Options):
        return Options(tuple(option for option in latent.options if option in seen))
    shares = [latent.share(at) for at in seen]
    half = max(deviations * pstdev(shares), LEAST * deviations / 2)
    ends = [latent.at(fmean(shares) - half), latent.at(fmean(shares) + half)]
    return Numbers(ends[0], ends[1], latent.is_log, latent.is_int)


def _is_inside(trial: Trial, space: Space) -> bool:
    return all(space.get(name).latent().clamp(at) == at for name, at in trial.latents.items())
