"""Wrappers: what they change, what they leave alone, and what they refuse."""

from typing import Any

import gymnasium
import numpy as np
import pytest

from gymnasium_solver.envs.make import make_vector_env
from gymnasium_solver.envs.vector import VectorWrapper
from gymnasium_solver.envs.wrappers import register_wrapper, wrapper_names
from gymnasium_solver.errors import EnvError


def test_names():
    shipped = {"DiscreteEncoder", "TimeLimit", "RewardScale", "RewardClip"}
    assert shipped | {"CartPoleV1_RewardShaper"} <= set(wrapper_names())
    assert wrapper_names() == sorted(wrapper_names())


@pytest.mark.parametrize(
    ("encoding", "width", "of_14"),
    [
        ("array", 1, [14]),
        ("binary", 4, [1, 1, 1, 0]),
        ("onehot", 16, [0] * 14 + [1, 0]),
    ],
)
def test_discrete_encoder(encoding, width, of_14, record):
    plain = make_vector_env("FrozenLake-v1", 8)
    wrappers = [{"id": "DiscreteEncoder", "encoding": encoding}]
    env = make_vector_env("FrozenLake-v1", 8, env_wrappers=wrappers)
    assert env.observation_space.shape == (width,)
    assert env.observation_space.dtype == np.float32
    raw, encoded = record(plain, 0, 200), record(env, 0, 200)
    assert encoded.obs.dtype == np.float32
    assert encoded.obs.shape == (200, 8, width)
    assert all(env.observation_space.contains(obs) for obs in encoded.next_obs.reshape(-1, width))
    assert (encoded.obs[raw.obs == 14] == of_14).all()
    assert (raw.obs == 14).any()
    values = np.unique(raw.obs)
    assert len(np.unique(encoded.obs.reshape(-1, width), axis=0)) == len(values)
    assert np.array_equal(raw.reward, encoded.reward)


def test_discrete_encoder_refuses_what_it_cannot_encode():
    with pytest.raises(EnvError, match="needs Discrete observations; CartPole-v1 has Box"):
        make_vector_env("CartPole-v1", 2, env_wrappers=[{"id": "DiscreteEncoder"}])
    wrappers = [{"id": "DiscreteEncoder", "encoding": "hex"}]
    with pytest.raises(EnvError, match="one of 'array', 'binary', 'onehot', got 'hex'"):
        make_vector_env("FrozenLake-v1", 2, env_wrappers=wrappers)


def test_reward_scale_leaves_the_score_alone(record):
    wrappers = [{"id": "RewardScale", "scale": 0.1}]
    env = make_vector_env("CartPole-v1", 4, env_wrappers=wrappers)
    rollout = record(env, 0, 100)
    assert rollout.reward.dtype == np.float32
    np.testing.assert_allclose(rollout.reward, np.where(rollout.is_reset, 0, 0.1), rtol=1e-6)
    assert np.array_equal(rollout.returns, rollout.lengths)


def test_reward_clip_keeps_reset_rows_at_zero(record):
    wrappers = [{"id": "RewardClip", "low": 2, "high": 3}]
    rollout = record(make_vector_env("CartPole-v1", 4, env_wrappers=wrappers), 0, 100)
    assert rollout.is_reset.any()
    assert np.array_equal(rollout.reward, np.where(rollout.is_reset, 0, 2).astype(np.float32))
    assert np.array_equal(rollout.returns, rollout.lengths)


def test_wrappers_nest_innermost_first(record):
    scale, clip = {"id": "RewardScale", "scale": 10}, {"id": "RewardClip", "low": 0, "high": 4}
    for wrappers, expected in (([scale, clip], 4.0), ([clip, scale], 10.0)):
        env = make_vector_env("CartPole-v1", 2, env_wrappers=wrappers)
        assert record(env, 0, 3).reward.tolist() == [[expected] * 2] * 3


def test_time_limit_is_lowered_into_the_engine(record):
    for given, override, holds in ((9, None, 9), (9, 5, 5), (5, 9, 5)):
        env = make_vector_env(
            "CartPole-v1",
            4,
            env_wrappers=[{"id": "TimeLimit", "max_episode_steps": given}],
            max_episode_steps=override,
        )
        assert env.spec.max_episode_steps == holds
        assert record(env, 0, 60).lengths.max() == holds


