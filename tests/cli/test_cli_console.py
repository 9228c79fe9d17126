"""What a training tells: live, plain, quiet; the run.log; and what it costs."""

import io
import math
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from gymnasium_solver.cli import console as console_module
from gymnasium_solver.cli import format as fmt
from gymnasium_solver.cli.console import TrainConsole, header
from gymnasium_solver.cli.dashboard import State, frame
from gymnasium_solver.config.load import dump_config
from gymnasium_solver.envs.spec import EnvSpec
from gymnasium_solver.errors import DivergedError
from gymnasium_solver.runs.query import get_run
from gymnasium_solver.runs.run import Run
from gymnasium_solver.training.observer import EvalResult, TrainInfo
from gymnasium_solver.training.prepare import load_config

N_EPOCHS, TOTAL = 40, 40 * 256
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


def row(epoch: int) -> dict[str, Any]:
    return {
        "env_steps": 256 * epoch,
        "epoch": epoch,
        "wall_s": 0.1 * epoch,
        "progress": epoch / N_EPOCHS,
        "train/roll/ep_rew/mean": 20.0 + 11.0 * epoch,
        "train/roll/ep_len/mean": 20.0 + 11.0 * epoch,
        "train/opt/loss/policy": -0.01 / epoch,
        "train/opt/loss/value": None,
        "train/opt/policy/entropy": 0.69 - 0.01 * epoch,
        "train/hp/policy_lr": 1e-3,
        "train/sys/timing/env_share": 0.31,
        "train/sys/timing/act_share": 0.22,
        "train/sys/timing/update_share": 0.41,
        "train/sys/timing/eval_share": 0.06,
    }


def evaluation(epoch: int, mean: float, greedy: bool = True) -> EvalResult:
    returns = [mean - 3.0, mean + 3.0]
    return EvalResult(
        256 * epoch, epoch, 2, greedy, 11, mean, 3.0, mean - 3, mean + 3, mean, returns, [1, 1]
    )


class Training:
    """A training as the loop would tell it, on a real run folder."""

    sampled = 481.0  # score of the sampled test

    def __init__(self, tmp_path: Path, *, terminal: bool = False, quiet: bool = False, width=100):
        self.run = Run.create(dump_config(CONFIG), dict(CONFIG), tmp_path / "runs", ["test"])
        self.run.update_meta(threshold=475.0)
        self.file = io.StringIO()
        size = {"width": width, "height": 60}
        screen = Console(file=self.file, force_terminal=terminal, highlight=False, **size)
        self.observer = TrainConsole(quiet=quiet, console=screen, notes=["seed: 1 → 7"])

    def go(self, epochs: int = N_EPOCHS, end: str | None = "solved") -> str:
        with self.observer as listener:
            listener.on_start(self.run, CONFIG, INFO)
            for epoch in range(1, epochs + 1):
                listener.on_epoch(row(epoch))
                if epoch % 10 == 0:
                    listener.on_eval(evaluation(epoch, 12.5 * epoch), is_best=True)
                    listener.on_checkpoint(self.run.checkpoints_dir / str(256 * epoch), "best")
            listener.on_message("warning", "something odd")
            if end is not None:
                self.finish(epochs, end)
        return self.file.getvalue()

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
    def log(self) -> str:
        return (self.run.path / "run.log").read_text()


