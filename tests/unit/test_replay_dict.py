"""Replay of Dict observations: a column for each part, several stacks of different depth."""

import math

import numpy as np
import pytest
from gymnasium import spaces

from gymnasium_solver.data.memory import Memory
from gymnasium_solver.data.replay import Replay
from gymnasium_solver.data.rollout import Rollout
from gymnasium_solver.errors import EnvError, RunError
from tests.unit.replay_stream import ACTIONS, DictStream
from tests.unit.test_replay import check_batch

GAMMA = 0.5


def replay_for(stream: DictStream, capacity: int, stacked: bool = True) -> Replay:
    stacks = stream.DEPTHS if stacked else None
    return Replay(capacity, stream.n_envs, stream.space, ACTIONS, frame_stacks=stacks)


def check_all(replay: Replay, stream: DictStream, n_step: int = 3) -> None:
    """Every part of every transition belongs to the step that the counters name."""
    index = np.flatnonzero(replay.is_valid(np.arange(replay.n_rows * replay.n_envs)))
    assert len(index) == replay.n_valid
    batch = replay.transitions(index, n_step, GAMMA)
    assert isinstance(batch.obs, dict)
    assert isinstance(batch.next_obs, dict)
    counters = batch._replace(obs=batch.obs["state"], next_obs=batch.next_obs["state"])
    check_batch(counters, stream, n_step, GAMMA)
    for obs in (batch.obs, batch.next_obs):
        assert list(obs) == ["camera", "radar", "state", "t"]
        assert obs["t"].dtype == np.int64
        np.testing.assert_array_equal(obs["t"], obs["state"][:, 2])
        for name, stacker in stream.stackers.items():
            keys = [tuple(key) for key in obs["state"].astype(int).tolist()]
            np.testing.assert_array_equal(obs[name], [stacker.stacks[key] for key in keys])


@pytest.mark.parametrize("padding", ["zeros", "repeat", "goes on"])
@pytest.mark.parametrize("n_envs", [1, 3])
@pytest.mark.parametrize("capacity", [30, 10_000])
@pytest.mark.parametrize("stacked", [True, False])
def test_every_part_comes_back_exactly(
    padding: str, n_envs: int, capacity: int, stacked: bool
) -> None:
    stream = DictStream(n_envs, padding, seed=2)
    replay = replay_for(stream, capacity, stacked)
    rng, stored = np.random.default_rng(4), []
    for i in range(40):
        if i % 9 == 8:
            stream.restart()
            stored.append(0)
        rows = stream.dict_rollout(int(rng.integers(1, 9)))
        replay.add(rows)
        stored.extend(rows.valid.sum(axis=1).tolist())
        assert replay.n_valid == sum(stored[-math.ceil(capacity / n_envs) :])
        if i % 7 == 0:
            check_all(replay, stream)
    check_all(replay, stream)


def test_the_first_rollout_may_begin_amid_an_episode() -> None:
    """The shallow stack has fewer frames to look back for than the deep one."""
    stream = DictStream(2, "repeat", seed=6, max_length=50)
    stream.length[:] = 50
    stream.dict_rollout(10)
    replay = replay_for(stream, 100)
    replay.add(stream.dict_rollout(6))
    assert replay.n_valid == 12
    check_all(replay, stream)


def test_each_part_is_a_column_and_a_stack_is_stored_as_single_frames() -> None:
    stream = DictStream(2, "zeros")
    replay = replay_for(stream, 20)
    rows = stream.dict_rollout(5)
    replay.add(rows)
    saved = replay.rows(3, 8)  # the first three rows hold older frames of the first stacks
    shapes = {name: column.shape[2:] for name, column in saved.items() if "." in name}
    assert shapes == {
        "obs.camera": (1, 3, 2),
        "older.camera": (),
        "obs.radar": (1, 3, 2),
        "older.radar": (),
        "obs.state": (3,),
        "obs.t": (),
    }
    assert isinstance(rows.obs, dict)
    np.testing.assert_array_equal(saved["obs.camera"][..., 0, :, :], rows.obs["camera"][:, :, -1])
    np.testing.assert_array_equal(saved["obs.state"], rows.obs["state"])
    whole = Replay.estimate_bytes(1000, 2, stream.space, ACTIONS)
    single = Replay.estimate_bytes(1000, 2, stream.space, ACTIONS, frame_stacks=stream.DEPTHS)
    assert replay.nbytes == Replay.estimate_bytes(
        20, 2, stream.space, ACTIONS, frame_stacks=stream.DEPTHS
    )
    assert whole - single > 1000 * (3 + 1) * 6 - 1000 * 2 - 2 * 3 * 100


def test_only_the_part_that_is_no_stack_is_refused() -> None:
    stream = DictStream(2, "zeros")
    replay = replay_for(stream, 20)
    rows = stream.dict_rollout(3)
    assert isinstance(rows.obs, dict)
    rows.obs["radar"][2, 1] = np.arange(12).reshape(2, 3, 2)
    with pytest.raises(EnvError, match=r"env 1: .*replay_frame_stack: 2 cannot store"):
        replay.add(rows)


@pytest.mark.parametrize("capacity", [60, 10_000])
def test_saved_rows_rebuild_the_same_replay(capacity: int) -> None:
    stream = DictStream(3, "repeat", seed=8)
    replay, again = replay_for(stream, capacity), replay_for(stream, capacity)
    rng = np.random.default_rng(0)
    for _ in range(30):
        if rng.random() < 0.2:
            stream.restart()
        replay.add(stream.dict_rollout(int(rng.integers(1, 6))))
        start = max(again.n_added, replay.oldest_row)
        again.put_rows(start, replay.rows(start, replay.n_added))
        assert (again.n_added, again.n_valid) == (replay.n_added, replay.n_valid)
    check_all(again, stream)
    other = Replay(capacity, 3, spaces.Dict({"state": stream.space["state"]}), ACTIONS)
    with pytest.raises(RunError, match="Resume with the env"):
        other.put_rows(replay.oldest_row, replay.rows(replay.oldest_row, replay.n_added))


@pytest.mark.parametrize("prioritized", [False, True])
def test_batches_of_a_memory_are_dicts(prioritized: bool) -> None:
    stream = DictStream(2, "repeat", seed=1)
    replay = replay_for(stream, 60)
    memory = Memory(
        replay, n_step=2, gamma=GAMMA, batch_size=8, rng=np.random.default_rng(0),
        prioritized=prioritized,
    )  # fmt: skip
    for _ in range(12):
        memory.add(stream.dict_rollout(7))
        if memory.priorities is not None:
            valid = replay.is_valid(np.arange(replay.n_rows * replay.n_envs))
            np.testing.assert_array_equal(memory.priorities.leaves > 0, valid)
    for sample in memory.batches(5):
        expected = replay.transitions(sample.index, 2, GAMMA)
        assert isinstance(sample.obs, dict)
        assert isinstance(expected.obs, dict)
        for name, part in expected.obs.items():
            np.testing.assert_array_equal(sample.obs[name], part)
            assert len(sample.obs[name]) == 8


def test_a_dict_rollout_takes_what_it_estimates() -> None:
    space = DictStream(2, "zeros").space
    rows = Rollout.allocate(10, 2, space, ACTIONS)
    assert isinstance(rows.obs, dict)
    flags = (rows.terminated, rows.truncated, rows.valid, rows.is_first)
    arrays = (*rows.obs.values(), rows.actions, rows.reward, *flags)
    taken = sum(array.nbytes for array in arrays)
    assert Rollout.estimate_bytes(10, 2, space, ACTIONS) == taken
