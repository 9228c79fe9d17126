"""What a config can name: algorithms, networks, heads and observers, by name.

The framework's own are listed here by module and imported when they are asked for. Plugins add
theirs with decorators (plugins.py). What a name stands for has its type in the room that asks for
it (algos, nets/registered.py, training/observer.py), so that nothing here imports from above.
Wrappers have a registry of their own in envs/wrappers, environments are Gymnasium's.
"""

import re
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any, TypeVar

from gymnasium_solver.errors import ConfigError
from gymnasium_solver.suggest import did_you_mean

T = TypeVar("T")
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]*")


class Registry:
    """Things by name, with errors of one line for a name that is taken or unknown."""

    def __init__(self, kind: str, field: str, built_in: Mapping[str, str] | None = None):
        self.kind, self.field = kind, field
        self.built_in = built_in or {}
        """Names of the framework's own: "module:attribute", or "" for what is not looked up."""
        self.items: dict[str, Any] = {}

    def register(self, name: str) -> Callable[[T], T]:
        """Decorator: make a class or function known under `name`."""
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            raise ConfigError(
                f"a {self.kind} cannot be named {name!r}: expected a letter, then letters, digits "
                f'and underscores, as in @register("my_{self.kind}")'
            )

        def add(item: T) -> T:
            taken = self.items.get(name)
            if name in self.built_in or (taken is not None and source_of(taken) != source_of(item)):
                owner = "gymnasium-solver" if taken is None else source_of(taken)
                raise ConfigError(
                    f"a {self.kind} named {name!r} exists already ({owner}); choose another name"
                )
            self.items[name] = item
            return item

        return add

    def names(self) -> list[str]:
        """All names, the framework's own first."""
        return [*self.built_in, *self.items]

    def get(self, name: str) -> Any:
        """The thing of this name, imported if need be; ConfigError if there is none."""
        if name in self.items:
            return self.items[name]
        if not self.built_in.get(name):
            raise ConfigError(f"{self.field}: {self.unknown(name)}")
        module, _, attribute = self.built_in[name].partition(":")
        return getattr(import_module(module), attribute)

    def unknown(self, name: str) -> str:
        """The message for a name that is not registered."""
        known = self.names()
        listing = f"Available: {', '.join(known)}." if known else "None is registered."
        hint = did_you_mean(name, known)
        return " ".join(filter(None, (f"unknown {self.kind} {name!r}.", listing, hint)))


def source_of(item: Any) -> str:
    """Where a class or function was defined. Importing its module again gives the same."""
    return f"{getattr(item, '__module__', '?')}.{getattr(item, '__qualname__', repr(item))}"


# Algorithms by id: the agent's class. The id names two modules: algos/<id>.py has the agent, and
# algos/configs/<id>.py its config class, <Agent>Config, which does not need torch.
ALGOS = {
    "ppo": "PPO",
    "a2c": "A2C",
    "reinforce": "Reinforce",
    "dqn": "DQN",
    "pqn": "PQN",
    "sarsa": "Sarsa",
    "mbie": "MBIE",
    "sac": "SAC",
    "crossq": "CrossQ",
    "td3": "TD3",
    "ddpg": "DDPG",
    "tdmpc2": "TDMPC2",
    "dreamerv3": "DreamerV3",
    "bc": "BC",
    "random": "Random",
}

algorithms = Registry(
    "algorithm",
    "algo_id",
    {algo_id: f"gymnasium_solver.algos.{algo_id}:{name}" for algo_id, name in ALGOS.items()},
)
networks = Registry("network", "policy", dict.fromkeys(("auto", "mlp", "cnn"), ""))
heads = Registry("head", "head", {"linear": ""})
observers = Registry("observer", "observers")


def config_class(algo_id: str) -> Any:
    """The config class of an algorithm. Those of this package do not import torch."""
    if algo_id not in ALGOS:
        return algorithms.get(algo_id).Config
    module = import_module(f"gymnasium_solver.algos.configs.{algo_id}")
    return getattr(module, f"{ALGOS[algo_id]}Config")
