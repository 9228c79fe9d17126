"""Runs sweeps: `search_of(sweep).run()`, and `gs.sweep(...)` for Python."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from gymnasium_solver.errors import ConfigError
from gymnasium_solver.experiments.search import sweep_folder as folders
from gymnasium_solver.experiments.search.journal import Trial
from gymnasium_solver.experiments.search.pbt import Population
from gymnasium_solver.experiments.search.plan import prepare, read_plan
from gymnasium_solver.experiments.search.search import Search, TrialSearch
from gymnasium_solver.experiments.search.sweep_folder import Sweep, View
from gymnasium_solver.experiments.search.sweep_report import number_text, values_text
from gymnasium_solver.runs.run import runs_root
from gymnasium_solver.training.activity import sigterm_exits

OnTrial = Callable[[Trial], None]


def search_of(sweep: Sweep, **options: Any) -> Search:
    """What works on a sweep; `options` are those of `Search`."""
    kind = Population if sweep.plan().sampler == "pbt" else TrialSearch
    return kind(sweep, **options)


def sweep(
    target: str | None = None,
    params: Mapping[str, Any] | Sequence[str] | None = None,
    *,
    resume: str | None = None,
    trials: int | None = None,
    jobs: int = 1,
    sampler: str = "auto",
    metric: str | Mapping[str, Any] = "auto",
    seeds: int = 1,
    cost: str | None = None,
    prune: str | Mapping[str, Any] = "off",
    final: int | Mapping[str, Any] | None = None,
    seed: int = 0,
    progress: bool = False,
    on_trial: OnTrial | None = None,
    runs_dir: str | Path | None = None,
    trust: bool = False,
    **fields: Any,
) -> View:
    """Search the parameters of a config, and return the sweep with its result.

    `params` maps fields to ranges as `--param` writes them ("log:1e-5..1e-2"), to lists of values,
    or names fields whose own ranges are taken; None: the main fields of the algorithm. `fields` are
    set in all trials. `resume` continues a sweep instead. `on_trial(trial)` is called when a trial
    ends, and `progress` prints a line. `trust`: also import code that a config or a sweep made
    elsewhere names. SIGTERM saves and stops all trials and ends the program with the exit code 75;
    `resume` continues the sweep. The rest is as in `gsolve sweep --help`."""
    runs = runs_root(runs_dir)
    if resume is not None:
        if target is not None or params is not None or fields:
            raise ConfigError("resume= continues a sweep as it is: leave out target and params")
        folder = folders.find_sweep(resume, runs)
        folder.check_trust(trust)
    elif target is None:
        raise ConfigError("sweep() needs a config, such as sweep('CartPole-v1:ppo')")
    else:
        named = params if isinstance(params, Mapping) else dict.fromkeys(params or (), "")
        data: dict[str, Any] = {
            "config": target, "params": dict(named), "set": fields, "trials": trials, "jobs": jobs,
            "sampler": sampler, "seeds": seeds, "cost": cost, "seed": seed,
            "metric": dict(metric) if isinstance(metric, Mapping) else {"name": metric},
            "prune": dict(prune) if isinstance(prune, Mapping) else {"rule": prune},
        }  # fmt: skip
        if final is not None:
            data["final"] = dict(final) if isinstance(final, Mapping) else {"top": final}
        folder = folders.create_sweep(prepare(read_plan(data, "sweep()"), trust), runs)
    reported: set[int] = set()

    def report(search: Search) -> None:
        for trial in search.trials:
            if trial.is_over and trial.number not in reported:
                reported.add(trial.number)
                if on_trial is not None:
                    on_trial(trial)
                if progress:
                    values = values_text(search.space.decode(trial.latents))
                    print(f"trial {trial.number}: {number_text(trial.value)}  {values}")

    with sigterm_exits():
        search_of(folder, jobs=jobs if resume is None else None, on_change=report).run()
    return folders.view(str(folder.path))
