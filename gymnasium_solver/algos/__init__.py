"""The algorithms, by id. Each is one file with its losses and its agent, and one in configs/ with
its settings.

    algo_class("ppo")                     the class; `algo_class("ppo").Config` is its config class

    @register_algorithm("my_algo")        in a plugin, see docs/plugins.md
    class MyAlgo: ...

Nothing heavy is imported until a class is asked for.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from gymnasium_solver.errors import ConfigError
from gymnasium_solver.registry import ALGOS, algorithms, source_of

if TYPE_CHECKING:
    from gymnasium_solver.algos.agent import AlgorithmClass

__all__ = ["ALGOS", "algo_class", "algo_ids", "register_algorithm"]

A = TypeVar("A", bound="AlgorithmClass")


def register_algorithm(algo_id: str) -> Callable[[A], A]:
    """Class decorator: make an agent class known under `algo_id`. Its `Config` attribute must be a
    subclass of `gymnasium_solver.config.schema.Config`."""

    def add(agent: A) -> A:
        from gymnasium_solver.config.schema import Config

        config = getattr(agent, "Config", None)
        if not (isinstance(config, type) and issubclass(config, Config)):
            raise ConfigError(
                f"algorithm {algo_id!r}: {source_of(agent)}.Config must be a class that derives "
                f"from gymnasium_solver.config.schema.Config, got {config!r}"
            )
        algorithms.register(algo_id)(agent)
        return agent

    return add


def algo_ids() -> list[str]:
    """The ids of all algorithms: those of this package, then those of plugins."""
    return algorithms.names()


def algo_class(algo_id: str) -> "AlgorithmClass":
    """The agent class of an algorithm; its `Config` attribute is the algorithm's config class."""
    found: AlgorithmClass = algorithms.get(algo_id)
    return found
