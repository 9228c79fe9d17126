"""Every shipped config trains, and `random` is a run like any other."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gymnasium_solver.config.find import SHIPPED, find_configs
from gymnasium_solver.errors import ConfigError, EnvError, MissingError
from gymnasium_solver.runs.checkpoint import load_checkpoint
from gymnasium_solver.runs.jsonl import read_jsonl
from gymnasium_solver.runs.metrics import describe
from gymnasium_solver.training import loop
from gymnasium_solver.training.agents import load_agent
from gymnasium_solver.training.config_tests import short_training
from gymnasium_solver.training.prepare import build_config

# Of the variants for a GPU, which are the same in every game, one is enough.
NAMES = [
    entry.name
    for entry in find_configs()
    if entry.path.is_relative_to(SHIPPED)
    and (entry.variant != "ppo_gpu" or "Breakout" in entry.name)
]


@pytest.mark.sample(5)
@pytest.mark.parametrize("name", NAMES)
def test_two_epochs(name: str) -> None:
    try:
        run = short_training(name, Path("runs"))
    except EnvError as error:
        if isinstance(error, MissingError) or "pip install" in str(error):
            pytest.skip(str(error))
        raise
    meta = run.meta()
    assert (meta["status"], meta["stop_reason"], meta["epoch"]) == ("finished", "max_epochs", 2)
    rows = read_jsonl(run.metrics_path)
    assert len(rows) == 2
    assert rows[1]["val/roll/ep_rew/mean"] == meta["last_eval"]["score"]
    assert any(metric.startswith("train/opt/") for metric in rows[1])
    for metric in rows[1]:
        if metric not in ("env_steps", "epoch", "wall_s"):
            assert describe(metric).description, metric
    agent = load_agent(run.id, "runs")
    obs = agent.policy.observation_space.sample()
    assert agent.policy.actions.space.contains(agent.act(obs, as_trained=True))


# -- `random` is a run like any other: folder, evaluation, verdict, exact resume ------------------


def train(env_id: str, **fields: Any) -> Any:
    given = {
        "env_id": env_id, "algo_id": "random", "seed": 1, "n_envs": 3, "n_steps": 40,
        "eval_freq_epochs": 2, "eval_episodes": 4, "test_episodes": 6, "max_epochs": 4, **fields,
    }  # fmt: skip
    return loop.train(build_config(given), runs_root=Path("runs"))


@pytest.mark.parametrize(
    "env_id", ["CartPole-v1", "Pendulum-v1", "Probe/MemoryParts-v0", "Probe/DictAction-v0"]
)
def test_it_makes_a_run_that_can_be_loaded(env_id: str) -> None:
    run = train(env_id)
    meta = run.meta()
    assert (meta["status"], meta["stop_reason"]) == ("finished", "max_epochs")
    assert meta["test"]["episodes"] == 6
    assert len(read_jsonl(run.metrics_path)) == 4
    agent = load_agent(run.id, "runs")
    space = agent.action_space
    obs = agent.observation_space.sample()
    actions = [agent.act(obs) for _ in range(20)]
    assert all(space.contains(action) for action in actions)
    assert len({str(action) for action in actions}) > 1


def test_every_legal_action_is_equally_likely() -> None:
    agent = load_agent(train("Probe/Masked-v0", n_envs=8).id, "runs")
    legal = np.array([True, False, True, True])
    mask = np.tile(legal, (3000, 1))
    acted = agent.policy.sample(np.zeros((3000, 1), np.float32), {}, np.zeros(3000, bool), mask)
    counts = np.bincount(acted.actions, minlength=4) / 3000
    np.testing.assert_allclose(counts, legal / 3, atol=0.04)


def test_a_resume_draws_the_same_actions() -> None:
    whole = train("CartPole-v1", max_epochs=6)
    half = train("CartPole-v1", max_epochs=3)
    loop.resume(half.id, runs_root=Path("runs"), overrides={"max_epochs": 6})

    def scores(run: Any) -> list[Any]:
        rows = read_jsonl(run.metrics_path)
        return [(row["env_steps"], row.get("roll/ep_rew/mean")) for row in rows]

    assert scores(half) == scores(whole)
    states = [
        load_checkpoint(run.path / "checkpoints/last").state["agent"] for run in (half, whole)
    ]
    assert states[0]["act_rng"] == states[1]["act_rng"]


def test_it_has_no_fields_of_learning() -> None:
    with pytest.raises(ConfigError, match="policy_lr"):
        train("CartPole-v1", policy_lr=0.1)
