"""Memory: batches, priorities in step with the rows, combined replay, exact state."""

import json
import math

import numpy as np
import pytest

from gymnasium_solver.data.memory import Memory
from gymnasium_solver.data.replay import Replay, Transitions
from gymnasium_solver.errors import ConfigError, RunError
from tests.unit.replay_stream import (
    ACTIONS,
    N_FRAMES,
    OBS_SPACE,
    StackStream,
    Stream,
    batches,
    plain,
)
from tests.unit.test_replay import GAMMA, check_batch

COLUMNS = Transitions._fields


def memory_of(n_envs=1, capacity=50, batch_size=16, n_step=3, seed=0, **options):
    replay = Replay(capacity, n_envs, OBS_SPACE, ACTIONS)
    rng = np.random.default_rng(seed)
    return Memory(replay, n_step=n_step, gamma=GAMMA, batch_size=batch_size, rng=rng, **options)


def steady(n_envs=1):
    """A stream whose episodes do not end."""
    stream = Stream(n_envs)
    stream.length[:] = 10**9
    return stream


def transitions_of(sample):
    return Transitions(*(getattr(sample, name) for name in COLUMNS))


def all_leaves(replay):
    return np.arange(replay.n_rows * replay.n_envs)


# -- batches ------------------------------------------------------------------------------------


@pytest.mark.parametrize("prioritized", [False, True])
@pytest.mark.parametrize("n_envs", [1, 3])
def test_every_chain_of_every_batch_stays_in_its_episode(prioritized, n_envs):
    stream = Stream(n_envs, seed=9)
    memory = memory_of(n_envs, capacity=60, prioritized=prioritized)
    rng = np.random.default_rng(2)
    for _ in range(60):
        if rng.random() < 0.1:
            stream.restart()
        memory.add(stream.rollout(int(rng.integers(1, 12))))
        for sample in batches(memory, 2, beta=0.5):
            check_batch(transitions_of(sample), stream, 3, GAMMA)
            memory.update_priorities(sample.index, rng.normal(size=16).astype(np.float32))
        if memory.priorities is not None:  # 0 exactly where there is nothing to sample
            is_valid = memory.replay.is_valid(all_leaves(memory.replay))
            np.testing.assert_array_equal(memory.priorities.leaves > 0, is_valid)
            assert len(memory) == is_valid.sum()


def test_priorities_follow_the_frames_that_are_gone():
    stream = StackStream(2, "repeat", seed=9)
    replay = Replay(20, 2, stream.space, ACTIONS, frame_stacks={"": N_FRAMES})
    rng = np.random.default_rng(0)
    memory = Memory(replay, n_step=2, gamma=0.9, batch_size=8, rng=rng, prioritized=True)
    assert memory.priorities is not None
    for _ in range(40):
        memory.add(stream.rollout(int(rng.integers(1, 15))))
        is_valid = replay.is_valid(all_leaves(replay))
        np.testing.assert_array_equal(memory.priorities.leaves > 0, is_valid)


def test_a_batch_has_the_columns_of_its_index():
    memory = memory_of(3, batch_size=5)
    memory.add(Stream(3, seed=2).rollout(12))
    for sample in batches(memory, 4, reward_scale=0.5, reward_clip=1.0):
        expected = memory.replay.transitions(sample.index, 3, GAMMA, 0.5, 1.0)
        for name in COLUMNS[:-1]:
            np.testing.assert_array_equal(getattr(sample, name), getattr(expected, name))
        assert sample.next_mask is None
        assert sample.weight.tolist() == [1] * 5
        assert sample.weight.dtype == np.float32


@pytest.mark.parametrize("prioritized", [False, True])
def test_masks_come_with_the_batch(prioritized):
    replay = Replay(50, 1, OBS_SPACE, ACTIONS, has_masks=True)
    rng = np.random.default_rng(0)
    memory = Memory(replay, n_step=1, gamma=GAMMA, batch_size=8, rng=rng, prioritized=prioritized)
    rows = steady().rollout(10)
    rows.mask = np.arange(11)[:, None, None] % 3 != np.arange(3)  # at t, action t % 3 is illegal
    memory.add(rows)
    for sample in batches(memory, 3):
        assert sample.next_mask is not None
        illegal = plain(sample.next_obs)[:, 2].astype(int) % 3
        assert not sample.next_mask[np.arange(8), illegal].any()
        assert (sample.next_mask.sum(axis=1) == 2).all()


