"""Ray: runs as tasks on a cluster of three local nodes, one of which is killed."""

import hashlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gymnasium_solver.backends.local import gsolve
from gymnasium_solver.backends.ray_tasks import run_argv
from gymnasium_solver.experiments.pool import FINISHED, RUNNING, STOPPED, Pool, Task
from gymnasium_solver.runs.run import Run

CONFIG = """
env_id: CartPole-v1
ppo:
  n_envs: 3
  n_steps: 16
  batch_size: 24
  n_epochs: 1
  hidden_dims: [8]
  max_env_steps: 40_000
  checkpoint_freq_epochs: 50
  eval_freq_epochs: 400
  eval_episodes: 2
  early_stop_on_eval_threshold: false
"""


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
    deadline = time.monotonic() + 30
    while not (log.exists() and log.read_text().strip()):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    child = int(log.read_text())
    worker.send_signal(signal.SIGKILL)
    worker.wait()
    from gymnasium_solver.runs import machine

    while machine.is_alive(child):
        assert time.monotonic() < deadline
        time.sleep(0.05)


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    pytest.importorskip("ray", reason="Ray is not installed (extra ray)")
    os.environ["RAY_AUTH_MODE"] = "disabled"
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    import ray
    from ray.cluster_utils import Cluster

    found = Cluster(initialize_head=True, head_node_args={"num_cpus": 0})
    for i in range(3):
        found.add_node(num_cpus=1, resources={f"node{i}": 1})
    found.wait_for_nodes()
    ray.init(address=found.address, log_to_driver=False, configure_logging=False)
    yield found
    ray.shutdown()
    found.shutdown()


def weights(folder: Path) -> str:
    file = folder / "checkpoints" / "last" / "model.safetensors"
    return hashlib.sha256(file.read_bytes()).hexdigest()


@pytest.mark.services
def test_a_node_is_lost(cluster: Any, tmp_path: Path) -> None:
    """All runs finish, and their weights are those of plain trainings."""
    from gymnasium_solver.backends.ray_tasks import RayBackend

    config = tmp_path / "tiny.yaml"
    config.write_text(CONFIG)
    pool = Pool(3, backend=RayBackend())
    tasks = [
        pool.add(Task(tmp_path / "ray" / f"s{i}", (str(config), "--seed", str(i))))
        for i in range(3)
    ]
    pool.step()
    assert [task.state for task in tasks] == [RUNNING] * 3
    deadline = time.monotonic() + 180
    while not all(_env_steps(task.folder) > 5000 for task in tasks):
        assert time.monotonic() < deadline
        pool.step()
        time.sleep(0.2)
    cluster.remove_node(cluster.worker_nodes.copy().pop(), allow_graceful=False)
    pool.run()
    assert [task.state for task in tasks] == [FINISHED] * 3, [task.reason for task in tasks]
    assert sum(task.restarts for task in tasks) == 1
    for i, task in enumerate(tasks):
        alone = tmp_path / "alone" / f"s{i}"
        words = [str(config), "--seed", str(i), "--run-dir", str(alone), "-q"]
        subprocess.run(gsolve("train", *words), check=True, capture_output=True, timeout=300)
        assert weights(task.folder) == weights(alone)


@pytest.mark.services
def test_a_carried_run_is_stopped_and_resumed_elsewhere(cluster: Any, tmp_path: Path) -> None:
    """Without a disk that the nodes share: the folder comes back, and goes to the next worker."""
    from gymnasium_solver.backends.ray_tasks import RayBackend

    config = tmp_path / "tiny.yaml"
    config.write_text(CONFIG.replace("40_000", "400_000"))
    words = (str(config), "--seed", "1")
    pool = Pool(1, backend=RayBackend(carries=True))
    task = pool.add(Task(tmp_path / "a", words))
    deadline = time.monotonic() + 180
    while _env_steps(task.folder) < 3000:
        assert time.monotonic() < deadline
        pool.step()
        time.sleep(0.2)
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
    assert weights(again.folder) == weights(alone)


@pytest.mark.services
def test_a_task_is_stopped_and_saves(cluster: Any, tmp_path: Path) -> None:
    from gymnasium_solver.backends.ray_tasks import RayBackend

    config = tmp_path / "tiny.yaml"
    config.write_text(CONFIG.replace("40_000", "4_000_000"))
    pool = Pool(1, backend=RayBackend())
    task = pool.add(Task(tmp_path / "a", (str(config), "--seed", "1")))
    pool.step()
    deadline = time.monotonic() + 120
    while _env_steps(task.folder) < 3000:
        assert time.monotonic() < deadline
        time.sleep(0.2)
    pool.stop_all()
    assert task.state == STOPPED
    assert Run(task.folder).meta()["status"] == "interrupted"


def _env_steps(folder: Path) -> int:
    from gymnasium_solver.runs.query import get_run
    from gymnasium_solver.runs.run import is_run

    return get_run(Run(folder)).env_steps if is_run(folder) else 0


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
