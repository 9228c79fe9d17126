"""What comes from the Hub: published runs, and runs of datasets, verified, as run folders.

Only the files of a run are downloaded: JSON, YAML, safetensors and pictures. Pickles are never
downloaded, and no code is run. Every file is checked against the manifest. A config that names code
to import is a stranger's: verbs that would import it ask for --trust (training/prepare.py).
"""

import glob
import hashlib
import os
import re
import shutil
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

from gymnasium_solver.errors import RunError, WriteError
from gymnasium_solver.paths import temporary_folder
from gymnasium_solver.runs.checkpoint import list_checkpoints, verified_manifest
from gymnasium_solver.runs.files import dump_json, read_json, write_atomic
from gymnasium_solver.runs.run import Run, is_run
from gymnasium_solver.share.hub import client
from gymnasium_solver.share.hub.package import MANIFEST, RUN_ID

# What a published run consists of. Everything else in a repository stays there.
_WANTED = re.compile(
    r"(config\.yaml|meta\.json|results\.json|manifest\.json|metrics\.jsonl|events\.jsonl|README\.md"
    r"|git\.diff|curves\.png|replay\.mp4|policy\.onnx"
    r"|checkpoints/(best|last|\d{1,18}/(done|manifest\.json|[A-Za-z0-9_]+\.(json|safetensors))))"
)
PICKLES = (".pkl", ".pickle", ".pt", ".pth", ".pt2", ".ckpt", ".bin", ".joblib", ".dill", ".zip")
FIX = "Pull it again; if it stays, tell its author."


def hub_run(ref: str, root: Path) -> tuple[Run, str]:
    """The run of "hub:USER/REPO[@REVISION][/SELECTOR]" and the selector; pulled at the first use.

    A revision keeps its own folder, so that a name always means the same weights."""
    words = ref.removeprefix("hub:").strip("/").split("/")
    if len(words) < 2:
        raise RunError(f"{ref!r} is not a run of the Hub; expected hub:USER/REPO.")
    name, _, revision = words[1].partition("@")
    repo_id = client.check_repo(f"{words[0]}/{name}")
    folder = root / folder_name(repo_id, revision)
    run = Run(folder) if is_run(folder) else pull_run(repo_id, root, revision or None)
    return run, "/".join(words[2:])


def folder_name(repo_id: str, revision: str | None = None) -> str:
    suffix = f"--{re.sub(r'[^A-Za-z0-9.-]', '-', revision)}" if revision else ""
    return repo_id.replace("/", "--") + suffix


def pull_run(repo_id: str, root: Path, revision: str | None = None, name: str | None = None) -> Run:
    """Download a published run into `root`, whole or not at all."""
    client.check_repo(repo_id)
    target = root / (name or folder_name(repo_id, revision))
    if target.exists():
        raise RunError(
            f"{target} exists. Remove it (gsolve rm {target.name}), or choose another name: --name."
        )
    sha, names = client.listed(repo_id, "model", revision)
    wanted = [each for each in names if is_wanted(each)]
    if missing := [each for each in ("config.yaml", "meta.json", MANIFEST) if each not in wanted]:
        pickles = [each for each in names if each.endswith(PICKLES)]
        why = f"it has no {missing[0]}"
        if pickles:
            why += f"; {pickles[0]} may hold a pickle, which is never loaded"
        if any(each.endswith(".zip") for each in pickles):
            why += ". A model of Stable-Baselines3: download the zip, then gsolve import-sb3"
        raise RunError(f"{repo_id} is not a run of gymnasium-solver: {why}.")
    origin = {"hub": repo_id, "revision": sha}
    return place(
        target, origin, lambda folder: client.download(repo_id, "model", sha, wanted, folder)
    )


def is_wanted(name: str) -> bool:
    """Whether a file of a repository belongs to a run."""
    return _WANTED.fullmatch(name) is not None


