"""Running statistics against NumPy on all data at once, and against a step-by-step reference."""

import numpy as np
import pytest
import torch

from gymnasium_solver.fast.forward import Inference
from gymnasium_solver.nets.normalizer import ObsNormalizer, RewardNormalizer, merge_moments

UNBOUNDED = np.array([[-np.inf] * 3, [np.inf] * 3])


def applied(normalizer: ObsNormalizer, obs: np.ndarray) -> np.ndarray:
    """By torch and by a recording, which are the same."""
    by_torch = normalizer(torch.as_tensor(obs)).numpy()
    infer = Inference(normalizer, normalizer, record=True)
    np.testing.assert_allclose(infer(obs), by_torch, rtol=1e-6, atol=1e-6)
    assert infer._program is not None
    return by_torch


def test_merged_moments_are_those_of_the_concatenation() -> None:
    rng = np.random.default_rng(0)
    parts = [rng.normal(5, 3, (n, 3)) * [1, 10, 1e-3] + [0, 1e4, 0] for n in (1, 7, 100, 3)]
    mean, var, count = np.zeros(3), np.ones(3), 0.0
    for part in parts:
        mean, var, count = merge_moments(mean, var, count, part)
    everything = np.concatenate(parts)
    assert count == len(everything)
    np.testing.assert_allclose(mean, everything.mean(0), rtol=1e-12)
    np.testing.assert_allclose(var, everything.var(0), rtol=1e-9)


def test_moments_stay_right_far_from_zero() -> None:
    """The naive E[x²] - E[x]² loses every digit here."""
    rng = np.random.default_rng(0)
    data = (1e6 + rng.normal(0, 1, (1000, 1))).astype(np.float64)
    mean, var, count = np.zeros(1), np.ones(1), 0.0
    for part in np.array_split(data, 10):
        mean, var, count = merge_moments(mean, var, count, part)
    np.testing.assert_allclose(var, data.var(0), rtol=1e-6)


def test_rolling_normalises_by_what_it_has_seen() -> None:
    rng = np.random.default_rng(0)
    normalizer = ObsNormalizer(UNBOUNDED, "rolling", clip=2.0)
    data = rng.normal([1, -5, 100], [1, 2, 30], (500, 3)).astype(np.float32)
    untouched = rng.normal(size=(4, 3)).astype(np.float32)
    np.testing.assert_array_equal(applied(normalizer, untouched), np.clip(untouched, -2, 2))
    for part in np.array_split(data, 5):
        normalizer.update(part)
    expected = np.clip((data - data.mean(0)) / data.std(0), -2, 2)
    np.testing.assert_allclose(applied(normalizer, data), expected, atol=1e-4)
    assert float(normalizer.count) == 500


def test_a_recording_follows_a_later_update_and_leaves_its_input_alone() -> None:
    normalizer = ObsNormalizer(UNBOUNDED, "rolling", clip=10.0)
    infer = Inference(normalizer, normalizer, record=True)
    data = np.ones((4, 3), np.float32)
    first = infer(data)
    normalizer.update(np.random.default_rng(0).normal(1, 2, (100, 3)).astype(np.float32))
    before = data.copy()
    expected = normalizer(torch.as_tensor(data)).numpy()
    np.testing.assert_allclose(infer(data), expected, atol=1e-6)
    assert not np.allclose(first, expected)
    np.testing.assert_array_equal(data, before)


def test_a_constant_component_does_not_explode() -> None:
    normalizer = ObsNormalizer(UNBOUNDED, "rolling", clip=10.0)
    data = np.tile(np.array([[2.0, 0.0, -1.0]], np.float32), (50, 1))
    normalizer.update(data)
    np.testing.assert_allclose(applied(normalizer, data), 0.0, atol=1e-3)


def test_static_maps_bounds_to_one_and_leaves_the_unbounded_alone() -> None:
    big = np.finfo(np.float32).max
    low = np.array([-2.0, 0.0, -np.inf, -big, 3.0], np.float32)
    high = np.array([4.0, 1.0, np.inf, big, 3.0], np.float32)
    normalizer = ObsNormalizer(np.stack([low, high]), "static", clip=10.0)
    middle = np.array([[1.0, 0.5, 7.0, -7.0, 3.0]], np.float32)
    edge = np.array([[4.0, 0.0, -1e6, 1e6, 3.0]], np.float32)
    np.testing.assert_allclose(applied(normalizer, middle), [[0, 0, 7, -7, 3]])
    np.testing.assert_allclose(applied(normalizer, edge), [[1, -1, -10, 10, 3]])
    normalizer.update(edge)
    assert float(normalizer.count) == 0, "bounds do not learn"


@pytest.mark.parametrize("mode", [False, "static"])
def test_only_rolling_statistics_move(mode: object) -> None:
    normalizer = ObsNormalizer(UNBOUNDED, mode, clip=1.0)  # type: ignore[arg-type]
    before = {name: value.clone() for name, value in normalizer.state_dict().items()}
    normalizer.update(np.ones((10, 3), np.float32))
    for name, value in normalizer.state_dict().items():
        assert torch.equal(value, before[name]), name


