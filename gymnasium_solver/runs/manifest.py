"""The manifest of a checkpoint: its files with size and checksum, and the marker `done`.

`manifest.json` lists every other file; `done`, written last, has the checksum of the manifest.
"""

import hashlib
import re
from pathlib import Path
from typing import Any

from gymnasium_solver.errors import RunError
from gymnasium_solver.runs.files import dump_json, read_bytes, read_json, write_synced

FORMAT = 1
FIX = "Use another checkpoint of this run (`gsolve run RUN` lists them)."
_NAME = re.compile(r"[A-Za-z0-9_]+\.(safetensors|json)")


def write_manifest(folder: Path, env_steps: int) -> None:
    """List the files that are in the folder now, and mark it as done."""
    files = {file.name: _fingerprint(file) for file in sorted(folder.iterdir())}
    manifest = dump_json({"format": FORMAT, "env_steps": env_steps, "files": files})
    write_synced(folder / "manifest.json", manifest)
    write_synced(folder / "done", hashlib.sha256(manifest).hexdigest().encode())


def verified_manifest(path: Path) -> dict[str, Any]:
    """The manifest of a checkpoint, after verifying every file in it."""
    if not path.is_dir():
        raise RunError(f"no checkpoint at {path}. {FIX}")
    if not (path / "done").is_file():
        raise RunError(f"{path} is unfinished: it has no `done` file. {FIX}")
    manifest_file = path / "manifest.json"
    manifest = read_json(manifest_file, FIX)
    digest = hashlib.sha256(read_bytes(manifest_file, FIX)).hexdigest()
    if digest.encode() != read_bytes(path / "done", FIX):
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
        actual = _fingerprint(file)
        if actual != expected:
            what = "size" if actual["size"] != expected["size"] else "sha256"
            raise RunError(
                f"{file} is damaged: its {what} is {actual[what]}, "
                f"the manifest says {expected[what]}. {FIX}"
            )
    return manifest


def _listed_files(path: Path, manifest: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """The files that a manifest lists. They are plain names in its own folder: a manifest must not
    lead to other files of this machine."""
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
    for name in ("state.json", "metrics.json"):
        if name not in files:
            raise RunError(f"{file} does not list {name}. {FIX}")
    return files


def _fingerprint(file: Path) -> dict[str, Any]:
    with file.open("rb") as stream:
        digest = hashlib.file_digest(stream, "sha256").hexdigest()
    return {"size": file.stat().st_size, "sha256": digest}
