"""Damaged files: whatever they hold, judging ends without an error of its own."""

import random
from typing import Any

import pytest

from gymnasium_solver.runs.alerts.alert import alert_from_event, records
from gymnasium_solver.runs.alerts.history import RunSettings
from gymnasium_solver.runs.alerts.judge import Judge, judge_rows
from tests.runs.alert_rows import CONFIG, META, healthy_row, sac_row

JUNK: list[Any] = [None, "text", [], [1], {}, {"a": 1}, True, -1, 0, 10**400, 1e308, -1e308, 1e-320]
JUNK += [float("nan"), float("inf"), float("-inf"), ""]


def spoilt(data: dict[str, Any], rng: random.Random, share: float) -> dict[str, Any]:
    return {k: rng.choice(JUNK) if rng.random() < share else v for k, v in data.items()}


@pytest.mark.parametrize("seed", range(40))
def test_rows_with_anything_in_them(seed: int) -> None:
    rng = random.Random(seed)
    base = sac_row if seed % 2 else healthy_row
    config = spoilt({**CONFIG, "ent_coef": "auto", "spec": {"returns": {"reference": 5}}}, rng, 0.3)
    config["mute_alerts"] = []
    kinds = ("Discrete", "Box", "MultiBinary", "MultiDiscrete")
    sizes = ("n", "shape", "nvec")
    spaces = [{"kind": kind, **{size: rng.choice(JUNK) for size in sizes}} for kind in kinds]
    meta = spoilt(META, rng, 0.3) | {"action_space": rng.choice([*spaces, *JUNK])}
    judge = Judge(RunSettings(config, meta))
    rows = [spoilt(base(epoch), rng, 0.2) for epoch in range(1, 60)]
    events = [{"kind": "diverged", "text": rng.choice(JUNK), "env_steps": rng.choice(JUNK)}]
    for alert in judge_rows(judge, rows, events):
        assert isinstance(alert.text, str)
        assert isinstance(alert.env_steps, int)


@pytest.mark.parametrize("seed", range(20))
def test_events_with_anything_in_them(seed: int) -> None:
    rng = random.Random(seed)
    event = {
        "kind": "alert",
        "name": "a",
        "text": "t",
        "env_steps": 5,
        "metric": "m",
        "advice": "x",
    }
    alerts = [
        alert_from_event(spoilt(event, rng, 0.4) | {"is_over": rng.choice(JUNK)}) for _ in range(20)
    ]
    for record in records(alert for alert in alerts if alert is not None):
        assert record.span
        assert record.to_dict()


def test_muted_names_that_are_no_list() -> None:
    for junk in JUNK:
        Judge(RunSettings({"mute_alerts": junk}, {}))
