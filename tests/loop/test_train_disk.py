"""A full disk, a folder deleted while training, and a second process that resumes the same run."""

import errno
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gymnasium_solver.cli import main as cli
from gymnasium_solver.errors import RunError, WriteError
from gymnasium_solver.runs.checkpoint import LAST, load_checkpoint
from gymnasium_solver.runs.jsonl import Appender, read_jsonl
from gymnasium_solver.runs.run import Run
from gymnasium_solver.training.observer import Observer

Call = Callable[..., Any]
FIELDS = {"max_epochs": 4, "checkpoint_freq_epochs": 1}


class AtEpoch(Observer):
    """Calls a function after an epoch."""

    def __init__(self, epoch: int, action: Callable[[Run], None]) -> None:
        self.epoch, self.action = epoch, action

    def on_start(self, run: Run, config: Any, info: Any) -> None:
        self.run = run

    def on_epoch(self, row: dict[str, Any]) -> None:
        if row["epoch"] == self.epoch:
            self.action(self.run)


def full(*_: object) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def only_run(root: Path) -> Run:
    (path,) = (p for p in root.iterdir() if not p.is_symlink() and not p.name.startswith("."))
    return Run(path)


@pytest.mark.parametrize("what", ["lines", "checkpoints", "everything"])
def test_a_full_disk_stops_with_one_line_and_the_run_goes_on_later(
    what: str,
    train: Call,
    resume: Call,
    weight_hash: Call,
    learning_rows: Call,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
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
def test_a_write_that_the_kernel_cuts_off(train: Call, resume: Call, tmp_path: Path) -> None:
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
    assert [row["epoch"] for row in read_jsonl(run.metrics_path)] == [1, 2]
    assert run.meta()["status"] == "failed"
    assert resume(run.id).meta()["status"] == "finished"


def test_a_full_disk_at_the_start_leaves_no_run_behind(
    train: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gymnasium_solver.runs.files.write_synced", full)
    with pytest.raises(WriteError, match="a new run cannot be written"):
        train("ppo", "Bandit-v0", **FIELDS)
    assert list((tmp_path / "runs").iterdir()) == []


def test_a_folder_that_is_deleted_stays_deleted(train: Call, tmp_path: Path) -> None:
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
def test_a_second_resume_is_refused_with_the_process_of_the_first(
    train: Call, resume: Call
) -> None:
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
