"""The sum tree and proportional sampling: probabilities, weights, duplicates, and zeros."""

import numpy as np
import pytest

from gymnasium_solver.data.priorities import Priorities
from gymnasium_solver.errors import DivergedError

SIZES = [1, 2, 31, 32, 33, 1000, 5000, 140_000]  # 140,000 has one level more


def tree(n_leaves, leaves=None, alpha=1.0, eps=0.0):
    priorities = Priorities(n_leaves, alpha=alpha, eps=eps)
    if leaves is not None:
        priorities.load(np.asarray(leaves, np.float64), 1.0)
    return priorities


class Points:
    """Stands in for a generator whose every draw is the same point of its share."""

    def __init__(self, point):
        self.point = point

    def random(self, n):
        return np.full(n, self.point)


def sums_of(priorities):
    """All levels, to compare bit for bit."""
    return [level.copy() for level in priorities._levels]


def assert_built_from_its_leaves(priorities):
    fresh = tree(priorities.n_leaves, priorities.leaves)
    for ours, theirs in zip(sums_of(priorities), sums_of(fresh), strict=True):
        np.testing.assert_array_equal(ours, theirs)


# -- by hand ------------------------------------------------------------------------------------


def test_stratified_draws_by_hand():
    # running sums 1, 1, 4, 10: the middles of five shares of 2 are 1, 3, 5, 7, 9
    priorities = tree(4, [1, 0, 3, 6])
    assert priorities.sample(5, Points(0.5)).tolist() == [2, 2, 3, 3, 3]
    assert priorities.sample(10, Points(0.0)).tolist() == [0, 2, 2, 2, 3, 3, 3, 3, 3, 3]


def test_priorities_and_weights_by_hand():
    priorities = tree(4, alpha=0.5, eps=0.01)
    priorities.put_new(np.arange(4), np.array([True, True, True, False]))
    assert priorities.leaves.tolist() == [1, 1, 1, 0]
    priorities.update(np.array([0, 1]), np.array([-0.35, 3.99], np.float32))
    # sqrt(.36) = .6, sqrt(4) = 2; sum 3.6: probabilities 1/6, 5/9, 5/18
    np.testing.assert_allclose(priorities.leaves, [0.6, 2, 1, 0], rtol=1e-6)
    probability = np.array([1 / 6, 5 / 9, 5 / 18])
    for beta in (0.0, 0.4, 1.0):
        expected = (3 * probability) ** -beta
        weight = priorities.weights(np.arange(3), 3, beta)
        assert weight.dtype == np.float32
        np.testing.assert_allclose(weight, expected / expected.max(), rtol=1e-6)
    # beta 1: 2, .6, 1.2 over 2
    np.testing.assert_allclose(priorities.weights(np.arange(3), 3, 1.0), [1, 0.3, 0.6], rtol=1e-6)


def test_new_transitions_get_the_largest_priority_so_far():
    priorities = tree(6)
    priorities.put_new(np.array([0, 1]), np.array([True, True]))
    priorities.update(np.array([0, 1]), np.array([5.0, 0.25]))
    priorities.put_new(np.array([2]), np.array([True]))
    assert priorities.leaves.tolist() == [5, 0.25, 5, 0, 0, 0]
    priorities.update(np.array([0, 2]), np.array([0.5, 0.5]))  # it does not come down again
    priorities.put_new(np.array([0, 3]), np.array([False, True]))
    assert priorities.leaves.tolist() == [0, 0.25, 0.5, 5, 0, 0]


def test_a_leaf_without_a_transition_stays_zero():
    priorities = tree(3, [1, 0, 1])
    priorities.update(np.array([0, 1]), np.array([2.0, 2.0]))
    assert priorities.leaves.tolist() == [2, 0, 1]


def test_alpha_zero_is_uniform():
    priorities = tree(3, [1, 1, 1], alpha=0.0)
    priorities.update(np.arange(3), np.array([0.0, 7.0, 1e9]))
    assert priorities.leaves.tolist() == [1, 1, 1]


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_errors_that_are_not_finite_are_refused_and_change_nothing(bad):
    priorities = tree(3, [1, 1, 1])
    with pytest.raises(DivergedError, match="not finite"):
        priorities.update(np.arange(3), np.array([0.5, bad, 0.5], np.float32))
    assert priorities.leaves.tolist() == [1, 1, 1]
    assert priorities.max_leaf == 1


