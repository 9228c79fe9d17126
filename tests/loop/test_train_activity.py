"""What can be read of a training while an epoch or an evaluation is under way."""

import os
import signal
from collections.abc import Callable
from typing import Any

import pytest

from gymnasium_solver.envs.journal import JournaledEnv
from gymnasium_solver.envs.suites.probes import Counting
from gymnasium_solver.runs import query
from gymnasium_solver.runs.run import Run
from gymnasium_solver.timing import Timer
from gymnasium_solver.training import activity as activity_module
from gymnasium_solver.training.activity import Activity
from gymnasium_solver.training.observer import Observer
from tests.loop.conftest import events, learning_rows, resume, train, weight_hash

Call = Callable[..., Any]


class Watch(Observer):
    """Reads the activity at every step of the environments, as a display in a thread would."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, at_step: Call | None = None):
        self.seen: list[tuple[str, int, int]] = []
        self.evaluated: list[tuple[str, int, int, int]] = []
        self.rows: list[dict[str, Any]] = []
        self.activity = Activity()
        self.control: Any = None
        step_training, step_any = JournaledEnv.step, Counting.step

        def on_training_step(env: Any, actions: Any) -> Any:
            result = step_training(env, actions)
            a = self.activity
            self.seen.append((a.phase, a.epoch, a.steps_now))
            if at_step is not None:
                at_step(self)
            return result

        def on_any_step(env: Any, actions: Any) -> Any:
            a = self.activity
            if a.phase in ("evaluating", "testing"):
                done = (a.eval_episodes_done, a.eval_episodes, a.eval_rows)
                self.evaluated.append((a.phase, *done))
            return step_any(env, actions)

        monkeypatch.setattr(JournaledEnv, "step", on_training_step)
        monkeypatch.setattr(Counting, "step", on_any_step)

    def on_start(self, run: Any, config: Any, info: Any) -> None:
        self.activity, self.control = info.activity, info.control

    def on_epoch(self, row: dict[str, Any]) -> None:
        self.rows.append(row)


def test_env_steps_and_episodes_move_inside_an_epoch(monkeypatch: pytest.MonkeyPatch) -> None:
    watch = Watch(monkeypatch)
    run = train("ppo", "Probe/Counting-v0", observer=watch, max_epochs=2)
    assert {phase for phase, _, _ in watch.seen} == {"collecting"}
    assert [epoch for _, epoch, _ in watch.seen] == [1] * 16 + [2] * 16
    steps = [steps for _, _, steps in watch.seen]
    assert steps == sorted(steps)
    assert steps[:6] == [0, 3, 6, 9, 12, 15], "as of the rows before, three envs each"
    assert steps[6] == 17, "a reset row is no env step"
    a = watch.activity
    assert a.steps_now == run.meta()["env_steps"]
    assert a.episodes == run.meta()["episodes"] > 0
    assert a.epoch_size == 48
    assert a.saved_steps == run.meta()["env_steps"]
    assert a.phase == "over"


def test_a_replay_counts_across_its_short_rollouts(monkeypatch: pytest.MonkeyPatch) -> None:
    watch = Watch(monkeypatch)
    run = train("dqn", "Probe/Counting-v0", observer=watch, max_epochs=2)
    assert {phase for phase, _, _ in watch.seen} == {"training"}
    steps = [steps for _, _, steps in watch.seen]
    assert steps == sorted(steps)
    assert steps[-1] < watch.activity.steps_now == run.meta()["env_steps"]


def test_evaluations_and_tests_tell_how_far_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    watch = Watch(monkeypatch)
    fields = {"eval_freq_epochs": 1, "eval_episodes": 3, "n_eval_envs": 1, "test_episodes": 2}
    fields |= {"eval_deterministic": True}
    train("ppo", "Probe/Counting-v0", observer=watch, max_epochs=1, **fields)
    # Episodes of 5 steps and a reset row, in one env.
    evaluating = [seen[1:] for seen in watch.evaluated if seen[0] == "evaluating"]
    assert evaluating == [((n + 1) // 6, 3, n) for n in range(17)]
    testing = [seen[1:] for seen in watch.evaluated if seen[0] == "testing"]
    assert testing == 2 * [((n + 1) // 6, 2, n) for n in range(11)]  # greedy and sampled


def test_a_signal_is_seen_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(watch: Watch) -> None:
        if len(watch.seen) == 5:
            os.kill(os.getpid(), signal.SIGINT)
            assert watch.activity.stop_signal == "SIGINT"

    watch = Watch(monkeypatch, interrupt)
    run = train("ppo", "Probe/Counting-v0", observer=watch)
    meta = run.meta()
    assert (meta["status"], meta["stop_detail"], meta["epoch"]) == ("interrupted", "SIGINT", 1)
    assert len(watch.seen) == 16, "the epoch was finished"


def test_a_pause_holds_the_loop_and_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    fields = {"eval_freq_epochs": 2, "eval_episodes": 2}
    plain = train("ppo", "Probe/Counting-v0", **fields)
    slept: list[int] = []

    def pause(watch: Watch) -> None:
        if len(watch.seen) == 20:
            watch.control.pause()

    watch = Watch(monkeypatch, pause)

    def sleep(seconds: float) -> None:
        assert watch.activity.is_paused
        slept.append(len(watch.seen))
        if len(slept) == 3:
            watch.control.resume()

    monkeypatch.setattr(activity_module, "sleep", sleep)
    run = train("ppo", "Probe/Counting-v0", observer=watch, **fields)
    assert slept == [20] * 3, "before the next step"
    assert weight_hash(run) == weight_hash(plain)
    assert learning_rows(run) == learning_rows(plain)


def test_a_long_evaluation_is_told_in_the_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[tuple[str, int, int]] = []
    write = Run.tell_activity

    def tell(run: Run, *what: Any) -> None:
        write(run, *what)
        activity = query.get_run(run).activity or {}
        told.append((what[0], activity.get("done", -1), activity.get("of", -1)))

    monkeypatch.setattr(activity_module, "TELL_S", 0.0)
    monkeypatch.setattr(Run, "tell_activity", tell)
    fields = {"eval_freq_epochs": 1, "eval_episodes": 3, "test_episodes": 2, "max_epochs": 1}
    run = train("ppo", "Probe/Counting-v0", eval_deterministic=True, **fields)
    assert ("evaluating", 0, 3) in told
    assert ("testing", 0, 2) in told
    assert told[-1] == ("", -1, -1)
    assert not run.activity_path.exists()


def test_a_pause_during_an_evaluation_holds_it(monkeypatch: pytest.MonkeyPatch) -> None:
    watch = Watch(monkeypatch)
    held: list[int] = []

    def sleep(seconds: float) -> None:
        held.append(watch.activity.eval_episodes_done)
        watch.control.resume()

    begin = Activity.begin_evaluation

    def begin_and_pause(activity: Activity, *args: Any) -> None:
        begin(activity, *args)
        watch.control.pause()

    monkeypatch.setattr(activity_module, "sleep", sleep)
    monkeypatch.setattr(Activity, "begin_evaluation", begin_and_pause)
    fields = {"eval_freq_epochs": 1, "eval_episodes": 3, "test_episodes": 2, "max_epochs": 1}
    run = train("ppo", "Probe/Counting-v0", observer=watch, eval_deterministic=True, **fields)
    assert held == [0, 0, 0], "the validation, and the test with greedy and sampled actions"
    assert run.meta()["status"] == "finished"


@pytest.mark.parametrize("what", ["signal", "stop"])
def test_a_stop_ends_a_pause(what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def pause(watch: Watch) -> None:
        if len(watch.seen) == 5:
            watch.control.pause()

    watch = Watch(monkeypatch, pause)

    def sleep(seconds: float) -> None:
        if what == "signal":
            os.kill(os.getpid(), signal.SIGTERM)
        else:
            watch.control.stop("enough")

    monkeypatch.setattr(activity_module, "sleep", sleep)
    run = train("ppo", "Probe/Counting-v0", observer=watch)
    assert (run.meta()["status"], run.meta()["epoch"]) == ("interrupted", 1)


def test_paused_time_is_no_training_time() -> None:
    class Pauses(Observer):
        def __init__(self) -> None:
            self.rows: list[dict[str, Any]] = []

        def on_start(self, run: Any, config: Any, info: Any) -> None:
            self.activity = info.activity

        def on_epoch(self, row: dict[str, Any]) -> None:
            self.rows.append(row)
            if row["epoch"] == 1:
                self.activity.paused_s += 1000.0  # as after a pause of 1,000 s

    observer = Pauses()
    train("ppo", "Probe/Counting-v0", observer=observer, max_epochs=2)
    first, second = observer.rows
    assert second["wall_s"] < first["wall_s"] - 900


def test_the_clock_of_a_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    activity, now = Activity(), [100.0]
    monkeypatch.setattr(activity_module, "perf_counter", lambda: now[0])

    def sleep(seconds: float) -> None:
        now[0] += seconds
        activity.is_paused = now[0] < 160

    monkeypatch.setattr(activity_module, "sleep", sleep)
    activity.is_paused = True
    activity.wait_while_paused()
    assert activity.paused_s == pytest.approx(60.0)


def test_a_process_that_stood_still_was_not_training() -> None:
    now = [100.0]
    activity = Activity(Timer(now=lambda: now[0]))
    with activity.timer.section("env"):
        now[0] += 3 + 60
        before_s = activity.clock_s()
        activity.exclude(60.0)
    assert activity.clock_s() < before_s - 59
    assert activity.timer.seconds["env"] == pytest.approx(3.0)
    assert activity.timer.seconds["paused"] == pytest.approx(60.0)


@pytest.mark.parametrize("solved", [False, True])
def test_a_signal_in_the_last_epoch_leaves_the_final_test_to_a_resume(
    solved: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A test may take minutes, and whoever sends a signal does not wait for it."""

    def interrupt(watch: Watch) -> None:
        if len(watch.seen) == 20:
            os.kill(os.getpid(), signal.SIGTERM)

    fields: dict[str, Any] = {"eval_freq_epochs": 2, "eval_episodes": 2, "n_eval_envs": 1}
    goal = {"reward_threshold": 5.0, "max_epochs": 4}
    fields |= goal if solved else {"reward_threshold": 1000.0, "max_epochs": 2}
    run = train("ppo", "Probe/Counting-v0", observer=Watch(monkeypatch, interrupt), **fields)
    meta = run.meta()
    assert (meta["status"], meta["stop_detail"], meta["test"]) == ("interrupted", "SIGTERM", None)
    assert [event for event in events(run, "eval") if event["stage"] == "test"] == []
    resume(run.id)
    meta = run.meta()
    reason = "solved" if solved else "max_epochs"
    assert (meta["status"], meta["stop_reason"], meta["solved"]) == ("finished", reason, solved)
    assert meta["epoch"] == 2
    assert meta["test"]["mean"] == 5.0


def test_a_signal_in_the_last_epoch_of_a_run_without_a_test_lets_it_finish(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def interrupt(watch: Watch) -> None:
        if len(watch.seen) == 20:
            os.kill(os.getpid(), signal.SIGINT)

    watch = Watch(monkeypatch, interrupt)
    run = train("ppo", "Probe/Counting-v0", observer=watch, max_epochs=2)
    assert (run.meta()["status"], run.meta()["stop_reason"]) == ("finished", "max_epochs")
