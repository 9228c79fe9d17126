"""The live dashboard: what it shows at which size, and what it says while an epoch is long."""

import io
import os
import re
import signal
import threading
from typing import Any

import pytest
from rich.console import Console, Group

from docs.terminal_screen import Screen
from gymnasium_solver.cli import display as display_module
from gymnasium_solver.cli.dashboard import Dashboard, frame
from gymnasium_solver.cli.display import Display, SteadyLive, pause_after
from gymnasium_solver.cli.live_state import Pace, State
from gymnasium_solver.cli.output import linked
from gymnasium_solver.runs.alerts.alert import Alert
from gymnasium_solver.training import activity as activity_module
from gymnasium_solver.training.observer import Control
from tests.cli.conftest import EPOCH, evaluation, row

TOTAL, N_EPOCHS = 20_000, 79
HEADER = [
    ("env", ["CartPole-v1 × 8 on vector", "fastest here"]),
    ("agent", ["ppo", "seed 1154293847", "9,155 parameters", "cpu", "recorded NumPy programs"]),
    ("budget", ["20,000 env steps (about 79 epochs)", "solved at 475", "test of 100 episodes"]),
]


@pytest.fixture
def now(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The clock of the loop, set by a test."""
    clock = [1000.0]
    monkeypatch.setattr(activity_module, "perf_counter", lambda: clock[0])
    return clock


def make_state(**fields: Any) -> State:
    control = Control()
    control.activity.epoch_size = EPOCH
    given: dict[str, Any] = {"max_env_steps": TOTAL, "threshold": 475.0, **fields}
    return State(
        "CartPole-v1-ppo-20260131-101500-a1b2",
        "CartPole-v1:ppo",
        HEADER,
        planned_epochs=N_EPOCHS,
        activity=control.activity,
        control=control,
        **given,
    )


def trained(epochs: int = 40, **fields: Any) -> State:
    """A state after some epochs, with validations and messages."""
    state = make_state(**fields)
    for epoch in range(1, epochs + 1):
        state.activity.begin_epoch(epoch)
        state.activity.count(EPOCH * epoch)
        state.add_row(row(epoch))
        if epoch % 10 == 0:
            state.add_eval(evaluation(epoch, 12.5 * epoch))
            state.messages.append([(f"message {epoch}", "none")])
    state.activity.begin("collecting")
    state.refresh()
    return state


def keys_of(state: State, shown: list[str] | None = None, tick: Any = None) -> Display:
    """The keys of a training; what they say is put into `shown`."""
    said = [] if shown is None else shown
    keys = Display(Console(), state, tick or (lambda: None), lambda level, text: said.append(text))
    keys.press("")
    return keys


def text_of(state: State, width: int = 100, height: int | None = 40) -> str:
    lines = ["".join(text for text, _ in line) for line in frame(state, width, height)]
    assert {len(line) for line in lines} == {width}
    assert height is None or len(lines) <= max(height, 2)
    return "\n".join(lines)


@pytest.mark.parametrize("height", [5, 10, 15, 23, 29, 49])
@pytest.mark.parametrize("width", [12, 40, 60, 80, 100, 160])
def test_it_fits_any_terminal(width: int, height: int) -> None:
    state = trained()
    keys_of(state)
    text = text_of(state, width, height)
    if width >= 60 and height >= 10:
        assert "10,240 / 20,000" in text
        assert " 51.2 %" in text
        assert re.search(r"train +ep_rew/mean +460\.0 +★ 460\.0", text)


@pytest.mark.parametrize(("width", "height"), [(80, 23), (100, 29), (160, 49)])
def test_what_matters_is_there_at_the_usual_sizes(width: int, height: int) -> None:
    state = trained()
    keys_of(state)
    text = text_of(state, width, height)
    titles = re.findall(r"(?m)^│ (train|val|learn|hp) ", text)
    assert titles == ["train", "val", "learn", "hp"][: 4 if height > 24 else 3], "each once"
    assert re.search(r"val +ep_rew/mean +500\.0 +★ 500\.0", text)
    for part in ("seed 1154293847", "message 40", "message 30", "env 31 %", "eval 6 %",
                 "policy/entropy", "ppo/approx_kl", "c checkpoint · e evaluate"):  # fmt: skip
        assert part in text
    assert re.search("[▁▂▃▄▅▆▇]{8}", text)
    assert "…" not in text


def test_a_long_rollout_is_seen_to_move(now: list[float]) -> None:
    state = make_state()
    a = state.activity
    a.begin_epoch(1)
    a.begin("collecting")
    state.refresh()
    text = text_of(state)
    assert "0 / 20,000 · 0.0 s so far" in text
    assert "left" not in text, "nothing is known yet"
    for second in (1, 2, 3):
        now[0] += 1.0
        a.rollout_steps, a.episodes = 14 * second, second - 1
        state.refresh()
    text = text_of(state)
    assert "42 / 20,000 · 23:46 left · 3.0 s so far · 14 steps/s · epoch 1" in text
    assert "collecting 42 / 256 env steps of epoch 1 · 2 episodes" in text


def test_a_counter_that_is_read_while_it_changes_does_not_go_back(now: list[float]) -> None:
    state = make_state()
    state.activity.rollout_steps = 40
    state.refresh()
    state.activity.rollout_steps = 0  # as in `count`, before the clock is set
    state.refresh()
    assert state.env_steps == 40


def test_what_the_loop_is_doing(now: list[float]) -> None:
    state = make_state()
    a = state.activity
    a.begin_epoch(7)
    a.begin("collecting")
    assert state.doing() == ["training", "0 episodes"], "an epoch too quick to follow"
    now[0] += 5
    a.begin("learning")
    now[0] += 12
    state.refresh()
    assert state.doing()[:2] == ["learning from epoch 7", "0:12"]
    a.begin_evaluation("evaluating", 20)
    a.eval_episodes_done, a.eval_rows = 3, 412
    now[0] += 31
    state.refresh()
    assert state.doing() == ["evaluating 3 / 20 episodes", "412 steps", "0:31"]
    a.begin_evaluation("testing", 100)
    assert state.doing()[0] == "testing 0 / 100 held-out episodes"
    a.is_paused = True
    assert state.doing() == ["paused"]


def test_ctrl_c_is_acknowledged_with_what_it_means(now: list[float]) -> None:
    state = make_state()
    a = state.activity
    a.begin_epoch(1)
    a.begin("collecting")
    now[0] += 10
    a.rollout_steps = 128
    state.refresh()
    assert state.requests() == []
    a.stop_signal = "SIGINT"
    assert state.requests() == [
        "Ctrl-C: saves and stops after this epoch, in about 0:10",
        "Ctrl-C again: stops at once and loses the last 128 env steps",
    ]
    for width, height in ((80, 23), (100, 29)):
        text = text_of(state, width, height)
        assert all(line in text for line in state.requests())
    a.stop_signal = "SIGTERM"
    a.begin_evaluation("evaluating", 3)
    assert state.requests()[0] == "SIGTERM: saves and stops after this evaluation"


def test_requests_by_key_are_shown_until_they_are_met() -> None:
    state = trained()
    shown: list[str] = []
    keys = keys_of(state, shown)
    keys.press("c")
    keys.press("e")
    (line,) = state.requests()
    assert line.startswith("saves a checkpoint and evaluates after this epoch")
    assert state.control.take("checkpoint")
    assert state.control.take("evaluation")
    assert state.requests() == []
    assert keys.took_checkpoint()
    assert not keys.took_checkpoint()
    keys.press("p")
    assert state.activity.is_paused
    assert "p continue" in text_of(state)
    keys.press("p")
    assert not state.activity.is_paused
    keys.press("h")
    assert "q       save and stop: after this epoch; gsolve train --resume" in text_of(state)
    assert "message 40" not in text_of(state)
    keys.press("h")
    assert "message 40" in text_of(state)
    keys.press("v")
    assert not state.control.wants_video, "nothing records videos"
    state.control.can_record_video = True
    keys.press("v")
    assert state.control.wants_video
    assert "v video" in text_of(state)
    assert shown.pop() == "a video of the next evaluation will be recorded"
    state.activity.begin_evaluation("evaluating", 3)
    keys.press("e")
    assert not state.control.wants_evaluation
    assert shown.pop() == "this policy is being evaluated now"
    state.activity.begin("collecting")
    keys.press("x")
    keys.press("q")
    assert state.control.stop_reason == "q was pressed"
    assert state.requests()[0].startswith("saves and stops after this epoch")
    assert shown == []


def test_an_alert_marks_its_row_until_it_is_over() -> None:
    state = trained()
    alert = Alert(
        "entropy_collapse", "entropy 0.02, 3 % of its start", 512, "train/opt/policy/entropy"
    )
    state.add_alert(alert)
    narrow = text_of(state, 80, 23)
    assert re.search(r"policy/entropy +! +0\.650", narrow)
    assert "3 % of its start" not in narrow
    for width in (120, 160):
        assert re.search(r"policy/entropy +! .*▁ +entropy_collapse ", text_of(state, width, 49))
    over = Alert("entropy_collapse", "entropy 0.5", 1024, alert.metric, is_over=True)
    state.add_alert(over)
    assert "!" not in text_of(state, 160, 49)


def test_a_run_that_has_ended_shows_what_was_and_no_time_left(now: list[float]) -> None:
    state = trained(10)
    now[0] += 4
    state.refresh()
    state.ended = True
    text = text_of(state, width=120, height=None)
    assert "2,560 / 20,000 · ended after 1.0 s · 2,560 steps/s · epoch 10" in text, "of training"
    assert "left" not in text
    assert re.search(r"last +min +max +mean +std  over the run", text)
    assert re.search(r"train +ep_rew/mean +130\.0 +31\.0 +130\.0 +80\.5 +31\.6  ▁▂", text)
    assert "message" not in text
    assert re.search(r"last +min +max  over the run", text_of(state, width=100, height=None))


def test_the_run_and_its_trackers_are_links_where_the_terminal_can(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TERM", "xterm-256color")
    url = "https://wandb.example/ann/cartpole/runs/a1b2"
    state = trained(3, folder_url="file:///runs/a%20b")
    state.header = [*state.header, ("wandb", [url])]
    file = io.StringIO()
    Console(file=file, force_terminal=True, width=120, height=40).print(Dashboard(state))
    links = re.findall(r"\x1b\]8;[^;]*;([^\x1b]+)\x1b", file.getvalue())
    assert set(links) == {"file:///runs/a%20b", url}
    assert linked("bold", "https://a.b/ x") == "bold", "no second word of a style"
    monkeypatch.setenv("TERM", "linux")
    assert linked("bold", url) == "bold"


def test_remaining_time_is_of_what_is_left_also_after_a_resume(now: list[float]) -> None:
    state = make_state()
    assert state.remaining_s() is None
    now[0] += 10
    state.activity.count(5000)
    state.refresh()  # a quarter in 10 s
    assert state.remaining_s() == pytest.approx(30.0)
    assert state.steps_per_s() == pytest.approx(500.0)
    resumed = make_state(start_steps=4000, wall_before_s=100.0)  # of which most was done before
    resumed.activity.count(4000)
    now[0] += 10
    resumed.activity.count(5000)
    resumed.refresh()
    assert resumed.remaining_s() == pytest.approx(150.0)
    assert resumed.steps_per_s() == pytest.approx(100.0)
    assert resumed.wall_s() == pytest.approx(110.0)


def test_remaining_time_of_a_budget_in_epochs_counts_the_epoch_under_way(now: list[float]) -> None:
    state = make_state(max_env_steps=None)
    a = state.activity
    for epoch in (1, 2):
        a.begin_epoch(epoch)
        now[0] += 10
        a.count(a.env_steps + EPOCH)
        state.add_row(row(epoch))
        state.refresh()
    assert state.fraction() == pytest.approx(2 / 79)
    a.begin_epoch(3)
    now[0] += 5
    a.rollout_steps = EPOCH // 2
    state.refresh()
    assert state.fraction() == pytest.approx(2.5 / 79)
    assert state.remaining_s() == pytest.approx(765.0)


def test_the_clock_stands_still_in_a_pause(now: list[float]) -> None:
    state = make_state()
    a = state.activity
    now[0] += 10
    a.count(1000)
    state.refresh()
    a._paused_since_s = now[0]
    now[0] += 1000
    state.refresh()
    assert state.wall_s() == pytest.approx(10.0)
    assert state.steps_per_s() == pytest.approx(100.0)


def test_pace_is_that_of_the_recent_past() -> None:
    pace = Pace(0.0, 0.0)
    assert pace.per_second() is None
    for second in range(1, 11):
        pace.add(float(second), 1000.0 * second)
    assert pace.per_second() == pytest.approx(1000.0)
    for second in range(11, 101):  # it becomes slow, as where learning starts
        pace.add(float(second), 10_000.0 + 10 * (second - 10))
    assert pace.per_second() == pytest.approx(10.0)
    assert len(pace._samples) <= Pace.SAMPLES + 2


def test_drawing_is_paced_by_its_cost_but_at_least_once_a_second() -> None:
    assert pause_after(0.0) == 1 / 8
    assert pause_after(0.004) == pytest.approx(0.4)
    assert pause_after(1.0) < 1.0


def test_a_long_message_is_wrapped_and_never_cut_in_the_middle() -> None:
    state = trained()
    text = " ".join(f"word{i}" for i in range(25))
    state.messages.append([("10:15:00  ", "none"), (text, "none")])
    shown = text_of(state, 80, 23)
    assert "word0 " in shown
    assert "word24" in shown
    assert "…" not in shown
    state.messages.append([("10:15:01  ", "none"), ("newest", "none")])
    shown = text_of(state, 80, 23)
    assert "newest" in shown
    assert ("word0 " in shown) == ("word24" in shown), "whole or not at all"


def lines_of(file: io.StringIO) -> list[str]:
    screen = Screen()
    screen.feed(file.getvalue())
    return [line for line in screen.text().splitlines() if line]


def test_a_refresh_overwrites_without_erasing_and_leaves_nothing_behind() -> None:
    file = io.StringIO()
    console = Console(file=file, force_terminal=True, width=40, height=20, color_system=None)
    lines = [f"line {i}" for i in range(6)]
    shown = [line.ljust(40) for line in lines]
    live = SteadyLive(Group(*shown), console=console)
    live.start(refresh=True)
    before = len(file.getvalue())
    live.update(Group(*reversed(shown)), refresh=True)
    assert "\x1b[2K" not in file.getvalue()[before:], "this would flicker"
    assert lines_of(file) == list(reversed(lines))
    live.update(Group(*shown[:3]), refresh=True)
    assert lines_of(file) == lines[:3]
    console.print("said")
    assert lines_of(file) == ["said", *lines[:3]]
    live.update(Group(*shown), refresh=True)
    live.stop()
    assert lines_of(file) == ["said", *lines]


def test_a_signal_wakes_the_display_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where the main thread is in a long call and its own handler has not run yet."""
    monkeypatch.setattr(display_module, "SHORTEST_S", 60.0)
    state, ticked = trained(), threading.Event()
    state.activity.takes_signals = True
    display = keys_of(state, tick=ticked.set)
    former = signal.signal(signal.SIGTERM, lambda number, frame: None)
    display.start(dashboard=False, keys=False)
    try:
        os.kill(os.getpid(), signal.SIGTERM)
        assert ticked.wait(10)
        assert state.requests()[0].startswith("SIGTERM: saves and stops after this epoch")
    finally:
        display.stop()
        signal.signal(signal.SIGTERM, former)
    assert signal.set_wakeup_fd(-1) == -1, "given back"


def test_only_a_signal_that_the_loop_takes_is_told() -> None:
    state = trained()
    state.note_signal("SIGINT")
    assert state.requests() == [], "outside of the loop it ends the program"
    state.activity.takes_signals = True
    state.note_signal("SIGWINCH")
    assert state.requests() == []
    state.note_signal("SIGINT")
    assert state.requests()[0].startswith("Ctrl-C: saves and stops after this epoch")


def test_a_thread_that_fails_keeps_its_error() -> None:
    def fail() -> None:
        raise OSError("no space")

    display = keys_of(trained(), tick=fail)
    display.start(dashboard=False, keys=False)
    display._thread.join(10)
    display.stop()
    with pytest.raises(OSError, match="no space"):
        display.check()
    display.check()  # it is told once


def test_a_change_too_small_to_be_seen_is_a_dot() -> None:
    state = make_state()
    for i in range(20):
        state.add_value("val/roll/ep_rew/mean", 9.2 + 1e-4 * i)
        state.add_value("train/opt/loss/value", 1e-7 * (i + 1))
    text = text_of(state)
    assert re.search(r"val +ep_rew/mean +9\.2 +★ 9\.2 +· ", text)
    assert re.search(r"learn +loss/value +2\.0e-06 +\+2\.0e-07 ", text), "as small as the value"
