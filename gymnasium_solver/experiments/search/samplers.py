"""Samplers: from the results so far to the parameters of the next trial.

`suggest` is a pure function of the plan, the trial's number and the results that it may see: a
sweep that was killed suggests the same when it goes on. Optuna's samplers work on a study in
memory that is built for each suggestion, with a generator seeded by the trial's number. A trial
may see the results of the trials before `first_pending(number)`; the ones after that count as
running, even if one has finished meanwhile.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from gymnasium_solver.errors import MissingError
from gymnasium_solver.experiments.search.cma import population, suggest_cma
from gymnasium_solver.experiments.search.distributions import Options
from gymnasium_solver.experiments.search.grid import grid
from gymnasium_solver.experiments.search.journal import Trial
from gymnasium_solver.experiments.search.models import STARTUP, from_optuna
from gymnasium_solver.experiments.search.plan import Plan
from gymnasium_solver.experiments.search.space import Space, Values
from gymnasium_solver.experiments.search.stages import stage_ends, suggest_stages
from gymnasium_solver.training.seeds import derive

MOST_GP = 250


def choose_sampler(plan: Plan, space: Space) -> str:
    """What `auto` means: a model that suits the parameters and the number of trials."""
    if plan.sampler != "auto":
        return plan.sampler
    has_choices = any(isinstance(p.distribution.latent(), Options) for p in space.params)
    if has_choices or space.is_conditional or plan.cost is not None or not has_scipy():
        return "tpe"
    return "gp" if (plan.trials or 0) < MOST_GP else "cmaes"


def has_scipy() -> bool:
    from importlib.util import find_spec

    return find_spec("scipy") is not None


def check_sampler(name: str) -> None:
    """MissingError if a package of this sampler is not installed."""
    from importlib.util import find_spec

    needed = {"gp": "scipy", "cmaes": "cmaes"}.get(name)
    if needed is not None and find_spec(needed) is None:
        raise MissingError(f"the sampler {name} needs {needed}: pip install {needed}")


def lag_of(plan: Plan) -> int:
    """How many of the newest trials a suggestion does not see, at least."""
    return plan.lag or (1 if plan.jobs == 1 else 2 * plan.jobs)


def first_pending(plan: Plan, number: int) -> int:
    """The trials before this one are seen, and must be over, when `number` is suggested."""
    if plan.sampler == "cmaes":
        return 1 + (number - 1) // population(plan) * population(plan) if number else 0
    seen = max(0, number - lag_of(plan) + 1)
    if plan.sampler == "stages":
        return max(seen, max(end for end in (0, *stage_ends(plan)) if end <= number))
    is_blind = plan.sampler in ("grid", "random")
    waits = plan.metric.target is not None or plan.prune.rule != "off" or plan.seeds > 1
    return 0 if is_blind and not waits else seen


def suggest(plan: Plan, space: Space, fields: Mapping[str, Any], trials: Sequence[Trial]) -> Values:
    """The latents of the next trial, after `trials`. `fields`: the config, for conditions."""
    number = len(trials)
    seen = first_pending(plan, number)
    done, pending = trials[:seen], trials[seen:]
    seed = derive(plan.seed, "suggest", number)
    if plan.sampler == "grid":
        return grid(space, fields, plan.grid_points)[number]
    if plan.sampler == "cmaes":
        return suggest_cma(plan, space, fields, done, number)
    if plan.sampler == "stages":
        return suggest_stages(plan, space, fields, trials, seen, seed)
    kind = plan.sampler
    if kind == "gp" and len(done) < STARTUP:
        kind = "random"
    return from_optuna(kind, plan, space, fields, done, pending, seed)
