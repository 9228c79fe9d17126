"""The errors a user can cause or meet. The command line prints their message alone and exits."""


class GsolveError(Exception):
    """Base of all errors that are told to the user without a traceback."""


class ConfigError(GsolveError):
    """A config, an override or a config name is wrong."""


class EnvError(GsolveError):
    """An environment cannot be built, or was used against its contract."""


class MissingError(EnvError):
    """An environment needs a package, a library or a ROM that this machine lacks."""


class RunError(GsolveError):
    """A run folder or a checkpoint cannot be found, read or trusted."""


class DivergedError(GsolveError):
    """Training met a value that is not finite."""