# -- the tree -----------------------------------------------------------------------------------


def test_of_a_repeated_index_the_last_one_counts():
    rng = np.random.default_rng(0)
    priorities, expected = tree(50, np.ones(50)), np.ones(50)
    for _ in range(200):
        index, error = rng.integers(0, 50, 64), rng.random(64)
        priorities.update(index, error)
        for i, e in zip(index, error, strict=True):
            expected[i] = e
        np.testing.assert_array_equal(priorities.leaves, expected)
    assert_built_from_its_leaves(priorities)


@pytest.mark.parametrize("n_leaves", SIZES)
@pytest.mark.parametrize("batch", [1, 2, 64, 2000])
def test_sums_are_those_of_a_tree_built_afresh(n_leaves, batch):
    """Bit for bit, whatever the updates were: a resume rebuilds the tree from its leaves."""
    rng = np.random.default_rng(n_leaves)
    priorities = tree(n_leaves, rng.random(n_leaves))
    for _ in range(20):
        index = rng.integers(0, n_leaves, batch)
        priorities.update(index, rng.random(batch) * 10.0 ** rng.integers(-6, 6))
        priorities.put_new(rng.integers(0, n_leaves, batch), rng.random(batch) < 0.5)
    assert_built_from_its_leaves(priorities)
    np.testing.assert_allclose(priorities._top.sum(), priorities.leaves.sum(), rtol=1e-12)


@pytest.mark.parametrize("n_leaves", SIZES)
def test_draws_follow_the_running_sum_over_all_leaves(n_leaves):
    rng = np.random.default_rng(1)
    leaves = rng.random(n_leaves) * (rng.random(n_leaves) < 0.7)
    leaves[-1] = 0.5
    priorities = tree(n_leaves, leaves)
    running = leaves.cumsum()
    for point in (0.0, 0.3, 0.999):
        points = (np.arange(200) + point) * running[-1] / 200
        expected = running.searchsorted(points, side="right")
        off = np.flatnonzero(priorities.sample(200, Points(point)) != expected)
        # Only a point on the very edge between two leaves may fall on either side.
        edge = np.abs(running[expected[off]] - points[off])
        edge = np.minimum(edge, np.abs(running[np.maximum(expected[off] - 1, 0)] - points[off]))
        assert (edge < 1e-9 * running[-1]).all()


def test_frequencies_match_probabilities():
    rng = np.random.default_rng(11)
    leaves = np.concatenate([rng.random(60), np.zeros(20), rng.random(20) * 5])
    priorities = tree(100, leaves)
    n_draws = 0
    counts = np.zeros(100)
    for _ in range(4000):
        counts += np.bincount(priorities.sample(16, rng), minlength=100)
        n_draws += 16
    expected = leaves / leaves.sum() * n_draws
    assert not counts[leaves == 0].any()
    live = leaves > 0
    chi_square = ((counts[live] - expected[live]) ** 2 / expected[live]).sum()
    assert chi_square < 124.8  # 79 degrees of freedom, p = .001
    # Stratified: an index's share of one batch is never off by more than one draw at each end.
    batch = np.bincount(priorities.sample(10_000, rng), minlength=100)
    assert np.abs(batch - 10_000 * leaves / leaves.sum()).max() < 2


@pytest.mark.parametrize("n_leaves", [3, 40, 5000, 140_000])
def test_zero_leaves_are_never_drawn_whatever_rounding_does(n_leaves):
    """Leaves over 24 orders of magnitude, most of them 0, also the first and the last; points at
    both ends of their shares. Sums then round differently from level to level."""
    rng = np.random.default_rng(5)
    highest = np.nextafter(1.0, 0.0)
    for _ in range(40):
        leaves = 10.0 ** rng.uniform(-12, 12, n_leaves) * (rng.random(n_leaves) < 0.3)
        leaves[[0, -1]] = 0
        leaves[n_leaves // 2] = 10.0 ** rng.uniform(-12, 12)
        priorities = tree(n_leaves, leaves)
        for points in (Points(0.0), Points(highest), rng):
            for n in (1, 7, 256):
                drawn = priorities.sample(n, points)
                assert drawn.min() >= 0
                assert drawn.max() < n_leaves
                assert (leaves[drawn] > 0).all()
