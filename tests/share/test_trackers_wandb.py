"""The W&B tracker, against a stand-in for its server: what is sent, resumed and rewound."""

import json
import subprocess
import sys
import types
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from gymnasium_solver.runs.query import get_rows
from gymnasium_solver.runs.run import Run
from gymnasium_solver.share.trackers import wandb_run
from gymnasium_solver.share.trackers.follow import Follower, Options, TrackError
from gymnasium_solver.share.trackers.wandb_run import fetch
from tests.share.tracked import add_checkpoint, end, go_back, grow, new_run


@dataclass
class Server:
    """What a W&B server keeps of one run: values by step; steps only grow."""

    steps: dict[int, dict[str, Any]] = field(default_factory=dict)
    inits: list[dict[str, Any]] = field(default_factory=list)
    alerts: list[str] = field(default_factory=list)
    artifacts: list[Any] = field(default_factory=list)
    summary: dict[str, Any] = field(default_factory=dict)
    config: dict[str, Any] = field(default_factory=dict)
    lost: int = 0
    """How many of the last steps never arrive, as after a kill."""


class FakeRun:
    def __init__(self, server: Server, folder: Path, resumed: bool) -> None:
        self.server, self.dir, self.resumed = server, str(folder / "run-x/files"), resumed
        self.step = max(server.steps, default=-1) + 1
        self.url = "https://wandb.example/run"
        self.summary = server.summary
        self.config = types.SimpleNamespace(
            update=lambda values, allow_val_change: server.config.update(values)
        )
        self.defined: list[Any] = []

    def define_metric(self, name: str, step_metric: str | None = None) -> None:
        self.defined.append((name, step_metric))

    def log(self, values: dict[str, Any], step: int) -> None:
        if self.server.steps and step < max(self.server.steps):
            raise AssertionError(f"step {step} is behind {max(self.server.steps)}")
        self.server.steps.setdefault(step, {}).update(values)

    def alert(self, title: str, text: str, level: Any) -> None:
        self.server.alerts.append(f"{title}: {text}")

    def log_artifact(self, artifact: Any, aliases: Any = ()) -> None:
        artifact.aliases = list(aliases)
        self.server.artifacts.append(artifact)

    def finish(self, exit_code: int = 0) -> None:
        pass


class FakeArtifact:
    def __init__(self, name: str, type: str, metadata: Any = None) -> None:
        self.name, self.type, self.metadata = name, type, metadata or {}
        self.files: list[Path] = []

    def add_dir(self, path: str) -> None:
        self.files += sorted(Path(path).iterdir())

    def add_file(self, path: str) -> None:
        self.files.append(Path(path))


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Server:
    server = Server()

    def init(**given: Any) -> FakeRun:
        server.inits.append(given)
        resumed = given.get("resume") == "allow" and bool(server.steps)
        if where := given.get("resume_from"):
            last = int(where.partition("?_step=")[2])
            server.steps = {s: v for s, v in server.steps.items() if s <= last}
        elif given.get("resume") == "allow":
            for step in sorted(server.steps)[len(server.steps) - server.lost :]:
                del server.steps[step]
        return FakeRun(server, tmp_path, resumed)

    module = types.SimpleNamespace(
        init=init,
        Settings=lambda **given: given,
        Error=RuntimeError,
        Artifact=FakeArtifact,
        Video=lambda path, format: ("video", path, format),
        AlertLevel=types.SimpleNamespace(WARN="WARN"),
    )
    monkeypatch.setattr(wandb_run, "wandb_module", lambda: module)
    for name in ("WANDB_MODE", "WANDB_PROJECT", "WANDB_RUN_GROUP", "WANDB_JOB_TYPE", "WANDB_NAME"):
        monkeypatch.delenv(name, raising=False)
    return server


ONLINE = Options(mode="online")


REWARD = "train/roll/ep_rew/mean"


def rewards(server: Server) -> list[float]:
    return [values[REWARD] for _, values in sorted(server.steps.items()) if REWARD in values]


def expected(run: Run) -> list[float]:
    return [row[REWARD] for row in get_rows(run) if REWARD in row]


