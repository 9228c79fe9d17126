"""Modules of the user's own, which a config names under `plugins`.

    import_plugins(["my_module"])      # before wrappers and environments are looked up

A plugin registers what it brings when it is imported: environments with `gymnasium.register`,
wrappers with `@register_wrapper("MyWrapper")` (envs/wrappers). Modules in the working folder are
found. Importing one twice does nothing.
"""

import os
import sys
from collections.abc import Iterable
from importlib import import_module

from gymnasium_solver.errors import ConfigError


def import_plugins(names: Iterable[str]) -> None:
    """Import each module; ConfigError where there is none, or where it breaks."""
    for name in names:
        see_working_folder()
        try:
            import_module(name)
        except ImportError as error:
            raise ConfigError(
                f"plugins: cannot import {name!r}: {error}. Give the name of a module that is "
                "installed or lies in the working folder, without .py."
            ) from error


def see_working_folder() -> None:
    """Make modules in the working folder importable: the installed command, unlike `python -m`,
    does not see them by itself."""
    if os.getcwd() not in sys.path:
        sys.path.append(os.getcwd())
