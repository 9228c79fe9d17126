"""Ray: runs as tasks on a cluster of three local nodes, one of which is killed."""

import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from gymnasium_solver.backends.local import gsolve
from gymnasium_solver.backends.ray_tasks import run_argv
from gymnasium_solver.experiments.pool import FINISHED, RUNNING, STOPPED, Pool, Task
from gymnasium_solver.runs import machine
from gymnasium_solver.runs.query import get_run
from gymnasium_solver.runs.run import Run, is_run
from tests.experiments.real_runs import digest, tiny, wait_for

LONG = {"max_env_steps": 40_000, "checkpoint_freq_epochs": 50, "eval_freq_epochs": 400}


def test_a_worker_returns_the_exit_code_and_the_output(tmp_path: Path) -> None:
    argv = [sys.executable, "-S", "-c", "import os; print(os.environ['A']); raise SystemExit(3)"]
    assert run_argv(argv, str(tmp_path / "run"), {"A": "here"}) == 3
    assert (tmp_path / "run" / "job.log").read_text() == "here\n"


@pytest.mark.skipif(sys.platform != "linux", reason="PR_SET_PDEATHSIG is Linux's")
def test_a_training_dies_with_its_worker(tmp_path: Path) -> None:
    log = tmp_path / "run" / "job.log"
    argv = [sys.executable, "-S", "-c",
            "import os, time; print(os.getpid(), flush=True); time.sleep(60)"]  # fmt: skip
    code = (
        "from gymnasium_solver.backends.ray_tasks import run_argv\n"
        f"run_argv({argv!r}, {str(tmp_path / 'run')!r}, {{}})"
    )
    worker = subprocess.Popen([sys.executable, "-c", code])
    wait_for(lambda: log.exists() and log.read_text().strip(), 30)
    child = int(log.read_text())
    worker.send_signal(signal.SIGKILL)
    worker.wait()
    wait_for(lambda: not machine.is_alive(child), 30)


def train_until(pool: Pool, env_steps: int) -> None:
    """Until every run of the pool has come so far."""

    def are_there() -> bool:
        pool.step()
        folders = [task.folder for task in pool.tasks]
        return all(is_run(f) and get_run(Run(f)).env_steps > env_steps for f in folders)

    wait_for(are_there, 180)


@pytest.mark.services
def test_a_node_is_lost(cluster: Any, tmp_path: Path) -> None:
    """All runs finish, and their weights are those of plain trainings."""
    from gymnasium_solver.backends.ray_tasks import RayBackend

    config = tiny(tmp_path, **LONG)
    pool = Pool(3, backend=RayBackend())
    tasks = [
        pool.add(Task(tmp_path / "ray" / f"s{i}", (config, "--seed", str(i)))) for i in range(3)
    ]
    pool.step()
    assert [task.state for task in tasks] == [RUNNING] * 3
    train_until(pool, 5000)
    cluster.remove_node(cluster.worker_nodes.copy().pop(), allow_graceful=False)
    pool.run()
    assert [task.state for task in tasks] == [FINISHED] * 3, [task.reason for task in tasks]
    assert sum(task.restarts for task in tasks) == 1
    for i, task in enumerate(tasks):
        alone = tmp_path / "alone" / f"s{i}"
        words = [config, "--seed", str(i), "--run-dir", str(alone), "-q"]
        subprocess.run(gsolve("train", *words), check=True, capture_output=True, timeout=300)
        assert digest(task.folder) == digest(alone)


@pytest.mark.services
def test_a_carried_run_is_stopped_and_resumed_elsewhere(cluster: Any, tmp_path: Path) -> None:
    """Without a disk that the nodes share: the folder comes back, and goes to the next worker."""
    from gymnasium_solver.backends.ray_tasks import RayBackend

    words = (tiny(tmp_path, **LONG | {"max_env_steps": 400_000}), "--seed", "1")
    pool = Pool(1, backend=RayBackend(carries=True))
    task = pool.add(Task(tmp_path / "a", words))
    train_until(pool, 3000)
    pool.stop_all()
    assert task.state == STOPPED
    assert Run(task.folder).meta()["status"] == "interrupted"
    assert (task.folder / "checkpoints" / "last" / "done").is_file()
    pool = Pool(1, backend=RayBackend(carries=True))
    again = pool.add(Task(tmp_path / "a", words))
    pool.run()
    assert again.state == FINISHED, again.reason
    alone = tmp_path / "alone"
    argv = gsolve("train", *words, "--run-dir", str(alone), "-q")
    subprocess.run(argv, check=True, capture_output=True, timeout=300)
    assert digest(again.folder) == digest(alone)


@pytest.mark.services
def test_a_task_is_stopped_and_saves(cluster: Any, tmp_path: Path) -> None:
    from gymnasium_solver.backends.ray_tasks import RayBackend

    config = tiny(tmp_path, **LONG | {"max_env_steps": 4_000_000})
    pool = Pool(1, backend=RayBackend())
    task = pool.add(Task(tmp_path / "a", (config, "--seed", "1")))
    train_until(pool, 3000)
    pool.stop_all()
    assert task.state == STOPPED
    assert Run(task.folder).meta()["status"] == "interrupted"


@pytest.mark.services
def test_a_sweep_on_a_cluster(cluster: Any, tmp_path: Path) -> None:
    """Suggestions, weights and result are those of the same sweep on this machine."""
    pytest.importorskip("optuna")
    from gymnasium_solver.backends.ray_tasks import RayBackend
    from gymnasium_solver.experiments.search.run import search_of
    from tests.experiments.test_sweep_kills import content, create

    here, there = create(tmp_path / "here", 3, 1024), create(tmp_path / "there", 3, 1024)
    search_of(here).run()
    search_of(there, backend=RayBackend()).run()
    assert content(there) == content(here)
