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
    from gymnasium_solver.algos import register_algorithm
    from gymnasium_solver.api import train
    from gymnasium_solver.envs.wrappers import register_wrapper
    from gymnasium_solver.plugins import (
        register_env,
        register_head,
        register_network,
        register_observer,
    )
    from gymnasium_solver.training.agents import load_agent as load
    from gymnasium_solver.training.prepare import load_config

__all__ = [
    "__version__",
    "load",
    "load_config",
    "register_algorithm",
    "register_env",
    "register_head",
    "register_network",
    "register_observer",
    "register_wrapper",
    "train",
]

_HOMES = {
    "load": "gymnasium_solver.training.agents:load_agent",
    "load_config": "gymnasium_solver.training.prepare:load_config",
    "register_algorithm": "gymnasium_solver.algos:register_algorithm",
    "register_env": "gymnasium_solver.plugins:register_env",
    "register_head": "gymnasium_solver.plugins:register_head",
    "register_network": "gymnasium_solver.plugins:register_network",
    "register_observer": "gymnasium_solver.plugins:register_observer",
    "register_wrapper": "gymnasium_solver.envs.wrappers:register_wrapper",
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
