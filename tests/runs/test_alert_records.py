"""The alerts of a run, one record per rule."""

from gymnasium_solver.runs.alerts.alert import Alert, alert_from_event, records


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
