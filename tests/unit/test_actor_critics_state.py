"""SAC, TD3, DDPG and CrossQ: saved and loaded they go on exactly; NaNs are taken back; recorded
gradients are torch's."""

import json
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces

from gymnasium_solver.algos import algo_class
from gymnasium_solver.data.rollout import Rollout
from gymnasium_solver.spaces.actions import action_kind

OBS = spaces.Box(-10, 10, (3,), np.float32)
BOX, DISCRETE = spaces.Box(-2, 2, (2,), np.float32), spaces.Discrete(3)
N_ENVS = 2
PENALTY = {"entropy_penalty_coef": 0.5}
C51 = {"critic_head": "c51", "n_atoms": 7, "v_min": -5.0, "v_max": 5.0}
CASES: dict[str, tuple[str, Any, dict[str, Any]]] = {
    "sac": ("sac", BOX, {"policy_delay": 2, "noise_correlation": 0.9}),
    "sac spectral": ("sac", BOX, {"ent_coef": 0.1, "spectral_norm": True}),
    "sac shared": ("sac", BOX, {"share_encoder": True, "input_dims": [5], "norm": "layer"}),
    "sac batch norm": ("sac", BOX, {"norm": "batch", "unit_norm": True, **C51}),
    "sac sphere": ("sac", BOX, {"block": "simbav2", **C51}),
    "sac discrete": ("sac", DISCRETE, {}),
    "sac discrete penalty": ("sac", DISCRETE, PENALTY),
    "sac masked": ("sac", DISCRETE, PENALTY),
    "td3": ("td3", BOX, {"exploration_noise_type": "ou"}),
    "td3 shared": ("td3", BOX, {"share_encoder": True, "input_dims": [5], "block": "simba"}),
    "ddpg": ("ddpg", BOX, {"critic_head": "two_hot", "norm": "rms"}),
    "crossq": ("crossq", BOX, {"critic_hidden_dims": [7], "renorm_warmup": 10}),
    "crossq discrete": ("crossq", DISCRETE, {"critic_hidden_dims": [7], "renorm_warmup": 10}),
    "crossq symlog": ("crossq", BOX, {"critic_hidden_dims": [7], "critic_head": "symlog"}),
}


def agent_for(case: str, seed: int = 0, **more: Any) -> Any:
    algo_id, space, fields = CASES[case]
    algo = algo_class(algo_id)
    small = {"n_envs": N_ENVS, "hidden_dims": [6], "batch_size": 4, "buffer_size": 200}
    small |= {"learning_starts": 4, "policy_lr": 0.01}
    config = algo.Config(env_id="x", algo_id=algo_id, **{**small, **fields, **more})
    return algo(config, OBS, space, seed=seed)


def rollout_for(case: str, seed: int = 0) -> Rollout:
    rng = np.random.default_rng(seed)
    rollout = Rollout.allocate(6, N_ENVS, OBS, action_kind(CASES[case][1]))
    assert isinstance(rollout.obs, np.ndarray)
    rollout.obs[:] = rng.normal(size=rollout.obs.shape)
    rollout.reward[:] = rng.normal(size=rollout.reward.shape)
    rollout.valid[:] = True
    if CASES[case][1] is DISCRETE:
        rollout.actions[:] = rng.integers(0, 2, rollout.actions.shape)
    else:
        rollout.actions[:] = rng.uniform(-1, 1, rollout.actions.shape)
    if case == "sac masked":
        rollout.mask = np.tile([True, True, False], (7, N_ENVS, 1))
        rollout.mask[::2, 0] = True
    return rollout


def copied(state: tuple[Any, Any]) -> tuple[Any, Any]:
    tensors, extra = state
    saved = {
        file: {name: value.numpy().copy() for name, value in named.items()}
        for file, named in tensors.items()
    }
    return saved, json.loads(json.dumps(extra))


