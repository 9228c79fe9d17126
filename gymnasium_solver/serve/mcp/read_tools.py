"""Tools that read: configs, runs, logs, diagnoses, comparisons, learning curves and episodes as
pictures."""

import ast
import base64
import io
import json
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Literal

import anyio
import anyio.to_thread

from gymnasium_solver import registry
from gymnasium_solver.backends.local import tail
from gymnasium_solver.config.find import find_configs
from gymnasium_solver.envs.baselines import game_settings, random_baseline
from gymnasium_solver.envs.catalogue import EnvEntry, list_environments
from gymnasium_solver.errors import RunError
from gymnasium_solver.experiments.compare import MARGIN
from gymnasium_solver.experiments.groups import group_runs
from gymnasium_solver.registry import ALGOS
from gymnasium_solver.runs import query
from gymnasium_solver.runs.alerts.alert import AlertRecord, records
from gymnasium_solver.runs.alerts.judge import judge_run
from gymnasium_solver.runs.edits import read_edits
from gymnasium_solver.runs.files import picked
from gymnasium_solver.runs.metrics import describe
from gymnasium_solver.runs.plots import X_LABELS, choose_panels, draw, read_curves
from gymnasium_solver.runs.query import RunDetails, RunSummary
from gymnasium_solver.runs.resolve import resolve_checkpoint, run_name
from gymnasium_solver.runs.run import Run
from gymnasium_solver.runs.words import stopped
from gymnasium_solver.serve import notebook
from gymnasium_solver.serve.mcp import allowed
from gymnasium_solver.serve.mcp.allowed import AgentDesk, Pictured
from gymnasium_solver.serve.mcp.metric_tools import changes, curve_of, matching, outcome, trend
from gymnasium_solver.serve.questions import (
    NO_FIELDS,
    Answer,
    Desk,
    Fields,
    Limit,
    OneRun,
    Runs,
    Seed,
    Within,
)
from gymnasium_solver.serve.trainings import as_flags

SHOWN = 12
MOST_PANELS = 9
MOST_RANKED = 200
MOST_WAIT_S = 50.0  # clients give up after a minute
FAILED = ("failed", "killed", "interrupted")
ENDED = ("finished", "broken", *FAILED)
Patience = Annotated[float, Within(0.0, MOST_WAIT_S, clamps=True)]
LongPatience = Annotated[float, Within(0.0, 600.0, clamps=True)]
Section = Literal["progress", "config", "checkpoints", "evals", "alerts", "hyperparams", "origin"]
ComparedRuns = Annotated[Sequence[Run], Runs(20)]
# Looked at first in a diagnosis, where they were logged.
VITAL = (
    "train/roll/ep_rew/mean", "train/roll/ep_len/mean", "val/roll/ep_rew/mean",
    "train/opt/policy/entropy", "train/opt/ppo/approx_kl", "train/opt/ppo/clip_fraction",
    "train/opt/value/explained_var", "train/opt/grads/norm/all", "train/opt/q/mean",
    "train/opt/loss/value", "train/opt/loss/td", "train/hp/epsilon", "train/sys/timing/fps",
)  # fmt: skip
EVALUATION = ("stage", "env_steps", "mean", "std", "stderr", "min", "max", "episodes", "success")
SCORE = ("mean", "stderr", "std", "min", "max", "length_mean", "episodes", "success")
ORIGIN = "created_at command versions git machine resumed engine device"


_drawing = threading.Lock()  # pyplot is not safe in threads


def list_configs(
    desk: Desk,
    filter: str = "",
    limit: Limit = 50,
    kind: Literal["configs", "environments", "algorithms"] = "configs",
) -> Answer:
    """Configs that can be trained, <env>:<variant>. filter: words of a name, suite or
    description; * and ? match names. environments: with spaces, score of random actions and
    threshold. An algorithm works in any env that has its actions."""
    pattern = filter.strip() or None
    if kind == "algorithms":
        rows = [_algorithm(name) for name in ALGOS if pattern is None or pattern.lower() in name]
    elif kind == "environments":
        rows = [_environment(env) for env in list_environments(pattern)]
    else:
        rows = [
            {"config": e.name, "algo": e.algo_id, "suite": e.suite, "about": e.description[:120]}
            for e in find_configs(pattern)
        ]
    return {"total": len(rows), kind: rows[:limit]}


