"""Bandit-v0 and the probe envs pay and end as their documentation says."""

import numpy as np
import pytest

from gymnasium_solver.envs.make import make_vector_env
from gymnasium_solver.errors import EnvError


def test_bandit_pays_the_arms_means(record):
    env = make_vector_env("Bandit-v0", 50)
    rollout = record(env, 0, 1000)
    real = ~rollout.is_reset
    for arm in range(10):
        paid = rollout.reward[real & (rollout.actions == arm)]
        assert abs(paid.mean() - arm / 9) < 0.01
        assert abs(paid.std() - 0.1) < 0.01
    assert (rollout.lengths[rollout.done] == 10).all()
    assert rollout.terminated.any()
    assert not rollout.truncated.any()
    assert (rollout.obs == 0).all()


def test_bandit_threshold_tells_the_best_arm_from_the_second_best():
    means = {"means": [0.0, 3.0, 5.0], "stds": 0, "episode_length": 4}
    env = make_vector_env("Bandit-v0", 2, env_kwargs=means)
    assert env.spec.reward_threshold == 16.0
    env.reset(0)
    for _ in range(4):
        step = env.step([2, 1])
    assert step.terminated.all()
    assert step.episode_return.tolist() == [20.0, 12.0]


def test_bandit_streams_differ_by_seed_and_env(record):
    env = make_vector_env("Bandit-v0", 4, env_kwargs={"stds": 1.0})
    pull = [np.zeros(4, np.int64)] * 5
    draws = np.concatenate([record(env, seed, 5, actions=pull).reward.ravel() for seed in range(5)])
    assert len(np.unique(draws)) == draws.size


@pytest.mark.parametrize(
    ("kwargs", "message"),
    [
        ({"arms": 3}, "unknown env_kwargs key 'arms'. It takes: n_arms, means, stds"),
        ({"n_arms": 1}, "n_arms must be an int >= 2, got 1"),
        ({"n_arms": 3, "means": [0, 1]}, "means must be 3 finite numbers"),
        ({"means": ["a", "b"]}, "means must be numbers"),
        ({"means": [0, float("nan")]}, "means must be 2 finite numbers"),
        ({"stds": [0.1, 0.2]}, "stds must be 10 finite numbers"),
        ({"stds": -1}, "stds must not be negative"),
        ({"episode_length": 0}, "episode_length must be an int >= 1, got 0"),
    ],
)
def test_bandit_refuses_bad_kwargs(kwargs, message):
    with pytest.raises(EnvError, match=message):
        make_vector_env("Bandit-v0", 2, env_kwargs=kwargs)


def probe(name, record, n_steps=40):
    return record(make_vector_env(f"Probe/{name}-v0", 16), 0, n_steps)


def test_constant_reward(record):
    rollout = probe("ConstantReward", record)
    assert (rollout.obs == 0).all()
    assert (rollout.reward[~rollout.is_reset] == 1).all()
    assert np.array_equal(rollout.terminated, ~rollout.is_reset)


def test_obs_dependent_reward(record):
    rollout = probe("ObsDependentReward", record)
    assert set(np.unique(rollout.obs)) == {-1.0, 1.0}
    real = ~rollout.is_reset
    assert np.array_equal(rollout.reward[real], rollout.obs[real][:, 0])


def test_two_step_discount(record):
    rollout = probe("TwoStepDiscount", record)
    real = ~rollout.is_reset
    assert np.array_equal(rollout.reward[real], rollout.obs[real][:, 0])
    assert np.array_equal(rollout.terminated[real], rollout.obs[real][:, 0] == 1)
    assert set(rollout.lengths[rollout.done]) == {2}
    assert (rollout.next_obs[rollout.is_reset] == 0).all()


def test_truncated_reward(record):
    rollout = probe("TruncatedReward", record)
    assert (rollout.obs == 0).all()
    assert not rollout.terminated.any()
    assert set(rollout.lengths[rollout.truncated]) == {4}
    assert (rollout.reward[~rollout.is_reset] == 1).all()


def test_action_rewards(record):
    rollout = probe("ActionReward", record)
    real = ~rollout.is_reset
    assert np.array_equal(rollout.reward[real], rollout.actions[real] * 2 - 1)
    rollout = probe("ObsActionReward", record)
    real = ~rollout.is_reset
    right = (rollout.actions[real] == 1) == (rollout.obs[real][:, 0] > 0)
    assert np.array_equal(rollout.reward[real], np.where(right, 1, -1))


def test_continuous_action_rewards(record):
    rollout = probe("ActionRewardContinuous", record)
    real = ~rollout.is_reset
    expected = -((rollout.actions[real][:, 0] - 0.5) ** 2)
    np.testing.assert_allclose(rollout.reward[real], expected, rtol=1e-6)
    rollout = probe("ObsActionRewardContinuous", record)
    real = ~rollout.is_reset
    expected = -((rollout.actions[real][:, 0] - rollout.obs[real][:, 0] / 2) ** 2)
    np.testing.assert_allclose(rollout.reward[real], expected, rtol=1e-6)


def test_counting_alternates(record):
    kwargs = {"ends": "alternate", "length": 2}
    rollout = record(make_vector_env("Probe/Counting-v0", 2, env_kwargs=kwargs), 0, 40)
    even = rollout.next_obs[..., 0] % 2 == 0
    assert np.array_equal(rollout.terminated, rollout.done & even)
    assert np.array_equal(rollout.truncated, rollout.done & ~even)
    assert rollout.truncated.any()


@pytest.mark.parametrize(
    ("kwargs", "message"),
    [
        ({"length": 0}, "length must be an int >= 1"),
        ({"ends": "never"}, "ends must be one of terminated, truncated, both, alternate"),
        ({"size": 1}, "unknown env_kwargs key 'size'. It takes: length, ends"),
    ],
)
def test_counting_refuses_bad_kwargs(kwargs, message):
    with pytest.raises(EnvError, match=message):
        make_vector_env("Probe/Counting-v0", 2, env_kwargs=kwargs)
