"""Checkpoints: `checkpoints/<env_steps>/` of safetensors and JSON, and pointers `best` and `last`.

    path = save_checkpoint(run.checkpoints_dir, env_steps, {"model": {...}}, state, metrics)
    loaded = load_checkpoint(path)      # checks every byte; loaded.tensors["model"]["torso.0.bias"]

A save writes `.tmp-<env_steps>-<pid>/` with `done` as its last file, fsyncs everything, renames the
folder into place and then updates the pointers. If the process is killed at any point, `last` still
points to a complete checkpoint. Leftovers (`.tmp-*`, `.old-*`) are removed by the next save. Only
one process may write a run at a time. Nothing is pickled.
"""

import os
import re
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gymnasium_solver.errors import RunError
from gymnasium_solver.runs.files import (
    cannot_write,
    dump_json,
    finite,
    fsync_dir,
    read_json,
    read_pointer,
    write_pointer,
    write_synced,
)
from gymnasium_solver.runs.manifest import FIX, verified_manifest, write_manifest

if TYPE_CHECKING:
    import numpy as np

BEST, LAST = "best", "last"
SCORE_KEYS = ("score", "val/roll/ep_rew/mean")  # the first one present in a checkpoint's metrics


@dataclass(frozen=True)
class LoadedCheckpoint:
    path: Path
    env_steps: int
    tensors: dict[str, dict[str, "np.ndarray"]]
    """File stem -> named arrays (writable)."""
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
    (tuples as lists); non-finite values in `metrics` become null.
    """
    from safetensors import SafetensorError

    temp = directory / f".tmp-{env_steps}-{os.getpid()}"
    try:
        directory.mkdir(exist_ok=True)  # not its parents: a deleted run folder stays deleted
        clean_leftovers(directory)
        temp.mkdir()
        _write_files(temp, env_steps, tensors, state, metrics)
        final = _put_in_place(temp, directory / str(env_steps))
        for name, wanted in ((BEST, best), (LAST, last)):  # a resume from `last` repairs `best`
            if wanted:
                write_pointer(directory / name, str(env_steps))
    except (OSError, SafetensorError) as error:
        raise cannot_write(f"the checkpoint at {env_steps} env steps", directory, error) from error
    finally:
        shutil.rmtree(temp, ignore_errors=True)
    return final


def point_to(directory: Path, name: str, env_steps: int) -> None:
    """Point `best` or `last` at an existing checkpoint."""
    if name not in (BEST, LAST):
        raise ValueError(f"pointer {name!r}; expected {BEST!r} or {LAST!r}")
    if find_checkpoint(directory, env_steps) is None:
        raise RunError(f"{directory} has no checkpoint at {env_steps} env steps for `{name}`.")
    write_pointer(directory / name, str(env_steps))


def load_checkpoint(path: Path) -> LoadedCheckpoint:
    """Read a checkpoint after verifying every file against its manifest."""
    from safetensors import SafetensorError
    from safetensors.numpy import load_file

    path = path.resolve()  # once: `last` may change while we read
    manifest = verified_manifest(path)
    tensors = {}
    for name in manifest["files"]:
        file = path / name
        if file.suffix == ".safetensors":
            try:
                tensors[file.stem] = load_file(file)
            except (OSError, SafetensorError) as error:
                raise RunError(f"{file} cannot be read: {error}. {FIX}") from None
            except (AttributeError, KeyError, TypeError) as error:  # bfloat16, float8, ...
                raise RunError(
                    f"{file} has a tensor of a type that NumPy does not know: {error}. {FIX}"
                ) from None
    return LoadedCheckpoint(
        path=path,
        env_steps=manifest["env_steps"],
        tensors=tensors,
        state=read_json(path / "state.json", FIX),
        metrics=read_json(path / "metrics.json", FIX),
    )


def list_checkpoints(directory: Path) -> list[CheckpointInfo]:
    """The finished checkpoints, by env steps."""
    best, last = pointer_env_steps(directory, BEST), pointer_env_steps(directory, LAST)
    infos = []
    for env_steps, path in sorted(_finished(directory).items()):
        is_best, is_last = env_steps == best, env_steps == last
        infos.append(CheckpointInfo(env_steps, path, is_best, is_last, _score(path)))
    return infos


def find_checkpoint(directory: Path, env_steps: int) -> Path | None:
    """The folder of the finished checkpoint at exactly this number of env steps."""
    return _finished(directory).get(env_steps)


def pointer_env_steps(directory: Path, name: str) -> int | None:
    """The env steps that `best` or `last` points at; None without a finished checkpoint."""
    link = directory / name
    target = read_pointer(link)
    if target is None and (link / "manifest.json").is_file():  # a copy that followed the symlinks
        try:
            target = str(read_json(link / "manifest.json", FIX).get("env_steps"))
        except RunError:
            return None
    if target is None or not target.isdecimal():
        return None
    return int(target) if find_checkpoint(directory, int(target)) else None


def set_metrics(directory: Path, env_steps: int, metrics: Mapping[str, Any]) -> Path | None:
    """Replace the metrics of a checkpoint, atomically; None if it does not exist any more."""
    path = find_checkpoint(directory, env_steps)
    if path is None:
        return None
    temp = directory / f".tmp-{env_steps}-{os.getpid()}"
    try:
        shutil.copytree(path, temp)
        for name in ("metrics.json", "manifest.json", "done"):
            (temp / name).unlink()
        write_synced(temp / "metrics.json", dump_json(metrics))
        write_manifest(temp, env_steps)
        fsync_dir(temp)
        return _put_in_place(temp, directory / str(env_steps))
    except OSError as error:
        raise cannot_write(f"the checkpoint at {env_steps} env steps", directory, error) from error
    finally:
        shutil.rmtree(temp, ignore_errors=True)


def prune(directory: Path, keep: int, needed: int | None = None) -> list[int]:
    """Remove all but the newest `keep` checkpoints; `best`, `last` and the one at `needed` env
    steps are always kept."""
    every = [c for c in list_checkpoints(directory) if c.env_steps != needed]
    periodic = [c for c in every if not (c.is_best or c.is_last)]
    removed = periodic[: max(0, len(periodic) - keep)]
    for checkpoint in removed:
        _remove(checkpoint.path)
    return [checkpoint.env_steps for checkpoint in removed]


def rewind(directory: Path, env_steps: int) -> list[int]:
    """Remove the checkpoints after `env_steps` and point `last` there, to continue training from
    it.

    A removed `best` moves to the best remaining score, or is deleted.
    """
    removed = [c for c in list_checkpoints(directory) if c.env_steps > env_steps]
    point_to(directory, LAST, env_steps)
    if any(c.is_best for c in removed):
        left = [c for c in list_checkpoints(directory) if c.env_steps <= env_steps]
        scored = [(c.score, c.env_steps) for c in left if c.score is not None]
        if scored:
            point_to(directory, BEST, max(scored)[1])
        else:
            (directory / BEST).unlink()
    for checkpoint in removed:
        _remove(checkpoint.path)
    return [checkpoint.env_steps for checkpoint in removed]


def clean_leftovers(directory: Path) -> None:
    """Remove leftovers of interrupted saves; restore a checkpoint that was not replaced
    completely."""
    for path in directory.glob(".old-*"):
        final = directory / _old_name(path)
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
    write_synced(temp / "state.json", dump_json(state, exact=True))
    write_synced(temp / "metrics.json", dump_json(metrics))
    write_manifest(temp, env_steps)
    fsync_dir(temp)


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
    fsync_dir(final.parent)
    if old.exists():
        shutil.rmtree(old)
    return final


def _remove(path: Path) -> None:
    """Delete a checkpoint. It is renamed first, so that a kill leaves no seemingly complete
    remainder."""
    doomed = path.with_name(f".tmp-removed-{path.name}-{os.getpid()}")
    try:
        os.rename(path, doomed)
        shutil.rmtree(doomed)
    except OSError as error:
        raise cannot_write("the removal of an old checkpoint", path, error) from error


def _old_name(path: Path) -> str:
    return path.name.split("-")[1]


def _finished(directory: Path) -> dict[int, Path]:
    found: dict[int, Path] = {}
    if not directory.is_dir():
        return found
    try:
        entries = sorted(directory.iterdir())  # ".old-N-pid" sorts before "N": the new one wins
    except OSError as error:
        raise RunError(f"{directory} cannot be read: {error}.") from None
    for path in entries:
        name = _old_name(path) if path.name.startswith(".old-") else path.name
        if name.isdecimal() and (path / "done").is_file():
            found[int(name)] = path
    return found


def _score(path: Path) -> float | None:
    try:
        metrics = read_json(path / "metrics.json", FIX)
    except RunError:  # a damaged checkpoint is still listed; loading it reports the damage
        return None
    for key in SCORE_KEYS:
        if (score := finite(metrics.get(key))) is not None:
            return score
    return None
