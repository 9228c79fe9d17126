"""How advantages are scaled before a policy gradient uses them.

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
