"""Population based training (Jaderberg et al. 2017): runs that copy the best among them.

All members train for an interval. Then the worst are replaced by copies of the best, whose searched
values are changed a little, and all train on: what comes out is a trained agent and a schedule of
its hyper-parameters. A copy is a copy of a run folder that is resumed with other values, so no
state is kept anywhere else. `pbt.json` has the history:

    {"generations": [{"values": [...], "sources": [...], "latents": [...]}, ...]}
"""

import json
import math
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from gymnasium_solver.backends import local
from gymnasium_solver.config.load import dump_config
from gymnasium_solver.errors import RunError
from gymnasium_solver.experiments import pool as pools
from gymnasium_solver.experiments.pool import Task
from gymnasium_solver.experiments.search import rules
from gymnasium_solver.experiments.search.distributions import Logit, Options, Pow2
from gymnasium_solver.experiments.search.generations import generation_ends
from gymnasium_solver.experiments.search.journal import COMPLETE, FAILED
from gymnasium_solver.experiments.search.models import from_optuna
from gymnasium_solver.experiments.search.objective import curve
from gymnasium_solver.experiments.search.prepare import own_values
from gymnasium_solver.experiments.search.space import Param, Values, overrides
from gymnasium_solver.runs.files import write_atomic
from gymnasium_solver.runs.run import JOB_FILES, Run
from gymnasium_solver.training.prepare import load_config
from gymnasium_solver.training.seeds import derive

if TYPE_CHECKING:
    from gymnasium_solver.experiments.search.coordinator import Coordinator

RESAMPLE = 0.25
"""How often a copied choice is drawn anew."""
HISTORY = "pbt.json"


@dataclass
class Segment(Task):
    """A training that is continued from a copy, with other values."""

    changes: tuple[tuple[str, Any], ...] = ()

    @property
    def argv(self) -> list[str]:
        flags = [word for name, value in self.changes
                 for word in ("--set", f"{name}={json.dumps(value)}")]  # fmt: skip
        return local.gsolve("train", "--resume", str(self.folder), *flags, "--quiet", "--no-keys")


