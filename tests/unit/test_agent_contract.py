"""Every algorithm fulfils the typed contract of an agent; mypy checks the assignments below."""

import inspect
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

from gymnasium_solver.algos import ALGOS, algo_class
from gymnasium_solver.algos.a2c import A2C
from gymnasium_solver.algos.agent import Agent, AlgorithmClass
from gymnasium_solver.algos.bc import BC
from gymnasium_solver.algos.crossq import CrossQ
from gymnasium_solver.algos.ddpg import DDPG
from gymnasium_solver.algos.dqn import DQN
from gymnasium_solver.algos.dreamerv3 import DreamerV3
from gymnasium_solver.algos.mbie import MBIE
from gymnasium_solver.algos.ppo import PPO
from gymnasium_solver.algos.pqn import PQN
from gymnasium_solver.algos.random import Random
from gymnasium_solver.algos.reinforce import Reinforce
from gymnasium_solver.algos.sac import SAC
from gymnasium_solver.algos.sarsa import Sarsa
from gymnasium_solver.algos.td3 import TD3
from gymnasium_solver.algos.tdmpc2 import TDMPC2
from gymnasium_solver.errors import ConfigError
from tests.acting import BOX, small_agent, small_rollout

CLASSES: list[AlgorithmClass] = [
    PPO,
    A2C,
    Reinforce,
    DQN,
    PQN,
    Sarsa,
    MBIE,
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


OF_CHOICES = (BOX, "Discrete .*Box.*use ppo, sac or td3")
OF_NUMBERS = (spaces.Discrete(3), r"continuous.*Discrete\(3\).*sac")
WRONG: dict[str, tuple[Any, str]] = {
    **dict.fromkeys(("dqn", "pqn", "sarsa"), OF_CHOICES),
    **dict.fromkeys(("td3", "ddpg"), OF_NUMBERS),
}


@pytest.mark.parametrize("algo_id", WRONG)
def test_actions_that_an_algorithm_cannot_choose_are_refused(algo_id: str) -> None:
    space, expected = WRONG[algo_id]
    with pytest.raises(ConfigError, match=rf"{algo_id} needs {expected}"):
        small_agent(algo_id, space)


@pytest.mark.parametrize(
    "space",
    [
        spaces.Box(-np.inf, np.inf, (2,), np.float32),
        spaces.Box(np.array([0, -np.inf], np.float32), np.array([1, 1], np.float32)),
    ],
    ids=["none", "one side"],
)
@pytest.mark.parametrize("algo_id", ["sac", "td3", "ddpg"])
def test_actions_without_bounds_are_refused(algo_id: str, space: Any) -> None:
    with pytest.raises(ConfigError, match=rf"{algo_id}.*finite.*ActionRescale.*ppo"):
        small_agent(algo_id, space)


@pytest.mark.parametrize("algo_id", ["sac", "td3", "ddpg"])
def test_errors_become_priorities(algo_id: str) -> None:
    agent = small_agent(algo_id, prioritized=True, updates_per_step=0.1)
    agent.update(small_rollout(n_rows=5), 10, 100)
    leaves = agent.memory.priorities.leaves
    assert len(set(leaves[leaves > 0].tolist())) > 2, "those drawn have priorities of their own"
