"""When things happen: small objects queried by the loop, `if should_eval(epoch): ...`.

Everything that affects learning depends only on the epoch, so a resumed run does the same things at
the same time.
"""

import time
from dataclasses import dataclass

CHECKPOINT_SECONDS = 20.0  # the most that a crash can lose; saving takes about 10 ms


@dataclass(frozen=True)
class Every:
    """True at every multiple of `n_epochs` strictly after `warmup`. None or 0: never.

    Every(15, warmup=50) is first true at epoch 60.
    """

    n_epochs: int | None
    warmup: int = 0

    def __call__(self, epoch: int) -> bool:
        return bool(self.n_epochs) and epoch > self.warmup and epoch % (self.n_epochs or 1) == 0


def eval_cadence(freq: int | None, warmup: int | float, planned_epochs: int) -> Every:
    """`warmup` in epochs or, below 1, as a fraction of the planned epochs."""
    is_fraction = isinstance(warmup, float) and 0 < warmup < 1
    return Every(freq, int(warmup * planned_epochs) if is_fraction else int(warmup))


class EverySeconds:
    """True if `seconds` have passed since it was last true.

    Only for things that do not affect learning, such as checkpoints: wall-clock time is not
    reproducible.
    """

    def __init__(self, seconds: float):
        self.seconds = seconds
        self._last_s = time.monotonic()

    def __call__(self, epoch: int) -> bool:
        is_due = time.monotonic() - self._last_s >= self.seconds
        if is_due:
            self._last_s = time.monotonic()
        return is_due


def checkpoint_cadence(freq: int | None) -> Every | EverySeconds:
    return Every(freq) if freq else EverySeconds(CHECKPOINT_SECONDS)
