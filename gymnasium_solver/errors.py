"""Errors caused by user input or the environment. The command line prints only their message."""

from collections.abc import Iterator
from contextlib import contextmanager

from gymnasium_solver.printable import printable_lines


class GsolveError(Exception):
    """Base of all errors that are shown to the user without a traceback."""

    details = ""
    """More lines to show below the message, such as the traceback of an environment's own error."""

    def __str__(self) -> str:
        """The message without control characters, which a name in a file or a flag may hold."""
        return printable_lines(super().__str__())


class ConfigError(GsolveError):
    """A config, an override or a config name is wrong."""


class EnvError(GsolveError):
    """An environment cannot be built, or was used incorrectly."""


class EnvBugError(EnvError):
    """The code of an environment raised an exception; `details` is its traceback."""

    def __init__(self, message: str, details: str = "") -> None:
        super().__init__(message)
        self.details = details


class UnknownEnvError(EnvError):
    """No environment has this id."""


class MissingError(EnvError):
    """An environment needs a package, a library or a ROM that is not installed."""


class RunError(GsolveError):
    """A run folder or a checkpoint cannot be found, read or trusted."""


class TrustError(RunError):
    """A run that was not made here names code to import, and the user has not agreed."""


class WriteError(RunError):
    """A run folder cannot be written: the disk is full, or the folder was deleted."""


class DivergedError(GsolveError):
    """Training produced a value that is not finite."""


class EnvValueError(DivergedError):
    """An environment returned a value that is not finite: not the learner's fault."""


TRAINING_PACKAGES = ("torch", "gymnasium", "envpool", "threadpoolctl", "greenlet")
"""What the extra `train` brings. Reading, comparing, tracking and serving work without it."""


def missing_training(error: ImportError) -> str | None:
    """The message if an import failed because the extra `train` is not installed."""
    package = (error.name or "").partition(".")[0]
    if package not in TRAINING_PACKAGES:
        return None
    return f"this needs {package}, which is not installed: pip install 'gymnasium-solver[train]'"


def details_of(error: BaseException | None) -> str:
    """The details of an error, or of the one that caused it."""
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        if details := getattr(error, "details", ""):
            return str(details)
        seen.add(id(error))
        error = error.__cause__ or error.__context__
    return ""


class Unsupported(Exception):
    """A computation that cannot be recorded or compiled (fast/); the message says why. Another form
    of it is used, so this never reaches a user."""


@contextmanager
def needing(message: str, kind: type[Exception] = MissingError) -> Iterator[None]:
    """Imports that say what to install if they fail."""
    try:
        yield
    except ImportError:
        raise kind(message) from None


@contextmanager
def told_as(kind: type[Exception], where: object, *failures: type[Exception]) -> Iterator[None]:
    """Errors of these types become `kind`, with what they are about in front."""
    try:
        yield
    except failures as error:
        told = error if isinstance(error, GsolveError) else first_line(error)
        raise kind(f"{where}: {told}") from None


def first_line(error: BaseException) -> str:
    """The first line of an error's text, or its class if it has none."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
