"""Hindsight replay against a stream that counts: every goal names where it was achieved.

Achieved goal (env, episode, t), desired goal (-1, -1, t of the goal): the reward is the step t + 1
of the goal minus that of the achieved one, so that each reward tells both. A step terminates by its
goal where both have the same t."""

from collections import Counter
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

from gymnasium_solver.config.nested import Her
from gymnasium_solver.data.hindsight import Hindsight, with_achieved_goals
from gymnasium_solver.data.memory import Memory
from gymnasium_solver.data.replay import Replay
from gymnasium_solver.data.ring import EpisodeBounds
from gymnasium_solver.data.rollout import Rollout
from gymnasium_solver.errors import ConfigError
from gymnasium_solver.spaces.observations import ACHIEVED, DESIRED, GoalFunctions
from tests.unit.replay_stream import ACTIONS, OBS_SPACE, Stream, batches, plain

GAMMA = 0.5
FAR = 1000.0  # the t of goals that nobody reaches
SPACE = spaces.Dict([("observation", OBS_SPACE), (ACHIEVED, OBS_SPACE), (DESIRED, OBS_SPACE)])


def reward(achieved: np.ndarray, desired: np.ndarray) -> np.ndarray:
    return (desired[:, 2] - achieved[:, 2]).astype(np.float32)


def is_reached(achieved: np.ndarray, desired: np.ndarray) -> np.ndarray:
    reached: np.ndarray = achieved[:, 2] == desired[:, 2]
    return reached


class GoalStream(Stream):
    def goal_rollout(self, n_steps: int, extra: float = 0.0) -> Rollout:
        """The next rows; `extra` is a part of the reward that no goal explains."""
        rows = self.rollout(n_steps)
        counters = plain(rows.obs)
        desired = np.broadcast_to(np.array([-1, -1, FAR], np.float32), counters.shape).copy()
        given = np.where(rows.valid, FAR - counters[1:, :, 2] + extra, 0)
        return replace(
            rows,
            obs={"observation": counters, ACHIEVED: counters.copy(), DESIRED: desired},
            reward=given.astype(np.float32),
        )


def memory_for(
    stream: Stream, capacity: int, her: Her, *, n_step: int = 1, batch_size: int = 64, **more: Any
) -> Memory:
    replay = Replay(capacity, stream.n_envs, SPACE, ACTIONS, has_goals=True)
    goals = more.pop("goals", GoalFunctions(reward, is_reached))
    return Memory(
        replay, n_step=n_step, gamma=GAMMA, batch_size=batch_size,
        rng=np.random.default_rng(more.pop("seed", 0)), hindsight=Hindsight(her, goals), **more,
    )  # fmt: skip


def fill(memory: Memory, stream: GoalStream, n_rollouts: int, seed: int = 4) -> None:
    rng = np.random.default_rng(seed)
    for i in range(n_rollouts):
        if i % 9 == 8:
            stream.restart()
        memory.add(stream.goal_rollout(int(rng.integers(1, 9))))


def check_sample(sample: Any, stream: Stream, strategy: str) -> list[tuple[int, int, int]]:
    """Check one-step transitions; returns (t, t of the goal, final t) of those relabelled."""
    assert isinstance(sample.obs, dict)
    assert isinstance(sample.next_obs, dict)
    np.testing.assert_array_equal(sample.obs[DESIRED], sample.next_obs[DESIRED])
    found = []
    rows = zip(
        sample.obs["observation"].astype(int).tolist(), sample.obs[DESIRED].astype(int).tolist(),
        sample.next_obs[ACHIEVED].astype(int).tolist(), sample.reward, sample.discount,
        strict=True,
    )  # fmt: skip
    for (env, episode, t), goal, achieved, got, discount in rows:
        assert achieved == [env, episode, t + 1]
        assert got == goal[2] - (t + 1)
        key = (env, episode)
        so_far = int(stream.t[env])  # of an episode that is not over
        final, how = stream.endings.get(key, (so_far, "open"))
        if goal[0] == -1:  # as it was
            assert discount == (0 if how == "terminated" and t + 1 == final else GAMMA)
            continue
        assert goal[:2] == [env, episode], "a goal of another episode"
        assert 1 <= goal[2] <= final
        if strategy == "future":
            assert goal[2] > t
        if strategy == "final":
            assert goal[2] == final
        ends = goal[2] == t + 1 or (how == "terminated" and t + 1 == final)
        assert discount == (0 if ends else GAMMA)
        found.append((t, goal[2], final))
    return found


