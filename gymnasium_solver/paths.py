"""Paths as users type them."""

from pathlib import Path

from gymnasium_solver.errors import GsolveError


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
    try:
        if path.is_dir():
            raise PathError(f"cannot write {what} {path}: it is a folder; give a file name.")
        if create_folder:
            path.parent.mkdir(parents=True, exist_ok=True)
    except (OSError, ValueError) as error:
        raise cannot_write_file(what, path, error) from None
    return path


def write_output(path: str | Path, what: str, content: str) -> Path:
    """Write a text file that the user asked for; its folder is created."""
    path = output_file(path, what, create_folder=True)
    try:
        path.write_text(content, encoding="utf-8")
    except OSError as error:
        raise cannot_write_file(what, path, error) from error
    return path


def cannot_write_file(what: str, path: Path, error: Exception) -> PathError:
    reason = getattr(error, "strerror", None) or error
    return PathError(f"cannot write {what} {path}: {reason}.")


def is_folder(path: Path) -> bool:
    """Path.is_dir, but False for a name that no file system takes."""
    try:
        return path.is_dir()
    except (OSError, ValueError):
        return False


def is_file(path: Path) -> bool:
    """Path.is_file, but False for a name that no file system takes."""
    try:
        return path.is_file()
    except (OSError, ValueError):
        return False
