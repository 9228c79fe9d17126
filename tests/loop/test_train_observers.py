"""Observers of a run: callbacks, faults, requests, and the recorder of videos."""

import json
import logging
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest

from gymnasium_solver.config.schema import Config
from gymnasium_solver.errors import ConfigError
from gymnasium_solver.registry import observers as registry
from gymnasium_solver.runs.run import Run
from gymnasium_solver.training import loop, videos
from gymnasium_solver.training.observer import (
    Control,
    EvalResult,
    Observer,
    Observers,
    register_observer,
)
from gymnasium_solver.training.trainer import configured_observers
from gymnasium_solver.training.videos import VideoRecorder
from tests.loop.conftest import Asks, events, learning_rows, make_config, resume, train, weight_hash


class Ear(Observer):
    def __init__(self, name: str, heard: list[str]):
        self.name, self.heard = name, heard

    def on_epoch(self, row: dict[str, Any]) -> None:
        self.heard.append(f"{self.name}{row['epoch']}")

    def on_message(self, level: str, text: str) -> None:
        self.heard.append(f"{self.name} {level}: {text}")


class Broken(Observer):
    def __init__(self) -> None:
        self.calls = 0

    def on_epoch(self, row: dict[str, Any]) -> None:
        self.calls += 1
        raise ValueError("no such thing")


def go(config: Config, *observers: Observer) -> Run:
    return loop.train(config, runs_root=Path("runs"), observers=observers)


def test_observers_are_called_in_order() -> None:
    heard: list[str] = []
    go(make_config("ppo", "Bandit-v0", max_epochs=2), Ear("a", heard), Ear("b", heard))
    assert heard == ["a1", "b1", "a2", "b2"]


def test_a_failing_observer_is_reported_once_and_never_stops_training() -> None:
    config = make_config("ppo", "Bandit-v0", max_epochs=5)
    plain = go(config)
    heard: list[str] = []
    broken = Broken()
    run = go(config, broken, Ear("a", heard))
    assert weight_hash(run) == weight_hash(plain)
    assert run.meta()["status"] == "finished"
    assert broken.calls == 3, "after three failures it is left alone"
    told = [text for text in heard if "warning" in text]
    assert told == [
        "a warning: observer Broken failed in on_epoch, ValueError: no such thing",
        "a warning: observer Broken failed 3 times and is no longer called",
    ]
    assert [text for text in heard if text not in told] == ["a1", "a2", "a3", "a4", "a5"]
    assert [e["text"] for e in events(run, "observer_failed")] == [
        t[len("a warning: ") :] for t in told
    ]


def test_a_requested_stop_can_be_resumed_exactly() -> None:
    config = make_config("ppo", "CartPole-v1", max_epochs=5, policy_lr="lin_0.01")
    whole = go(config)
    run = go(config, Asks("stop", 2, "it has seen enough"))
    meta = run.meta()
    assert (meta["status"], meta["stop_reason"], meta["epoch"]) == ("interrupted", "requested", 2)
    assert (meta["stop_detail"], meta["solved"]) == ("it has seen enough", False)
    assert "a stop was requested (it has seen enough)" in run.report_path.read_text()
    resume(run.id)
    assert weight_hash(run) == weight_hash(whole)
    assert learning_rows(run) == learning_rows(whole)
    assert (run.meta()["stop_reason"], run.meta()["stop_detail"]) == ("max_epochs", None)


def test_a_stop_asked_for_in_the_last_epoch_lets_the_run_finish() -> None:
    run = go(make_config("ppo", "Bandit-v0", max_epochs=2), Asks("stop", 2, "it has seen enough"))
    assert (run.meta()["status"], run.meta()["stop_reason"]) == ("finished", "max_epochs")


def test_a_checkpoint_and_an_evaluation_can_be_asked_for() -> None:
    config = make_config("ppo", "CartPole-v1", max_epochs=5)
    plain = go(config)
    run = go(config, Asks("checkpoint", 2), Asks("evaluate", 3))
    assert [(e["epoch"], e["reason"]) for e in events(run, "checkpoint")] == [
        (2, "periodic"),
        (4, "best"),
        (5, "last"),
    ]
    assert [e["epoch"] for e in events(run, "eval") if e["stage"] == "val"] == [4]
    assert weight_hash(run) == weight_hash(plain)


