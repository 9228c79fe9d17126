"""gymnasium-solver: solve Gymnasium environments. One config, one command.

    import gymnasium_solver as gs

    run = gs.train("CartPole-v1:ppo", max_env_steps=50_000)
    agent = gs.load("@last/@best")
    action = agent.act(obs)

The names below are imported when they are first used: importing the package costs nothing.
"""

from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from gymnasium_solver.api import train
    from gymnasium_solver.training.agents import load_agent as load
    from gymnasium_solver.training.prepare import load_config

__all__ = ["__version__", "load", "load_config", "train"]

_HOMES = {
    "load": "gymnasium_solver.training.agents:load_agent",
    "load_config": "gymnasium_solver.training.prepare:load_config",
    "train": "gymnasium_solver.api:train",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    module, _, attribute = _HOMES[name].partition(":")
    value = globals()[name] = getattr(import_module(module), attribute)
    return value


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOMES])
