"""Search from coarse to fine: a grid, then the neighbourhood of its best, then a closer one."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from gymnasium_solver.experiments.search.cma import from_unit
from gymnasium_solver.experiments.search.distributions import Options
from gymnasium_solver.experiments.search.grid import grid
from gymnasium_solver.experiments.search.journal import Trial
from gymnasium_solver.experiments.search.models import from_optuna, ranked
from gymnasium_solver.experiments.search.narrow import Narrowed
from gymnasium_solver.experiments.search.plan import Plan
from gymnasium_solver.experiments.search.space import Param, Space, Values
from gymnasium_solver.training.seeds import derive

STAGES = (0.3, 0.5, 0.2)
"""Shares of the trials: a coarse grid, a search near the best tenth, a finer one."""
SPREADS = (2.0, 1.0)
"""Half-widths of the two ranges, in standard deviations of the best trials."""
BEST = 0.1


def stage_ends(plan: Plan) -> list[int]:
    """The trial with which the second stage begins, and the third."""
    trials = plan.trials or 0
    first = max(2, round(trials * STAGES[0]))
    return [first, max(first + 1, round(trials * (STAGES[0] + STAGES[1])))]


def stage_of(plan: Plan, number: int) -> int:
    """0, 1 or 2."""
    return sum(end <= number for end in stage_ends(plan))


def suggest_stages(
    plan: Plan,
    space: Space,
    fields: Mapping[str, Any],
    trials: Sequence[Trial],
    seen: int,
    seed: int,
) -> Values:
    number = len(trials)
    stage = stage_of(plan, number)
    if stage == 0:
        return _coarse(plan, space, fields, number)
    start = stage_ends(plan)[stage - 1]
    narrow = narrowed(plan, space, trials[:start], SPREADS[stage - 1])
    names = {param.name for param in narrow.params}
    near = [trial for trial in trials[:seen] if _is_inside(trial, narrow)]
    chosen = from_optuna("tpe", plan, narrow, fields, near, trials[seen:], seed)
    fixed = {p.name: p.distribution for p in space.params if p.name not in names}
    best = ranked(plan, trials[:start])
    return space.draw(
        lambda p: chosen[p.name] if p.name in chosen else best[0].latents.get(
            p.name, fixed[p.name].grid(1)[0]), fields)  # fmt: skip


def _coarse(plan: Plan, space: Space, fields: Mapping[str, Any], number: int) -> Values:
    """A cell of the finest grid with at least three points each that fits the first stage. Where
    none fits, a Latin hypercube: each parameter takes evenly spread values, in random order."""
    size = stage_ends(plan)[0]
    for points in (5, 4, 3):
        n_cells = math.prod(len(param.distribution.grid(points)) for param in space.params)
        if n_cells <= size:
            cells = grid(space, fields, points)
            if number < len(cells):
                return cells[number]
            break
    rng = np.random.default_rng(derive(plan.seed, "coarse"))
    orders = {param.name: rng.permutation(size) for param in space.params}
    jitters = {param.name: rng.random(size) for param in space.params}

    def choose(param: Param) -> Any:
        latent = param.distribution.latent()
        row = number % size
        place = (orders[param.name][row] + jitters[param.name][row]) / size
        if isinstance(latent, Options):
            return latent.options[int(place * len(latent.options))]
        return from_unit(place, latent)

    return space.draw(choose, fields)


def narrowed(plan: Plan, space: Space, trials: Sequence[Trial], spread: float) -> Space:
    """The space around the best tenth of the trials: mean +- `spread` standard deviations of the
    latents, and the options that occur there."""
    best = [t for t in ranked(plan, trials) if plan.own_first or not t.attrs.get("own")]
    best = best[: max(3, round(len(trials) * BEST))]
    params = []
    for param in space.params:
        seen = [trial.latents[param.name] for trial in best if param.name in trial.latents]
        inner = Narrowed.around(param.distribution, seen, spread)
        params.append(Param(param.name, inner, param.when))
    return Space(tuple(params))


def _is_inside(trial: Trial, space: Space) -> bool:
    for name, value in trial.latents.items():
        latent = space.get(name).distribution.latent()
        if isinstance(latent, Options):
            if value not in latent.options:
                return False
        elif not latent.low <= value <= latent.high:
            return False
    return True
