"""Probe environments for TD-MPC2: rewards, values, terminations and plans with one right answer,
learnt from random steps."""

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from tests.world_models import GAMMA, column, learn, probed

SETTINGS: dict[str, Any] = {
    "algo_id": "tdmpc2", "seed": 1, "n_envs": 4, "n_steps": 100, "max_env_steps": 1000,
    "buffer_size": 1000, "batch_size": 32, "learning_starts": 10, "gamma": GAMMA, "tau": 0.3,
    "enc_dim": 16, "mlp_dim": 32, "latent_dim": 16, "n_critics": 2, "n_samples": 64,
    "n_policy_samples": 4, "n_elites": 8, "plan_iterations": 4, "plan_horizon": 2, "compile": False,
}  # fmt: skip


def agent_for(probe: str, **more: Any) -> tuple[Any, Any]:
    """An agent, and random steps of a probe."""
    return probed(probe, {**SETTINGS, **more})


def remember(agent: Any, rollout: Any) -> None:
    agent.remember(rollout)
    agent.before_rollout(1000, 1000)


@torch.no_grad()
def q(agent: Any, obs: np.ndarray, actions: Tensor) -> np.ndarray:
    net = agent.net
    pick = torch.ones(len(obs), net.n_critics)
    value: np.ndarray = net.value(net.encode(torch.from_numpy(obs)), actions, pick).numpy()
    return value


def planned(agent: Any, obs: np.ndarray) -> np.ndarray:
    """The mean of the plan's first actions."""
    n = len(obs)
    found = agent.policy.outlook(obs, agent.policy.initial_carry(n), np.ones(n, bool), None)
    mean: np.ndarray = found.mean[:, 0]
    return mean


def three_rooms(rollout: Any) -> Any:
    """Rooms 0, 1, 2: the step into room 2 pays 1 and ends the episode. A termination is predicted
    from the state that it leads to, so that one has to look different."""
    rows = len(rollout.valid) // 3 * 3
    for start in range(0, rows, 3):
        for offset in range(3):
            rollout.obs[start + offset] = offset
    index = np.arange(len(rollout.valid)) % 3
    rollout.valid[...] = (index != 2)[:, None]
    rollout.terminated[...] = (index == 1)[:, None]
    rollout.reward[...] = (index == 1)[:, None]
    rollout.is_first[: len(index)] = (index == 0)[:, None]
    return rollout


def test_rewards_values_and_terminations_are_learnt() -> None:
    agent, rollout = agent_for("TwoStepDiscountContinuous")
    remember(agent, three_rooms(rollout))
    learn(agent, 400)
    obs, zeros = column(0, 1), torch.zeros(2, 1)
    np.testing.assert_allclose(q(agent, obs, zeros), [GAMMA, 1], atol=0.1)
    with torch.no_grad():
        z = agent.net.encode(torch.from_numpy(obs))
        reward, ends = agent.net.reward(z, zeros), agent.net.end_logits(agent.net.next(z, zeros))
    np.testing.assert_allclose(reward.numpy(), [0, 1], atol=0.1)
    assert [bool(end > 0) for end in ends] == [False, True]
    # A plan counts the reward once, and nothing after the end.
    outlook = agent.policy.outlook(obs, agent.policy.initial_carry(2), np.ones(2, bool), None)
    np.testing.assert_allclose(outlook.value, [GAMMA, 1], atol=0.1)


def test_a_truncation_is_bootstrapped() -> None:
    """Taken for a termination the value would be near 2."""
    agent, rollout = agent_for("TruncatedRewardContinuous", episodic=False)
    remember(agent, rollout)
    learn(agent, 400)
    assert q(agent, column(0), torch.zeros(1, 1))[0] == pytest.approx(1 / (1 - GAMMA), abs=0.5)


def test_the_best_action_is_planned_and_proposed() -> None:
    agent, rollout = agent_for("ObsActionRewardContinuous")
    remember(agent, rollout)
    learn(agent, 400)
    obs = column(-1, 1)
    assert planned(agent, obs) == pytest.approx([-0.5, 0.5], abs=0.2)
    with torch.no_grad():
        proposed = agent.net.prior_mean(torch.from_numpy(obs))[:, 0].tolist()
    assert proposed == pytest.approx([-0.5, 0.5], abs=0.3)
    assert agent.act(obs)[:, 0] == pytest.approx([-0.5, 0.5], abs=0.35)
