"""Schedules at points where their value is known in closed form, and every way to write one."""

import math
from typing import Annotated, Any

import pytest
import torch
from pydantic import BaseModel, ValidationError

from gymnasium_solver.config.schedule import PositiveSchedule, Schedule, scheduled
from gymnasium_solver.errors import ConfigError

TOTAL = 1000

LINEAR = {"start": 1.0, "end": 0.2}
COSINE = {"start": 1.0, "end": 0.2, "schedule": "cosine"}
EXPONENTIAL = {"start": 1.0, "end": 0.01, "schedule": "exponential"}
RATE = {"start": 1.0, "end": 0.1, "schedule": "rate", "rate": 0.5, "every": 0.1}
PERIODIC = {"start": 1.0, "end": 0.2, "schedule": "periodic", "cycles": 2}
PIECEWISE = {"schedule": "piecewise", "points": [[0.1, 1.0], [0.5, 0.2], [900, 0.6]]}
WARM = {"start": 1.0, "end": 0.0, "warmup": 0.2}


@pytest.mark.parametrize(
    ("written", "points"),
    [
        (0.3, {0: 0.3, 500: 0.3, 1000: 0.3, 2000: 0.3}),
        ("lin_0.5", {0: 0.5, 250: 0.375, 500: 0.25, 1000: 0.0, 2000: 0.0}),
        ("lin_1e-3", {0: 1e-3, 500: 5e-4, 1000: 0.0}),
        (LINEAR, {0: 1.0, 250: 0.8, 500: 0.6, 1000: 0.2, 5000: 0.2}),
        (LINEAR | {"from": 0.5}, {0: 1.0, 500: 1.0, 750: 0.6, 1000: 0.2}),
        (LINEAR | {"to": 0.5}, {0: 1.0, 250: 0.6, 500: 0.2, 1000: 0.2}),
        (LINEAR | {"from": 200, "to": 600}, {0: 1.0, 200: 1.0, 400: 0.6, 600: 0.2, 1000: 0.2}),
        (LINEAR | {"from": 0.2, "to": 600}, {200: 1.0, 400: 0.6, 600: 0.2}),
        (LINEAR | {"to": 2000}, {1000: 0.6}),
        (COSINE, {0: 1.0, 250: 0.6 + 0.4 * math.sqrt(0.5), 500: 0.6, 1000: 0.2, 1500: 0.2}),
        (EXPONENTIAL, {0: 1.0, 250: 10**-0.5, 500: 0.1, 1000: 0.01, 1500: 0.01}),
        (RATE, {0: 1.0, 99: 1.0, 100: 0.5, 199: 0.5, 200: 0.25, 300: 0.125, 400: 0.1, 1000: 0.1}),
        (RATE | {"every": 250}, {249: 1.0, 250: 0.5, 500: 0.25, 1000: 0.1}),
        (RATE | {"rate": 2, "end": 3}, {0: 1.0, 100: 2.0, 200: 3.0, 1000: 3.0}),
        (RATE | {"to": 0.2}, {200: 0.25, 1000: 0.25}),
        (PERIODIC, {0: 1.0, 125: 0.6, 250: 0.2, 500: 1.0, 750: 0.2, 1000: 1.0}),
        (PIECEWISE, {0: 1.0, 100: 1.0, 300: 0.6, 500: 0.2, 700: 0.4, 900: 0.6, 1000: 0.6}),
        (WARM, {0: 0.0, 100: 0.5, 200: 1.0, 600: 0.5, 1000: 0.0}),
        (WARM | {"warmup": 100}, {50: 0.5, 100: 1.0, 550: 0.5, 1000: 0.0}),
        (WARM | {"from": 0.6}, {100: 0.5, 200: 1.0, 600: 1.0, 800: 0.5, 1000: 0.0}),
        ({"start": 0.4, "schedule": "constant", "warmup": 0.5}, {250: 0.2, 500: 0.4, 1000: 0.4}),
    ],
)
def test_values_at_known_points(written: Any, points: dict[int, float]) -> None:
    schedule = Schedule.parse(written)
    for env_steps, value in points.items():
        assert schedule.at(env_steps, TOTAL) == pytest.approx(value, abs=1e-12), env_steps


