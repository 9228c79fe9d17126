"""Replay: n-step transitions by hand, and that no chain ever leaves its episode."""

import math
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

from gymnasium_solver.data.replay import Replay, Transitions
from gymnasium_solver.data.rollout import Rollout
from gymnasium_solver.errors import ConfigError
from gymnasium_solver.spaces.actions import action_kind
from tests.unit.replay_stream import ACTIONS, OBS_SPACE, Stream, plain

GAMMA = 0.5
SCALAR = spaces.Box(-1e6, 1e6, (1,), np.float32)


def rollout(obs, reward=None, terminated=(), truncated=(), invalid=(), is_restart=False):
    """N = 1. `obs` has one more than there are rows; flags name rows; rewards are 1, 2, 4, ..."""
    n = len(obs) - 1
    rows = Rollout.allocate(n, 1, SCALAR, ACTIONS)
    plain(rows.obs)[:, 0, 0] = obs
    rows.actions[:, 0] = np.arange(n) % 3
    rows.reward[:, 0] = 2.0 ** np.arange(n) if reward is None else reward
    rows.terminated[list(terminated)] = True
    rows.truncated[list(truncated)] = True
    rows.valid[:] = True
    rows.valid[list(invalid)] = False
    rows.is_restart = is_restart
    return rows


def replay_of(*rollouts, capacity=100):
    replay = Replay(capacity, 1, SCALAR, ACTIONS)
    for rows in rollouts:
        replay.add(rows)
    return replay


def got(replay, rows, n_step, **options):
    """(obs, reward, discount, next_obs) of absolute rows of env 0, as lists."""
    index = np.array([replay.leaves(row, row + 1)[0] for row in rows])
    assert replay.is_valid(index).all()
    batch = replay.transitions(index, n_step, GAMMA, **options)
    columns = batch.obs[:, 0], batch.reward, batch.discount, batch.next_obs[:, 0]
    return [column.tolist() for column in columns]


# -- by hand ------------------------------------------------------------------------------------


# Rollouts; then rows, n_step, and what is expected of them: obs, reward, discount, next_obs.
TWO = [10, 11, 12, 20, 21]  # 10 -1-> 11 -2-> 12 (over), a reset row that holds 12, 20 -8-> 21
BY_HAND: dict[str, Any] = {
    "one step": (
        [rollout([10, 11, 12, 13])],
        ([0, 1, 2], 1, [[10, 11, 12], [1, 2, 4], [0.5] * 3, [11, 12, 13]]),
    ),
    "three steps end at the head with fewer": (
        [rollout([10, 11, 12, 13, 14])],  # rewards 1 2 4 8
        ([0, 1], 3, [[10, 11], [1 + 1 + 1, 2 + 2 + 2], [0.125] * 2, [13, 14]]),
        ([2, 3], 3, [[12, 13], [4 + 0.5 * 8, 8], [0.25, 0.5], [14, 14]]),
    ),
    "termination ends the chain and does not bootstrap": (
        [rollout(TWO, terminated=[1], invalid=[2])],
        ([0, 1, 3], 1, [[10, 11, 20], [1, 2, 8], [0.5, 0, 0.5], [11, 12, 21]]),
        ([0, 1, 3], 3, [[10, 11, 20], [1 + 0.5 * 2, 2, 8], [0, 0, 0.5], [12, 12, 21]]),
    ),
    "truncation bootstraps from the true final observation": (
        [rollout(TWO, truncated=[1], invalid=[2])],
        ([0, 1, 3], 1, [[10, 11, 20], [1, 2, 8], [0.5, 0.5, 0.5], [11, 12, 21]]),
        ([0, 1, 3], 3, [[10, 11, 20], [1 + 0.5 * 2, 2, 8], [0.25, 0.5, 0.5], [12, 12, 21]]),
    ),
    "both flags mean termination": (
        [rollout([10, 11, 12], terminated=[1], truncated=[1])],
        ([0, 1], 3, [[10, 11], [2, 2], [0, 0], [12, 12]]),
    ),
    # Rows 0 and 1, the old head (row 2, not valid, holds 12), then 50 -1-> 51.
    "a restart breaks the chain": (
        [rollout([10, 11, 12]), rollout([50, 51], is_restart=True)],
        ([0, 1, 3], 3, [[10, 11, 50], [2, 2, 1], [0.25, 0.5, 0.5], [12, 12, 51]]),
    ),
    # With one env and rollouts of one row, the collector leaves out the row that only resets.
    "a reset row that was left out after a termination": (
        [rollout([10, 11], terminated=[0]), rollout([20, 21])],
        ([0, 2], 3, [[10, 20], [1, 1], [0, 0.5], [11, 21]]),
    ),
    "a reset row that was left out after a truncation": (
        [rollout([10, 11], truncated=[0]), rollout([20, 21])],
        ([0, 2], 3, [[10, 20], [1, 1], [0.5, 0.5], [11, 21]]),
    ),
    "a row beyond the budget is no step and ends the chain": (
        [rollout([10, 11, 12], invalid=[1]), rollout([12, 13])],
        ([0, 2], 3, [[10, 12], [1, 1], [0.5, 0.5], [11, 13]]),
    ),
    "rewards after the chain do not leak even as NaN": (
        [rollout([10, 11, 20, 21], reward=[1, np.nan, 2], terminated=[0], invalid=[1])],
        ([0, 2], 3, [[10, 20], [1, 2], [0, 0.5], [11, 21]]),
    ),
}