class Population:
    def __init__(self, coordinator: "Coordinator") -> None:
        self.base = coordinator
        config = coordinator.config
        epoch_steps = config.n_envs * config.n_steps
        self.size = coordinator.plan.trials or 2
        self.ends = generation_ends(coordinator.plan.pbt.interval, coordinator.budget, epoch_steps)
        self.history: list[dict[str, Any]] = (coordinator.sweep.read(HISTORY) or {}).get(
            "generations", []
        )

    def run(self) -> dict[str, Any]:
        """Train all generations and return the result."""
        self._begin()
        for generation in range(len(self.ends)):
            latents, sources = self._plan_of(generation)
            if generation >= len(self.history):
                tasks = [self._task(generation, i, latents, sources) for i in range(self.size)]
                self.base.wait(tasks)
                values = [self._value(task) for task in tasks]
                if all(math.isnan(value) for value in values):
                    reason = next(task.reason for task in tasks if task.reason)
                    raise RunError(f"all members of the population failed: {reason}")
                stored = [None if math.isnan(value) else value for value in values]
                row = {"values": stored, "sources": sources, "latents": latents}
                self.history.append(row)
                self.base.sweep.write(HISTORY, {"generations": self.history})
            if generation:
                shutil.rmtree(self._folder(generation - 1, 0).parent, ignore_errors=True)
        return self._finish()

    def _begin(self) -> None:
        """Record the members as trials: the config's own values, then random ones."""
        base = self.base
        for number in range(len(base.trials), self.size):
            if number == 0:
                latents = own_values(base.space, base.fields)
            else:
                seed = derive(base.plan.seed, "suggest", number)
                latents = from_optuna("random", base.plan, base.space, base.fields, (), (), seed)
            attrs = {"own": True} if number == 0 else {}
            base.trials.append(base.journal.create(number, latents, base.space, **attrs))

    def _plan_of(self, generation: int) -> tuple[list[Values], list[int]]:
        """The values of all members in a generation, and whom each continues."""
        if generation == 0:
            return [dict(trial.latents) for trial in self.base.trials], list(range(self.size))
        before = self.history[generation - 1]
        sign = 1.0 if self.base.plan.metric.goal == "maximize" else -1.0
        scores = [-math.inf if value is None else sign * value for value in before["values"]]
        order = sorted(range(self.size), key=lambda i: (-scores[i], i))
        n = max(1, round(self.size * self.base.plan.pbt.fraction))
        latents = [dict(values) for values in before["latents"]]
        sources = list(range(self.size))
        failed = [i for i in order if scores[i] == -math.inf]
        for member in {*order[-n:], *failed} - set(order[:1]):
            rng = np.random.default_rng(derive(self.base.plan.seed, "pbt", generation, member))
            alive = [i for i in order[:n] if scores[i] > -math.inf]
            source = alive[int(rng.integers(len(alive)))]
            if source != member:
                sources[member] = source
                latents[member] = self._changed(before["latents"][source], rng)
        return latents, sources

    def _changed(self, latents: Mapping[str, Any], rng: np.random.Generator) -> Values:
        factor = self.base.plan.pbt.factor

        def choose(param: Param) -> Any:
            if param.name not in latents:
                return param.distribution.encode(param.distribution.grid(1)[0])
            return perturbed(param, latents[param.name], factor, rng)

        return self.base.space.draw(choose, self.base.fields)

    def _task(
        self, generation: int, member: int, latents: Sequence[Values], sources: Sequence[int]
    ) -> Task:
        folder = self._folder(generation, member)
        label = f"generation {generation + 1} of {len(self.ends)}, member {member}"
        values = self.base.space.decode(latents[member])
        changes = overrides(values, self.base.fields) if generation or member else {}
        if generation == 0:
            path = self.base.sweep.trial_dir(member) / "trial.yaml"
            changes |= {"max_epochs": self.ends[0], "max_env_steps": self.base.budget}
            config = load_config(str(self.base.sweep.base_path), overrides=changes)
            path.parent.mkdir(parents=True, exist_ok=True)
            write_atomic(path, dump_config(config).encode())
            seed = str(self.base.seed_of(member, 0))
            return self.base.pool.add(Task(folder, (str(path), "--seed", seed), label))
        if not folder.exists():
            copy_run(self._folder(generation - 1, sources[member]), folder)
        if sources[member] == member:
            changes = {}
        changes |= {"max_epochs": self.ends[generation]}
        segment = Segment(folder, (), label, changes=tuple(changes.items()))
        return self.base.pool.add(segment)

    def _folder(self, generation: int, member: int) -> Path:
        return self.base.sweep.path / "pbt" / f"gen{generation:03d}" / f"member{member:02d}"

    def _value(self, task: Task) -> float:
        """The last validation; NaN for a member that failed."""
        if task.state != pools.FINISHED:
            return math.nan
        points = curve(Run(task.folder), rules.watched_metric(self.base.plan))
        return points[-1][1] if points else math.nan

    def _finish(self) -> dict[str, Any]:
        """Score the best member on fresh episodes, and record what all came to."""
        base, last = self.base, self.history[-1]
        sign = 1.0 if base.plan.metric.goal == "maximize" else -1.0
        for trial, value in zip(base.trials, last["values"], strict=True):
            if not trial.is_over:
                state = FAILED if value is None else COMPLETE
                base.journal.finish(trial, state, value, env_steps=base.budget, cost=base.budget)
        known = [i for i, value in enumerate(last["values"]) if value is not None]
        winner = max(known, key=lambda i: (sign * last["values"][i], -i))
        folder = self._folder(len(self.ends) - 1, winner)
        return {
            "metric": base.plan.metric.name,
            "goal": base.plan.metric.goal,
            "trials": self.size,
            "states": {"complete": len(known), "pruned": 0, "failed": self.size - len(known)},
            "winner": winner,
            "params": base.space.decode(last["latents"][winner]),
            "is_own": False,
            "final": [],
            "seeds": [],
            "verdict": None,
            "run": str(folder),
            "fresh": _fresh_score(folder, derive(base.plan.seed, "final", 0)),
            "lineage": self._lineage(winner),
            "env_steps": base.budget * self.size,
        }

    def _lineage(self, winner: int) -> list[dict[str, Any]]:
        """The values that led to the winner: from which env step on, from which member."""
        epoch_steps = self.base.config.n_envs * self.base.config.n_steps
        rows: list[dict[str, Any]] = []
        member = winner
        for generation in reversed(range(len(self.ends))):
            row = self.history[generation]
            start = 0 if generation == 0 else self.ends[generation - 1] * epoch_steps
            params = self.base.space.decode(row["latents"][member])
            rows.append({"env_steps": start, "member": member, "params": params})
            member = row["sources"][member]
        return rows[::-1]


