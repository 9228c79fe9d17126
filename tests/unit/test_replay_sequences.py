"""Sequences from the replay: carry, episode starts, the newest row, the wrap, a restart."""

from dataclasses import replace

import numpy as np
import pytest

from gymnasium_solver.data.memory import Memory
from gymnasium_solver.data.replay import Replay, Sequences
from gymnasium_solver.data.rollout import Rollout
from gymnasium_solver.errors import ConfigError
from tests.unit.replay_stream import ACTIONS, OBS_SPACE, StackStream, Stream

CARRY = {"core": np.zeros((1, 2), np.float32)}


def with_carry(rows: Rollout) -> Rollout:
    """The carry before a row is (100 env + episode, t): what a policy knew there."""
    obs = rows.obs["state"] if isinstance(rows.obs, dict) else rows.obs
    known = np.stack([100 * obs[:-1, :, 0] + obs[:-1, :, 1], obs[:-1, :, 2]], axis=2)
    return replace(rows, carry={"core": known})


def replay_of(n_envs: int, capacity: int = 200) -> Replay:
    return Replay(capacity, n_envs, OBS_SPACE, ACTIONS, carry=CARRY)


def check(found: Sequences, length: int) -> None:
    """Rows follow one another: an observation is the next of its episode, or opens one."""
    obs = found.obs["state"] if isinstance(found.obs, dict) else found.obs
    assert obs.shape[0] == found.is_first.shape[0] == length + 1
    for name in ("actions", "reward", "terminated", "truncated", "valid"):
        assert getattr(found, name).shape == (length, obs.shape[1]), name
    np.testing.assert_array_equal(found.is_first, obs[..., 2] == 0)
    assert found.valid[0].all(), "a sequence begins with a step"
    first = np.stack([100 * obs[0, :, 0] + obs[0, :, 1], obs[0, :, 2]], axis=1)
    np.testing.assert_array_equal(found.carry["core"], first)
    for t, b in np.ndindex(length, obs.shape[1]):
        now, then = obs[t, b], obs[t + 1, b]
        assert then[0] == now[0], "one env"
        if found.valid[t, b]:
            assert then.tolist() == [*now[:2], now[2] + 1]
            assert found.actions[t, b] == now[2] % 3
            assert found.reward[t, b] == now[2] + 1
        else:  # a reset row, or a break: what follows opens the next episode
            assert then.tolist() == [now[0], now[1] + 1, 0]
            assert found.is_first[t + 1, b]
        if t and (found.terminated[t - 1, b] or found.truncated[t - 1, b]):
            assert not found.valid[t, b]


@pytest.mark.parametrize("n_envs", [1, 3])
@pytest.mark.parametrize("capacity", [50, 10_000])
@pytest.mark.parametrize("length", [1, 4, 9])
def test_rows_follow_one_another_across_episodes_wraps_and_restarts(
    n_envs: int, capacity: int, length: int
) -> None:
    stream, replay = Stream(n_envs, seed=n_envs + length), replay_of(n_envs, capacity)
    rng, seen_inside = np.random.default_rng(0), False
    for i in range(40):
        if i and rng.random() < 0.15:
            stream.restart()
        replay.add(with_carry(stream.rollout(int(rng.integers(1, 8)))))
        if replay.n_added >= length + 5:
            found = replay.sequences(replay.sample_sequences(32, length, rng), length)
            check(found, length)
            seen_inside |= bool(found.is_first[1:].any())
    assert seen_inside == (length > 1), "episodes begin inside sequences"


