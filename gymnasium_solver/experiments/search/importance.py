"""Which parameters mattered: the share of the variance that each explains.

A forest of small regression trees is fitted to the trials; a parameter's importance is how much
worse the trees predict the trials they have not seen when its values are shuffled (Breiman 2001).
Written here because Optuna's own evaluators need scikit-learn.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from gymnasium_solver.experiments.search.distributions import Latent, Options
from gymnasium_solver.experiments.search.journal import COMPLETE, Trial
from gymnasium_solver.experiments.search.plan import Plan

FEWEST = 8
TREES, DEPTH, LEAF = 100, 6, 2
SHUFFLES = 3

Array = np.ndarray


def importances(plan: Plan, trials: Sequence[Trial]) -> dict[str, float]:
    """Shares by parameter, largest first, with the sum 1; empty with too few trials."""
    over = [t for t in trials if t.state == COMPLETE and t.value is not None]
    space = plan.space()
    values = np.array([trial.value for trial in over], dtype=np.float64)
    if len(over) < FEWEST or not np.ptp(values):
        return {}
    names = [param.name for param in space.params]
    table = np.array(
        [[_place(t.latents.get(p.name), p.distribution.latent()) for p in space.params]
         for t in over]
    )  # fmt: skip
    losses = _losses(table, values)
    total = losses.sum()
    shares = losses / total if total > 0 else np.zeros(len(names))
    order = np.argsort(-shares, kind="stable")
    return {names[i]: float(shares[i]) for i in order}


def _place(value: object, latent: Latent) -> float:
    """A latent as a number on an even scale; -1 where the parameter was not searched."""
    if value is None:
        return -1.0
    if isinstance(latent, Options):
        return float(latent.options.index(value))
    number = float(value)  # type: ignore[arg-type]
    return float(np.log(number)) if latent.is_log else number


def _losses(table: Array, values: Array) -> Array:
    """Rise of the squared error outside of the sample when a column is shuffled."""
    rng = np.random.default_rng(0)
    n, columns = table.shape
    total = np.zeros(columns)
    for _ in range(TREES):
        drawn = rng.integers(n, size=n)
        left_out = np.setdiff1d(np.arange(n), drawn)
        if not len(left_out):
            continue
        tree = _grow(table[drawn], values[drawn], rng, DEPTH)
        rows, truth = table[left_out], values[left_out]
        error = np.mean((_predict(tree, rows) - truth) ** 2)
        for column in range(columns):
            for _ in range(SHUFFLES):
                mixed = rows.copy()
                mixed[:, column] = table[rng.integers(n, size=len(rows)), column]
                worse = np.mean((_predict(tree, mixed) - truth) ** 2)
                total[column] += (worse - error) / SHUFFLES
    return np.maximum(total, 0.0)


@dataclass
class _Node:
    value: float
    column: int = -1
    cut: float = 0.0
    low: "_Node | None" = None
    high: "_Node | None" = None


def _grow(table: Array, values: Array, rng: np.random.Generator, depth: int) -> _Node:
    node = _Node(float(values.mean()))
    if depth == 0 or len(values) < 2 * LEAF or not np.ptp(values):
        return node
    columns = table.shape[1]
    tried = rng.choice(columns, size=max(1, -(-columns // 2)), replace=False)
    best = 0.0
    for column in tried:
        gain, cut = _best_cut(table[:, column], values)
        if gain > best:
            best, node.column, node.cut = gain, int(column), cut
    if node.column < 0:
        return node
    is_low = table[:, node.column] <= node.cut
    node.low = _grow(table[is_low], values[is_low], rng, depth - 1)
    node.high = _grow(table[~is_low], values[~is_low], rng, depth - 1)
    return node


def _best_cut(column: Array, values: Array) -> tuple[float, float]:
    """The cut with the largest drop of the squared error, and that drop."""
    order = np.argsort(column, kind="stable")
    x, y = column[order], values[order]
    n = len(y)
    sums = np.cumsum(y)[:-1]
    sizes = np.arange(1, n)
    gains = sums**2 / sizes + (y.sum() - sums) ** 2 / (n - sizes) - y.sum() ** 2 / n
    gains[(x[1:] == x[:-1]) | (sizes < LEAF) | (n - sizes < LEAF)] = -np.inf
    at = int(np.argmax(gains))
    return (float(gains[at]), float((x[at] + x[at + 1]) / 2)) if gains[at] > 0 else (0.0, 0.0)


def _predict(node: _Node, rows: Array) -> Array:
    if node.low is None or node.high is None:
        return np.full(len(rows), node.value)
    is_low = rows[:, node.column] <= node.cut
    found = np.empty(len(rows))
    found[is_low] = _predict(node.low, rows[is_low])
    found[~is_low] = _predict(node.high, rows[~is_low])
    return found