@pytest.mark.sample(3)
@pytest.mark.parametrize("case", CASES)
def test_a_loaded_learner_goes_on_exactly(case: str) -> None:
    fields: dict[str, Any] = {"normalize_obs": "rolling", "normalize_reward": True}
    one, two = agent_for(case, **fields), agent_for(case, seed=99, **fields)
    rollouts = [rollout_for(case, seed=i) for i in range(4)]
    obs = np.random.default_rng(0).normal(size=(N_ENVS, 3)).astype(np.float32)
    one.before_rollout(50, 100)  # two is not told: what it acts by is loaded
    carry = one.policy.initial_carry(N_ENVS)
    two.open_memory(rollouts[0].mask is not None)
    for i, rollout in enumerate(rollouts[:2]):
        carry = one.policy.sample(obs, carry, np.full(N_ENVS, i == 0)).carry
        one.update(rollout, 12, 100)
        two.memory.add(rollout)  # rows are saved by the loop
    two.load_state(*copied(one.state()))
    for rollout in rollouts[2:]:
        acted = [agent.policy.sample(obs, carry, np.zeros(N_ENVS, bool)) for agent in (one, two)]
        np.testing.assert_array_equal(acted[0].actions, acted[1].actions)
        carry = acted[0].carry
        metrics = [agent.update(rollout, 24, 100) for agent in (one, two)]
        assert metrics[0].keys() == metrics[1].keys()
        for name, value in metrics[0].items():
            assert float(value) == float(metrics[1][name]), name
    (ours, _), (theirs, _) = copied(one.state()), copied(two.state())
    assert ours.keys() == theirs.keys()
    for file, named in ours.items():
        for name, value in named.items():
            np.testing.assert_array_equal(value, theirs[file][name], err_msg=f"{file} {name}")


@pytest.mark.sample(3)
@pytest.mark.parametrize("case", CASES)
def test_what_diverged_is_taken_back(case: str) -> None:
    agent = agent_for(case)
    agent.update(rollout_for(case), 12, 100)
    good, snapshot = copied(agent.state())[0], agent.snapshot()
    bad = rollout_for(case, seed=1)
    bad.reward[:] = np.nan
    agent.update(bad, 24, 100)
    assert not all(torch.isfinite(flat).all() for flat in agent.learnt_weights())
    agent.restore(snapshot)
    for file, named in copied(agent.state())[0].items():
        for name, value in named.items():
            np.testing.assert_array_equal(value, good[file][name], err_msg=f"{file} {name}")


@pytest.mark.sample(3)
@pytest.mark.parametrize("case", CASES)
def test_recorded_losses_learn_what_torch_learns(case: str) -> None:
    """A tensor that a loss reads and LossGradient was not told of would leave it to torch."""
    recorded, plain = (agent_for(case, compile=c, optimizer="sgd") for c in (True, False))
    for i in range(3):
        for agent in (recorded, plain):
            agent.update(rollout_for(case, seed=i), 12 * (i + 1), 100)
    for gradient in recorded.gradients.values():
        assert gradient.mode == "recorded"
    for ours, theirs in zip(recorded.learnt_weights(), plain.learnt_weights(), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-3, atol=1e-4)


@pytest.mark.sample(3)
@pytest.mark.parametrize("case", CASES)
def test_the_modes_of_gradients_are_saved_and_resumed(case: str) -> None:
    one, two = agent_for(case), agent_for(case, seed=9)
    one.update(rollout_for(case), 12, 100)
    one.update(rollout_for(case), 24, 100)
    one.gradients["critic"].mode = "torch"  # as if its first batch had tipped on a tie
    tensors, extra = copied(one.state())
    assert extra["gradients"] == {"critic": "torch", "policy": "recorded"}
    two.load_state(tensors, extra)
    two.update(rollout_for(case, seed=1), 36, 100)
    two.update(rollout_for(case, seed=2), 48, 100)
    assert two.gradients["critic"].mode == "torch"
    assert two.gradients["policy"].mode == "recorded"


def test_returns_of_rewards_begin_anew_where_the_envs_were_reset() -> None:
    agent, fresh = (agent_for("td3", normalize_reward=True) for _ in range(2))
    agent.update(rollout_for("td3"), 12, 100)
    assert np.abs(agent.reward_normalizer.running_return).min() > 1e-3
    rollout = rollout_for("td3", seed=1)
    rollout.is_restart = True
    for each in (agent, fresh):
        each.update(rollout, 24, 100)
    np.testing.assert_allclose(
        agent.reward_normalizer.running_return, fresh.reward_normalizer.running_return
    )
