"""CMA-ES, replayed from the results, so that no state has to be stored."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from gymnasium_solver.experiments.search.distributions import Latent, Options
from gymnasium_solver.experiments.search.journal import COMPLETE, PRUNED, Trial
from gymnasium_solver.experiments.search.models import directions, from_optuna, inside, worst_value
from gymnasium_solver.experiments.search.plan import Plan
from gymnasium_solver.experiments.search.space import Space, Values
from gymnasium_solver.training.seeds import derive


def population(plan: Plan) -> int:
    return max(5, 4 + int(3 * math.log(max(len(plan.params), 1))))


def suggest_cma(
    plan: Plan, space: Space, fields: Mapping[str, Any], done: Sequence[Trial], number: int
) -> Values:
    """CMA-ES, replayed from the results: generation after generation, each of which must be over
    before the next begins. Choices and conditional parameters are drawn at random."""
    import cmaes  # type: ignore[import-untyped]

    size = population(plan)
    numeric = [p for p in space.params if not isinstance(p.distribution.latent(), Options)]
    random = from_optuna("random", plan, space, fields, (), (), derive(plan.seed, "cma", number))
    if len(numeric) < 2:
        return random
    own = done[0].latents if done and plan.own_first else {}
    mean = np.array([_unit(own.get(p.name), p.distribution.latent()) for p in numeric])
    seed = derive(plan.seed, "cma")
    bounds = np.array([[0.0, 1.0]] * len(numeric))
    state = cmaes.CMA(mean=mean, sigma=0.3, bounds=bounds, seed=seed, population_size=size)
    sign = -1.0 if directions(plan)[0] == "maximize" else 1.0
    worst = worst_value(plan, done)
    for start in range(1, number + 1, size):
        points = [state.ask() for _ in range(size)]
        if number < start + size:
            point = points[number - start]
            break
        results = [t.value if t.state in (COMPLETE, PRUNED) and t.value is not None else worst
                   for t in done[start : start + size]]  # fmt: skip
        state.tell([(x, sign * value) for x, value in zip(points, results, strict=True)])
    else:  # the first trial, if it is not that of the config's own values
        return random
    chosen = {p.name: from_unit(float(x), p.distribution.latent())
              for p, x in zip(numeric, point, strict=True)}  # fmt: skip
    return space.draw(lambda p: chosen.get(p.name, random.get(p.name)), fields)


def _unit(value: Any, latent: Latent) -> float:
    """The place of a latent in its range, from 0 to 1."""
    assert not isinstance(latent, Options)
    if value is None:
        return 0.5
    low, high, at = latent.low, latent.high, float(value)
    if latent.is_log:
        low, high, at = math.log(low), math.log(high), math.log(at)
    return min(max((at - low) / (high - low), 0.0), 1.0)


def from_unit(place: float, latent: Latent) -> Any:
    assert not isinstance(latent, Options)
    low, high = latent.low, latent.high
    if latent.is_log:
        value = math.exp(math.log(low) + (math.log(high) - math.log(low)) * place)
    else:
        value = low + (high - low) * place
    return inside(round(value) if latent.is_int else value, latent)
