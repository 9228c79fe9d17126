"""Tools that read: configs, runs, logs, diagnoses, comparisons, learning curves and episodes as
pictures."""

import base64
import io
import json
import sys
import threading
from collections.abc import Callable, Sequence
from typing import Annotated, Any, Literal

from gymnasium_solver.backends.local import tail
from gymnasium_solver.config.find import find_configs
from gymnasium_solver.envs.baselines import game_settings, random_baseline
from gymnasium_solver.errors import RunError
from gymnasium_solver.experiments.groups import group_runs
from gymnasium_solver.runs import query
from gymnasium_solver.runs.alerts.alert import AlertRecord, records
from gymnasium_solver.runs.alerts.judge import judge_run
from gymnasium_solver.runs.edits import read_edits
from gymnasium_solver.runs.plots import choose_panels, draw, read_curves
from gymnasium_solver.runs.query import RunDetails, RunSummary
from gymnasium_solver.runs.resolve import resolve_checkpoint
from gymnasium_solver.runs.run import Run
from gymnasium_solver.runs.words import stopped
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
    Whole,
)
from gymnasium_solver.serve.trainings import config_named

SHOWN = 12
MOST_PANELS = 9
PLAY_TIMEOUT_S = 50.0  # clients give up after a minute
FAILED = ("failed", "killed", "interrupted")
ENDED = ("finished", "broken", *FAILED)
Section = Literal["progress", "config", "checkpoints", "evals", "alerts", "hyperparams", "origin"]
ComparedRuns = Annotated[Sequence[Run], Runs(20)]
# Looked at first in a diagnosis, where they were logged.
VITAL = (
    "train/roll/ep_rew/mean",
    "train/roll/ep_len/mean",
    "val/roll/ep_rew/mean",
    "train/opt/policy/entropy",
    "train/opt/ppo/approx_kl",
    "train/opt/ppo/clip_fraction",
    "train/opt/value/explained_var",
    "train/opt/grads/norm/all",
    "train/opt/q/mean",
    "train/opt/loss/value",
    "train/opt/loss/td",
    "train/hp/epsilon",
    "train/sys/timing/fps",
)
EVALUATION = ("stage", "env_steps", "mean", "std", "stderr", "min", "max", "episodes", "success")
ORIGIN = ("created_at", "command", "versions", "git", "machine", "resumed", "engine", "device")


_drawing = threading.Lock()  # pyplot is not safe in threads


def list_configs(desk: Desk, filter: str = "", limit: Limit = 50) -> Answer:
    """Configs that can be trained, named <env>:<variant>. filter: words of a name, suite or
    description; * and ? match names."""
    entries = find_configs(filter.strip() or None)
    rows = [
        {"config": e.name, "algo": e.algo_id, "suite": e.suite, "about": e.description[:120]}
        for e in entries[:limit]
    ]
    return {"total": len(entries), "configs": rows}


def get_config(
    desk: Desk, config: str, overrides: Fields = NO_FIELDS, explain: Sequence[str] = ()
) -> Answer:
    """The resolved fields of a config (<env>:<variant>, or a run), after overrides.
    explain: fields to describe, or parts of their names."""
    fields = allowed.shown_config(
        config, allowed.checked_overrides(overrides, desk.root), desk.root
    )
    if not explain:
        return {"config": {name: value for name, value in fields.items() if name != "spec"}}
    parts = [part.strip().lower() for part in explain if part.strip()]
    found = [name for name in fields if any(part in name for part in parts)]
    if not found:
        raise RunError(f"no field matches {', '.join(explain)[:80]!r}; get_config lists all")
    about = allowed.field_docs()
    return {"fields": [{"field": n, "value": fields[n], "about": about.get(n, "")} for n in found]}


def list_runs(desk: Desk, filter: str = "", sort: str = "", limit: Limit = 20) -> Answer:
    """Runs, newest first. filter: words and conditions, such as "CartPole solved test>400
    policy_lr<0.01 tag=paper". sort: test, val, steps, time, seed, fps or a config field, best
    first; -field: lowest first. The best run: sort="test", limit=1."""
    found = desk.store.select(filter.split(), sort.strip() or None)
    return {"total": len(found), "runs": [row(run) for run in found[:limit]]}


