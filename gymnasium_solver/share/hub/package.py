"""The files of a run that are published: scrubbed, complete enough to load, and listed.

    package = package_run(run, "@best", allow_diff=False)
    package.files               # {"config.yaml": b"...", "checkpoints/1000/model.safetensors": ...}

Left out: console output, reports, notes and tags, replay, and the diff of the working directory
unless it is asked for. Checkpoints travel as they are, so that their manifests stay valid.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gymnasium_solver.errors import RunError
from gymnasium_solver.runs.checkpoint import (
    BEST,
    LAST,
    list_checkpoints,
    pointer_env_steps,
    verified_manifest,
)
from gymnasium_solver.runs.files import dump_json
from gymnasium_solver.runs.query import get_meta
from gymnasium_solver.runs.run import Run
from gymnasium_solver.share.hub.scrub import Scrub

MANIFEST = "manifest.json"
# Fields of meta.json that describe this machine or this process.
_PRIVATE = ("pid", "pid_started", "signature", "updated_at", "labels", "notes", "tags")
_MACHINE = ("cpu", "cpu_count", "gpu", "gpus")
_TEXTS = ("config.yaml", "metrics.jsonl", "events.jsonl")


@dataclass
class Package:
    run: Run
    scrub: Scrub
    files: dict[str, bytes] = field(default_factory=dict)
    changed: dict[str, str] = field(default_factory=dict)
    """Files that differ from the run's, and why."""

    @property
    def size(self) -> int:
        return sum(map(len, self.files.values()))

    def seal(self) -> None:
        """Add the manifest; RunError if something of this machine is left in any file."""
        for name, data in self.files.items():
            if leaks := self.scrub.leaks(data):
                raise RunError(
                    f"{name} still has {' and '.join(leaks)} in it, so nothing was sent. Remove it "
                    "there, or publish without this file."
                )
        listed = {name: _fingerprint(data) for name, data in sorted(self.files.items())}
        listed.pop("README.md", None)  # may be edited on the Hub
        self.files[MANIFEST] = dump_json({"format": 1, "files": listed})


def package_run(
    run: Run, *, checkpoints: str = "best", allow_diff: bool = False, scrub: Scrub | None = None
) -> Package:
    """Gather and scrub the files. `checkpoints`: best, last (both), or all."""
    package = Package(run, scrub or Scrub.of_this_machine([run.path.resolve(), Path.cwd()]))
    for name in _TEXTS:
        _add_text(package, name, run.path / name)
    meta = public_meta(get_meta(run), package.scrub)
    package.files["meta.json"] = dump_json(meta)
    package.changed["meta.json"] = "without host, process, paths and signature"
    _add_checkpoints(package, checkpoints)
    if allow_diff and (run.path / "git.diff").is_file():
        _add_text(package, "git.diff", run.path / "git.diff")
    return package


def public_meta(meta: Mapping[str, Any], scrub: Scrub) -> dict[str, Any]:
    """meta.json without what belongs to the machine and the process."""
    public = {key: value for key, value in meta.items() if key not in _PRIVATE}
    machine = meta.get("machine")
    if isinstance(machine, dict):
        kept = {key: machine[key] for key in _MACHINE if key in machine}
        kept["platform"] = str(machine.get("platform", "")).partition("-")[0]
        public["machine"] = kept
    public["resumed"] = [
        {key: value for key, value in entry.items() if key != "command"}
        for entry in meta.get("resumed") or []
        if isinstance(entry, dict)
    ]
    cleaned: dict[str, Any] = scrub.value(public)
    return cleaned


def _add_text(package: Package, name: str, path: Path) -> None:
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return
    except (OSError, UnicodeDecodeError) as error:
        raise RunError(f"{path} cannot be read: {error}.") from None
    if name.endswith(".jsonl"):
        cleaned = "".join(_line(line, package.scrub) for line in text.splitlines())
    elif name.endswith(".yaml"):
        cleaned = _yaml(text, package.scrub)
    else:
        cleaned = package.scrub.text(text)
    if cleaned != text and not name.endswith(".jsonl"):
        package.changed[name] = "paths, names or secrets removed"
    package.files[name] = cleaned.encode()


def _line(line: str, scrub: Scrub) -> str:
    """One row of JSON; a torn last line is dropped."""
    try:
        return json.dumps(scrub.value(json.loads(line))) + "\n"
    except ValueError:
        return ""


def _yaml(text: str, scrub: Scrub) -> str:
    from gymnasium_solver.config.yaml_file import dump_yaml, parse_yaml

    raw = parse_yaml(text, "config.yaml")
    cleaned = scrub.value(raw)
    return text if cleaned == raw else dump_yaml(cleaned)


def _add_checkpoints(package: Package, which: str) -> None:
    folder = package.run.checkpoints_dir
    found = {c.env_steps: c.path for c in list_checkpoints(folder)}
    if not found:
        raise RunError(f"{package.run.id} has no checkpoint to publish.")
    best, last = (pointer_env_steps(folder, name) for name in (BEST, LAST))
    last = last if last is not None else max(found)
    best = best if best is not None else last
    steps = {"best": {best}, "last": {best, last}, "all": set(found)}[which]
    for env_steps in sorted(steps):
        path = found[env_steps]
        for name in ("manifest.json", "done", *verified_manifest(path)["files"]):
            package.files[f"checkpoints/{env_steps}/{name}"] = (path / name).read_bytes()
    package.files["checkpoints/best"] = str(best).encode()
    package.files["checkpoints/last"] = str(last if last in steps else best).encode()


def _fingerprint(data: bytes) -> dict[str, Any]:
    return {"size": len(data), "sha256": hashlib.sha256(data).hexdigest()}
