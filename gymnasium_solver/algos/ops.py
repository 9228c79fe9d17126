"""The mathematics that algorithms share: pure functions of arrays, no state.

Shapes: T rows of a rollout, N envs. `valid` marks rows that are real env steps; a row that is
not (a reset row, a row beyond the budget) neither learns nor passes anything on.
"""

from collections.abc import Iterator

import numpy as np


def gae(
    reward: np.ndarray,
    values: np.ndarray,
    terminated: np.ndarray,
    truncated: np.ndarray,
    valid: np.ndarray,
    gamma: float,
    gae_lambda: float,
) -> np.ndarray:
    """Generalised advantage estimates [T, N] (Schulman et al. 2016); `values` is [T + 1, N].

    Two masks, never one: a value is bootstrapped unless the episode `terminated`; the sum over
    later steps stops where the episode ended in either way. values[t + 1] at an episode's end is
    the value of its true final observation, which makes a truncation right without special case.
    """
    delta = reward + gamma * ~terminated * values[1:] - values[:-1]
    return _sum_to_the_end(delta, gamma * gae_lambda, terminated | truncated, valid)


def _sum_to_the_end(
    x: np.ndarray, discount: float, done: np.ndarray, valid: np.ndarray
) -> np.ndarray:
    """y[t] = x[t] + discount * y[t + 1], inside an episode and only into a row that counts."""
    carry = discount * ~done
    carry[:-1] *= valid[1:]
    y = np.zeros(x.shape)
    running = np.zeros(x.shape[1])
    for t in range(len(x) - 1, -1, -1):
        running = x[t] + carry[t] * running
        y[t] = running
    return np.where(valid, y, 0.0).astype(np.float32)


def returns_to_go(
    reward: np.ndarray, done: np.ndarray, valid: np.ndarray, gamma: float
) -> np.ndarray:
    """Discounted sum of the rewards from each row to its episode's end, or the rollout's."""
    return _sum_to_the_end(reward, gamma, done, valid)


def episode_returns(
    reward: np.ndarray, done: np.ndarray, valid: np.ndarray, gamma: float
) -> np.ndarray:
    """Every row of an episode segment gets the return of the segment's first row."""
    to_go = returns_to_go(reward, done, valid, gamma)
    returns = np.zeros_like(to_go)
    current = np.zeros(reward.shape[1], to_go.dtype)
    is_first = np.ones(reward.shape[1], bool)
    for t in range(len(reward)):
        starts = is_first & valid[t]
        current = np.where(starts, to_go[t], current)
        returns[t] = np.where(valid[t], current, 0.0)
        is_first = (is_first & ~starts) | done[t]
    return returns


def standardize(x: np.ndarray) -> np.ndarray:
    """Zero mean, unit deviation; a single sample, having none, becomes zero."""
    return (x - x.mean()) / (x.std() + 1e-8)


def explained_variance(predicted: np.ndarray, target: np.ndarray) -> float:
    """1: the critic foresees everything; 0: no better than a constant; nan: nothing varies."""
    variance = float(np.var(target))
    return float("nan") if variance == 0 else 1.0 - float(np.var(target - predicted)) / variance


def minibatches(
    n_samples: int, batch_size: int, rng: np.random.Generator
) -> Iterator[np.ndarray | None]:
    """Shuffled index sets of nearly equal size, at most `batch_size` each.

    Equal, so that no small remainder gets the weight of a whole minibatch. None stands for
    "everything": one minibatch needs no shuffle and no copy.
    """
    n_parts = -(-n_samples // batch_size)
    if n_parts <= 1:
        yield None
        return
    yield from np.array_split(rng.permutation(n_samples), n_parts)
