"""Algorithms with a replay buffer: updates due, what is saved, hindsight. Their exact resume is in
test_train_resume.py."""

import json
from pathlib import Path
from typing import Any

import pytest

from gymnasium_solver.errors import ConfigError, EnvError
from gymnasium_solver.runs.checkpoint import load_checkpoint
from gymnasium_solver.runs.jsonl import read_jsonl
from gymnasium_solver.runs.query import get_meta
from gymnasium_solver.training import loop
from gymnasium_solver.training.prepare import build_config
from tests.loop.conftest import Heard, resume, train, weight_hash

BITS = {"env_kwargs": {"bits": 4}}


def test_resume_goes_on_from_any_checkpoint_that_is_kept() -> None:
    fields = {"checkpoint_freq_epochs": 1, "max_epochs": 6, "prioritized": True}
    whole = train("dqn", "CartPole-v1", **fields)
    expected = weight_hash(whole)
    steps = sorted(int(p.name) for p in whole.checkpoints_dir.iterdir() if p.name.isdecimal())
    resumed = resume(f"{whole.id}/{steps[0]}")
    assert weight_hash(resumed) == expected


RATIOS = [
    ("dqn", "auto", 1, 0.25),
    ("dqn", "auto", 7, 2.0),
    ("dqn", "auto", 64, 1.0),
    ("dqn", "async", 16, 0.25),
    ("sac", "auto", 16, 0.25),
    ("sac", "async", 1, 0.5),
    ("td3", "sync", 7, 0.5),
    ("td3", "async", 16, 0.25),
]


@pytest.mark.sample(1)
@pytest.mark.parametrize(("algo_id", "engine", "train_freq", "ratio"), RATIOS)
def test_updates_for_an_env_step_are_the_same_for_any_number_of_envs(
    algo_id: str, engine: str, train_freq: int, ratio: float
) -> None:
    counts = []
    for n_envs in (1, 4, 8):
        run = train(
            algo_id,
            "CartPole-v1" if algo_id == "dqn" else "Pendulum-v1",
            vectorization_mode=engine,
            n_envs=n_envs,
            n_steps=400 // n_envs,
            train_freq=train_freq,
            updates_per_step=ratio,
            learning_starts=0,
            max_env_steps=400,
        )
        counts.append(load_checkpoint(run.checkpoints_dir / "last").state["agent"]["n_updates"])
    # The round at the very end of an epoch may hold back a fraction of an update.
    assert all(abs(count - 400 * ratio) <= 1 for count in counts), counts


def test_nothing_is_learnt_before_learning_starts() -> None:
    fields: dict[str, Any] = {"learning_starts": 40, "train_freq": 1, "updates_per_step": 1.0}
    run = train("dqn", "CartPole-v1", n_envs=1, n_steps=50, max_env_steps=50, **fields)
    state = load_checkpoint(run.checkpoints_dir / "last").state
    assert state["agent"]["n_updates"] == 11  # after env steps 40 to 50


def test_a_checkpoint_writes_the_rows_that_are_new_and_prunes_the_old() -> None:
    run = train("dqn", "CartPole-v1", checkpoint_freq_epochs=1, max_epochs=9, keep_checkpoints=2)
    listed = {
        segment["file"]
        for path in run.checkpoints_dir.iterdir()
        if path.name.isdecimal()
        for segment in json.loads((path / "state.json").read_text())["replay"]["segments"]
    }
    assert listed == {path.name for path in (run.path / "replay").iterdir()}


def test_without_a_saved_replay_a_resume_says_so_and_fills_it_first() -> None:
    fields = {"save_replay": False, "checkpoint_freq_epochs": 1, "max_epochs": 4}
    run = train("dqn", "CartPole-v1", **fields)
    assert not (run.path / "replay").exists()
    notes = Heard()
    resume("@last", max_epochs=6, observer=notes)
    assert any("not an exact resume" in note for note in notes.notes)


def test_the_replay_is_announced_and_refused_if_it_cannot_fit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    notes = Heard()
    train("dqn", "CartPole-v1", observer=notes)
    assert any("replay: 60 transitions take 0.0 MB in memory" in note for note in notes.notes)
    monkeypatch.setattr(
        "gymnasium_solver.algos.replay_learner.available_memory_bytes", lambda: 1_000_000
    )
    with pytest.raises(ConfigError, match=r"buffer_size.*replay_dir"):
        train("dqn", "CartPole-v1", buffer_size=10_000_000)


# -- hindsight replay: determinism, refusals, success in the metrics -------------------------------


def test_the_goals_are_drawn_from_the_seed() -> None:
    algo_id, env_id, fields = "dqn", "Probe/BitFlip-v0", {**BITS, "her": {"strategy": "final"}}
    first, again, other = (
        weight_hash(train(algo_id, env_id, **{**fields, "seed": seed})) for seed in (1, 1, 2)
    )
    assert first == again != other
    without = weight_hash(train(algo_id, env_id, **{**fields, "her": False}))
    assert without != first


def test_a_run_without_goals_or_with_other_rewards_is_refused() -> None:
    with pytest.raises(EnvError, match="CartPole-v1 is not a goal environment"):
        train("dqn", "CartPole-v1", her=True)
    with pytest.raises(EnvError, match="is not known as a function of goals"):
        train("sac", "HandManipulateBlock-v1", her=True, n_envs=1)
    scaled = {"id": "RewardScale", "scale": 0.1}
    with pytest.raises(ConfigError, match=r"the reward is not what .* compute_reward gives: -0\.1"):
        train("dqn", "Probe/BitFlip-v0", her=True, env_wrappers=[scaled], **BITS)


def test_success_is_logged_and_saved() -> None:
    fields = {**BITS, "her": True, "eval_freq_epochs": 2, "eval_episodes": 10}
    run = train("dqn", "Probe/BitFlip-v0", **fields)
    rows = read_jsonl(run.metrics_path)
    assert 0 <= rows[-1]["train/roll/success"] <= 1
    values = [row["val/roll/success"] for row in rows if "val/roll/ep_rew/mean" in row]
    assert len(values) == 2
    assert all(0 <= value <= 1 for value in values)
    evals = [e for e in read_jsonl(run.events_path) if e["kind"] == "eval"]
    assert [e["success"] for e in evals if e["stage"] == "val"] == values
    test: Any = run.test
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
