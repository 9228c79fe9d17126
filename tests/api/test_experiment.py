"""`gs.experiment`: configs and seeds from Python, continued by name, and runs that were changed."""

import os
import signal
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

import gymnasium_solver as gs
from gymnasium_solver.backends import local
from gymnasium_solver.config.yaml_file import read_file
from gymnasium_solver.errors import ConfigError, RunError
from gymnasium_solver.experiments.experiment import FOLDER, load
from gymnasium_solver.experiments.search.sweep_folder import sweep_ids
from gymnasium_solver.runs import machine
from gymnasium_solver.runs.edits import Request, pending_requests, put_request, read_edits
from gymnasium_solver.runs.run import Run, is_run
from tests.experiments.fake_runs import FakeBackend
from tests.experiments.real_runs import tiny, wait_for

BOTH = ["CartPole-v1:ppo", "CartPole-v1:reinforce"]


@pytest.fixture(autouse=True)
def _no_git(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "git_state", lambda _: (None, b""))


def by_algorithm(config: Any, seed: int) -> float:
    return {"ppo": 400.0, "reinforce": 100.0}[config["algo_id"]] + seed


def test_runs_scores_and_the_comparison(tmp_path: Path) -> None:
    backend = FakeBackend(by_algorithm)
    found = gs.experiment(BOTH, seeds=4, runs_dir=tmp_path, backend=backend, max_env_steps=4000)
    assert found.scores == {
        BOTH[0]: [401.0, 402.0, 403.0, 404.0],
        BOTH[1]: [101.0, 102.0, 103.0, 104.0],
    }
    assert [run.meta()["seed"] for run in found.runs] == [1, 2, 3, 4] * 2
    assert len(backend.started) == 8
    config, _ = read_file(found.path / "configs" / found.experiment.members[0].config)
    assert config["max_env_steps"] == 4000
    assert "402.5" in str(found)


def test_the_same_call_continues_it(tmp_path: Path) -> None:
    options: dict[str, Any] = {"seeds": [3, 5], "runs_dir": tmp_path, "name": "mine"}
    broken = FakeBackend(by_algorithm, crash_after=1)
    with pytest.raises(KeyboardInterrupt):
        gs.experiment(BOTH[0], backend=broken, jobs=1, **options)
    again = FakeBackend(by_algorithm)
    found = gs.experiment(BOTH[0], backend=again, jobs=1, **options)
    assert found.scores == {BOTH[0]: [403.0, 405.0]}
    assert (len(broken.started), len(again.started)) == (1, 1)
    with pytest.raises(ConfigError, match="exists with other configs or seeds"):
        gs.experiment(BOTH[0], **{**options, "seeds": 3})


class Terminating(FakeBackend):
    """Trainings that run until they are stopped; a SIGTERM arrives after the second start."""

    def start(self, argv: Sequence[str], folder: Path, *, cpus: int | None = None) -> None:
        self.running = [*getattr(self, "running", []), folder]
        if len(self.running) == 2:
            os.kill(os.getpid(), signal.SIGTERM)

    def is_running(self, folder: Path) -> bool:
        return folder in getattr(self, "running", [])

    def stop(self, folder: Path) -> None:
        self.running.remove(folder)


def test_sigterm_stops_the_runs_and_ends_the_program(tmp_path: Path) -> None:
    options: dict[str, Any] = {"seeds": 3, "runs_dir": tmp_path, "name": "mine", "jobs": 2}
    backend, before = Terminating(by_algorithm), signal.getsignal(signal.SIGTERM)
    with pytest.raises(SystemExit) as ended:
        gs.experiment(BOTH[0], backend=backend, **options)
    assert ended.value.code == 75
    assert backend.running == []
    assert signal.getsignal(signal.SIGTERM) is before
    found = gs.experiment(BOTH[0], backend=FakeBackend(by_algorithm), **options)
    assert found.scores == {BOTH[0]: [401.0, 402.0, 403.0]}


def test_sigterm_ends_a_sweep_that_can_be_resumed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local, "LocalBackend", lambda *_: Terminating(by_algorithm))
    options: dict[str, Any] = {"trials": 2, "jobs": 2, "final": 0, "runs_dir": tmp_path}
    with pytest.raises(SystemExit) as ended:
        gs.sweep(BOTH[0], {"policy_lr": [1e-3, 1e-4]}, max_env_steps=4000, **options)
    assert ended.value.code == 75
    monkeypatch.setattr(local, "LocalBackend", lambda *_: FakeBackend(by_algorithm))
    (folder,) = sweep_ids(tmp_path)
    done = gs.sweep(resume=folder, runs_dir=tmp_path)
    assert [trial.value is not None for trial in done.trials] == [True, True]


def test_what_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"seeds=\[...\]"):
        gs.experiment(BOTH[0], runs_dir=tmp_path, seed=3)
    failing = FakeBackend(lambda config, seed: float("nan"))
    with pytest.raises(RunError, match="2 of 2 runs failed"):
        gs.experiment(BOTH[0], seeds=2, runs_dir=tmp_path, backend=failing)


def test_a_run_that_was_changed_is_continued(tmp_path: Path) -> None:
    """`gsolve set` changes a run of an experiment; then coordinator and run are killed."""
    config = tiny(tmp_path, max_env_steps=60_000, checkpoint_freq_epochs=20, eval_freq_epochs=None)
    words = ["train", config, "--seeds", "1", "--experiment", "e", "-q"]
    argv = local.gsolve(*words, "--runs-dir", str(tmp_path / "runs"))
    path = tmp_path / "runs" / FOLDER / "e"
    process = subprocess.Popen(argv, stdout=subprocess.DEVNULL)
    wait_for(lambda: (path / "experiment.yaml").exists())
    folder = load(path).folders()[0]
    wait_for(lambda: is_run(folder) and list((folder / "checkpoints").glob("*/done")))
    run = Run(folder)
    put_request(run, Request({"policy_lr": 0.123}))
    wait_for(lambda: not pending_requests(run))
    job = local.find(folder)
    assert job is not None
    process.kill()
    process.wait()
    os.kill(job.pid, signal.SIGKILL)
    wait_for(lambda: not local.is_running(folder))
    done = subprocess.run(argv, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    assert run.meta()["status"] == "finished"
    assert [{n: new for n, (_, new) in e.changed.items()} for e in read_edits(run)] == [
        {"policy_lr": 0.123}
    ]
    assert read_file(run.config_path)[0]["policy_lr"] == 0.123
