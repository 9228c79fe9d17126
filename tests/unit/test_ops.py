"""GAE and returns against numbers worked by hand: gamma .9, lambda .5, V = 10 unless said."""

from functools import partial

import numpy as np
import pytest

from gymnasium_solver.algos import ops
from gymnasium_solver.fast.descent import minibatches

GAMMA, LAMBDA = 0.9, 0.5
CARRY = GAMMA * LAMBDA


def column(*rows):
    """One env, unless a row is a list."""
    values = np.array(rows, np.float32)
    return values[:, None] if values.ndim == 1 else values


def flags(*rows):
    return column(*rows).astype(bool)


def estimated(function, reward, values, terminated=None, truncated=None, valid=None, lam=LAMBDA):
    none = np.zeros(reward.shape, bool)
    terminated = none if terminated is None else terminated
    truncated = none if truncated is None else truncated
    valid = ~none if valid is None else valid
    return function(reward, values, terminated, truncated, valid, GAMMA, lam)


gae = partial(estimated, ops.gae)
lambda_returns = partial(estimated, ops.lambda_returns)  # of the values of the next observations


def test_rollout_edge_bootstraps_and_accumulates():
    got = gae(column(1, 1), column(10, 10, 10))
    delta = 1 + 0.9 * 10 - 10  # 0
    assert got[:, 0] == pytest.approx([delta + CARRY * delta, delta])
    got = gae(column(1, 2), column(10, 4, 8))
    d1 = 2 + 0.9 * 8 - 4  # 5.2
    d0 = 1 + 0.9 * 4 - 10  # -5.4
    assert got[:, 0] == pytest.approx([d0 + CARRY * d1, d1])


def test_termination_does_not_bootstrap():
    got = gae(column(1, 1), column(10, 10, 10), terminated=flags(0, 1))
    d1 = 1 - 10
    assert got[:, 0] == pytest.approx([0 + CARRY * d1, d1])


def test_truncation_bootstraps_from_the_final_observation():
    # V(final observation) = 30 stands at the next row, whatever the next episode is worth.
    got = gae(column(1, 1), column(10, 10, 30), truncated=flags(0, 1))
    d1 = 1 + 0.9 * 30 - 10  # 18
    assert got[:, 0] == pytest.approx([0 + CARRY * d1, d1])


def test_both_flags_mean_termination():
    got = gae(column(1), column(10, 30), terminated=flags(1), truncated=flags(1))
    assert got[:, 0] == pytest.approx([1 - 10])
    got = lambda_returns(column(2), column(8), terminated=flags(1), truncated=flags(1))
    assert got[:, 0] == pytest.approx([2])


@pytest.mark.parametrize("kind", ["terminated", "truncated"])
def test_an_end_stops_the_sum_even_without_a_reset_row_after_it(kind):
    ended = {kind: flags(1, 0)}
    assert gae(column(0, 1000), column(0, 0, 0), **ended)[:, 0].tolist() == [0, 1000]
    first = 1 if kind == "terminated" else 1 + 0.9 * 4
    got = lambda_returns(column(1, 1000), column(4, 0), **ended)
    assert got[:, 0] == pytest.approx([first, 1000])


@pytest.mark.parametrize("kind", ["terminated", "truncated"])
def test_nothing_leaks_over_a_reset_row_in_the_middle(kind):
    # rows: step, last step of the episode, reset row, first step of the next (hugely rewarded)
    reward = column(1, 1, 0, 1000)
    values = column(10, 10, 30, 20, 20)
    valid = flags(1, 1, 0, 1)
    got = gae(reward, values, **{kind: flags(0, 1, 0, 0)}, valid=valid)
    last = 1 + (0.9 * 30 if kind == "truncated" else 0) - 10
    next_first = 1000 + 0.9 * 20 - 20
    assert got[:, 0] == pytest.approx([0 + CARRY * last, last, 0, next_first])


