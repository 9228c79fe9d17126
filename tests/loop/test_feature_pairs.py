"""Every pair of features (feature_pairs.py) trains, resumes exactly after a kill and takes live
edits, or is refused in one line that names a field.

`make test` runs a sample that changes with the commit, `make test-slow` the rest (sampled.py). A
failure tells the config and how to run the case again.
"""

import random
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from gymnasium_solver.config.load import config_dict
from gymnasium_solver.config.marks import live_fields
from gymnasium_solver.errors import GsolveError
from gymnasium_solver.fast import stacked
from gymnasium_solver.registry import config_class
from gymnasium_solver.runs.run import Run
from gymnasium_solver.training import loop
from tests.loop.conftest import (
    Crash,
    Edits,
    events,
    learning_rows,
    make_config,
    resume,
    train,
    weight_hash,
)
from tests.loop.feature_pairs import (
    ABSENT,
    FIELDS,
    NOT_TOGETHER,
    PLACES,
    Case,
    completed,
    covering_cases,
    fields_of,
)
from tests.loop.test_train_bc import BEST, demonstrate
from tests.loop.test_train_live_edits import NEW_VALUES
from tests.sampled import SEED

KEPT = {"max_epochs", "checkpoint_freq_epochs"}  # decide when the run ends and is saved


def _refusals() -> list[Case]:
    """What is refused, with an algorithm and a place that it can be with otherwise."""
    refused = [tuple(name for name in FIELDS if name in names) for names in NOT_TOGETHER - ABSENT]
    cases = [next(completed(names), None) for names in sorted(refused)]
    found = [tuple(name for name in FIELDS if name in case) for case in cases if case]
    return found


@contextmanager
def told(request: pytest.FixtureRequest, names: Case) -> Iterator[None]:
    """Add to an error what failed and how to run it again."""
    try:
        yield
    except BaseException as error:
        again = f'GSOLVE_TEST_SEED={SEED} python -m pytest "{request.node.nodeid}"'
        error.add_note(f"{' + '.join(names)}: {fields_of(names)}\n{again}")
        raise


def config_of(names: Case) -> Any:
    fields = {"max_epochs": 4, "checkpoint_freq_epochs": 2, **fields_of(names)}
    if names[0] == "bc":
        demonstrated = fields["env_id"] if fields["env_id"] in BEST else next(iter(BEST))
        fields["dataset"] = demonstrate(demonstrated, Path("demonstrations"))
    return make_config(names[0], **fields)


def edits_of(config: Any, seed: str) -> dict[int, dict[str, Any]]:
    """An edit before the checkpoint that is resumed from, and one between it and the kill."""
    old = {name: config_dict(config)[name] for name in live_fields(type(config))}
    halves = {
        name: -(-value // 2) if isinstance(value, int) else value / 2
        for name, value in old.items()
        if isinstance(value, int | float) and not isinstance(value, bool)
    }
    new = {
        name: value
        for name, value in {**halves, **NEW_VALUES}.items()
        if name in old and value != old[name]
    }
    names = random.Random(seed).sample(sorted(new.keys() - KEPT), 2)
    return {epoch: {name: new[name]} for epoch, name in enumerate(names, start=1)}


def is_one_line(text: str, config: Any, algo_id: str) -> bool:
    """One line that names a field."""
    fields = [*config_class(algo_id).model_fields, *dict(config)]
    return "\n" not in text and any(name in text for name in fields)


def train_together(config: Any, edits: Any) -> Run:
    """The first of two seeds that are trained stacked."""
    programs = {
        f"seed {seed}": partial(
            loop.train,
            config.replace(seed=seed),
            runs_root=Path("together"),
            observers=[Edits(edits)],
        )
        for seed in (config.seed, config.seed + 1)
    }
    lanes = loop.train_stacked(programs)
    for lane in lanes:
        if lane.error is not None:
            raise lane.error
    run: Run = lanes[0].result
    return run


@pytest.mark.sample(4)
@pytest.mark.parametrize("names", covering_cases(SEED), ids="-".join)
def test_features_train_together(
    names: Case, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stacked, "CPU_STACK", range(2, 17))
    with told(request, names):
        config = config_of(names)
        edits = edits_of(config, f"{SEED} {names}")
        is_stacked = "stacked" in names
        whole = (
            train_together(config, edits) if is_stacked else train(config, observer=Edits(edits))
        )
        observer = Edits(edits, crash_at=3)
        with pytest.raises(Crash):
            train(config, observer=observer)
        resumed = resume(observer.run.id)
        assert weight_hash(resumed) == weight_hash(whole)
        if not is_stacked:  # else sums may be in another order
            assert learning_rows(resumed) == learning_rows(whole)
        assert resumed.meta()["epoch"] == 4
        refused = [event["text"] for event in events(whole, "config_refused")]
        changes = [event["changed"] for event in events(whole, "config")]
        taken = [edit for edit in edits.values() if any({**new, **edit} == new for new in changes)]
        assert len(refused) + len(taken) == len(edits), edits
        assert all(is_one_line(text, config, names[0]) for text in refused), refused


@pytest.mark.sample(8)
@pytest.mark.parametrize("names", _refusals(), ids="-".join)
def test_what_cannot_be_together_is_refused_in_one_line(
    names: Case, request: pytest.FixtureRequest
) -> None:
    with told(request, names), pytest.raises(GsolveError) as refusal:
        train(config_of(names), max_epochs=1)
    assert is_one_line(str(refusal.value), fields_of(names), names[0]), refusal.value


def test_a_field_that_an_algorithm_does_not_have_is_refused_in_one_line() -> None:
    for algo_id, name in sorted(sorted(pair, key=list(FIELDS).index) for pair in ABSENT):
        place = next(place for place in PLACES if frozenset((algo_id, place)) not in NOT_TOGETHER)
        with pytest.raises(GsolveError) as refusal:
            config_of((algo_id, place, name))
        lines = str(refusal.value).splitlines()  # one for each field
        assert all(any(field in line for field in FIELDS[name]) for line in lines), lines
