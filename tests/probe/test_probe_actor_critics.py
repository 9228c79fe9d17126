"""Values and actions of SAC, TD3, DDPG and CrossQ on the probes.

The entropy's weight is small and fixed, so that values are those of the rewards.
"""

from typing import Any

import numpy as np
import pytest
import torch

from tests.acting import best
from tests.probe.conftest import Learn, assert_forbidden_actions_do_not_count
from tests.world_models import GAMMA, column

COMMON: dict[str, Any] = {
    "n_envs": 4,
    "n_steps": 100,
    "max_env_steps": 700,
    "hidden_dims": [32],
    "batch_size": 32,
    "buffer_size": 700,
    "learning_starts": 60,
    "train_freq": 8,
    "policy_lr": "lin_0.01",
}
SAC: dict[str, Any] = {"ent_coef": {"start": 0.05, "end": 0.001}, "tau": 0.05}
NOISE: dict[str, Any] = {"tau": 0.05, "exploration_noise": 0.3, "critic_lr": "lin_0.01"}
BOX: dict[str, dict[str, Any]] = {
    "sac": SAC,
    "sac_prioritised_normalised": {
        **SAC,
        "prioritized": True,
        "normalize_obs": "rolling",
        "n_step": 2,
        "policy_delay": 2,
    },
    "sac_auto": {"tau": 0.05, "ent_coef": "auto_0.05", "target_entropy": -3},
    "td3": NOISE,
    "ddpg": NOISE,
    "crossq": {"ent_coef": SAC["ent_coef"], "critic_hidden_dims": [64], "policy_delay": 2},
}
DISCRETE: dict[str, dict[str, Any]] = {
    "sac": SAC,
    "sac_auto_penalty": {
        "tau": 0.05,
        "ent_coef": "auto_0.05",
        "target_entropy_ratio": 0.1,
        "entropy_penalty_coef": 0.1,
    },
    "crossq": BOX["crossq"],
}
ALGOS = BOX | DISCRETE
VALUED = [name for name in BOX if name != "sac_auto"]  # its values hold some entropy


def q(agent: Any, obs: np.ndarray, actions: np.ndarray) -> np.ndarray:
    """The mean of the critics for each row."""
    net = agent.net
    with torch.no_grad():
        x = net.encoder(torch.from_numpy(obs))
        values: np.ndarray = net.critic(x, torch.from_numpy(actions)).mean(0).numpy()
    return values


def q_all(agent: Any, *obs: float) -> np.ndarray:
    """The mean of the critics for each observation (rows) and discrete action (columns)."""
    with torch.no_grad():
        x = agent.net.encoder(torch.from_numpy(column(*obs)))
        values: np.ndarray = agent.net.critic(x).mean(0).numpy()
    return values


@pytest.mark.parametrize("name", VALUED)
def test_a_later_reward_is_discounted_once(name: str, learn: Learn) -> None:
    agent = learn(name, "TwoStepDiscountContinuous")
    obs = column(0, 1)
    np.testing.assert_allclose(q(agent, obs, best(agent.policy, obs)), [GAMMA, 1], atol=0.15)


@pytest.mark.parametrize("name", VALUED)
def test_a_truncation_is_bootstrapped(name: str, learn: Learn) -> None:
    """Taken for a termination the value would be near 2."""
    agent = learn(name, "TruncatedRewardContinuous")
    value = q(agent, column(0), best(agent.policy, column(0)))
    assert value[0] == pytest.approx(1 / (1 - GAMMA), abs=0.5)


@pytest.mark.parametrize("name", BOX)
def test_the_best_continuous_action_is_found(name: str, learn: Learn) -> None:
    agent = learn(name, "ActionRewardContinuous", max_env_steps=1_000)
    assert agent.act(column(0))[0, 0] == pytest.approx(0.5, abs=0.15)
    actions = column(-0.5, 0, 0.5)
    values = q(agent, column(0, 0, 0), actions)
    np.testing.assert_allclose(values[1:], -((actions[1:, 0] - 0.5) ** 2), atol=0.2)


@pytest.mark.parametrize("name", BOX)
def test_the_continuous_policy_sees_the_observation(name: str, learn: Learn) -> None:
    agent = learn(name, "ObsActionRewardContinuous", max_env_steps=1_000)
    assert agent.act(column(-1, 1))[:, 0] == pytest.approx([-0.5, 0.5], abs=0.2)


# -- discrete actions -----------------------------------------------------------------------


@pytest.mark.parametrize("name", DISCRETE)
def test_discrete_values(name: str, learn: Learn) -> None:
    agent = learn(name, "TwoStepDiscount")
    np.testing.assert_allclose(q_all(agent, 0, 1), [[GAMMA, GAMMA], [1.0, 1.0]], atol=0.15)
    agent = learn(name, "TruncatedReward")
    assert q_all(agent, 0).max() == pytest.approx(1 / (1 - GAMMA), abs=0.5)


@pytest.mark.parametrize("name", DISCRETE)
def test_the_discrete_policy_sees_the_observation(name: str, learn: Learn) -> None:
    agent = learn(name, "ObsActionReward")
    np.testing.assert_allclose(q_all(agent, -1, 1), [[1, -1], [-1, 1]], atol=0.3)
    assert agent.act(column(-1, 1)).tolist() == [0, 1]


@pytest.mark.parametrize("name", DISCRETE)
def test_forbidden_actions_are_neither_taken_nor_bootstrapped_from(name: str, learn: Learn) -> None:
    agent = learn(name, "Masked", max_env_steps=1_500)
    assert_forbidden_actions_do_not_count(agent, q_all(agent, -1, 0, 1), atol=0.8)
