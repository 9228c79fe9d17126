"""What a training tells: live, plain, quiet; the run.log; and what it costs."""

import io
import logging
import math
import os
import re
import sys
import threading
import time
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from rich.file_proxy import FileProxy

from gymnasium_solver.cli import console as console_module
from gymnasium_solver.cli import display as display_module
from gymnasium_solver.cli import output as fmt
from gymnasium_solver.cli.console import TrainConsole, header
from gymnasium_solver.cli.eval import EvalLine, eval_progress
from gymnasium_solver.cli.live_state import Series
from gymnasium_solver.config.load import dump_config
from gymnasium_solver.envs.spec import EnvSpec
from gymnasium_solver.errors import DivergedError
from gymnasium_solver.runs.alerts.alert import Alert
from gymnasium_solver.runs.query import get_run
from gymnasium_solver.runs.run import Run
from gymnasium_solver.training.activity import Activity
from gymnasium_solver.training.observer import Control, TrainInfo
from gymnasium_solver.training.prepare import load_config
from tests.cli.conftest import EPOCH, evaluation, row

CODES = re.compile(r"\x1b(\[[?0-9;]*[a-zA-Z]|\]8;[^\x1b]*\x1b\\)")  # colours, cursor, links
N_EPOCHS, TOTAL = 40, 40 * EPOCH
CONFIG = load_config("CartPole-v1:ppo", overrides={"max_env_steps": TOTAL, "seed": 7})
INFO = TrainInfo(
    env_spec=EnvSpec("CartPole-v1", "vector", "fastest here", 500, 475.0, "classic_control"),
    n_parameters=9155,
    device="cpu",
    update_mode="recorded NumPy programs",
    threshold=475.0,
    planned_epochs=N_EPOCHS,
    notes=["a note of the loop"],
)


