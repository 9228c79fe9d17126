"""Runs whose worker does not see their folder: it goes there and comes back."""

import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from gymnasium_solver.backends import carried, ray_tasks
from gymnasium_solver.backends.carried import Changes, apply
from gymnasium_solver.backends.local import BackendError
from gymnasium_solver.backends.ray_tasks import NOT_SEEN, Cargo, Mailbox, run_argv, run_carried


def files_of(folder: Path) -> dict[str, str]:
    found = {}
    for path in sorted(folder.rglob("*")):
        if path.is_symlink() or path.is_file():
            text = os.readlink(path) if path.is_symlink() else path.read_text()
            found[path.relative_to(folder).as_posix()] = text
    return found


def checkpoint(folder: Path, env_steps: int) -> None:
    place = folder / "checkpoints" / str(env_steps)
    place.mkdir(parents=True)
    for name in ("model.safetensors", "manifest.json", "done"):
        (place / name).write_text(f"{name} {env_steps}")
    last = folder / "checkpoints" / "last"
    last.unlink(missing_ok=True)
    last.symlink_to(str(env_steps))


def send(changes: Changes, here: Path, there: Path) -> None:
    """Apply the parts, and see that both folders have the same files but for the lock."""
    for part in changes.parts():
        apply(part, there)
    expected = files_of(here)
    del expected[".lock"]
    assert files_of(there) == expected


def test_a_copy_follows_what_is_new_changed_and_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(carried, "PART_BYTES", 40)
    here, there = tmp_path / "here", tmp_path / "there"
    checkpoint(here, 10)
    (here / "metrics.jsonl").write_text("1\n")
    (here / ".lock").touch()
    (here / "checkpoints" / ".tmp-20-1").mkdir()
    assert len(list(Changes(here).parts())) > 1
    changes = Changes(here)
    send(changes, here, there)
    assert list(changes.parts()) == []
    checkpoint(here, 20)
    with (here / "metrics.jsonl").open("a") as file:
        file.write("2\n")
    for path in (here / "checkpoints" / "10").iterdir():
        path.unlink()
    (here / "checkpoints" / "10").rmdir()
    send(changes, here, there)
    assert not (there / "checkpoints" / "10").exists()


def test_a_kill_between_two_parts_leaves_a_folder_that_can_be_resumed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(carried, "PART_BYTES", 1)
    here, there = tmp_path / "here", tmp_path / "there"
    checkpoint(here, 10)
    (here / "replay").mkdir()
    (here / "replay" / "0-9.safetensors").write_text("rows")
    for part in Changes(here).parts():
        apply(part, there)
        found = files_of(there)
        if "checkpoints/10/done" in found:
            assert {"checkpoints/10/model.safetensors", "replay/0-9.safetensors"} < found.keys()
        if "checkpoints/last" in found:
            assert "checkpoints/10/done" in found
    assert files_of(there) == files_of(here)


SCRIPT = """
import pathlib, signal, sys, time
folder, config = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])
def save(*_):
    (folder / "saved").write_text("yes")
    sys.exit(75)
signal.signal(signal.SIGTERM, save)
(folder / "result").write_text(config.read_text() + (folder / "state").read_text())
time.sleep(float(sys.argv[3]))
"""


def argv_of(folder: Path, config: Path, seconds: float) -> list[str]:
    return [sys.executable, "-S", "-c", SCRIPT, str(folder), str(config), str(seconds), "--run-dir"]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, Path]:
    """A folder to resume, and a config."""
    monkeypatch.setattr(ray_tasks, "CARRY_S", 0.05)
    folder, config = tmp_path / "run", tmp_path / "a.yaml"
    folder.mkdir()
    (folder / "state").write_text("before")
    config.write_text("config ")
    return folder, config


