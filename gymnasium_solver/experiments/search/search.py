"""A sweep at work: suggests trials, trains them side by side, and ends with a final on fresh seeds.

One process works on a sweep at a time (the folder's lock). It alone writes the journal. A trial is
a plain `gsolve train` in a folder that is known before the start. Suggestions and decisions depend
on recorded results alone (samplers.py, ranking.py): a sweep that was killed comes to the same end.

The best score of many noisy trials is too good. In the final the best few are therefore trained
again on seeds that no trial had, which choose one of them. That one and the config's own values are
then trained on further seeds that had no part in any choice: only these scores are quoted and
judged.
"""

import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

from gymnasium_solver.config.load import config_dict, dump_config
from gymnasium_solver.config.schema import Config
from gymnasium_solver.errors import ConfigError, GsolveError, RunError
from gymnasium_solver.experiments import pool as pools
from gymnasium_solver.experiments import statistics as stats
from gymnasium_solver.experiments.pool import Pool, Task
from gymnasium_solver.experiments.search import ranking
from gymnasium_solver.experiments.search.journal import COMPLETE, FAILED, PRUNED, Journal, Trial
from gymnasium_solver.experiments.search.plan import Plan, budget_of, own_values
from gymnasium_solver.experiments.search.ranking import Measured, measure
from gymnasium_solver.experiments.search.samplers import first_pending, suggest
from gymnasium_solver.experiments.search.space import Values, overrides
from gymnasium_solver.experiments.search.sweep_folder import Sweep, View, result_of
from gymnasium_solver.experiments.search.sweep_report import sweep_page
from gymnasium_solver.experiments.statistics import FEWEST_SEEDS, LEVEL
from gymnasium_solver.runs.files import locked, write_atomic
from gymnasium_solver.runs.run import Run, is_run
from gymnasium_solver.training.prepare import load_config
from gymnasium_solver.training.seeds import derive

MOST_FAILURES = 10  # trials that may fail in a row from the start, before the sweep gives up

OnSearch = Callable[["Search"], None]


class Search:
    """What trials and populations share. `on_change` is called after every step in which something
    happened, and `on_poll` at every poll."""

    phase = "search"

    def __init__(
        self,
        sweep: Sweep,
        *,
        jobs: int | None = None,
        on_change: OnSearch | None = None,
        on_poll: OnSearch | None = None,
        backend: pools.Backend | None = None,
    ) -> None:
        self.sweep = sweep
        sweep.check_trust()
        self.plan: Plan = sweep.plan()
        self.space = self.plan.space()
        self.config: Config = load_config(str(sweep.base_path))
        self.fields = config_dict(self.config)
        self.budget = budget_of(self.config)
        self.pool = Pool(jobs or self.plan.jobs, backend=backend)
        self.trials: list[Trial] = []
        self.result: dict[str, Any] = {}
        self.on_change, self.on_poll = on_change, on_poll
        self._told: object = None

    def run(self) -> dict[str, Any]:
        """Search to the end, write the report, and return the result."""
        with locked(self.sweep.path), Journal(self.sweep.path, self.plan.directions) as journal:
            self.journal = journal
            self.trials = journal.trials()
            self.pool.run(self.work(), on_poll=self._tell)
            self.sweep.write("result.json", self.result)
            if self.plan.keep is not None:
                self._drop_checkpoints()
            with suppress(OSError):
                page = sweep_page(View(self.sweep, self.plan, self.trials, self.result))
                page.write(self.sweep.path)
        self.phase = "over"
        self._tell()
        return self.result

    def work(self) -> Iterator[bool]:
        """Adds tasks to the pool until `result` is known."""
        raise NotImplementedError

    def begin_trial(self, latents: Values, **attrs: Any) -> Trial:
        """Record a new trial; the first one has the config's own values."""
        self.trials.append(self.journal.create(len(self.trials), latents, self.space, **attrs))
        return self.trials[-1]

    def seed_of(self, number: int, index: int) -> int:
        """Every trial has seeds of its own, which no other and not the final have."""
        return derive(self.plan.seed, "trial", number, index)

    def _drop_checkpoints(self) -> None:
        """Free the disk: scores, metrics and configs of all trials stay."""
        order = [trial.number for trial in ranking.ranked(self.plan, self.trials)]
        for trial in self.trials:
            if trial.number not in order[: self.plan.keep]:
                for checkpoints in self.sweep.trial_dir(trial.number).glob("seed*/checkpoints"):
                    shutil.rmtree(checkpoints, ignore_errors=True)
                    checkpoints.mkdir(exist_ok=True)

    def _tell(self) -> None:
        n_over = sum(trial.is_over for trial in self.trials)
        now = (self.phase, len(self.trials), n_over, [task.state for task in self.pool.tasks])
        if self.on_change is not None and now != self._told:
            self.on_change(self)
        self._told = now
        if self.on_poll is not None:
            self.on_poll(self)


