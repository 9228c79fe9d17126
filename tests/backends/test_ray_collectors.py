"""Collectors on a Ray cluster of three local nodes, one of which is killed."""

import hashlib
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from gymnasium_solver.runs.jsonl import read_jsonl
from gymnasium_solver.runs.run import Run
from gymnasium_solver.training.loop import train
from gymnasium_solver.training.observer import Observer
from gymnasium_solver.training.prepare import build_config

pytestmark = pytest.mark.services

TINY: dict[str, Any] = {
    "env_id": "CartPole-v1",
    "algo_id": "ppo",
    "seed": 1,
    "n_envs": 4,
    "n_steps": 16,
    "batch_size": 24,
    "n_epochs": 2,
    "hidden_dims": [8],
    "eval_freq_epochs": None,
    "test_episodes": 2,
    "max_epochs": 12,
}


@pytest.fixture(scope="module")
def one_cluster() -> Iterator[Any]:
    pytest.importorskip("ray", reason="Ray is not installed (extra ray)")
    os.environ["RAY_AUTH_MODE"] = "disabled"
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    import ray
    from ray.cluster_utils import Cluster

    found = Cluster(initialize_head=True, head_node_args={"num_cpus": 0})
    ray.init(address=found.address, log_to_driver=False, configure_logging=False)
    yield found
    ray.shutdown()
    found.shutdown()


@pytest.fixture
def cluster(one_cluster: Any) -> Any:
    """With three nodes; the test before may have killed one."""
    while len(one_cluster.worker_nodes) < 3:
        one_cluster.add_node(num_cpus=1)
    one_cluster.wait_for_nodes()
    return one_cluster


def weights(run: Run) -> str:
    file = run.checkpoints_dir / "last" / "model.safetensors"
    return hashlib.sha256(file.read_bytes()).hexdigest()


class LoseANode(Observer):
    def __init__(self, cluster: Any) -> None:
        self.cluster, self.lines = cluster, list[str]()

    def on_message(self, level: str, text: str) -> None:
        self.lines.append(text)

    def on_epoch(self, row: dict[str, Any]) -> None:
        if row["epoch"] != 4:
            return
        from ray._private.state import actors  # the public call needs Ray's dashboard

        alive = [actor for actor in actors().values() if actor["State"] == "ALIVE"]
        victim = alive[-1]
        node = next(
            node
            for node in self.cluster.worker_nodes
            if node.node_id == victim["Address"]["NodeID"]
        )
        self.cluster.remove_node(node, allow_graceful=False)
        deadline = time.monotonic() + 60
        while psutil.pid_exists(victim["Pid"]):  # a worker notices it a little later
            assert time.monotonic() < deadline
            time.sleep(0.1)


def test_taking_turns_a_node_is_lost(cluster: Any, tmp_path: Path) -> None:
    """The weights are those of collectors that lost nothing."""
    config = build_config({**TINY, "collectors": 2})
    alone = train(config, runs_root=tmp_path)
    lose = LoseANode(cluster)
    run = train(config, runs_root=tmp_path, observers=[lose])
    assert any("was lost" in line for line in lose.lines), lose.lines
    assert weights(run) == weights(alone)
    assert list(read_jsonl(run.metrics_path))[-1]["train/cnt/lost_collectors"] == 1


@pytest.mark.parametrize("algo_id", ["ppo", "dqn"])
def test_stale_and_a_node_is_lost(algo_id: str, cluster: Any, tmp_path: Path) -> None:
    fields = {**TINY, "algo_id": algo_id}
    if algo_id == "dqn":
        del fields["n_epochs"]
        fields |= {"train_freq": 32, "learning_starts": 64}
    settings = {"n": 2, "max_staleness": 1}
    lose = LoseANode(cluster)
    run = train(
        build_config({**fields, "collectors": settings}), runs_root=tmp_path, observers=[lose]
    )
    rows = list(read_jsonl(run.metrics_path))
    assert [row["epoch"] for row in rows] == list(range(1, 13))
    assert rows[-1]["train/cnt/lost_collectors"] == 1
    assert max(row["train/roll/policy_lag/max"] for row in rows) <= 1
    assert run.meta()["status"] == "finished"
