"""Every shipped config trains: built as it is, two epochs, an evaluation and a test."""

from pathlib import Path

import pytest

from gymnasium_solver.config.find import SHIPPED
from gymnasium_solver.config.load import find_configs, load_config
from gymnasium_solver.runs.metrics import describe, read_jsonl
from gymnasium_solver.training.agents import load_agent
from gymnasium_solver.training.loop import train

NAMES = [entry.name for entry in find_configs() if entry.path.is_relative_to(SHIPPED)]
# Small, and otherwise as shipped: engine, wrappers, normalisation, network, schedules.
SHORT = {
    "n_envs": 2,
    "n_steps": 12,
    "max_epochs": 2,
    "max_episode_steps": 10,
    "eval_freq_epochs": 2,
    "eval_episodes": 1,
    "seed": 1,
}
# What learns from a replay must come to learn at all.
SHORT_REPLAY = {**SHORT, "learning_starts": 8, "train_freq": 8, "updates_per_step": 0.1}


@pytest.mark.parametrize("name", NAMES)
def test_two_epochs(name: str) -> None:
    has_replay = hasattr(load_config(name), "learning_starts")
    config = load_config(name, overrides=SHORT_REPLAY if has_replay else SHORT)
    run = train(config, runs_root=Path("runs"))
    meta = run.meta()
    assert (meta["status"], meta["stop_reason"], meta["epoch"]) == ("finished", "max_epochs", 2)
    rows = read_jsonl(run.metrics_path)
    assert len(rows) == 2
    assert rows[1]["val/roll/ep_rew/mean"] == meta["last_eval"]["score"]
    assert any(metric.startswith("train/opt/loss/") for metric in rows[1])
    for metric in rows[1]:
        if metric not in ("env_steps", "epoch", "wall_s"):
            assert describe(metric).description, metric
    agent = load_agent(run.id, "runs")
    obs = agent.observation_space.sample()
    assert agent.action_space.contains(agent.act(obs))
