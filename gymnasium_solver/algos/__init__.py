"""The algorithms, by id. Each lives in one file: its config, its losses, its agent.

Nothing heavy is imported until an algorithm is asked for.
"""

import difflib
from importlib import import_module
from typing import Any

from gymnasium_solver.errors import ConfigError

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


def algo_class(algo_id: str) -> Any:
    """The agent class of an algorithm; its `Config` attribute is the algorithm's config class."""
    if algo_id not in ALGOS:
        near = difflib.get_close_matches(algo_id, ALGOS, n=1)
        hint = f" Did you mean '{near[0]}'?" if near else ""
        raise ConfigError(
            f"algo_id: unknown algorithm '{algo_id}'; there are: {', '.join(ALGOS)}.{hint}"
        )
    module, _, name = ALGOS[algo_id].partition(":")
    return getattr(import_module(module), name)
