"""Exploration noise that lasts: its statistics, its start at each episode, its carry, its state."""

import itertools
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

from gymnasium_solver.algos import algo_class
from gymnasium_solver.envs.journal import JournaledEnv
from gymnasium_solver.envs.make import make_vector_env
from gymnasium_solver.policies.noise import Noise
from gymnasium_solver.policies.policy import Acted
from gymnasium_solver.training.collect import Collector
from tests.acting import small_agent

OBS, BOX = spaces.Box(-1, 1, (3,), np.float32), spaces.Box(-2, 2, (2,), np.float32)


def test_noise_keeps_its_share_and_starts_anew_with_an_episode() -> None:
    noise, rng = Noise(2, 0.85), np.random.default_rng(0)
    fresh_rng = np.random.default_rng(0)
    carry, last = noise.initial(3), np.zeros((3, 2), np.float32)
    for step in range(20):
        is_first = np.array([step == 0, step in (0, 5, 6), step in (0, 19)])
        got, carry = noise.normal(carry, is_first, 0.5, 2.0, rng)
        fresh = fresh_rng.standard_normal((3, 2), dtype=np.float32)
        expected = np.where(is_first[:, None], 2 * fresh, 0.85 * last + 0.5 * fresh)
        np.testing.assert_allclose(got, expected, rtol=1e-6)
        np.testing.assert_array_equal(carry["noise"], got)
        last = got.copy()


def test_noise_that_does_not_last_has_no_carry() -> None:
    noise, rng = Noise(2, 0.0), np.random.default_rng(0)
    assert noise.initial(3) == {}
    is_first = np.zeros(3, bool)
    one, carry = noise.normal({}, is_first, 0.5, 0.5, rng)
    assert carry == {}
    two, _ = noise.normal({}, is_first, 0.5, 0.5, rng)
    assert not np.allclose(one, two)


def test_exponential_noise_is_kept_whole_or_not_at_all() -> None:
    noise, rng = Noise(4, 0.6), np.random.default_rng(0)
    n = 5000
    before, carry = noise.exponential(noise.initial(n), np.ones(n, bool), rng)
    is_first = np.arange(n) < 1000
    after, carry = noise.exponential(carry, is_first, rng)
    is_kept = (after == before).all(axis=1)
    assert not (is_kept ^ (after == before).any(axis=1)).any(), "all of a row or nothing"
    assert not is_kept[:1000].any(), "an episode begins with fresh noise"
    assert is_kept[1000:].mean() == pytest.approx(0.6, abs=0.04)
    assert after.mean() == pytest.approx(1, abs=0.04)


def agent_for(algo_id: str, action_space: Any = BOX, **fields: Any) -> Any:
    return small_agent(algo_id, action_space, OBS, **{"learning_starts": 1000, **fields})


LASTING: dict[str, tuple[str, Any, dict[str, Any]]] = {
    "td3": ("td3", BOX, {"exploration_noise_type": "ou"}),
    "ddpg": ("ddpg", BOX, {"exploration_noise_type": "ou"}),
    "sac": ("sac", BOX, {"noise_correlation": 0.9}),
    "sac discrete": ("sac", spaces.Discrete(3), {"noise_correlation": 0.9999}),
    "crossq": ("crossq", BOX, {"noise_correlation": 0.9}),
}


@pytest.mark.parametrize("case", LASTING)
def test_the_noise_of_a_policy_is_in_its_carry(case: str) -> None:
    """Not in the policy: an evaluation, or another set of envs, would disturb it."""
    algo_id, space, fields = LASTING[case]
    agent = agent_for(algo_id, space, **fields)
    agent.before_rollout(1000, 2000)
    policy, obs = agent.policy, np.zeros((2, 3), np.float32)
    policy.is_random = False
    carry = policy.initial_carry(2)
    acted = policy.sample(obs, carry, np.ones(2, bool))
    rng_state = policy.rng.bit_generator.state
    not_first = np.zeros(2, bool)
    following = policy.sample(obs, acted.carry, not_first)
    for _ in range(3):  # other envs, an evaluation
        policy.sample(np.zeros((5, 3), np.float32), policy.initial_carry(5), np.ones(5, bool))
        policy.greedy(obs, acted.carry, not_first)
    policy.rng.bit_generator.state = rng_state
    again = policy.sample(obs, acted.carry, not_first)
    np.testing.assert_array_equal(following.actions, again.actions)
    np.testing.assert_array_equal(following.carry["noise"], again.carry["noise"])
    # An episode that opens does not depend on the noise before it; one that runs does.
    policy.rng.bit_generator.state = rng_state
    half = policy.sample(obs, {"noise": acted.carry["noise"] + 9}, np.array([True, False]))
    policy.rng.bit_generator.state = rng_state
    opened = policy.sample(obs, policy.initial_carry(2), np.ones(2, bool))
    np.testing.assert_array_equal(half.carry["noise"][0], opened.carry["noise"][0])
    assert (half.carry["noise"][1] != opened.carry["noise"][1]).any()


def test_random_actions_of_the_warm_up_last_too() -> None:
    """Uniform each, and as correlated as the noise: independent ones stay where they start."""
    agent = agent_for("sac", noise_correlation=0.95)
    policy, carry = agent.policy, agent.policy.initial_carry(200)
    policy.is_random, found = True, []
    for step in range(400):
        acted = policy.sample(np.zeros((200, 3), np.float32), carry, np.full(200, step == 0))
        found.append(acted.actions)
        carry = acted.carry
    actions = np.stack(found)
    assert actions.dtype == np.float32
    assert np.abs(np.quantile(actions, [0.1, 0.5, 0.9]) - [-0.8, 0.0, 0.8]).max() < 0.05
    lag = np.mean(actions[1:] * actions[:-1]) / np.mean(actions**2)
    assert 0.9 < lag < 0.97


