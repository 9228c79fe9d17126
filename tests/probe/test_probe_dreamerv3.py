"""Probe environments for DreamerV3: rewards, continuation, values and actions with one answer,
learnt from random steps."""

from typing import Any

import numpy as np
import pytest
import torch

from gymnasium_solver.envs.journal import JournaledEnv
from gymnasium_solver.envs.make import training_env
from gymnasium_solver.training.agents import build_agent
from gymnasium_solver.training.collect import Collector
from gymnasium_solver.training.prepare import build_config

GAMMA = 0.8
SETTINGS: dict[str, Any] = {
    "algo_id": "dreamerv3", "seed": 1, "n_envs": 4, "n_steps": 60, "max_env_steps": 1000,
    "buffer_size": 1000, "batch_size": 8, "sequence_length": 6, "learning_starts": 10,
    "gamma": GAMMA, "tau": 0.1, "deter_dim": 16, "core_dim": 16, "n_latents": 4, "n_classes": 4,
    "units": 32, "n_blocks": 4, "n_atoms": 41, "imagination_steps": 5, "compile": False,
}  # fmt: skip


def agent_for(probe: str, **more: Any) -> tuple[Any, Any]:
    """An agent, and random steps of a probe."""
    config = build_config({"env_id": f"Probe/{probe}-v0", **SETTINGS, **more})
    env = training_env(config)
    agent: Any = build_agent(config, env.observation_space, env.action_space)
    agent.policy.is_random = True
    rollout = Collector(JournaledEnv(env), agent.policy, 60, 1, 10**6).collect(0, None, 60)
    env.close()
    agent.policy.is_random = False
    return agent, rollout


def learn(agent: Any, rollout: Any, n_updates: int, rate: float = 5e-3) -> None:
    """Updates on these steps, at a falling learning rate."""
    agent.remember(rollout)
    for lr in np.linspace(rate, 0.1 * rate, 8):
        numbers = {"policy_lr": float(lr), "ent_coef": 3e-3}
        metrics = agent.program(agent.samples(n_updates // 8, {}), numbers)
        assert all(np.isfinite(float(value)) for value in metrics.values())


def column(*values: float) -> np.ndarray:
    return np.array(values, np.float32)[:, None]


@torch.no_grad()
def states(agent: Any, *rows: np.ndarray) -> list[torch.Tensor]:
    """The model's states after these observations, one after the other, of an episode's start. The
    last actions are zeros."""
    net, found = agent.net, []
    core = torch.zeros(len(rows[0]), net.core_width)
    for t, obs in enumerate(rows):
        first = torch.full((len(obs),), t == 0)
        state = net.advance(torch.from_numpy(obs), core, first, None)
        core = torch.cat([state, torch.zeros(len(obs), core.shape[1] - state.shape[1])], 1)
        found.append(state)
    return found


def test_rewards_values_and_continuation_are_learnt() -> None:
    """Rooms 0 and 1; the step out of room 1 pays 1 and ends the episode. It is seen at the final
    observation, from where nothing follows."""
    agent, rollout = agent_for("TwoStepDiscount")
    learn(agent, rollout, 240)
    at_0, at_1 = states(agent, column(0), column(1))
    final = rollout.obs[1:][rollout.terminated][:1]
    (*_, at_end) = states(agent, column(0), column(1), final)
    net = agent.net
    with torch.no_grad():
        values = [net.values(state).item() for state in (at_0, at_1)]
        rewards = [net.rewards(state).item() for state in (at_0, at_1, at_end)]
        goes_on = [net.continues(state).item() for state in (at_0, at_1, at_end)]
    assert values == pytest.approx([GAMMA, 1.0], abs=0.15)
    assert rewards == pytest.approx([0.0, 0.0, 1.0], abs=0.15)
    assert goes_on == pytest.approx([GAMMA, GAMMA, 0.0], abs=0.1)


def test_a_truncation_is_bootstrapped() -> None:
    """Taken for a termination the value would be near 2."""
    agent, rollout = agent_for("TruncatedReward")
    learn(agent, rollout, 240)
    (state,) = states(agent, column(0))
    with torch.no_grad():
        assert agent.net.values(state).item() == pytest.approx(1 / (1 - GAMMA), abs=0.8)


def test_the_best_action_is_learnt() -> None:
    agent, rollout = agent_for("ActionReward", free_nats=0.0)
    learn(agent, rollout, 160, rate=8e-3)
    found = agent.policy.outlook(
        column(0), agent.policy.initial_carry(1), np.ones(1, bool), None
    ).probabilities
    assert found[0, 1] > 0.9
    (state,) = states(agent, column(0))
    with torch.no_grad():
        after = agent.net.rssm.imagine(state.expand(2, -1), torch.eye(2), None)
        assert agent.net.rewards(after).tolist() == pytest.approx([-1.0, 1.0], abs=0.3)
