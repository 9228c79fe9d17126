"""The rows of a run: counters, episodes, details, and that logging changes nothing."""

from collections.abc import Callable
from typing import Any

import pytest

from gymnasium_solver.runs.jsonl import read_jsonl
from gymnasium_solver.runs.metrics import describe

Call = Callable[..., Any]
CONTINUOUS = ("sac", "td3", "ddpg", "crossq")


def env_of(algo_id: str) -> str:
    return "Pendulum-v1" if algo_id in CONTINUOUS else "CartPole-v1"


def test_counters_count(train: Call) -> None:
    run = train("ppo", "CartPole-v1", n_envs=2, n_steps=8, max_epochs=3)
    rows = read_jsonl(run.metrics_path)
    for number, row in enumerate(rows, start=1):
        assert row["train/cnt/epoch"] == row["train/cnt/total_rollouts"] == number
        assert row["train/cnt/total_updates"] == number
        assert row["train/cnt/total_vec_steps"] == 8 * number
        assert row["train/roll/vec_steps"] == 8
        assert 0 < row["train/roll/env_steps"] <= 16
    assert sum(row["train/roll/env_steps"] for row in rows) == rows[-1]["env_steps"]
    assert sum(row["train/roll/episodes"] for row in rows) == rows[-1]["train/cnt/total_episodes"]


def test_episodes_are_told_by_how_they_ended(train: Call) -> None:
    cut = train("ppo", "CartPole-v1", max_episode_steps=5, n_steps=20, max_epochs=1)
    [row] = read_jsonl(cut.metrics_path)
    assert row["train/roll/ep_truncated"] == 1.0
    assert row["train/roll/ep_len/last"] == 5
    assert row["train/roll/ep_rew/std"] == 0.0
    assert row["train/roll/ep_rew/min"] == row["train/roll/ep_rew/max"] == 5.0
    ended = train("ppo", "CartPole-v1", n_steps=60, max_epochs=1)
    [row] = read_jsonl(ended.metrics_path)
    assert row["train/roll/ep_truncated"] == 0.0


def test_the_plateau_is_counted_from_the_best_mean(train: Call) -> None:
    same = {"max_episode_steps": 5, "n_envs": 20, "n_steps": 40}  # every return is 5
    rows = read_jsonl(train("reinforce", "CartPole-v1", max_epochs=4, **same).metrics_path)
    assert [row["train/roll/ep_rew/best"] for row in rows] == [5.0] * 4
    assert [row["train/plateau/epochs"] for row in rows] == [0, 1, 2, 3]
    assert [row["train/plateau/env_steps"] for row in rows] == [
        row["env_steps"] - rows[0]["env_steps"] for row in rows
    ]


@pytest.mark.parametrize("algo_id", ["ppo", "reinforce", "pqn", "sarsa", "dqn", "sac", "td3"])
def test_details_come_at_their_cadence_and_are_declared(algo_id: str, train: Call) -> None:
    run = train(algo_id, env_of(algo_id), max_epochs=4, log_details_freq_epochs=3)
    rows = read_jsonl(run.metrics_path)
    detailed = [row["epoch"] for row in rows if "train/roll/obs/mean" in row]
    assert detailed == [1, 3]
    row = rows[2]
    assert "train/opt/activations/dead" in row
    assert "train/roll/actions/hist/00" in row
    undeclared = [name for name in row if not describe(name).description]
    assert undeclared == []
    outside = [
        name
        for name, value in row.items()
        if value is not None
        for low, high in [describe(name).bounds]
        if (low is not None and value < low) or (high is not None and value > high)
    ]
    assert outside == []


@pytest.mark.parametrize("algo_id", ["ppo", "dqn", "sac"])
def test_logging_changes_nothing(algo_id: str, train: Call, weight_hash: Call) -> None:
    often = train(algo_id, env_of(algo_id), log_details_freq_epochs=1)
    never = train(algo_id, env_of(algo_id), log_details_freq_epochs=None)
    assert weight_hash(often) == weight_hash(never)
    assert not any("train/roll/obs/mean" in row for row in read_jsonl(never.metrics_path))


def test_values_that_were_clipped_are_counted(train: Call) -> None:
    run = train("ppo", "CartPole-v1", clip_range_vf=1e-9, max_epochs=1)
    [row] = read_jsonl(run.metrics_path)
    assert row["train/opt/ppo/clip_fraction_vf"] > 0.9
    assert row["train/opt/loss/value_scaled"] == pytest.approx(0.5 * row["train/opt/loss/value"])
    assert row["train/opt/loss/entropy"] == -row["train/opt/policy/entropy"]


def test_prioritised_replay_reports_how_even_it_is(train: Call) -> None:
    run = train("dqn", "CartPole-v1", prioritized=True, log_details_freq_epochs=1)
    last = read_jsonl(run.metrics_path)[-1]
    assert 0 < last["train/opt/replay/priority_evenness"] <= 1
    assert 0 < last["train/opt/replay/size"] <= 60
