"""Removes what belongs to this machine and its user from the files of a run.

    scrub = Scrub.of_this_machine()
    text = scrub.text("--runs-dir /home/ann/runs")      # "--runs-dir <path>"
    meta = scrub.value(meta)                            # strings inside JSON
    scrub.leaks(data)                                   # what is still there

Removed: host and user names, absolute paths, tokens and passwords: values of environment variables
whose name says so, well-known forms of tokens, and fields of configs with such names.
"""

import getpass
import os
import platform
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

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
# Names that are also ordinary words are removed only where they stand for a user or host.
_COMMON = {"root", "user", "admin", "runner", "ubuntu", "debian", "localhost", "test", "docker"}
_SHORTEST_NAME = 4


@dataclass(frozen=True)
class Scrub:
    names: frozenset[str] = frozenset()
    """Host and user names."""
    secrets: frozenset[str] = frozenset()
    folders: frozenset[str] = frozenset()
    """Folders of this machine, for `leaks`."""
    _pattern: "re.Pattern[str] | None" = field(default=None, repr=False)

    @classmethod
    def of_this_machine(cls, folders: Iterable[Path] = ()) -> "Scrub":
        names = {platform.node(), platform.node().partition(".")[0], _user()}
        secrets = {
            value
            for name, value in os.environ.items()
            if SECRET_NAME.search(name) and len(value) >= 8
        }
        places = {str(path) for path in (Path.home(), *folders) if len(path.parts) > 1}
        return cls.make(names, secrets, places)

    @classmethod
    def make(cls, names: Iterable[str], secrets: Iterable[str], folders: Iterable[str]) -> "Scrub":
        kept = {n for n in names if len(n) >= _SHORTEST_NAME and n.lower() not in _COMMON}
        words = sorted((re.escape(name) for name in kept), key=len, reverse=True)
        pattern = re.compile(rf"(?i)(?<![\w-])({'|'.join(words)})(?![\w-])") if words else None
        return cls(frozenset(kept), frozenset(secrets), frozenset(folders), pattern)

    def text(self, text: str) -> str:
        for secret in self.secrets:
            text = text.replace(secret, HIDDEN_SECRET)
        text = _TOKENS.sub(HIDDEN_SECRET, text)
        text = _PATH.sub(_hidden_path, text)
        return text if self._pattern is None else self._pattern.sub(HIDDEN_NAME, text)

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
        if SECRET_NAME.search(key) and isinstance(value, str) and value:
            return HIDDEN_SECRET
        return self.value(value)

    def leaks(self, data: bytes) -> list[str]:
        """What of this machine is still in a file, in words that do not repeat it."""
        text = data.decode("utf-8", errors="replace")
        found = []
        if any(secret in text for secret in self.secrets) or _TOKENS.search(text):
            found.append("a token or password")
        if any(folder in text for folder in self.folders):
            found.append("a folder of this machine")
        if self._pattern is not None and self._pattern.search(text):
            found.append("a user or host name")
        return found


def _hidden_path(match: "re.Match[str]") -> str:
    """A path of one part, such as /tmp or /s, says nothing."""
    path = match[0]
    parts = [part for part in re.split(r"[/\\]", path) if part]
    return HIDDEN_PATH if len(parts) > 1 else path


def _user() -> str:
    try:
        return getpass.getuser()
    except (OSError, KeyError):  # no entry for this user id
        return ""
