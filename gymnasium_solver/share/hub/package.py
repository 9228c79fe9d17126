"""The files of a run that leave the machine: scrubbed, complete enough to load, and listed.

Left out: console output, reports, notes and tags, replay, and the diff of the working directory
unless it is asked for. Checkpoints travel as they are, so that their manifests stay valid.

`Scrub` removes host and user names, absolute paths, tokens and passwords: values of environment
variables whose name says so, well-known forms of tokens, and fields of configs with such names.
"""

import getpass
import hashlib
import json
import os
import platform
import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gymnasium_solver.config.yaml_file import dump_yaml, parse_yaml
from gymnasium_solver.errors import RunError
from gymnasium_solver.paths import read_regular
from gymnasium_solver.runs import checkpoint as checkpointing
from gymnasium_solver.runs.files import dump_json
from gymnasium_solver.runs.query import get_meta
from gymnasium_solver.runs.run import Run

HIDDEN_PATH, HIDDEN_NAME, HIDDEN_SECRET = "<path>", "<name>", "<removed>"
SECRET_NAME = re.compile(
    r"(?i)(^|[_.-])(token|secret|password|passwd|api_?key|access_?key|private_?key|credential)s?$"
)
_TOKENS = re.compile(
    r"\b(hf_[A-Za-z0-9]{16,}|gh[pousr]_[A-Za-z0-9]{16,}|github_pat_\w{20,}|sk-[\w-]{16,}"
    r"|AKIA[A-Z0-9]{16}|xox[abps]-[\w-]{10,}|eyJ[\w-]{10,}\.[\w-]{10,}\.[\w-]{5,}|AIza[\w-]{30,})"
)
# A folder below / or a drive; not the path of a URL, which follows a host name.
_PATH = re.compile(
    r"(?<![\w.:/<>])(?:file://)?(?:/|~/|[A-Za-z]:\\)[^\s'\"`,;:)\]}<>|]*[^\s'\"`,;:)\]}<>|.]"
)
_PARTS = re.compile(r"[^/\\]+")
# Names that are also ordinary words are removed only where they stand for a user or host.
_COMMON = {"root", "user", "admin", "runner", "ubuntu", "debian", "localhost", "test", "docker"}
_SHORTEST_NAME = 4


class Scrub:
    """Takes names of hosts and users, secrets and paths out of texts."""

    def __init__(
        self, names: Iterable[str], secrets: Iterable[str], folders: Iterable[str]
    ) -> None:
        kept = {n for n in names if len(n) >= _SHORTEST_NAME and n.lower() not in _COMMON}
        words = sorted(map(re.escape, kept), key=len, reverse=True)
        self._names = re.compile(rf"(?i)(?<![\w-])({'|'.join(words)})(?![\w-])") if words else None
        self.secrets, self.folders = set(secrets), set(folders)

    @classmethod
    def of_this_machine(cls, folders: Iterable[Path] = ()) -> "Scrub":
        names = {platform.node(), platform.node().partition(".")[0]}
        with suppress(OSError, KeyError):  # no entry for this user id
            names.add(getpass.getuser())
        variables = os.environ.items()
        secrets = {value for n, value in variables if SECRET_NAME.search(n) and len(value) >= 8}
        places = {str(path) for path in (Path.home(), *folders) if len(path.parts) > 1}
        return cls(names, secrets, places)

    def text(self, text: str) -> str:
        for secret in self.secrets:
            text = text.replace(secret, HIDDEN_SECRET)
        text = _TOKENS.sub(HIDDEN_SECRET, text)
        # A path of one part, such as /tmp or /s, says nothing.
        text = _PATH.sub(lambda m: HIDDEN_PATH if len(_PARTS.findall(m[0])) > 1 else m[0], text)
        return text if self._names is None else self._names.sub(HIDDEN_NAME, text)

    def value(self, value: Any) -> Any:
        """JSON with every string scrubbed; values of fields named as secrets are removed."""
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, list | tuple):
            return [self.value(item) for item in value]
        if isinstance(value, dict):
            return {self.text(str(key)): self._field(str(key), item) for key, item in value.items()}
        return value

    def _field(self, key: str, value: Any) -> Any:
        is_secret = SECRET_NAME.search(key) and isinstance(value, str) and value
        return HIDDEN_SECRET if is_secret else self.value(value)

    def leaks(self, data: bytes) -> list[str]:
        """What of this machine is still in a file, in words that do not repeat it."""
        text = data.decode("utf-8", errors="replace")
        found = []
        if any(secret in text for secret in self.secrets) or _TOKENS.search(text):
            found.append("a token or password")
        if any(folder in text for folder in self.folders):
            found.append("a folder of this machine")
        if self._names is not None and self._names.search(text):
            found.append("a user or host name")
        return found


MANIFEST = "manifest.json"
RUN_ID = re.compile(r"[\w.-]{1,200}")  # names of runs in a dataset
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
        listed = {
            name: {"size": len(data), "sha256": hashlib.sha256(data).hexdigest()}
            for name, data in sorted(self.files.items())
            if name != "README.md"  # may be edited on the Hub
        }
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
    return dict(scrub.value(public))


def _add_text(package: Package, name: str, path: Path) -> None:
    try:
        text = read_regular(path).decode()
    except FileNotFoundError:
        return
    except (OSError, UnicodeDecodeError) as error:
        raise RunError(f"{path} cannot be read: {error}.") from None
    if name.endswith(".jsonl"):
        cleaned = "".join(_line(line, package.scrub) for line in text.splitlines())
    elif name.endswith(".yaml"):
        raw = parse_yaml(text, name)
        public = package.scrub.value(raw)
        cleaned = text if public == raw else dump_yaml(public)
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


def _add_checkpoints(package: Package, which: str) -> None:
    folder = package.run.checkpoints_dir
    found = {c.env_steps: c.path for c in checkpointing.list_checkpoints(folder)}
    if not found:
        raise RunError(f"{package.run.id} has no checkpoint to publish.")
    best, last = (checkpointing.pointer_env_steps(folder, name) for name in ("best", "last"))
    last = last if last is not None else max(found)
    best = best if best is not None else last
    steps = {"best": {best}, "last": {best, last}, "all": set(found)}[which]
    for env_steps in sorted(steps):
        path = found[env_steps]
        for name in ("manifest.json", "done", *checkpointing.verified_manifest(path)["files"]):
            package.files[f"checkpoints/{env_steps}/{name}"] = read_regular(path / name)
    package.files["checkpoints/best"] = str(best).encode()
    package.files["checkpoints/last"] = str(last if last in steps else best).encode()