@pytest.mark.parametrize("batch_size", [64, 20_000])
def test_as_many_batches_as_asked_for_over_several_gathers(batch_size):
    memory = memory_of(batch_size=batch_size)
    memory.add(Stream(1).rollout(40))
    n_batches = 600 if batch_size == 64 else 3
    samples = list(batches(memory, n_batches))
    assert len(samples) == n_batches
    assert all(sample.obs.shape == (batch_size, 3) for sample in samples)
    assert list(batches(memory, 0)) == []


def test_large_observations_are_not_gathered_all_at_once():
    """100 batches of these would be 180 MB."""
    stream = StackStream(1, "zeros")
    memory = memory_of(batch_size=32)
    memory.replay = Replay(50, 1, stream.space, ACTIONS, frame_stacks={"": N_FRAMES})
    memory.replay.transition_bytes = 2 * 4 * 84 * 84
    memory.add(stream.rollout(20))
    gathered = []
    original = memory.replay.transitions
    memory.replay.transitions = lambda index, *a: gathered.append(len(index)) or original(index, *a)  # type: ignore
    assert len(list(batches(memory, 100))) == 100
    assert max(gathered) * memory.replay.transition_bytes <= 4 * 2**20


@pytest.mark.parametrize("prioritized", [False, True])
def test_an_empty_memory_says_so_at_once(prioritized):
    memory = memory_of(prioritized=prioritized)
    with pytest.raises(ConfigError, match="no transitions to sample"):
        next(batches(memory, 1))


@pytest.mark.parametrize("prioritized", [False, True])
def test_len_is_the_number_of_env_steps_stored(prioritized):
    memory, stream = memory_of(2, 1000, prioritized=prioritized), Stream(2, seed=3)
    n = 0
    for n_steps in (1, 5, 30, 2):
        rows = stream.rollout(n_steps)
        memory.add(rows)
        n += rows.env_steps
        assert len(memory) == n


# -- prioritised --------------------------------------------------------------------------------


def test_updates_change_the_very_next_batch():
    memory = memory_of(batch_size=100, prioritized=True, alpha=1.0, eps=0.0, n_step=1)
    memory.add(steady().rollout(10))
    drawn = batches(memory, 2, beta=1.0)
    first = next(drawn)
    assert np.bincount(first.index).tolist() == [10] * 10  # all alike, stratified
    assert first.weight.tolist() == [1] * 100
    errors = np.zeros(10)
    errors[[2, 7]] = 1, -3
    memory.update_priorities(np.arange(10), errors)
    second = next(drawn)
    assert np.bincount(second.index, minlength=10).tolist() == [0, 0, 25, 0, 0, 0, 0, 75, 0, 0]
    # p = 1/4 and 3/4: (10 * 1/4) ** -1 is the largest
    np.testing.assert_allclose(second.weight[second.index == 2], 1)
    np.testing.assert_allclose(second.weight[second.index == 7], 1 / 3, rtol=1e-6)


def test_overwritten_rows_get_new_priorities():
    memory = memory_of(capacity=4, prioritized=True, alpha=1.0, eps=0.0)
    assert memory.priorities is not None
    stream = steady()
    memory.add(stream.rollout(4))  # slots 0 .. 3, head 4
    memory.update_priorities(np.arange(4), np.array([0.1, 0.2, 0.3, 0.4]))
    memory.add(stream.rollout(2))  # slots 4, 0, head 1
    np.testing.assert_allclose(memory.priorities.leaves, [1, 0, 0.3, 0.4, 1])


# -- combined -----------------------------------------------------------------------------------


