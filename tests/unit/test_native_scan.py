"""GAE and returns in C have the bits of NumPy."""

import numpy as np
import pytest

from gymnasium_solver.algos import ops
from gymnasium_solver.fast.native import build
from gymnasium_solver.fast.native import rollout as in_c

RNG = np.random.default_rng(0)


@pytest.fixture
def compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(build, "_is_preferred", True)
    if build.can_compile():
        assert in_c._library() is not None


def rollout(shape: tuple[int, int]) -> tuple[np.ndarray, ...]:
    reward = RNG.normal(size=shape).astype(np.float32)
    values = RNG.normal(0, 30, (shape[0] + 1, shape[1])).astype(np.float32)
    terminated, truncated, invalid = RNG.random((3, *shape)) < 0.1
    return reward, values, terminated, truncated, ~invalid


@pytest.mark.parametrize("shape", [(1, 1), (5, 3), (32, 8), (257, 17)])
def test_gae_has_the_bits_of_numpy(
    compiled: None, shape: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    reward, values, terminated, truncated, valid = rollout(shape)
    if shape[0] > 5:
        reward[3, 0], values[2, 1], values[9, 2] = np.inf, np.nan, np.float32(1e-40)
    got = ops.gae(reward, values, terminated, truncated, valid, 0.98, 0.8)
    sums = ops.returns_to_go(reward, terminated | truncated, valid, 0.99)
    monkeypatch.setattr(build, "_is_preferred", False)
    wanted = ops.gae(reward, values, terminated, truncated, valid, 0.98, 0.8)
    np.testing.assert_array_equal(got.view(np.int32), wanted.view(np.int32))
    plain = ops.returns_to_go(reward, terminated | truncated, valid, 0.99)
    np.testing.assert_array_equal(sums.view(np.int32), plain.view(np.int32))


def test_sums_of_columns_that_are_not_contiguous(compiled: None) -> None:
    x, carry = RNG.normal(size=(2, 7, 40)).transpose(0, 2, 1)
    before = x.copy(), carry.copy()
    np.testing.assert_array_equal(in_c.sum_back(x, carry), in_c.sum_back_numpy(x, carry))
    np.testing.assert_array_equal(x, before[0])
    np.testing.assert_array_equal(carry, before[1])


def test_without_a_compiler_the_sums_are_numpys(
    compiled: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(in_c, "_library", lambda: None)
    x, carry = RNG.normal(size=(2, 6, 4))
    np.testing.assert_array_equal(in_c.sum_back(x, carry), in_c.sum_back_numpy(x, carry))