def test_correlated_draws_keep_the_actors_distribution() -> None:
    """SAC's noise has unit deviation at every step of an episode, however long it lasts."""
    agent = agent_for("sac", noise_correlation=0.95)
    policy, n = agent.policy, 4000
    carry, is_first = policy.initial_carry(n), np.ones(n, bool)
    obs = np.zeros((n, 3), np.float32)
    before = None
    for step in range(30):
        acted = policy.sample(obs, carry, is_first)
        noise, carry = acted.carry["noise"], acted.carry
        assert noise.std() == pytest.approx(1, abs=0.05), step
        if before is not None:
            correlation = np.corrcoef(before.ravel(), noise.ravel())[0, 1]
            assert correlation == pytest.approx(0.95, abs=0.01)
        before, is_first = noise, np.zeros(n, bool)


@pytest.mark.parametrize("algo_id", ["td3", "ddpg"])
def test_the_size_of_the_noise_is_part_of_the_state(algo_id: str) -> None:
    fields: dict[str, Any] = {"exploration_noise": {"start": 0.5, "end": 0.1}}
    one, two = agent_for(algo_id, **fields), agent_for(algo_id, **fields)
    one.before_rollout(500, 1000)
    assert one.policy.noise_std == pytest.approx(0.3)
    assert two.policy.noise_std == pytest.approx(0.1), "the last of its schedule"
    tensors, extra = one.state()
    assert extra["policy"] == {"noise_std": one.policy.noise_std}
    two.load_state(tensors, extra)
    assert two.policy.noise_std == one.policy.noise_std


def pendulum(boundary_steps: int = 10**9) -> tuple[Any, Collector, list[tuple[Any, Any, Acted]]]:
    """A collector of episodes of 5 steps, and what its policy was called with and gave."""
    env = make_vector_env("Pendulum-v1", 2, max_episode_steps=5, vectorization_mode="sync")
    algo = algo_class("ddpg")
    config = algo.Config(
        env_id="Pendulum-v1", algo_id="ddpg", n_envs=2, hidden_dims=[6], buffer_size=100,
        exploration_noise_type="ou",
    )  # fmt: skip
    agent: Any = algo(config, env.observation_space, env.action_space, seed=0)
    collector = Collector(JournaledEnv(env), agent.policy, 8, 1, boundary_steps)
    calls: list[tuple[Any, Any, Acted]] = []
    sample = agent.policy.sample

    def spy(obs: Any, carry: Any, is_first: Any, mask: Any = None) -> Acted:
        given = {name: part.copy() for name, part in carry.items()}
        acted: Acted = sample(obs, carry, is_first, mask)
        calls.append((given, np.array(is_first), acted))
        return acted

    agent.policy.sample = spy
    return agent, collector, calls


def test_the_collector_marks_every_start_and_hands_the_carry_on() -> None:
    _agent, collector, calls = pendulum()
    marks = []
    for rollout_at in range(3):
        rollout = collector.collect(16 * rollout_at, None)
        assert rollout.is_first.shape == (9, 2)
        marks += rollout.is_first[:-1].tolist()
        is_reset = ~rollout.valid
        np.testing.assert_array_equal(rollout.is_first[1:], is_reset)
    assert [call[1].tolist() for call in calls] == marks
    firsts = np.array(marks)[:, 0]
    assert np.flatnonzero(firsts).tolist() == [0, 6, 12, 18], "5 steps and a reset row"
    for (_, _, before), (given, is_first, after) in itertools.pairwise(calls):
        np.testing.assert_array_equal(given["noise"], before.carry["noise"])
        assert not np.array_equal(after.carry["noise"], given["noise"])
        assert (is_first[0] == is_first[1]).all()


def test_noise_restarts_at_each_episode_inside_a_rollout() -> None:
    agent, collector, calls = pendulum()
    agent.policy.noise_std = 0.2
    rng = np.random.default_rng()
    rng.bit_generator.state = agent.policy.rng.bit_generator.state
    collector.collect(0, None)
    last = np.zeros((2, 1), np.float32)
    n_starts = 0
    for _, is_first, acted in calls:
        fresh = np.float32(0.2) * rng.standard_normal((2, 1), dtype=np.float32)
        last = np.where(is_first[:, None], fresh, np.float32(0.85) * last + fresh)
        np.testing.assert_allclose(acted.carry["noise"], last, rtol=1e-5, atol=1e-7)
        n_starts += int(is_first.any())
    assert n_starts == 2


def test_a_boundary_starts_all_episodes_anew() -> None:
    _agent, collector, calls = pendulum(boundary_steps=10)
    collector.collect(0, 6)
    collector.collect(10, 6)
    starts = [i for i, (_, is_first, _) in enumerate(calls) if is_first.all()]
    assert starts == [0, 3]


@pytest.mark.parametrize("n_before", [1, 2])
def test_a_resumed_collector_goes_on_with_the_same_noise(n_before: int) -> None:
    one, collector, calls = pendulum()
    for _ in range(n_before):
        collector.collect(0, None)
    arrays, state = collector.state()
    arrays = {name: np.array(array) for name, array in arrays.items()}
    tensors, extra = one.state()
    two, again, calls_again = pendulum()
    two.load_state(tensors, extra)
    again.load_state(state)
    again.restore_envs(arrays, state)
    del calls[:]
    ours, theirs = collector.collect(0, None), again.collect(0, None)
    np.testing.assert_array_equal(ours.actions, theirs.actions)
    np.testing.assert_array_equal(ours.is_first, theirs.is_first)
    for (_, _, a), (_, _, b) in zip(calls, calls_again, strict=True):
        np.testing.assert_array_equal(a.carry["noise"], b.carry["noise"])
