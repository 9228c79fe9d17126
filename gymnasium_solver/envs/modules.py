"""Modules that a user names in place of an environment, and what is in them.

ids_of_module("my_envs")      # a message that lists my_envs:Foo-v0, ...
"""

import importlib.util
import sys
from pathlib import Path
from typing import Any

from gymnasium_solver.config.code import import_code
from gymnasium_solver.envs.env_bugs import explained
from gymnasium_solver.errors import ConfigError
from gymnasium_solver.plugins import is_module_name, see_working_folder

MOST_LISTED = 12


def is_module(name: str) -> bool:
    """Whether a module of this name is installed or in the working folder; not of Python's own."""
    if not is_module_name(name) or name.partition(".")[0] in sys.stdlib_module_names:
        return False
    try:
        return importlib.util.find_spec(name) is not None
    except (ImportError, ValueError):  # its package is missing, or it is half imported
        return False


def registered_by(module: str) -> list[str]:
    """The ids whose environments are in this module or its package, as `module:Id`."""
    import gymnasium

    found = []
    for name, entry in gymnasium.registry.items():
        point: Any = entry.entry_point
        named = point if isinstance(point, str) else getattr(point, "__module__", None)
        home = str(named).partition(":")[0]
        if home == module or home.startswith(f"{module}."):
            found.append(f"{module}:{name}")
    return sorted(found)


def refuse_module(given: str) -> None:
    """ConfigError with the ids to take, if this is a module or its file and no environment."""
    see_working_folder()
    if given.endswith(".py") or is_module(given):
        raise ConfigError(ids_of_module(given))


def ids_of_module(given: str) -> str:
    """What to train instead of a module or a file of one: an id that it registers. EnvError if it
    cannot be imported."""
    path = Path(given)
    module = path.stem if path.suffix == ".py" else given
    if path.suffix == ".py":
        if not path.is_file():
            return f"there is no file {given}"
        if path.resolve().parent != Path.cwd():
            return f"{given} is a file: go to its folder, then gsolve train {module}:ID-v0"
    with explained(f"cannot import {module!r}:"):
        found = import_code(module)
    ids = registered_by(module)
    if ids:
        more = f", ... ({len(ids)} in all)" if len(ids) > MOST_LISTED else ""
        listed = ", ".join(ids[:MOST_LISTED])
        return f"{given} is a module, not an environment; it registers {listed}{more}"
    is_pettingzoo = found.__name__.partition(".")[0] == "pettingzoo"
    if is_pettingzoo or hasattr(found, "parallel_env") or hasattr(found, "raw_env"):
        return (
            f"{given} is of PettingZoo, for several agents, and only single agents are trained "
            "here. Register an environment for one of them, with fixed or random others"
        )
    return (
        f"{given} is a module that registers no environment: call gymnasium.register(id=..., "
        "entry_point=...) in it"
    )