def _environment(env: EnvEntry) -> dict[str, Any]:
    told = picked(env, "env=env_id observes=observations acts=actions random solved_at=threshold")
    told["configs_by"] = ",".join(env.algos)
    return told | ({"needs": f"gymnasium-solver[{env.extra}]"} if env.extra else {})


def _algorithm(name: str) -> dict[str, Any]:
    """Its file says what it is in the first line; it is not imported, since that needs torch."""
    source = Path(registry.__file__).with_name("algos") / f"{name}.py"
    about = ast.get_docstring(ast.parse(source.read_text(encoding="utf-8"))) or ""
    return {"algo": name, "about": about.partition("\n")[0]}


def get_config(
    desk: Desk,
    config: str,
    overrides: Fields = NO_FIELDS,
    explain: Sequence[str] = (),
    all: bool = False,
) -> Answer:
    """The fields of a config (<env>:<variant>, <env>, or a run) after overrides that are not
    the algorithm's defaults. all: every field. explain: fields to describe, or parts of their
    names."""
    checked = allowed.checked_overrides(overrides, desk.root)
    fields = allowed.shown_config(config, checked, desk.root)
    fields.pop("spec", None)
    if not explain:
        return {"config": fields if all else allowed.differing_fields(fields)}
    parts = [part.strip().lower() for part in explain if part.strip()]
    found = [name for name in fields if any(part in name for part in parts)]
    if not found:
        raise RunError(f"no field matches {', '.join(explain)[:80]!r}; get_config(all) has all")
    about = allowed.field_docs()
    return {"fields": [{"field": n, "value": fields[n], "about": about.get(n, "")} for n in found]}


def list_runs(desk: Desk, filter: str = "", sort: str = "", limit: Limit = 20) -> Answer:
    """Runs, newest first. filter: words and conditions, such as "CartPole solved test>400
    policy_lr<0.01 tag=paper"; search=ID: those of a search. sort: test, val, steps, time,
    seed, fps, a config field or a metric, best first; -field: lowest first. The best run:
    sort="test", limit=1."""
    wanted = sort.strip()
    if "/" not in wanted:
        found = desk.select(filter, wanted or None)
        return {"total": len(found), "runs": [row(run) for run in found[:limit]]}
    found = desk.select(filter)
    ranked = _by_metric(desk, found[:MOST_RANKED], wanted.removeprefix("-"))
    if wanted.startswith("-"):
        ranked.reverse()
    told: Answer = {"total": len(found), "runs": ranked[:limit]}
    if len(found) > MOST_RANKED:
        told["note"] = f"only the newest {MOST_RANKED} were compared; use filter"
    return told


def _by_metric(desk: Desk, runs: Sequence[RunSummary], metric: str) -> list[dict[str, Any]]:
    """Rows of the runs that logged a metric, the best value first."""
    found = []
    for run in runs:
        try:
            reached = outcome(desk.tables.of(Run(Path(run.path))), metric)
        except RunError:
            continue
        if reached["last"] is not None:
            name = reached["metric"]
            found.append({"metric": name} | row(run) | {"best": reached["best"]})
    if not found and runs:
        raise RunError(f"no run has values of one metric {metric!r}; get_metrics lists them")
    is_down = bool(found) and describe(found[0]["metric"]).better == "down"
    return sorted(found, key=lambda one: one["best"], reverse=not is_down)


def get_run(desk: Desk, run: OneRun, sections: Sequence[Section] = ("progress",)) -> Answer:
    """Status, verdict and sections of a run. hyperparams: their history; origin: command,
    versions, machine, resumes."""
    details = query.get_details(run)
    told = {name: SECTIONS[name](desk, details) for name in sections}
    return summary(desk.summary(run)) | told


