"""Which runs were made here: by this user, with this machine's home folder.

A run whose config names code of its own (plugins, `module:Env-v0`) is signed with a random key of
the user when it is created, and again at a resume. Only such a run is evaluated or resumed without
asking: another one would import modules that a stranger has chosen. The signature covers the run's
id and the names of the modules; it says nothing about the user, and nobody without the key can
make one. See docs/runs.md.
"""

import hashlib
import hmac
import os
import secrets
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

KEY_BYTES = 32


def signature(run_id: str, code: Sequence[str]) -> str | None:
    """The signature of a run that names this code; None without code, or without a home folder."""
    key = _user_key() if code else None
    return None if key is None else _signed(key, run_id, code)


def is_made_here(meta: Mapping[str, Any], code: Sequence[str]) -> bool:
    """Whether this user made the run with this content of meta.json, with exactly this code."""
    given, run_id = meta.get("signature"), meta.get("id")
    if not isinstance(given, str) or not isinstance(run_id, str):
        return False
    key = _user_key(create=False)
    if key is None:
        return False
    expected = _signed(key, run_id, code)
    return hmac.compare_digest(given.encode(errors="replace"), expected.encode())


def user_folder() -> Path:
    """The folder of this user's settings."""
    if sys.platform == "win32":
        base = os.environ.get("APPDATA")
    else:
        base = os.environ.get("XDG_CONFIG_HOME")
    return Path(base or Path.home() / ".config") / "gymnasium-solver"


def _signed(key: bytes, run_id: str, code: Sequence[str]) -> str:
    text = "\0".join((run_id, *sorted(code)))
    return hmac.new(key, text.encode(errors="surrogatepass"), hashlib.sha256).hexdigest()


def _user_key(create: bool = True) -> bytes | None:
    """The user's key, created at the first use; None if there is no folder to keep it in."""
    try:
        path = user_folder() / "key"
        if create and not path.exists():
            _create_key(path)
        key = path.read_bytes()
    except (OSError, RuntimeError):  # RuntimeError: no home folder
        return None
    return key if len(key) == KEY_BYTES else None


def _create_key(path: Path) -> None:
    """Write the key whole or not at all. Of two processes one wins, and both use its key."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temp = path.with_name(f".key-{secrets.token_hex(8)}")
    handle = os.open(temp, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(secrets.token_bytes(KEY_BYTES))
        with suppress(FileExistsError):
            os.link(temp, path)
    finally:
        temp.unlink()