def test_the_worker_gets_folder_and_config_and_sends_back_what_it_writes(
    run: tuple[Path, Path],
) -> None:
    folder, config = run
    argv = argv_of(folder, config, 60.0)
    cargo, mailbox = Cargo.of(argv, folder), Mailbox()
    config.unlink()  # nothing of it is on the worker's disk

    def exchange(parts: list[bytes]) -> bool:
        if any(b"config before" in part for part in parts):  # it has begun
            mailbox.ask_to_stop(str(folder))
        return mailbox.put(str(folder), parts)

    assert run_carried(argv, str(folder), {}, cargo, exchange) == 75
    assert "result" not in files_of(folder)
    for part in mailbox.take(str(folder)):
        apply(part, folder)
    found = files_of(folder)
    assert (found["result"], found["saved"], found["state"]) == ("config before", "yes", "before")
    assert mailbox.take(str(folder)) == []


class Ray(ModuleType):
    """As much of Ray as the backend uses; tasks run at once, on a disk without the mark."""

    util = SimpleNamespace(
        scheduling_strategies=SimpleNamespace(
            NodeAffinitySchedulingStrategy=lambda node, soft: None
        )
    )

    def is_initialized(self) -> bool:
        return True

    def get_runtime_context(self) -> Any:
        return SimpleNamespace(get_node_id=lambda: "here")

    def remote(self, **options: Any) -> Any:
        def made(target: Any) -> Any:
            if isinstance(target, type):
                return SimpleNamespace(remote=lambda: Actor(target()))
            return SimpleNamespace(remote=lambda *args: self.do(target, *args))

        return made

    def do(self, task: Any, argv: list[str], folder: str, *rest: Any) -> Any:
        (Path(folder) / ray_tasks.SEEN).unlink(missing_ok=True)
        return task(argv, folder, *rest)

    def put(self, value: Any) -> Any:
        return value

    get = put

    def wait(self, refs: list[Any], timeout: float) -> Any:
        return refs, []


class Actor:
    def __init__(self, inner: Any) -> None:
        self.inner = inner

    def __getattr__(self, name: str) -> Any:
        return SimpleNamespace(remote=getattr(self.inner, name))


def test_a_cluster_that_does_not_see_the_folder_gets_it(
    run: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    fake = Ray("ray")
    monkeypatch.setitem(sys.modules, "ray", fake)
    monkeypatch.setitem(sys.modules, "ray.util", fake.util)
    monkeypatch.setitem(
        sys.modules, "ray.util.scheduling_strategies", fake.util.scheduling_strategies
    )
    folder, config = run
    backend = ray_tasks.RayBackend()
    backend.start(argv_of(folder, config, 0.0), folder)
    assert backend.is_running(folder)  # it was not seen, and was started as a carried run
    assert backend.carries
    assert not backend.is_running(folder)
    assert backend.exit_code(folder) == 0
    assert files_of(folder)["result"] == "config before"
    with pytest.raises(BackendError, match="train without --stack"):
        backend.start([sys.executable, "-m", "stack_worker", str(folder)], folder)


def test_a_worker_looks_for_the_mark_of_the_coordinator(tmp_path: Path) -> None:
    argv = [sys.executable, "-S", "-c", "raise SystemExit(3)"]
    assert run_argv(argv, str(tmp_path / "run"), {}, "token") == NOT_SEEN
    assert not (tmp_path / "run").exists()
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / ray_tasks.SEEN).write_text("another")
    assert run_argv(argv, str(tmp_path / "run"), {}, "token") == NOT_SEEN
    (tmp_path / "run" / ray_tasks.SEEN).write_text("token")
    assert run_argv(argv, str(tmp_path / "run"), {}, "token") == 3


def test_a_node_of_slurm_that_does_not_see_the_folder_says_so(tmp_path: Path) -> None:
    words = ["-m", "gymnasium_solver.backends.local", "task", str(tmp_path / "exp" / "slurm"), "0"]
    done = subprocess.run([sys.executable, *words], capture_output=True, text=True)
    assert done.returncode == 1
    assert "is not seen on" in done.stderr
    assert "Traceback" not in done.stderr