@pytest.mark.parametrize(
    "written", [0, 0.3, "lin_0.5", LINEAR, COSINE, EXPONENTIAL, RATE, PERIODIC, PIECEWISE, WARM]
)
def test_dump_parses_back_equal(written: Any) -> None:
    schedule = Schedule.parse(written)
    assert Schedule.parse(schedule.dump()) == schedule
    assert Schedule.parse(schedule) is schedule


def test_ends_are_exact() -> None:
    for written in (LINEAR, COSINE, "lin_0.3"):
        schedule = Schedule.parse(written)
        assert schedule.at(0, 12_345) == schedule.start
        assert schedule.at(12_345, 12_345) == schedule.end


def test_constant_and_text() -> None:
    assert Schedule.parse(0.1).is_constant
    assert Schedule.parse(0.1).dump() == 0.1
    assert not Schedule.parse("lin_0.1").is_constant
    assert not Schedule.parse({"start": 1, "schedule": "constant", "warmup": 0.1}).is_constant
    assert str(Schedule.parse(0.001)) == "0.001"
    assert str(Schedule.parse("lin_0.001")) == "0.001 → 0 linear"
    assert str(Schedule.parse(WARM)) == "1 → 0 linear, warm-up 0.2"
    assert "piecewise" in str(Schedule.parse(PIECEWISE))
    assert "↔" in str(Schedule.parse(PERIODIC))


@pytest.mark.parametrize(
    ("written", "message"),
    [
        ("0.1", "expected a number"),
        ("lin_", "expected a number"),
        ("lin_-1", "expected a number"),
        ("cos_0.1", "expected a number"),
        (True, "expected a number"),
        (None, "expected a number"),
        (float("nan"), "expected a number"),
        ([1, 2], "expected a number"),
        ({"start": 1}, "needs end"),
        ({}, "needs start, end"),
        ({"start": 1, "end": 0, "stop": 3}, "has no stop"),
        ({"start": 1, "end": "0"}, "`end` must be a number"),
        ({"start": 1, "end": 0, "schedule": "cos"}, "must be one of constant, linear"),
        (LINEAR | {"from": -0.1}, "`from` must be 0 or more"),
        (LINEAR | {"from": 0.5, "to": 0.5}, "must come before"),
        (LINEAR | {"rate": 2}, "has no rate"),
        ({"start": 1, "end": 0, "schedule": "exponential"}, "cannot reach 0"),
        (RATE | {"rate": 1}, "other than 1"),
        (RATE | {"rate": 2}, "leads away"),
        (PERIODIC | {"cycles": 0}, "`cycles`"),
        ({"points": [[0, 1]]}, "two or more"),
        ({"points": [[0, 1], [0, 2]]}, "must rise"),
        ({"points": [[0, 1], [0.5]]}, "pair"),
        (PIECEWISE | {"warmup": 0.1}, "has no warmup"),
    ],
)
def test_bad_schedules_say_what_is_wrong(written: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Schedule.parse(written)


def test_places_out_of_order_are_found_when_the_budget_is_known() -> None:
    mixed = Schedule.parse(LINEAR | {"from": 0.5, "to": 1000})
    mixed.check(1500)
    with pytest.raises(ValueError, match="must come before 1000"):
        mixed.check(100_000)
    with pytest.raises(ValueError, match="must come before"):
        Schedule.parse(PIECEWISE).check(1_000_000)
    with pytest.raises(ValueError, match="must come before"):
        Schedule.parse(LINEAR | {"warmup": 0.5, "to": 0.4}).check(1000)


class Model(BaseModel):
    rate: PositiveSchedule
    share: Annotated[Schedule, scheduled(ge=0, le=1)] = Schedule.constant(0.5)


def test_bounds_hold_for_every_value() -> None:
    model = Model.model_validate({"rate": "lin_0.1", "share": {"start": 0, "end": 1}})
    assert model.model_dump(mode="json") == {
        "rate": {"start": 0.1, "end": 0.0},
        "share": {"start": 0.0, "end": 1.0},
    }
    for bad in ({"rate": 0}, {"rate": -1}, {"rate": {"start": 1, "end": -0.1}}):
        with pytest.raises(ValidationError, match="values >= 0 and a largest one > 0"):
            Model.model_validate(bad)
    piecewise = {"points": [[0, 0.5], [0.5, 1.5], [1.0, 0.5]]}
    with pytest.raises(ValidationError, match="<= 1"):
        Model.model_validate({"rate": 1, "share": piecewise})


# -- classes of torch.optim.lr_scheduler --------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("StepLR", {"step_size": 3, "gamma": 0.5}),
        ("MultiStepLR", {"milestones": [2, 5]}),
        ("OneCycleLR", {"max_lr": 0.1, "total_steps": 10}),
        ("CosineAnnealingWarmRestarts", {"T_0": 4}),
        ("CyclicLR", {"base_lr": 0.001, "max_lr": 0.01, "step_size_up": 3}),
    ],
)
def test_a_scheduler_of_torch_gives_the_values_of_torch(name: str, options: Any) -> None:
    written = {"schedule": name, "start": 0.01, "options": options, "every": 0.1}
    schedule = Schedule.parse(written)
    assert Schedule.parse(schedule.dump()) == schedule
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], 0.01, momentum=0.9)
    scheduler = getattr(torch.optim.lr_scheduler, name)(optimizer, **options)
    for step in range(10):
        rate = optimizer.param_groups[0]["lr"]
        assert schedule.at(100 * step, 1000) == schedule.at(100 * step + 99, 1000) == rate
        optimizer.step()
        if step < 9:
            scheduler.step()


