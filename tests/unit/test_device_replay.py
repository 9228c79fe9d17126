"""The replay buffer's copy on a GPU: the same batches, bit for bit, however rows were added."""

import numpy as np
import pytest
import torch
from gymnasium import spaces

from gymnasium_solver.algos.replay_learner import ReplayLearner
from gymnasium_solver.data.device_replay import DeviceReplay, can_copy
from gymnasium_solver.data.memory import Memory
from gymnasium_solver.data.replay import Replay
from gymnasium_solver.errors import ConfigError
from gymnasium_solver.spaces.actions import action_kind
from gymnasium_solver.tree import leaves_of, map_tree
from tests.nets.test_program import (
    CASES,
    config_of,
    learner_of,
    load_config,
    rollouts_of,
    use_graph,
)
from tests.unit.replay_stream import ACTIONS, N_FRAMES, OBS_SPACE, StackStream, Stream, batches

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")


def copy_of(replay: Replay, space=OBS_SPACE, n_step=1, n_new=2, stacks=None) -> DeviceReplay:
    return DeviceReplay(replay, space, stacks or {}, n_step, n_new, DEVICE)


def check_all(copy: DeviceReplay, scale: float = 1.0, clip: float | None = None) -> None:
    """Every transition that can be sampled is the same on the host and in the copy."""
    replay = copy.replay
    index = np.flatnonzero(replay.is_valid(np.arange(replay.n_rows * replay.n_envs)))
    weight = np.linspace(0, 1, len(index), dtype=np.float32)
    request = copy.request(index, weight, 0.97, scale, clip)
    for _ in range(2):  # the second time the rows are there already
        taken = copy.taken(map_tree(lambda a: torch.from_numpy(a).to(DEVICE), request))
        expected = replay.transitions(index, copy.n_step, 0.97, scale, clip)
        for name, value in expected._asdict().items():
            pairs = zip(leaves_of(getattr(taken, name)), leaves_of(value), strict=True)
            for a, b in pairs:
                assert a.cpu().numpy().dtype == b.dtype, name
                np.testing.assert_array_equal(a.cpu().numpy(), b, err_msg=name)
        np.testing.assert_array_equal(taken.weight.cpu().numpy(), weight)


@pytest.mark.parametrize("n_step", [1, 3])
@pytest.mark.parametrize("n_envs", [1, 3])
@pytest.mark.parametrize("capacity", [30, 10_000])
def test_batches_are_those_of_the_host(n_step, n_envs, capacity):
    stream, rng = Stream(n_envs, seed=1), np.random.default_rng(2)
    replay = Replay(capacity, n_envs, OBS_SPACE, ACTIONS)
    copy = copy_of(replay, n_step=n_step)
    for i in range(40):
        if i % 9 == 8:
            stream.restart()  # a break: no return goes on across it
        replay.add(stream.rollout(int(rng.integers(1, 9))))
        if rng.random() < 0.6:  # else more rows come together
            check_all(copy, *((0.3, 1.0) if i % 2 else ()))
    check_all(copy)


@pytest.mark.parametrize("padding", ["zeros", "repeat"])
@pytest.mark.parametrize("capacity", [30, 10_000])
def test_frame_stacks_are_rebuilt(padding, capacity):
    stream, rng = StackStream(2, padding, seed=3), np.random.default_rng(4)
    stacks = {"": N_FRAMES}
    replay = Replay(capacity, 2, stream.space, ACTIONS, frame_stacks=stacks)
    copy = copy_of(replay, stream.space, n_step=2, stacks=stacks)
    for i in range(20):
        if i % 9 == 8:
            stream.restart()
        replay.add(stream.rollout(int(rng.integers(1, 9))))
        check_all(copy)


def test_rows_of_a_checkpoint_are_copied():
    stream = Stream(2, seed=5)
    replay, resumed = (Replay(40, 2, OBS_SPACE, ACTIONS) for _ in range(2))
    copy = copy_of(resumed)
    resumed.add(Stream(2, seed=6).rollout(30))
    check_all(copy)
    for _ in range(6):
        replay.add(stream.rollout(10))
    start = replay.oldest_row
    resumed.put_rows(start, replay.rows(start, replay.n_added))
    check_all(copy)


def test_draws_are_those_of_the_batches():
    for prioritized, combined in ((False, False), (True, False), (False, True)):
        memories = []
        for _ in range(2):
            replay, rng = Replay(500, 2, OBS_SPACE, ACTIONS), np.random.default_rng(8)
            memory = Memory(
                replay, n_step=1, gamma=0.9, batch_size=8, rng=rng,
                prioritized=prioritized, combined=combined,
            )  # fmt: skip
            memory.add(Stream(2, seed=7).rollout(60))
            memories.append(memory)
        whole, drawn = memories
        for a, b in zip(batches(whole, 5, 0.4), drawn.draws(5, 0.4), strict=True):
            np.testing.assert_array_equal(a.index, b.index)
            np.testing.assert_array_equal(a.weight, b.weight)
        assert whole.rng.bit_generator.state == drawn.rng.bit_generator.state


def test_what_a_gpu_cannot_hold_stays_on_the_host():
    many = action_kind(spaces.Discrete(1_000))  # stored as uint16
    assert not can_copy(Replay(10, 1, OBS_SPACE, many))
    assert not can_copy(Replay(10, 1, OBS_SPACE, ACTIONS, has_goals=True))
    assert not can_copy(Replay(10, 1, OBS_SPACE, ACTIONS, carry={"core": np.zeros((1, 4))}))
    assert can_copy(Replay(10, 1, OBS_SPACE, ACTIONS))


# Sequences, and the carry stored with them, stay on the host.
@pytest.mark.parametrize("name", [name for name in CASES if name != "dreamerv3"])
def test_training_from_the_copy_is_training_from_the_host(name, monkeypatch):
    config = config_of(name)
    rollouts, learners = rollouts_of(config), []
    for copies in (False, True):
        monkeypatch.setattr(ReplayLearner, "_copies_replay", copies)
        learner = use_graph(learner_of(config))
        for i, rollout in enumerate(rollouts):
            learner.update(rollout, 100 + 2 * i, 10_000)
        assert (learner.device_replay is not None) == copies
        assert learner.program.failure is None
        assert learner.program._launches
        learners.append(learner)
    for a, b in zip(learners[0].learnt_weights(), learners[1].learnt_weights(), strict=True):
        # The batches are equal; products differ in the last bits with the alignment of memory.
        assert torch.allclose(a, b, rtol=1e-4, atol=1e-6)


def test_what_needs_the_host_is_refused():
    with pytest.raises(ConfigError, match="replay_on_gpu or her"):
        load_config("Pendulum-v1:sac").replace(her=True, replay_on_gpu=True)
    with pytest.raises(ConfigError, match="replay_on_gpu or recurrent"):
        load_config("CartPole-v1:dqn").replace(recurrent="gru", replay_on_gpu=True)
