"""Values and policies of PPO, A2C and REINFORCE on the probes."""

from typing import Any

import numpy as np
import pytest
import torch

from tests.probe.conftest import Learn
from tests.world_models import GAMMA, column

COMMON: dict[str, Any] = {"n_steps": 16, "max_env_steps": 3_000}
PPO: dict[str, Any] = {"gae_lambda": 0.9, "batch_size": 64, "n_epochs": 6, "policy_lr": 0.01}
REINFORCE: dict[str, Any] = {"batch_size": 32, "policy_lr": 0.02}
A2C: dict[str, Any] = {"rollout_steps": 4, "policy_lr": 0.02, "max_env_steps": 5_000}
ALGOS: dict[str, dict[str, Any]] = {
    "ppo": PPO,
    "ppo_shared_normalised": {
        **PPO,
        "share_trunk": True,
        "normalize_obs": "rolling",
        "activation": "relu",
    },
    "a2c": A2C,
    "a2c_adam_gae": {
        **A2C,
        "optimizer": "adam",
        "gae_lambda": 0.9,
        "policy_lr": 0.01,
        "share_trunk": True,
    },
    "reinforce": {**REINFORCE, "policy_targets": "advantages"},
    "reinforce_plain": REINFORCE,
}
WITH_CRITIC = [name for name in ALGOS if name != "reinforce_plain"]
BOOTSTRAPS = [name for name in ALGOS if name.startswith(("ppo", "a2c"))]


def value(agent: Any, *obs: float) -> list[float]:
    """What the critic makes of these observations."""
    with torch.no_grad():
        values: list[float] = agent.net(torch.from_numpy(column(*obs)))[1].tolist()
    return values


def greedy(agent: Any, *obs: float) -> np.ndarray:
    actions: np.ndarray = agent.act(column(*obs))
    return actions


@pytest.mark.parametrize("algo", WITH_CRITIC)
def test_a_constant_is_learnt(algo: str, learn: Learn) -> None:
    assert value(learn(algo, "ConstantReward"), 0) == pytest.approx([1], abs=0.1)


@pytest.mark.parametrize("algo", WITH_CRITIC)
def test_the_value_sees_the_observation(algo: str, learn: Learn) -> None:
    assert value(learn(algo, "ObsDependentReward"), -1, 1) == pytest.approx([-1, 1], abs=0.1)


@pytest.mark.parametrize("algo", WITH_CRITIC)
def test_a_later_reward_is_discounted_once(algo: str, learn: Learn) -> None:
    # Long rollouts: REINFORCE takes an episode that the rollout cuts for one without reward.
    agent = learn(algo, "TwoStepDiscount", n_steps=64, max_env_steps=6_000)
    assert value(agent, 0, 1) == pytest.approx([GAMMA, 1], abs=0.1)


@pytest.mark.parametrize("algo", BOOTSTRAPS)
def test_a_truncation_is_bootstrapped(algo: str, learn: Learn) -> None:
    """Taken for a termination the value would be near 2; leaking over it, or not bootstrapped
    from the final observation, it would not be the sum of the whole series."""
    agent = learn(algo, "TruncatedReward", max_env_steps=8_000)
    assert value(agent, 0) == pytest.approx([1 / (1 - GAMMA)], abs=0.3)


@pytest.mark.parametrize("algo", ALGOS)
def test_the_better_action_is_found(algo: str, learn: Learn) -> None:
    agent = learn(algo, "ActionReward")
    assert greedy(agent, 0).tolist() == [1]
    if algo in WITH_CRITIC:
        assert value(agent, 0) == pytest.approx([1], abs=0.15)


@pytest.mark.parametrize("algo", ALGOS)
def test_the_policy_sees_the_observation(algo: str, learn: Learn) -> None:
    agent = learn(algo, "ObsActionReward")
    assert greedy(agent, -1, 1).tolist() == [0, 1]
    if algo in WITH_CRITIC:
        assert value(agent, -1, 1) == pytest.approx([1, 1], abs=0.15)


# Exploration begins narrow: with a deviation of 1 on [-1, 1] most draws would be clipped.
NARROW: dict[str, Any] = {"log_std_init": -0.7, "max_env_steps": 4_000}


@pytest.mark.parametrize("algo", ALGOS)
def test_the_best_continuous_action_is_found(algo: str, learn: Learn) -> None:
    agent = learn(algo, "ActionRewardContinuous", **NARROW)
    assert greedy(agent, 0)[:, 0] == pytest.approx([0.5], abs=0.15)
    if algo in WITH_CRITIC:
        assert value(agent, 0) == pytest.approx([0], abs=0.15)


@pytest.mark.parametrize("algo", ALGOS)
def test_the_continuous_policy_sees_the_observation(algo: str, learn: Learn) -> None:
    agent = learn(algo, "ObsActionRewardContinuous", **NARROW)
    assert greedy(agent, -1, 1)[:, 0] == pytest.approx([-0.5, 0.5], abs=0.15)