async def get_logs(
    desk: Desk,
    run: OneRun,
    lines: Limit = 40,
    pattern: str = "",
    after: Annotated[int, Within(-1, 10**9)] = -1,
    seconds: Patience = 30,
) -> Answer:
    """The last lines of a run's log. pattern: only lines that match this regular expression,
    in any case. after: wait, up to 50 seconds, until there are more than this many lines; then
    the new ones."""
    in_thread = anyio.to_thread.run_sync
    deadline = time.monotonic() + seconds
    while True:
        text = [line[:500] for line in await in_thread(log_lines, run)]
        if pattern:
            text = await in_thread(matching, text, pattern)
        has_more = after < 0 or len(text) > after
        if has_more or time.monotonic() >= deadline or desk.summary(run).status in ENDED:
            break
        await anyio.sleep(0.5)
    new = text[max(after, 0) :]
    return {"run": run_name(run, desk.root), "lines_in_all": len(text), "log": new[-lines:]}


def diagnose(desk: Desk, run: OneRun) -> Answer:
    """Judge a run: problems with what they usually mean and what to try, progress, score
    against random actions and the threshold, recent metrics. Start here to debug."""
    judged, judge = judge_run(run)
    found, now, table = records(judged), desk.summary(run), desk.tables.of(run)
    curves = {name: curve_of(table, name) for name in VITAL if name in table.names}
    curves = {name: curve for name, curve in curves.items() if len(curve[0])}
    start = round(max((int(x[-1]) for x, _ in curves.values()), default=0) * 2 / 3)
    recent = [trend(name, curve_of(table, name, start)) for name in curves]
    return {
        "run": now.id,
        "status": now.status,
        "stopped": stopped(now, "not yet"),
        "healthy": not any(record.is_active for record in found),
        "problems": [_alert(record) for record in found],
        "not_judged": judge.not_judged,
        "score": score(run, now),
        "progress": progress(now),
        "latest": {name: y[-1] for name, (_, y) in curves.items()},
        "trend_of_the_last_third": [
            {k: t[k] for k in ("metric", "trend", "verdict", "change_over_range") if k in t}
            for t in recent
        ],
    } | ({"log": log_lines(run)[-SHOWN:]} if now.status in FAILED else {})


def compare_runs(
    desk: Desk, runs: ComparedRuns, metric: str = "", baseline: str = "", margin: str = MARGIN
) -> Answer:
    """Compare runs. Runs that differ only by the seed form a group; the first group is the
    baseline, or baseline: a run, or "best" for the best other run of the same env. Without
    metric: held-out scores with intervals, and a verdict. metric: last, best and mean of
    the last tenth. margin: the smallest difference that matters, a score or 1% of the range."""
    if baseline == "best":
        env_id, ids = query.get_run(runs[0]).env_id, {run.id for run in runs}
        tested = [run for run in desk.store.select([f"env={env_id}"], "test") if run.test]
        baseline = next((run.id for run in tested if run.id not in ids), "")
        if not baseline:
            raise RunError(f"no other run of {env_id} was tested; give a run as the baseline")
    if baseline:
        runs = [desk.run(baseline), *runs]
    found = list({run.path: run for run in runs}.values())
    if metric:
        rows = [outcome(desk.tables.of(run), metric) for run in found]
        names = [{"run": run_name(run, desk.root)} for run in found]
        return {"runs": [row | name for row, name in zip(rows, names, strict=True)]}
    return comparison(desk, found, margin)


def comparison(desk: Desk, runs: Sequence[Run], margin: str = MARGIN) -> Answer:
    """Groups of seeds, their scores with intervals, and verdicts."""
    found = group_runs([str(run.path.absolute()) for run in runs], desk.root)
    result = desk.compared(found, margin)
    groups = [
        {
            **picked(group, "group=label runs"),
            **picked(group["iqm"], "iqm=value low high"),
            **picked(group, "scores untested=n_untested"),
            "solved": f"{group['n_solved']}/{len(group['runs'])}",
            "solved_at": group["solved_at"],
            "median_minutes": group["wall_s"] / 60,
        }
        for group in result["groups"]
    ]
    verdicts = [picked(v, "group=first against=second verdict=text") for v in result["verdicts"]]
    return {"groups": groups, "verdicts": verdicts, "fields_that_differ": result["differences"]}


# --- pictures


