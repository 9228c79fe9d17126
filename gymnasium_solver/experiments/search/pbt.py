"""Population based training (Jaderberg et al. 2017): runs that copy the best among them.

All members train for an interval. Then the worst are replaced by copies of the best, whose searched
values are changed a little, and all train on: what comes out is a trained agent and a schedule of
its hyper-parameters. A copy is a copy of a run folder that is resumed with other values, so no
state is kept anywhere else; `pbt.json` has the history.
"""

import math
import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from gymnasium_solver.config.load import dump_config
from gymnasium_solver.errors import RunError
from gymnasium_solver.experiments import pool as pools
from gymnasium_solver.experiments.pool import Segment, Task
from gymnasium_solver.experiments.search.journal import COMPLETE, FAILED
from gymnasium_solver.experiments.search.plan import generation_ends, own_values
from gymnasium_solver.experiments.search.ranges import Options
from gymnasium_solver.experiments.search.ranking import curve, watched_metric
from gymnasium_solver.experiments.search.samplers import random_values
from gymnasium_solver.experiments.search.search import Search
from gymnasium_solver.experiments.search.space import Param, Values, overrides
from gymnasium_solver.experiments.search.sweep_folder import result_of
from gymnasium_solver.runs.files import write_atomic
from gymnasium_solver.runs.run import JOB_FILES, Run
from gymnasium_solver.training.prepare import load_config
from gymnasium_solver.training.seeds import derive

RESAMPLE = 0.25  # how often a copied choice is drawn anew
HISTORY = "pbt.json"


