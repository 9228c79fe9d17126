"""The alerts of a run as records and events; whatever damaged files hold, judging ends without an
error of its own."""

import random
from typing import Any

import pytest

from gymnasium_solver.runs.alerts.alert import (
    Alert,
    advised_changes,
    alert_from_event,
    records,
)
from gymnasium_solver.runs.alerts.judge import Judge, judge_rows
from tests.runs.alert_rows import CONFIG, META, healthy_row, sac_row

JUNK: list[Any] = [None, "text", [], [1], {}, {"a": 1}, True, -1, 0, 10**400, 1e308, -1e308, 1e-320]
JUNK += [float("nan"), float("inf"), float("-inf"), ""]


def test_a_record_counts_and_ends() -> None:
    alerts = [
        Alert("a", "1", 5),
        Alert("a", "is over", 6, is_over=True),
        Alert("a", "2", 1007),
        Alert("b", "is over", 9, is_over=True),
        Alert("c", "3", 10),
        Alert("c", "is over", 12, is_over=True),
    ]
    first, second = records(alerts)
    assert (first.name, first.times, first.text, first.is_active) == ("a", 2, "2", True)
    assert first.span == "since 5 env steps, raised 2 times"
    assert (second.name, second.is_active) == ("c", False)
    assert second.span == "from 10 to 12 env steps"


def test_an_event_is_an_alert_again() -> None:
    alert = Alert("kl_high", "0.4", 5, "train/opt/ppo/approx_kl", "too far", "lower it")
    assert alert_from_event({"kind": "alert", "at": "now"} | alert.to_dict()) == alert
    assert alert_from_event({"kind": "eval", "name": "x"}) is None
    assert alert_from_event({"kind": "alert", "name": 5}) is None


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
    judge = Judge(config, meta)
    rows = [spoilt(base(epoch), rng, 0.2) for epoch in range(1, 60)]
    events = [{"kind": "diverged", "text": rng.choice(JUNK), "env_steps": rng.choice(JUNK)}]
    for alert in judge_rows(judge, rows, events):
        assert isinstance(alert.text, str)
        assert isinstance(alert.env_steps, int)


@pytest.mark.parametrize("seed", range(20))
def test_events_with_anything_in_them(seed: int) -> None:
    rng = random.Random(seed)
    event = {"kind": "alert", "name": "a", "text": "t", "env_steps": 5, "metric": "m"}
    alerts = [
        alert_from_event(spoilt(event, rng, 0.4) | {"is_over": rng.choice(JUNK)}) for _ in range(20)
    ]
    for record in records(alert for alert in alerts if alert is not None):
        assert record.span
        assert record.to_dict()


def test_muted_names_that_are_no_list() -> None:
    for junk in JUNK:
        Judge({"mute_alerts": junk}, {})


def test_advice_becomes_changes_of_fields() -> None:
    config = {"policy_lr": 50.0, "target_kl": None, "n_epochs": 4, "normalize_reward": False}
    config |= {"normalize_obs": None}
    advice = "gsolve train A:ppo --policy-lr 0.003; or target_kl: 0.02, or fewer n_epochs"
    assert advised_changes(advice, config) == [{"policy_lr": "0.003"}, {"target_kl": "0.02"}]
    both = "lower policy_lr, or normalize_obs: rolling and normalize_reward: true; nosuch: 3"
    changes = {"normalize_obs": "rolling", "normalize_reward": "true"}
    assert advised_changes(both, config) == [changes]
    flag = "gsolve train A:ppo --normalize-reward; or --policy-lr LOWER, or target_kl: none"
    assert advised_changes(flag, config) == [{"normalize_reward": "true"}]


def test_advice_never_exceeds_the_shipped_learning_rate() -> None:
    meta = dict(META) | {"changed": {"policy_lr": [{"start": 0.003, "end": 0.0}, 50.0]}}
    history = Judge(dict(CONFIG) | {"policy_lr": 50.0}, meta).history
    history.peak_lr = 50.0
    assert history.lower_lr.endswith(" --policy-lr 0.003")
