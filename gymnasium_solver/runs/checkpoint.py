"""Checkpoints: `checkpoints/<env_steps>/` of safetensors and JSON, and pointers `best` and `last`.

    path = save_checkpoint(run.checkpoints_dir, env_steps, {"model": {...}}, state, metrics)
    loaded = load_checkpoint(path)      # checks every byte; loaded.tensors["model"]["torso.0.bias"]

A save writes `.tmp-<env_steps>-<pid>/` with `done` as its last file, fsyncs everything, renames the
folder into place and then updates the pointers: after a kill at any point, `last` points to a
complete checkpoint. The next save removes leftovers (`.tmp-*`, `.old-*`). Nothing is pickled.

`manifest.json` lists every other file with size and checksum; `done`, written last, has the
checksum of the manifest.
"""

import hashlib
import os
import re
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gymnasium_solver.errors import RunError
from gymnasium_solver.paths import open_regular
from gymnasium_solver.runs import files
from gymnasium_solver.runs.files import write_synced

if TYPE_CHECKING:
    import numpy as np

FORMAT = 1
FIX = "Use another checkpoint of this run (`gsolve run RUN` lists them)."
BEST, LAST = "best", "last"
SCORE_KEYS = ("score", "val/roll/ep_rew/mean")  # the first one present in a checkpoint's metrics
_NAME = re.compile(r"[A-Za-z0-9_]+\.(safetensors|json)")


@dataclass(frozen=True)
class LoadedCheckpoint:
    path: Path
    env_steps: int
    tensors: dict[str, dict[str, "np.ndarray"]]  # file stem -> named arrays (writable)
    state: dict[str, Any]
    metrics: dict[str, Any]


@dataclass(frozen=True)
class CheckpointInfo:
    env_steps: int
    path: Path
    is_best: bool
    is_last: bool
    score: float | None


def save_checkpoint(
    directory: Path,
    env_steps: int,
    tensors: Mapping[str, Mapping[str, Any]],
    state: Mapping[str, Any],
    metrics: Mapping[str, Any],
    *,
    best: bool = False,
    last: bool = True,
) -> Path:
    """Write a checkpoint atomically, then point `last` (and `best`) at it.

    `tensors` maps file stems to named NumPy arrays or torch tensors. `state` is restored exactly
    (tuples as lists); non-finite values in `metrics` become null."""
    from safetensors import SafetensorError

    with _new_folder(directory, env_steps, SafetensorError) as temp:
        directory.mkdir(exist_ok=True)  # not its parents: a deleted run folder stays deleted
        clean_leftovers(directory)
        temp.mkdir()
        _write_files(temp, env_steps, tensors, state, metrics)
        final = _put_in_place(temp, directory / str(env_steps))
        for name, wanted in ((BEST, best), (LAST, last)):  # a resume from `last` repairs `best`
            if wanted:
                files.write_pointer(directory / name, str(env_steps))
    return final


def point_to(directory: Path, name: str, env_steps: int) -> None:
    """Point `best` or `last` at an existing checkpoint."""
    if name not in (BEST, LAST):
        raise ValueError(f"pointer {name!r}; expected {BEST!r} or {LAST!r}")
    if find_checkpoint(directory, env_steps) is None:
        raise RunError(f"{directory} has no checkpoint at {env_steps} env steps for `{name}`.")
    files.write_pointer(directory / name, str(env_steps))


def load_checkpoint(path: Path) -> LoadedCheckpoint:
    """Read a checkpoint after verifying every file against its manifest."""
    from safetensors import SafetensorError
    from safetensors.numpy import load_file

    path = path.resolve()  # once: `last` may change while we read
    manifest = verified_manifest(path)
    tensors = {}
    for file in (path / name for name in manifest["files"] if name.endswith(".safetensors")):
        try:
            with files.reading(file, FIX, OSError, SafetensorError):
                tensors[file.stem] = load_file(file)
        except (AttributeError, KeyError, TypeError) as error:  # bfloat16, float8, ...
            raise RunError(
                f"{file} has a tensor of a type that NumPy does not know: {error}. {FIX}"
            ) from None
    state, metrics = (files.read_json(path / f"{n}.json", FIX) for n in ("state", "metrics"))
    return LoadedCheckpoint(path, manifest["env_steps"], tensors, state, metrics)


def write_manifest(folder: Path, env_steps: int) -> None:
    """List the files that are in the folder now, and mark it as done."""
    listed = {file.name: _fingerprint(file) for file in sorted(folder.iterdir())}
    manifest = files.dump_json({"format": FORMAT, "env_steps": env_steps, "files": listed})
    write_synced(folder / "manifest.json", manifest)
    write_synced(folder / "done", hashlib.sha256(manifest).hexdigest().encode())


