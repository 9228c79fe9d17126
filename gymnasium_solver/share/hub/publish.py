"""What goes to the Hub: a run with its model card (`gsolve publish`), or runs in a dataset (`gsolve
hub push`). Planning a publication sends nothing.

The form of the card is the one of the RL zoo: `mean_reward` as "500.00 +/- 0.00" in the model
index, the tags of its leaderboards, and `replay.mp4`, which the Hub shows. Runs in the same folder
whose configs differ only by the seed are siblings (experiments/groups.py): their statistics over
seeds are shown. In a dataset each run is in `runs/<id>/`, with the same files.
"""

import importlib.util
import io
import re
import shlex
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from gymnasium_solver.config.yaml_file import dump_yaml
from gymnasium_solver.errors import GsolveError, RunError
from gymnasium_solver.experiments.groups import Group, siblings
from gymnasium_solver.experiments.statistics import FEWEST_SEEDS, interval, iqm, mean
from gymnasium_solver.paths import is_own_file, read_regular, temporary_folder
from gymnasium_solver.printable import markdown_text
from gymnasium_solver.runs.checkpoint import BEST, LAST, pointer_env_steps
from gymnasium_solver.runs.episodes import Episode, list_episodes
from gymnasium_solver.runs.files import dump_json
from gymnasium_solver.runs.query import RunSummary, acts_greedily, get_details, get_meta, get_run
from gymnasium_solver.runs.report import Table, block_markdown
from gymnasium_solver.runs.resolve import resolve_run
from gymnasium_solver.runs.run import Run
from gymnasium_solver.runs.words import verdict_words
from gymnasium_solver.share.hub import client
from gymnasium_solver.share.hub.package import RUN_ID, Package, Scrub, package_run
from gymnasium_solver.version import __version__

LIBRARY = "gymnasium-solver"
CARD = Path(__file__).with_name("card.md")


@dataclass(frozen=True)
class Options:
    checkpoints: str = "best"  # best, last (best and last) or all
    allow_diff: bool = False
    video: bool = True
    onnx: bool = False
    licence: str = "mit"


@dataclass(frozen=True)
class Results:
    """results.json: the zoo's names, then ours."""

    mean_reward: float | None
    std_reward: float | None
    is_deterministic: bool
    n_eval_episodes: int
    eval_datetime: str
    stderr_reward: float | None
    solved: bool | None
    threshold: float | None
    env_steps: int
    seeds: dict[str, Any] | None
    """Statistics over the seeds of this config, if several were trained."""

    @property
    def text(self) -> str:
        """As the zoo writes it: the mean and the standard deviation of the episodes."""
        if self.mean_reward is None:
            return "not tested"
        return f"{self.mean_reward:.2f} +/- {self.std_reward or 0.0:.2f}"


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
    run = resolve_run(ref, root, best_of=True)
    summary = get_run(run, include_config=True)
    if repo_id is None:
        user = "USER"  # a dry run works without an account
        with suppress(GsolveError):
            user = client.user_name()
        # `algo-Env-v1`, as the zoo names its repositories.
        name = re.sub(r"[^\w.-]+", "-", f"{summary.algo_id}-{summary.env_id}").strip("-.")
        repo_id = f"{user}/{name}"
    client.check_repo(repo_id)
    package = package_run(
        run, checkpoints=options.checkpoints, allow_diff=options.allow_diff, scrub=scrub
    )
    notes: list[str] = []
    results = _add_results(package, summary)
    with suppress(GsolveError):  # a run without rows has no curve
        package.files["curves.png"] = _made("curves.png", lambda path: _draw_curves(run, path))
    if options.video:
        _add_video(package, run, root, notes)
    if options.onnx:
        package.files["policy.onnx"] = _made("policy.onnx", lambda path: _export(run, root, path))
    public = replace(summary, config=package.scrub.value(summary.config))
    meta = package.scrub.value(get_meta(run))
    has_curves = "curves.png" in package.files
    card = model_card(public, results, repo_id, has_curves, options.licence, meta)
    package.files["README.md"] = card.encode()
    package.seal()
    return Publication(run, repo_id, package, results, notes)


