"""What the pages of experiments and sweeps ask: how far they are, scores, verdicts, trials; stop,
resume, and the winner of a sweep as a config.

The facts are those of `gsolve experiments`, `compare` and `sweep show`; the pages only draw them.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from starlette.responses import FileResponse, Response

from gymnasium_solver.errors import GsolveError, RunError
from gymnasium_solver.experiments import experiment as folders
from gymnasium_solver.experiments.auto import is_solve, story
from gymnasium_solver.experiments.experiment import Experiment, Row
from gymnasium_solver.experiments.groups import experiment_groups
from gymnasium_solver.paths import is_own_file
from gymnasium_solver.printable import printable
from gymnasium_solver.runs.files import is_locked, picked
from gymnasium_solver.runs.metrics import describe
from gymnasium_solver.runs.query import get_run
from gymnasium_solver.runs.resolve import meant
from gymnasium_solver.runs.run import Run, is_run
from gymnasium_solver.runs.store import stamp
from gymnasium_solver.runs.words import stopped
from gymnasium_solver.serve import trainings
from gymnasium_solver.serve.commands import output_of
from gymnasium_solver.serve.questions import Answer, BadRequest, Within, plain_name
from gymnasium_solver.serve.web.handling import Web
from gymnasium_solver.serve.web.job_pages import begin_job

if TYPE_CHECKING:
    from gymnasium_solver.experiments.search.sweep_folder import Sweep, View

FRESH_S = 0.3
REPORTS = {"report.html": "text/html", "report.md": "text/markdown"}


def experiments(web: Web) -> Answer:
    """All experiments and sweeps, newest first."""
    web.store.refresh(FRESH_S)
    found = [_told(web, name, _brief_experiment) for name in folders.experiment_ids(web.root)]
    sweeps = [_told(web, name, _brief_sweep) for name in _sweep_ids(web.root)]
    return {"experiments": found, "sweeps": sweeps}


def _told(web: Web, name: str, tell: Any) -> Answer:
    """A damaged folder must not hide the others."""
    try:
        told: Answer = tell(web, name)
    except GsolveError as error:
        return {"id": name, "status": "broken", "why": printable(str(error))[:200]}
    return told


# --- experiments


def _open(web: Web, name: str) -> Experiment:
    path = web.root / folders.FOLDER / name
    key = (name, *(stamp(str(path / folders.FILE)) or ()))
    return web.experiments.get(key, lambda: folders.load(path))


def _rows(web: Web, experiment: Experiment) -> list[Row]:
    return [Row(member, web.store.find(member.run)) for member in experiment.members]


def _brief_experiment(web: Web, name: str) -> Answer:
    experiment = _open(web, name)
    rows = _rows(web, experiment)
    told = folders.facts(experiment, rows)
    del told["path"], told["command"]
    told["counts"] = folders.counts(rows)
    return told | {"is_running": is_locked(experiment.path)}


def _existing(name: str, ref: str, asked: Mapping[str, Any]) -> str:
    """The id of an experiment or a sweep from a unique part of it."""
    ids = {"experiment": folders.experiment_ids, "sweep": _sweep_ids}[name](asked["desk"].root)
    return meant(plain_name(ref, name), ids, name, Path("this folder"))


One = Annotated[str, _existing]


def one_experiment(web: Web, experiment: One) -> Answer:
    """Every run, also those that have not begun, and the comparison so far."""
    web.store.refresh(FRESH_S)
    found = _open(web, experiment)
    rows = _rows(web, found)
    groups = [group for group in experiment_groups(found) if group.scores]
    return _brief_experiment(web, experiment) | {
        "command": printable(" ".join(found.command)),
        "rows": [_row(row) for row in rows],
        "comparison": web.compared(groups) if groups else None,
        "reports": [name for name in REPORTS if (found.path / name).is_file()],
        "solve": _solve(found),
    }


def _solve(found: Experiment) -> Answer | None:
    """Of an environment without a config: what was measured, chosen, raced, checked and judged."""
    told = story(found.path)
    if told is not None:
        told["lines"] = [[stage, printable(str(text))] for stage, text in told["lines"] or []]
    return told


def _row(row: Row) -> Answer:
    told = row.to_dict()
    run = row.run
    told |= picked(run or {}, "best=best_score threshold activity max_env_steps")
    told["why"] = stopped(run, "") if run and row.status not in ("running", "created") else ""
    return told


def stop_experiment(web: Web, experiment: One) -> Answer:
    trainings.stop_coordinator(web.root / folders.FOLDER / experiment)
    return {"stopped": True}


def resume_experiment(web: Web, experiment: One, trust: bool = False) -> Answer:
    if is_locked(web.root / folders.FOLDER / experiment):
        raise BadRequest(f"{experiment} is running")
    _open(web, experiment).check_trust(trust)
    verb = "solve" if is_solve(web.root / folders.FOLDER / experiment) else "train"
    words = [verb, "--resume", experiment, "--runs-dir", str(web.root.absolute())]
    words += ["--trust"] if trust else []
    return {"job": begin_job(web, "experiment", *words)}


def experiment_report(web: Web, experiment: One, file: str) -> Response:
    return _report(web.root / folders.FOLDER / experiment, file)


def _report(folder: Path, file: str) -> Response:
    """A page that was written at the end; shown without any rights here."""
    if file not in REPORTS or not is_own_file(folder / file):
        raise RunError(f"{folder.name} has no {file[:40]!r}; it is written at the end")
    policy = "sandbox; default-src 'none'; style-src 'unsafe-inline'; img-src data:"
    headers = {"content-security-policy": policy}
    return FileResponse(folder / file, media_type=REPORTS[file], headers=headers)


# --- sweeps: Optuna, which reads them, is imported when one is asked for


def _sweep_ids(root: Path) -> list[str]:
    if not (root / "sweeps").is_dir():
        return []
    from gymnasium_solver.experiments.search.sweep_folder import sweep_ids

    return sweep_ids(root)


def _sweep(web: Web, name: str) -> "Sweep":
    from gymnasium_solver.experiments.search.sweep_folder import Sweep, sweeps_root

    return Sweep(sweeps_root(web.root) / name)


def _view(web: Web, name: str) -> "View":
    from gymnasium_solver.experiments.search.sweep_folder import View

    sweep = _sweep(web, name)
    files = [stamp(str(sweep.path / n)) for n in ("journal.log", "result.json", "sweep.yaml")]
    key = (name, *map(str, files))
    known = web.sweeps.get(
        key, lambda: View(sweep, sweep.plan(), sweep.trials(), sweep.read("result.json"))
    )
    return View(sweep, known.plan, known.trials, known.result)  # its status is that of now


def _brief_sweep(web: Web, name: str) -> Answer:
    from gymnasium_solver.experiments.search.plan import METRICS

    found = _view(web, name)
    told = found.summary()
    del told["path"]
    told["created_at"] = (found.sweep.base_path.stat().st_mtime) * 1000
    told["verdict"] = (found.result or {}).get("verdict")
    told["metric_label"] = METRICS.get(told["metric"]) or describe(told["metric"]).label
    return told | {"is_running": told["status"] == "running"}


def one_sweep(web: Web, sweep: One) -> Answer:
    """Trials, importances, the final, and which scale each parameter has."""
    from gymnasium_solver.experiments.search.ranges import Options
    from gymnasium_solver.experiments.search.sweep_report import SCALES, choice_text, fresh_text

    found = _view(web, sweep)
    files = [str(stamp(str(found.sweep.path / n))) for n in ("journal.log", "sweep.yaml")]
    drawn = web.sweep_facts.get((sweep, *files), lambda: _drawn(found))
    space = found.plan.space()
    result = dict(found.result or {})
    texts = {"choice": choice_text(result) if result.get("choice") else None}
    texts["fresh"] = fresh_text(result["fresh"], "") if result.get("fresh") else None
    return _brief_sweep(web, sweep) | drawn | {
        "params": dict(found.plan.params),
        "scales": {
            param.name: "choice" if isinstance(param.latent(), Options)
            else SCALES.get(str(param.distribution).partition(":")[0], "linear")
            for param in space.params
        },
        **picked(found.plan, "sign cost seeds"),
        "result": picked(result, "winner is_own params final verdict"),
        "texts": texts,
        "running": _running(found),
        "reports": [name for name in REPORTS if (found.sweep.path / name).is_file()],
    }  # fmt: skip


def _drawn(found: "View") -> Answer:
    """What takes a while to compute."""
    rows = found.rows()
    for row in rows:
        del row["path"]
        folder = found.sweep.trial_dir(row["number"])
        names = sorted(path.name for path in folder.glob("seed*"))
        row["runs"] = [f"{found.sweep.id}/trials/{folder.name}/{name}" for name in names]
    shares = found.importances()
    return {
        "rows": rows,
        "importances": [[n, one.value, one.low, one.high] for n, one in shares.items()],
    }


def _running(found: "View") -> list[Answer]:
    """The trainings of the search and of the final that are under way."""

    told = []
    places = [f"trials/{t.number:04d}" for t in found.trials if not t.is_over]
    for folder in [*(found.sweep.path / p for p in places), *found.sweep.path.glob("final/*")]:
        for path in sorted(folder.glob("*")) if found.status == "running" else ():
            if is_run(path) and (run := get_run(Run(path))).status == "running":
                name = path.relative_to(found.sweep.path).as_posix()
                share = run.env_steps / run.max_env_steps if run.max_env_steps else None
                about = {"run": f"{found.sweep.id}/{name}", "name": name, "progress": share}
                told.append(about | {"best": run.best_score, "wall_s": run.wall_s})
    return told


def stop_sweep(web: Web, sweep: One) -> Answer:
    trainings.stop_coordinator(_sweep(web, sweep).path)
    return {"stopped": True}


def resume_sweep(
    web: Web, sweep: One, trials: Annotated[int, Within(0, 100_000)] = 0, trust: bool = False
) -> Answer:
    """`trials`: so many in all, more than before."""
    if is_locked(_sweep(web, sweep).path):
        raise BadRequest(f"{sweep} is running")
    _sweep(web, sweep).check_trust(trust)
    words = ["sweep", "--resume", sweep, "--runs-dir", str(web.root.absolute())]
    words += ["--trials", str(trials)] if trials else []
    words += ["--trust"] if trust else []
    return {"job": begin_job(web, "sweep", *words)}


def keep_winner(
    web: Web, sweep: One, variant: str, trial: Annotated[int, Within(-1, 100_000)] = -1
) -> Answer:
    """Write the winner, or a trial, into the user's config files as a variant."""
    found = _sweep(web, sweep)
    config, words = trainings.keep_words(found.path, found.base_path, variant, trial)
    return {"config": config, "file": output_of(*words)["file"]}


def sweep_report(web: Web, sweep: One, file: str) -> Response:
    return _report(_sweep(web, sweep).path, file)


QUESTIONS = {
    "GET /api/experiments": experiments,
    "GET /api/experiments/{experiment}": one_experiment,
    "POST /api/experiments/{experiment}/stop": stop_experiment,
    "POST /api/experiments/{experiment}/resume": resume_experiment,
    "GET /api/experiments/{experiment}/{file}": experiment_report,
    "GET /api/sweeps/{sweep}": one_sweep,
    "POST /api/sweeps/{sweep}/stop": stop_sweep,
    "POST /api/sweeps/{sweep}/resume": resume_sweep,
    "POST /api/sweeps/{sweep}/keep": keep_winner,
    "GET /api/sweeps/{sweep}/{file}": sweep_report,
}
