"""Proportional prioritised sampling with a sum tree (Schaul et al. 2016).

    priorities = Priorities(n_leaves, alpha=0.5, eps=1e-6)
    priorities.put_new(index, is_valid)            # the largest priority seen, 0 if not valid
    index = priorities.sample(64, rng)             # stratified
    weight = priorities.weights(index, n_transitions, beta)
    priorities.update(index, td_error)

A leaf is (|TD error| + eps) ** alpha, or 0 if there is nothing to sample. A node has 32 children,
and the top level, up to 4,096 nodes, is searched linearly: NumPy's cost is per call, so a shallow
tree is faster than a binary one. Sums are always recomputed from the children, never updated by
differences: rounding errors do not accumulate, and only the leaves need to be saved.
"""

import numpy as np

from gymnasium_solver.errors import DivergedError

_N_CHILDREN = 32
_N_TOP = 4096
_BELOW_ONE = 1.0 - 2.0**-53  # times x: the next smaller float, to round down


class Priorities:
    def __init__(self, n_leaves: int, *, alpha: float, eps: float) -> None:
        self.n_leaves, self.alpha, self.eps = n_leaves, alpha, eps
        self.max_leaf = 1.0
        self._families: list[np.ndarray] = []  # from the leaves up: [parent nodes, children]
        n_nodes = n_leaves
        while not self._families or n_nodes > _N_TOP:
            n_nodes = -(-n_nodes // _N_CHILDREN)
            self._families.append(np.zeros((n_nodes, _N_CHILDREN)))
        self._top = np.zeros(n_nodes)
        self._levels = [*(family.reshape(-1) for family in self._families), self._top]

    @property
    def leaves(self) -> np.ndarray:
        """float64[n_leaves], read-only."""
        return self._levels[0][: self.n_leaves]

    def put_new(self, index: np.ndarray, is_valid: np.ndarray) -> None:
        """Give new transitions the largest priority so far, so that each is sampled soon."""
        self._set(index, is_valid * self.max_leaf)

    def update(self, index: np.ndarray, td_error: np.ndarray) -> None:
        """Set priorities after learning from `index`. For a repeated index the last error is used.
        A leaf of 0 has no transition and stays 0."""
        leaf = (np.abs(td_error, dtype=np.float64) + self.eps) ** self.alpha
        highest = float(leaf.max(initial=0.0))  # NaN if any error is NaN
        if not np.isfinite(highest):
            raise DivergedError("a TD error that sets a replay priority is not finite.")
        self.max_leaf = max(self.max_leaf, highest)
        leaf *= self._levels[0].take(index) > 0
        self._set(index, leaf)

    def load(self, leaves: np.ndarray, max_leaf: float) -> None:
        """Set all leaves from saved ones."""
        self.max_leaf = max_leaf
        self._levels[0][: self.n_leaves] = leaves
        for family, above in zip(self._families, self._levels[1:], strict=True):
            above[: len(family)] = family.sum(axis=1)

    def sample(self, n: int, rng: np.random.Generator) -> np.ndarray:
        """Sample n indices in proportion to their leaves, one from each of n equal strata.

        A leaf of 0 is never sampled: the search finds the first running sum above a point, and
        running sums do not increase at such a leaf. The point is kept below the last running sum,
        which rounding can make slightly smaller than the same sum one level up."""
        sums = _running_sums(self._top)
        point = rng.random(n)
        point += np.arange(n)
        point *= sums[-1] / n
        np.minimum(point, sums[-1] * _BELOW_ONE, out=point)
        node = sums[1:].searchsorted(point, side="right")
        point -= sums.take(node)
        for family in reversed(self._families):
            # The children of all n points, concatenated as one sorted array.
            sums = _running_sums(family.take(node, axis=0))
            point += sums[:-1:_N_CHILDREN]
            np.minimum(point, sums[_N_CHILDREN::_N_CHILDREN] * _BELOW_ONE, out=point)
            found = sums[1:].searchsorted(point, side="right")
            point -= sums.take(found)
            which, child = np.divmod(found, _N_CHILDREN)
            node = node.take(which) * _N_CHILDREN + child
        return node

    def weights(self, index: np.ndarray, n_transitions: int, beta: float) -> np.ndarray:
        """float32[B]: (n_transitions * probability) ** -beta, divided by the maximum of the
        batch."""
        scale = n_transitions / self._top.sum()
        weight = (self._levels[0].take(index) * scale) ** -beta
        weight /= weight.max()
        return weight.astype(np.float32)

    def evenness(self) -> float:
        """(sum p)^2 / (n sum p^2) of the transitions that can be sampled: 1 if all priorities are
        equal, 1 / n if one has all the weight."""
        leaves = self.leaves[self.leaves > 0]
        squares = float(np.square(leaves).sum())
        return float(leaves.sum()) ** 2 / (len(leaves) * squares) if squares else 1.0

    def _set(self, index: np.ndarray, leaf: np.ndarray) -> None:
        self._levels[0][index] = leaf  # in order, so the last value of a repeated index wins
        node = index
        for family, above in zip(self._families, self._levels[1:], strict=True):
            node = node // _N_CHILDREN
            if len(node) > 1024:  # a long rollout: adjacent leaves under few nodes
                node = np.unique(node)
            above[node] = family.take(node, axis=0).sum(axis=1)


def _running_sums(values: np.ndarray) -> np.ndarray:
    """Zero followed by the running sums over all values, flat."""
    sums = np.zeros(values.size + 1)
    np.cumsum(values, out=sums[1:])
    return sums
