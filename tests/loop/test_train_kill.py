"""What breaks a run off from outside (kills, signals, a full disk), and what is left behind."""

import errno
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from benchmarks.leaks import CASES, TINY, held, train_all
from gymnasium_solver.cli import main as cli
from gymnasium_solver.errors import RunError, WriteError
from gymnasium_solver.runs import query
from gymnasium_solver.runs.checkpoint import LAST, load_checkpoint
from gymnasium_solver.runs.jsonl import Appender, read_jsonl
from gymnasium_solver.runs.run import Run
from gymnasium_solver.training import loop
from gymnasium_solver.training.prepare import build_config, load_config
from tests.loop.conftest import AtEpoch, learning_rows, resume, train, weight_hash

PLUGIN = '''
import os, time
from gymnasium_solver.envs.vector import VectorWrapper
from gymnasium_solver.envs.wrappers import register_wrapper

@register_wrapper("WaitAt")
class WaitAt(VectorWrapper):
    """Waits at a step of the training envs while the file `waiting` exists."""

    steps = 0

    def step(self, actions):
        self.steps += 1
        if self.n_envs == 3 and str(self.steps) == os.environ.get("WAIT_AT_STEP"):
            open("waiting", "w").close()
            while os.path.exists("waiting"):
                time.sleep(0.01)
        return self.env.step(actions)
'''
CONFIG = """
env_id: CartPole-v1
plugins: [wait_plugin_of_kill_test]
env_wrappers: [{id: WaitAt}]
ppo:
  seed: 11
  n_envs: 3
  n_steps: 16
  batch_size: 24
  n_epochs: 2
  hidden_dims: [8]
  policy_lr: lin_0.01
  normalize_obs: rolling
  normalize_reward: true
  max_env_steps: 500
  env_boundary_steps: 200
  checkpoint_freq_epochs: 2
  eval_freq_epochs: 3
  eval_episodes: 2
"""
N_STEPS = 16
GSOLVE = [sys.executable, "-m", "gymnasium_solver.cli.main"]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    (tmp_path / "wait_plugin_of_kill_test.py").write_text(PLUGIN)
    (tmp_path / "tiny.yaml").write_text(CONFIG)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield tmp_path
    sys.modules.pop("wait_plugin_of_kill_test", None)


@pytest.fixture
def whole(folder: Path) -> Run:
    """The run as it goes when nobody interrupts it."""
    return loop.train(load_config("tiny.yaml"), runs_root=Path("whole"))