def verified_manifest(path: Path) -> dict[str, Any]:
    """The manifest of a checkpoint, after verifying every file in it."""
    if not path.is_dir():
        raise RunError(f"no checkpoint at {path}. {FIX}")
    if not (path / "done").is_file():
        raise RunError(f"{path} is unfinished: it has no `done` file. {FIX}")
    manifest_file = path / "manifest.json"
    manifest = files.read_json(manifest_file, FIX)
    digest = hashlib.sha256(files.read_bytes(manifest_file, FIX)).hexdigest()
    if digest.encode() != files.read_bytes(path / "done", FIX):
        raise RunError(f"{manifest_file} is damaged: its checksum does not match `done`. {FIX}")
    if manifest.get("format") != FORMAT:
        raise RunError(
            f"{path} has checkpoint format {manifest.get('format')!r}, expected {FORMAT}: "
            "another version of gymnasium-solver wrote it. Install that version to read it."
        )
    for name, expected in _listed_files(path, manifest).items():
        file = path / name
        if not file.is_file():
            raise RunError(f"{file} is missing. {FIX}")
        for what, actual in _fingerprint(file).items():
            if actual != expected[what]:
                said = f"its {what} is {actual}, the manifest says {expected[what]}"
                raise RunError(f"{file} is damaged: {said}. {FIX}")
    return manifest


