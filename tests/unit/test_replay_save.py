"""Saving the replay in pieces by absolute rows, and rebuilding it exactly."""

from collections.abc import Callable

import numpy as np
import pytest
from gymnasium import spaces

from gymnasium_solver.data.replay import Replay
from gymnasium_solver.errors import RunError
from gymnasium_solver.tree import leaves_of
from tests.unit.replay_stream import ACTIONS, OBS_SPACE, StackStream, Stream
from tests.unit.replay_stream import N_FRAMES as K
from tests.unit.replay_stream import plain as as_array


def draws(replay, seed=0):
    """Batches to compare two replays by."""
    rng = np.random.default_rng(seed)
    found = []
    for n_step in (1, 3):
        index = replay.sample(50, rng)
        found += [index, *leaves_of(replay.transitions(index, n_step, 0.9))]
    return found


def assert_same(a, b):
    assert (a.n_added, a.oldest_row, a.n_valid) == (b.n_added, b.oldest_row, b.n_valid)
    for ours, theirs in zip(draws(a), draws(b), strict=True):
        np.testing.assert_array_equal(ours, theirs)
    ours, theirs = (r.rows(r.oldest_row, r.n_added) for r in (a, b))
    assert ours.keys() == theirs.keys()
    for name in ours:
        np.testing.assert_array_equal(ours[name], theirs[name], err_msg=name)


class Log:
    """Append-only segments, as a run keeps them."""

    def __init__(self):
        self.segments = []
        self.n_saved = 0

    def save(self, replay):
        start = max(self.n_saved, replay.oldest_row)
        self.segments.append((start, replay.rows(start, replay.n_added)))
        self.n_saved = replay.n_added

    def load(self, replay, keep_all):
        """Into an empty replay: all segments, or only those that still matter."""
        for start, arrays in self.segments:
            stop = start + len(arrays["valid"])
            if keep_all or stop > self.segments[-1][0] - replay.n_rows:
                replay.put_rows(start, arrays)
        return replay


STREAMS: dict[str, Callable[[], Stream]] = {
    "plain": lambda: Stream(3, seed=8),
    "frames": lambda: StackStream(3, "repeat", seed=8),
    "dict": lambda: StackStream(3, "repeat", seed=8, is_dict=True),
}


@pytest.mark.parametrize("name", STREAMS)
@pytest.mark.parametrize("capacity", [60, 10_000])
@pytest.mark.parametrize("keep_all", [True, False])
def test_segments_rebuild_the_same_state_and_it_goes_on_the_same(name, capacity, keep_all):
    stream = STREAMS[name]()
    replay = stream.replay(capacity)
    rng, log = np.random.default_rng(3), Log()
    for i in range(50):
        if rng.random() < 0.15:
            stream.restart()
        # once more than the ring between saves
        replay.add(stream.rollout(50 if i == 33 else int(rng.integers(1, 7))))
        if rng.random() < 0.3 or i == 49:
            log.save(replay)
            again = log.load(stream.replay(capacity), keep_all)
            assert_same(replay, again)
    # The head was rebuilt too: both go on alike, over a restart as over a plain rollout.
    for is_restart in (True, False, True):
        if is_restart:
            stream.restart()
        rows = stream.rollout(4)
        replay.add(rows)
        again.add(rows)
        assert_same(replay, again)


def test_an_episode_that_ended_in_the_last_saved_row_is_still_known():
    """The next rollout then lacks its reset row (one env, one row a rollout)."""
    stream = Stream(1, seed=1)
    replay = Replay(30, 1, OBS_SPACE, ACTIONS)
    while not (stream.is_done[0] and replay.n_added > 5):
        rows = stream.rollout(1)
        if rows.env_steps:
            replay.add(rows)
    again = Replay(30, 1, OBS_SPACE, ACTIONS)
    again.put_rows(0, replay.rows(0, replay.n_added))
    stream.rollout(1)
    rows = stream.rollout(1)
    n_before = replay.n_added
    for each in (replay, again):
        each.add(rows)
        assert each.n_added == n_before + 2
    assert_same(replay, again)


def test_rows_have_one_observation_more():
    stream = Stream(3, seed=8)
    replay, rows = stream.replay(60), stream.rollout(5)
    replay.add(rows)
    saved = replay.rows(2, 5)
    np.testing.assert_array_equal(saved["obs"], as_array(rows.obs)[2:])
    np.testing.assert_array_equal(saved["reward"], rows.reward[2:])
    assert saved["valid"].shape == (3, 3)


def test_masks_are_saved():
    replay, again = (Replay(9, 1, OBS_SPACE, ACTIONS, has_masks=True) for _ in range(2))
    rows = Stream(1, max_length=100).rollout(4)
    rows.mask = np.random.default_rng(0).random((5, 1, 3)) < 0.5
    replay.add(rows)
    again.put_rows(0, replay.rows(0, 4))
    np.testing.assert_array_equal(again.rows(0, 4)["mask"], rows.mask)
    assert_same(replay, again)


@pytest.mark.parametrize(("name", "n_look_back"), [("plain", 0), ("frames", K - 1)])
def test_a_larger_ring_holds_what_it_was_given(name, n_look_back):
    """A resume with a larger buffer_size: what lies before the first row saved is not there."""
    stream = STREAMS[name]()
    replay, larger = stream.replay(30), stream.replay(3000)
    for _ in range(10):
        replay.add(stream.rollout(5))
    larger.put_rows(replay.oldest_row, replay.rows(replay.oldest_row, replay.n_added))
    assert larger.oldest_row == replay.oldest_row > 0
    assert larger.n_valid == replay.n_valid
    first = larger.leaves(larger.oldest_row, larger.oldest_row + n_look_back)
    assert not larger.is_valid(first).any()


def test_rows_no_longer_stored_cannot_be_asked_for():
    stream = Stream(3, seed=8)
    replay = stream.replay(9)
    replay.add(stream.rollout(10))
    assert replay.oldest_row == 7
    with pytest.raises(ValueError, match="available: 7 to 10"):
        replay.rows(6, 10)


def test_rows_out_of_order_or_of_another_env_are_refused():
    stream = Stream(3, seed=8)
    replay = stream.replay(60)
    replay.add(stream.rollout(5))
    saved = replay.rows(0, 5)
    with pytest.raises(RunError, match="expected row 5 and shapes"):
        replay.put_rows(3, saved)
    other = Replay(60, 3, spaces.Box(-1, 1, (2,), np.float32), ACTIONS)
    with pytest.raises(RunError, match="Resume with the env, n_envs"):
        other.put_rows(0, saved)
    fewer_envs = Replay(60, 1, OBS_SPACE, ACTIONS)
    with pytest.raises(RunError, match="Resume with the env, n_envs"):
        fewer_envs.put_rows(0, saved)
