"""Same seed, same weights, bit for bit; another seed, other weights. On every engine."""

import hashlib
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gymnasium_solver.training.seeds import derive, stage_seed

ENGINES: dict[str, tuple[str, dict[str, Any]]] = {
    "envpool": ("CartPole-v1", {"vectorization_mode": "envpool"}),
    "vector": ("CartPole-v1", {"vectorization_mode": "vector"}),
    "sync": ("CartPole-v1", {"vectorization_mode": "sync"}),
    "async": ("CartPole-v1", {"vectorization_mode": "async"}),
    "own": ("Bandit-v0", {}),
    "continuous": ("Pendulum-v1", {"vectorization_mode": "envpool"}),
    "normalised": (
        "Pendulum-v1",
        {"normalize_obs": "rolling", "normalize_reward": True},
    ),
    "discrete_normalised": (
        "CartPole-v1",
        {"normalize_obs": "rolling", "normalize_reward": True},
    ),
}
DISCRETE = ("envpool", "sync", "own", "discrete_normalised")
# Engines, for what an algorithm can act on: the envs are the same for all of them.
ALGOS: dict[str, tuple[str, ...]] = {
    "ppo": tuple(ENGINES),
    "a2c": ("envpool", "normalised"),
    "reinforce": tuple(ENGINES),
    "pqn": DISCRETE,
    "sarsa": DISCRETE,
    "sac": ("continuous", "normalised", "discrete_normalised"),
    "td3": ("continuous", "normalised"),
    "ddpg": ("continuous",),
    "crossq": ("continuous", "normalised"),
}
PAIRS = [(engine, algo_id) for algo_id, engines in ALGOS.items() for engine in engines]


@pytest.mark.parametrize(("engine", "algo_id"), PAIRS)
def test_the_seed_decides_the_weights(
    engine: str, algo_id: str, train: Callable[..., Any], weight_hash: Callable[..., str]
) -> None:
    env_id, fields = ENGINES[engine]
    first, again, other = (
        weight_hash(train(algo_id, env_id, seed=seed, max_epochs=3, **fields)) for seed in (1, 1, 2)
    )
    assert first == again
    assert first != other


def test_the_threads_of_the_process_do_not_matter(tmp_path: Path) -> None:
    """Weights are drawn by a decomposition that rounds otherwise on two threads than on one."""
    hashes = set()
    for threads in ("1", "2"):
        variables = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
        environment = os.environ | dict.fromkeys(variables, threads)
        runs = tmp_path / threads
        command = [sys.executable, "-m", "gymnasium_solver", "train", "CartPole-v1:ppo"]
        command += ["--seed", "1", "--max-epochs", "3", "-q", "--runs-dir", str(runs)]
        subprocess.run(command, env=environment, check=True, capture_output=True)
        weights = (runs / "@last/checkpoints/last/model.safetensors").read_bytes()
        hashes.add(hashlib.sha256(weights).hexdigest())
    assert len(hashes) == 1


def test_a_run_without_a_seed_records_the_one_it_drew(
    train: Callable[..., Any], weight_hash: Callable[..., str]
) -> None:
    run = train("ppo", "Bandit-v0", seed=None)
    drawn = run.meta()["seed"]
    assert isinstance(drawn, int)
    assert weight_hash(train("ppo", "Bandit-v0", seed=drawn)) == weight_hash(run)


def test_adjacent_stages_have_their_own_seeds(make_config: Callable[..., Any]) -> None:
    config = make_config("ppo", "Bandit-v0", seed=5)
    seeds = [stage_seed(config, stage) for stage in ("train", "val", "test")]
    neighbours = [stage_seed(config.replace(seed=6), stage) for stage in ("train", "val", "test")]
    assert len({*seeds, *neighbours, derive(5, "agent"), derive(6, "agent")}) == 8
    assert stage_seed(config.replace(seed_val=77), "val") == 77
