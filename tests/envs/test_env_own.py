"""Bandits, memory tasks and probes pay and end as their documentation says."""

from typing import Any

import numpy as np
import pytest

from gymnasium_solver.envs.journal import JournaledEnv
from gymnasium_solver.envs.make import make_vector_env
from gymnasium_solver.envs.random_steps import RandomPolicy
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


BANDIT, COUNTS = "Bandit-v0", "Probe/Counting-v0"
CARDS, FIRST = "Memory/RepeatPreviousEasy-v0", "Memory/RepeatFirstEasy-v0"


@pytest.mark.parametrize(
    ("env_id", "kwargs", "message"),
    [
        (BANDIT, {"arms": 3}, "unknown env_kwargs key 'arms'. It takes: n_arms, means, stds"),
        (BANDIT, {"n_arms": 1}, "n_arms must be an int >= 2, got 1"),
        (BANDIT, {"n_arms": 3, "means": [0, 1]}, "means must be 3 finite numbers"),
        (BANDIT, {"means": ["a", "b"]}, "means must be numbers"),
        (BANDIT, {"means": [0, float("nan")]}, "means must be 2 finite numbers"),
        (BANDIT, {"stds": [0.1, 0.2]}, "stds must be 10 finite numbers"),
        (BANDIT, {"stds": -1}, "stds must not be negative"),
        (BANDIT, {"episode_length": 0}, "episode_length must be an int >= 1, got 0"),
        (COUNTS, {"length": 0}, "length must be an int >= 1"),
        (COUNTS, {"ends": "never"}, "ends must be one of terminated, truncated, both, alternate"),
        (COUNTS, {"size": 1}, "unknown env_kwargs key 'size'. It takes: length, ends"),
        ("Memory/RepeatPrevius-v0", {}, "Unknown environment.*RepeatPreviousEasy-v0"),
        (FIRST, {"k": 3}, "unknown env_kwargs key 'k'"),
        (CARDS, {"k": 52}, "k 52 must be below the number of cards, 52"),
        (CARDS, {"decks": 0}, "decks must be an int >= 1, got 0"),
    ],
)
def test_bad_kwargs_are_refused(env_id, kwargs, message):
    with pytest.raises(EnvError, match=message):
        make_vector_env(env_id, 2, env_kwargs=kwargs)


REWARDS = {
    "ConstantReward": lambda obs, a: np.ones(len(obs)),
    "ObsDependentReward": lambda obs, a: obs,
    "TwoStepDiscount": lambda obs, a: obs,
    "TruncatedReward": lambda obs, a: np.ones(len(obs)),
    "ActionReward": lambda obs, a: a * 2 - 1,
    "ObsActionReward": lambda obs, a: np.where((a == 1) == (obs > 0), 1, -1),
    "ActionRewardContinuous": lambda obs, a: -((a[:, 0] - 0.5) ** 2),
    "ObsActionRewardContinuous": lambda obs, a: -((a[:, 0] - obs / 2) ** 2),
}


@pytest.mark.parametrize("name", REWARDS)
def test_probes_pay_show_and_end_as_they_say(name, record):
    rollout = record(make_vector_env(f"Probe/{name}-v0", 16), 0, 40)
    real = ~rollout.is_reset
    obs, done = rollout.obs[real][:, 0], rollout.done
    expected = REWARDS[name](obs, rollout.actions[real])
    np.testing.assert_allclose(rollout.reward[real], expected, rtol=1e-6)
    shown = {-1.0, 1.0} if name.startswith("Obs") else {0.0}
    assert set(obs) == ({0.0, 1.0} if name == "TwoStepDiscount" else shown)
    length = {"TwoStepDiscount": 2, "TruncatedReward": 4}.get(name, 1)
    assert set(rollout.lengths[done]) == {length}
    assert np.array_equal(done, rollout.truncated if length == 4 else rollout.terminated)
    assert not (rollout.terminated & rollout.truncated).any()
    if name == "TwoStepDiscount":
        assert np.array_equal(rollout.terminated[real], obs == 1)
        assert (rollout.next_obs[rollout.is_reset] == 0).all()


def test_counting_alternates(record):
    kwargs = {"ends": "alternate", "length": 2}
    rollout = record(make_vector_env("Probe/Counting-v0", 2, env_kwargs=kwargs), 0, 40)
    even = rollout.next_obs[..., 0] % 2 == 0
    assert np.array_equal(rollout.terminated, rollout.done & even)
    assert np.array_equal(rollout.truncated, rollout.done & ~even)
    assert rollout.truncated.any()


# -- memory tasks ---------------------------------------------------------------------------------