@pytest.fixture(autouse=True)
def _no_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing draws between the calls of a test."""
    monkeypatch.setattr(display_module.Display, "_run", lambda display: None)


class Training:
    """A training as the loop would tell it, on a real run folder."""

    sampled = 481.0  # score of the sampled test

    def __init__(self, tmp_path: Path, *, terminal: bool = False, size=(100, 60), **options: Any):
        self.run = Run.create(dump_config(CONFIG), dict(CONFIG), tmp_path / "runs", ["test"])
        self.run.update_meta(threshold=475.0)
        self.file = io.StringIO()
        self.info = replace(INFO, activity=Activity(), control=Control())
        self.info.activity.epoch_size = 256
        screen = Console(
            file=self.file,
            force_terminal=terminal,
            highlight=False,
            width=size[0],
            height=size[1],
        )
        self.observer = TrainConsole(console=screen, notes=["seed: 1 → 7"], **options)

    def __enter__(self) -> "Training":
        self.observer.__enter__().on_start(self.run, CONFIG, self.info)
        return self

    def __exit__(self, *error: Any) -> None:
        self.observer.__exit__(*error)

    def go(self, epochs: int = N_EPOCHS, end: str | None = "solved") -> str:
        with self:
            listener = self.observer
            for epoch in range(1, epochs + 1):
                self.info.activity.count(256 * epoch)
                listener.on_epoch(row(epoch) | {"train/opt/loss/value": None})
                if epoch % 10 == 0:
                    listener.on_eval(evaluation(epoch, 12.5 * epoch), is_best=True)
                    listener.on_checkpoint(self.run.checkpoints_dir / str(256 * epoch), "best")
            listener.on_message("warning", "something odd")
            if end is not None:
                self.finish(epochs, end)
        return self.text

    def finish(self, epochs: int, stop_reason: str) -> None:
        score = 12.5 * (epochs // 10 * 10)
        tested = evaluation(epochs, 498.0 if score >= 475 else 241.0)
        interrupted = stop_reason == "interrupted"
        self.run.update_meta(
            status="interrupted" if interrupted else "finished",
            stop_reason=stop_reason,
            solved=score >= 475,
            test=None if interrupted else tested.score(),
            env_steps=256 * epochs,
            epoch=epochs,
            wall_s=4.2,
            best={"score": score, "env_steps": 256 * epochs, "epoch": epochs} if score else None,
        )
        final = {"greedy": tested, "sampled": evaluation(epochs, self.sampled, False)}
        self.observer.on_end(get_run(self.run), {} if interrupted else final)

    @property
    def text(self) -> str:
        return self.file.getvalue()

    @property
    def log(self) -> str:
        return (self.run.path / "run.log").read_text()


def test_plain_lines_and_the_end(tmp_path):
    training = Training(tmp_path)
    text = training.go()
    run_id = training.run.id
    assert "\x1b" not in text
    evals = [line for line in text.splitlines() if " %" in line and "  val " in line]
    assert len(evals) == 4  # one line an evaluation
    assert evals[0].split()[:2] == ["25.0", "%"]
    assert "val 125.0 ± 3.0 ★" in evals[0]
    for told in (
        f"CartPole-v1:ppo  {run_id}",
        "CartPole-v1 × 8 on vector · fastest here",
        "seed: 1 → 7",
        "a note of the loop",
        "warning: something odd",
        f"SOLVED  test 498.0 ± 3.0 (standard error, 2 episodes) ≥ 475  in {TOTAL:,} env steps",
        "sampled  481.0",
        str(training.run.path),
        f"gsolve eval {run_id}",
        f"gsolve train --resume {run_id}  # trains on to its budget",
    ):
        assert told in text
    assert "sampled ones" not in text, "the two scores are close"
    assert training.observer.exit_code == 0


def test_scores_that_differ_widely_are_explained(tmp_path):
    training = Training(tmp_path)
    training.sampled = 140.0
    text = training.go()
    assert "sampled  140.0" in text
    assert "greedy actions score more than sampled ones: the policy still explores" in text


def test_everything_told_is_in_the_log_without_colours(tmp_path):
    plain = Training(tmp_path)
    text = plain.go()
    assert all(line.rstrip() in plain.log for line in text.splitlines())
    live = Training(tmp_path, terminal=True)
    assert "\x1b[" in live.go()
    assert "\x1b" not in live.log
    for told in ("SOLVED", "warning: something odd", "checkpoint (best)", "last        min"):
        assert told in live.log


def test_quiet_is_start_result_and_path(tmp_path):
    training = Training(tmp_path, quiet=True)
    training.observer.notes = []
    start, warning, result, path = training.go().splitlines()
    assert start.startswith("CartPole-v1:ppo: training for 10,240 env steps")
    assert warning == "warning: something odd"
    assert result.startswith("SOLVED")
    assert "test 498.0 ± 3.0 (standard error, 2 episodes) ≥ 475" in result
    assert result.endswith("sampled: 481.0")
    assert path == str(training.run.path)


def test_interruption_tells_how_to_resume(tmp_path):
    training = Training(tmp_path)
    text = training.go(epochs=5, end="interrupted")
    verdict = "INTERRUPTED  no evaluation yet, not tested (solved at a test mean of 475)"
    assert f"{verdict}  after 1,280 env steps" in text
    assert f"gsolve train --resume {training.run.id}" in text
    assert training.observer.exit_code == 130


def test_an_error_gives_the_terminal_back_and_tells_the_folder(tmp_path):
    training = Training(tmp_path, terminal=True)

    def diverge() -> None:
        with training:
            training.run.update_meta(status="failed", stop_reason="diverged")
            raise DivergedError("loss is nan")

    with pytest.raises(DivergedError):
        diverge()
    text = training.text
    assert text.rindex("\x1b[?25h") > text.rindex("\x1b[?25l")  # the cursor is back
    assert "FAILED" in text
    assert str(training.run.path) in text
    assert "DivergedError: loss is nan" in training.log
    assert training.observer.exit_code == 1


def test_the_verdict_of_other_ends(tmp_path):
    training = Training(tmp_path)
    text = training.go(epochs=20, end="max_env_steps")
    assert "not solved  test 241.0 ± 3.0 (standard error, 2 episodes) < 475" in text
    assert "--max-env-steps 10240" in text  # twice what was used
    for meta, verdict in (
        ({"threshold": None, "solved": None}, "finished  test 241.0 ± 3.0"),
        ({"threshold": 475.0, "solved": True, "status": "interrupted"}, "INTERRUPTED ★ solved  "),
    ):
        training.run.update_meta(**meta)
        line = str(console_module.results.result(get_run(training.run), {})[1])
        assert line.startswith(verdict)


def test_a_test_that_falls_short_is_told(tmp_path):
    with Training(tmp_path) as training:
        training.observer.on_test(evaluation(10, 471.0), required=475.0)
        training.observer.on_test(evaluation(20, 476.0), required=478.5)
        training.observer.on_test(evaluation(30, 480.0), required=478.5)
    text = training.text
    spread = "± 3.0 (standard error, 2 episodes)"
    assert f"test at 2,560: 471.0 {spread}, below 475; training continues" in text
    assert f"476.0 {spread}, a repeated test needs 478.5; training continues" in text
    assert f"480.0 {spread}, passed" in text


def test_the_limit_that_comes_first_is_announced():
    for fields, planned, expected in (
        ({"max_env_steps": 100_000, "max_epochs": 1}, 1, "1 epoch"),
        ({"max_env_steps": 100_000, "max_epochs": 900}, 98, "100,000 env steps (about 98 epochs)"),
        ({"max_env_steps": 100, "max_epochs": None}, 1, "100 env steps (about 1 epoch)"),
        ({"max_env_steps": None, "max_epochs": 5}, 5, "5 epochs"),
    ):
        info = replace(INFO, planned_epochs=planned, test_episodes=30)
        lines = dict(header(CONFIG.replace(**fields), info))
        assert lines["budget"] == [expected, "solved at 475", "test of 30 episodes"]


def test_warnings_and_the_place_of_the_runs(tmp_path):
    training = Training(tmp_path, terminal=True)
    training.observer.warnings = ["going back"]
    training.observer.runs_dir = "my runs"
    text = training.go()
    assert text.index("warning: going back") < text.index("╭")  # above the dashboard: it stays
    assert f"gsolve eval {training.run.id} --runs-dir 'my runs'" in text
    assert text.index("gsolve ui --runs-dir 'my runs'") < text.index("gsolve eval")  # at the start
    assert "warning: going back" in training.log


def tick(training: Training) -> None:
    assert training.observer.display is not None
    training.observer.display.tick()


def test_lines_keep_coming_while_an_epoch_is_long(tmp_path, monkeypatch):
    training, now = Training(tmp_path), [0.0]
    monkeypatch.setattr(console_module.time, "monotonic", lambda: now[0])
    activity = training.info.activity
    activity.begin_epoch(1)
    activity.begin("collecting")
    activity.epoch_began_s -= 10.0
    with training:
        before = len(training.text)
        for second in range(1, 13):
            now[0] = float(second)
            activity.rollout_steps = 14 * second
            tick(training)
    lines = training.text[before:].splitlines()
    assert len(lines) == 2, "one in five seconds"
    assert "70 env steps" in lines[0]
    assert lines[1].endswith("collecting 140 / 256 env steps of epoch 1")
    assert all(line in training.log for line in lines)


def test_lines_come_less_often_in_a_long_run(tmp_path, monkeypatch):
    training, now = Training(tmp_path), [0.0]
    monkeypatch.setattr(console_module.time, "monotonic", lambda: now[0])
    told: list[float] = []
    with training:
        monkeypatch.setattr(training.observer, "_log", lambda *lines: told.append(now[0]))
        for second in range(0, 10_000, 5):
            now[0] = float(second)
            tick(training)
    gaps = [b - a for a, b in pairwise(told)]
    assert gaps[0] == 5.0
    assert gaps[-1] == 60.0
    assert len(told) < 400


@pytest.mark.parametrize("quiet", [False, True])
def test_ctrl_c_is_acknowledged_at_once_without_a_terminal(tmp_path, quiet):
    with Training(tmp_path, quiet=quiet) as training:
        training.info.activity.stop_signal = "SIGTERM"
        tick(training)
        tick(training)
    text = training.text
    assert text.count("SIGTERM: saves and stops after this epoch") == 1
    assert "SIGTERM: saves and stops after this epoch" in training.log


def test_nothing_is_drawn_in_the_background(tmp_path, monkeypatch):
    """After `&` or `bg` a shell has the terminal."""
    training = Training(tmp_path, terminal=True)
    monkeypatch.setattr(training.file, "fileno", lambda: 1, raising=False)
    with training:
        for is_away in (True, False):
            monkeypatch.setattr(display_module, "is_in_background", lambda fd, now=is_away: now)
            training.info.activity.rollout_steps += 123
            before = len(training.text)
            tick(training)
            assert ("/ 10,240" in training.text[before:]) != is_away


def test_an_error_while_drawing_is_reported_once_and_training_goes_on(tmp_path):
    with Training(tmp_path) as training:
        assert training.observer.display is not None
        training.observer.display.error = OSError("no space")
        with pytest.raises(OSError, match="no space"):
            training.observer.on_epoch(row(1))
        training.observer.on_epoch(row(2))


def test_alerts_are_told(tmp_path):
    training = Training(tmp_path, log_level="warning")
    seen = Alert("kl_high", "approx_kl 0.3", 512, None, "steps too large", "--policy-lr 1e-4")
    with training:
        training.observer.on_alert(seen)
        training.observer.on_alert(replace(seen, text="is over", is_over=True))
    text = training.text
    assert "alert: kl_high: approx_kl 0.3" in text
    assert "over" not in text, "of level info"
    assert "alert over: kl_high\n" in training.log


@pytest.mark.parametrize(
    ("level", "shown"),
    [
        ("debug", ["a detail", "a note", "careful", "broken"]),
        ("info", ["a note", "careful", "broken"]),
        ("warning", ["careful", "broken"]),
        ("error", ["broken"]),
    ],
)
def test_the_log_level_selects_messages(tmp_path, level, shown):
    training = Training(tmp_path, log_level=level)
    told = {"debug": "a detail", "info": "a note", "warning": "careful", "error": "broken"}
    with training:
        before = len(training.text)
        for message_level, text in told.items():
            training.observer.on_message(message_level, text)
        log = training.log
    text = training.text[before:]
    assert [word for word in told.values() if word in text] == shown
    # run.log misses nothing but the details, unless they were asked for.
    assert ("debug: a detail" in log) == (level == "debug")
    assert all(word in log for word in ("a note", "warning: careful", "error: broken"))
    lines = [line for line in Training(tmp_path, log_level=level).go().splitlines() if " %" in line]
    assert bool(lines) == (level in ("debug", "info")), "so are the lines of progress"


def test_messages_of_python_logging_are_shown_and_logged(tmp_path):
    training = Training(tmp_path)
    own, other = logging.getLogger("gymnasium_solver.envs"), logging.getLogger("some_env")
    with training:
        own.info("engine chosen")
        own.debug("too much")
        other.warning("wheel %d is loose", 3)
        other.info("chatter")
    own.warning("after the end")
    text = training.text
    assert "engine chosen" in text
    assert "warning: some_env: wheel 3 is loose" in text
    assert "warning: some_env: wheel 3 is loose" in training.log
    assert "too much" not in text
    assert "chatter" not in text
    assert "after the end" not in text


def test_a_key_that_asked_for_a_checkpoint_is_answered(tmp_path, monkeypatch):
    class NoKeys:
        close = lambda keys: None  # noqa: E731

    monkeypatch.setattr(display_module, "terminal_keys", NoKeys)
    with Training(tmp_path, terminal=True, keys=True) as training:
        assert training.observer.display is not None
        training.observer.on_checkpoint(Path("256"), "periodic")
        training.observer.display.press("c")
        training.observer.on_checkpoint(Path("1536"), "periodic")
        assert training.observer.state is not None
        told = ["".join(text for text, _ in line) for line in training.observer.state.messages]
    assert [text[10:] for text in told if "checkpoint" in text] == [
        "checkpoint saved at 1,536 env steps"
    ]


def test_a_narrow_terminal_wraps_the_result_but_no_command(tmp_path):
    training = Training(tmp_path, terminal=True, size=(60, 24))
    text = CODES.sub("", training.go())
    end = text[text.index("SOLVED") :].splitlines()
    commands = [line for line in end if "gsolve " in line]
    assert any(len(line) > 60 for line in commands), "a command is whole, to be copied"
    folder = next(line for line in end if line.startswith("  folder"))
    assert folder.endswith(training.run.id)
    rest = [line for line in end if line not in (*commands, folder)]
    assert max(map(len, rest)) <= 60
    test = next(i for i, line in enumerate(rest) if line.startswith("  test"))
    assert rest[test + 1].startswith(11 * " "), "below its text"
    assert "SOLVED  test 498.0 ± 3.0 (standard error, 2 episodes) ≥ 475" in training.log


def test_a_process_that_is_forked_while_a_line_is_written_can_print(tmp_path):
    """Environments may be forked at any time; a lock that is held then would stay held in the
    child, which would wait forever when it prints."""
    ready, done = threading.Event(), threading.Event()

    def write() -> None:
        with display_module.OUTPUT:
            ready.set()
            time.sleep(0.05)
        done.set()

    with Training(tmp_path, terminal=True):
        writer = threading.Thread(target=write)
        writer.start()
        ready.wait()
        child = os.fork()  # waits for the line
        if child == 0:
            is_free = display_module.OUTPUT.acquire(timeout=5)
            is_direct = not isinstance(sys.stdout, FileProxy)
            os._exit(0 if is_free and is_direct else 1)
        assert isinstance(sys.stdout, FileProxy), "in the parent it is as it was"
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        writer.join()
        assert done.is_set()


def test_an_evaluation_tells_how_far_it_is_on_a_terminal():
    activity = Activity()
    shown = Console(file=io.StringIO(), force_terminal=True, width=80)
    assert str(EvalLine(activity).__rich__()) == "starting the environments"
    with eval_progress(activity, shown):
        activity.begin_evaluation("evaluating", 100)
        activity.eval_episodes_done, activity.eval_rows = 3, 412
        text = str(EvalLine(activity).__rich__())
        assert text.startswith("evaluating 3 / 100 episodes · 412 steps · 0.")
    piped = Console(file=io.StringIO(), force_terminal=False)
    with eval_progress(activity, piped):
        pass
    assert isinstance(piped.file, io.StringIO)
    assert piped.file.getvalue() == ""


def test_numbers():
    assert [fmt.number(x) for x in (None, math.nan, 12, 1234567, 487.31, 0.5, 2.1e-6, -0.25)] == [
        "-", "-", "12", "1,234,567", "487.3", "0.500", "2.1e-06", "-0.250",
    ]  # fmt: skip
    assert fmt.number(500, 1) == "500.0"
    assert [fmt.signed(x, 2) for x in (1.5, -1.5, 0.0, -0.0)] == ["+1.50", "-1.50", "·", "·"]
    assert [fmt.duration(x) for x in (None, math.inf, 4.21, 187, 8109, 273_120)] == [
        "-", "-", "4.2 s", "3:07", "2:15:09", "3 d 03:52",
    ]  # fmt: skip
    assert [fmt.steps_per_second(x) for x in (None, 950.0, 41_230.0, 2.5e6)] == [
        "-", "950 steps/s", "41.2k steps/s", "2.50M steps/s",
    ]  # fmt: skip


def test_sparklines_span_the_whole_history():
    assert fmt.sparkline([0, 1, 2, 3, 4, 5, 6], 7) == "▁▂▃▄▅▆▇"
    assert fmt.sparkline([1, 1, 1], 4) == "▁▁▁"  # a bar a value: nothing is stretched
    assert fmt.sparkline([0, 7], 4) == "▁▇"
    assert fmt.sparkline([], 4) == ""
    assert fmt.sparkline(list(range(7000)), 7) == "▁▂▃▄▅▆▇"


def test_series_holds_a_long_run_in_a_bounded_space():
    series = Series(keep=10)
    for i in range(10_000):
        series.add(float(i))
    assert len(series.means) < 20
    values = series.values()
    assert values == sorted(values)
    assert values[0] < 1000
    assert series.last == 9999.0
    change = series.change()
    assert change is not None
    assert 500 < change < 3000