def test_end_of_episode_at_the_rollout_edge():
    got = gae(column(1, 1), column(10, 10, 30), truncated=flags(0, 1))
    same_inside = gae(
        column(1, 1, 0, 5),
        column(10, 10, 30, 7, 7),
        truncated=flags(0, 1, 0, 0),
        valid=flags(1, 1, 0, 1),
    )
    assert got[:, 0] == pytest.approx(same_inside[:2, 0])


def test_envs_out_of_phase_equal_each_alone():
    rng = np.random.default_rng(0)
    T, N = 40, 5
    reward = rng.normal(size=(T, N)).astype(np.float32)
    values = rng.normal(size=(T + 1, N)).astype(np.float32)
    terminated, truncated = rng.random((T, N)) < 0.1, rng.random((T, N)) < 0.1
    valid = np.ones((T, N), bool)
    valid[1:] = ~(terminated | truncated)[:-1]  # reset rows follow each end
    reward[~valid], terminated[~valid], truncated[~valid] = 0, False, False
    together = gae(reward, values, terminated, truncated, valid)
    for n in range(N):
        s = slice(n, n + 1)
        alone = gae(reward[:, s], values[:, s], terminated[:, s], truncated[:, s], valid[:, s])
        np.testing.assert_allclose(together[:, s], alone, rtol=1e-6)


def test_against_the_definition():
    """Sum of (gamma lambda)^k delta_{t+k} to the episode's end, written as the papers do."""
    rng = np.random.default_rng(1)
    T = 12
    reward, values = rng.normal(size=T), rng.normal(size=T + 1)
    end = 7  # truncated at row 7; row 8 is the reset row
    truncated, valid = np.zeros(T, bool), np.ones(T, bool)
    truncated[end], valid[end + 1] = True, False
    got = gae(
        reward[:, None].astype(np.float32),
        values[:, None].astype(np.float32),
        truncated=truncated[:, None],
        valid=valid[:, None],
    )[:, 0]
    for t in range(T):
        if not valid[t]:
            assert got[t] == 0
            continue
        stop = end if t <= end else T - 1
        expected = sum(
            CARRY ** (k - t) * (reward[k] + GAMMA * values[k + 1] - values[k])
            for k in range(t, stop + 1)
        )
        assert got[t] == pytest.approx(expected, abs=1e-5)


def test_a_row_beyond_the_budget_passes_nothing_on():
    got = gae(column(1, 500), column(10, 10, 10), valid=flags(1, 0))
    assert got[:, 0] == pytest.approx([1 + 9 - 10, 0])
    got = lambda_returns(column(1, 500), column(4, 300), valid=flags(1, 0))
    assert got[:, 0] == pytest.approx([1 + 0.9 * 4, 0])


def test_returns_bootstrap_at_the_rollout_edge():
    got = lambda_returns(column(1, 2), column(4, 8))
    last = 2 + 0.9 * 8  # 9.2
    assert got[:, 0] == pytest.approx([1 + 0.9 * (0.5 * 4 + 0.5 * last), last])
    assert got[:, 0] == pytest.approx([6.94, 9.2])


def test_a_termination_does_not_bootstrap_whatever_follows():
    for follows in (1000, np.inf, np.nan):
        got = lambda_returns(column(1, 2), column(4, follows), terminated=flags(0, 1))
        assert got[:, 0] == pytest.approx([1 + 0.9 * (0.5 * 4 + 0.5 * 2), 2])


@pytest.mark.parametrize(
    ("kind", "expected"), [("truncated", [6.94, 9.2, 0, 1009]), ("terminated", [3.7, 2, 0, 1009])]
)
def test_returns_take_nothing_from_the_next_episode(kind, expected):
    # rows: step, last step of the episode, reset row, first step of the next (hugely rewarded)
    reward, next_value = column(1, 2, 500, 1000), column(4, 8, 300, 10)
    got = lambda_returns(reward, next_value, **{kind: flags(0, 1, 0, 0)}, valid=flags(1, 1, 0, 1))
    assert got[:, 0] == pytest.approx(expected)