def get_run(desk: Desk, run: OneRun, sections: Sequence[Section] = ("progress",)) -> Answer:
    """Status, verdict and sections of a run. A run is @last, an id, or a unique part of one.
    hyperparams: their history; origin: command, versions, machine, resumes."""
    details = query.get_details(run)
    return summary(details.summary) | {name: SECTIONS[name](desk, details) for name in sections}


def get_logs(desk: Desk, run: OneRun, lines: Limit = 40, pattern: str = "") -> Answer:
    """The last lines of a run's log. pattern: only lines that match this regular expression,
    without regard to case."""
    text = [line[:500] for line in log_lines(run)]
    if pattern:
        text = matching(text, pattern)
    return {"run": run.id, "lines_in_all": len(text), "log": text[-lines:]}


def diagnose(desk: Desk, run: OneRun) -> Answer:
    """Judge a run: problems with what they usually mean and what to try, progress, score
    against random actions and the threshold, recent metrics. Start here to debug."""
    judged, judge = judge_run(run)
    found, now, table = records(judged), query.get_run(run), desk.tables.of(run)
    curves = {name: curve_of(table, name) for name in VITAL if name in table.names}
    curves = {name: curve for name, curve in curves.items() if len(curve[0])}
    start = round(max((int(x[-1]) for x, _ in curves.values()), default=0) * 2 / 3)
    recent = [trend(name, curve_of(table, name, start)) for name in curves]
    return {
        "run": run.id,
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


def compare_runs(desk: Desk, runs: ComparedRuns, metric: str = "", baseline: str = "") -> Answer:
    """Compare runs. Runs that differ only by the seed form a group; the first group is the
    baseline, or baseline: a run, or "best" for the best other run of the same env. Without
    metric: held-out scores with intervals, and a verdict. metric: last, best and mean of
    the last tenth."""
    if baseline == "best":
        env_id, ids = query.get_run(runs[0]).env_id, {run.id for run in runs}
        tested = [run for run in desk.store.select([f"env={env_id}"], "test") if run.test]
        baseline = next((run.id for run in tested if run.id not in ids), "")
        if not baseline:
            raise RunError(f"no other run of {env_id} was tested; give a run as the baseline")
    if baseline:
        runs = [desk.run(baseline), *runs]
    found = {run.id: run for run in runs}
    if metric:
        rows = [outcome(desk.tables.of(run), metric) for run in found.values()]
        return {"metric": metric, "runs": rows}
    return comparison(desk, list(found))


def comparison(desk: Desk, ids: Sequence[str]) -> Answer:
    """Groups of seeds, their scores with intervals, and verdicts."""
    result = desk.compared(group_runs(ids, desk.root))
    groups = [
        {
            "group": group["label"],
            "runs": group["runs"],
            "iqm": group["iqm"]["value"],
            "low": group["iqm"]["low"],
            "high": group["iqm"]["high"],
            "scores": group["scores"],
            "untested": group["n_untested"],
            "solved": f"{group['n_solved']}/{len(group['runs'])}",
            "solved_at": group["solved_at"],
            "median_minutes": group["wall_s"] / 60,
        }
        for group in result["groups"]
    ]
    verdicts = [
        {"group": v["first"], "against": v["second"], "verdict": v["text"]}
        for v in result["verdicts"]
    ]
    return {"groups": groups, "verdicts": verdicts, "fields_that_differ": result["differences"]}


# --- pictures


def plot(desk: AgentDesk, runs: ComparedRuns, metrics: Sequence[str] = ()) -> Pictured:
    """A PNG of learning curves over env steps: returns, or one panel per metric (a part of a
    name is enough). Several runs share the axes."""
    if len(metrics) > MOST_PANELS:
        raise RunError(f"{len(metrics)} metrics given, at most {MOST_PANELS} panels")
    curves = [read_curves(run) for run in runs]
    panels = choose_panels(curves, list(metrics) or None)
    buffer = io.BytesIO()
    with _drawing:
        draw(curves, panels, buffer)
    return Pictured({"runs": [c.id for c in curves], "panels": panels}, [buffer.getvalue()])


def play(
    desk: AgentDesk,
    target: str,
    episodes: Annotated[int, Whole(1, 20, clamps=True)] = 1,
    frames: Annotated[int, Whole(0, 16, clamps=True)] = 8,
    mode: Literal["trained", "random"] = "trained",
    actions: Literal["as_evaluated", "greedy", "sampled"] = "as_evaluated",
    seed: str = "test",
    max_steps: Annotated[int, Whole(1, 10_000, clamps=True)] = 1000,
    env_kwargs: Fields = NO_FIELDS,
    view: Literal["frame", "observation"] = "frame",
    keep: bool = False,
    episode: str = "",
) -> Pictured:
    """Play episodes and return a picture of frames in order, with returns and what the agent
    did at each frame. target: a run, RUN/@best, RUN/@last, RUN/<env_steps>, or a config
    (mode random). seed: test, val, train or a number. view observation: what the network
    sees, after all wrappers. keep: leave the episodes in the run, for the inspector of gsolve
    ui. episode: show one that is kept there, by its id or `worst`, instead of playing."""
    wanted: dict[str, Any] = {
        "episodes": episodes,
        "frames": frames,
        "greedy": {"as_evaluated": None, "greedy": True, "sampled": False}[actions],
        "seed": int(seed) if seed.isdecimal() else seed,
        "max_steps": max_steps,
        "env_kwargs": allowed.checked_overrides({"env_kwargs": env_kwargs}, desk.root)[
            "env_kwargs"
        ],
        "mode": mode,
        "view": view,
        "keep": keep,
        "episode": episode,
    }
    if mode == "trained":
        found = resolve_checkpoint(target, desk.root, allow_paths=False)
        wanted |= {"run": str(found.run.path.absolute()), "checkpoint": found.path.name}
    elif keep or episode:
        raise RunError("episodes of random actions are not kept: they belong to no run")
    else:
        wanted["config"] = config_named(target, desk.root)
    argv = [sys.executable, "-m", "gymnasium_solver.serve.mcp.play_process", json.dumps(wanted)]
    played = json.loads(allowed.output_of_argv(argv, "play", PLAY_TIMEOUT_S).splitlines()[-1])
    sheet = played.pop("sheet")
    return Pictured(played, [base64.b64decode(sheet)] if sheet else [])


# --- facts about a run


def row(run: RunSummary) -> dict[str, Any]:
    """One line of a listing."""
    return {
        "run": run.id,
        "status": run.status,
        "solved": run.solved,
        "test": run.test_mean,
        "val": run.best_score,
        "env_steps": run.env_steps,
        "seed": run.seed,
        "minutes": run.wall_s / 60,
        "tags": ",".join(run.tags),
    }


def summary(found: RunSummary) -> dict[str, Any]:
    data: dict[str, Any] = {
        "run": found.id,
        "env": found.env_id,
        "algo": found.algo_id,
        "variant": found.variant,
        "seed": found.seed,
        "status": found.status,
        "stopped": stopped(found, "") if found.status in ENDED else None,
        "solved": found.solved,
        "threshold": found.threshold,
        "test": found.test,
        "best_validation": found.best,
        "tags": found.tags,
        "note": found.note,
        "folder": found.path,
        "ui": f"gsolve ui, then /runs/{found.id}",
    }
    return {key: value for key, value in data.items() if value not in (None, [], "")}


def progress(found: RunSummary) -> dict[str, Any]:
    speed = found.env_steps_per_s
    most, left = found.max_env_steps, None
    if most is not None and speed and found.status == "running":
        left = (most - found.env_steps) / speed
    return {
        "env_steps": found.env_steps,
        "max_env_steps": most,
        "share": found.env_steps / most if most else None,
        "epoch": found.epoch,
        "episodes": found.episodes,
        "wall_s": found.wall_s,
        "env_steps_per_s": speed,
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
    return {
        "alert": record.name,
        "active": record.is_active,
        "times": record.times,
        "from": record.first_env_steps,
        "to": record.last_env_steps,
        "seen": record.text,
        "means": record.meaning,
        "try": record.advice,
    }


def _hyperparams(desk: Desk, run: RunDetails) -> dict[str, Any]:
    """How hyper-parameters changed: schedules, edits while training, resumes with other fields."""
    table, prefix = desk.tables.of(run.run), "train/hp/"
    names = [name for name in table.names if name.startswith(prefix)]
    edits = [
        {"env_steps": edit.env_steps, "changed": edit.changed, "source": edit.source}
        for edit in read_edits(run.run)
    ]
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
    "origin": lambda desk, run: {n: v for n in ORIGIN if (v := run.meta.get(n))},
}
