"""Tools that read: configs, runs, logs, diagnoses, comparisons."""

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
from gymnasium_solver.runs.query import RunDetails, RunSummary
from gymnasium_solver.runs.run import Run
from gymnasium_solver.runs.words import stopped
from gymnasium_solver.serve.mcp.commands import checked_overrides, field_docs, shown_config
from gymnasium_solver.serve.mcp.metric_tools import changes, curve_of, outcome, trend
from gymnasium_solver.serve.mcp.sql_tools import matching
from gymnasium_solver.serve.questions import NO_FIELDS, Answer, Desk, Fields, Limit, OneRun, Runs

SHOWN = 12
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
    fields = shown_config(config, checked_overrides(overrides, desk.root), desk.root)
    if not explain:
        return {"config": {name: value for name, value in fields.items() if name != "spec"}}
    parts = [part.strip().lower() for part in explain if part.strip()]
    found = [name for name in fields if any(part in name for part in parts)]
    if not found:
        raise RunError(f"no field matches {', '.join(explain)[:80]!r}; get_config lists all")
    about = field_docs()
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
    if baseline:
        runs = [_best_other(desk, runs) if baseline == "best" else desk.run(baseline), *runs]
    found = {run.id: run for run in runs}
    if metric:
        rows = [outcome(desk.tables.of(run), metric) for run in found.values()]
        return {"metric": metric, "runs": rows}
    return comparison(desk, list(found))


def _best_other(desk: Desk, others: Sequence[Run]) -> Run:
    env_id, ids = query.get_run(others[0]).env_id, {run.id for run in others}
    for run in desk.store.select([f"env={env_id}"], "test"):
        if run.test is not None and run.id not in ids:
            return desk.run(run.id)
    raise RunError(f"no other run of {env_id} was tested; give a run as the baseline")


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


def _config(desk: Desk, run: RunDetails) -> dict[str, Any]:
    return {
        "fields": {name: value for name, value in run.config.items() if name != "spec"},
        "changed_from_shipped": run.meta.get("changed"),
    }


def _evaluations(desk: Desk, run: RunDetails) -> list[dict[str, Any]]:
    """The newest evaluations and tests."""
    return [
        {name: event[name] for name in EVALUATION if event.get(name) is not None}
        for event in run.evaluations[-SHOWN:]
    ]


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
    "config": _config,
    "checkpoints": lambda desk, run: run.summary.checkpoints,
    "evals": _evaluations,
    "alerts": lambda desk, run: [_alert(record) for record in run.alerts],
    "hyperparams": _hyperparams,
    "origin": lambda desk, run: {n: v for n in ORIGIN if (v := run.meta.get(n))},
}
