"""Action values of PQN and SARSA on the probes."""

from typing import Any

import numpy as np
import pytest
import torch

from tests.probe.conftest import Learn, assert_forbidden_actions_do_not_count, assert_remembers
from tests.world_models import GAMMA, column

COMMON: dict[str, Any] = {"n_steps": 8, "epsilon": {"start": 1.0, "end": 0.0, "to": 0.8}}
PQN: dict[str, Any] = {"batch_size": 32, "policy_lr": "lin_0.01", "max_env_steps": 2_000}
SARSA: dict[str, Any] = {"batch_size": 16, "policy_lr": "lin_0.01", "max_env_steps": 5_000}
# Epsilon ends at 0, so that what SARSA's own policy is worth becomes what the best one is.
ALGOS: dict[str, dict[str, Any]] = {
    "pqn": PQN,
    "pqn_plain_normalised": {**PQN, "norm": None, "normalize_obs": "rolling"},
    "sarsa": SARSA,
    "sarsa_boltzmann_lambda": {
        **SARSA,
        "td_lambda": 0.7,
        "exploration": "boltzmann",
        "temperature": {"start": 5.0, "end": 0.2, "schedule": "exponential"},
    },
}


@pytest.mark.parametrize("recurrent", ["gru", "lstm"])
def test_a_recurrent_pqn_remembers(recurrent: str, learn: Learn) -> None:
    agent = learn(
        "pqn", "Memory", recurrent=recurrent, recurrent_dim=16, sequence_length=8, n_steps=16,
        batch_size=64, n_epochs=6, policy_lr=0.005, max_env_steps=12_000,
        epsilon={"start": 1.0, "end": 0.05, "to": 0.8},
    )  # fmt: skip
    assert_remembers(agent, -1.0, 1.0, 1.0, -1.0)


def q(agent: Any, *obs: float) -> np.ndarray:
    """Q of these observations (rows) and each action (columns)."""
    with torch.no_grad():
        values: np.ndarray = agent.net(torch.from_numpy(column(*obs))).numpy()
    return values


@pytest.mark.parametrize("algo", ALGOS)
def test_a_constant_is_learnt(algo: str, learn: Learn) -> None:
    np.testing.assert_allclose(q(learn(algo, "ConstantReward"), 0), [[1, 1]], atol=0.1)


@pytest.mark.parametrize("algo", ALGOS)
def test_the_value_sees_the_observation(algo: str, learn: Learn) -> None:
    agent = learn(algo, "ObsDependentReward")
    np.testing.assert_allclose(q(agent, -1, 1), [[-1, -1], [1, 1]], atol=0.1)


@pytest.mark.parametrize("algo", ALGOS)
def test_a_later_reward_is_discounted_once(algo: str, learn: Learn) -> None:
    agent = learn(algo, "TwoStepDiscount")
    np.testing.assert_allclose(q(agent, 0, 1), [[GAMMA, GAMMA], [1.0, 1.0]], atol=0.1)


@pytest.mark.parametrize("algo", ALGOS)
def test_a_truncation_is_bootstrapped(algo: str, learn: Learn) -> None:
    """Taken for a termination the value would be near 2."""
    agent = learn(algo, "TruncatedReward")
    assert q(agent, 0).max() == pytest.approx(1 / (1 - GAMMA), abs=0.3)


@pytest.mark.parametrize("algo", ALGOS)
def test_both_actions_are_valued(algo: str, learn: Learn) -> None:
    agent = learn(algo, "ActionReward")
    np.testing.assert_allclose(q(agent, 0), [[-1, 1]], atol=0.15)
    assert agent.act(column(0)) == 1


@pytest.mark.parametrize("algo", ALGOS)
def test_the_action_depends_on_the_observation(algo: str, learn: Learn) -> None:
    agent = learn(algo, "ObsActionReward")
    np.testing.assert_allclose(q(agent, -1, 1), [[1, -1], [-1, 1]], atol=0.15)
    assert agent.act(column(-1, 1)).tolist() == [0, 1]


@pytest.mark.parametrize("algo", ALGOS)
def test_forbidden_actions_are_neither_taken_nor_bootstrapped_from(algo: str, learn: Learn) -> None:
    agent = learn(algo, "Masked", max_env_steps=5_000)
    got = q(agent, -1, 0, 1)
    assert_forbidden_actions_do_not_count(agent, got, atol=0.6)
    assert got[1, 2] == pytest.approx(-1, abs=0.4)


def test_sarsa_values_its_own_exploration_and_pqn_does_not(learn: Learn) -> None:
    """At obs 0 of Masked a random policy loses (-1 - 2 - 2) / 3; the best loses 1."""
    random = {"epsilon": 1.0, "max_env_steps": 8_000}
    for algo, lost in (("sarsa", 5 / 3), ("pqn", 1.0)):
        got = q(learn(algo, "Masked", **random, td_lambda=0.0), -1, 1)
        np.testing.assert_allclose([got[0, 1:3], got[1, [0, 2]]], 2 - GAMMA * lost, atol=0.2)