class Counts(Observer):
    shows_rows = False

    def on_epoch(self, row: dict[str, Any]) -> None:
        row["own/visits"] = np.float32(row["epoch"])
        row["own/text"] = "no number"
        row["epoch"] = -1


class Shows(Observer):
    shows_rows = True

    def __init__(self) -> None:
        self.rows: list[dict[str, Any]] = []
        self.said: list[str] = []

    def on_epoch(self, row: dict[str, Any]) -> None:
        self.rows.append(row)

    def on_message(self, level: str, text: str) -> None:
        self.said.append(text)


def test_an_observer_adds_metrics_and_changes_none() -> None:
    shows = Shows()
    run = go(make_config("ppo", "Bandit-v0", max_epochs=2), shows, Counts())
    rows = [json.loads(line) for line in run.metrics_path.read_text().splitlines()]
    for found in (rows, shows.rows):
        seen = [(row["epoch"], row.get("own/visits")) for row in found if "train/cnt/epoch" in row]
        assert seen == [(1, 1.0), (2, 2.0)]
        assert not any("own/text" in row for row in found)
    (said,) = [text for text in shows.said if "Counts" in text]
    assert "epoch, own/text" in said


class Coins(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Counts steps; reports only in every second episode."""

    n = episode = 0

    def reset(self, **kwargs: Any) -> Any:
        self.n, self.episode = 0, self.episode + 1
        return self.env.reset(**kwargs)

    def step(self, action: Any) -> Any:
        obs, reward, terminated, truncated, info = self.env.step(action)
        self.n += 1
        if self.episode % 2:
            info["metrics"] = {"coins": 2 * self.n, "name": "x"}
        return obs, reward, terminated, truncated, info


@pytest.mark.parametrize("mode", ["sync", "async"])
def test_metrics_in_the_info_of_an_environment(mode: str, monkeypatch: pytest.MonkeyPatch) -> None:
    fields = {"max_episode_steps": 5, "vectorization_mode": mode, "max_epochs": 3}
    wrappers = [{"id": "tests.loop.test_train_observers:Coins"}]
    config = make_config("ppo", "CartPole-v1", env_wrappers=wrappers, **fields)
    run = go(config)
    rows = [json.loads(line) for line in run.metrics_path.read_text().splitlines()]
    assert rows[-1]["own/coins"] == 10.0
    assert not any("own/name" in row for row in rows)
    state = json.loads((run.checkpoints_dir / "last" / "state.json").read_text())
    assert set(state["collector"]["reward_parts"]) == {"own/coins"}


def test_a_config_names_observers_of_plugins(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "items", dict(registry.items))
    heard: list[str] = []

    @register_observer("counts")
    class Counts(Observer):
        def on_epoch(self, row: dict[str, Any]) -> None:
            heard.append(f"counts{row['epoch']}")

    @register_observer("needs_more")
    class NeedsMore(Observer):
        def __init__(self, more: int):
            self.more = more

    config = make_config("ppo", "Bandit-v0", max_epochs=1, observers=["counts"])
    go(config, Ear("a", heard))
    assert heard == ["a1", "counts1"], "the config's own come last"
    with pytest.raises(ConfigError, match=r"observers: needs_more could not be built"):
        go(config.replace(observers=["needs_more"]))


def test_every_callback_of_an_observer_reaches_all_members() -> None:
    """`Observers` forwards each callback that `Observer` declares."""
    callbacks = [name for name in vars(Observer) if name.startswith("on_")]
    assert "on_alert" in callbacks
    for name in callbacks:
        assert name in vars(Observers), name


# -- `video`: which evaluations are recorded, one process at a time, and training never suffers ---


ENV = "Probe/Constant-v0"


class Fake:
    """Stands in for the processes: each ends when it is told to."""

    def __init__(self, code: int | None = 0, said: str = "") -> None:
        self.code, self.said = code, said
        self.started: list[int] = []
        self.checkpoints: list[bool] = []
        self.killed = 0

    def __call__(self, argv: list[str], folder: Path) -> "Fake":
        checkpoint = Path(argv[argv.index("--checkpoint-folder") + 1])
        self.started.append(int(checkpoint.name))
        self.checkpoints.append((checkpoint / "done").is_file())
        path = folder.parent.resolve() / f"{checkpoint.name}.mp4"
        path.touch()
        (folder / "out").write_text(json.dumps({"path": str(path), "returns": [1.0]}))
        (folder / "err").write_text(self.said)
        return self

    def poll(self) -> int | None:
        return self.code

    def wait(self, timeout: float | None = None) -> int:
        if self.code is None and not self.killed:
            raise subprocess.TimeoutExpired("gsolve video", timeout or 0)
        return self.code or 0

    def kill(self) -> None:
        self.killed += 1


Watched = Callable[..., Run]


@pytest.fixture
def watched(monkeypatch: pytest.MonkeyPatch) -> Watched:
    """watched(fake, observer=None, **fields): a run of six evaluations with these processes."""

    def run(fake: Fake, observer: Observer | None = None, **fields: Any) -> Run:
        monkeypatch.setattr(videos, "start_process", fake)
        evals = {"eval_freq_epochs": 1, "eval_episodes": 1, "max_epochs": 6, "keep_checkpoints": 1}
        # Episodes of full length, so that not every evaluation is the best.
        goal = {"early_stop_on_eval_threshold": None, "max_episode_steps": None}
        return train("ppo", "CartPole-v1", observer, **{**evals, **goal, **fields})

    return run


def evals(run: Run) -> list[int]:
    lines = map(json.loads, run.events_path.read_text().splitlines())
    return [e["env_steps"] for e in lines if e["kind"] == "eval" and e["stage"] == "val"]


def bests(run: Run) -> list[int]:
    lines = map(json.loads, run.events_path.read_text().splitlines())
    return [e["env_steps"] for e in lines if e["kind"] == "checkpoint" and e["reason"] == "best"]


def test_every_evaluation_or_some_of_them(watched: Watched) -> None:
    fake = Fake()
    run = watched(fake, video="every_eval")
    assert fake.started == evals(run)
    assert all(fake.checkpoints)
    assert [event["env_steps"] for event in events(run, "video")] == evals(run)
    assert events(run, "video")[0]["path"] == f"videos/{evals(run)[0]}.mp4"
    fake = Fake()
    run = watched(fake, video=2)
    assert fake.started == evals(run)[1::2]
    fake = Fake()
    run = watched(fake, video="best")
    assert fake.started == bests(run)
    assert len(bests(run)) < len(evals(run))
    fake = Fake()
    watched(fake)
    assert fake.started == []


def test_a_video_on_request(watched: Watched) -> None:
    fake = Fake()
    asks = Asks("record_video", 3)
    run = watched(fake, asks)
    assert asks.control.can_record_video
    assert fake.started == evals(run)[2:3]


def test_one_at_a_time_and_the_newest_next(
    watched: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    class SlowFirst(Fake):
        polls = 0

        def poll(self) -> int | None:
            self.polls += 1
            return 0 if self.polls > 9 else None  # the first is busy for most of the run

        def wait(self, timeout: float | None = None) -> int:
            return 0

    fake = SlowFirst()
    run = watched(fake, video="every_eval")
    assert fake.started[0] == evals(run)[0]
    assert fake.started[-1] == evals(run)[-1]
    assert len(fake.started) < len(evals(run))
    assert all(fake.checkpoints), "a pruned checkpoint is still there in the copy"
    assert not list(run.videos_dir.glob(".*")), "the copies are removed"


def test_what_is_impossible_is_told_once(
    watched: Watched, caplog: pytest.LogCaptureFixture
) -> None:
    fake = Fake(2, "some noise\ngsolve video: CartPole-v1 cannot be drawn: no GL")
    with caplog.at_level(logging.INFO, "gymnasium_solver"):
        run = watched(fake, video="every_eval")
    first = evals(run)[0]
    said = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    why = f"no video at {first:,} env steps: CartPole-v1 cannot be drawn: no GL"
    assert said == [f"{why}. No more are tried in this run"]
    assert fake.started == [first]
    assert [event["text"] for event in events(run, "video_failed")] == [why]
    assert run.meta()["status"] == "finished"


def test_a_crash_is_a_warning_and_the_next_one_is_tried(watched: Watched) -> None:
    fake = Fake(-9)
    run = watched(fake, video="every_eval")
    assert fake.started == evals(run)
    texts = [event["text"] for event in events(run, "video_failed")]
    assert texts[0].endswith("exit code -9")
    assert len(texts) == 6
    assert run.meta()["status"] == "finished"


def test_waiting_has_a_limit(watched: Watched, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(videos, "WAIT_S", 0.01)
    fake = Fake(None)
    run = watched(fake, video="best")
    assert fake.killed == 1
    [failure] = events(run, "video_failed")
    assert "was not finished after 0 s" in failure["text"]
    assert failure["env_steps"] == bests(run)[-1]
    assert not list(run.videos_dir.glob(".*"))


def test_ctrl_c_while_waiting_keeps_the_verdict(watched: Watched) -> None:
    class Interrupted(Fake):
        def wait(self, timeout: float | None = None) -> int:
            if not self.killed:
                raise KeyboardInterrupt
            return 0

    run = watched(Interrupted(None), video="best")
    assert run.meta()["status"] == "finished"
    assert run.meta()["test"] is not None


def test_videos_change_nothing_that_is_learnt(watched: Watched) -> None:
    assert weight_hash(watched(Fake(), video="every_eval")) == weight_hash(watched(Fake()))


def test_a_recorder_that_cannot_start_does_not_stop_training(watched: Watched) -> None:
    class Broken(Fake):
        def __call__(self, argv: list[str], folder: Path) -> Fake:
            raise OSError("no more processes")

    run = watched(Broken(), video="every_eval")
    assert run.meta()["status"] == "finished"
    assert "no more processes" in events(run, "observer_failed")[0]["text"]


def test_every_nth_counts_on_after_a_resume(
    watched: Watched, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = watched(Fake(), video=4, max_epochs=3)
    fake = Fake()
    monkeypatch.setattr(videos, "start_process", fake)
    run = loop.resume(str(first.path), runs_root=tmp_path / "runs", overrides={"max_epochs": 6})
    assert fake.started == evals(run)[3:4]


def test_a_late_evaluation_has_its_checkpoint_already(watched: Watched, tmp_path: Path) -> None:
    """With eval_async the checkpoint follows its evaluation at once: no other one is asked for."""
    fake = Fake()
    run = watched(fake)
    path = (run.checkpoints_dir / "last").resolve()
    recorder = VideoRecorder("every_eval", fake)
    control = Control()
    recorder.run, recorder._control = run, control
    result = EvalResult.of_episodes(
        [1.0], [1], greedy=True, seed=1, env_steps=int(path.name), epoch=1
    )
    recorder.on_eval(result, is_best=False)
    recorder.on_checkpoint(path, "periodic")
    assert fake.started == [int(path.name)]
    assert not control.wants_checkpoint
    control.checkpoint()  # a person asks, too
    recorder.on_eval(result, is_best=False)
    recorder.on_checkpoint(path, "periodic")
    assert control.wants_checkpoint


@pytest.mark.parametrize("value", ["sometimes", 0, True])
def test_other_values_are_refused(value: Any) -> None:
    with pytest.raises(ConfigError, match="video"):
        make_config("ppo", ENV, video=value)
    assert isinstance(configured_observers(make_config("ppo", ENV))[-1], VideoRecorder)


def test_a_real_video_of_a_real_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(videos, "LOWEST_PRIORITY", 0)  # the suite keeps every core busy
    run = train(
        "ppo",
        "CartPole-v1",
        video="best",
        max_epochs=1,
        eval_freq_epochs=1,
        eval_episodes=1,
        max_episode_steps=5,
        early_stop_on_eval_threshold=None,
    )
    [event] = events(run, "video")
    assert (run.path / event["path"]).stat().st_size > 1000
    assert event["lengths"] == [5]
    [val] = [e for e in events(run, "eval") if e["stage"] == "val"]
    assert event["seed"] == val["seed"]
