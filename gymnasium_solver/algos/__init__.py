"""The algorithms, by id. Each lives in one file: its config, its losses, its agent.

Nothing heavy is imported until an algorithm is asked for.
"""

from importlib import import_module
from typing import Any

from gymnasium_solver.errors import ConfigError
from gymnasium_solver.suggest import did_you_mean

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
        hint = f"Available: {', '.join(ALGOS)}. {did_you_mean(algo_id, ALGOS)}".strip()
        raise ConfigError(f"algo_id: unknown algorithm '{algo_id}'. {hint}")
    module, _, name = ALGOS[algo_id].partition(":")
    return getattr(import_module(module), name)
