"""Frame stacks, alone and in Dict observations: stored as single frames, given back exactly as they
came, or refused."""

import math
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

from gymnasium_solver.data.memory import Memory
from gymnasium_solver.data.replay import Replay
from gymnasium_solver.data.rollout import Rollout
from gymnasium_solver.errors import ConfigError, EnvError, RunError
from gymnasium_solver.spaces.observations import obs_arrays
from tests.unit.replay_stream import ACTIONS, StackStream, batches
from tests.unit.replay_stream import N_FRAMES as K
from tests.unit.test_replay import check_batch

GAMMA = 0.5
either = pytest.mark.parametrize("is_dict", [False, True])


def counters_of(obs: Any, stream: StackStream) -> np.ndarray:
    """The counters that the parts of observations belong to, all of them the same."""
    parts = dict(obs_arrays(obs))
    assert set(parts) == set(stream.frame_stacks) | ({"state", "t"} if "" not in parts else set())
    found = []
    for name, stacker in stream.stackers.items():
        assert parts[name].dtype == np.uint8
        by_stack = {stack.tobytes(): key for key, stack in stacker.stacks.items()}
        assert len(by_stack) == len(stacker.stacks), "the stream's stacks must all differ"
        found.append(np.array([by_stack[stack.tobytes()] for stack in parts[name]], np.float32))
    for other in found[1:]:
        np.testing.assert_array_equal(other, found[0])
    if "state" in parts:
        assert parts["t"].dtype == np.int64
        np.testing.assert_array_equal(parts["state"], found[0])
        np.testing.assert_array_equal(parts["t"], found[0][:, 2])
    return found[0]


def check_all(replay: Replay, stream: StackStream, n_step: int = 3) -> None:
    """Every part of every transition is what the stream gave for its counters."""
    index = np.flatnonzero(replay.is_valid(np.arange(replay.n_rows * replay.n_envs)))
    assert len(index) == replay.n_valid
    batch = replay.transitions(index, n_step, GAMMA)
    obs, next_obs = counters_of(batch.obs, stream), counters_of(batch.next_obs, stream)
    check_batch(batch._replace(obs=obs, next_obs=next_obs), stream, n_step, GAMMA)


@pytest.mark.sample(20)
@pytest.mark.parametrize("padding", ["zeros", "repeat", "goes on"])
@pytest.mark.parametrize("n_envs", [1, 3])
@pytest.mark.parametrize("capacity", [30, 10_000])
@pytest.mark.parametrize("how", ["frames", "mapped", "dict", "dict, whole"])
def test_stacks_come_back_exactly(
    padding: str, n_envs: int, capacity: int, how: str, tmp_path: Any
) -> None:
    stream = StackStream(n_envs, padding, seed=2, is_dict=how.startswith("dict"))
    options: dict[str, Any] = {"directory": str(tmp_path)} if how == "mapped" else {}
    replay = stream.replay(capacity, **options | ({"frame_stacks": None} if "whole" in how else {}))
    rng, stored = np.random.default_rng(4), []
    for i in range(40):
        if i % 9 == 8:
            stream.restart()
            stored.append(0)
        rows = stream.rollout(int(rng.integers(1, 9)))
        replay.add(rows)
        stored.extend(rows.valid.sum(axis=1).tolist())
        assert replay.n_valid == sum(stored[-math.ceil(capacity / n_envs) :])
        if i % 7 == 0:
            check_all(replay, stream)
    check_all(replay, stream)
    assert list(tmp_path.iterdir()) == []  # a memory-mapped file has no name


def test_one_env_without_its_reset_rows() -> None:
    stream = StackStream(1, "repeat", seed=3)
    replay = stream.replay(25)
    for _ in range(200):
        rows = stream.rollout(1)
        if rows.env_steps:
            replay.add(rows)
    check_all(replay, stream)


@pytest.mark.parametrize("channels", [1, 3])
def test_a_rollout_longer_than_the_ring(channels: int) -> None:
    stream = StackStream(2, "zeros", seed=3, channels=channels)
    replay = stream.replay(10)
    for n_steps in (3, 40, 2):
        replay.add(stream.rollout(n_steps))
        check_all(replay, stream)
    assert replay.n_valid > 5


