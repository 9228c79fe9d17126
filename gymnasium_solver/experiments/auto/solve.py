"""Solves an environment that nobody has tuned: measure it, choose, race, train, check, judge.

    solve = create("Pendulum-v1", Budget(env_steps=200_000), runs_root())
    solve.run(tell=print)
    solve.state["verdict"]

The folder is an experiment (experiments/experiment.py) with `auto.json`, which holds the
measurements and every decision. A killed one continues from it. In order:

1. probe: a few seconds of random actions (probe.py), and of training where time is the budget.
2. choice: two presets by a table (choose.py).
3. race: both presets with two seeds each, 9 % of the budget for each preset. The better seed of the
   winner goes on with its weights.
4. training: the rest of the budget. At 25 % and 40 % it is looked at; what has learnt nothing, or
   has stalled, is replaced once by what its alerts call for (checks.py), or by the other preset,
   which gets all that is left. At 85 % it is said whether more steps would pay.
5. verdict: the held-out test of the run with the best validation.
"""

import json
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from statistics import fmean
from typing import Any

from gymnasium_solver.config.code import accept, named_plugins
from gymnasium_solver.config.cpus import cpu_count
from gymnasium_solver.config.load import dump_config
from gymnasium_solver.envs.modules import refuse_module
from gymnasium_solver.envs.probe import (
    RECALL_ROWS,
    SHARE,
    Probe,
    from_dict,
    measured_again,
    probe,
    probe_text,
    recalled_again,
)
from gymnasium_solver.errors import ConfigError, GsolveError, RunError
from gymnasium_solver.experiments import experiment as experiments
from gymnasium_solver.experiments import pool as pools
from gymnasium_solver.experiments.auto import FILE, checks, is_solve
from gymnasium_solver.experiments.auto import budget as shares
from gymnasium_solver.experiments.auto.budget import RACE, SEEDS, TEST, Budget
from gymnasium_solver.experiments.experiment import Member
from gymnasium_solver.experiments.pool import Backend, Pool, Segment, Task
from gymnasium_solver.experiments.search.ranking import curve
from gymnasium_solver.plugins import import_plugins
from gymnasium_solver.runs.files import dump_json, locked, read_json, write_atomic
from gymnasium_solver.runs.query import RunSummary, get_config, get_details, get_run
from gymnasium_solver.runs.run import Run, is_run, runs_root
from gymnasium_solver.runs.words import OF_THE_ENV
from gymnasium_solver.training.activity import sigterm_exits
from gymnasium_solver.training.choose import (
    Candidate,
    by_length,
    choose,
    eval_episodes,
    has_gpu,
    kind_of,
    recalls,
)
from gymnasium_solver.training.live import request_edit
from gymnasium_solver.training.prepare import build_config
from gymnasium_solver.training.seeds import draw_seed

WINNER = "winner.yaml"
RETURNS, SPREAD = "train/roll/ep_rew/mean", "train/roll/ep_rew/std"
OVERTIME = 1.25
VALIDATION = "val/roll/ep_rew/mean"
EARLY, LATE, LAST = 0.25, 0.4, 0.85  # of the training, when it is looked at
RESERVE = 0.15  # of the budget: no restart with less
EARLIEST = {"on": 5_000, "off": 10_000}  # env steps: before, a preset has hardly learnt yet
WINDOW = 100  # episodes of a mean training return
RECALL_SHARE, RECALL_S = 0.1, 1.0
"""Of a budget without a race, and seconds: to know what rewards recall."""
CLOSE = 0.1  # of the scale of scores: a smaller difference does not overrule the choice
STALLED = "reward_stalled"
Tell = Callable[[str, str], None]


@dataclass
class Continued(Segment):
    """A run that goes on in its own folder, with other fields."""

    def outcome(self) -> str | None:
        found = super().outcome()
        if found != pools.FINISHED:
            return found
        config = get_config(Run(self.folder))
        budgets = ("max_env_steps", "max_minutes")
        is_changed = all(config.get(n) == v for n, v in self.changes if n in budgets)
        return found if is_changed else None