class TrialSearch(Search):
    """Trials one after the other, each from what the ones before have shown."""

    def work(self) -> Iterator[bool]:
        while True:
            running = [trial for trial in self.trials if not trial.is_over]
            is_busy = sum(map(self._advance, running)) > 0  # all of them, so not any()
            while self._may_suggest():
                self._begin()
                is_busy = True
            is_complete = len(self.trials) >= (self.plan.trials or 0) or self._target_reached()
            if is_complete and all(trial.is_over for trial in self.trials):
                break
            yield is_busy
        self.phase = "final"
        final = Final(self.sweep, self.plan, self.trials, self.budget)
        self.sweep.write("final.json", final.listed())
        yield from self._trained(final.finalists, self.sweep.choice_dir, final.choice_seeds)
        judged = [*final.chosen(), *final.own]
        yield from self._trained(judged, self.sweep.final_dir, final.seeds)
        self.result = final.result()

    def _trained(
        self, numbers: list[int], folder: Callable[[int, int], Path], seeds: list[int]
    ) -> Iterator[bool]:
        """Train the configs of some trials on the same seeds, to their ends."""
        tasks: list[Task] = []
        for number in numbers:
            config = self._write_config(self.trials[number])
            tasks += [self._task(folder(number, i), config, seed) for i, seed in enumerate(seeds)]
        return self.pool.waiting_for(tasks)

    def _target_reached(self) -> bool:
        """Has a trial reached the target that the next suggestion can see?"""
        target = self.plan.metric.target
        if target is None:
            return False
        seen = self.trials[: first_pending(self.plan, len(self.trials))]
        sign = self.plan.sign
        return any(sign * value >= sign * target for _, value in ranking.valued(seen))

    def _may_suggest(self) -> bool:
        number = len(self.trials)
        if number >= (self.plan.trials or 0) or self._target_reached():
            return False
        if sum(not trial.is_over for trial in self.trials) >= self.pool.jobs:
            return False
        return all(trial.is_over for trial in self.trials[: first_pending(self.plan, number)])

    def _begin(self) -> None:
        """Suggest a trial, record it, and start its first training."""
        if len(self.trials) >= MOST_FAILURES and all(t.state == FAILED for t in self.trials):
            reason = self.trials[-1].attrs.get("reason")
            raise RunError(f"all of the first {len(self.trials)} trials failed: {reason}")
        if self.trials or self.plan.sampler == "grid":
            trial = self.begin_trial(suggest(self.plan, self.fields, self.trials))
        else:
            trial = self.begin_trial(own_values(self.space, self.fields), own=True)
        self._advance(trial)

    def _advance(self, trial: Trial) -> bool:
        """Do what is due for a trial; True if it has ended."""
        try:
            config = self._write_config(trial)
        except ConfigError as error:
            return self._fail(trial, str(error).splitlines()[-1].strip())
        measured: list[Measured] = []
        seen = self.trials[: first_pending(self.plan, trial.number)]
        for index in range(self.plan.seeds):
            folder = self.sweep.run_dir(trial.number, index)
            seed = self.seed_of(trial.number, index)
            if index == 0 and self.plan.prune.rule != "off":
                rung = ranking.pruned_at(self.plan, self._rungs(folder), seen)
                if rung is not None:
                    return self._prune(trial, rung, folder, config, seed)
            if index and ranking.is_hopeless(self.plan, [one.value for one in measured], seen):
                break
            task = self._task(folder, config, seed)
            if task.state == pools.FAILED:
                return self._fail(trial, task.reason)
            if task.state != pools.FINISHED:
                return False
            try:
                measured.append(measure(folder, self.plan.metric, self.budget))
            except GsolveError as error:
                return self._fail(trial, str(error))
        self._complete(trial, measured)
        return True

    def _fail(self, trial: Trial, reason: str) -> bool:
        self.journal.finish(trial, FAILED, None, reason=reason)
        return True

    def _complete(self, trial: Trial, measured: list[Measured]) -> None:
        env_steps = fmean(one.env_steps for one in measured)
        wall_s = fmean(one.wall_s for one in measured)
        attrs: dict[str, Any] = {
            "values": [one.value for one in measured],
            "scores": [one.score for one in measured],
            "solved": sum(bool(one.solved) for one in measured),
            "env_steps": env_steps,
            "cost": wall_s if self.plan.cost == "wall_s" else env_steps,
        }
        if self.plan.prune.rule != "off":
            attrs["rungs"] = self._rungs(self.sweep.run_dir(trial.number, 0))
        self.journal.finish(trial, COMPLETE, fmean(one.value for one in measured), **attrs)

    def _rungs(self, folder: Path) -> dict[str, float]:
        if not is_run(folder):
            return {}
        points = ranking.curve(Run(folder), ranking.watched_metric(self.plan))
        return ranking.values_at(self.plan.prune, self.budget, points)

    def _prune(self, trial: Trial, rung: str, folder: Path, config: Path, seed: int) -> bool:
        """End a trial by SIGTERM, and record it once it has ended."""
        task = next((task for task in self.pool.tasks if task.folder == folder), None)
        if task is None and self.pool.backend.is_running(folder):  # of an earlier coordinator
            task = self._task(folder, config, seed)
        if task is not None and not task.is_over:
            if not task.is_stopping:
                self.pool.stop(task)
            return False
        reached = self._rungs(folder)
        kept = {place: value for place, value in reached.items() if float(place) <= float(rung)}
        steps = float(rung) if self.plan.prune.unit == "env_steps" else None
        self.journal.finish(
            trial, PRUNED, reached[rung], rung=int(float(rung)), rungs=kept, env_steps=steps
        )
        return True

    def _write_config(self, trial: Trial) -> Path:
        """The trial's config as a file, from which anybody can repeat it."""
        path = self.sweep.trial_dir(trial.number) / "trial.yaml"
        if not path.exists():
            config = self.config
            if not trial.attrs.get("own"):
                fields = overrides(self.space.decode(trial.latents), self.fields)
                config = load_config(str(self.sweep.base_path), overrides=fields)
            path.parent.mkdir(parents=True, exist_ok=True)
            write_atomic(path, dump_config(config).encode())
        return path

    def _task(self, folder: Path, config: Path, seed: int) -> Task:
        for task in self.pool.tasks:
            if task.folder == folder:
                return task
        label = str(folder.relative_to(self.sweep.path))
        return self.pool.add(Task(folder, (str(config), "--seed", str(seed)), label))


