"""Leave-one-out baselines over groups of environments that start from the same seed.

    baseline = leave_one_out(returns, done, valid, group_size, is_whole)

Env i is in group i % (N / group_size) (envs/joined.py). The baseline of a row is the mean, over
the other envs of its group, of the return at the same step of the same episode, counted from the
start of the rollout; 0 once that episode is over, or with `is_whole` the return of the whole
episode. Where no other env has got as far as this episode, it is the mean return of all other envs.
"""

import numpy as np


def leave_one_out(
    returns: np.ndarray, done: np.ndarray, valid: np.ndarray, group_size: int, is_whole: bool
) -> np.ndarray:
    """[T, N], from the returns of each row; 0 at invalid rows."""
    n_envs = returns.shape[1]
    episode, step = _positions(done, valid)
    n_episodes, n_places = int(episode.max(initial=0)) + 1, int(step.max(initial=0)) + 1
    # table[e, j, s]: the return at step s of episode j of env e.
    table = np.zeros((n_envs, n_episodes, n_places))
    has_episode = np.zeros((n_envs, n_episodes), bool)
    rows, envs = np.nonzero(valid)
    where = envs, episode[rows, envs], step[rows, envs]
    table[where] = returns[rows, envs]
    has_episode[where[0], where[1]] = True
    if is_whole:
        table[...] = table[:, :, :1]
    n_groups = n_envs // group_size
    group = np.arange(n_envs) % n_groups
    totals = np.zeros((n_groups, n_episodes, n_places))
    counts = np.zeros((n_groups, n_episodes))
    np.add.at(totals, group, table * has_episode[:, :, None])
    np.add.at(counts, group, has_episode)
    others = totals[group[where[0]], where[1], where[2]] - table[where]
    n_others = counts[group[where[0]], where[1]] - 1
    sums, n_own = np.where(valid, returns, 0.0).sum(0), valid.sum(0)
    elsewhere = (sums.sum() - sums) / np.maximum(n_own.sum() - n_own, 1)
    baseline = np.zeros(returns.shape, returns.dtype)
    mean = others / np.maximum(n_others, 1)
    baseline[rows, envs] = np.where(n_others > 0, mean, elsewhere[envs])
    return baseline


def _positions(done: np.ndarray, valid: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The episode of each row, counted from the first of the rollout, and its step in it."""
    n_over = np.cumsum(done & valid, axis=0)
    episode = np.vstack([np.zeros((1, done.shape[1]), np.int64), n_over[:-1]])
    step = np.zeros(done.shape, np.int64)
    current = np.zeros(done.shape[1], np.int64)
    for t in range(len(done)):
        step[t] = current
        current = np.where(valid[t], np.where(done[t], 0, current + 1), current)
    return episode, step


def elite_rows(reward: np.ndarray, done: np.ndarray, valid: np.ndarray, share: float) -> np.ndarray:
    """[T, N] bool: the valid rows of the best `share` of the episodes that end in the rollout, by
    their rewards in it. All valid rows if no episode ends."""
    found: list[tuple[float, slice, int]] = []
    for env in range(valid.shape[1]):
        start = 0
        for end in np.flatnonzero(done[:, env] & valid[:, env]):
            rows = slice(start, int(end) + 1)
            found.append((float((reward * valid)[rows, env].sum()), rows, env))
            start = int(end) + 1
    if not found:
        return valid.copy()
    least = np.quantile([total for total, _, _ in found], 1 - share)
    chosen = np.zeros_like(valid)
    for total, rows, env in found:
        if total >= least:
            chosen[rows, env] = valid[rows, env]
    return chosen