def plot(
    desk: AgentDesk,
    runs: ComparedRuns,
    metrics: Sequence[str] = (),
    x_axis: Literal["env_steps", "wall_s"] = "env_steps",
    title: str = "",
    width: Annotated[int, Within(300, 4000, clamps=True)] = 1300,
    height: Annotated[int, Within(0, 4000, clamps=True)] = 0,
) -> Pictured:
    """A PNG of learning curves: returns, or one panel per metric (a part of a name is enough).
    Several runs share the axes. width, height: pixels."""
    if len(metrics) > MOST_PANELS:
        raise RunError(f"{len(metrics)} metrics given, at most {MOST_PANELS} panels")
    curves = [replace(read_curves(run, x=x_axis), id=run_name(run, desk.root)) for run in runs]
    panels = choose_panels(curves, list(metrics) or None)
    buffer = io.BytesIO()
    with _drawing:
        draw(curves, panels, buffer, X_LABELS[x_axis], title=title[:200], size=(width, height))
    return Pictured({"runs": [c.id for c in curves], "panels": panels}, [buffer.getvalue()])


def play(
    desk: AgentDesk,
    target: str,
    episodes: Annotated[int, Within(1, 20, clamps=True)] = 1,
    frames: Annotated[int, Within(0, 16, clamps=True)] = 8,
    mode: Literal["trained", "random"] = "trained",
    actions: Literal["as_evaluated", "greedy", "sampled"] = "as_evaluated",
    seed: Seed = "test",
    max_steps: Annotated[int, Within(1, 10_000, clamps=True)] = 1000,
    env_kwargs: Fields = NO_FIELDS,
    view: Literal["frame", "observation"] = "frame",
    keep: bool = False,
    episode: str = "",
    seconds: Annotated[float, Within(1.0, 600.0, clamps=True)] = MOST_WAIT_S,
) -> Pictured:
    """Play episodes and return a picture of frames in order, with returns and what the agent
    did at each frame. target: a run, RUN/@best, RUN/<env_steps>, or a config (mode random).
    seed: test, val, train or a number. view observation: what the network sees. keep: leave
    the episodes in the run, for open_ui. episode: show a kept one, by id or `worst`. Call it
    again while done is false."""
    kwargs = allowed.checked_overrides({"env_kwargs": env_kwargs}, desk.root)["env_kwargs"]
    wanted: dict[str, Any] = {
        "episodes": episodes,
        "frames": frames,
        "greedy": {"as_evaluated": None, "greedy": True, "sampled": False}[actions],
        "seed": seed,
        "max_steps": max_steps,
        "env_kwargs": {f"env_kwargs.{key}": value for key, value in kwargs.items()},
        "mode": mode,
        "view": view,
        "keep": keep,
        "episode": episode,
        # Of playing: the rest is for the start of the process.
        "seconds": seconds / 2,
    }
    if mode == "trained":
        found = resolve_checkpoint(target, desk.root, allow_paths=False)
        wanted |= {"run": str(found.run.path.absolute()), "checkpoint": found.path.name}
    elif keep or episode:
        raise RunError("episodes of random actions are not kept: they belong to no run")
    else:
        wanted["config"] = allowed.checked_config(target, desk.root)
    argv = [sys.executable, "-m", "gymnasium_solver.serve.mcp.play_process", json.dumps(wanted)]
    has_ended, lines = desk.commands.answer(argv, seconds)
    if not has_ended:
        so_far = [json.loads(line) for line in lines]
        return Pictured({"done": False, "note": allowed.AGAIN, "episodes": so_far}, [])
    played = json.loads(lines[-1])
    sheet = played.pop("sheet")
    return Pictured({"done": True} | played, [base64.b64decode(sheet)] if sheet else [])


def evaluate(
    desk: AgentDesk,
    target: str,
    episodes: Annotated[int, Within(1, 10_000)] = 100,
    seed: Seed = "test",
    env_kwargs: Fields = NO_FIELDS,
    seconds: LongPatience = MOST_WAIT_S,
) -> Answer:
    """The score of a checkpoint (RUN, RUN/@last, RUN/<env_steps>) over episodes, greedy and
    sampled. seed: test repeats the run's test; a number: fresh ones. Call it again while done
    is false."""
    found = resolve_checkpoint(target, desk.root, allow_paths=False)
    words = ["eval", f"{found.run.path.absolute()}/{found.path.name}", "--json", "--no-keep"]
    words += ["--episodes", str(episodes), "--seed", str(seed)]
    kwargs = allowed.checked_overrides({"env_kwargs": env_kwargs}, desk.root)["env_kwargs"]
    words += as_flags(allowed.yaml_texts({f"env_kwargs.{k}": v for k, v in kwargs.items()}))
    told = desk.told(seconds, *words)
    for name, result in told.get("scores", {}).items():
        told["scores"][name] = {n: result[n] for n in SCORE if result.get(n) is not None}
    return told