class Population(Search):
    """The members are the trials of the sweep."""

    phase = "population"

    def work(self) -> Iterator[bool]:
        self.size = self.plan.trials or 2
        self.epoch_steps = self.config.n_envs * self.config.n_steps
        self.ends = generation_ends(self.plan.pbt.interval, self.budget, self.epoch_steps)
        found = self.sweep.read(HISTORY) or {}
        self.history: list[dict[str, Any]] = found.get("generations", [])
        for number in range(len(self.trials), self.size):
            if number == 0:
                self.begin_trial(own_values(self.space, self.fields), own=True)
            else:
                self.begin_trial(random_values(self.plan, self.fields, "suggest", number))
        for generation in range(len(self.ends)):
            latents, sources = self._plan_of(generation)
            if generation >= len(self.history):
                tasks = [self._task(generation, i, latents, sources) for i in range(self.size)]
                yield from self.pool.waiting_for(tasks)
                values = [self._value(task) for task in tasks]
                if all(value is None for value in values):
                    reason = next(task.reason for task in tasks if task.reason)
                    raise RunError(f"all members of the population failed: {reason}")
                self.history.append({"values": values, "sources": sources, "latents": latents})
                self.sweep.write(HISTORY, {"generations": self.history})
            if generation:
                shutil.rmtree(self._folder(generation - 1, 0).parent, ignore_errors=True)
        self.result = self._finish()

    def _plan_of(self, generation: int) -> tuple[list[Values], list[int]]:
        """The values of all members in a generation, and whom each continues."""
        if generation == 0:
            return [dict(trial.latents) for trial in self.trials], list(range(self.size))
        before = self.history[generation - 1]
        scores = [-math.inf if v is None else self.plan.sign * v for v in before["values"]]
        order = sorted(range(self.size), key=lambda i: (-scores[i], i))
        n = max(1, round(self.size * self.plan.pbt.fraction))
        latents = [dict(values) for values in before["latents"]]
        sources = list(range(self.size))
        failed = [i for i in order if scores[i] == -math.inf]
        for member in {*order[-n:], *failed} - set(order[:1]):
            rng = np.random.default_rng(derive(self.plan.seed, "pbt", generation, member))
            alive = [i for i in order[:n] if scores[i] > -math.inf]
            source = alive[int(rng.integers(len(alive)))]
            if source != member:
                sources[member] = source
                latents[member] = self._changed(before["latents"][source], rng)
        return latents, sources

    def _changed(self, latents: Mapping[str, Any], rng: np.random.Generator) -> Values:
        def choose(param: Param) -> Any:
            if param.name not in latents:
                return param.distribution.encode(param.distribution.grid(1)[0])
            return perturbed(param, latents[param.name], self.plan.pbt.factor, rng)

        return self.space.draw(choose, self.fields)

    def _task(
        self, generation: int, member: int, latents: Sequence[Values], sources: Sequence[int]
    ) -> Task:
        folder = self._folder(generation, member)
        label = f"generation {generation + 1} of {len(self.ends)}, member {member}"
        values = self.space.decode(latents[member])
        changes = overrides(values, self.fields) if generation or member else {}
        if generation == 0:
            path = self.sweep.trial_dir(member) / "trial.yaml"
            changes |= {"max_epochs": self.ends[0], "max_env_steps": self.budget}
            config = load_config(str(self.sweep.base_path), overrides=changes)
            path.parent.mkdir(parents=True, exist_ok=True)
            write_atomic(path, dump_config(config).encode())
            seed = str(self.seed_of(member, 0))
            return self.pool.add(Task(folder, (str(path), "--seed", seed), label))
        if not folder.exists():
            copy_run(self._folder(generation - 1, sources[member]), folder)
        if sources[member] == member:
            changes = {}
        changes |= {"max_epochs": self.ends[generation]}
        return self.pool.add(Segment(folder, (), label, changes=tuple(changes.items())))

    def _folder(self, generation: int, member: int) -> Path:
        return self.sweep.path / "pbt" / f"gen{generation:03d}" / f"member{member:02d}"

    def _value(self, task: Task) -> float | None:
        """The last validation; None for a member that failed."""
        if task.state != pools.FINISHED:
            return None
        points = curve(Run(task.folder), watched_metric(self.plan))
        return points[-1][1] if points else None

    def _finish(self) -> dict[str, Any]:
        """Score the best member on fresh episodes, and record what all came to."""
        last = self.history[-1]
        for trial, value in zip(self.trials, last["values"], strict=True):
            if not trial.is_over:
                state = FAILED if value is None else COMPLETE
                self.journal.finish(trial, state, value, env_steps=self.budget, cost=self.budget)
        known = [i for i, value in enumerate(last["values"]) if value is not None]
        winner = max(known, key=lambda i: (self.plan.sign * last["values"][i], -i))
        folder = self._folder(len(self.ends) - 1, winner)
        return result_of(self.plan, self.trials, winner) | {
            "params": self.space.decode(last["latents"][winner]),
            "is_own": False,
            "run": str(folder),
            "fresh": _fresh_score(folder, derive(self.plan.seed, "final", 0)),
            "lineage": self._lineage(winner),
        }

    def _lineage(self, winner: int) -> list[dict[str, Any]]:
        """The values that led to the winner: from which env step on, from which member."""
        rows: list[dict[str, Any]] = []
        member = winner
        for generation in reversed(range(len(self.ends))):
            row = self.history[generation]
            start = 0 if generation == 0 else self.ends[generation - 1] * self.epoch_steps
            params = self.space.decode(row["latents"][member])
            rows.append({"env_steps": start, "member": member, "params": params})
            member = row["sources"][member]
        return rows[::-1]


def perturbed(param: Param, latent: Any, factor: float, rng: np.random.Generator) -> Any:
    """A copied value, a little larger or smaller; a choice sometimes drawn anew."""
    whole, kind = param.latent(), getattr(param.distribution, "kind", "choice")
    up = bool(rng.integers(2))
    if isinstance(whole, Options):
        drawn = whole.options[int(rng.integers(len(whole.options)))]
        return drawn if rng.random() < RESAMPLE else latent
    if kind == "pow2":
        moved = latent + (1 if up else -1)
    elif kind == "logit":
        moved = latent + (math.log(factor) if up else -math.log(factor))
    else:
        value = float(param.distribution.decode(latent))
        changed = value * factor if up else value / factor
        if isinstance(param.distribution.decode(latent), int):
            changed = round(changed) if round(changed) != value else value + (1 if up else -1)
        moved = param.distribution.encode(changed)
    return whole.clamp(moved)


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
    result = score(found, None, seed, {"judged": found.is_greedy()}).results["judged"]
    return {"mean": result.mean, "stderr": result.stderr, "episodes": result.episodes}
