"""Equal observations and actions that pay differently (`RepeatedPairs`)."""

import numpy as np

from gymnasium_solver.envs.random_steps import FEWEST_REPEATED, MOST_PAIR_BYTES, RepeatedPairs


def test_the_first_reward_of_a_pair_is_what_later_ones_are_compared_with() -> None:
    n, rng, pairs = 40 * FEWEST_REPEATED, np.random.default_rng(0), RepeatedPairs()
    first: dict[tuple[float, int], float] = {}
    n_repeated = n_different = 0
    for _ in range(2):  # pairs are repeated across calls too
        obs = rng.integers(4, size=(n, 1)).astype(np.float32)
        actions, rewards = rng.integers(3, size=n), rng.integers(3, size=n).astype(np.float32)
        pairs.add([obs, actions], rewards)
        for key, reward in zip(zip(obs[:, 0], actions, strict=True), rewards, strict=True):
            n_repeated += key in first
            n_different += first.setdefault(key, reward) != reward
    assert pairs.ambiguous == n_different / n_repeated


def test_too_few_pairs_and_images_say_nothing() -> None:
    pairs = RepeatedPairs()
    assert pairs.ambiguous is None
    pairs.add([np.arange(5.0)[:, None]], np.zeros(5))  # none is repeated
    pairs.add([np.zeros((99, MOST_PAIR_BYTES + 1), np.uint8)], np.zeros(99))
    assert pairs.ambiguous is None