def test_a_run_has_our_id_group_config_metrics_alerts_and_summary(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WANDB_PROJECT", "mine")
    run = new_run(tmp_path)
    grow(run, 30, 0)
    (run.videos_dir / "a.mp4").write_bytes(b"x")
    run.log_event("video", env_steps=100, path="videos/a.mp4")
    add_checkpoint(run, 100)
    run.log_event("config", env_steps=110, changed={"policy_lr": [0.001, 0.0005]})
    end(run)
    assert Follower(run, "wandb", ONLINE).send() == "https://wandb.example/run"
    given = server.inits[0]
    assert (given["id"], given["project"], given["job_type"]) == ("tracked", "mine", "seed-1")
    assert given["group"].startswith("CartPole-v1:ppo-")
    assert given["config"]["policy_lr"] == 0.001
    assert rewards(server) == expected(run)
    assert server.steps[29]["env_steps"] == 300
    assert server.steps[29]["video"][2] == "mp4"
    assert len(server.alerts) == 4
    assert server.config == {"policy_lr": 0.0005}
    assert server.summary["status"] == "finished"
    kinds = {artifact.type: artifact for artifact in server.artifacts}
    assert kinds["model"].aliases == ["best", "step-100", "latest"]
    assert {path.name for path in kinds["run"].files} >= {"config.yaml", "metrics.jsonl"}


@pytest.mark.parametrize("lost", [0, 1, 7, 1000])
def test_a_follower_continues_where_the_server_is(
    server: Server, tmp_path: Path, lost: int
) -> None:
    run = new_run(tmp_path)
    grow(run, 20, 0)
    Follower(run, "wandb", ONLINE).send()
    server.lost = min(lost, len(server.steps))
    grow(run, 15, 20)
    Follower(run, "wandb", ONLINE).send()
    assert rewards(server) == expected(run)
    assert sorted(server.steps) == list(range(35))


def test_a_rewind_is_one_at_the_server(server: Server, tmp_path: Path) -> None:
    run = new_run(tmp_path)
    grow(run, 40, 0)
    follower = Follower(run, "wandb", ONLINE)
    with follower._open():
        follower._pass_on()
        go_back(run, 150)
        grow(run, 10, 15, tag=0.5)
        follower._pass_on()
    assert server.inits[-1]["resume_from"] == "tracked?_step=14"
    assert rewards(server) == expected(run)


def test_the_mode_is_that_of_the_flag_the_variable_or_the_account(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pytest.importorskip("wandb", reason="W&B is not installed")
    monkeypatch.setenv("WANDB_API_KEY", "k" * 40)
    monkeypatch.delenv("WANDB_MODE", raising=False)
    assert wandb_run.chosen_mode(None) == "online"
    monkeypatch.setenv("WANDB_MODE", "offline")
    assert wandb_run.chosen_mode(None) == "offline"
    assert wandb_run.chosen_mode("online") == "online"
    monkeypatch.setenv("WANDB_MODE", "sometimes")
    with pytest.raises(TrackError, match="online or offline"):
        wandb_run.chosen_mode(None)


def test_runs_of_an_experiment_share_a_group(tmp_path: Path) -> None:
    from gymnasium_solver.experiments.experiment import create
    from gymnasium_solver.training.prepare import load_config

    made = create([("CartPole-v1:ppo", load_config("CartPole-v1:ppo"))], [1, 2], tmp_path)
    run = new_run(tmp_path, made.members[0].run)
    assert wandb_run.group_of(run, {"env_id": "CartPole-v1"}) == made.id


def test_a_run_is_fetched_by_its_id(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = new_run(tmp_path / "there")
    grow(run, 10, 0)
    add_checkpoint(run, 100, "evil.pkl")
    end(run)
    Follower(run, "wandb", ONLINE).send()
    monkeypatch.setattr(wandb_run, "wandb_module", lambda: _api(server, tmp_path))
    got = fetch("tracked", tmp_path / "here", "p")
    assert got.metrics_path.read_text() == run.metrics_path.read_text()
    assert got.meta()["id"] == "tracked"
    names = {path.name for path in (got.checkpoints_dir / "best").iterdir()}
    assert names == {"done", "model.safetensors"}
    with pytest.raises(TrackError, match="exists already"):
        fetch("tracked", tmp_path / "here", "p")
    for bad in ("../x", "/etc", ".hidden", ""):
        with pytest.raises(TrackError):
            fetch(bad, tmp_path / "here", "p")


def _api(server: Server, folder: Path) -> Any:
    import shutil

    class Api:
        def run(self, path: str) -> Any:
            assert path == "p/tracked"
            for artifact in server.artifacts:
                artifact.download = lambda root, a=artifact: _copied(a, root)
            return types.SimpleNamespace(logged_artifacts=lambda: server.artifacts)

    def _copied(artifact: Any, root: str) -> str:
        Path(root).mkdir(parents=True)
        for path in artifact.files:
            shutil.copyfile(path, Path(root) / path.name)
        return root

    errors = types.SimpleNamespace(CommError=KeyError, UsageError=KeyError)
    return types.SimpleNamespace(Api=Api, errors=errors)


def test_the_dashboard_is_shown_without_being_sent() -> None:
    pytest.importorskip("wandb_workspaces", reason="wandb-workspaces is not installed")
    words = [sys.executable, "-m", "gymnasium_solver", "track", "dashboard", "--dry-run", "--json"]
    done = subprocess.run(words, capture_output=True, text=True, timeout=120, check=True)
    text = json.dumps(json.loads(done.stdout))
    assert "val/roll/ep_rew/mean" in text
    assert '"env_steps"' in text
