"""When things happen: small objects asked in the loop, `if should_eval(epoch): ...`.

They hold no memory, so a resumed run asks them the same questions and gets the same answers.
"""

from dataclasses import dataclass


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
    """`warmup` in epochs, or as a fraction below 1 of the planned ones."""
    is_fraction = isinstance(warmup, float) and 0 < warmup < 1
    return Every(freq, int(warmup * planned_epochs) if is_fraction else int(warmup))


def checkpoint_cadence(freq: int | None, planned_epochs: int) -> Every:
    """Unset: about ten periodic checkpoints in a run."""
    return Every(freq or max(1, planned_epochs // 10))