def test_plain_lines_and_the_end(tmp_path):
    training = Training(tmp_path)
    text = training.go()
    run_id = training.run.id
    assert "\x1b" not in text
    assert f"CartPole-v1:ppo  {run_id}" in text
    for fact in (
        "CartPole-v1 × 8 on vector (fastest here)",
        "9,155 parameters",
        "cpu, recorded NumPy",
        "seed 7",
    ):
        assert fact in text
    assert f"{TOTAL:,} env steps" in text
    assert "solved at 475" in text
    assert "seed: 1 → 7" in text
    assert "a note of the loop" in text
    assert "warning: something odd" in text
    evals = [line for line in text.splitlines() if "  val " in line and " left" in line]
    assert len(evals) == 4  # one line an evaluation
    assert evals[0].split()[:2] == ["25.0", "%"]
    assert "val 125.0 ± 3.0 ★" in evals[0]
    score = "498.0 ± 3.0 (standard error, 2 episodes)"
    assert f"SOLVED  test {score} ≥ 475  in {TOTAL:,} env steps, 4.2 s" in text
    assert "best     val 500.0 at 10,240 env steps" in text
    assert f"test     greedy   {score}, std 3.0, seed 11" in text
    assert "sampled  481.0" in text
    assert "sampled ones" not in text, "the two scores are close"
    assert str(training.run.path) in text
    assert f"gsolve eval {run_id}" in text
    assert f"gsolve plot {run_id}" in text
    assert f"gsolve train --resume {run_id}  # trains on to its budget" in text
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
    for line in text.splitlines():
        assert line.rstrip() in plain.log
    live = Training(tmp_path, terminal=True)
    assert "\x1b[" in live.go()
    assert "\x1b" not in live.log
    assert "SOLVED" in live.log
    assert "warning: something odd" in live.log
    assert live.log.count("val ") >= 4
    assert "checkpoint (best)" in live.log


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
        with training.observer as listener:
            listener.on_start(training.run, CONFIG, INFO)
            training.run.update_meta(status="failed", stop_reason="diverged")
            raise DivergedError("loss is nan")

    with pytest.raises(DivergedError):
        diverge()
    text = training.file.getvalue()
    assert text.rindex("\x1b[?25h") > text.rindex("\x1b[?25l")  # the cursor is back
    assert "FAILED" in text
    assert str(training.run.path) in text
    assert "DivergedError: loss is nan" in training.log
    assert training.observer.exit_code == 1


def test_not_solved_and_no_threshold_are_said_so(tmp_path):
    training = Training(tmp_path)
    text = training.go(epochs=20, end="max_env_steps")
    assert "not solved  test 241.0 ± 3.0 (standard error, 2 episodes) < 475" in text
    assert "--max-env-steps 10240" in text  # twice what was used
    training.run.update_meta(threshold=None, solved=None)
    assert "finished  test 241.0 ± 3.0 (standard error, 2 episodes)  after" in str(
        console_module.result(get_run(training.run), {})[1]
    )


def test_a_test_that_falls_short_is_told(tmp_path):
    training = Training(tmp_path)
    with training.observer as listener:
        listener.on_start(training.run, CONFIG, INFO)
        listener.on_test(evaluation(10, 471.0), required=475.0)
        listener.on_test(evaluation(20, 476.0), required=478.5)
        listener.on_test(evaluation(30, 480.0), required=478.5)
    text = training.file.getvalue()
    spread = "± 3.0 (standard error, 2 episodes)"
    assert f"test at 2,560: 471.0 {spread}, below 475; training continues" in text
    assert f"476.0 {spread}, a repeated test needs 478.5; training continues" in text
    assert f"480.0 {spread}, passed" in text


def test_the_limit_that_comes_first_is_announced():
    for fields, planned, expected in (
        ({"max_env_steps": 100_000, "max_epochs": 1}, 1, "1 epoch"),
        ({"max_env_steps": 100_000, "max_epochs": 900}, 98, "100,000 env steps (about 98 epochs)"),
        ({"max_env_steps": None, "max_epochs": 5}, 5, "5 epochs"),
    ):
        lines = dict(header(CONFIG.replace(**fields), replace(INFO, planned_epochs=planned)))
        assert lines["budget"] == f"{expected} · solved at 475"


def test_the_number_of_test_episodes_is_said():
    lines = dict(header(CONFIG, replace(INFO, test_episodes=30)))
    assert lines["test"] == "30 held-out episodes"