def perturbed(param: Param, latent: Any, factor: float, rng: np.random.Generator) -> Any:
    """A copied value, a little larger or smaller; a choice sometimes drawn anew."""
    kind = param.distribution.latent()
    up = bool(rng.integers(2))
    if isinstance(kind, Options):
        drawn = kind.options[int(rng.integers(len(kind.options)))]
        return drawn if rng.random() < RESAMPLE else latent
    if isinstance(param.distribution, Pow2):
        moved = latent + (1 if up else -1)
    elif isinstance(param.distribution, Logit):
        moved = latent + (math.log(factor) if up else -math.log(factor))
    else:
        value = float(param.distribution.decode(latent))
        changed = value * factor if up else value / factor
        if isinstance(param.distribution.decode(latent), int):
            changed = round(changed) if round(changed) != value else value + (1 if up else -1)
        moved = param.distribution.encode(changed)
    inside = min(max(moved, kind.low), kind.high)
    return int(inside) if kind.is_int else inside


def copy_run(source: Path, target: Path) -> None:
    """Copy a run so that it can be continued as a run of its own; complete before it has its
    name."""
    temporary = target.with_name(f".{target.name}")
    shutil.rmtree(temporary, ignore_errors=True)
    skipped = shutil.ignore_patterns(*JOB_FILES, ".lock", "videos")
    shutil.copytree(source, temporary, symlinks=True, ignore=skipped)
    (temporary / "videos").mkdir()
    Run(temporary).update_meta(status="interrupted", id=target.name)
    temporary.rename(target)


def _fresh_score(folder: Path, seed: int) -> dict[str, Any]:
    """The score of a run's best checkpoint on episodes that had no part in choosing it."""
    from gymnasium_solver.training.score import score
    from gymnasium_solver.training.targets import find_target

    found = find_target(str(folder), folder.parent)
    result = score(found, None, seed, {"greedy": True}).results["greedy"]
    return {"mean": result.mean, "stderr": result.stderr, "episodes": result.episodes}


def lineage_fields(
    lineage: Sequence[Mapping[str, Any]], fields: Mapping[str, Any]
) -> dict[str, Any]:
    """The values of a lineage as config lines: stairs for numbers, the last value for the rest."""
    lines: dict[str, Any] = {}
    for name, last in lineage[-1]["params"].items():
        points: list[list[float]] = []
        for row in lineage:
            value = row["params"].get(name, last)
            if points and points[-1][1] == value:
                continue
            if points:
                points.append([max(row["env_steps"] - 1, points[-1][0] + 1), points[-1][1]])
            points.append([row["env_steps"], value])
        is_number = isinstance(last, int | float) and not isinstance(last, bool)
        if len(points) == 1 or not is_number or "." in name:
            lines |= overrides({name: last}, fields)
        else:
            lines[name] = {"schedule": "piecewise", "points": points}
    return lines
