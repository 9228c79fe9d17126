"""The algorithms, by id. Each lives in one file: its config, its losses, its agent.

    algo_class("ppo")                     the class; `algo_class("ppo").Config` is its config class

    @register_algorithm("my_algo")        in a plugin, see docs/plugins.md
    class MyAlgo: ...

Nothing heavy is imported until a class is asked for.
"""

from collections.abc import Callable
from importlib import import_module
from typing import Any, TypeVar

from gymnasium_solver.errors import ConfigError
from gymnasium_solver.plugins import Registry

ALGOS = {
    "ppo": "gymnasium_solver.algos.ppo:PPO",
    "reinforce": "gymnasium_solver.algos.reinforce:Reinforce",
    "dqn": "gymnasium_solver.algos.dqn:DQN",
    "pqn": "gymnasium_solver.algos.pqn:PQN",
    "sarsa": "gymnasium_solver.algos.sarsa:Sarsa",
    "sac": "gymnasium_solver.algos.sac:SAC",
    "crossq": "gymnasium_solver.algos.crossq:CrossQ",
    "td3": "gymnasium_solver.algos.td3:TD3",
    "ddpg": "gymnasium_solver.algos.ddpg:DDPG",
}
"""The algorithms of this package: id -> module and class."""

registered: Registry[Any] = Registry("algorithm", "algo_id", ALGOS)
A = TypeVar("A", bound=type)


def register_algorithm(algo_id: str) -> Callable[[A], A]:
    """Class decorator: make an agent class known under `algo_id`. Its `Config` attribute must be a
    subclass of `gymnasium_solver.config.schema.Config`."""

    def add(agent: A) -> A:
        from gymnasium_solver.config.schema import Config

        config = getattr(agent, "Config", None)
        if not (isinstance(config, type) and issubclass(config, Config)):
            raise ConfigError(
                f"algorithm {algo_id!r}: {agent.__name__}.Config must be a class that derives from "
                f"gymnasium_solver.config.schema.Config, got {config!r}"
            )
        return registered.register(algo_id)(agent)

    return add


def algo_ids() -> list[str]:
    """The ids of all algorithms: those of this package, then those of plugins."""
    return registered.names()


def algo_class(algo_id: str) -> Any:
    """The agent class of an algorithm; its `Config` attribute is the algorithm's config class."""
    if algo_id not in ALGOS:
        return registered.get(algo_id)
    module, _, name = ALGOS[algo_id].partition(":")
    return getattr(import_module(module), name)