@pytest.mark.parametrize("name", BY_HAND)
def test_by_hand(name):
    rollouts, *cases = BY_HAND[name]
    replay = replay_of(*rollouts)
    for rows, n_step, expected in cases:
        assert got(replay, rows, n_step) == expected
    assert replay.n_valid == len({row for rows, _, _ in cases for row in rows})


def test_across_the_wrap():
    # 4 places and the head: rows 3, 4, 5, 6 of 0 .. 6 stay, in slots 3, 4, 0, 1.
    replay = replay_of(rollout([10, 11, 12, 13, 14]), rollout([14, 15, 16, 17]), capacity=4)
    assert replay.n_rows == 5
    assert (replay.oldest_row, replay.n_added, replay.n_valid) == (3, 7, 4)
    assert got(replay, [3, 4, 5, 6], 3) == [  # rewards 8, 1, 2, 4
        [13, 14, 15, 16],
        [8 + 0.5 * 1 + 0.25 * 2, 1 + 0.5 * 2 + 0.25 * 4, 2 + 0.5 * 4, 4],
        [0.125, 0.125, 0.25, 0.5],
        [16, 17, 17, 17],
    ]


def test_a_restart_of_an_empty_ring_takes_no_row():
    assert replay_of(rollout([10, 11], is_restart=True)).n_added == 1


def test_a_chain_grows_when_the_head_becomes_a_row():
    replay = replay_of(rollout([10, 11, 12]))
    assert got(replay, [1], 3) == [[11], [2], [0.5], [12]]
    replay.add(rollout([12, 13], reward=[4]))
    assert got(replay, [1], 3) == [[11], [2 + 0.5 * 4], [0.25], [13]]


def test_the_head_never_joins_the_oldest_row():
    # The head lies in the slot before the oldest row: a long chain must not run on into it.
    replay = replay_of(rollout(range(10, 20)), capacity=3)
    _obs, reward, discount, next_obs = got(replay, [6, 7, 8], 50)
    assert next_obs == [19, 19, 19]
    assert discount == [0.125, 0.25, 0.5]
    assert reward == [64 + 64 + 64, 128 + 128, 256]