@pytest.mark.sample(6)
@pytest.mark.parametrize("strategy", ["future", "final", "episode"])
@pytest.mark.parametrize("n_envs", [1, 3])
@pytest.mark.parametrize("capacity", [30, 10_000])
def test_every_goal_was_achieved_in_the_same_episode(
    strategy: Any, n_envs: int, capacity: int
) -> None:
    stream = GoalStream(n_envs, seed=2)
    memory = memory_for(stream, capacity, Her(strategy=strategy))
    for i in range(40):
        fill(memory, stream, 9, seed=i)
        for sample in batches(memory, 2):
            check_sample(sample, stream, strategy)


def test_the_share_of_new_goals_and_their_offsets_are_even() -> None:
    stream = GoalStream(1, seed=0, max_length=5)
    memory = memory_for(stream, 10_000, Her(strategy="future", k=4), batch_size=5000)
    memory.add(stream.goal_rollout(2000))
    (sample,) = batches(memory, 1)
    found = check_sample(sample, stream, "future")
    assert len(found) / 5000 == pytest.approx(0.8, abs=0.02)
    offsets = Counter(goal - t for t, goal, final in found if final - t == 4)
    assert sorted(offsets) == [1, 2, 3, 4]
    total = sum(offsets.values())
    assert all(n / total == pytest.approx(0.25, abs=0.06) for n in offsets.values()), offsets


def test_any_goal_of_the_episode_is_drawn() -> None:
    stream = GoalStream(1, seed=0, max_length=5)
    memory = memory_for(stream, 10_000, Her(strategy="episode", k=1), batch_size=5000)
    memory.add(stream.goal_rollout(2000))
    (sample,) = batches(memory, 1)
    found = check_sample(sample, stream, "episode")
    assert len(found) / 5000 == pytest.approx(0.5, abs=0.03)
    goals = Counter(goal for t, goal, final in found if (t, final) == (2, 4))
    assert sorted(goals) == [1, 2, 3, 4]  # not 0: that is where it began


@pytest.mark.parametrize("n_step", [2, 3])
def test_an_n_step_return_ends_where_the_new_goal_is_reached(n_step: int) -> None:
    stream = GoalStream(2, seed=3)
    memory = memory_for(stream, 60, Her(strategy="future"), n_step=n_step)
    n_new = 0
    for i in range(20):
        fill(memory, stream, 3, seed=i)
        for sample in batches(memory, 1):
            assert isinstance(sample.obs, dict)
            assert isinstance(sample.next_obs, dict)
            for b in range(len(sample.reward)):
                env, episode, t = sample.obs["observation"][b].astype(int).tolist()
                goal = sample.obs[DESIRED][b].astype(int).tolist()
                final, how = stream.endings.get((env, episode), (int(stream.t[env]), "open"))
                last = min(t + n_step, final, goal[2])  # t of the observation after the return
                rewards = [goal[2] - s for s in range(t + 1, last + 1)]
                expected = sum(GAMMA**i * r for i, r in enumerate(rewards))
                ends = last == goal[2] or (how == "terminated" and last == final)
                assert sample.reward[b] == pytest.approx(expected)
                assert sample.discount[b] == (0 if ends else GAMMA ** (last - t))
                assert sample.next_obs["observation"][b].astype(int).tolist()[2] == last
                n_new += goal[0] >= 0
    assert n_new > 100


def test_scaling_and_clipping_come_after_the_new_reward() -> None:
    samples = []
    for more in ({}, {"reward_scale": 0.5, "reward_clip": 1.0}):
        stream = GoalStream(1, seed=0)
        memory = memory_for(stream, 1000, Her(strategy="final", k=1000))
        memory.add(stream.goal_rollout(200))
        samples.append(next(batches(memory, 1, **more)))
    raw, scaled = samples
    np.testing.assert_array_equal(scaled.index, raw.index)
    np.testing.assert_allclose(scaled.reward, np.clip(raw.reward * 0.5, -1, 1))


def test_what_does_not_depend_on_the_goal_stays() -> None:
    """A cost in the reward that compute_reward does not know is kept, if it is rare."""
    stream = GoalStream(1, seed=0)
    memory = memory_for(stream, 1000, Her(strategy="final", k=1000), batch_size=500)
    memory.add(stream.goal_rollout(150))
    memory.add(stream.goal_rollout(20, extra=-7))
    memory.add(stream.goal_rollout(150))
    (sample,) = batches(memory, 1)
    assert isinstance(sample.obs, dict)
    assert isinstance(sample.next_obs, dict)
    left = sample.reward - reward(sample.next_obs[ACHIEVED], sample.obs[DESIRED])
    assert sorted(set(left.tolist())) == [-7, 0]