@pytest.mark.parametrize("width", [12, 40, 60, 80, 98, 200])
def test_the_dashboard_fits_its_width(tmp_path, width):
    training = Training(tmp_path, terminal=True, width=width)
    training.go(end=None)
    state = training.observer.state
    assert state is not None
    lines = ["".join(text for text, _ in line) for line in frame(state, width)]
    assert {len(line) for line in lines} == {width}
    text = "\n".join(lines)
    if width < 60:  # nothing to read, but nothing to fail over either
        return
    assert "100.0 %" in text
    assert re.search(r"ep_rew/mean +460\.0 +★ 460\.0", text)
    assert re.search(r"ep_rew/mean +500\.0 +★ 500\.0", text)  # val
    assert "policy/entropy" in text
    if width >= 80:
        assert "env 31 %" in text
        assert "eval 6 %" in text
        assert "▁" in text
        assert "█" in text


def test_epochs_have_a_total_only_where_they_are_the_budget():
    for max_env_steps, shown in ((TOTAL, "epoch 41 "), (None, "epoch 41 / 40 ")):
        state = State("id", "name", [], max_env_steps, N_EPOCHS)
        state.add_row(row(41), seen_s=1.0)
        text = "\n".join("".join(text for text, _ in line) for line in frame(state, 98))
        assert shown in text


def test_scores_have_the_decimals_of_the_threshold():
    state = State("id", "name", [], TOTAL, N_EPOCHS, threshold=0.7)
    for mean in (0.0032, 0.74):
        state.add_value("val/roll/ep_rew/mean", mean)
    text = "\n".join("".join(text for text, _ in line) for line in frame(state, 98))
    assert re.search(r"ep_rew/mean +0\.740 +★ 0\.740", text)


def test_warnings_and_the_place_of_the_runs(tmp_path):
    training = Training(tmp_path, terminal=True)
    training.observer.warnings = ["going back"]
    training.observer.runs_dir = "my runs"
    text = training.go()
    assert text.index("warning: going back") < text.index("╭")  # above the dashboard: it stays
    assert f"gsolve eval {training.run.id} --runs-dir 'my runs'" in text
    assert "warning: going back" in training.log


def test_an_interrupted_run_that_is_solved_says_both(tmp_path):
    training = Training(tmp_path)
    training.go(end="solved")
    training.run.update_meta(status="interrupted")
    line = str(console_module.result(get_run(training.run), {})[1])
    assert line.startswith("INTERRUPTED ★ solved  test 498.0 ± 3.0 (standard error, 2 episodes) ≥")


def test_remaining_time_is_of_what_is_left_also_after_a_resume():
    state = State("id", "name", [], TOTAL, N_EPOCHS)
    assert state.remaining_s() is None
    state.started_s = 100.0
    state.add_row(row(10), seen_s=110.0)  # a quarter in 10 s
    assert state.remaining_s() == pytest.approx(30.0)
    assert state.steps_per_s() == pytest.approx(256.0)
    state.start_steps, state.start_fraction = 256 * 8, 0.2  # of which most was done before
    assert state.remaining_s() == pytest.approx(150.0)
    assert state.steps_per_s() == pytest.approx(51.2)


def test_refreshes_are_at_most_8_a_second_and_paced_by_their_cost(tmp_path, monkeypatch):
    training = Training(tmp_path, terminal=True)
    listener, now = training.observer, [0.0]
    monkeypatch.setattr(console_module.time, "monotonic", lambda: now[0])
    refreshed: list[float] = []
    with listener:
        listener.on_start(training.run, CONFIG, INFO)

        def refresh() -> None:
            refreshed.append(now[0])
            now[0] += 0.004  # a refresh takes 4 ms: one in 0.4 s is 1 %

        monkeypatch.setattr(listener.live, "refresh", refresh)
        for epoch in range(1, 4001):
            now[0] += 0.001
            listener.on_epoch(row(epoch))
        assert 8 <= len(refreshed) <= 11


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
    series = fmt.Series(keep=10)
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
