"""Runs a sweep: suggests trials, trains them side by side, and ends with a final on fresh seeds.

    Coordinator(sweep).run()

One coordinator works on a sweep at a time (the folder's lock). It alone writes the journal. A trial
is a plain `gsolve train` in a folder that is known before the start, so after any kill the next
coordinator attaches to trials that still run, collects finished ones, resumes broken ones exactly
and starts those that had only been suggested. Suggestions and decisions depend on recorded results
alone (samplers.py, rules.py): the sweep comes to the same end as without the kill.
"""

import shutil
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from statistics import fmean
from typing import Any

from gymnasium_solver.config.load import config_dict, dump_config
from gymnasium_solver.config.schema import Config
from gymnasium_solver.errors import ConfigError, GsolveError, RunError
from gymnasium_solver.experiments import pool as pools
from gymnasium_solver.experiments.pool import Pool, Task
from gymnasium_solver.experiments.search import final, rules
from gymnasium_solver.experiments.search.folder import Sweep
from gymnasium_solver.experiments.search.journal import (
    COMPLETE,
    FAILED,
    PRUNED,
    Journal,
    Trial,
)
from gymnasium_solver.experiments.search.models import directions, ranked
from gymnasium_solver.experiments.search.objective import Measured, curve, measure
from gymnasium_solver.experiments.search.plan import Plan
from gymnasium_solver.experiments.search.prepare import budget_of, own_values
from gymnasium_solver.experiments.search.samplers import first_pending, suggest
from gymnasium_solver.experiments.search.space import overrides
from gymnasium_solver.runs.files import locked, write_atomic
from gymnasium_solver.runs.run import Run, is_run
from gymnasium_solver.training.prepare import load_config
from gymnasium_solver.training.seeds import derive

POLL_S = 0.2
MOST_FAILURES = 10
"""Trials that may fail in a row from the start, before the sweep gives up."""

OnChange = Callable[["Coordinator"], None]