def test_a_scheduler_of_torch_can_be_multiplied() -> None:
    written = {"schedule": "StepLR", "start": 0.01, "options": {"step_size": 300}}
    half = Schedule.parse(written).changed(0.5, 0.0)
    assert half.at(0, 1000) == 0.005
    assert half.at(999, 1000) == pytest.approx(5e-6)
    assert Schedule.parse(half.dump()) == half
    with pytest.raises(ValueError, match="only be multiplied"):
        half.changed(1.0, 0.1)
    with pytest.raises(ValueError, match="no min and max"):
        half.changed(1.0, 0.0, 0.0, 1.0)


def test_a_scheduler_of_torch_fills_the_run() -> None:
    schedule = Schedule.parse({"schedule": "CosineAnnealingLR", "start": 0.01})
    assert schedule.at(0, 5000) == 0.01
    assert schedule.at(2500, 5000) == pytest.approx(0.005)
    assert schedule.at(5000, 5000) == pytest.approx(0.0, abs=1e-7)


@pytest.mark.parametrize(
    ("written", "message"),
    [
        ({"schedule": "StpLR", "start": 1}, "no scheduler 'StpLR'.*StepLR"),
        ({"schedule": "LambdaLR", "start": 1}, "no scheduler 'LambdaLR'"),
        ({"schedule": "StepLR", "start": 1}, "step_size"),
        ({"schedule": "StepLR", "start": 1, "options": {"size": 1}}, "size"),
        ({"schedule": "StepLR", "start": 1, "every": 1e-9}, "raise `every`"),
    ],
)
def test_a_scheduler_that_torch_cannot_make_is_refused(written: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Schedule.parse(written).at(0, 1000)


@pytest.mark.parametrize(
    ("written", "message"),
    [
        ({"schedule": "StepLR"}, "needs start"),
        ({"schedule": "StepLR", "start": 1, "gamma": 0.5}, "has no gamma.*options"),
        ({"schedule": "StepLR", "start": 1, "options": 3}, "`options` must be a mapping"),
        ({"schedule": "StepLR", "start": 1, "every": 0}, "`every` must be above 0"),
        ({"schedule": "ReduceLROnPlateau", "start": 1}, "watches a metric"),
    ],
)
def test_a_scheduler_of_torch_is_written_with_options(written: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Schedule.parse(written)