def send(plan: Publication, *, private: bool = True) -> str:
    """Upload in one commit; return the address of the repository."""
    message = plan.package.scrub.text(f"{plan.run.id}: {plan.results.text}")
    return client.commit(plan.repo_id, plan.package.files, message, private=private, kind="model")


# -- datasets of runs -------------------------------------------------------------------------

DATASET_CARD = """\
---
tags: [reinforcement-learning, gymnasium-solver]
---
# Runs of gymnasium-solver

    gsolve hub list --repo {repo_id}
    gsolve hub pull PATTERN --repo {repo_id}
"""


def plan_push(
    refs: list[str], root: Path, *, checkpoints: str = "best", scrub: Scrub | None = None
) -> list[Package]:
    """What would leave the machine."""
    packages = []
    for ref in refs:
        run = resolve_run(ref, root)
        if not RUN_ID.fullmatch(run.id):
            raise RunError(f"{run.id}: a run of a dataset needs a name of letters, digits and -.")
        package = package_run(run, checkpoints=checkpoints, scrub=scrub)
        _add_results(package, get_run(run))
        package.seal()
        packages.append(package)
    return packages


def push_runs(packages: list[Package], repo_id: str, *, private: bool = True) -> str:
    """Add or replace the runs in one commit."""
    client.check_repo(repo_id)
    files = {
        f"runs/{package.run.id}/{name}": data
        for package in packages
        for name, data in package.files.items()
    }
    try:
        has_card = "README.md" in client.listed(repo_id, "dataset")[1]
    except RunError:  # a new dataset
        has_card = False
    if not has_card:
        files["README.md"] = DATASET_CARD.format(repo_id=repo_id).encode()
    names = ", ".join(package.scrub.text(package.run.id) for package in packages)
    return client.commit(repo_id, files, f"runs: {names}", private=private, kind="dataset")


# -- pictures and files made for it -----------------------------------------------------------


def _made(name: str, make: Callable[[Path], object]) -> bytes:
    """The file that `make` writes."""
    with temporary_folder("publish") as folder:
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
    if is_own_file(recorded):
        package.files["replay.mp4"] = read_regular(recorded)
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
    greedy = acts_greedily(run)
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
    import numpy as np
    from PIL import Image

    from gymnasium_solver.media.drawing import rgb
    from gymnasium_solver.media.video import open_video

    with open_video(path, float(episode.facts.get("fps") or 30.0)) as video:
        for t in range(episode.n_frames("render")):
            with Image.open(io.BytesIO(episode.frame("render", t))) as image:
                video.add(rgb(np.asarray(image)))


# -- scores -----------------------------------------------------------------------------------


def _add_results(package: Package, summary: RunSummary) -> Results:
    """results.json: the held-out test of the run; without one its best validation."""
    details = get_details(package.run)
    events, tests = details.evaluations, details.tests
    judged = [e for e in tests if summary.test and e.get("greedy") == summary.test["greedy"]]
    best = None if summary.best is None else summary.best["env_steps"]
    shown = judged or tests or [e for e in events if e.get("env_steps") == best] or events
    event = shown[-1] if shown else {}
    results = Results(
        mean_reward=event.get("mean"),
        std_reward=event.get("std"),
        is_deterministic=bool(event.get("greedy", True)),
        n_eval_episodes=int(event.get("episodes") or 0),
        eval_datetime=str(event.get("at", "")),
        stderr_reward=event.get("stderr"),
        solved=summary.solved,
        threshold=summary.threshold,
        env_steps=int(event.get("env_steps") or summary.env_steps),
        seeds=_seeds(siblings(package.run)),
    )
    package.files["results.json"] = dump_json(package.scrub.value(asdict(results)))
    return results


def _seeds(group: Group) -> dict[str, Any] | None:
    if len(group.scores) < 2:
        return None
    scores = group.scores
    metrics = {"mean": mean} | ({"iqm": iqm} if len(scores) >= FEWEST_SEEDS else {})
    return {
        "n": len(scores),
        "n_solved": group.n_solved,
        "scores": scores,
        **{name: asdict(interval(scores, metric)) for name, metric in metrics.items()},
    }


# -- the card ---------------------------------------------------------------------------------