def test_returns_of_two_envs_out_of_phase():
    # Env 0 is truncated at row 1, env 1 terminates at row 0 and goes on after its reset row.
    got = lambda_returns(
        column([1, 7], [2, 9], [0, 1], [3, 2]),
        column([4, 50], [8, 60], [70, 4], [10, 8]),
        terminated=flags([0, 1], [0, 0], [0, 0], [0, 0]),
        truncated=flags([0, 0], [1, 0], [0, 0], [0, 0]),
        valid=flags([1, 1], [1, 0], [0, 1], [1, 1]),
    )
    assert got[:, 0] == pytest.approx([6.94, 9.2, 0, 3 + 0.9 * 10])
    assert got[:, 1] == pytest.approx([7, 0, 6.94, 9.2])


def test_lambda_0_is_one_step_and_lambda_1_is_the_return():
    reward, next_value = column(1, 2, 0, 5), column(4, 8, 300, 10)
    ends = {"truncated": flags(0, 1, 0, 0), "valid": flags(1, 1, 0, 1)}
    one_step = lambda_returns(reward, next_value, **ends, lam=0.0)
    assert one_step[:, 0] == pytest.approx([1 + 0.9 * 4, 2 + 0.9 * 8, 0, 5 + 0.9 * 10])
    whole = lambda_returns(reward, next_value, **ends, lam=1.0)
    assert whole[:, 0] == pytest.approx([1 + 0.9 * 2 + 0.81 * 8, 2 + 0.9 * 8, 0, 14])


def test_returns_with_state_values_are_gae_plus_the_value():
    rng = np.random.default_rng(0)
    shape = (40, 5)
    reward, values = rng.normal(size=shape), rng.normal(size=(41, 5))
    terminated, truncated = rng.random((2, *shape)) < 0.1
    valid = np.ones(shape, bool)
    valid[1:] = ~(terminated | truncated)[:-1]
    ends = terminated & valid, truncated & valid, valid
    expected = (gae(reward, values, *ends) + values[:-1]) * valid
    got = lambda_returns(reward, values[1:], *ends)
    np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-5)


def test_returns_to_go_and_episode_returns():
    reward = column(1, 2, 0, 4, 8)
    done, valid = flags(0, 1, 0, 0, 0), flags(1, 1, 0, 1, 1)
    to_go = ops.returns_to_go(reward, done, valid, GAMMA)
    assert to_go[:, 0] == pytest.approx([1 + 0.9 * 2, 2, 0, 4 + 0.9 * 8, 8])
    whole = ops.episode_returns(reward, done, valid, GAMMA)
    assert whole[:, 0] == pytest.approx([2.8, 2.8, 0, 11.2, 11.2])


def test_minibatches_cover_everything_once_in_near_equal_parts():
    rng = np.random.default_rng(0)
    parts = [part for part in minibatches(130, 64, rng) if part is not None]
    assert sorted(np.concatenate(parts)) == list(range(130))
    assert [len(p) for p in parts] == [44, 43, 43]
    assert list(minibatches(64, 64, rng)) == [None]


def test_minibatches_of_sizes_that_stay_from_rollout_to_rollout():
    """A CUDA graph holds for one size, and rollouts differ by their reset rows."""
    for n_samples in (256, 250):
        rng = np.random.default_rng(0)
        parts = list(minibatches(n_samples, 64, rng, n_rows=256))
        assert [len(p) for p in parts if p is not None] == [64, 64, 64, 64]
        taken, counts = np.unique(
            np.concatenate([p for p in parts if p is not None]), return_counts=True
        )
        assert list(taken) == list(range(n_samples))
        assert (counts > 1).sum() == 256 - n_samples
    assert list(minibatches(64, 64, rng, n_rows=64)) == [None]
    assert [len(p) for p in minibatches(60, 64, rng, n_rows=64) if p is not None] == [64]


def test_explained_variance_ends_of_the_scale():
    target = np.array([1.0, 2.0, 3.0])
    assert ops.explained_variance(target, target) == 1.0
    assert ops.explained_variance(np.full(3, 2.0), target) == pytest.approx(0.0)
    assert np.isnan(ops.explained_variance(target, np.ones(3)))