def test_a_life_lost_at_the_end_of_a_rollout_breaks_no_chain_of_the_other_envs():
    """The game goes on in the next row: no reset row follows, and none is missing."""

    def rows(obs, reward, lost=()):
        made = Rollout.allocate(2, 2, SCALAR, ACTIONS)
        plain(made.obs)[:, :, 0] = np.transpose(obs)
        made.reward[:], made.valid[:] = reward, True
        made.terminated[list(lost), 0] = True
        return made

    replay = Replay(20, 2, SCALAR, ACTIONS)
    replay.add(rows([[10, 11, 12], [50, 51, 52]], [[1, 10], [2, 20]], lost=[1]))
    replay.add(rows([[12, 13, 14], [52, 53, 54]], [[4, 40], [8, 80]]))
    assert (replay.n_added, replay.n_valid) == (4, 8)
    batch = replay.transitions(np.arange(8), 3, GAMMA)
    assert batch.reward[::2].tolist() == [2, 2, 8, 8], "the life ends the return of env 0"
    assert batch.discount[::2].tolist() == [0, 0, 0.25, 0.5]
    assert batch.reward[1::2].tolist() == [10 + 10 + 10, 20 + 20 + 20, 40 + 40, 80]
    assert batch.discount[1::2].tolist() == [0.125, 0.125, 0.25, 0.5]
    assert plain(batch.next_obs)[1::2, 0].tolist() == [53, 54, 54, 54]


def test_two_envs_out_of_phase():
    rows = Rollout.allocate(4, 2, SCALAR, ACTIONS)
    plain(rows.obs)[:, 0, 0] = [10, 11, 12, 20, 21]  # ends at row 1, row 2 resets
    plain(rows.obs)[:, 1, 0] = [50, 51, 52, 53, 54]  # ends at row 3
    rows.reward[:] = [[1, 10], [2, 20], [0, 40], [8, 80]]
    rows.valid[:] = True
    rows.valid[2, 0] = False
    rows.terminated[1, 0] = rows.truncated[3, 1] = True
    replay = Replay(8, 2, SCALAR, ACTIONS)
    replay.add(rows)
    assert replay.n_valid == 7
    index = np.array([0, 1, 3, 2, 6, 7])  # slot * 2 + env
    batch = replay.transitions(index, 3, GAMMA)
    assert plain(batch.obs)[:, 0].tolist() == [10, 50, 51, 11, 20, 53]
    assert batch.reward.tolist() == [2, 10 + 10 + 10, 20 + 20 + 20, 2, 8, 80]
    assert batch.discount.tolist() == [0, 0.125, 0.125, 0, 0.5, 0.5]
    assert plain(batch.next_obs)[:, 0].tolist() == [12, 53, 54, 12, 21, 54]


def test_a_rollout_longer_than_the_ring_leaves_its_newest_rows():
    replay = replay_of(rollout([10, 11]), rollout(range(11, 31)), capacity=4)
    assert (replay.oldest_row, replay.n_added, replay.n_valid) == (16, 20, 4)
    obs, _reward, _discount, next_obs = got(replay, [16, 17, 18, 19], 1)
    assert (obs, next_obs) == ([26, 27, 28, 29], [27, 28, 29, 30])


def test_reward_is_scaled_then_clipped_then_summed():
    replay = replay_of(rollout([10, 11, 12, 13], reward=[1, -4, 4]))
    # times .5: .5, -2, 2; clipped to 1: .5, -1, 1
    assert got(replay, [0], 3, reward_scale=0.5, reward_clip=1.0)[1] == [0.5 - 0.5 + 0.25]
    assert got(replay, [1], 1, reward_scale=0.5, reward_clip=1.0)[1] == [-1]
    assert got(replay, [1], 1, reward_scale=0.5)[1] == [-2]
    assert got(replay, [1], 1)[1] == [-4]  # what is stored did not change


def test_next_mask_is_that_of_the_observation_bootstrapped_from():
    rows = rollout([10, 11, 12, 20, 21], truncated=[1], invalid=[2])
    rows.mask = np.zeros((5, 1, 3), bool)
    for t, legal in enumerate([0, 1, 2, 0, 1]):
        rows.mask[t, 0, legal] = True
    replay = Replay(10, 1, SCALAR, ACTIONS, has_masks=True)
    replay.add(rows)
    for n_step, expected in ((1, [1, 2, 1]), (3, [2, 2, 1])):
        mask = replay.transitions(np.array([0, 1, 3]), n_step, GAMMA).next_mask
        assert mask is not None
        assert mask.dtype == bool
        assert (mask.sum(axis=1) == 1).all()
        assert mask.argmax(axis=1).tolist() == expected
    with pytest.raises(ValueError, match="no action mask"):
        replay.add(rollout([21, 22]))