def test_every_start_is_drawn_and_none_that_runs_past_the_newest_row() -> None:
    stream, replay = Stream(2, max_length=1), replay_of(2, capacity=20)
    stream.length[:] = 10**9
    for _ in range(5):
        replay.add(with_carry(stream.rollout(7)))  # 35 rows: the ring wrapped
    assert (replay.oldest_row, replay.n_added) == (25, 35)
    drawn = replay.sample_sequences(2000, 4, np.random.default_rng(0))
    rows = (drawn // 2 - replay.oldest_row) % replay.n_rows
    assert sorted(set(rows.tolist())) == list(range(7))  # rows 25 to 31: four rows, then the head
    counts = np.bincount(drawn % 2 + 2 * rows, minlength=14)
    assert counts.min() > 80, "uniform: 143 each"
    found = replay.sequences(drawn, 4)
    check(found, 4)
    assert isinstance(found.obs, np.ndarray)
    assert found.obs[-1, :, 2].max() == 35, "the head: the observation after the newest row"


def test_a_sequence_over_a_break_has_a_row_that_does_not_count() -> None:
    stream, replay = Stream(1), replay_of(1)
    stream.length[:] = 100
    replay.add(with_carry(stream.rollout(4)))
    stream.restart()
    stream.length[:] = 100
    replay.add(with_carry(stream.rollout(4)))
    found = replay.sequences(replay.leaves(2, 3), 5)
    assert isinstance(found.obs, np.ndarray)
    assert found.obs[:, 0, 1:].tolist() == [[0, 2], [0, 3], [0, 4], [1, 0], [1, 1], [1, 2]]
    assert found.valid[:, 0].tolist() == [True, True, False, True, True]
    assert found.is_first[:, 0].tolist() == [False, False, False, True, False, False]
    check(found, 5)


def test_saved_rows_keep_the_carry_and_the_starts() -> None:
    stream, replay, again = Stream(2, seed=3), replay_of(2, 60), replay_of(2, 60)
    for _ in range(12):
        replay.add(with_carry(stream.rollout(6)))
        start = max(again.n_added, replay.oldest_row)
        again.put_rows(start, replay.rows(start, replay.n_added))
    index = replay.sample_sequences(64, 5, np.random.default_rng(1))
    ours, theirs = replay.sequences(index, 5), again.sequences(index, 5)
    check(theirs, 5)
    np.testing.assert_array_equal(ours.carry["core"], theirs.carry["core"])
    np.testing.assert_array_equal(ours.is_first, theirs.is_first)


def test_dict_observations_and_masks() -> None:
    stream = StackStream(2, "repeat", seed=5, is_dict=True)
    replay = stream.replay(60, carry=CARRY, has_masks=True)
    rng = np.random.default_rng(0)
    for _ in range(15):
        rows = with_carry(stream.rollout(5))
        assert isinstance(rows.obs, dict)
        rows.mask = rows.obs["t"][..., None] % 3 != np.arange(3)
        replay.add(rows)
    found = replay.sequences(replay.sample_sequences(32, 6, rng), 6)
    check(found, 6)
    assert isinstance(found.obs, dict)
    assert found.mask is not None
    np.testing.assert_array_equal(found.mask, found.obs["t"][..., None] % 3 != np.arange(3))
    keys = found.obs["state"].astype(int).reshape(-1, 3).tolist()
    for name, stacker in stream.stackers.items():
        expected = [stacker.stacks[tuple(key)] for key in keys]
        np.testing.assert_array_equal(found.obs[name].reshape(len(keys), -1, 3, 2), expected)


def test_the_carry_of_a_rollout_cut_short_does_not_write_over_older_rows() -> None:
    """The collector's storage is longer than what the budget left of the rollout."""
    stream, replay = Stream(1), replay_of(1, capacity=8)
    stream.length[:] = 10**9
    replay.add(with_carry(stream.rollout(8)))
    replay.add(with_carry(stream.rollout(6)).first(1))
    found = replay.sequences(replay.leaves(1, 9), 1)
    assert isinstance(found.obs, np.ndarray)
    assert found.obs[0, :, 2].tolist() == list(range(1, 9))
    assert found.carry["core"][:, 1].tolist() == list(range(1, 9))


def test_too_long_a_sequence_is_refused_in_words() -> None:
    replay = replay_of(1)
    replay.add(with_carry(Stream(1, max_length=100).rollout(4)))
    rng = np.random.default_rng(0)
    assert len(replay.sample_sequences(3, 4, rng)) == 3
    with pytest.raises(ConfigError, match="no sequence of 5 rows yet: collect more"):
        replay.sample_sequences(3, 5, rng)
    with pytest.raises(ConfigError, match="no transitions to sample"):
        replay_of(1).sample_sequences(1, 1, rng)


def test_a_memory_draws_them_from_its_own_stream() -> None:
    drawn = []
    for _ in range(2):
        replay = replay_of(2)
        rng = np.random.default_rng(7)
        memory = Memory(replay, n_step=1, gamma=0.9, batch_size=4, rng=rng)
        memory.add(with_carry(Stream(2, seed=1).rollout(30)))
        drawn.append(memory.sequences(16, 4, crosses_episodes=True).rows)
    check(drawn[0], 4)
    np.testing.assert_array_equal(drawn[0].obs, drawn[1].obs)
