"""Files for dstack and Modal, validated by their own packages where these are installed."""

import json
from pathlib import Path

import pytest
import yaml

from gymnasium_solver.backends import cloud
from gymnasium_solver.backends.resources import Resources, estimate
from gymnasium_solver.errors import ConfigError
from gymnasium_solver.training.prepare import load_config

NEEDS = Resources(2, 3.5, 1, 2.0)


def runs(*names: str) -> list[cloud.CloudRun]:
    return [cloud.CloudRun(name, "env_id: CartPole-v1\n", i + 1) for i, name in enumerate(names)]


def test_dstack_files(tmp_path: Path) -> None:
    names = ["A-very-long-name-of-a-run-with-seed-s1-20261116", "short"]
    folder = cloud.write("dstack", tmp_path / "d", "t", runs(*names), NEEDS)
    specs = [yaml.safe_load((folder / f"{name}.dstack.yml").read_text()) for name in names]
    assert len({spec["name"] for spec in specs}) == 2
    assert all(len(spec["name"]) <= 41 for spec in specs)
    assert specs[0]["resources"] == {"cpu": "2..", "memory": "3.5GB..", "gpu": 1}
    assert specs[1]["commands"][-1].endswith("--run-dir /runs/short --if-exists resume --quiet")
    assert "env_id: CartPole-v1" in specs[1]["commands"][1]
    models = pytest.importorskip("dstack._internal.core.models.configurations")
    assert [models.parse_run_configuration(spec).type for spec in specs] == ["task", "task"]


def test_modal_file(tmp_path: Path) -> None:
    path = cloud.write("modal", tmp_path / "m", "my exp", runs("a", "b"), NEEDS)
    tasks = json.loads((tmp_path / "m" / "tasks.json").read_text())
    assert [(task["name"], task["seed"]) for task in tasks] == [("a", "1"), ("b", "2")]
    text = path.read_text()
    compile(text, str(path), "exec")
    assert 'modal.App("my-exp"' in text
    assert "cpu=2.0, memory=3500, gpu='any', timeout=7200" in text


def test_estimates() -> None:
    small = estimate(load_config("CartPole-v1:ppo"))
    assert (small.cpus, small.gpus) == (1, 0)
    assert small.memory_gb <= 2
    big = estimate(load_config("CartPole-v1:dqn", overrides={"buffer_size": 50_000_000}))
    assert big.memory_gb > small.memory_gb + 1
    assert big.hours > small.hours
    forced = estimate(load_config("CartPole-v1:ppo", overrides={"device": "cuda"}))
    assert forced.gpus == 1
    shared = estimate(load_config("CartPole-v1:ppo", overrides={"collectors": 4}))
    assert shared.cpus == 5  # the learner and its collectors


def test_overrides() -> None:
    assert NEEDS.override("cpus=8, hours=0.5") == Resources(8, 3.5, 1, 0.5)
    assert NEEDS.override("memory=16GB gpus=0") == Resources(2, 16.0, 0, 2.0)
    assert NEEDS.time_text == "02:00:00"
    assert Resources(1, 1, 0, 1.51).time_text == "01:31:00"
    for wrong in ("cpu=2", "cpus=x", "cpus=1.5", "hours=0", "memory"):
        with pytest.raises(ConfigError, match="--resources"):
            NEEDS.override(wrong)
