"""When things happen: small objects queried by the loop, `if should_checkpoint(epoch): ...`.

Evaluations depend only on the epoch and the env steps, so a resumed run does the same things at the
same time.
"""

import time
from dataclasses import dataclass

from gymnasium_solver.config.schema import Config

CHECKPOINT_SECONDS = 20.0  # the most that a crash can lose; saving takes about 10 ms


@dataclass(frozen=True)
class EvalCadence:
    """True at every multiple of `n_epochs`, or in the epoch that reaches or passes a multiple of
    `n_steps` env steps; only after the warm-up. None or 0: never.

    EvalCadence(15, warmup_epochs=50) is first true at epoch 60.
    """

    n_epochs: int | None
    n_steps: int | None = None
    warmup_epochs: int = 0

    def __call__(self, epoch: int, steps_before: int, env_steps: int) -> bool:
        """For an epoch that took the clock from `steps_before` to `env_steps`."""
        if epoch <= self.warmup_epochs:
            return False
        if self.n_steps:
            return env_steps // self.n_steps > steps_before // self.n_steps
        return bool(self.n_epochs) and epoch % (self.n_epochs or 1) == 0


def eval_cadence(config: Config, planned_epochs: int) -> EvalCadence:
    """A warm-up below 1 is a fraction of the planned epochs."""
    warmup = config.eval_warmup_epochs
    is_fraction = isinstance(warmup, float) and 0 < warmup < 1
    warmup_epochs = int(warmup * planned_epochs) if is_fraction else int(warmup)
    return EvalCadence(config.eval_freq_epochs, config.eval_freq_steps, warmup_epochs)


@dataclass(frozen=True)
class EveryEpochs:
    """True at every multiple of `n_epochs`."""

    n_epochs: int

    def __call__(self, epoch: int) -> bool:
        return epoch % self.n_epochs == 0


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


def checkpoint_cadence(freq: int | None) -> EveryEpochs | EverySeconds:
    return EveryEpochs(freq) if freq else EverySeconds(CHECKPOINT_SECONDS)