Row = dict[str, Any]


def n_trainings(plan: Plan) -> int:
    """How many trainings a final has, if the config's own values have a score."""
    top, seeds = plan.final.top or 0, plan.final.seeds or 0
    return top * (plan.final.choose or 0) * (top > 1) + 2 * seeds if top else 0


@dataclass
class Final:
    """The final after all trials are over."""

    sweep: Sweep
    plan: Plan
    trials: Sequence[Trial]
    budget: int

    def __post_init__(self) -> None:
        plan = self.plan
        shrunk = ranking.shrunken(self.trials)
        order = [t.number for t in ranking.ranked(plan, self.trials) if not t.attrs.get("own")]
        order.sort(key=lambda number: -plan.sign * shrunk[number])  # stable: ties keep their order
        if plan.cost is not None:  # the front, and with room left the best others
            best = [trial.number for trial in ranking.front(plan, self.trials)]
            order.sort(key=lambda number: number not in best)
        self.finalists = order[: plan.final.top or 0]
        """Numbers of the trials that take part, best first."""
        own = [t for t in self.trials if t.attrs.get("own") and t.state == COMPLETE]
        self.own = [trial.number for trial in own if self.finalists]
        """The trial with the config's own values, if it has a score."""
        n = (plan.final.choose or 2) if len(self.finalists) > 1 else 0
        self.choice_seeds = [derive(plan.seed, "choice", i) for i in range(n)]
        n = (plan.final.seeds or 0) if self.finalists else 0
        self.seeds = [derive(plan.seed, "final", i) for i in range(n)]

    def listed(self) -> dict[str, Any]:
        """The content of final.json."""
        return {"trials": [*self.finalists, *self.own], "choice_seeds": self.choice_seeds,
                "seeds": self.seeds}  # fmt: skip

    def chosen(self) -> list[int]:
        """The finalist that is judged, if one has a value on the seeds that choose."""
        if not self.choice_seeds:
            return self.finalists
        return [row["trial"] for row in self._choice()[:1]]

    def result(self) -> dict[str, Any]:
        """What the sweep came to: the winner and, if there was a final, the scores to quote."""
        rows = self._rows([*self.chosen(), *self.own], self.sweep.final_dir, len(self.seeds))
        names = ("trial", "value", "values", "failed")
        return result_of(self.plan, self.trials, rows[0]["trial"] if rows else None) | {
            "final": rows,
            "seeds": self.seeds,
            "choice": [{name: row[name] for name in names} for row in self._choice()],
            "choice_seeds": self.choice_seeds,
            "verdict": _verdict(rows, len(self.choice_seeds)),
        }

    def _choice(self) -> list[Row]:
        return self._rows(self.finalists, self.sweep.choice_dir, len(self.choice_seeds))

    def _rows(
        self, numbers: list[int], folder: Callable[[int, int], Path], seeds: int
    ) -> list[Row]:
        """What the runs of each trial came to, best first; trials without a value are left out."""
        rows = [self._row(n, [folder(n, i) for i in range(seeds)]) for n in numbers]
        known = [row for row in rows if row["values"]]
        return sorted(known, key=lambda row: (-self.plan.sign * row["value"], row["env_steps"]))

    def _row(self, number: int, folders: Sequence[Path]) -> Row:
        measured: list[Measured] = []
        failed = 0
        for folder in folders:
            try:
                measured.append(measure(folder, self.plan.metric, self.budget))
            except GsolveError:
                failed += 1
        values = [one.value for one in measured]
        scores = [one.score for one in measured if one.score is not None]
        row = {
            "trial": number,
            "own": bool(self.trials[number].attrs.get("own")),
            "in_search": self.trials[number].value,
            "value": fmean(values) if values else None,
            "values": values,
            "score": fmean(scores) if scores else None,
            "scores": scores,
            "solved": sum(bool(one.solved) for one in measured),
            "seeds": len(folders),
            "failed": failed,
            "env_steps": fmean(one.env_steps for one in measured) if measured else 0.0,
        }
        if len(scores) >= FEWEST_SEEDS:
            found = stats.interval(scores, stats.mean)
            row["interval"] = [found.low, found.high]
        return row


def _verdict(rows: Sequence[Row], n_choice: int) -> str | None:
    """Whether the winner is shown to be better than the config's own values."""
    own = next((row for row in rows if row["own"]), None)
    if own is None:
        return None
    if rows[0] is own:
        return "no trial is better than the config's own values"
    ours, theirs = rows[0]["values"], own["values"]
    n = min(len(ours), len(theirs))
    if n < FEWEST_SEEDS:
        return f"too few seeds to tell it from the config's own values: {FEWEST_SEEDS} are needed"
    how = f"{n} seeds" + f" other than the {n_choice} that chose it" * bool(n_choice)
    p, gap = float(stats.welch(ours, theirs)), stats.difference(ours, theirs)
    ends = ", ".join(f"{end:.4g}" for end in sorted((gap.low, gap.high)))
    shown = f"difference {gap.value:.4g} [{ends}], p = {p:.2g} on {how}"
    if p > 1 - LEVEL:
        return f"not shown to be better than the config's own values: {shown}"
    return f"better than the config's own values: {shown}"