def start(wait_at_step: int) -> subprocess.Popen[str]:
    """A training that waits before this step of the vector env."""
    return subprocess.Popen(
        [*GSOLVE, "train", "tiny.yaml"],
        env={**os.environ, "WAIT_AT_STEP": str(wait_at_step)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def until_it_waits(process: subprocess.Popen[str]) -> None:
    deadline = time.monotonic() + 60
    while not Path("waiting").exists():
        assert process.poll() is None, process.communicate()[0]
        assert time.monotonic() < deadline, "the training never came to the step to wait at"
        time.sleep(0.01)


def assert_same(run: Run, whole: Run, where: str) -> None:
    assert weight_hash(run) == weight_hash(whole), where
    rows = learning_rows(run)
    assert rows == learning_rows(whole), where
    assert len({row["env_steps"] for row in rows}) == len(rows)
    assert run.meta()["test"] == whole.meta()["test"]


def test_kill_9_then_resume(whole: Run) -> None:
    n_epochs = len(learning_rows(whole))
    # After the first checkpoint, before the end, in the middle of a rollout.
    wait_at = random.randrange(2 * N_STEPS + 1, (n_epochs - 1) * N_STEPS)
    process = start(wait_at)
    try:
        until_it_waits(process)
        assert query.get_run("@last", root=Path("runs")).status == "running"
        process.kill()
        process.communicate()
    finally:
        process.kill()
    assert query.get_run("@last", root=Path("runs")).status == "killed"

    resumed = subprocess.run(
        [*GSOLVE, "train", "--resume", "@last"], capture_output=True, text=True, timeout=120
    )
    assert resumed.returncode == 0, resumed.stderr
    run = Run(Path("runs") / os.readlink("runs/@last"))
    assert_same(run, whole, f"killed at step {wait_at}")
    assert run.meta()["status"] == "finished"
    kinds = {event["kind"] for event in read_jsonl(run.events_path)}
    assert {"checkpoint", "eval"} <= kinds


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=["SIGTERM", "SIGINT"])
def test_a_polite_signal_saves_and_tells_how_to_go_on(number: int, whole: Run) -> None:
    # In epoch 5: a periodic checkpoint would come in epoch 6 only.
    process = start(4 * N_STEPS + 5)
    try:
        until_it_waits(process)
        process.send_signal(number)
        Path("waiting").unlink()
        output, _ = process.communicate(timeout=60)
    finally:
        process.kill()
    assert process.returncode == (75 if number == signal.SIGTERM else 130), output
    run = Run(Path("runs") / os.readlink("runs/@last"))
    meta = run.meta()
    assert (meta["status"], meta["stop_reason"], meta["epoch"]) == ("interrupted", "interrupted", 5)
    assert "INTERRUPTED" in output
    assert f"gsolve train --resume {run.id}" in output
    assert (run.checkpoints_dir / "last" / "done").exists()
    assert os.readlink(run.checkpoints_dir / "last") == str(meta["env_steps"])

    loop.resume(run.id, runs_root=Path("runs"))
    assert_same(run, whole, "interrupted in epoch 5")


# -- a full disk, a folder deleted while training, and a second process that resumes the same run -


FIELDS = {"max_epochs": 4, "checkpoint_freq_epochs": 1}


def full(*_: object) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def only_run(root: Path) -> Run:
    (path,) = (p for p in root.iterdir() if not p.is_symlink() and not p.name.startswith("."))
    return Run(path)


@pytest.mark.parametrize("what", ["lines", "checkpoints", "everything"])
def test_a_full_disk_stops_with_one_line_and_the_run_goes_on_later(
    what: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = train("ppo", "Bandit-v0", **FIELDS)
    expected = weight_hash(whole), learning_rows(whole)
    shutil.rmtree(tmp_path / "runs")

    def fill_up(run: Run) -> None:
        if what != "checkpoints":
            monkeypatch.setattr(Appender, "write", full)
        if what != "lines":
            monkeypatch.setattr("gymnasium_solver.runs.checkpoint.write_synced", full)
        if what == "everything":
            monkeypatch.setattr("gymnasium_solver.runs.files.write_synced", full)

    with pytest.raises(WriteError, match=r"cannot be written to .*No space left on device"):
        train("ppo", "Bandit-v0", AtEpoch(2, fill_up), **FIELDS)
    run = only_run(tmp_path / "runs")
    assert load_checkpoint(run.checkpoints_dir / LAST).env_steps > 0
    assert run.meta()["status"] == ("running" if what == "everything" else "failed")
    assert not list(run.path.rglob("*tmp*"))
    for path in (run.metrics_path, run.events_path):
        assert read_jsonl(path)
        assert path.read_bytes().endswith(b"\n")
    monkeypatch.undo()
    monkeypatch.chdir(tmp_path)
    again = resume(run.id)
    assert (weight_hash(again), learning_rows(again)) == expected
    assert again.meta()["status"] == "finished"


@pytest.mark.skipif(not hasattr(signal, "SIGXFSZ"), reason="needs limits on the size of files")
def test_a_write_that_the_kernel_cuts_off(tmp_path: Path) -> None:
    """A real failure in the middle of a line: the rest of the line is removed."""
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)

    def limit(run: Run) -> None:
        size = run.metrics_path.stat().st_size + 100
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))

    try:
        with pytest.raises(WriteError, match=r"metrics\.jsonl: File too large"):
            train("ppo", "Bandit-v0", AtEpoch(2, limit), max_epochs=4, checkpoint_freq_epochs=1)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    run = only_run(tmp_path / "runs")
    assert run.metrics_path.read_bytes().endswith(b"\n")
    assert [row["epoch"] for row in read_jsonl(run.metrics_path)] == [1]
    assert run.meta()["status"] == "failed"
    assert resume(run.id).meta()["status"] == "finished"