class Coordinator:
    """`on_change` is called after every step in which something happened, and `on_poll` at every
    poll."""

    def __init__(
        self,
        sweep: Sweep,
        *,
        jobs: int | None = None,
        on_change: OnChange | None = None,
        on_poll: OnChange | None = None,
        backend: pools.Backend | None = None,
    ) -> None:
        self.sweep = sweep
        self.plan: Plan = sweep.plan()
        self.space = self.plan.space()
        self.config: Config = load_config(str(sweep.base_path))
        self.fields = config_dict(self.config)
        self.budget = budget_of(self.config)
        self.pool = Pool(jobs or self.plan.jobs, backend=backend)
        self.tasks: dict[Path, Task] = {}
        self.trials: list[Trial] = []
        self.phase = "search"
        self.on_change, self.on_poll = on_change, on_poll

    def run(self) -> dict[str, Any]:
        """Search, hold the final, and return the result."""
        with locked(self.sweep.path), Journal(self.sweep.path, directions(self.plan)) as journal:
            self.journal = journal
            self.trials = journal.trials()
            try:
                result = self._work()
            except BaseException:
                self.pool.stop_all()
                raise
        self.phase = "over"
        self._tell(True)
        return result

    def _work(self) -> dict[str, Any]:
        if self.plan.sampler == "pbt":
            from gymnasium_solver.experiments.search.pbt import Population

            self.phase = "population"
            return self._record(Population(self).run())
        self._search()
        self.phase = "final"
        return self._final()

    # -- the search -------------------------------------------------------------------------------

    def _search(self) -> None:
        while True:
            running = [trial for trial in self.trials if not trial.is_over]
            changed = sum(map(self._advance, running)) > 0  # all of them, so not any()
            while self._may_suggest():
                self._begin()
                changed = True
            if self._is_searched:
                return
            changed |= bool(self.pool.step())
            self._tell(changed)
            if not changed:
                time.sleep(POLL_S)

    @property
    def _is_searched(self) -> bool:
        if any(not trial.is_over for trial in self.trials):
            return False
        return len(self.trials) >= (self.plan.trials or 0) or self._target_reached()

    def _target_reached(self) -> bool:
        """Has a trial reached the target that the next suggestion can see?"""
        target = self.plan.metric.target
        if target is None:
            return False
        seen = self.trials[: first_pending(self.plan, len(self.trials))]
        values = [trial.value for trial in seen if trial.state == COMPLETE]
        is_max = self.plan.metric.goal == "maximize"
        return any((v >= target if is_max else v <= target) for v in values if v is not None)

    def _may_suggest(self) -> bool:
        number = len(self.trials)
        if number >= (self.plan.trials or 0) or self._target_reached():
            return False
        if sum(not trial.is_over for trial in self.trials) >= self.pool.jobs:
            return False
        return all(trial.is_over for trial in self.trials[: first_pending(self.plan, number)])

    def _begin(self) -> None:
        """Suggest a trial, record it, and start its first training."""
        number = len(self.trials)
        self._give_up_if_all_fail()
        is_own = number == 0 and self.plan.sampler != "grid"
        if is_own:
            latents = own_values(self.space, self.fields)
        else:
            latents = suggest(self.plan, self.space, self.fields, self.trials)
        attrs = {"own": True} if is_own else {}
        trial = self.journal.create(number, latents, self.space, **attrs)
        self.trials.append(trial)
        self._advance(trial)

    def _give_up_if_all_fail(self) -> None:
        if len(self.trials) >= MOST_FAILURES and all(t.state == FAILED for t in self.trials):
            reason = self.trials[-1].attrs.get("reason")
            raise RunError(f"all of the first {len(self.trials)} trials failed: {reason}")

    def seed_of(self, number: int, index: int) -> int:
        """Every trial has seeds of its own, which no other and not the final have."""
        return derive(self.plan.seed, "trial", number, index)

    # -- one trial --------------------------------------------------------------------------------

    def _advance(self, trial: Trial) -> bool:
        """Do what is due for a trial; True if it has ended."""
        try:
            config_path = self._write_config(trial)
        except ConfigError as error:
            self._finish(trial, FAILED, None, reason=str(error).splitlines()[-1].strip())
            return True
        measured: list[Measured] = []
        seen = self.trials[: first_pending(self.plan, trial.number)]
        for index in range(self.plan.seeds):
            folder = self.sweep.run_dir(trial.number, index)
            if index == 0 and (ended := self._prune(trial, folder, seen)) is not None:
                return ended
            values = [one.value for one in measured]
            if index and rules.is_hopeless(self.plan, values, seen):
                break
            task = self._task(folder, config_path, self.seed_of(trial.number, index))
            if task.state == pools.FAILED:
                self._finish(trial, FAILED, None, reason=task.reason)
                return True
            if task.state != pools.FINISHED:
                return False
            try:
                measured.append(measure(folder, self.plan.metric, self.budget))
            except GsolveError as error:
                self._finish(trial, FAILED, None, reason=str(error))
                return True
        self._complete(trial, measured)
        return True

    def _complete(self, trial: Trial, measured: list[Measured]) -> None:
        env_steps = fmean(one.env_steps for one in measured)
        cost = env_steps
        if self.plan.cost == "wall_s":
            cost = fmean(one.wall_s for one in measured)
        scores = [one.score for one in measured]
        attrs: dict[str, Any] = {
            "values": [one.value for one in measured],
            "scores": scores,
            "solved": sum(bool(one.solved) for one in measured),
            "env_steps": env_steps,
            "cost": cost,
        }
        if self.plan.prune.rule != "off":
            attrs["rungs"] = self._rungs(self.sweep.run_dir(trial.number, 0))
        self._finish(trial, COMPLETE, fmean(one.value for one in measured), **attrs)

    def _finish(self, trial: Trial, state: str, value: float | None, **attrs: Any) -> None:
        self.journal.finish(trial, state, value, **attrs)

    def _rungs(self, folder: Path) -> dict[str, float]:
        if not is_run(folder):
            return {}
        points = curve(Run(folder), rules.watched_metric(self.plan))
        return rules.values_at(self.plan.prune, self.budget, points)

    def _prune(self, trial: Trial, folder: Path, seen: list[Trial]) -> bool | None:
        """End the trial if the rule says so, by SIGTERM; None: the rule lets it go on."""
        if self.plan.prune.rule == "off":
            return None
        reached = self._rungs(folder)
        rung = rules.pruned_at(self.plan, reached, seen)
        if rung is None:
            return None
        task = self.tasks.get(folder)
        if task is None and self.pool.backend.is_running(folder):  # of an earlier coordinator
            path = self._write_config(trial)
            task = self._task(folder, path, self.seed_of(trial.number, 0))
        if task is not None and not task.is_over:
            if not task.is_stopping:
                self.pool.stop(task)
            return False
        kept = {place: value for place, value in reached.items() if float(place) <= float(rung)}
        steps = float(rung) if self.plan.prune.unit == "env_steps" else None
        self._finish(
            trial, PRUNED, reached[rung], rung=int(float(rung)), rungs=kept, env_steps=steps
        )
        return True

    def _write_config(self, trial: Trial) -> Path:
        """The trial's config as a file, from which anybody can repeat it."""
        path = self.sweep.trial_dir(trial.number) / "trial.yaml"
        if not path.exists():
            config = self.trial_config(trial)
            path.parent.mkdir(parents=True, exist_ok=True)
            write_atomic(path, dump_config(config).encode())
        return path

    def trial_config(self, trial: Trial) -> Config:
        if trial.attrs.get("own"):
            return self.config
        values = self.space.decode(trial.latents)
        return load_config(str(self.sweep.base_path), overrides=overrides(values, self.fields))

    def _task(self, folder: Path, config: Path, seed: int) -> Task:
        task = self.tasks.get(folder)
        if task is None:
            label = str(folder.relative_to(self.sweep.path))
            words = (str(config), "--seed", str(seed))
            task = self.tasks[folder] = self.pool.add(Task(folder, words, label))
        return task

    # -- the final --------------------------------------------------------------------------------

    def _final(self) -> dict[str, Any]:
        finalists = final.candidates(self.plan, self.trials)
        own = final.own_of(self.trials) if finalists else []
        choice, seeds = final.choice_seeds(self.plan, finalists), final.final_seeds(self.plan)
        listed = {"trials": [*finalists, *own], "choice_seeds": choice, "seeds": seeds}
        self.sweep.write("final.json", listed)
        self._train(finalists, self.sweep.choice_dir, choice)
        known = (self.sweep, self.plan, self.trials)
        chosen, _ = final.chosen_of(*known, finalists, self.budget)
        self._train([*chosen, *own], self.sweep.final_dir, seeds)
        return self._record(final.result(*known, self.budget))

    def _train(
        self, numbers: list[int], folder: Callable[[int, int], Path], seeds: list[int]
    ) -> None:
        """Train the configs of some trials on the same seeds, to their ends."""
        tasks: list[Task] = []
        for number in numbers:
            config = self._write_config(self.trials[number])
            tasks += [self._task(folder(number, i), config, seed) for i, seed in enumerate(seeds)]
        self.wait(tasks)

    def wait(self, tasks: list[Task]) -> None:
        """Train these to their ends."""
        while not all(task.is_over for task in tasks):
            changed = bool(self.pool.step())
            self._tell(changed)
            if not changed:
                time.sleep(POLL_S)

    def _record(self, result: dict[str, Any]) -> dict[str, Any]:
        self.sweep.write("result.json", result)
        if self.plan.keep is not None:
            self._drop_checkpoints([t.number for t in ranked(self.plan, self.trials)])
        from gymnasium_solver.experiments.search.report import write_report

        with suppress(OSError):
            write_report(self.sweep, self.plan, self.trials, result)
        return result

    def _drop_checkpoints(self, order: list[int]) -> None:
        """Free the disk: scores, metrics and configs of all trials stay."""
        kept = order[: self.plan.keep]
        for trial in self.trials:
            if trial.number not in kept:
                for checkpoints in self.sweep.trial_dir(trial.number).glob("seed*/checkpoints"):
                    shutil.rmtree(checkpoints, ignore_errors=True)
                    checkpoints.mkdir(exist_ok=True)

    def _tell(self, changed: bool) -> None:
        if changed and self.on_change is not None:
            self.on_change(self)
        if self.on_poll is not None:
            self.on_poll(self)
