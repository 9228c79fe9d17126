"""The mathematics that algorithms share: pure functions of arrays, no state.

Shapes: T rows of a rollout, N envs. `valid` marks rows that are real env steps; a row that is
not (a reset row, a row beyond the budget) neither learns nor passes anything on.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from torch import Tensor


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


def lambda_returns(
    reward: np.ndarray,
    next_value: np.ndarray,
    terminated: np.ndarray,
    truncated: np.ndarray,
    valid: np.ndarray,
    gamma: float,
    td_lambda: float,
) -> np.ndarray:
    """What Q(s, a) of each row [T, N] should be: a mix of the n-step returns that start there.

    r + gamma * ((1 - lambda) * next_value + lambda * what the next row gets). `next_value` [T, N]
    is the value after each step: with the best action's this is Peng's Q(lambda), with the next
    action's SARSA(lambda). Where the next row cannot go on (the episode or the rollout ends there,
    or the row does not count), next_value stands alone; after a termination there is nothing.
    """
    done = terminated | truncated
    goes_on = ~done
    goes_on[:-1] &= valid[1:]
    goes_on[-1] = False
    # where, and not a product: what follows a termination may be anything, even infinite.
    own = np.where(terminated, 0.0, gamma * (1.0 - td_lambda * goes_on) * next_value)
    return _sum_to_the_end(reward + own, gamma * td_lambda, done, valid)


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


def standardize(x: np.ndarray, values: np.ndarray | None = None) -> np.ndarray:
    """Zero mean and unit standard deviation; a single sample becomes zero.

    With `values`, these are shifted and scaled by the moments of x instead."""
    return ((x if values is None else values) - x.mean()) / (x.std() + 1e-8)


def explained_variance(predicted: np.ndarray, target: np.ndarray) -> float:
    """1: the critic foresees everything; 0: no better than a constant; nan: nothing varies."""
    variance = float(np.var(target))
    return float("nan") if variance == 0 else 1.0 - float(np.var(target - predicted)) / variance


def minibatches(
    n_samples: int, batch_size: int, rng: np.random.Generator, n_rows: int | None = None
) -> Iterator[np.ndarray | None]:
    """Shuffled index sets of nearly equal size, at most `batch_size` each.

    Equal, so that no small remainder gets the weight of a whole minibatch. None stands for
    "everything": one minibatch needs no shuffle and no copy.

    `n_rows`, at least `n_samples`, asks for the sizes that so many samples would have, the same
    from rollout to rollout (a CUDA graph holds for one size): some samples are then taken twice.
    """
    n_parts = -(-(n_rows or n_samples) // batch_size)
    if n_parts <= 1 and n_rows in (None, n_samples):
        yield None
        return
    order = rng.permutation(n_samples)
    yield from np.array_split(order if n_rows is None else np.resize(order, n_rows), n_parts)


def huber(error: Tensor) -> Tensor:
    """Half the square up to 1, linear beyond."""
    size = error.abs()
    near = size.clamp(max=1.0)
    return near * (size - 0.5 * near)


def c51_project(
    probs: Tensor, reward: Tensor, discount: Tensor, support: Tensor, v_min: float, v_max: float
) -> Tensor:
    """The distribution [B, K] of reward + discount * Z, put back onto the support of Z.

    Each shifted atom is shared between its two neighbours in proportion to nearness: atom i gets
    the share max(0, 1 - |z - z_i| / spacing), which is the projection of Bellemare et al. (2017).
    """
    spacing = (v_max - v_min) / (len(support) - 1)
    shifted = reward.unsqueeze(1) + discount.unsqueeze(1) * support  # [B, K]
    shifted = shifted.clamp(v_min, v_max)
    distance = (shifted.unsqueeze(1) - support.unsqueeze(1)).abs() / spacing  # [B, to, from]
    return ((1.0 - distance).clamp(min=0.0) * probs.unsqueeze(1)).sum(2)


def critics_loss(q: Tensor, wanted: Tensor, weight: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Half the weighted mean square errors of critics [n, B], added up.

    Besides the loss: the mean value, and for priorities the error of each row [B], which is the
    mean over critics of its size.
    """
    error = q - wanted
    loss = 0.5 * (weight * error.square()).mean(1).sum()
    return loss, q.detach().mean(), error.detach().abs().mean(0)


def mean_metrics(steps: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Metrics of several gradient steps, each averaged over the steps that have it."""
    if len(steps) == 1:
        return dict(steps[0])
    values: dict[str, list[Any]] = {}
    for step in steps:
        for name, value in step.items():
            values.setdefault(name, []).append(value)
    return {name: sum(given) / len(given) for name, given in values.items()}