def create(
    env_id: str,
    budget: Budget,
    root: Path,
    *,
    env_kwargs: Mapping[str, Any] | None = None,
    fields: Mapping[str, Any] | None = None,
    seed: int | None = None,
    name: str | None = None,
    command: Sequence[str] = (),
    spent_s: float = 0.0,
) -> "Solve":
    """Probe an environment, choose, and write the folder. `fields`: of every config. `spent_s`: of
    the budget before this call."""
    begun_s = time.monotonic() - spent_s
    first = draw_seed() % 1_000_000 if seed is None else seed
    given = _given(env_id, env_kwargs, fields)
    accept(given)
    refuse_module(env_id)
    import_plugins(named_plugins(given))
    most_steps = math.inf if budget.env_steps is None else SHARE * budget.env_steps
    most_s = math.inf if budget.minutes is None else SHARE * 60.0 * budget.minutes
    measured = probe(env_id, given, most_steps=most_steps, most_s=most_s)
    if _may_recall(measured) and _recall_share(measured, budget) >= RECALL_ROWS:
        measured = recalled_again(measured, given)
    affordable = shares.affordable_steps(measured, given, budget)
    choice = choose(measured, affordable, has_gpu=has_gpu(given))
    steps = budget.env_steps or shares.affords(choice.first, affordable)
    lines = [("probe", probe_text(measured)), *(("choice", text) for text in choice.reasons)]
    lines += [("problem", text) for text in measured.problems]
    candidates, seeds, share = [choice.first, choice.contrast], [first, first + 1], RACE / SEEDS
    if no_race := shares.why_no_race(measured, steps, budget):
        candidates, seeds, share = [choice.first], [first], 1.0
        lines.append(("choice", f"{no_race}: {choice.first.name} trains"))
        if budget.env_steps:  # after a race this is done by `_rest_for`
            steps = max(1, steps // 2, steps - measured.steps)
    lines.append(("time", shares.time_text(choice.first, measured, budget, steps)))
    configs = [(c.name, shares.run_config(c, given, budget, share, steps)) for c in candidates]
    name = name or f"{experiments.slug(env_id)}-solve-{datetime.now(UTC):%Y%m%d-%H%M%S}"
    made = experiments.create(configs, seeds, root, name=name, command=command)
    state = {
        "env_id": env_id,
        "budget": {"env_steps": budget.env_steps, "minutes": budget.minutes},
        "given": given,
        "probe": asdict(measured),
        "affordable": affordable,
        "candidates": {c.name: c.fields for c in (choice.first, choice.contrast)},
        "lines": [list(line) for line in lines],
        "spent_s": time.monotonic() - begun_s,
    }
    write_atomic(made.path / FILE, dump_json(state))
    return Solve(made)


def _may_recall(p: Probe) -> bool:
    """Whether it is open what rewards recall, and cheap to know: for few steps of choices."""
    is_short = p.recalled is not None and p.steps < RECALL_ROWS
    return is_short and p.moves != "box" and 1e-6 * (p.step_us or 0.0) * RECALL_ROWS <= RECALL_S


def _recall_share(p: Probe, budget: Budget) -> float:
    """How many env steps may be spent on what rewards recall. Few where a race follows, so that
    probe and race together take at most 22 % of the budget."""
    if budget.env_steps is None:
        return math.inf
    is_alone = shares.why_no_race(p, budget.env_steps, budget) is not None
    return (RECALL_SHARE if is_alone else SHARE) * budget.env_steps


def solve(
    env_id: str,
    *,
    max_env_steps: int | None = None,
    minutes: float | None = None,
    env_kwargs: Mapping[str, Any] | None = None,
    seed: int | None = None,
    jobs: int | None = None,
    name: str | None = None,
    runs_dir: str | Path | None = None,
    progress: bool = False,
    trust: bool = False,
    **fields: Any,
) -> "Solve":
    """Solve an environment without a config, within env steps or minutes, as `gsolve solve` does.

    `result.verdict` has the score and what it means, `result.best_run` the run with its agent.
    With `name` a call that was interrupted is continued by the same call. `fields` are set in every
    config. `progress` prints each decision. SIGTERM saves and stops all trainings and ends the
    program with the exit code 75. `trust`: also import code that a folder made elsewhere names."""
    if not isinstance(env_id, str):
        raise ConfigError(
            "solve takes the id of an environment, since it trains in processes of its own: "
            "gymnasium.register(id=..., entry_point=...) in a module, then 'module:Id-v0'"
        )
    root, budget = runs_root(runs_dir), Budget(max_env_steps, minutes)
    folder = None if name is None else root / experiments.FOLDER / name
    if folder is not None and folder.is_dir():
        made = load(folder)
        if (made.budget, made.state["given"]) != (budget, _given(env_id, env_kwargs, fields)):
            raise RunError(
                f"{name} is a solve of {made.state['env_id']} within {made.budget}, with other "
                "arguments than these: give another name"
            )
    else:
        made = create(
            env_id, budget, root, env_kwargs=env_kwargs, fields=fields, seed=seed, name=name,
            command=["gymnasium_solver.solve", env_id],
        )  # fmt: skip

    def tell(stage: str, text: str) -> None:
        if progress:
            print(f"{stage:<8} {text}", flush=True)

    with sigterm_exits():
        made.run(jobs=jobs, tell=tell, trust=trust)
    return made


def _given(
    env_id: str, env_kwargs: Mapping[str, Any] | None, fields: Mapping[str, Any] | None
) -> dict[str, Any]:
    """What the caller says about every config, as it is after a file."""
    given = {"env_id": env_id, "env_kwargs": dict(env_kwargs or {}), **(fields or {})}
    return dict(json.loads(dump_json(given)))


def load(path: Path) -> "Solve":
    if not is_solve(path):
        raise RunError(f"{path} was not started by gsolve solve: it has no {FILE}")
    return Solve(experiments.load(path))


class Solve:
    """The work on one environment, in its folder."""

    def __init__(self, made: experiments.Experiment) -> None:
        self.experiment, self.path = made, made.path
        self.state: dict[str, Any] = read_json(made.path / FILE, "Restore it from a copy.")
        self.probe: Probe = from_dict(self.state["probe"])
        self.budget = Budget(**self.state["budget"])
        self._told, self._failure = 0, ""
        self._timed: Path | None = None

    def run(
        self,
        *,
        jobs: int | None = None,
        backend: Backend | None = None,
        tell: Tell | None = None,
        on_poll: Callable[["Solve"], None] | None = None,
        trust: bool = False,
    ) -> dict[str, Any]:
        """Do what is left to do, and return the verdict. An exception, such as Ctrl-C, stops the
        running trainings, which save; `run` continues them."""
        self.experiment.check_trust(trust, self.state["given"], self.state["candidates"])
        self._tell, self._began_s = tell or (lambda stage, text: None), time.monotonic()
        with locked(self.path):
            self._show()
            self.pool = Pool(jobs or min(SEEDS, cpu_count()), backend=backend, retry_failed=True)
            poll = None if on_poll is None else lambda: on_poll(self)
            try:
                self.pool.run(self._work(), on_poll=poll)
            finally:
                self._save()
        return self.verdict

    # -- what is known ------------------------------------------------------------------------

    @property
    def spent_s(self) -> float:
        """Seconds of this and earlier coordinators."""
        return float(self.state["spent_s"]) + time.monotonic() - self._began_s

    @property
    def verdict(self) -> dict[str, Any]:
        """Its kind, mean, interval and text; RunError before the end."""
        if "verdict" not in self.state:
            raise RunError(f"{self.path.name} has no verdict yet")
        return dict(self.state["verdict"])

    @property
    def best_run(self) -> Run:
        """The run that was judged."""
        return Run(self.experiment.root / self.verdict["run"])

    @property
    def runs(self) -> list[RunSummary]:
        folders = [f for f in self.experiment.folders() if is_run(f)]
        return [get_run(Run(folder)) for folder in folders]

    @property
    def share_done(self) -> float:
        """Of the budget, in [0, 1]."""
        if "verdict" in self.state:
            return 1.0
        if self.budget.minutes is not None:
            return min(1.0, self.spent_s / (60.0 * self.budget.minutes))
        return min(1.0, self._steps_spent() / (self.budget.env_steps or 1))

    @property
    def _has_reserve(self) -> bool:
        """Whether enough is left for a restart."""
        return self.share_done <= 1.0 - RESERVE

    def _steps_spent(self) -> int:
        return self.probe.steps + sum(run.env_steps for run in self.runs)

    def _say(self, stage: str, text: str) -> None:
        self.state["lines"].append([stage, text])
        self._show()

    def _show(self) -> None:
        for stage, text in self.state["lines"][self._told :]:
            self._tell(stage, text)
        self._told = len(self.state["lines"])

    def _save(self) -> None:
        saved = {**self.state, "spent_s": self.spent_s}
        write_atomic(self.path / FILE, dump_json(saved))

    # -- the stages ---------------------------------------------------------------------------

    def _work(self) -> Iterator[bool]:
        if "winner" not in self.state:
            yield from self._race()
            self._save()
        if "verdict" not in self.state:
            yield from self._train()
            self.state["verdict"] = self._judge()
            self._save()

    def _race(self) -> Iterator[bool]:
        members = self.experiment.members
        if len(members) == 1:
            self.state["winner"] = {"run": members[0].run, "name": members[0].group}
            return
        # A seed of each preset first: if time runs out, both have run.
        in_turn = sorted(members, key=lambda m: m.seed)
        tasks = {m: self.pool.add(self.experiment.task(m)) for m in in_turn}
        # Runs look at the time after each epoch only.
        ends_s = 60.0 * (self.budget.minutes or math.inf) * 2.0 * RACE * OVERTIME
        for _ in self.pool.waiting_for(list(tasks.values())):
            for task in tasks.values() if self.spent_s > ends_s else ():
                if not task.is_stopping:  # a second signal would end it without saving
                    self.pool.stop(task)
            yield False
        failed = {m.group: task.reason for m, task in tasks.items() if task.state == pools.FAILED}
        begun = {m: Run(t.folder) for m, t in tasks.items() if is_run(t.folder)}
        scores = race_scores({m: run for m, run in begun.items() if m.group not in failed})
        for name, reason in failed.items():
            self._say("race", f"{name} failed: {reason}")
        if not scores:
            raise RunError(f"both presets failed: {'; '.join(failed.values())}")
        self._decide(scores)

    def _decide(self, scores: Mapping[Member, float | None]) -> None:
        """The preset that goes on, and of it the better seed."""
        race: dict[str, dict[str, Any]] = {}
        for group in dict.fromkeys(m.group for m in scores):
            own = [m for m in scores if m.group == group]
            runs = [get_run(Run(self.experiment.folder(m))) for m in own]
            race[group] = {
                "scores": [score for m in own if (score := scores[m]) is not None],
                "wall_s": fmean(run.wall_s for run in runs),
                "env_steps": sum(run.env_steps for run in runs),
            }
        means = {g: fmean(r["scores"]) if r["scores"] else -math.inf for g, r in race.items()}
        first, best = next(iter(race)), max(race, key=lambda g: means[g])
        every = [score for row in race.values() for score in row["scores"]]
        scale = max(self.probe.random_sd or 0.0, max(every, default=0.0) - min(every, default=0.0))
        is_close = means[best] - means[first] <= CLOSE * scale
        is_learnt = bool(every) and self._is_above_random(means[best])
        winner = best if is_learnt and not is_close else first
        seeds = {m: -math.inf if s is None else s for m, s in scores.items() if m.group == winner}
        why = "" if winner == best else ", as chosen: no clear difference"
        if not is_learnt:
            why = ", as chosen: neither is above random actions yet"
        self.state["race"] = race
        self.state["winner"] = {"run": max(seeds, key=lambda m: seeds[m]).run, "name": winner}
        text = ", ".join(f"{group} {_number(mean)}" for group, mean in means.items())
        self._say("race", f"{text}: {winner} goes on{why}")
        if winner != first and self.budget.env_steps:
            left = max(1, self.budget.env_steps - self._steps_spent())
            self._say(
                "time", shares.time_text(self._candidate(winner), self.probe, self.budget, left)
            )

    def _train(self) -> Iterator[bool]:
        """Give the winner the rest, and look at it on the way."""
        task = self._main_task()
        if "restart" in self.state:  # decided by a coordinator that was killed
            self.pool.stop(task)
        self._save()
        yield from self._watch(task)
        if task.state == pools.FAILED and "restart" not in self.state:
            self._failed("training", task)
            if self._has_reserve and not _is_of_env(task):
                self._plan_restart(self._other(), "it failed")
        if "restart" not in self.state and "outlook" not in self.state["checks"]:
            self._look_ahead(Run(task.folder))
        if "restart" in self.state:
            again = self.pool.add(self._restart_task())
            began_at = self._steps_of(again)
            while not again.is_over:
                self._keep_to_time(again, began_at)
                yield False
            if again.state == pools.FAILED:
                self._failed("the restart", again)
            yield from self._test_replaced(Run(task.folder), Run(again.folder))

    def _test_replaced(self, first: Run, again: Run) -> Iterator[bool]:
        """A training that was replaced has no test: it gets one if its policy was better."""
        if not is_run(first.path) or (found := get_run(first)).status == pools.FINISHED:
            return
        score, other = found.best_score, get_run(again).best_score if is_run(again.path) else None
        if score is None or (other is not None and other >= score):
            return
        name = self.state["winner"]["name"]
        self._say("check", f"{name} was better, {_number(score)}: it is tested too")
        changes = (("max_env_steps", found.env_steps), ("test_episodes", "auto"))
        task = self.pool.add(Continued(first.path, (), "test", changes=changes))
        yield from self.pool.waiting_for([task])
        if task.state == pools.FAILED:
            self._failed("its test", task)

    def _failed(self, what: str, task: Task) -> None:
        self._failure = f": {(task.reason or '').rstrip('.')}"
        self._say("check", f"{what} failed{self._failure}")

    def _main_task(self) -> Task:
        folder = self.experiment.root / self.state["winner"]["run"]
        if len(self.experiment.members) == 1:
            return self.pool.add(self.experiment.task(self.experiment.members[0]))
        if "main" not in self.state:
            self.state["main"] = self._rest_for(get_run(Run(folder)))
        changes = tuple(self.state["main"].items())
        return self.pool.add(Continued(folder, (), "training", changes=changes))

    def _rest_for(self, run: RunSummary) -> dict[str, Any]:
        """The fields with which the winner uses up the budget."""
        config = get_config(Run(Path(run.path)))
        rate = run.env_steps / max(run.wall_s, 1e-9)
        if self.budget.minutes is not None:
            left_s = self._minutes_left() * 60.0
            steps, minutes = int(run.env_steps + rate * left_s), (run.wall_s + left_s) / 60.0
            budget = {"max_env_steps": 2 * steps, "max_minutes": round(minutes, 3)}
        else:
            left = (self.budget.env_steps or 0) - self._steps_spent()
            steps = run.env_steps + max(left, 1)
            budget = {"max_env_steps": steps}
        found = by_length(config, steps)
        kept = ("eval_freq_epochs", "policy_lr")
        fields: dict[str, Any] = {name: found[name] for name in kept if name in found}
        if "policy_lr" in fields:
            fields["policy_lr"]["from"] = run.env_steps
        stop = shares.stop_fields(self._candidate(self.state["winner"]["name"]), self.budget)
        return {**budget, **fields, **stop, "test_episodes": "auto"}

    def _minutes_left(self) -> float:
        total = self.budget.minutes or 0.0
        return max(0.05, (1.0 - TEST) * total - self.spent_s / 60.0)

    # -- checks -------------------------------------------------------------------------------

    def _watch(self, task: Task) -> Iterator[bool]:
        """Wait for the training; at some points decide whether it is worth going on."""
        done = self.state.setdefault("checks", {})
        began_at = self._steps_of(task)
        fields = self._candidate(self.state["winner"]["name"]).fields
        explores = "intrinsic" in fields or fields.get("algo_id") == "mbie"
        is_slow = explores or fields.get("recurrent") is not None
        early = LATE if is_slow else EARLY  # a bonus for what is new, or a memory, pays off later
        while not task.is_over:
            self._keep_to_time(task, began_at)
            share = self._share_of(task)
            for name, at, look in (("early", early, self._early), ("late", LATE, self._late)):
                if share >= at and name not in done:
                    found = look(Run(task.folder))
                    done[name] = None if found is None else found[1]
                    if found is not None and self._has_reserve and "restart" not in self.state:
                        self._plan_restart(*found)
                        self.pool.stop(task)
                    self._save()
            if share >= LAST and "outlook" not in done:
                self._look_ahead(Run(task.folder))
            yield False

    def _steps_of(self, task: Task) -> int:
        return get_run(Run(task.folder)).env_steps if is_run(task.folder) else 0

    def _keep_to_time(self, task: Task, began_at: int) -> None:
        """Once it trains, give the run exactly what is left of a budget in minutes: how long a
        process takes to start is not known before."""
        if self.budget.minutes is None or self._timed == task.folder:
            return
        if self._steps_of(task) <= began_at or task.is_stopping:
            return
        self._timed = task.folder
        run = Run(task.folder)
        minutes = round(get_run(run).wall_s / 60.0 + self._minutes_left(), 3)
        try:
            request_edit(run, {"max_minutes": minutes}, "gsolve solve", trust=True)
        except GsolveError:
            return  # it has ended
        if isinstance(task, Continued):
            self.state["main"]["max_minutes"] = minutes
            task.changes = tuple(self.state["main"].items())
            self._save()

    def _look_ahead(self, run: Run) -> None:
        """Say whether more steps would pay, where the training does not reach its goal."""
        found = checks.outlook(curve(run, VALIDATION), self.probe.threshold)
        self.state["checks"]["outlook"] = None if found is None else asdict(found)
        if found is not None:
            self._say("check", found.text)
        self._save()

    def _share_of(self, task: Task) -> float:
        if not is_run(task.folder):
            return 0.0
        run, config = get_run(Run(task.folder)), get_config(Run(task.folder))
        if run.env_steps < EARLIEST[kind_of(config)]:
            return 0.0
        if self.budget.minutes is not None:
            return run.wall_s / (60.0 * float(config.get("max_minutes") or math.inf))
        return run.env_steps / max(run.max_env_steps or 1, 1)

    def _early(self, run: Run) -> tuple[Candidate, str] | None:
        """A training that is not better than random actions is replaced, by cause. One that rises
        goes on."""
        scores = (late_score(run), WINDOW), (get_run(run).best_score, eval_episodes(self.probe))
        known = [(score, episodes) for score, episodes in scores if score is not None]
        spread = max(self.probe.random_sd or 0.0, *(sd for _, sd in curve(run, SPREAD)[-1:]), 0.0)
        if not known or any(self._is_above_random(s, spread / math.sqrt(n)) for s, n in known):
            return None
        if checks.is_rising(curve(run, VALIDATION)):
            return None
        best = max(score for score, _ in known)
        return self._replacement(run, f"{_number(best)} is not above random actions")

    def _is_above_random(self, score: float, stderr: float | None = None) -> bool:
        """The probe has few random episodes: more are played where they do not decide it."""
        p, episodes = self.probe, eval_episodes(self.probe)
        if self.spent_s and (cost_s := 1e-6 * (p.step_us or 0.0) * p.horizon):
            episodes = min(episodes, int(SHARE * self.spent_s / cost_s))
        if checks.is_unclear(score, stderr, p) and episodes > max(1, p.episodes):
            self._play_random(episodes)
        return checks.is_above_random(score, stderr, self.probe)

    def _play_random(self, episodes: int) -> None:
        """An environment that fails here costs no verdict: the probe's episodes are kept."""
        fields = next(iter(self.state["candidates"].values()))  # all have the same time limit
        try:
            self.probe = measured_again(self.probe, fields | self.state["given"], episodes)
        except Exception as error:  # an environment may raise anything
            self._say("problem", f"random episodes failed, {type(error).__name__}: {error}")
            return
        self.state["probe"] = asdict(self.probe)
        mean = _number(self.probe.random_mean)
        self._say("probe", f"{self.probe.episodes} random episodes return {mean} on average")

    def _with_memory(self, why: str) -> tuple[Candidate, str] | None:
        """The winner with a memory, if rewards recall earlier observations. A short probe cannot
        tell: then it is measured again where steps cost little."""
        cost_s = 1e-6 * (self.probe.step_us or 0.0) * RECALL_ROWS
        if self.probe.steps < RECALL_ROWS and cost_s <= max(RECALL_S, SHARE * self.spent_s):
            fields = next(iter(self.state["candidates"].values()))
            try:
                self.probe = recalled_again(self.probe, fields | self.state["given"])
            except Exception as error:  # an environment may raise anything
                self._say("problem", f"random steps failed, {type(error).__name__}: {error}")
            self.state["probe"] = asdict(self.probe)
        found = checks.remembers(self._candidate(self.state["winner"]["name"]), self.probe)
        return None if found is None else (found, f"{why}, and rewards recall earlier observations")

    def _late(self, run: Run) -> tuple[Candidate, str] | None:
        """One that stands still below the threshold, too."""
        score, threshold = get_run(run).best_score, self.probe.threshold
        if score is not None and threshold is not None and score >= threshold:
            return None
        if STALLED not in self._alerts(run):
            points = curve(run, VALIDATION)
            if not points or checks.is_rising(points[len(points) // 3 :]):
                return None
            return self._with_memory(f"no clear rise above {_number(score)}")
        if threshold is None:
            return self._replacement(run, "the return has never risen")
        return self._replacement(run, f"it stands still at {_number(score)}, below {threshold:g}")

    def _alerts(self, run: Run) -> list[str]:
        return [alert.name for alert in get_details(run).alerts if alert.is_active]

    def _replacement(self, run: Run, why: str) -> tuple[Candidate, str]:
        """What answers an alert of the run; the other preset if there is none."""
        alerts = self._alerts(run)
        now = self._candidate(self.state["winner"]["name"])
        found = checks.remedy(alerts, now, self.probe)
        if found is not None:
            return found[0], f"{why}, alert {found[1]}"
        if (memory := self._with_memory(why)) is not None:
            return memory
        if recalls(self.probe) and now.fields.get("recurrent") is not None:
            other = checks.with_more_entropy(now, self.probe)
            if other is not None:
                return other, f"{why}, though it has the memory that rewards call for"
        return self._other(), f"{why}, alerts {', '.join(alerts)}" if alerts else why

    def _candidate(self, name: str) -> Candidate:
        return Candidate(name, self.state["candidates"][name])

    def _other(self) -> Candidate:
        first, contrast, *_ = self.state["candidates"]
        return self._candidate(contrast if self.state["winner"]["name"] == first else first)

    def _plan_restart(self, candidate: Candidate, why: str) -> None:
        self.state["candidates"].setdefault(candidate.name, candidate.fields)
        self.state["restart"] = {"name": candidate.name, "why": why}
        self._say("check", f"{why}: {candidate.name} gets the rest of the budget")

    def _restart_task(self) -> Task:
        plan = self.state["restart"]
        if "config" not in plan:
            candidate = self._candidate(plan["name"])
            steps = max(1, (self.budget.env_steps or 0) - self._steps_spent())
            budget = Budget(env_steps=steps)
            if self.budget.minutes is not None:
                budget = Budget(minutes=self._minutes_left() / (1.0 - TEST))
                share = (budget.minutes or 0.0) / self.budget.minutes
                steps = int(share * shares.affords(candidate, self.state["affordable"]))
            config = shares.run_config(candidate, self.state["given"], budget, 1.0, steps)
            seed = self.experiment.members[0].seed + SEEDS
            self.experiment = experiments.extend(
                self.experiment, f"{plan['name']} again", config, seed
            )
            plan["config"] = self.experiment.members[-1].config
            self._save()
        return self.experiment.task(self.experiment.members[-1])

    # -- the end ------------------------------------------------------------------------------

    def _judge(self) -> dict[str, Any]:
        """The verdict on the run with the best validation; its config is the winner's."""
        tested = [run for run in self.runs if run.test is not None and run.best is not None]
        if not tested:
            raise RunError(
                f"no training of {self.path.name} has come to a test{self._failure}. Once that is "
                f"mended: gsolve solve --resume {self.path.name}"
            )
        chosen = max(tested, key=lambda run: run.best["score"] if run.best else -math.inf)
        ahead = self.state.get("checks", {}).get("outlook") or {}
        more_steps = None if "restart" in self.state else ahead.get("more_steps")
        if not chosen.solved and chosen.test is not None:
            self._is_above_random(chosen.test["mean"], chosen.test["stderr"])
        found = checks.judged(chosen, self.probe, self._apart(tested), more_steps) | {
            "run": chosen.id, "env_steps": self._steps_spent(), "seconds": self.spent_s
        }  # fmt: skip
        config = build_config(get_config(Run(Path(chosen.path))) | {"seed": None})
        write_atomic(self.path / WINNER, dump_config(config).encode())
        self._say("verdict", found["text"])
        for advice in found["next"]:
            self._say("next", advice)
        return found

    def _apart(self, tested: Sequence[RunSummary]) -> str | None:
        """How strongly trainings of one algorithm disagree: the seeds of the race that was won, or
        the winner and its replacement."""
        scores = self.state.get("race", {}).get(self.state["winner"]["name"], {}).get("scores", [])
        seeds = {f"seed {n} of the race": score for n, score in enumerate(scores, start=1)}
        both = zip(("the first training", "its restart"), tested, strict=False)
        known = {name: run.best_score for name, run in both if run.best_score is not None}
        if len({run.algo_id for run in tested}) > 1:
            known = {}
        return checks.disagreement(seeds, self.probe) or checks.disagreement(known, self.probe)


# -- texts ---------------------------------------------------------------------------------------


def race_scores(runs: Mapping[Member, Run]) -> dict[Member, float | None]:
    """How good the policies are: their tests, since some presets still explore by many random
    actions. Training returns, if a race was cut off before each preset had a test."""
    tests = {m: get_run(run).test for m, run in runs.items()}
    scores = {m: None if test is None else test["mean"] for m, test in tests.items()}
    if {m.group for m in runs} == {m.group for m, score in scores.items() if score is not None}:
        return scores
    return {m: late_score(run) for m, run in runs.items()}


def _is_of_env(task: Task) -> bool:
    """Whether the other preset would fail in the same way: after an exception, which most often
    comes from the environment, or NaN from the environment."""
    run = get_run(Run(task.folder)) if is_run(task.folder) else None
    return run is not None and (run.stop_reason == "error" or run.stop_detail == OF_THE_ENV)


def late_score(run: Run) -> float | None:
    """The mean training return in the last fifth of a run; None if no episode has ended."""
    points = curve(run, RETURNS)
    if not points:
        return None
    last = points[-1][0]
    return fmean(value for steps, value in points if steps >= 0.8 * last)


def _number(value: float | None) -> str:
    return "-" if value is None or not math.isfinite(value) else f"{value:,.4g}"
