"""Collectors on a Ray cluster of three local nodes, one of which is killed."""

from pathlib import Path
from typing import Any

import psutil
import pytest

from gymnasium_solver.runs.jsonl import read_jsonl
from gymnasium_solver.training.loop import train
from gymnasium_solver.training.observer import Observer
from gymnasium_solver.training.prepare import build_config
from tests.experiments.real_runs import digest, wait_for

pytestmark = pytest.mark.services

SMALL: dict[str, Any] = {
    "env_id": "CartPole-v1", "algo_id": "ppo", "seed": 1, "n_envs": 4, "n_steps": 16,
    "batch_size": 24, "n_epochs": 2, "hidden_dims": [8], "eval_freq_epochs": None,
    "test_episodes": 2, "max_epochs": 12,
}  # fmt: skip


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
        wait_for(lambda: not psutil.pid_exists(victim["Pid"]), 60)  # a worker notices it later


def test_taking_turns_a_node_is_lost(cluster: Any, tmp_path: Path) -> None:
    """The weights are those of collectors that lost nothing."""
    config = build_config({**SMALL, "collectors": 2})
    alone = train(config, runs_root=tmp_path)
    lose = LoseANode(cluster)
    run = train(config, runs_root=tmp_path, observers=[lose])
    assert any("was lost" in line for line in lose.lines), lose.lines
    assert digest(run.path) == digest(alone.path)
    assert list(read_jsonl(run.metrics_path))[-1]["train/cnt/lost_collectors"] == 1


@pytest.mark.parametrize("algo_id", ["ppo", "dqn"])
def test_stale_and_a_node_is_lost(algo_id: str, cluster: Any, tmp_path: Path) -> None:
    fields = {**SMALL, "algo_id": algo_id}
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
