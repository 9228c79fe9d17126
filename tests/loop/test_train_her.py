"""Runs with hindsight replay: exact resume, determinism, refusals, success in the metrics."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gymnasium_solver.errors import ConfigError, EnvError
from gymnasium_solver.runs.checkpoint import load_checkpoint
from gymnasium_solver.runs.jsonl import read_jsonl
from gymnasium_solver.runs.query import get_meta
from gymnasium_solver.training import loop
from gymnasium_solver.training.prepare import build_config

Call = Callable[..., Any]
BITS = {"env_kwargs": {"bits": 4}}
CASES: dict[str, tuple[str, str, dict[str, Any]]] = {
    "dqn": (
        "dqn",
        "Probe/BitFlip-v0",
        {
            **BITS,
            "her": {"strategy": "episode", "k": 2},
            "n_step": 3,
            "prioritized": True,
            "combined_replay": True,
            "normalize_obs": "rolling",
            "normalize_reward": True,
            "env_boundary_steps": 50,
        },
    ),
    "sac": ("sac", "PointMaze_UMaze-v3", {"her": True, "max_episode_steps": 9, "n_envs": 1}),
}


@pytest.mark.parametrize("case", CASES)
def test_a_crashed_run_resumed_equals_the_uninterrupted_one(case: str, exact_resume: Call) -> None:
    algo_id, env_id, fields = CASES[case]
    exact_resume(algo_id, env_id, max_epochs=7, **fields)


def test_the_goals_are_drawn_from_the_seed(train: Call, weight_hash: Call) -> None:
    algo_id, env_id, fields = "dqn", "Probe/BitFlip-v0", {**BITS, "her": {"strategy": "final"}}
    first, again, other = (
        weight_hash(train(algo_id, env_id, **{**fields, "seed": seed})) for seed in (1, 1, 2)
    )
    assert first == again != other
    without = weight_hash(train(algo_id, env_id, **{**fields, "her": False}))
    assert without != first


def test_a_run_without_goals_or_with_other_rewards_is_refused(train: Call) -> None:
    with pytest.raises(EnvError, match="CartPole-v1 is not a goal environment"):
        train("dqn", "CartPole-v1", her=True)
    with pytest.raises(EnvError, match="is not known as a function of goals"):
        train("sac", "HandManipulateBlock-v1", her=True, n_envs=1)
    scaled = {"id": "RewardScale", "scale": 0.1}
    with pytest.raises(ConfigError, match=r"the reward is not what .* compute_reward gives: -0\.1"):
        train("dqn", "Probe/BitFlip-v0", her=True, env_wrappers=[scaled], **BITS)


def test_success_is_logged_and_saved(train: Call, resume: Call) -> None:
    fields = {**BITS, "her": True, "eval_freq_epochs": 2, "eval_episodes": 10}
    run = train("dqn", "Probe/BitFlip-v0", **fields)
    rows = read_jsonl(run.metrics_path)
    assert 0 <= rows[-1]["train/roll/success"] <= 1
    values = [row["val/roll/success"] for row in rows if "val/roll/ep_rew/mean" in row]
    assert len(values) == 2
    assert all(0 <= value <= 1 for value in values)
    evals = [e for e in read_jsonl(run.events_path) if e["kind"] == "eval"]
    assert [e["success"] for e in evals if e["stage"] == "val"] == values
    test = run.test
    assert test is not None
    assert 0 <= test.success <= 1
    assert f", success {test.success * 100:.3g} %" in run.report_path.read_text()
    saved = load_checkpoint(run.checkpoints_dir / "last").state["collector"]["successes"]
    assert sum(saved) / len(saved) == rows[-1]["train/roll/success"]
    resumed = resume("@last", max_epochs=6)
    assert len(read_jsonl(resumed.metrics_path)) == 6
    plain = train("dqn", "CartPole-v1", eval_freq_epochs=2, eval_episodes=2)
    assert not any("success" in name for row in read_jsonl(plain.metrics_path) for name in row)


def bit_flip(tmp_path: Path, **fields: Any) -> dict[str, Any]:
    """DQN on 8 bits; the verdict's score."""
    config = build_config(
        {
            "env_id": "Probe/BitFlip-v0",
            "algo_id": "dqn",
            "seed": 1,
            "n_envs": 8,
            "n_steps": 600,
            "max_env_steps": 4800,
            "hidden_dims": [64],
            "policy_lr": 0.003,
            "learning_starts": 200,
            "train_freq": 16,
            "updates_per_step": 0.25,
            "batch_size": 128,
            "gamma": 0.95,
            "epsilon": {"start": 1.0, "end": 0.1, "to": 0.3},
            "target_update_freq": 200,
            "eval_freq_epochs": 1,
            "eval_episodes": 100,
            **fields,
        }
    )
    run = loop.train(config, runs_root=tmp_path / "runs")
    score: dict[str, Any] = get_meta(run)["test"]
    return score


def test_hindsight_makes_the_goals_of_bit_flip_reachable(tmp_path: Path) -> None:
    """The best play scores -3.0 on average, one that never arrives -8."""
    assert bit_flip(tmp_path, her=True)["mean"] > -3.6
    assert bit_flip(tmp_path)["mean"] < -7