@either
def test_the_first_rollout_may_begin_amid_an_episode(is_dict: bool) -> None:
    """After a resume without the saved replay the first stack holds frames never seen here, and a
    shallow stack has fewer of them to look back for than a deep one."""
    stream = StackStream(2, "repeat", seed=6, max_length=50, is_dict=is_dict)
    stream.length[:] = 50
    stream.rollout(10)
    replay = stream.replay(100)
    replay.add(stream.rollout(6))
    assert replay.n_valid == 12
    check_all(replay, stream)


def test_each_part_is_a_column_and_a_stack_is_stored_as_single_frames() -> None:
    stream = StackStream(2, "zeros", is_dict=True)
    replay = stream.replay(20)
    rows = stream.rollout(5)
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


def test_only_single_frames_are_stored() -> None:
    space = spaces.Box(0, 255, (K, 84, 84), np.uint8)
    whole = Replay.estimate_bytes(1000, 1, space, ACTIONS)
    single = Replay.estimate_bytes(1000, 1, space, ACTIONS, frame_stacks={"": K})
    assert whole > 1000 * 4 * 84 * 84
    assert 1000 * 84 * 84 < single < 1.01 * 1000 * 84 * 84


@either
def test_stacks_that_do_not_overlap_are_refused(is_dict: bool) -> None:
    stream = StackStream(2, "zeros", is_dict=is_dict)
    rows = stream.rollout(3)
    name, n = list(stream.frame_stacks.items())[-1]
    dict(obs_arrays(rows.obs))[name][2, 1] = np.arange(6 * n).reshape(n, 3, 2)
    text = rf"env 1: .*replay_frame_stack: {n} cannot store.* Set replay_frame_stack: 1"
    with pytest.raises(EnvError, match=text):
        stream.replay(20).add(rows)


@pytest.mark.parametrize("shape", [(3, 3, 2), (8, 3, 2), (84, 84, 4), ()])
def test_a_space_without_the_frames_first_is_refused(shape: tuple[int, ...]) -> None:
    space = spaces.Box(0, 255, shape, np.uint8)
    with pytest.raises(ConfigError, match="first axis must be the 4 frames"):
        Replay(10, 1, space, ACTIONS, frame_stacks={"": K})


def test_saved_rows_of_other_parts_are_refused() -> None:
    stream = StackStream(3, "repeat", seed=8, is_dict=True)
    replay = stream.replay(60)
    replay.add(stream.rollout(5))
    assert isinstance(stream.space, spaces.Dict)
    other = Replay(60, 3, spaces.Dict({"state": stream.space["state"]}), ACTIONS)
    with pytest.raises(RunError, match="Resume with the env"):
        other.put_rows(replay.oldest_row, replay.rows(replay.oldest_row, replay.n_added))


@pytest.mark.parametrize("prioritized", [False, True])
def test_batches_of_a_memory_are_dicts(prioritized: bool) -> None:
    stream = StackStream(2, "repeat", seed=1, is_dict=True)
    replay = stream.replay(60)
    memory = Memory(
        replay, n_step=2, gamma=GAMMA, batch_size=8, rng=np.random.default_rng(0),
        prioritized=prioritized,
    )  # fmt: skip
    for _ in range(12):
        memory.add(stream.rollout(7))
        if memory.priorities is not None:
            valid = replay.is_valid(np.arange(replay.n_rows * replay.n_envs))
            np.testing.assert_array_equal(memory.priorities.leaves > 0, valid)
    for sample in batches(memory, 5):
        expected = replay.transitions(sample.index, 2, GAMMA)
        assert isinstance(sample.obs, dict)
        assert isinstance(expected.obs, dict)
        for name, part in expected.obs.items():
            np.testing.assert_array_equal(sample.obs[name], part)
            assert len(sample.obs[name]) == 8


def test_a_dict_rollout_takes_what_it_estimates() -> None:
    space = StackStream(2, "zeros", is_dict=True).space
    rows = Rollout.allocate(10, 2, space, ACTIONS)
    assert isinstance(rows.obs, dict)
    flags = (rows.terminated, rows.truncated, rows.valid, rows.is_first)
    arrays = (*rows.obs.values(), rows.actions, rows.reward, *flags)
    assert Rollout.estimate_bytes(10, 2, space, ACTIONS) == sum(array.nbytes for array in arrays)