def play_cards(env: Any, k: int | None, n_rows: int) -> list[float]:
    """Returns of an agent that remembers every card of its episode."""
    obs = env.reset(3)
    seen: list[list[int]] = [[int(suit)] for suit in obs.argmax(1)]
    returns: list[float] = []
    for _ in range(n_rows):
        asked = [cards[0] if k is None else cards[max(-k - 1, -len(cards))] for cards in seen]
        step = env.step(np.array(asked))
        returns += step.episode_return[step.is_over].tolist()
        for i, suit in enumerate(step.obs.argmax(1)):
            seen[i] = [int(suit)] if step.is_reset[i] else [*seen[i], int(suit)]
    return returns


@pytest.mark.parametrize(
    ("name", "kwargs", "k", "length"),
    [
        ("RepeatPreviousEasy", {}, 4, 52),
        ("RepeatPreviousMedium", {"decks": 1}, 32, 52),
        ("RepeatPreviousHard", {"k": 2}, 2, 156),
        ("RepeatFirstEasy", {}, None, 52),
    ],
)
def test_perfect_memory_scores_one(name: str, kwargs: Any, k: int | None, length: int) -> None:
    env = make_vector_env(f"Memory/{name}-v0", 3, env_kwargs=kwargs)
    assert env.spec.suite == "memory"
    assert env.spec.reward_threshold == 0.95
    returns = play_cards(env, k, 2 * length + 2)
    assert len(returns) == 6
    np.testing.assert_allclose(returns, 1.0, rtol=1e-5)


def test_random_answers_score_minus_one_half() -> None:
    env = JournaledEnv(make_vector_env("Memory/RepeatPreviousEasy-v0", 40))
    policy = RandomPolicy(env.action_space, 40, 1)
    obs = env.reset(1)
    counts, returns = np.zeros(4), []
    for _ in range(110):
        counts += obs.sum(0)
        step = env.step(policy.act())
        obs = step.obs
        returns += step.episode_return[step.is_over].tolist()
    assert np.mean(returns) == pytest.approx(-0.5, abs=0.06)
    np.testing.assert_allclose(counts / counts.sum(), 0.25, atol=0.02)
    restored = JournaledEnv(make_vector_env("Memory/RepeatPreviousEasy-v0", 40))
    np.testing.assert_array_equal(restored.restore(env.state()), obs)


# -- probes in parts: the known best play scores 1 ------------------------------------------------


def best(name: str, obs: Any, cue: np.ndarray, legal: Any) -> np.ndarray:
    """The best actions at these observations; `cue` is the first observation of each episode."""
    if name == "Memory":
        return (cue > 0).astype(np.int64)
    if name == "MemoryParts":
        return np.where(legal[:, 2], 2, cue > 0).astype(np.int64)
    if name == "DictObs":
        return (obs["signal"][:, 0] > 0).astype(np.int64)
    up = obs[:, 0] > 0
    if name == "MultiDiscrete":
        return np.stack([up, 2 * up], axis=1).astype(np.int64)
    if name == "MultiBinary":
        return np.stack([up, ~up, np.ones_like(up)], axis=1).astype(np.int64)
    return np.stack([up, obs[:, 0] / 2], axis=1).astype(np.float64)


@pytest.mark.parametrize(
    "name", ["Memory", "MemoryParts", "DictObs", "MultiDiscrete", "MultiBinary", "DictAction"]
)
def test_the_best_play_scores_one(name: str) -> None:
    env = make_vector_env(f"Probe/{name}-v0", 8)
    obs = env.reset(1)
    cue = np.zeros(8)
    first = np.ones(8, bool)
    returns = []
    for _ in range(60):
        if name.startswith("Memory"):
            seen = obs[:, 0] if name == "Memory" else obs["cue"][:, 0]
            cue = np.where(first, seen, cue)
            assert ((seen == 0) | first).all()
        step = env.step(best(name, obs, cue, env.action_mask))
        obs, first = step.obs, step.is_reset
        returns += step.episode_return[step.is_over].tolist()
        assert all(env.observation_space.contains(row) for row in rows_of(obs))
    np.testing.assert_allclose(returns, 1.0, rtol=1e-6)


@pytest.mark.parametrize("name", ["Memory", "DictObs", "DictAction"])
def test_random_play_scores_less_and_is_journaled(name: str) -> None:
    env = JournaledEnv(make_vector_env(f"Probe/{name}-v0", 8))
    policy = RandomPolicy(env.action_space, 8, 1)
    env.reset(1)
    returns = []
    for _ in range(200):
        step = env.step(policy.act())
        returns += step.episode_return[step.is_over].tolist()
    assert np.mean(returns) < 0.3
    state = env.state()
    again = JournaledEnv(make_vector_env(f"Probe/{name}-v0", 8))
    restored = again.restore(state)
    assert repr(restored) == repr(step.obs)
    if name == "DictObs":
        state["obs"]["noise"] = state["obs"]["noise"] + 1
        with pytest.raises(Exception, match="obs differs"):
            again.restore(state)


def rows_of(obs: Any) -> list[Any]:
    if isinstance(obs, dict):
        return [{name: part[i] for name, part in obs.items()} for i in range(8)]
    return list(obs)