def open_ui(desk: AgentDesk, run: str = "") -> Answer:
    """Start the web app, read-only, and return its URL for the person: all runs, or a run and
    the inspector of its kept episodes."""
    page = notebook.ui(runs_dir=desk.root, read_only=True)
    if not run:
        return {"url": page.url}
    found = desk.run(run)
    name = found.id
    if found.path.parent.absolute() != desk.root.absolute():
        raise RunError("runs of a search have no page in the web app; look with plot and play")
    return {"url": f"{page.url}runs/{name}", "inspector": f"{page.url}inspect/{name}"}


# --- facts about a run


def row(run: RunSummary) -> Answer:
    """One line of a listing."""
    told = picked(run, "run=id status solved test=test_mean val=best_score env_steps seed")
    return told | {"minutes": run.wall_s / 60, "tags": ",".join(run.tags)}


def summary(found: RunSummary) -> Answer:
    told = picked(found, "run=id env=env_id algo=algo_id variant seed status")
    told["stopped"] = stopped(found, "") if found.status in ENDED else None
    told |= picked(found, "solved threshold test best_validation=best tags note folder=path")
    return {key: value for key, value in told.items() if value not in (None, [], "")}


def progress(found: RunSummary) -> Answer:
    speed, most, left = found.env_steps_per_s, found.max_env_steps, None
    if most is not None and speed and found.status == "running":
        left = (most - found.env_steps) / speed
    return {
        **picked(found, "env_steps max_env_steps"),
        "share": found.env_steps / most if most else None,
        **picked(found, "epoch episodes wall_s env_steps_per_s"),
        "seconds_left_at_most": left,
        "last_validation": found.last_eval,
    }


def score(run: Run, found: RunSummary) -> dict[str, Any]:
    """The score compared with random actions and the threshold."""
    value = found.score
    baseline = random_baseline(found.env_id, game_settings(query.get_config(run)))
    data: dict[str, Any] = {
        "score": value,
        "kind": "held-out test" if found.test else "best validation, which is too high",
        "threshold": found.threshold,
        "random_actions": baseline.mean if baseline else None,
    }
    if baseline is not None and value is not None:
        data["share_from_random_to_threshold"] = baseline.normalize(value, found.threshold)
    return data


def log_lines(run: Run) -> list[str]:
    """run.log; before it has a line, the output of the process that starts the run."""
    return query.get_log(run) or tail(run.path, 100)


def _alert(record: AlertRecord) -> dict[str, Any]:
    about = "alert=name active=is_active times from=first_env_steps to=last_env_steps"
    return picked(record, f"{about} seen=text means=meaning try=advice")


def _hyperparams(desk: Desk, run: RunDetails) -> dict[str, Any]:
    """How hyper-parameters changed: schedules, edits while training, resumes with other fields."""
    table, prefix = desk.tables.of(run.run), "train/hp/"
    names = [name for name in table.names if name.startswith(prefix)]
    edits = [picked(edit, "env_steps changed source") for edit in read_edits(run.run)]
    return {
        "history": {n.removeprefix(prefix): changes(curve_of(table, n)) for n in names},
        "edits": edits[-SHOWN:],
        "at_resumes": query.get_events(run.run, "config")[-SHOWN:],
    }


SECTIONS: dict[str, Callable[[Desk, RunDetails], Any]] = {
    "progress": lambda desk, run: progress(run.summary),
    "config": lambda desk, run: {
        "fields": {name: value for name, value in run.config.items() if name != "spec"},
        "changed_from_shipped": run.meta.get("changed"),
    },
    "checkpoints": lambda desk, run: run.summary.checkpoints,
    "evals": lambda desk, run: [
        {name: event[name] for name in EVALUATION if event.get(name) is not None}
        for event in run.evaluations[-SHOWN:]
    ],
    "alerts": lambda desk, run: [_alert(record) for record in run.alerts],
    "hyperparams": _hyperparams,
    "origin": lambda desk, run: {n: v for n, v in picked(run.meta, ORIGIN).items() if v},
}