@pytest.mark.parametrize("prioritized", [False, True])
@pytest.mark.parametrize("n_envs", [1, 3, 8])
def test_combined_batches_always_end_with_the_newest(prioritized, n_envs):
    memory = memory_of(n_envs, 400, batch_size=4, prioritized=prioritized, combined=True)
    stream = Stream(n_envs, seed=1)
    for _ in range(60):
        rows = stream.rollout(1)
        memory.add(rows)
        if not rows.env_steps:
            continue
        newest = plain(rows.obs)[0][rows.valid[0]][:4]
        for sample in batches(memory, 3):
            assert len(sample.index) == 4
            np.testing.assert_array_equal(sample.obs[4 - len(newest) :], newest)
            check_batch(transitions_of(sample), stream, 3, GAMMA)


def test_the_newest_are_as_rare_as_any_without_the_flag():
    memory = memory_of(capacity=1000, batch_size=4)
    memory.add(steady().rollout(1000))
    assert not any((sample.index == 999).any() for sample in batches(memory, 5))


# -- state --------------------------------------------------------------------------------------


def grow(memory, stream, rng, n):
    """n rounds of collecting and learning; what was learnt from."""
    seen = []
    for _ in range(n):
        if rng.random() < 0.1:
            stream.restart()
        rows = stream.rollout(int(rng.integers(1, 9)))
        for each in memory:
            each.add(rows)
        error = rng.normal(size=16).astype(np.float32)
        for samples in zip(*(batches(each, 3, beta=0.6) for each in memory), strict=True):
            seen.append(samples)
            for each, sample in zip(memory, samples, strict=True):
                each.update_priorities(sample.index, error)
    return seen


@pytest.mark.parametrize("prioritized", [False, True])
@pytest.mark.parametrize("combined", [False, True])
@pytest.mark.parametrize("moment", [1, 4, 23])
def test_a_saved_memory_goes_on_bit_for_bit(prioritized, combined, moment):
    options = {"n_envs": 2, "prioritized": prioritized, "combined": combined}
    memory, again = memory_of(**options), memory_of(**options, seed=99)
    stream, rng = Stream(2, seed=4), np.random.default_rng(moment)
    grow([memory], stream, rng, moment)

    replay = memory.replay
    arrays, extra = memory.state()
    again.replay.put_rows(replay.oldest_row, replay.rows(replay.oldest_row, replay.n_added))
    again.load_state(arrays, json.loads(json.dumps(extra)))
    for ours, theirs in grow([memory, again], stream, rng, 15):
        for name, column in ours._asdict().items():
            np.testing.assert_array_equal(column, getattr(theirs, name), err_msg=name)
    assert len(memory) == len(again)
    (ours_arrays, ours_extra), (their_arrays, their_extra) = memory.state(), again.state()
    assert ours_extra == their_extra
    for name, array in ours_arrays.items():
        np.testing.assert_array_equal(array, their_arrays[name])


def test_the_saved_priorities_are_a_copy():
    memory = memory_of(prioritized=True)
    memory.add(steady().rollout(10))
    arrays, extra = memory.state()
    memory.update_priorities(np.arange(10), np.full(10, 7.0))
    assert set(arrays["priorities"].tolist()) == {0.0, 1.0}
    assert math.isclose(extra["max_priority"], 1.0)


def test_state_without_its_rows_is_refused():
    memory = memory_of()
    memory.add(steady().rollout(10))
    with pytest.raises(RunError, match="ends at row 0, but its state is of row 10"):
        memory_of().load_state(*memory.state())


def test_priorities_of_another_size_are_refused():
    memory, larger = memory_of(prioritized=True), memory_of(capacity=60, prioritized=True)
    uniform = memory_of()
    for each in (memory, larger, uniform):
        each.add(steady().rollout(10))
    with pytest.raises(RunError, match="priorities of 51 transitions were saved, expected 61"):
        larger.load_state(*memory.state())
    with pytest.raises(RunError, match="priorities of 0 transitions were saved, expected 51"):
        memory.load_state(*uniform.state())
