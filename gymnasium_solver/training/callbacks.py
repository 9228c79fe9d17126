"""Plain functions as an observer: `gs.train(..., on_epoch=..., on_eval=...)`."""

import warnings
from collections.abc import Callable
from typing import Any

from gymnasium_solver.config.schema import Config
from gymnasium_solver.errors import ConfigError
from gymnasium_solver.runs.run import Run
from gymnasium_solver.training.observer import Control, EvalResult, Observer, TrainInfo

OnEpoch = Callable[[dict[str, Any]], object]
"""Called with the row of metrics of each epoch. True or a text: stop."""
OnEval = Callable[[EvalResult], object]
"""Called with each evaluation during training. True or a text: stop."""


class Callbacks(Observer):
    """Calls functions; an answer of True, or a text (the reason), stops the run after the epoch."""

    def __init__(self, on_epoch: OnEpoch | None = None, on_eval: OnEval | None = None) -> None:
        for name, function in (("on_epoch", on_epoch), ("on_eval", on_eval)):
            if function is not None and not callable(function):
                raise ConfigError(f"{name}: got {function!r}, expected a function.")
        self._on_epoch, self._on_eval = on_epoch, on_eval
        self._control = Control()
        self._warned: set[str] = set()

    def on_start(self, run: Run, config: Config, info: TrainInfo) -> None:
        self._control = info.control

    def on_epoch(self, row: dict[str, Any]) -> None:
        self._ask("on_epoch", self._on_epoch, row)

    def on_eval(self, result: EvalResult, is_best: bool) -> None:
        self._ask("on_eval", self._on_eval, result)

    def _ask(self, name: str, function: Callable[[Any], object] | None, given: Any) -> None:
        if function is None:
            return
        try:
            answer = function(given)
        except Exception as error:
            if name not in self._warned:  # without a console nobody would see it
                self._warned.add(name)
                text = f"{name} failed, training continues: {type(error).__name__}: {error}"
                warnings.warn(text, stacklevel=2)
            raise
        if isinstance(answer, str) and answer:
            self._control.stop(answer)
        elif answer is True or (answer is not None and not isinstance(answer, str) and answer):
            self._control.stop(f"{name} asked for it")
