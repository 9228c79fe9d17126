"""Probe environments: each has one right answer, and the trained network must give it.

A probe that fails tells which part is wrong: the value loss, the observation's way into the
network, discounting, bootstrapping, the policy gradient, or the action map.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from gymnasium_solver.training.agents import load_agent
from gymnasium_solver.training.loop import train
from gymnasium_solver.training.prepare import build_config

GAMMA = 0.8
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

Learn = Callable[..., Any]


@pytest.fixture
def learn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Learn:
    """learn(algo, probe): the trained agent."""
    monkeypatch.chdir(tmp_path)

    def run(algo: str, probe: str, **fields: Any) -> Any:
        common = {
            "env_id": f"Probe/{probe}-v0",
            "algo_id": algo.split("_")[0],
            "seed": 1,
            "n_envs": 8,
            "n_steps": 16,
            "hidden_dims": [16],
            "gamma": GAMMA,
            "eval_freq_epochs": None,
            "max_env_steps": 3_000,
        }
        config = build_config({**common, **ALGOS[algo], **fields})
        return load_agent(train(config, runs_root=Path("runs")).id, "runs")

    return run


def value(agent: Any, *obs: float) -> list[float]:
    """What the critic makes of these observations."""
    x = torch.tensor(obs, dtype=torch.float32)[:, None]
    with torch.no_grad():
        values: list[float] = agent.net(x)[1].tolist()
    return values


def greedy(agent: Any, *obs: float) -> np.ndarray:
    actions: np.ndarray = agent.act(np.array(obs, np.float32)[:, None])
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
