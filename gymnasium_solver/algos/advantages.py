"""Scales of advantages, baselines over groups of environments, and elites, for policy gradients.

    scale = AdvantageScale("percentile")
    used = scale(advantage, returns, valid)         # [T, N] each; the same shape

rollout      zero mean and unit standard deviation over the rollout
percentile   divided by the running range of the returns, from the 5th to the 95th percentile, but
             not by less than 1 (Hafner et al. 2023): small advantages of a sparse task stay small
symlog       sign(A) log(1 + |A|): large ones are compressed, the sign and small ones are kept
batch, off   unchanged here; `batch` standardises each minibatch
"""

from typing import Any

import numpy as np

from gymnasium_solver.algos import ops
from gymnasium_solver.algos.configs.ppo import Scaling

RANGE_DECAY = 0.99  # of the running range, by rollout


class AdvantageScale:
    def __init__(self, kind: Scaling):
        self.kind = kind
        self.range: float | None = None  # running range of the returns

    def __call__(
        self, advantage: np.ndarray, returns: np.ndarray, valid: np.ndarray, learns: bool = True
    ) -> np.ndarray:
        """`learns`: also take these returns into the running range."""
        if self.kind == "rollout":
            return np.where(valid, ops.standardize(advantage[valid], advantage), 0.0)
        if self.kind == "symlog":
            return np.sign(advantage) * np.log1p(np.abs(advantage))
        if self.kind != "percentile":
            return advantage
        if learns and valid.any():
            low, high = np.percentile(returns[valid], [5, 95])
            width = float(high - low)
            before = width if self.range is None else self.range
            self.range = RANGE_DECAY * before + (1 - RANGE_DECAY) * width
        return advantage / max(1.0, self.range or 0.0)

    def state(self) -> dict[str, Any]:
        return {"range": self.range}

    def load_state(self, state: dict[str, Any]) -> None:
        self.range = state["range"]


def leave_one_out(
    returns: np.ndarray, done: np.ndarray, valid: np.ndarray, group_size: int, is_whole: bool
) -> np.ndarray:
    """Leave-one-out baseline [T, N] over groups of environments that start from the same seed.

    Env i is in group i % (N / group_size). The baseline of a row is the mean, over the other envs
    of its group, of the return at the same step of the same episode, counted from the start of the
    rollout; 0 once that episode is over, or with `is_whole` the return of the whole episode. Where
    no other env has got as far as this episode, it is the mean return of all other envs. It is 0 at
    invalid rows."""
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