# -- types --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "space",
    [
        spaces.Box(-1, 1, (3,), np.float32),
        spaces.Box(0, 255, (2, 2), np.uint8),
        spaces.Discrete(500),
        spaces.MultiBinary(4),
    ],
)
def test_observations_keep_their_dtype_and_shape(space):
    rows = Rollout.allocate(2, 2, space, ACTIONS)
    rows.valid[:] = True
    sampled = [space.sample() for _ in range(6)]
    given = plain(rows.obs)
    given[:] = np.stack(sampled).reshape(given.shape)
    replay = Replay(10, 2, space, ACTIONS)
    replay.add(rows)
    batch = replay.transitions(np.arange(4), 1, GAMMA)
    for obs, expected in (
        (plain(batch.obs), given[:-1]),
        (plain(batch.next_obs), given[1:]),
    ):
        assert obs.dtype == space.dtype
        np.testing.assert_array_equal(obs, expected.reshape(obs.shape))


@pytest.mark.parametrize("n", [2, 256, 257, 70_000])
@pytest.mark.parametrize("start", [0, -3, 5])
def test_discrete_actions_come_back_as_int64(n, start):
    kind = action_kind(spaces.Discrete(n, start=start))
    rows = Rollout.allocate(4, 1, SCALAR, kind)
    actions = [0, n - 1, start, start + n - 1]
    rows.actions[:, 0], rows.valid[:] = actions, True
    replay = Replay(10, 1, SCALAR, kind)
    replay.add(rows)
    batch = replay.transitions(np.arange(4), 1, GAMMA)
    assert batch.actions.dtype == np.int64
    assert batch.actions.tolist() == actions


def test_box_actions_and_the_dtypes_of_the_rest():
    kind = action_kind(spaces.Box(-1, 1, (2, 3), np.float32))
    rows = Rollout.allocate(3, 1, SCALAR, kind)
    rows.valid[:] = True
    rows.actions[:] = np.arange(18).reshape(3, 1, 6)
    replay = Replay(10, 1, SCALAR, kind)
    replay.add(rows)
    for n_step in (1, 3):
        batch = replay.transitions(np.arange(3), n_step, 0.99, 0.1, 1.0)
        np.testing.assert_array_equal(batch.actions, np.arange(18, dtype=np.float32).reshape(3, 6))
        assert {a.dtype for a in (batch.actions, batch.reward, batch.discount)} == {
            np.dtype(np.float32)
        }


# -- sampling -----------------------------------------------------------------------------------


def test_an_empty_replay_says_so():
    replay = Replay(10, 1, SCALAR, ACTIONS)
    with pytest.raises(ConfigError, match="no transitions to sample"):
        replay.sample(4, np.random.default_rng(0))
    replay.add(rollout([10, 11], invalid=[0]))
    with pytest.raises(ConfigError, match="no transitions to sample"):
        replay.sample(4, np.random.default_rng(0))


def test_uniform_over_the_valid_ones_alone():
    """Episodes of one step: every second row is a reset row."""
    n = 41
    even = list(range(0, n, 2))
    odd = list(range(1, n, 2))
    replay = replay_of(rollout(range(n + 1), reward=[1] * n, terminated=even, invalid=odd))
    assert replay.n_valid == 21
    draws = replay.sample(21_000, np.random.default_rng(3))
    assert len(draws) == 21_000
    counts = np.bincount(draws, minlength=n)
    assert not counts[odd].any()
    chi_square = ((counts[even] - 1000) ** 2 / 1000).sum()
    assert chi_square < 45.3  # 20 degrees of freedom, p = .001


def test_few_valid_rows_among_many_are_found():
    n = 5000
    rows = rollout(range(n + 1), reward=[1] * n, invalid=list(range(n)))
    rows.valid[1234] = True
    replay = replay_of(rows, capacity=n)
    assert (replay.sample(1000, np.random.default_rng(0)) == 1234).all()


