"""What a client is given about a run: a row of a listing, a summary, sections, a diagnosis."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from gymnasium_solver.backends.local import tail
from gymnasium_solver.envs.baselines import game_settings, random_baseline
from gymnasium_solver.errors import RunError
from gymnasium_solver.runs import query
from gymnasium_solver.runs.alerts.alert import records
from gymnasium_solver.runs.alerts.judge import judge_run
from gymnasium_solver.runs.edits import read_edits
from gymnasium_solver.runs.query import RunSummary
from gymnasium_solver.runs.run import Run
from gymnasium_solver.runs.words import stopped
from gymnasium_solver.serve.mcp import series

SHOWN = 12
ENDED = ("finished", "interrupted", "failed", "killed", "broken")
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


def row(run: RunSummary) -> dict[str, Any]:
    """One line of a listing."""
    return {
        "run": run.id,
        "status": run.status,
        "solved": run.solved,
        "test": run.test["mean"] if run.test else None,
        "val": run.best["score"] if run.best else None,
        "env_steps": run.env_steps,
        "seed": run.seed,
        "minutes": run.wall_s / 60,
        "tags": ",".join(run.tags),
    }


def summary(run: Run) -> dict[str, Any]:
    found = query.get_run(run)
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


def progress(run: Run) -> dict[str, Any]:
    found = query.get_run(run)
    speed = found.env_steps / found.wall_s if found.wall_s else None
    left = None
    if found.max_env_steps is not None and speed and found.status == "running":
        left = (found.max_env_steps - found.env_steps) / speed
    share = found.env_steps / found.max_env_steps if found.max_env_steps else None
    return {
        "env_steps": found.env_steps,
        "max_env_steps": found.max_env_steps,
        "share": share,
        "epoch": found.epoch,
        "episodes": found.episodes,
        "wall_s": found.wall_s,
        "env_steps_per_s": speed,
        "seconds_left_at_most": left,
        "last_validation": found.last_eval,
    }


def config(run: Run) -> dict[str, Any]:
    fields = without_spec(query.get_config(run))
    return {"fields": fields, "changed_from_shipped": run.meta().get("changed")}


def without_spec(config: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a config, without the description of its environment."""
    return {name: value for name, value in config.items() if name != "spec"}


def checkpoints(run: Run) -> list[dict[str, Any]]:
    return [dict(checkpoint) for checkpoint in query.get_run(run).checkpoints]


def evaluations(run: Run) -> list[dict[str, Any]]:
    """The newest evaluations and tests."""
    return [_short_eval(event) for event in query.get_events(run, "eval")[-SHOWN:]]


def _short_eval(event: Mapping[str, Any]) -> dict[str, Any]:
    names = ("stage", "env_steps", "mean", "std", "stderr", "min", "max", "episodes", "success")
    return {"stage": "val"} | {n: event[n] for n in names if event.get(n) is not None}


def alerts(run: Run) -> list[dict[str, Any]]:
    return [_short_alert(record.to_dict()) for record in query.get_alerts(run)]


def _short_alert(record: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "alert": record["name"],
        "active": record["is_active"],
        "times": record["times"],
        "from": record["first_env_steps"],
        "to": record["last_env_steps"],
        "seen": record["text"],
        "means": record["meaning"],
        "try": record["advice"],
    }


def hyperparams(run: Run) -> dict[str, Any]:
    """How hyper-parameters changed: schedules, edits while training, resumes with other fields."""
    curves = query.get_metrics(run)
    names = [name for name in curves if name.startswith("train/hp/")]
    edits = [
        {"env_steps": edit.env_steps, "changed": edit.changed, "source": edit.source}
        for edit in read_edits(run)
    ]
    return {
        "history": {name.removeprefix("train/hp/"): series.changes(curves[name]) for name in names},
        "edits": edits[-SHOWN:],
        "at_resumes": query.get_events(run, "config")[-SHOWN:],
    }


def origin(run: Run) -> dict[str, Any]:
    meta = query.get_meta(run)
    names = ("created_at", "command", "versions", "git", "machine", "resumed", "engine", "device")
    return {name: meta[name] for name in names if meta.get(name) not in (None, [])}


def explained(
    fields: Mapping[str, Any], docs: Mapping[str, str], wanted: Sequence[str]
) -> list[dict[str, Any]]:
    """Fields of a config with what they mean."""
    parts = [part.strip().lower() for part in wanted if part.strip()]
    found = [name for name in fields if any(part in name for part in parts)]
    if not found:
        raise RunError(f"no field matches {', '.join(wanted)[:80]!r}; get_config lists all")
    return [{"field": n, "value": fields[n], "about": docs.get(n, "")} for n in found]


def log_lines(run: Run) -> list[str]:
    """run.log; before it has a line, the output of the process that starts the run."""
    return query.get_log(run) or tail(run.path, 100)


def diagnosis(run: Run) -> dict[str, Any]:
    judged, judge = judge_run(run)
    found = records(judged)
    summary_ = query.get_run(run)
    recent = [series.trend(name, curve) for name, curve in _recent(run).items()]
    data = {
        "run": run.id,
        "status": summary_.status,
        "stopped": stopped(summary_, "not yet"),
        "healthy": not any(record.is_active for record in found),
        "problems": [_short_alert(record.to_dict()) for record in found],
        "not_judged": judge.not_judged,
        "score": score(run, summary_),
        "progress": progress(run),
        "latest": series.latest(run, VITAL),
        "trend_of_the_last_third": [
            {k: t[k] for k in ("metric", "trend", "verdict", "change_over_range") if k in t}
            for t in recent
        ],
    }
    if summary_.status in ("failed", "killed", "interrupted"):
        data["log"] = log_lines(run)[-SHOWN:]
    return data


def _recent(run: Run) -> dict[str, series.Points]:
    rows = query.get_rows(run)
    last = rows[-1]["env_steps"] if rows else 0
    logged = set(series.names_in(rows, ()))
    names = [name for name in VITAL if name in logged]
    return series.chosen(rows, names, round(last * 2 / 3), None) if names else {}


def score(run: Run, found: RunSummary) -> dict[str, Any]:
    """The score beside random actions and the threshold."""
    value = found.test["mean"] if found.test else found.best["score"] if found.best else None
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


def comparison(ids: Sequence[str], root: Path) -> dict[str, Any]:
    """Groups of seeds, their scores with intervals, and verdicts."""
    from gymnasium_solver.experiments.compare import compare
    from gymnasium_solver.experiments.groups import group_runs

    result = compare(group_runs(ids, root)).to_dict()
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