def model_card(
    summary: RunSummary,
    results: Results,
    repo_id: str,
    has_curves: bool,
    licence: str,
    meta: Mapping[str, Any],
) -> str:
    """README.md of a published run. `meta`: of meta.json, without what must not leave."""
    config = {k: v for k, v in (summary.config or {}).items() if k not in ("spec", "description")}
    curves = "## Learning curve\n\n![learning curve](curves.png)\n\n"
    return CARD.read_text(encoding="utf-8").format(
        metadata=dump_yaml(metadata(summary, results, licence)).strip(),
        title=markdown_text(f"{summary.algo_id.upper()} agent playing {summary.env_id}"),
        about=_about(summary),
        result=_verdict(summary, results),
        seeds=_seeds_text(results.seeds),
        curves=curves if has_curves else "",
        repo_id=repo_id,
        version=__version__,
        training=_training(summary, meta),
        config=dump_yaml(config).strip(),
        licence=licence,
    )


def metadata(summary: RunSummary, results: Results, licence: str) -> dict[str, Any]:
    """The YAML block of the card, as huggingface_hub's ModelCardData writes it."""
    task = "reinforcement-learning"
    data: dict[str, Any] = {
        "library_name": LIBRARY,
        "license": licence,
        "pipeline_tag": task,
        "tags": [summary.env_id, summary.algo_id, task, f"deep-{task}", LIBRARY],
    }
    if results.mean_reward is None:
        return data
    metric = {"type": "mean_reward", "value": results.text, "name": "mean_reward"}
    result = {
        "task": {"type": task, "name": task},
        "dataset": {"name": summary.env_id, "type": summary.env_id},
        "metrics": [{**metric, "verified": False}],
    }
    return data | {"model-index": [{"name": summary.algo_id.upper(), "results": [result]}]}


def _about(summary: RunSummary) -> str:
    """Which algorithm, which environment, and what that is about."""
    spec = (summary.config or {}).get("spec")
    spec = spec if isinstance(spec, Mapping) else {}
    own = (summary.config or {}).get("description")
    told = [spec.get("description") or own, spec.get("goal")]
    lines = [
        f"A policy trained by {summary.algo_id.upper()} of `{LIBRARY}` in `{summary.env_id}`.",
        *(markdown_text(str(text)) for text in told if text),
    ]
    source = str(spec.get("source"))
    if re.fullmatch(r"https?://[\w./%?&=#~+-]+", source):
        lines.append(f"The environment: <{source}>.")
    return "\n\n".join(lines)


def _verdict(summary: RunSummary, results: Results) -> str:
    error, threshold = results.stderr_reward, results.threshold
    actions = "greedy" if results.is_deterministic else "sampled"
    rows = {
        "verdict": verdict_words(summary),
        "mean return": f"{results.text} (standard deviation)",
        "standard error": "-" if error is None else f"{error:.3g}",
        "episodes": f"{results.n_eval_episodes} held-out, {actions} actions",
        "threshold": "none" if threshold is None else f"{threshold:g}",
        "trained for": f"{summary.env_steps:,} env steps",
        "seed": str(summary.seed),
    }
    return block_markdown(Table(None, list(rows.items())))


def _training(summary: RunSummary, meta: Mapping[str, Any]) -> str:
    machine = meta.get("machine") or {}
    cpu = ", ".join(str(machine[k]) for k in ("cpu", "platform") if machine.get(k))
    rows = {
        "command": shlex.join(str(word) for word in meta.get("command") or ()),
        "hardware": f"{meta.get('device') or 'cpu'}; {cpu}",
        "time": f"{summary.wall_s:,.0f} s of training",
    }
    return block_markdown(Table(None, [row for row in rows.items() if row[1]]))


def _seeds_text(seeds: dict[str, Any] | None) -> str:
    if seeds is None:
        return ""
    names = {"mean": "mean", "iqm": "interquartile mean"}
    told = ", ".join(
        f"{names[name]} {one['value']:.2f} [{one['low']:.2f}, {one['high']:.2f}]"
        for name, one in seeds.items()
        if name in names
    )
    return (
        f"## Seeds\n\nOver {seeds['n']} seeds of this config, {seeds['n_solved']} solved: {told} "
        "(95 % intervals over seeds).\n\n"
    )