def place(target: Path, origin: dict[str, str], fetch: Any) -> Run:
    """Download into a hidden folder next to the target, verify, and rename into place."""
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        temporary = temporary_folder("pull", target.parent)
    except OSError as error:
        raise WriteError(f"{target.parent} cannot be written: {error.strerror}.") from None
    temp = Path(temporary.name)
    try:
        fetch(temp)
        shutil.rmtree(temp / ".cache", ignore_errors=True)  # the client's own bookkeeping
        verify(temp)
        run = Run(temp)
        for folder in (run.checkpoints_dir, run.videos_dir):
            folder.mkdir(exist_ok=True)
        for path in (run.metrics_path, run.events_path, run.log_path):
            path.touch()
        # A signature of the author's would mean nothing here, and must not mean "made here".
        meta = {**run.meta(), "pulled": origin, "signature": None, "pid": None}
        write_atomic(run.meta_path, dump_json(meta))
        os.chmod(temp, 0o755)
        os.rename(temp, target)
    except OSError as error:
        raise WriteError(f"{target} cannot be written: {error}.") from None
    finally:
        temporary.cleanup()
    return Run(target)


def verify(folder: Path) -> None:
    """RunError unless every file is listed in the manifest with its size and checksum."""
    manifest = read_json(folder / MANIFEST, FIX)
    files = manifest.get("files")
    if manifest.get("format") != 1 or not isinstance(files, dict):
        raise RunError(f"{MANIFEST} has an unknown format. {FIX}")
    present = {
        path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()
    } - {MANIFEST, "README.md"}
    if any(path.is_symlink() for path in folder.rglob("*")):
        raise RunError(f"a link instead of a file. {FIX}")
    for name in sorted(present | {n for n in files if is_wanted(n)}):
        entry = files.get(name)
        if not isinstance(entry, dict):
            raise RunError(f"{name} is not in the manifest. {FIX}")
        if name not in present:
            raise RunError(f"{name} is missing. {FIX}")
        data = (folder / name).read_bytes()
        if hashlib.sha256(data).hexdigest() != entry.get("sha256"):
            raise RunError(f"{name} is damaged: its checksum differs from the manifest. {FIX}")
    found = list_checkpoints(folder / "checkpoints")
    if not found:
        raise RunError(f"it has no checkpoint. {FIX}")
    for checkpoint in found:
        verified_manifest(checkpoint.path)


@dataclass(frozen=True)
class RemoteRun:
    id: str
    n_files: int
    results: dict[str, Any] | None = None  # results.json, if it was asked for


def list_remote(repo_id: str, pattern: str = "", *, scores: bool = False) -> list[RemoteRun]:
    """The runs of a dataset whose ids match."""
    client.check_repo(repo_id)
    sha, names = client.listed(repo_id, "dataset")
    runs = []
    for run_id, files in _by_run(names, pattern).items():
        results = None
        if scores:
            name = f"runs/{run_id}/results.json"
            with temporary_folder("hub") as temp:
                client.download(repo_id, "dataset", sha, [name], Path(temp))
                results = read_json(Path(temp) / name, FIX)
        runs.append(RemoteRun(run_id, len(files), results))
    return runs


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
        paths = [f"runs/{run_id}/{name}" for name in files]

        def fetch(folder: Path, run_id: str = run_id, paths: list[str] = paths) -> None:
            with temporary_folder("pull", folder.parent) as temp:
                client.download(repo_id, "dataset", sha, paths, Path(temp))
                for path in sorted((Path(temp) / "runs" / run_id).iterdir()):
                    path.rename(folder / path.name)

        pulled.append(place(root / run_id, {"dataset": repo_id, "revision": sha}, fetch))
    return pulled, there


def _by_run(names: list[str], pattern: str) -> dict[str, list[str]]:
    """The files of each run whose id matches: a part of it, or with * as in a shell."""
    shape = pattern.lower() if "*" in pattern else f"*{glob.escape(pattern.lower())}*"
    found: dict[str, list[str]] = {}
    for name in names:
        top, _, rest = name.partition("/")
        run_id, _, file = rest.partition("/")
        is_run_file = top == "runs" and RUN_ID.fullmatch(run_id) and run_id[0] != "."
        if is_run_file and is_wanted(file) and fnmatch(run_id.lower(), shape):
            found.setdefault(run_id, []).append(file)
    return dict(sorted(found.items()))
