"""Errors caused by user input or the environment. The command line prints only their message."""


class GsolveError(Exception):
    """Base of all errors that are shown to the user without a traceback."""


class ConfigError(GsolveError):
    """A config, an override or a config name is wrong."""


class EnvError(GsolveError):
    """An environment cannot be built, or was used incorrectly."""


class MissingError(EnvError):
    """An environment needs a package, a library or a ROM that is not installed."""


class RunError(GsolveError):
    """A run folder or a checkpoint cannot be found, read or trusted."""


class DivergedError(GsolveError):
    """Training produced a value that is not finite."""