def _listed_files(path: Path, manifest: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """The files that a manifest lists: plain names, which cannot lead to files elsewhere."""
    file = path / "manifest.json"
    env_steps, files = manifest.get("env_steps"), manifest.get("files")
    if type(env_steps) is not int or not 0 <= env_steps < 2**63:
        raise RunError(f"{file}: env_steps is {env_steps!r}, expected a whole number. {FIX}")
    if path.name.isdecimal() and int(path.name) != env_steps:
        raise RunError(f"{file}: env_steps is {env_steps}, but its folder is {path.name}. {FIX}")
    if not isinstance(files, dict):
        raise RunError(f"{file}: files is {files!r}, expected a mapping. {FIX}")
    for name, entry in files.items():
        if not _NAME.fullmatch(name):
            raise RunError(
                f"{file} lists {name!r}, expected the name of a .safetensors or .json file in the "
                f"same folder. {FIX}"
            )
        if not isinstance(entry, dict) or not {"size", "sha256"} <= entry.keys():
            raise RunError(f"{file}: {name} is {entry!r}, expected its size and sha256. {FIX}")
    if missing := [name for name in ("state.json", "metrics.json") if name not in files]:
        raise RunError(f"{file} does not list {missing[0]}. {FIX}")
    return files


def _fingerprint(file: Path) -> dict[str, Any]:
    with open_regular(file) as stream:
        digest = hashlib.file_digest(stream, "sha256").hexdigest()
    return {"size": file.stat().st_size, "sha256": digest}


def list_checkpoints(directory: Path) -> list[CheckpointInfo]:
    """The finished checkpoints, by env steps."""
    best, last = pointer_env_steps(directory, BEST), pointer_env_steps(directory, LAST)
    return [
        CheckpointInfo(env_steps, path, env_steps == best, env_steps == last, _score(path))
        for env_steps, path in sorted(_finished(directory).items())
    ]


def find_checkpoint(directory: Path, env_steps: int) -> Path | None:
    """The folder of the finished checkpoint at exactly this number of env steps."""
    return _finished(directory).get(env_steps)


def pointer_env_steps(directory: Path, name: str) -> int | None:
    """The env steps that `best` or `last` points at; None without a finished checkpoint."""
    link = directory / name
    target = files.read_pointer(link)
    if target is None and (link / "manifest.json").is_file():  # a copy that followed the symlinks
        with suppress(RunError):
            target = str(files.read_json(link / "manifest.json", FIX).get("env_steps"))
    if target is None or not target.isdecimal():
        return None
    return int(target) if find_checkpoint(directory, int(target)) else None


def set_metrics(directory: Path, env_steps: int, metrics: Mapping[str, Any]) -> Path | None:
    """Replace the metrics of a checkpoint, atomically; None if it does not exist any more."""
    path = find_checkpoint(directory, env_steps)
    if path is None:
        return None
    with _new_folder(directory, env_steps) as temp:
        shutil.copytree(path, temp)
        for name in ("metrics.json", "manifest.json", "done"):
            (temp / name).unlink()
        write_synced(temp / "metrics.json", files.dump_json(metrics))
        write_manifest(temp, env_steps)
        files.fsync_dir(temp)
        return _put_in_place(temp, directory / str(env_steps))


def prune(directory: Path, keep: int, needed: int | None = None) -> list[int]:
    """Remove all but the newest `keep` checkpoints, `best`, `last` and the one at `needed`."""
    every = [c for c in list_checkpoints(directory) if c.env_steps != needed]
    periodic = [c for c in every if not (c.is_best or c.is_last)]
    return _remove(periodic[: max(0, len(periodic) - keep)])


def rewind(directory: Path, env_steps: int) -> list[int]:
    """Remove the checkpoints after `env_steps` and point `last` there, to train on from it. A
    removed `best` moves to the best remaining score, or is deleted."""
    removed = [c for c in list_checkpoints(directory) if c.env_steps > env_steps]
    point_to(directory, LAST, env_steps)
    if any(c.is_best for c in removed):
        left = [c for c in list_checkpoints(directory) if c.env_steps <= env_steps]
        scored = [(c.score, c.env_steps) for c in left if c.score is not None]
        if scored:
            point_to(directory, BEST, max(scored)[1])
        else:
            (directory / BEST).unlink()
    return _remove(removed)


def clean_leftovers(directory: Path) -> None:
    """Remove what interrupted saves left; restore a checkpoint that was not replaced completely."""
    for path in directory.glob(".old-*"):
        final = directory / path.name.split("-")[1]
        if (final / "done").is_file():
            shutil.rmtree(path)
        else:
            shutil.rmtree(final, ignore_errors=True)
            os.rename(path, final)
    for path in directory.glob(".tmp-*"):
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink()


@contextmanager
def _new_folder(directory: Path, env_steps: int, *others: type[Exception]) -> Iterator[Path]:
    """The path of a temporary folder for a checkpoint, which is removed if it still exists."""
    temp = directory / f".tmp-{env_steps}-{os.getpid()}"
    try:
        with files.writing(f"the checkpoint at {env_steps} env steps", directory, *others):
            yield temp
    finally:
        shutil.rmtree(temp, ignore_errors=True)


def _write_files(
    temp: Path,
    env_steps: int,
    tensors: Mapping[str, Mapping[str, Any]],
    state: Mapping[str, Any],
    metrics: Mapping[str, Any],
) -> None:
    from safetensors.numpy import save

    for stem, named in tensors.items():
        if not re.fullmatch(r"[A-Za-z0-9_]+", stem):
            raise ValueError(f"tensor file stem {stem!r}; expected letters, digits and _")
        arrays = {name: _as_array(value, f"{stem}/{name}") for name, value in named.items()}
        write_synced(temp / f"{stem}.safetensors", save(arrays))
    write_synced(temp / "state.json", files.dump_json(state, exact=True))
    write_synced(temp / "metrics.json", files.dump_json(metrics))
    write_manifest(temp, env_steps)
    files.fsync_dir(temp)


def _as_array(value: Any, name: str) -> "np.ndarray":
    import numpy as np

    if hasattr(value, "detach"):  # a torch tensor; torch is not imported here
        value = value.detach().cpu().numpy()
    array = np.asarray(value, order="C")  # safetensors writes raw memory and ignores strides
    if array.dtype.kind not in "biuf" and array.dtype != np.complex64:
        raise TypeError(f"tensor {name} has dtype {array.dtype}; expected numbers or booleans")
    return array


def _put_in_place(temp: Path, final: Path) -> Path:
    """Rename into place. A rename cannot replace a non-empty folder, so an old checkpoint with the
    same env steps is renamed first; readers find it there until the new one is in place."""
    old = final.with_name(f".old-{final.name}-{os.getpid()}")
    if final.exists():
        os.rename(final, old)
    os.rename(temp, final)
    files.fsync_dir(final.parent)
    if old.exists():
        shutil.rmtree(old)
    return final


def _remove(checkpoints: list[CheckpointInfo]) -> list[int]:
    """Rename and delete each: a kill leaves nothing that seems to be complete."""
    for path in (checkpoint.path for checkpoint in checkpoints):
        doomed = path.with_name(f".tmp-removed-{path.name}-{os.getpid()}")
        with files.writing("the removal of an old checkpoint", path):
            os.rename(path, doomed)
            shutil.rmtree(doomed)
    return [checkpoint.env_steps for checkpoint in checkpoints]


def _finished(directory: Path) -> dict[int, Path]:
    found: dict[int, Path] = {}
    if not directory.is_dir():
        return found
    with files.reading(directory, "", OSError):
        entries = sorted(directory.iterdir())  # ".old-N-pid" sorts before "N": the new one wins
    for path in entries:
        name = path.name.split("-")[1] if path.name.startswith(".old-") else path.name
        if name.isdecimal() and (path / "done").is_file():
            found[int(name)] = path
    return found


def _score(path: Path) -> float | None:
    try:
        metrics = files.read_json(path / "metrics.json", FIX)
    except RunError:  # a damaged checkpoint is still listed; loading it reports the damage
        return None
    scores = (files.finite(metrics.get(key)) for key in SCORE_KEYS)
    return next((score for score in scores if score is not None), None)
