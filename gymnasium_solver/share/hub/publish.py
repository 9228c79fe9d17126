"""`gsolve publish`: a run with its model card, in one commit.

plan = plan_publication("@last", root, repo_id=None)      # nothing has left the machine
plan.package.files, plan.repo_id
address = send(plan, private=True)
"""

import importlib.util
import io
import re
import tempfile
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from PIL import Image

from gymnasium_solver.errors import GsolveError
from gymnasium_solver.runs.checkpoint import BEST, LAST, pointer_env_steps
from gymnasium_solver.runs.episodes import Episode, list_episodes
from gymnasium_solver.runs.files import dump_json
from gymnasium_solver.runs.query import RunSummary, get_config, get_run
from gymnasium_solver.runs.resolve import resolve_run
from gymnasium_solver.runs.run import Run
from gymnasium_solver.share.hub.card import Results, model_card, read_results
from gymnasium_solver.share.hub.client import check_repo, commit, user_name
from gymnasium_solver.share.hub.package import Package, package_run
from gymnasium_solver.share.hub.scrub import Scrub


@dataclass(frozen=True)
class Options:
    checkpoints: str = "best"
    """best, last (best and last) or all."""
    allow_diff: bool = False
    video: bool = True
    onnx: bool = False
    licence: str = "mit"


@dataclass(frozen=True)
class Publication:
    run: Run
    repo_id: str
    package: Package
    results: Results
    notes: list[str]


def plan_publication(
    ref: str,
    root: Path,
    repo_id: str | None = None,
    options: Options | None = None,
    scrub: Scrub | None = None,
) -> Publication:
    """All files that would leave the machine. Nothing is sent."""
    options = options or Options()
    run = resolve_run(ref, root)
    summary = get_run(run, include_config=True)
    repo_id = check_repo(repo_id or f"{_user_or_placeholder()}/{default_name(summary)}")
    package = package_run(
        run, checkpoints=options.checkpoints, allow_diff=options.allow_diff, scrub=scrub
    )
    notes: list[str] = []
    results = read_results(run, summary, root)
    package.files["results.json"] = dump_json(package.scrub.value(results.to_dict()))
    with suppress(GsolveError):  # a run without rows has no curve
        package.files["curves.png"] = _made("curves.png", lambda path: _draw_curves(run, path))
    if options.video:
        _add_video(package, run, root, notes)
    if options.onnx:
        package.files["policy.onnx"] = _made("policy.onnx", lambda path: _export(run, root, path))
    public = replace(summary, config=package.scrub.value(summary.config))
    card = model_card(public, results, repo_id, list(package.files), options.licence)
    package.files["README.md"] = card.encode()
    package.seal()
    return Publication(run, repo_id, package, results, notes)


def send(plan: Publication, *, private: bool = True) -> str:
    """Upload in one commit; return the address of the repository."""
    message = f"{plan.run.id}: {plan.results.text}"
    message = plan.package.scrub.text(message)
    return commit(plan.repo_id, plan.package.files, message, private=private, kind="model")


def default_name(summary: RunSummary) -> str:
    """`algo-Env-v1`, as the zoo names its repositories."""
    return re.sub(r"[^\w.-]+", "-", f"{summary.algo_id}-{summary.env_id}").strip("-.")


def _user_or_placeholder() -> str:
    """The name of the account; a dry run works without one."""
    try:
        return user_name()
    except GsolveError:
        return "USER"


def _made(name: str, make: Callable[[Path], object]) -> bytes:
    """The file that `make` writes."""
    with tempfile.TemporaryDirectory(prefix="gsolve-publish-") as folder:
        path = Path(folder) / name
        make(path)
        return path.read_bytes()


def _draw_curves(run: Run, path: Path) -> None:
    from gymnasium_solver.runs.plots import choose_panels, draw, read_curves

    curves = [read_curves(str(run.path.resolve()), run.path.parent)]
    draw(curves, choose_panels(curves, None), path)


def _export(run: Run, root: Path, path: Path) -> None:
    from gymnasium_solver.share.export.export_run import export_run

    export_run(str(run.path.resolve()), root, "onnx", path)


def _add_video(package: Package, run: Run, root: Path, notes: list[str]) -> None:
    """replay.mp4: the recorded video of the published checkpoint, or its newest episode that the
    inspector has kept, or a new one."""
    folder = run.checkpoints_dir
    steps = pointer_env_steps(folder, BEST) or pointer_env_steps(folder, LAST)
    recorded = run.videos_dir / f"{steps}.mp4"
    if recorded.is_file():
        package.files["replay.mp4"] = recorded.read_bytes()
        return
    if importlib.util.find_spec("imageio_ffmpeg") is None:
        notes.append("no video: pip install 'gymnasium-solver[video]' adds one")
        return
    kept = _kept_episode(run, steps)
    try:
        package.files["replay.mp4"] = _made(
            "replay.mp4", lambda path: write_video(kept, path) if kept else _record(run, root, path)
        )
        notes += [f"the video is the kept episode {kept.id}"] if kept else []
    except (GsolveError, OSError) as error:
        notes.append(f"no video: {error}")


def _record(run: Run, root: Path, path: Path) -> None:
    from gymnasium_solver.media.record import Shots, record_run
    from gymnasium_solver.training.targets import find_run

    record_run(find_run(str(run.path.resolve()), root), Shots(1), out=path)


def _kept_episode(run: Run, env_steps: int | None) -> Episode | None:
    """The newest whole episode of a checkpoint with frames: no branch, no changed environment, with
    actions as in the run's evaluations."""
    greedy = bool(get_config(run).get("eval_deterministic", True))
    found = [
        episode
        for episode in list_episodes(run)
        if episode.facts.get("env_steps") == env_steps
        and episode.result.get("ended") in ("terminated", "truncated")
        and episode.facts.get("greedy") is greedy
        and not episode.facts.get("parent")
        and not episode.facts.get("changed")
        and episode.n_frames("render")
    ]
    return max(found, key=lambda episode: str(episode.facts.get("created_at")), default=None)


def write_video(episode: Episode, path: Path) -> None:
    """The frames of a kept episode as a video."""
    from gymnasium_solver.media.drawing import rgb
    from gymnasium_solver.media.video import open_video

    with open_video(path, float(episode.facts.get("fps") or 30.0)) as video:
        for t in range(episode.n_frames("render")):
            with Image.open(io.BytesIO(episode.frame("render", t))) as image:
                video.add(rgb(np.asarray(image)))
