"""Plugins: modules of the user's own that bring algorithms, networks, wrappers, environments and
observers. A config names the modules under `plugins`; they are imported before anything else in the
config is looked up. A module in the working folder is found. See docs/plugins.md for examples.

    import gymnasium_solver as gs

    @gs.register_algorithm("my_algo")      algo_id: my_algo                 (algos/__init__.py)
    @gs.register_network("my_torso")       policy: my_torso                 (nets/registered.py)
    @gs.register_head("my_head")           head: my_head
    @gs.register_wrapper("MyWrapper")      env_wrappers: [{id: MyWrapper}]  (envs/wrappers)
    @gs.register_env("My-v0")              env_id: My-v0
    @gs.register_observer("my_observer")   observers: [my_observer]         (training/observer.py)

Importing this module is light.
"""

import os
import re
import sys
import traceback
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from gymnasium_solver.config.code import import_code
from gymnasium_solver.errors import ConfigError, GsolveError, TrustError
from gymnasium_solver.registry import source_of

T = TypeVar("T")


def register_env(name: str, **settings: Any) -> Callable[[T], T]:
    """Decorator: an environment class under a Gymnasium id such as "My-v0". `settings` are those of
    `gymnasium.register`, e.g. max_episode_steps=200, reward_threshold=1.0."""
    import gymnasium

    def add(entry_point: T) -> T:
        taken = gymnasium.registry.get(name)
        if taken is not None and source_of(taken.entry_point) != source_of(entry_point):
            raise ConfigError(
                f"an environment named {name!r} exists already ({taken.entry_point}); choose "
                "another id"
            )
        if taken is None:
            gymnasium.register(name, entry_point=entry_point, **settings)  # type: ignore[arg-type]
        return entry_point

    return add


def is_module_name(name: str) -> bool:
    """Whether a module can have this name."""
    return re.fullmatch(r"[^\W\d]\w*(\.[^\W\d]\w*)*", name) is not None


def import_plugins(names: Iterable[str]) -> None:
    """Import each module. ConfigError if one is missing or fails. A second import does nothing."""
    for name in names:
        if not is_module_name(name):
            raise ConfigError(f"plugins: {name!r} is not a module name; expected e.g. my_module")
        see_working_folder()
        try:
            import_code(name)
        except TrustError:
            raise
        except ImportError as error:
            raise ConfigError(
                f"plugins: cannot import {name!r}: {error}. Give the name of a module that is "
                "installed or in the working folder, without .py."
            ) from error
        except GsolveError as error:  # a name that is taken
            raise ConfigError(f"plugins: {name}: {error}") from error
        except SyntaxError as error:  # its text has the place
            raise ConfigError(f"plugins: {name!r} is not valid Python: {error}") from error
        except Exception as error:
            place = traceback.extract_tb(error.__traceback__)[-1]
            raise ConfigError(
                f"plugins: importing {name!r} failed: {type(error).__name__}: {error} "
                f"({place.filename}, line {place.lineno})"
            ) from error


def see_working_folder() -> None:
    """Make modules in the working folder importable, which the installed command does not see."""
    if os.getcwd() not in sys.path:
        sys.path.append(os.getcwd())
