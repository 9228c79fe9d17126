"""Mathematics shared by the algorithms: pure functions of arrays.

Shapes: T rows of a rollout, N envs. `valid` marks rows that are real env steps. Invalid rows (reset
rows, rows beyond the budget) are not trained on, and nothing propagates through them.
"""

import numpy as np
import torch
from torch import Tensor

from gymnasium_solver.fast.native.rollout import sum_back


def gae(
    reward: np.ndarray,
    values: np.ndarray,
    terminated: np.ndarray,
    truncated: np.ndarray,
    valid: np.ndarray,
    gamma: float,
    gae_lambda: float,
) -> np.ndarray:
    """Generalised advantage estimation [T, N] (Schulman et al. 2016); `values` is [T + 1, N].

    Termination and truncation are separate masks: the value is bootstrapped unless the episode
    `terminated`, and the sum over later steps stops at both. At the end of an episode, values[t +
    1] is the value of its true final observation, so truncation needs no special case."""
    delta = reward + gamma * ~terminated * values[1:] - values[:-1]
    return _sum_to_the_end(delta, gamma * gae_lambda, terminated | truncated, valid)


def gae_of_tensors(
    reward: Tensor,
    value: Tensor,
    next_value: Tensor,
    terminated: Tensor,
    truncated: Tensor,
    gamma: float,
    gae_lambda: float,
) -> Tensor:
    """The same of tensors [T, N] whose rows are all valid; `next_value` is the value of what each
    step led to, at the end of an episode that of its true final observation."""
    delta = reward + gamma * ~terminated * next_value - value
    carry = (gamma * gae_lambda * ~(terminated | truncated)).unbind()
    rows = list(delta.unbind())
    for t in range(len(rows) - 2, -1, -1):
        rows[t] = torch.addcmul(rows[t], carry[t], rows[t + 1])
    return torch.stack(rows)


def _sum_to_the_end(
    x: np.ndarray, discount: float, done: np.ndarray, valid: np.ndarray
) -> np.ndarray:
    """y[t] = x[t] + discount * y[t + 1], within an episode and from valid rows only."""
    carry = discount * ~done
    carry[:-1] *= valid[1:]
    return np.where(valid, sum_back(x, carry), 0.0).astype(np.float32)


def lambda_returns(
    reward: np.ndarray,
    next_value: np.ndarray,
    terminated: np.ndarray,
    truncated: np.ndarray,
    valid: np.ndarray,
    gamma: float,
    td_lambda: float,
) -> np.ndarray:
    """TD(lambda) targets of Q(s, a) for each row [T, N].

        target[t] = r + gamma * ((1 - lambda) * next_value + lambda * target[t + 1])

    `next_value` [T, N] is the value after each step: the best action's value gives Peng's
    Q(lambda), the next action's value SARSA(lambda). At the end of an episode or of the rollout,
    and before an invalid row, `next_value` replaces the whole bracket. After a termination the
    bracket is zero."""
    done = terminated | truncated
    goes_on = ~done
    goes_on[:-1] &= valid[1:]
    goes_on[-1] = False
    # np.where instead of a product: the value after a termination may be anything, even infinite.
    own = np.where(terminated, 0.0, gamma * (1.0 - td_lambda * goes_on) * next_value)
    return _sum_to_the_end(reward + own, gamma * td_lambda, done, valid)


def returns_to_go(
    reward: np.ndarray, done: np.ndarray, valid: np.ndarray, gamma: float
) -> np.ndarray:
    """Discounted sum of the rewards from each row to the end of its episode or of the rollout."""
    return _sum_to_the_end(reward, gamma, done, valid)


def episode_returns(
    reward: np.ndarray, done: np.ndarray, valid: np.ndarray, gamma: float
) -> np.ndarray:
    """The return of the first row of each episode segment, repeated on all rows of the segment."""
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
    """Scale to zero mean and unit standard deviation; a single sample becomes zero.

    If `values` is given, it is scaled instead, by the mean and standard deviation of x."""
    return ((x if values is None else values) - x.mean()) / (x.std() + 1e-8)


def explained_variance(predicted: np.ndarray, target: np.ndarray) -> float:
    """1: perfect predictions; 0: no better than a constant; nan: the returns do not vary."""
    variance = _variance(target)
    return float("nan") if variance == 0 else 1.0 - _variance(target - predicted) / variance


def _variance(x: np.ndarray) -> float:
    """As np.var, which takes four times as long for a small rollout."""
    if len(x) == 0:
        return float("nan")
    away = x - x.mean()
    return float(np.dot(away, away)) / len(x)
