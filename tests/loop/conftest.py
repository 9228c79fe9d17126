"""Tiny trainings in a folder of their own, and what is compared of them."""

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import gymnasium_solver.fast.execution  # noqa: F401  (so that the first test finds it: tests/conftest.py)
from gymnasium_solver.config.schema import Config
from gymnasium_solver.runs.jsonl import read_jsonl
from gymnasium_solver.runs.run import Run
from gymnasium_solver.training import loop
from gymnasium_solver.training.prepare import build_config

OFF_POLICY: dict[str, Any] = {
    "batch_size": 8,
    "buffer_size": 60,  # goes round within a tiny run
    "learning_starts": 10,
    "train_freq": 6,
    "updates_per_step": 0.7,
}
# In env steps: a share of the budget would mean something else in a run that is longer.
EPSILON = {"start": 1.0, "end": 0.1, "to": 200}
TINY: dict[str, dict[str, Any]] = {
    "dqn": {**OFF_POLICY, "epsilon": EPSILON},
    "ppo": {"batch_size": 24, "n_epochs": 2},
    "a2c": {"rollout_steps": 5},
    "bc": {"batch_size": 16},
    "random": {},
    "reinforce": {},
    "pqn": {"batch_size": 24, "n_epochs": 2, "epsilon": EPSILON},
    "sarsa": {"batch_size": 24, "epsilon": EPSILON},
    "sac": OFF_POLICY,
    "td3": OFF_POLICY,
    "ddpg": OFF_POLICY,
    "crossq": {**OFF_POLICY, "critic_hidden_dims": [9], "renorm_warmup": 40},
}
NOT_LEARNT = ("train/sys/", "wall_s", "progress")

MakeConfig = Callable[..., Config]
Train = Callable[..., Run]


@pytest.fixture(autouse=True)
def _own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing lands in the checkout, and a run does not record the checkout's git state."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("GSOLVE_RUNS", raising=False)


@pytest.fixture
def make_config() -> MakeConfig:
    """make_config(algo_id, env_id, **fields): a config small enough to run in a blink."""

    def make(algo_id: str, env_id: str, **fields: Any) -> Config:
        small: dict[str, Any] = {
            "env_id": env_id,
            "algo_id": algo_id,
            "seed": 1,
            "n_envs": 3,
            "n_steps": 16,
            "hidden_dims": [8],
            "eval_freq_epochs": None,
            "test_episodes": 2,
            "checkpoint_freq_epochs": 1000,
        }
        if algo_id == "random":
            del small["hidden_dims"]
        budget = {} if "max_env_steps" in fields else {"max_epochs": 4}
        return build_config({**small, **TINY[algo_id], **budget, **fields})

    return make


@pytest.fixture
def train(tmp_path: Path, make_config: MakeConfig) -> Train:
    """train(algo_id, env_id, observer=None, **fields) -> Run, in tmp_path/runs."""

    def run(algo_id: str, env_id: str, observer: Any = None, **fields: Any) -> Run:
        config = make_config(algo_id, env_id, **fields)
        observers = [observer] if observer else []
        return loop.train(config, runs_root=tmp_path / "runs", observers=observers)

    return run


@pytest.fixture
def resume(tmp_path: Path) -> Train:
    """resume(ref, **overrides) -> Run."""

    def run(ref: str, observer: Any = None, **overrides: Any) -> Run:
        root = tmp_path / "runs"
        observers = [observer] if observer else []
        return loop.resume(ref, runs_root=root, overrides=overrides, observers=observers)

    return run


@pytest.fixture
def weight_hash() -> Callable[[Run], str]:
    """weight_hash(run): of the last checkpoint's model, statistics included."""

    def digest(run: Run, pointer: str = "last") -> str:
        file = run.checkpoints_dir / pointer / "model.safetensors"
        return hashlib.sha256(file.read_bytes()).hexdigest()

    return digest


@pytest.fixture
def learning_rows() -> Callable[[Run], list[dict[str, Any]]]:
    """learning_rows(run): its metrics without what the clock decides."""

    def rows(run: Run) -> list[dict[str, Any]]:
        return [
            {name: value for name, value in row.items() if not name.startswith(NOT_LEARNT)}
            for row in read_jsonl(run.metrics_path)
        ]

    return rows


@pytest.fixture
def events() -> Callable[..., list[dict[str, Any]]]:
    """events(run, kind): those of a kind, in order."""

    def found(run: Run, kind: str) -> list[dict[str, Any]]:
        return [event for event in read_jsonl(run.events_path) if event["kind"] == kind]

    return found
