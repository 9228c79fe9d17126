"""Frames skipped: rewards added up, episodes kept apart, the same on every engine that can."""

import gymnasium
import numpy as np
import pytest

from gymnasium_solver.envs.make import make_vector_env
from gymnasium_solver.errors import EnvError
from tests.envs.conftest import COUNTING


def skipping(skip, env_id=COUNTING, mode="sync", n_envs=4, **given):
    wrappers = [{"id": "FrameSkipWrapper", "skip": skip}]
    return make_vector_env(env_id, n_envs, env_wrappers=wrappers, vectorization_mode=mode, **given)


@pytest.mark.parametrize("mode", ["sync", "async"])
def test_an_episode_that_ends_within_a_skip_stays_apart(mode, record):
    """Episodes of 3 to 6 frames, skips of 4: each episode opens at frame 0, loses no frame, and
    ends with its true last observation."""
    env = skipping(4, mode=mode)
    rollout = record(env, 1, 12)
    episode, frame = rollout.next_obs[..., 0], rollout.next_obs[..., 1]
    assert (frame[rollout.is_reset] == 0).all()
    for row in range(4):
        length = int(frame[rollout.done[:, row], row][0])
        assert 3 <= length <= 6
        # frames 4, 8, ... until the end, then the reset
        expected = [*range(4, length, 4), length, 0]
        n = len(expected)
        assert frame[: 2 * n, row].tolist() == (expected * 2)[: 2 * n]
        assert episode[: 2 * n, row].tolist() == [0] * (n - 1) + [1] * n + [2]
        assert rollout.reward[:n, row].tolist() == [*np.diff([0, *expected[:-1]]), 0]
        assert rollout.returns[n - 2, row] == length
        assert rollout.lengths[n - 2, row] == n - 1  # env steps are actions


@pytest.mark.parametrize("limit", [None, 10, 11])
def test_envpool_skips_as_gymnasium_does(limit, record):
    """Both from the frames of a pool that skips nothing: the same actions, each held for three."""
    skipped = record(skipping(3, "CartPole-v1", "envpool", 5, max_episode_steps=limit), 2, 60)
    assert skipped.terminated.any()
    plain = make_vector_env("CartPole-v1", 5, vectorization_mode="envpool", max_episode_steps=limit)
    for row in range(5):
        plain.reset(2)
        obs_row, t = [], 0
        while t < 12:
            action = skipped.actions[t]
            total = 0.0
            for _ in range(1 if skipped.is_reset[t, row] else 3):
                step = plain.step(action)
                total += float(step.reward[row])
                if step.terminated[row] or step.truncated[row]:
                    break
            obs_row.append(step.obs[row])
            assert total == skipped.reward[t, row]
            assert step.terminated[row] == skipped.terminated[t, row]
            assert step.truncated[row] == skipped.truncated[t, row]
            t += 1
        assert np.array_equal(obs_row, skipped.next_obs[:12, row])
    if limit:
        assert (skipped.returns <= limit).all()  # a limit counts frames
        assert (skipped.truncated & ~skipped.terminated).any()
        assert skipped.lengths.max() == 4


def test_a_stochastic_skip_draws_from_its_range_and_the_seed(record):
    lengths = []
    for mode, env_id in (("envpool", "MountainCar-v0"), ("sync", "MountainCar-v0")):
        first = record(skipping([2, 5], env_id, mode, 8), 3, 30)
        again = record(skipping([2, 5], env_id, mode, 8), 3, 30)
        other = record(skipping([2, 5], env_id, mode, 8), 4, 30)
        assert first.same_as(again)
        frames = -first.reward  # each frame pays -1
        assert set(np.unique(frames)) == {2, 3, 4, 5}
        assert not np.array_equal(frames, -other.reward)
        assert len(np.unique(frames[:, 0] - frames[:, 1])) > 1  # envs draw for themselves
        lengths.append(frames.mean())
    assert all(abs(mean - 3.5) < 0.3 for mean in lengths)


def test_auto_says_which_engine_and_why():
    for env_id, engine, why in (
        ("CartPole-v1", "envpool", "EnvPool has this env"),
        (COUNTING, "sync", "its vectorised class cannot skip frames"),
    ):
        env = skipping(2, env_id, "auto")
        assert env.spec.engine == engine
        assert why in env.spec.engine_reason


@pytest.mark.parametrize(
    ("wrappers", "message"),
    [
        ([{"id": "FrameSkipWrapper"}], "missing a required argument: 'skip'"),
        ([{"id": "FrameSkipWrapper", "skip": 0}], r"skip must be a whole number >= 1 or \[low"),
        ([{"id": "FrameSkipWrapper", "skip": [3, 2]}], r"skip must be .* got \[3, 2\]"),
        ([{"id": "FrameSkipWrapper", "skip": [1, 2, 3]}], "skip must be"),
        ([{"id": "FrameSkipWrapper", "skip": 2.5}], "a whole number or a list of whole numbers"),
        ([{"id": "RewardClip"}, {"id": "FrameSkip", "skip": 2}], "must come first.*RewardClip"),
        ([{"id": "FrameSkip", "skip": 2}, {"id": "FrameSkip", "skip": 2}], "first.*, and once"),
    ],
)
def test_bad_skips(wrappers, message):
    with pytest.raises(EnvError, match=message):
        make_vector_env("CartPole-v1", 1, env_wrappers=wrappers)


def test_engines_that_cannot_skip_say_so():
    with pytest.raises(EnvError, match=r"vectorised class cannot skip frames.*Use vectorization"):
        skipping(2, "CartPole-v1", "vector")
    with pytest.raises(EnvError, match="Bandit-v0 cannot skip frames"):
        skipping(2, "Bandit-v0", "auto")


def test_a_time_limit_may_stand_before_it():
    limit = {"id": "TimeLimit", "max_episode_steps": 9}
    skip = {"id": "FrameSkipWrapper", "skip": 2}
    env = make_vector_env("CartPole-v1", 1, env_wrappers=[limit, skip])
    assert env.spec.max_episode_steps == 9
    assert isinstance(env.action_space, gymnasium.spaces.Discrete)


def held(skip, n_steps):
    pytest.importorskip("gymnax", reason="the extra jax is not installed")
    env = make_vector_env("Gymnax/CartPole-v1", 3, frame_options={"frame_skip": skip})
    env.reset(1)
    return [env.step(np.ones(3, np.int64)) for _ in range(n_steps)]


def test_jax_adds_rewards_up_and_an_end_stops_the_frames():
    """Pushed to one side the pole falls after 9 or 10 frames, with a reward of 1 each."""
    single, skipped = held(1, 12), held(4, 4)
    ends = [min(t + 1 for t, step in enumerate(single) if step.is_over[i]) for i in range(3)]
    for i, end in enumerate(ends):
        assert skipped[0].reward[i] == skipped[1].reward[i] == 4.0
        over = next(t for t, step in enumerate(skipped) if step.is_over[i])
        assert skipped[over].episode_return[i] == end
        assert over == (end - 1) // 4
    with pytest.raises(EnvError, match="fixed number of frames"):
        skipping([2, 4], "Gymnax/CartPole-v1", "auto", 1)
