"""Frame stacks: stored as single frames, given back exactly as they came, or refused."""

import math

import numpy as np
import pytest
from gymnasium import spaces

from gymnasium_solver.data.replay import Replay
from gymnasium_solver.data.rollout import Rollout
from gymnasium_solver.errors import ConfigError, EnvError
from tests.unit.replay_stream import ACTIONS, FrameStream, plain
from tests.unit.replay_stream import N_FRAMES as K


def check_all(replay, stream, n_step=3):
    """Every sampleable transition's stacks are those the stream gave for its counters."""
    index = np.flatnonzero(replay.is_valid(np.arange(replay.n_rows * replay.n_envs)))
    assert len(index) == replay.n_valid
    batch = replay.transitions(index, n_step, 0.5)
    assert batch.obs.dtype == np.uint8
    by_stack = {stack.tobytes(): key for key, stack in stream.stacks.items()}
    assert len(by_stack) == len(stream.stacks), "the stream's stacks must all differ"
    for obs, next_obs, reward in zip(batch.obs, batch.next_obs, batch.reward, strict=True):
        env, episode, t = by_stack[obs.tobytes()]
        end, _ = stream.endings.get((env, episode), (int(stream.t[env]), ""))
        m = min(n_step, end - t)
        assert by_stack[next_obs.tobytes()] == (env, episode, t + m)
        assert reward == sum(0.5**j * (t + j + 1) for j in range(m))


@pytest.mark.parametrize("padding", ["zeros", "repeat", "goes on"])
@pytest.mark.parametrize("n_envs", [1, 3])
@pytest.mark.parametrize("capacity", [30, 10_000])
@pytest.mark.parametrize("mapped", [False, True])
def test_stacks_come_back_exactly(padding, n_envs, capacity, mapped, tmp_path):
    stream = FrameStream(n_envs, padding, seed=2)
    directory = str(tmp_path) if mapped else None
    replay = Replay(
        capacity, n_envs, stream.space, ACTIONS, frame_stacks={"": K}, directory=directory
    )
    rng = np.random.default_rng(4)
    n_kept, stored = math.ceil(capacity / n_envs), []
    for i in range(40):
        if i % 9 == 8:
            stream.restart()
            stored.append(0)
        rows = stream.frames_rollout(int(rng.integers(1, 9)))
        replay.add(rows)
        stored.extend(rows.valid.sum(axis=1).tolist())
        assert replay.n_valid == sum(stored[-n_kept:])
        if i % 5 == 0:
            check_all(replay, stream)
    check_all(replay, stream)
    assert list(tmp_path.iterdir()) == []  # a memory-mapped file has no name


def test_one_env_without_its_reset_rows():
    stream = FrameStream(1, "repeat", seed=3)
    replay = Replay(25, 1, stream.space, ACTIONS, frame_stacks={"": K})
    for _ in range(200):
        rows = stream.frames_rollout(1)
        if rows.env_steps:
            replay.add(rows)
    check_all(replay, stream)


def test_a_rollout_longer_than_the_ring():
    stream = FrameStream(2, "zeros", seed=3)
    replay = Replay(10, 2, stream.space, ACTIONS, frame_stacks={"": K})
    for n_steps in (3, 40, 2):
        replay.add(stream.frames_rollout(n_steps))
        check_all(replay, stream)
    assert replay.n_valid > 5


def test_the_first_rollout_may_begin_amid_an_episode():
    """After a resume without the saved replay the first stack holds frames never seen here."""
    stream = FrameStream(2, "repeat", seed=6, max_length=50)
    stream.length[:] = 50
    stream.frames_rollout(10)
    replay = Replay(100, 2, stream.space, ACTIONS, frame_stacks={"": K})
    replay.add(stream.frames_rollout(6))
    assert replay.n_valid == 12
    check_all(replay, stream)


def test_frames_of_several_channels():
    stream = FrameStream(2, "zeros", seed=3, channels=3)
    replay = Replay(30, 2, stream.space, ACTIONS, frame_stacks={"": K})
    for _ in range(12):
        replay.add(stream.frames_rollout(5))
    check_all(replay, stream)


def test_only_single_frames_are_stored():
    space = spaces.Box(0, 255, (K, 84, 84), np.uint8)
    whole = Replay.estimate_bytes(1000, 1, space, ACTIONS)
    single = Replay.estimate_bytes(1000, 1, space, ACTIONS, frame_stacks={"": K})
    assert whole > 1000 * 4 * 84 * 84
    assert 1000 * 84 * 84 < single < 1.01 * 1000 * 84 * 84


def test_stacks_that_do_not_overlap_are_refused():
    space = spaces.Box(0, 255, (K, 3, 2), np.uint8)
    rows = Rollout.allocate(3, 2, space, ACTIONS)
    rows.valid[:] = True
    plain(rows.obs)[:] = 9
    plain(rows.obs)[2, 1] = np.arange(24).reshape(4, 3, 2)
    replay = Replay(10, 2, space, ACTIONS, frame_stacks={"": K})
    with pytest.raises(EnvError, match=r"env 1: .*Set replay_frame_stack: 1"):
        replay.add(rows)


@pytest.mark.parametrize("shape", [(3, 3, 2), (8, 3, 2), (84, 84, 4), ()])
def test_a_space_without_the_frames_first_is_refused(shape):
    space = spaces.Box(0, 255, shape, np.uint8)
    with pytest.raises(ConfigError, match="first axis must be the 4 frames"):
        Replay(10, 1, space, ACTIONS, frame_stacks={"": K})