def test_without_compute_terminated_the_ends_stay() -> None:
    stream = GoalStream(1, seed=5)
    memory = memory_for(
        stream, 1000, Her(strategy="future", k=1000), goals=GoalFunctions(reward), batch_size=400
    )
    memory.add(stream.goal_rollout(300))
    (sample,) = batches(memory, 1)
    assert isinstance(sample.obs, dict)
    for (env, episode, t), discount in zip(
        sample.obs["observation"].astype(int).tolist(), sample.discount, strict=True
    ):
        final, how = stream.endings.get((env, episode), (int(stream.t[env]), "open"))
        assert discount == (0 if how == "terminated" and t + 1 == final else GAMMA)


def test_a_reward_that_is_not_compute_rewards_is_refused() -> None:
    stream = GoalStream(1, seed=0)
    memory = memory_for(stream, 1000, Her())
    memory.add(stream.goal_rollout(50, extra=2))
    with pytest.raises(ConfigError, match=r"the reward is not what the env's compute_reward gives"):
        next(batches(memory, 1))


def test_draws_are_those_of_the_seed_and_none_without_hindsight() -> None:
    samples = []
    for seed in (1, 1, 2):
        stream = GoalStream(2, seed=0)
        memory = memory_for(stream, 100, Her(), seed=seed)
        fill(memory, stream, 10)
        samples.append(next(batches(memory, 1)))
    one, same, other = (sample.obs[DESIRED].tolist() for sample in samples)
    assert one == same != other


@pytest.mark.parametrize("capacity", [20, 10_000])
def test_saved_rows_rebuild_the_bounds_of_episodes(capacity: int) -> None:
    stream = GoalStream(2, seed=8)
    memory, again = (memory_for(stream, capacity, Her()) for _ in range(2))
    rng = np.random.default_rng(0)
    for i in range(30):
        if rng.random() < 0.2:
            stream.restart()
        memory.add(stream.goal_rollout(int(rng.integers(1, 6))))
        if i % 4 == 3:  # in pieces, as a run's segments
            start = max(again.replay.n_added, memory.replay.oldest_row)
            again.replay.put_rows(start, memory.replay.rows(start, memory.replay.n_added))
            again.load_state(*memory.state())
            samples = [list(batches(m, 3)) for m in (memory, again)]
            for one, two in zip(*samples, strict=True):
                assert isinstance(one.obs, dict)
                assert isinstance(two.obs, dict)
                np.testing.assert_array_equal(one.obs[DESIRED], two.obs[DESIRED])
                np.testing.assert_array_equal(one.reward, two.reward)


def test_bounds_equal_a_walk_along_the_rows() -> None:
    """Rows in pieces of any length, some longer than the ring, with gaps."""
    rng = np.random.default_rng(1)
    for n_rows in (3, 7, 50):
        bounds, valid = EpisodeBounds(n_rows, 2), np.zeros((0, 2), bool)
        for _ in range(60):
            piece = rng.random((int(rng.integers(1, 9)), 2)) < 0.7
            gap = int(rng.random() < 0.1)
            valid = np.concatenate([valid, np.zeros((gap, 2), bool), piece])
            skipped = max(0, len(piece) - n_rows + 1)
            bounds.add(len(valid) - len(piece) + skipped, piece[skipped:])
            for row in range(max(0, len(valid) - n_rows + 1 + skipped), len(valid)):
                for env in np.flatnonzero(valid[row]):
                    final = row
                    while final < len(valid) and valid[final, env]:
                        final += 1
                    index = np.array([row % n_rows * 2 + env])
                    first, got = bounds.of(index)
                    assert got[0] == final
                    assert valid[first[0] : final, env].all() or skipped
                    assert first[0] <= row


@pytest.mark.parametrize("more", [{"prioritized": True}, {"combined": True}])
def test_other_ways_to_draw_keep_to_the_episode(more: dict[str, Any]) -> None:
    stream = GoalStream(2, seed=6)
    memory = memory_for(stream, 50, Her(), **more)
    for i in range(10):
        fill(memory, stream, 5, seed=i)
        for sample in batches(memory, 2):
            check_sample(sample, stream, "future")
            memory.update_priorities(sample.index, np.ones(len(sample.index)))


def test_statistics_see_achieved_goals_as_desired_ones() -> None:
    obs = {ACHIEVED: np.array([[1.0], [2.0]]), DESIRED: np.array([[9.0], [9.0]])}
    doubled = with_achieved_goals(obs)
    assert isinstance(doubled, dict)
    assert doubled[DESIRED].ravel().tolist() == [9, 9, 1, 2]
    assert doubled[ACHIEVED].ravel().tolist() == [1, 2, 1, 2]
    assert obs[DESIRED].ravel().tolist() == [9, 9]
