"""`GET api/runs/ID`: everything about one run but its curves. Its log, videos and report, too."""

from typing import Any

from starlette.requests import Request
from starlette.responses import FileResponse, Response
from starlette.routing import BaseRoute, Route

from gymnasium_solver.errors import RunError
from gymnasium_solver.printable import printable
from gymnasium_solver.runs.files import finite
from gymnasium_solver.runs.index import stamp
from gymnasium_solver.runs.metrics import describe
from gymnasium_solver.runs.query import get_alerts, get_config, get_events, get_meta, get_run
from gymnasium_solver.runs.report_facts import VIDEOS
from gymnasium_solver.runs.report_page import MEDIA_TYPES
from gymnasium_solver.runs.run import Run, is_alive_here
from gymnasium_solver.runs.words import ScoreText, next_steps, result_rows, train_command
from gymnasium_solver.serve.web.respond import in_thread, run_of, web_of
from gymnasium_solver.serve.web.text_tail import follow_text

MOST_CONFIGS = 2_000


def routes() -> list[BaseRoute]:
    return [
        Route("/api/runs/{run}", in_thread(detail)),
        Route("/api/runs/{run}/returns", in_thread(returns)),
        Route("/api/runs/{run}/log", in_thread(log)),
        Route("/api/runs/{run}/videos/{name}", in_thread(video)),
    ]


def detail(request: Request) -> dict[str, Any]:
    run = run_of(request)
    summary, meta = get_run(run), get_meta(run)
    events = get_events(run)
    evaluations = [_evaluation(event) for event in events if event.get("kind") == "eval"]
    tests = [event for event in events if event.get("stage") == "test"]
    score = ScoreText(summary.threshold, [event.get("mean") for event in evaluations])
    rows, why = result_rows(summary, tests, score)
    table = web_of(request).tables.of(run)
    return {
        "summary": summary.to_dict() | {"path": None},
        "is_alive": is_alive_here(meta),
        "result": rows,
        "why": why,
        "config": _config_or_none(request, run),
        "changed": meta.get("changed") if isinstance(meta.get("changed"), dict) else None,
        "machine": _mapping(meta, "machine") | {"pid": meta.get("pid")},
        "versions": _mapping(meta, "versions"),
        "git": _mapping(meta, "git"),
        "command": [printable(word) for word in meta.get("command") or [] if word is not None],
        "resumed": meta.get("resumed") if isinstance(meta.get("resumed"), list) else [],
        "alerts": [alert.to_dict() for alert in get_alerts(run)],
        "evaluations": evaluations,
        "changes": [event for event in events if event.get("kind") == "hyperparameter"],
        "metrics": [_metric(name, table.last(name)) for name in table.names],
        "videos": videos_of(run),
        "commands": [*next_steps(summary), train_command(summary)],
    }


def _config_or_none(request: Request, run: Run) -> dict[str, Any] | None:
    """The config; parsing YAML takes longer than all the rest, so it is kept until it changes."""
    kept = web_of(request).configs
    key = (run.id, *(stamp(str(run.config_path)) or ()))
    if key not in kept:
        try:
            config = get_config(run)
        except RunError:
            return None
        while len(kept) >= MOST_CONFIGS:
            kept.pop(next(iter(kept)), None)
        kept[key] = config
    return kept[key]


def _mapping(meta: dict[str, Any], name: str) -> dict[str, Any]:
    value = meta.get(name)
    return value if isinstance(value, dict) else {}


def _evaluation(event: dict[str, Any]) -> dict[str, Any]:
    names = (
        "stage", "at", "env_steps", "epoch", "mean", "std", "stderr", "min", "max", "episodes",
        "length_mean", "success", "greedy",
    )  # fmt: skip
    return {name: event[name] for name in names if name in event}


def _metric(name: str, last: float | None) -> dict[str, Any]:
    about = describe(name)
    kept = ("description", "better", "group", "unit", "priority")
    return {"name": printable(name), "last": last} | {key: getattr(about, key) for key in kept}


def videos_of(run: Run) -> list[dict[str, Any]]:
    if not run.videos_dir.is_dir():
        return []
    paths = sorted(path for path in run.videos_dir.iterdir() if path.suffix.lower() in VIDEOS)
    return [
        {"name": p.name, "bytes": p.stat().st_size, "kind": MEDIA_TYPES[p.suffix.lower()]}
        for p in paths
    ]


def returns(request: Request) -> dict[str, Any]:
    """The returns of the single episodes of each evaluation."""
    evaluations = [
        {name: event.get(name) for name in ("stage", "env_steps", "greedy")}
        | {"returns": [r for r in map(finite, event["returns"]) if r is not None]}
        for event in get_events(run_of(request), "eval")
        if isinstance(event.get("returns"), list)
    ]
    return {"evaluations": [one for one in evaluations if one["returns"]]}


def log(request: Request) -> dict[str, Any]:
    tail = follow_text(run_of(request).log_path, request.query_params.get("cursor"))
    return {"text": tail.text, "cursor": tail.cursor, "reset": tail.is_reset}


def video(request: Request) -> Response:
    """Only a file that the listing of the folder has: a name is compared, never joined."""
    run, name = run_of(request), request.path_params["name"]
    for known in videos_of(run):
        if known["name"] == name:
            path = run.videos_dir / name
            if path.resolve().parent == run.videos_dir.resolve():
                return FileResponse(path, media_type=known["kind"])
    raise RunError(f"{run.id} has no video {name!r}")
