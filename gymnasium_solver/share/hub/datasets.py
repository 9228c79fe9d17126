"""Datasets of runs on the Hub: many runs in one repository, each in `runs/<id>/`.

    push_runs(["@last", "a1b2"], root, "ann/cartpole-study")
    list_remote("ann/cartpole-study", "ppo")
    pull_runs("ann/cartpole-study", "ppo", root)

A run in a dataset has the same files, scrubbed and listed in a manifest, as a published one. A
pattern selects runs as `gsolve runs` does: a part of the id, or with * as in a shell.
"""

import re
import tempfile
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

from gymnasium_solver.errors import RunError
from gymnasium_solver.runs.files import dump_json, read_json
from gymnasium_solver.runs.query import get_run
from gymnasium_solver.runs.resolve import resolve_run
from gymnasium_solver.runs.run import Run
from gymnasium_solver.share.hub import client
from gymnasium_solver.share.hub.card import read_results
from gymnasium_solver.share.hub.package import Package, package_run
from gymnasium_solver.share.hub.pull import FIX, is_wanted, place
from gymnasium_solver.share.hub.scrub import Scrub

_ID = re.compile(r"[\w.-]{1,200}")
CARD = """\
---
tags: [reinforcement-learning, gymnasium-solver]
---
# Runs of gymnasium-solver

    gsolve hub list --repo {repo_id}
    gsolve hub pull PATTERN --repo {repo_id}
"""


@dataclass(frozen=True)
class RemoteRun:
    id: str
    n_files: int
    results: dict[str, Any] | None = None
    """results.json, if it was asked for."""


def plan_push(
    refs: list[str], root: Path, *, checkpoints: str = "best", scrub: Scrub | None = None
) -> list[Package]:
    """What would leave the machine."""
    packages = []
    for ref in refs:
        run = resolve_run(ref, root)
        if not _ID.fullmatch(run.id):
            raise RunError(f"{run.id}: a run of a dataset needs a name of letters, digits and -.")
        package = package_run(run, checkpoints=checkpoints, scrub=scrub)
        results = read_results(run, get_run(run), root).to_dict()
        package.files["results.json"] = dump_json(package.scrub.value(results))
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
        files["README.md"] = CARD.format(repo_id=repo_id).encode()
    names = ", ".join(package.scrub.text(package.run.id) for package in packages)
    return client.commit(repo_id, files, f"runs: {names}", private=private, kind="dataset")


def list_remote(repo_id: str, pattern: str = "", *, scores: bool = False) -> list[RemoteRun]:
    """The runs of a dataset whose ids match."""
    client.check_repo(repo_id)
    sha, names = client.listed(repo_id, "dataset")
    runs = [RemoteRun(run_id, len(files)) for run_id, files in _by_run(names, pattern).items()]
    return [_with_results(repo_id, sha, run) for run in runs] if scores else runs


def pull_runs(repo_id: str, pattern: str, root: Path) -> tuple[list[Run], list[str]]:
    """Download the matching runs into `root`; also the ids of those that are there already."""
    client.check_repo(repo_id)
    sha, names = client.listed(repo_id, "dataset")
    found = _by_run(names, pattern)
    if not found:
        raise RunError(f"{repo_id} has no run that matches {pattern!r}. gsolve hub list shows all.")
    pulled, there = [], []
    for run_id, files in found.items():
        if (root / run_id).exists():
            there.append(run_id)
            continue
        origin = {"dataset": repo_id, "revision": sha}
        pulled.append(place(root / run_id, origin, _fetch(repo_id, sha, run_id, files)))
    return pulled, there


def _fetch(repo_id: str, sha: str, run_id: str, files: list[str]) -> Any:
    def fetch(folder: Path) -> None:
        with tempfile.TemporaryDirectory(dir=folder.parent, prefix=".pull-") as temp:
            names = [f"runs/{run_id}/{name}" for name in files]
            client.download(repo_id, "dataset", sha, names, Path(temp))
            for path in sorted((Path(temp) / "runs" / run_id).iterdir()):
                path.rename(folder / path.name)

    return fetch


def _by_run(names: list[str], pattern: str) -> dict[str, list[str]]:
    """The files of each run that belong to a run."""
    found: dict[str, list[str]] = {}
    for name in names:
        top, _, rest = name.partition("/")
        run_id, _, file = rest.partition("/")
        if top == "runs" and _ID.fullmatch(run_id) and run_id[0] != "." and is_wanted(file):
            found.setdefault(run_id, []).append(file)
    return {run_id: files for run_id, files in sorted(found.items()) if _matches(run_id, pattern)}


def _matches(run_id: str, pattern: str) -> bool:
    lower = pattern.lower()
    return fnmatch(run_id.lower(), lower) if "*" in lower else lower in run_id.lower()


def _with_results(repo_id: str, sha: str, run: RemoteRun) -> RemoteRun:
    name = f"runs/{run.id}/results.json"
    with tempfile.TemporaryDirectory(prefix="gsolve-hub-") as temp:
        client.download(repo_id, "dataset", sha, [name], Path(temp))
        return RemoteRun(run.id, run.n_files, read_json(Path(temp) / name, FIX))
