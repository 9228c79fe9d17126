"""Every shipped config trains: built as it is, two epochs, an evaluation and a test."""

from pathlib import Path

import pytest

from gymnasium_solver.config.find import SHIPPED, find_configs
from gymnasium_solver.errors import EnvError, MissingError
from gymnasium_solver.runs.jsonl import read_jsonl
from gymnasium_solver.runs.metrics import describe
from gymnasium_solver.training.agents import load_agent
from gymnasium_solver.training.config_tests import short_training

# Of the variants for a GPU, which are the same in every game, one is enough.
NAMES = [
    entry.name
    for entry in find_configs()
    if entry.path.is_relative_to(SHIPPED)
    and (entry.variant != "ppo_gpu" or "Breakout" in entry.name)
]


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
    assert any(metric.startswith("train/opt/loss/") for metric in rows[1])
    for metric in rows[1]:
        if metric not in ("env_steps", "epoch", "wall_s"):
            assert describe(metric).description, metric
    agent = load_agent(run.id, "runs")
    obs = agent.policy.observation_space.sample()
    assert agent.policy.actions.space.contains(agent.act(obs, as_trained=True))
