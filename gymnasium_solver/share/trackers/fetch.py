"""A run that is not here, from W&B: its files and checkpoints, as the tracker saved them."""

import shutil
import tempfile
from pathlib import Path
from typing import Any

from gymnasium_solver.errors import RunError
from gymnasium_solver.runs.checkpoint import BEST, LAST
from gymnasium_solver.runs.files import read_json, write_pointer
from gymnasium_solver.runs.run import Run, is_run
from gymnasium_solver.share.trackers.sink import TrackError
from gymnasium_solver.share.trackers.wandb_run import (
    RUN_FILES,
    checkpoint_artifact,
    run_artifact,
    run_id,
    wandb_module,
)


def fetch(name: str, root: Path, project: str, entity: str | None = None) -> Run:
    """Download a run into `root`; TrackError if it is here or W&B does not have it."""
    if not name or name != Path(name).name or name.startswith("."):
        raise TrackError(f"{name!r} is not the id of a run")
    if is_run(root / name):
        raise TrackError(f"{root / name} exists already")
    wandb = wandb_module()
    path = "/".join(part for part in (entity, project, run_id(name)) if part)
    try:
        found = wandb.Api().run(path)
        artifacts = list(found.logged_artifacts())
    except (wandb.errors.CommError, wandb.errors.UsageError, ValueError) as error:
        why = (str(error).splitlines() or [type(error).__name__])[0]
        raise TrackError(f"W&B has no run {path}, or you may not read it: {why}") from None
    root.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=root, prefix=".fetch-") as temp:
        folder = Path(temp) / name
        _download(artifacts, name, folder)
        meta = read_json(folder / "meta.json", "The run was saved without it.")
        if meta.get("id") != name:
            raise TrackError(f"{path} holds the run {meta.get('id')!r}, not {name!r}")
        folder.rename(root / name)
    return Run(root / name)


def _download(artifacts: list[Any], name: str, folder: Path) -> None:
    """Only files that a run has are taken, whatever an artefact holds."""
    own = [a for a in artifacts if a.name.partition(":")[0] == run_artifact(name)]
    if not own:
        raise TrackError(f"{name} was not sent to W&B by gsolve track: it has no files there")
    downloaded = Path(own[-1].download(root=str(folder.parent / "files")))
    folder.mkdir()
    for wanted in RUN_FILES:
        if (downloaded / wanted).is_file():
            shutil.copyfile(downloaded / wanted, folder / wanted)
    if not (folder / "config.yaml").is_file():
        raise RunError(f"{name} has no config.yaml at W&B")
    for path in (folder / "checkpoints", folder / "videos"):
        path.mkdir()
    for path in (folder / "metrics.jsonl", folder / "events.jsonl", folder / "run.log"):
        path.touch()
    models = [a for a in artifacts if a.name.partition(":")[0] == checkpoint_artifact(name)]
    for artifact in models:
        _take_checkpoint(artifact, folder)


def _take_checkpoint(artifact: Any, folder: Path) -> None:
    env_steps = artifact.metadata.get("env_steps")
    if type(env_steps) is not int or env_steps < 0:
        return
    target = folder / "checkpoints" / str(env_steps)
    if not target.exists():
        downloaded = Path(artifact.download(root=str(folder.parent / f"checkpoint-{env_steps}")))
        target.mkdir()
        for path in sorted(downloaded.iterdir()):
            if path.suffix in (".safetensors", ".json") or path.name == "done":
                shutil.copyfile(path, target / path.name)
    for alias in (BEST, LAST):
        if alias in artifact.aliases:
            write_pointer(folder / "checkpoints" / alias, str(env_steps))
