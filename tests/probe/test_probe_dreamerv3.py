"""Probe environments for DreamerV3: rewards, continuation, values and actions with one answer,
learnt from random steps."""

from typing import Any

import numpy as np
import pytest
import torch

from tests.world_models import GAMMA, column, learn, probed

SETTINGS: dict[str, Any] = {
    "algo_id": "dreamerv3", "seed": 1, "n_envs": 4, "n_steps": 60, "max_env_steps": 1000,
    "buffer_size": 1000, "batch_size": 8, "sequence_length": 6, "learning_starts": 10,
    "gamma": GAMMA, "tau": 0.1, "deter_dim": 16, "core_dim": 16, "n_latents": 4, "n_classes": 4,
    "units": 32, "n_blocks": 4, "n_atoms": 41, "imagination_steps": 5, "compile": False,
}  # fmt: skip


def agent_for(probe: str, **more: Any) -> tuple[Any, Any]:
    """An agent, and random steps of a probe."""
    return probed(probe, {**SETTINGS, **more})


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
    agent.remember(rollout)
    learn(agent, 240, ent_coef=3e-3)
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
    agent.remember(rollout)
    learn(agent, 240, ent_coef=3e-3)
    (state,) = states(agent, column(0))
    with torch.no_grad():
        assert agent.net.values(state).item() == pytest.approx(1 / (1 - GAMMA), abs=0.8)


def test_the_best_action_is_learnt() -> None:
    agent, rollout = agent_for("ActionReward", free_nats=0.0)
    agent.remember(rollout)
    learn(agent, 160, rate=8e-3, ent_coef=3e-3)
    found = agent.policy.outlook(
        column(0), agent.policy.initial_carry(1), np.ones(1, bool), None
    ).probabilities
    assert found[0, 1] > 0.9
    (state,) = states(agent, column(0))
    with torch.no_grad():
        after = agent.net.rssm.imagine(state.expand(2, -1), torch.eye(2), None)
        assert agent.net.rewards(after).tolist() == pytest.approx([-1.0, 1.0], abs=0.3)


def test_the_best_number_is_learnt() -> None:
    """Not a bound, although most of what is above it is as good: the model has to tell small
    numbers from large ones. The learning rate rises, as the actor should not be sure of itself
    before the model is."""
    agent, rollout = agent_for(
        "ActionRewardContinuous", free_nats=0.0, sequence_length=3, batch_size=32, units=64,
        core_dim=32, imagination_steps=1,
    )  # fmt: skip
    rollout.reward *= 10
    agent.remember(rollout)
    learn(agent, 320, rate=1e-3, last=3.0, ent_coef=3e-2)
    first = np.ones(1, bool)
    found = agent.policy.outlook(column(0), agent.policy.initial_carry(1), first, None)
    assert found.mean.item() == pytest.approx(0.5, abs=0.2)
    assert found.std.item() < 0.3
    (state,) = states(agent, column(0))
    with torch.no_grad():
        actions, noise = torch.tensor([[0.0], [0.5], [1.0]]), torch.full((3, 4), 0.5)
        after = agent.net.rssm.imagine(state.expand(3, -1), actions, noise)
        assert agent.net.rewards(after).tolist() == pytest.approx([-2.5, 0.0, -2.5], abs=1.0)


def test_values_of_images_are_learnt_without_a_decoder() -> None:
    """A bright square on the right pays 1, one on the left -1, and the episode ends."""
    settings = {
        "env_kwargs": {"shape": [48, 48, 1]}, "decoder_free": True, "n_envs": 8, "n_steps": 200,
        "buffer_size": 2000, "batch_size": 16, "sequence_length": 3, "deter_dim": 32,
        "core_dim": 32, "n_latents": 8, "cnn_depth": 2, "imagination_steps": 1,
    }  # fmt: skip

    def sides(images: np.ndarray) -> np.ndarray:
        left, right = np.split(images[..., 0].astype(np.float32), 2, axis=-1)
        return np.where(right.sum((-1, -2)) > left.sum((-1, -2)), 1.0, -1.0)

    agent, rollout = agent_for("Image", **settings)
    rollout.reward[...] = sides(rollout.obs[:-1]) * rollout.valid
    agent.remember(rollout)
    (sample,) = agent.samples(1, {})
    hp = {"policy_lr": 4e-3, "ent_coef": 3e-3}
    before = float(agent.program([sample], hp)["opt/loss/reconstruction"])
    learn(agent, 120, rate=4e-3, last=1.0, ent_coef=3e-3)
    assert float(agent.program([sample], hp)["opt/loss/reconstruction"]) < 0.3 * before
    _, other = agent_for("Image", **settings, seed=2)
    images = other.obs[:-1][other.valid][:200]
    (state,) = states(agent, images)
    with torch.no_grad():
        values = agent.net.values(state).numpy()
    assert np.mean(np.sign(values) == sides(images)) > 0.9
    assert np.corrcoef(values, sides(images))[0, 1] > 0.9
