"""Paths as users type them, and files that a stranger may have prepared."""

import errno
import glob
import os
import platform
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from io import BufferedReader, FileIO
from pathlib import Path
from typing import TYPE_CHECKING

from gymnasium_solver.errors import GsolveError

if TYPE_CHECKING:
    from tempfile import TemporaryDirectory


class PathError(GsolveError):
    """A path that cannot exist, or cannot be written."""


def user_path(text: str | Path) -> Path:
    """A path with `~` and `~user` replaced by the home folder. The shell does that only at the
    beginning of a word, so not in `--runs-dir=~/runs`."""
    try:
        return Path(text).expanduser()
    except RuntimeError:
        raise PathError(
            f"{text}: there is no user {Path(text).parts[0][1:]!r} with a home folder."
        ) from None


def output_file(text: str | Path, what: str, *, create_folder: bool = False) -> Path:
    """A file that is to be written."""
    path = user_path(text)
    if "\0" in str(path):
        raise PathError(f"cannot write {what} {path}: no file name has a NUL character.")
    with writing_file(what, path):
        if path.is_dir():
            raise PathError(f"cannot write {what} {path}: it is a folder; give a file name.")
        if create_folder:
            path.parent.mkdir(parents=True, exist_ok=True)
    return path


def write_output(path: str | Path, what: str, content: str) -> Path:
    """Write a text file that the user asked for; its folder is created."""
    path = output_file(path, what, create_folder=True)
    with writing_file(what, path):
        path.write_text(content, encoding="utf-8")
    return path


@contextmanager
def writing_file(what: str, path: Path) -> Iterator[None]:
    """PathError if the block cannot write the file that the user asked for."""
    try:
        yield
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise PathError(f"cannot write {what} {path}: {reason}.") from error


def open_regular(path: Path, *, follow: bool = False) -> BufferedReader:
    """Open a file of a run for reading. A copied folder may hold anything, so only a regular file
    is opened: a link could lead to any file of this machine, and a pipe would block. OSError says
    what it is. `follow`: links are followed, for files of the user's own."""
    return BufferedReader(FileIO(regular_handle(path, os.O_RDONLY, follow=follow), "rb"))


def regular_handle(path: Path, flags: int, *, follow: bool = False) -> int:
    """The same as a file descriptor, opened with the flags of `os.open`."""
    flags |= getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)
    if not follow:
        if os.path.islink(path):
            raise OSError(errno.ELOOP, "it is a link", str(path))
        flags |= getattr(os, "O_NOFOLLOW", 0)
    handle = os.open(path, flags, 0o644)
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise OSError(errno.EINVAL, "it is not a file", str(path))
    return handle


def read_regular(path: Path, *, follow: bool = False) -> bytes:
    """The content of a regular file, opened as `open_regular` does."""
    with open_regular(path, follow=follow) as file:
        return file.read()


def temporary_folder(kind: str, place: Path | None = None) -> "TemporaryDirectory[str]":
    """A folder that is removed with the object. Its name has the machine and the process, so that
    the next one removes what a killed process left behind. `place`: where to make it, with a name
    that begins with a dot; None: where the system keeps temporary files."""
    import shutil  # these take longer to import than all the rest of this module
    from tempfile import TemporaryDirectory, gettempdir

    import psutil

    prefix = f"{'.' * (place is not None)}gsolve-{kind}-{platform.node() or 'here'}-"
    place = place or Path(gettempdir())
    for path in place.glob(f"{glob.escape(prefix)}*"):
        owner = path.name.removeprefix(prefix).partition("-")[0]
        if owner.isdecimal() and not psutil.pid_exists(int(owner)):
            shutil.rmtree(path, ignore_errors=True)
    name = f"{prefix}{os.getpid()}-"
    return TemporaryDirectory(dir=place, prefix=name, ignore_cleanup_errors=True)


def is_folder(path: Path) -> bool:
    """Unlike Path.is_dir, False for a name that no file system takes."""
    return os.path.isdir(path)


def is_own_file(path: Path) -> bool:
    """Whether a file of a run can be opened: neither a link nor a pipe (`open_regular`)."""
    return is_file(path) and not path.is_symlink()


def is_file(path: Path) -> bool:
    """Unlike Path.is_file, False for a name that no file system takes."""
    return os.path.isfile(path)