def reference_rewards(
    rollouts: list[tuple[np.ndarray, np.ndarray, np.ndarray]], gamma: float
) -> list[np.ndarray]:
    """Env by env and step by step, all returns kept: the variance of everything seen so far."""
    n_envs = rollouts[0][0].shape[1]
    running = [0.0] * n_envs
    seen: list[float] = []
    scaled = []
    for reward, done, valid in rollouts:
        for t in range(len(reward)):
            for i in range(n_envs):
                if not valid[t, i]:
                    continue
                running[i] = running[i] * gamma + reward[t, i]
                seen.append(running[i])
                if done[t, i]:
                    running[i] = 0.0
        scaled.append(reward / np.sqrt(np.var(seen) + 1e-8))
    return scaled


def random_rollouts(n: int) -> list[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    rng = np.random.default_rng(4)
    rollouts = []
    was_done = np.zeros(3, bool)
    for _ in range(n):
        reward = rng.normal(1, 5, (20, 3)).astype(np.float32)
        done, valid = np.zeros((20, 3), bool), np.ones((20, 3), bool)
        for t in range(20):
            valid[t] = ~was_done
            done[t] = valid[t] & (rng.random(3) < 0.2)
            was_done = done[t]
        reward[~valid] = 0
        rollouts.append((reward, done, valid))
    return rollouts


def test_rewards_are_divided_by_the_deviation_of_the_discounted_return() -> None:
    rollouts = random_rollouts(4)
    normalizer = RewardNormalizer(3, gamma=0.9, clip=None)
    for (reward, done, valid), expected in zip(
        rollouts, reference_rewards(rollouts, 0.9), strict=True
    ):
        np.testing.assert_allclose(normalizer(reward, done, valid), expected, rtol=1e-5)


def test_rewards_are_divided_by_their_mean_size() -> None:
    rollouts = random_rollouts(4)
    normalizer, sizes = RewardNormalizer(3, 0.9, None, by_size=True), np.zeros(0)
    for reward, done, valid in rollouts:
        sizes = np.append(sizes, np.abs(reward[valid]))
        found = normalizer(reward, done, valid)
        np.testing.assert_allclose(found, reward / sizes.mean(), rtol=1e-5)


def test_clipped_rewards_and_a_state_that_goes_on() -> None:
    rollouts = random_rollouts(4)
    whole, first = RewardNormalizer(3, 0.9, clip=0.5), RewardNormalizer(3, 0.9, clip=0.5)
    expected = [whole(*rollout) for rollout in rollouts]
    for rollout in rollouts[:2]:
        first(*rollout)
    second = RewardNormalizer(3, 0.9, clip=0.5)
    second.load_state(first.state())
    for rollout, rewards in zip(rollouts[2:], expected[2:], strict=True):
        np.testing.assert_array_equal(second(*rollout), rewards)
        assert np.abs(rewards).max() == 0.5


def test_other_envs_begin_with_running_returns_of_their_own() -> None:
    rollouts = random_rollouts(1)
    old = RewardNormalizer(3, 0.9, clip=None)
    old(*rollouts[0])
    new = RewardNormalizer(5, 0.9, clip=None)
    new.load_state(old.state())
    assert new.running_return.tolist() == [0.0] * 5
    assert (float(new.var), new.count) == (float(old.var), old.count)


def test_a_restart_of_the_envs_begins_returns_of_their_own() -> None:
    """Else the first return after a boundary goes on from that of another episode."""
    rollouts = random_rollouts(2)
    restarted = RewardNormalizer(3, 0.9, clip=None)
    restarted(*rollouts[0])
    statistics = restarted.mean, restarted.var, restarted.count
    restarted.restart()
    assert restarted.running_return.tolist() == [0.0] * 3
    assert (restarted.mean, restarted.var, restarted.count) == statistics
    seen, running = [], [0.0] * 3
    for r, (reward, done, valid) in enumerate(rollouts):
        running = [0.0] * 3
        for t, i in np.ndindex(reward.shape):
            if valid[t, i]:
                running[i] = running[i] * 0.9 + reward[t, i]
                seen.append(running[i])
                running[i] *= not done[t, i]
        if r == 1:
            got = restarted(reward, done, valid)
            expected = reward / np.sqrt(np.var(seen) + 1e-8)
            np.testing.assert_allclose(got, expected, rtol=1e-5)


def test_the_sign_of_rewards_stays() -> None:
    """Subtracting a mean would change which policy is best."""
    reward = np.full((10, 2), 3.0, np.float32)
    none = np.zeros((10, 2), bool)
    assert (RewardNormalizer(2, 0.9, clip=None)(reward, none, ~none) > 0).all()
