"""The trials of a sweep, in an Optuna journal (`journal.log`, one JSON line per operation).

A trial is created by one line, with all of its parameters, and finished by one line: a coordinator
that is killed at any moment leaves a trial that exists or does not. Optuna itself cannot open a
journal whose last line is incomplete, so that line is cut off first, under the journal's lock.
"""

import math
import os
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from gymnasium_solver.errors import RunError, needing
from gymnasium_solver.experiments.search.ranges import Latent, Options
from gymnasium_solver.experiments.search.space import Space
from gymnasium_solver.runs.files import take_lock
from gymnasium_solver.runs.jsonl import Appender

if TYPE_CHECKING:
    import optuna
    from optuna.distributions import BaseDistribution

NAME = "journal.log"
STUDY = "sweep"
RUNNING, COMPLETE, PRUNED, FAILED = "running", "complete", "pruned", "failed"
STATES = (COMPLETE, PRUNED, FAILED, RUNNING)


@dataclass
class Trial:
    """One trial: what was tried and what it came to."""

    number: int
    latents: dict[str, Any]
    state: str = RUNNING
    value: float | None = None  # the metric; of a pruned trial, where it was pruned
    attrs: dict[str, Any] = field(default_factory=dict)
    """own: the config's own values; seeds, values (one per seed), cost, env_steps, reason, ..."""

    @property
    def is_over(self) -> bool:
        return self.state != RUNNING

    @property
    def cost(self) -> float:
        return float(self.attrs.get("cost") or 0.0)


def load_optuna() -> "Any":
    """The module, quiet."""
    with needing("sweeps need Optuna: pip install 'gymnasium-solver[sweep]'"):
        import optuna
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    warnings.filterwarnings("ignore", category=optuna.exceptions.ExperimentalWarning)
    return optuna


def distribution(latent: Latent) -> "BaseDistribution":
    from optuna import distributions as kinds

    if isinstance(latent, Options):
        return kinds.CategoricalDistribution(latent.options)
    if latent.is_int:
        return kinds.IntDistribution(int(latent.low), int(latent.high), log=latent.is_log)
    return kinds.FloatDistribution(latent.low, latent.high, log=latent.is_log)


class Journal:
    """The journal of the sweep in `folder`; a sweep without one is begun."""

    def __init__(self, folder: Path, directions: Sequence[str] = ("maximize",)) -> None:
        self.path = folder / NAME
        self.directions = list(directions)

    def __enter__(self) -> "Journal":
        optuna = load_optuna()
        from optuna.storages import JournalStorage
        from optuna.storages.journal import JournalFileBackend

        lock = FileLock(self.path)
        lock.acquire()
        try:
            if self.path.exists():  # a killed writer may have left an incomplete last line
                Appender(self.path).close()
        finally:
            lock.release()
        try:
            backend = JournalFileBackend(str(self.path), lock_obj=cast("Any", lock))
            self._storage = JournalStorage(backend)
            self._study = optuna.create_study(
                storage=self._storage, study_name=STUDY, directions=self.directions,
                load_if_exists=True,
            )  # fmt: skip
        except (ValueError, KeyError, TypeError, AssertionError) as error:
            raise RunError(
                f"{self.path} is damaged: {error}. Restore it from a copy; the runs in trials/ are "
                "intact."
            ) from None
        return self

    def __exit__(self, *_: object) -> None:
        self._storage.remove_session()

    def trials(self) -> list[Trial]:
        """All trials by number."""
        found = self._study.get_trials(deepcopy=False)
        return [_trial(one) for one in sorted(found, key=lambda one: one.number)]

    def create(self, number: int, latents: Mapping[str, Any], space: Space, **attrs: Any) -> Trial:
        """Record a new trial, by one line."""
        from optuna.trial import TrialState, create_trial

        kinds = {n: distribution(space.get(n).latent()) for n in latents}
        state = TrialState.RUNNING
        self._study.add_trial(
            create_trial(state=state, params=dict(latents), distributions=kinds, user_attrs=attrs)
        )
        trial = self.trials()[-1]
        assert trial.number == number, "one coordinator numbers the trials"
        return trial

    def finish(self, trial: Trial, state: str, value: float | None, **attrs: Any) -> None:
        """Record what a trial came to; the line with its state is written last."""
        from optuna.trial import TrialState

        study_id = self._storage.get_study_id_from_name(STUDY)
        trial_id = self._storage.get_trial_id_from_study_id_trial_number(study_id, trial.number)
        for name, attr in attrs.items():
            self._storage.set_trial_user_attr(trial_id, name, attr)
        trial.attrs.update(attrs)
        if value is not None and not math.isfinite(value):
            state, value = FAILED, None
        states = {COMPLETE: TrialState.COMPLETE, PRUNED: TrialState.PRUNED, FAILED: TrialState.FAIL}
        values = None
        if state == COMPLETE and value is not None:
            values = [value, trial.cost][: len(self.directions)]
        elif state == PRUNED and value is not None:
            self._storage.set_trial_intermediate_value(trial_id, int(attrs.get("rung", 0)), value)
        self._storage.set_trial_state_values(trial_id, states[state], values)
        trial.state, trial.value = state, value


def _trial(one: "optuna.trial.FrozenTrial") -> Trial:
    names = {"COMPLETE": COMPLETE, "PRUNED": PRUNED, "FAIL": FAILED}
    value = one.values[0] if one.values else None
    if one.state.name == "PRUNED" and one.intermediate_values:
        value = one.intermediate_values[max(one.intermediate_values)]
    state = names.get(one.state.name, RUNNING)
    return Trial(one.number, dict(one.params), state, value, dict(one.user_attrs))


class FileLock:
    """The lock of a journal as Optuna uses it, held by the system until its holder ends."""

    def __init__(self, path: Path) -> None:
        self._path = path.with_name(f".{path.name}.lock")
        self._handle: int | None = None

    def acquire(self) -> bool:
        self._handle = os.open(self._path, os.O_RDWR | os.O_CREAT, 0o644)
        return take_lock(self._handle)

    def release(self) -> None:
        if self._handle is not None:
            os.close(self._handle)
            self._handle = None