def test_a_full_disk_at_the_start_leaves_no_run_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gymnasium_solver.runs.files.write_synced", full)
    with pytest.raises(WriteError, match="a new run cannot be written"):
        train("ppo", "Bandit-v0", **FIELDS)
    assert list((tmp_path / "runs").iterdir()) == []


def test_a_folder_that_is_deleted_stays_deleted(tmp_path: Path) -> None:
    with pytest.raises(WriteError, match="the folder is gone"):
        train("ppo", "Bandit-v0", AtEpoch(2, lambda run: shutil.rmtree(run.path)), **FIELDS)
    assert not list((tmp_path / "runs").glob("Bandit*"))


def test_the_command_ends_with_one_line_and_exit_1(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "deleter_plugin.py").write_text(
        "import shutil\n"
        "import gymnasium_solver as gs\n"
        "from gymnasium_solver.training.observer import Observer\n"
        "@gs.register_observer('deleter_of_runs')\n"
        "class Deleter(Observer):\n"
        "    def on_start(self, run, config, info):\n"
        "        self.run = run\n"
        "    def on_epoch(self, row):\n"
        "        shutil.rmtree(self.run.path, ignore_errors=True)\n"
    )
    fields = ["--max-epochs", "3", "--n-steps", "16", "--n-envs", "1", "--eval-freq-epochs", "0"]
    names = ["--plugins", "deleter_plugin", "--observers", "deleter_of_runs"]
    assert cli.main(["train", "Bandit-v0:ppo", "-q", *fields, *names]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("gsolve train: a line cannot be written to ")
    assert "the folder is gone" in line


HOLD = """
import sys
from pathlib import Path
from gymnasium_solver.runs.run import Run
with Run(Path(sys.argv[1])).lock():
    print("held", flush=True)
    sys.stdin.read()
"""


@pytest.mark.skipif(sys.platform == "win32", reason="needs flock")
def test_a_second_resume_is_refused_with_the_process_of_the_first() -> None:
    run = train("ppo", "Bandit-v0", max_epochs=2)
    before = {p: p.read_bytes() for p in run.path.rglob("*") if p.is_file() and p.name != ".lock"}
    argv = [sys.executable, "-c", HOLD, str(run.path)]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as first:
        assert first.stdout is not None
        assert first.stdout.readline() == b"held\n"
        with pytest.raises(RunError, match=f"still running in process {first.pid}"):
            resume(run.id, max_epochs=3)
        assert before.items() <= {p: p.read_bytes() for p in before}.items()
        first.kill()  # the lock goes with the process
    assert resume(run.id, max_epochs=3).meta()["epoch"] == 3


@pytest.mark.skipif(sys.platform == "win32", reason="needs fork")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_worker_does_not_keep_the_lock_of_a_killed_parent(tmp_path: Path) -> None:
    run = Run.create("a: 1\n", {"env_id": "x", "algo_id": "ppo"}, tmp_path / "runs")
    (ready, tell), (wait, go_on) = os.pipe(), os.pipe()
    with run.lock():
        with pytest.raises(RunError, match=f"process {os.getpid()}"), Run(run.path).lock():
            pass
        child = os.fork()
        if child == 0:
            os.write(tell, b"1")
            os.close(go_on)
            os.read(wait, 1)  # until the parent closes its end
            os._exit(0)
        os.read(ready, 1)
    try:
        with Run(run.path).lock():
            pass
    finally:
        os.close(go_on)
        os.waitpid(child, 0)
        for handle in (ready, tell, wait):
            os.close(handle)


# -- trainings in one process leave no open files, threads or processes behind --------------------


def test_ten_trainings(tmp_path: Path) -> None:
    quick = [case for case in CASES if case.get("vectorization_mode") in ("envpool", "sync")][:2]
    train_all(quick, tmp_path)
    before = held()
    for _ in range(5):
        train_all(quick, tmp_path)
    assert held()[1:] == before[1:]


def test_trainings_that_break_off(tmp_path: Path) -> None:
    config = build_config({**TINY, **CASES[0]})
    before = None
    for _ in range(4):
        with pytest.raises(WriteError):
            loop.train(
                config,
                runs_root=tmp_path,
                observers=[AtEpoch(1, lambda run: shutil.rmtree(run.path))],
            )
        before = before or held()
    assert before is not None
    assert held()[1:] == before[1:]