def test_the_same_rng_gives_the_same_draws():
    replay = replay_of(rollout([10, 11, 12, 20, 21], truncated=[1], invalid=[2]))
    a, b = (replay.sample(500, np.random.default_rng(7)) for _ in range(2))
    np.testing.assert_array_equal(a, b)
    assert set(a.tolist()) == {0, 1, 3}


def test_newest_skips_rows_without_a_step():
    replay = replay_of(rollout([10, 11, 12, 20], truncated=[1], invalid=[2]))
    assert replay.newest().tolist() == [1]
    assert Replay(10, 1, SCALAR, ACTIONS).newest().tolist() == []


# -- every chain stays in its episode -----------------------------------------------------------


def check_batch(batch: Transitions, stream: Stream, n_step: int, gamma: float) -> None:
    """Against the stream's own account of each episode."""
    rows = zip(batch.obs, batch.actions, batch.reward, batch.discount, batch.next_obs, strict=True)
    for obs, action, reward, discount, next_obs in rows:
        env, episode, t = (int(x) for x in obs)
        end, how = stream.endings.get((env, episode), (int(stream.t[env]), "running"))
        m = min(n_step, end - t)
        assert m >= 1, "the final observation of an episode is no transition"
        assert next_obs.tolist() == [env, episode, t + m]
        assert action == t % 3
        assert reward == np.float32(sum(gamma**j * (t + j + 1) for j in range(m)))
        is_over = t + m == end and how == "terminated"
        assert discount == (0 if is_over else np.float32(gamma**m))


@pytest.mark.parametrize("n_envs", [1, 3])
@pytest.mark.parametrize("n_step", [1, 3, 5])
@pytest.mark.parametrize("capacity", [40, 10_000])
def test_no_chain_leaves_its_episode(n_envs, n_step, capacity):
    stream = Stream(n_envs, seed=n_step + n_envs)
    replay = Replay(capacity, n_envs, OBS_SPACE, ACTIONS)
    rng = np.random.default_rng(1)
    stored: list[int] = []  # valid steps a row, all rows ever
    for _ in range(60):
        if rng.random() < 0.1:
            stream.restart()
            if stored:
                stored.append(0)  # the head it stepped over
        rows = stream.rollout(int(rng.integers(1, 12)))
        stored.extend(rows.valid.sum(axis=1).tolist())
        replay.add(rows)
        assert replay.n_added == len(stored)
        n_kept = math.ceil(capacity / n_envs)
        assert replay.n_valid == sum(stored[-n_kept:])  # every env step stored can be sampled
        check_batch(
            replay.transitions(replay.sample(64, rng), n_step, GAMMA), stream, n_step, GAMMA
        )
    everything = np.flatnonzero(replay.is_valid(np.arange(replay.n_rows * n_envs)))
    assert len(everything) == replay.n_valid
    check_batch(replay.transitions(everything, n_step, GAMMA), stream, n_step, GAMMA)


def test_rows_of_one_env_without_their_reset_rows():
    """As above for N = 1, T = 1, where the collector leaves the reset rows out."""
    stream = Stream(1, seed=5)
    replay = Replay(30, 1, OBS_SPACE, ACTIONS)
    rng = np.random.default_rng(1)
    for _ in range(300):
        rows = stream.rollout(1)
        if not rows.env_steps:
            continue
        replay.add(rows)
        check_batch(replay.transitions(replay.sample(8, rng), 3, GAMMA), stream, 3, GAMMA)


def test_the_wrong_number_of_envs_is_refused():
    replay = Replay(10, 3, OBS_SPACE, ACTIONS)
    with pytest.raises(ValueError, match="1 envs, expected 3"):
        replay.add(Stream(1).rollout(2))


def test_sizes_below_one_are_refused():
    with pytest.raises(ConfigError, match="0 transitions, 1 envs"):
        Replay(0, 1, OBS_SPACE, ACTIONS)


def test_capacity_rounds_up_to_whole_rows():
    replay = Replay(10, 3, OBS_SPACE, ACTIONS)
    assert replay.n_rows == 4 + 1
    stream = Stream(3, max_length=1000)
    stream.length[:] = 1000
    replay.add(stream.rollout(50))
    assert replay.n_valid == 12