def test_cartpole_shaper_is_a_potential_and_never_crosses_a_reset(record):
    wrappers = [{"id": "CartPoleV1_RewardShaper", "angle_reward_scale": 2.0}]
    kwargs: dict[str, Any] = {"max_episode_steps": 15, "vectorization_mode": "envpool"}
    plain = record(make_vector_env("CartPole-v1", 8, **kwargs), 0, 150)
    shaped = record(make_vector_env("CartPole-v1", 8, env_wrappers=wrappers, **kwargs), 0, 150)
    assert np.array_equal(plain.next_obs, shaped.next_obs)
    assert np.array_equal(plain.returns, shaped.returns)  # the score is the raw one
    assert (shaped.reward[shaped.is_reset] == 0).all()

    def potential(obs: np.ndarray) -> np.ndarray:
        upright = np.maximum(1 - np.abs(obs[..., 2]) / np.deg2rad(12), 0)
        return 2.0 * upright + 0.25 * np.maximum(1 - np.abs(obs[..., 0]) / 2.4, 0)

    after = np.where(shaped.terminated, 0, potential(shaped.next_obs))
    expected = np.where(shaped.is_reset, 0, 0.99 * after - potential(shaped.obs))
    np.testing.assert_allclose(shaped.reward - plain.reward, expected, atol=1e-5)
    added = np.stack([step.info["shaping_reward"] for step in shaped.steps])
    np.testing.assert_allclose(added, expected, atol=1e-5)
    assert shaped.terminated.any()
    assert (shaped.truncated & ~shaped.terminated).any()


def test_cartpole_shaper_is_for_cartpole():
    with pytest.raises(EnvError, match="is for CartPole, not Acrobot-v1"):
        make_vector_env("Acrobot-v1", 2, env_wrappers=[{"id": "CartPoleV1_RewardShaper"}])


@pytest.mark.parametrize(
    ("wrapper", "message"),
    [
        ({"id": "RewardScales"}, "Unknown env wrapper 'RewardScales'. Did you mean RewardScale"),
        ({"id": "Zzz"}, "Unknown env wrapper 'Zzz'. Known: .*DiscreteEncoder"),
        ({"scale": 1}, "Unknown env wrapper None"),
        ({"id": "RewardScale"}, "missing a required argument: 'scale'. It takes: scale"),
        ({"id": "RewardClip", "min": 1}, "unknown option 'min'. It takes: low, high"),
        ({"id": "RewardScale", "scal": 1}, "unknown option 'scal'. Did you mean scale"),
        ({"id": "RewardScale", "scale": "big"}, "scale must be a number, got 'big'"),
        ({"id": "RewardScale", "scale": float("nan")}, "scale must be a number, got nan"),
        ({"id": "RewardClip", "low": 2, "high": 1}, "low 2 is above high 1"),
        ({"id": "TimeLimit"}, "TimeLimit: missing a required argument: 'max_episode_steps'"),
        ({"id": "TimeLimit", "steps": 3}, "TimeLimit: unknown option 'steps'"),
        ({"id": "TimeLimit", "max_episode_steps": "9"}, "must be a whole number, got '9'"),
    ],
)
def test_bad_wrappers_are_explained(wrapper, message):
    with pytest.raises(EnvError, match=message):
        make_vector_env("CartPole-v1", 2, env_wrappers=[wrapper])


def test_a_wrapper_of_ones_own(record):
    @register_wrapper("TestHalfReward")
    class HalfReward(VectorWrapper):
        def step(self, actions):
            step = self.env.step(actions)
            return step._replace(reward=step.reward / 2)

    assert "TestHalfReward" in wrapper_names()
    env = make_vector_env("CartPole-v1", 2, env_wrappers=[{"id": "TestHalfReward"}])
    assert record(env, 0, 2).reward.tolist() == [[0.5, 0.5]] * 2
    assert isinstance(env.action_space, gymnasium.spaces.Discrete)
    for taken in ("RewardScale", "TimeLimit", "TestHalfReward"):
        with pytest.raises(EnvError, match="exists already"):
            register_wrapper(taken)(type("Other", (VectorWrapper,), {}))
