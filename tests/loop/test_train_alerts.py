"""Alerts of real runs: raised live, logged once, the same from the files, and without effect."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

from gymnasium_solver.errors import ConfigError, DivergedError
from gymnasium_solver.runs import query
from gymnasium_solver.runs.alerts.alert import Alert, alert_from_event
from gymnasium_solver.runs.alerts.judge import judge_of, judge_run
from gymnasium_solver.runs.jsonl import read_jsonl
from gymnasium_solver.runs.run import Run
from gymnasium_solver.training.observer import Alerts, rows_together
from tests.loop.conftest import (
    Heard,
    SmallEnv,
    events,
    make_config,
    registered,
    resume,
    train,
    weight_hash,
)


class Odd(SmallEnv):
    """Constant reward, observations far outside their space."""

    observation_space = spaces.Box(-1.0, 1.0, (2,), np.float32)

    def see(self) -> np.ndarray:
        return (100.0 * self.np_random.uniform(-1, 1, 2)).astype(np.float32)

    def ends(self) -> bool:
        return False


def alerts_in(run: Run) -> list[Alert]:
    found = [alert_from_event(event) for event in read_jsonl(run.events_path)]
    return [alert for alert in found if alert is not None]


def test_a_learning_rate_that_is_too_high_is_noticed() -> None:
    heard = Heard()
    run = train("ppo", "CartPole-v1", heard, policy_lr=3.0, n_epochs=10, max_epochs=12)
    names = {alert.name for alert in heard.alerts}
    assert "kl_high" in names
    assert alerts_in(run) == heard.alerts, "what observers are told is what is logged"
    judged, _ = judge_run(run)
    assert judged == heard.alerts, "the files tell the same"
    report = run.report_path.read_text()
    assert "## Alerts" in report
    assert "| `entropy_collapse` | since" in report
    records = {record.name: record for record in query.get_alerts(run)}
    assert records["entropy_collapse"].is_active
    assert not records["kl_high"].is_active, "a policy that no longer changes has no KL"
    assert "--policy-lr" in records["kl_high"].advice


def test_a_dead_environment_is_noticed() -> None:
    heard = Heard()
    fields = {"n_envs": 10, "n_steps": 33, "max_epochs": 7, "max_episode_steps": 10}
    train("ppo", registered(Odd), heard, log_details_freq_epochs=1, **fields)
    names = {alert.name for alert in heard.alerts}
    assert {"constant_return", "all_truncated", "observations_outside"} <= names


def test_values_that_diverge_are_noticed() -> None:
    heard = Heard()
    unstable = {"policy_lr": 0.1, "target_update_freq": 1, "max_grad_norm": None, "loss": "mse"}
    train("dqn", "CartPole-v1", heard, max_epochs=8, train_freq=3, updates_per_step=2.0, **unstable)
    assert "q_diverging" in {alert.name for alert in heard.alerts}


def test_a_run_that_ends_with_nan_has_its_alert(tmp_path: Path) -> None:
    heard = Heard()
    with pytest.raises(DivergedError):
        train("ppo", "CartPole-v1", heard, policy_lr=1e30, max_grad_norm=None)
    assert [alert.name for alert in heard.alerts] == ["not_finite"]
    run = Run(next(path for path in (tmp_path / "runs").iterdir() if path.name != "@last"))
    assert judge_run(run)[0] == heard.alerts


def test_alerts_change_nothing() -> None:
    settings = {"policy_lr": 3.0, "n_epochs": 10, "max_epochs": 12}
    loud = train("ppo", "CartPole-v1", **settings)
    muted = train("ppo", "CartPole-v1", mute_alerts=["all"], **settings)
    assert weight_hash(loud) == weight_hash(muted)
    assert alerts_in(loud)
    assert alerts_in(muted) == []


def test_a_resumed_run_repeats_no_alert() -> None:
    settings = {"policy_lr": 3.0, "n_epochs": 10, "n_envs": 3, "n_steps": 16}
    whole = train("ppo", "CartPole-v1", max_env_steps=700, **settings)
    heard = Heard()
    first = train("ppo", "CartPole-v1", max_env_steps=400, **settings)
    assert alerts_in(first), "otherwise this test shows nothing"
    n_before = len(alerts_in(first))
    second = resume(first.id, heard, max_env_steps=700)
    learnt = [alert for alert in alerts_in(whole) if not alert.name.startswith("throughput")]
    assert [a.name for a in alerts_in(second)] == [a.name for a in learnt]
    told = {alert.name for alert in heard.alerts}
    active = {record.name for record in query.get_alerts(first) if record.is_active}
    assert active <= told, "observers of the resumed run know what is still active"
    assert len(alerts_in(second)) >= n_before


def test_a_rule_that_fails_never_stops_training(monkeypatch: pytest.MonkeyPatch) -> None:
    plain = train("ppo", "CartPole-v1")

    def broken(self: Any, row: Any) -> Any:
        raise ValueError("no such thing")

    monkeypatch.setattr("gymnasium_solver.runs.alerts.judge.Judge.see", broken)
    heard = Heard()
    run = train("ppo", "CartPole-v1", heard)
    assert weight_hash(run) == weight_hash(plain)
    text = "alerts are off, a rule failed: ValueError: no such thing"
    assert heard.notes.count(text) == 1
    assert [event["text"] for event in events(run, "alerts_failed")] == [text]


def test_a_muted_alert_must_exist() -> None:
    with pytest.raises(ConfigError, match=r"mute_alerts: there is no alert 'kl'"):
        make_config("ppo", "CartPole-v1", mute_alerts=["kl"])


def test_a_damaged_event_is_no_alert() -> None:
    run = train("ppo", "CartPole-v1", max_epochs=1)
    run.log_event("alert", name=None)
    run.log_event("alert", name="kl_high")
    [record] = query.get_alerts(run)
    assert (record.name, record.text, record.first_env_steps) == ("kl_high", "", 0)
    Alerts(run, Heard())  # and a resume reads it


def test_rows_of_short_epochs_are_judged_together() -> None:
    def together(n_envs: int, n_steps: int) -> int:
        return rows_together(make_config("ppo", "CartPole-v1", n_envs=n_envs, n_steps=n_steps))

    assert [together(1, 64), together(8, 32), together(8, 64), together(8, 128)] == [4, 4, 2, 1]
    assert together(8, 2048) == 1


def test_judged_together_they_raise_the_same() -> None:
    settings = {"policy_lr": 3.0, "n_epochs": 10, "n_envs": 3, "n_steps": 16, "max_epochs": 10}
    run, alone = train("ppo", "CartPole-v1", **settings), Heard()
    judge = Alerts(train("ppo", "CartPole-v1", max_epochs=1, mute_alerts=["all"]), alone)
    judge.judge = judge_of(run)
    for row in read_jsonl(run.metrics_path):
        judge.see(row)
    assert alone.alerts
    assert alerts_in(run) == alone.alerts


@pytest.mark.parametrize("end", ["catch_up", "diverged"])
def test_no_row_waits_beyond_a_checkpoint_or_the_end(end: str) -> None:
    heard = Heard()
    run = train("ppo", "CartPole-v1", max_epochs=1)
    alerts = Alerts(run, heard, rows_together=4)
    alerts.see({"env_steps": 10**6, "train/opt/loss/total": None})
    assert heard.alerts == []
    if end == "catch_up":
        alerts.catch_up()
    else:
        alerts.diverged("NaN", 10**6)
    assert [alert.name for alert in heard.alerts] == ["not_finite"]
    alerts.catch_up()
    assert len(heard.alerts) == 1


def test_a_checkpoint_is_not_ahead_of_the_alerts() -> None:
    """A resume from it would not raise them: it judges earlier rows silently."""
    settings = {"policy_lr": 3.0, "n_epochs": 10, "n_envs": 3, "n_steps": 16, "max_epochs": 7}
    run = train("ppo", "CartPole-v1", checkpoint_freq_epochs=1, **settings)
    assert alerts_in(run)
    saved = 0
    for event in read_jsonl(run.events_path):
        assert event["kind"] != "alert" or event["env_steps"] > saved
        saved = event["env_steps"] if event["kind"] == "checkpoint" else saved
