"""Every algorithm fulfils the typed contract of an agent; mypy checks the assignments below."""

import inspect

import pytest

from gymnasium_solver.algos import ALGOS, algo_class
from gymnasium_solver.algos.a2c import A2C
from gymnasium_solver.algos.agent import Agent, AlgorithmClass
from gymnasium_solver.algos.bc import BC
from gymnasium_solver.algos.crossq import CrossQ
from gymnasium_solver.algos.ddpg import DDPG
from gymnasium_solver.algos.dqn import DQN
from gymnasium_solver.algos.dreamerv3 import DreamerV3
from gymnasium_solver.algos.ppo import PPO
from gymnasium_solver.algos.pqn import PQN
from gymnasium_solver.algos.random import Random
from gymnasium_solver.algos.reinforce import Reinforce
from gymnasium_solver.algos.sac import SAC
from gymnasium_solver.algos.sarsa import Sarsa
from gymnasium_solver.algos.td3 import TD3
from gymnasium_solver.algos.tdmpc2 import TDMPC2

CLASSES: list[AlgorithmClass] = [
    PPO,
    A2C,
    Reinforce,
    DQN,
    PQN,
    Sarsa,
    SAC,
    CrossQ,
    TD3,
    DDPG,
    TDMPC2,
    DreamerV3,
    BC,
    Random,
]


def test_the_list_above_has_every_algorithm() -> None:
    assert {algo_class(algo_id) for algo_id in ALGOS} == set(CLASSES)


@pytest.mark.parametrize("algo_id", ALGOS)
def test_an_agent_has_all_that_the_contract_names(algo_id: str) -> None:
    made = algo_class(algo_id)
    methods = [
        name
        for name, value in vars(Agent).items()
        if not name.startswith("_") and (inspect.isfunction(value) or isinstance(value, property))
    ]
    assert len(methods) > 15
    # Set by the constructor, so not on the class: the network and the policy.
    missing = [name for name in methods if not hasattr(made, name)]
    assert set(missing) <= {"net", "policy"}
