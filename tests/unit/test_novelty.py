"""Counting states, first visits in an episode, and novelty by nearest neighbours."""

from collections import Counter
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

from gymnasium_solver.data.novelty import (
    EPSILON,
    EpisodeMemory,
    EpisodeVisits,
    StateIds,
    VisitCounts,
)

SETTINGS: dict[str, Any] = {"by": "auto", "n_bins": 10, "n_signs": 24, "table_bits": 16}


def state_ids(space: Any, **settings: Any) -> StateIds:
    return StateIds(space, **{**SETTINGS, **settings}, rng=np.random.default_rng(0))


def test_exact_states_are_equal_observations() -> None:
    space = spaces.Box(0, 255, (4, 4, 3), np.uint8)
    states = state_ids(space)
    assert states.by == "exact"
    rng = np.random.default_rng(1)
    obs = rng.integers(0, 256, (200, 4, 4, 3), dtype=np.uint8)
    ids = states(np.concatenate([obs, obs]))
    assert (ids[:200] == ids[200:]).all()
    assert len(set(ids.tolist())) >= 199, "200 states in 65,536 entries: hardly a collision"


def test_bins_follow_the_bounds() -> None:
    space = spaces.Box(np.array([-1.2, -0.07]), np.array([0.6, 0.07]), dtype=np.float64)
    states = state_ids(space)
    assert states.by == "bins"
    width = 1.8 / 10
    here = np.array([[-1.2 + 3.5 * width, 0.0]])
    near = here + np.array([[0.4 * width, 0.001]])
    far = here + np.array([[0.6 * width, 0.0]])
    a, b, c = (states(x)[0] for x in (here, near, far))
    assert a == b
    assert a != c
    outside = states(np.array([[9.0, 0.0], [0.6, 0.0]]))
    assert outside[0] == outside[1], "what lies beyond a bound is in the last bin"


def test_unbounded_numbers_and_dicts_have_states() -> None:
    box = spaces.Box(-np.inf, np.inf, (3,), np.float32)
    assert len(set(state_ids(box)(np.array([[0, 0, 0], [1, 0, 0], [50, 0, 0]])).tolist())) == 3
    both = spaces.Dict({"a": spaces.Discrete(5), "b": box})
    obs = {"a": np.array([0, 1, 0]), "b": np.zeros((3, 3), np.float32)}
    first, second, third = state_ids(both)(obs)
    assert first == third
    assert first != second


def test_simhash_joins_what_is_alike() -> None:
    space = spaces.Box(-1, 1, (20,), np.float32)
    states = state_ids(space)
    assert states.by == "simhash"
    x = np.random.default_rng(2).uniform(-1, 1, (1, 20)).astype(np.float32)
    assert states(x)[0] == states(x + 1e-6)[0]
    assert states(x)[0] != states(-x)[0]


def test_counts_against_a_dictionary() -> None:
    rng = np.random.default_rng(3)
    ids, valid = rng.integers(0, 5, (30, 4)), rng.random((30, 4)) < 0.8
    counts, seen = VisitCounts(8), Counter[int]()
    bonus = counts(ids, valid)
    for t in range(30):
        seen.update(ids[t][valid[t]].tolist())
        for env in range(4):
            expected = 1 / np.sqrt(seen[int(ids[t, env])]) if valid[t, env] else 0.0
            assert bonus[t, env] == pytest.approx(expected)
    assert counts.n_states == len(seen)


def test_counts_of_the_states_before_the_steps() -> None:
    """A walk 0 -> 1 -> 0 -> 2: novelty after and before each step, the row itself counted."""
    counts, every = VisitCounts(8), np.ones((3, 1), bool)
    states = np.array([[0], [1], [0], [2]])
    after, before = counts.after_and_before(states[1:], states[:-1], every, every)
    assert after[:, 0].tolist() == [1.0, 1.0, 1.0]
    assert before[:, 0].tolist() == [1.0, 1.0, 1.0], "the first state was not counted"
    after, before = counts.after_and_before(states[1:], states[:-1], every, every)
    assert after[:, 0] == pytest.approx(1 / np.sqrt([2, 2, 2]))
    assert before[:, 0] == pytest.approx(1 / np.sqrt([1, 2, 2]))


def test_visits_start_anew_with_an_episode() -> None:
    visits = EpisodeVisits(1, 8)
    ids = np.array([[1], [2], [1], [3], [3], [2], [3]])
    is_first = np.array([[0], [0], [0], [1], [0], [0], [0]], bool)
    found = visits(np.array([0]), ids, is_first)
    assert found[:, 0].tolist() == [1, 1, 2, 1, 2, 1, 3]
    assert visits(None, np.array([[2], [0]]), np.zeros((2, 1), bool))[:, 0].tolist() == [2, 1]
    assert visits(np.array([2]), np.array([[2]]), np.zeros((1, 1), bool))[:, 0].tolist() == [2]


def test_visits_of_environments_are_apart_and_stop_at_the_largest_number() -> None:
    visits = EpisodeVisits(2, 8)
    ids = np.zeros((300, 2), np.int64)
    ids[:, 1] = np.arange(300) % 100
    found = visits(np.array([5, 5]), ids, np.zeros((300, 2), bool))
    assert found[:, 0].tolist() == [min(n, 255) for n in range(1, 301)]
    assert found[[0, 5, 99, 100, 299], 1].tolist() == [1, 2, 1, 2, 3]


def test_the_table_of_an_episode_stays_small() -> None:
    """A large table for the counts of the run must not be cleared at each start."""
    states = state_ids(spaces.Box(0, 1, (6,), np.float32), by="exact", table_bits=24)
    visits = EpisodeVisits(3, 24)
    assert visits.visits.nbytes == 3 * 2**16
    ids = states(np.random.default_rng(5).random((90, 6), np.float32)).reshape(30, 3)
    assert ids.max() >= 2**16
    assert (visits(ids[0], ids[1:], np.zeros((29, 3), bool)) == 1).all()


def test_episodic_novelty_against_brute_force() -> None:
    rng = np.random.default_rng(4)
    x = rng.normal(size=(25, 2, 3)).astype(np.float32)
    is_first = np.zeros((25, 2), bool)
    is_first[10, 0] = True
    memory = EpisodeMemory(2, capacity=50, width=3, neighbors=4)
    start = rng.normal(size=(2, 3)).astype(np.float32)
    bonus = memory(start, x, is_first)
    mean, n, episodes = 0.0, 0, [[start[0]], [start[1]]]
    for t in range(25):
        for env in range(2):
            if is_first[t, env]:
                episodes[env] = []
            expected = 1.0
            if episodes[env]:
                d = sorted(float(((x[t, env] - y) ** 2).sum()) for y in episodes[env])[:4]
                n += 1
                mean += max(0.001, 1 / n) * (d[-1] - mean)
                kernel = [EPSILON / (max(one / mean - 0.008, 0) + EPSILON) for one in d]
                usual = EPSILON / (1 - 0.008 + EPSILON)
                expected = min(1.0, float(np.sqrt(usual / np.mean(kernel))))
            assert bonus[t, env] == pytest.approx(expected, rel=1e-4)
            episodes[env].append(x[t, env])


def test_a_state_seen_again_and_again_is_worth_less() -> None:
    memory = EpisodeMemory(1, capacity=8, width=2, neighbors=10)
    same = np.ones((6, 1, 2), np.float32)
    bonus = memory(np.zeros((1, 2), np.float32), same, np.zeros((6, 1), bool))[:, 0]
    assert (np.diff(bonus[1:]) < 0).all()


@pytest.mark.parametrize("env_id", ["MountainCar-v0", "Acrobot-v1"])
def test_episodic_novelty_tells_new_states_from_old_ones(env_id: str) -> None:
    """Under random actions the bonus spans several times its low end; once it was nearly 1."""
    import gymnasium

    env = gymnasium.make(env_id).unwrapped
    env.reset(seed=0)
    env.action_space.seed(0)
    seen = np.stack([env.step(env.action_space.sample())[0] for _ in range(400)])
    scaled = ((seen - seen.mean(0)) / (seen.std(0) + 1e-6)).astype(np.float32)
    memory = EpisodeMemory(1, capacity=500, width=scaled.shape[1], neighbors=10)
    start = scaled[:1]
    bonus = memory(start, scaled[1:, None], np.zeros((399, 1), bool))[:, 0]
    low, high = np.percentile(bonus, [5, 95])
    assert high > 2.5 * low
    assert bonus.min() > 0
    assert bonus.max() <= 1.0
