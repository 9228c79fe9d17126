"""Runs with a replay: exact resume, the same seed the same weights, updates by env steps."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gymnasium_solver.errors import ConfigError
from gymnasium_solver.runs.checkpoint import load_checkpoint
from tests.loop.conftest import Notes

Call = Callable[..., Any]
RAINBOW = {
    "double": True,
    "dueling": True,
    "prioritized": True,
    "n_step": 3,
    "noisy": True,
    "distributional": True,
    "v_max": 20.0,
    "n_atoms": 11,
}
CASES: dict[str, tuple[str, str, dict[str, Any]]] = {
    "dqn": ("dqn", "CartPole-v1", {}),
    "dqn polyak": ("dqn", "CartPole-v1", {"tau": 0.1, "exploration": "boltzmann"}),
    "dqn plain torch": ("dqn", "CartPole-v1", {"compile": False}),
    "dqn compiled": ("dqn", "CartPole-v1", {"compile": "native"}),
    "dqn combined": ("dqn", "CartPole-v1", {"combined_replay": True, "n_step": 2}),
    "dqn masked": ("dqn", "Probe/Masked-v0", {"double": True}),
    "dqn discrete obs": ("dqn", "FrozenLake-v1", {"n_envs": 1, "train_freq": 1}),
    "dqn normalised": (
        "dqn",
        "CartPole-v1",
        {"normalize_obs": "rolling", "normalize_reward": True, "n_step": 3},
    ),
    "dqn boundary": ("dqn", "CartPole-v1", {"env_boundary_steps": 50, "n_step": 5}),
    "dqn mapped": ("dqn", "CartPole-v1", {"replay_dir": "."}),
    "per": ("dqn", "CartPole-v1", {"prioritized": True}),
    "rainbow": ("dqn", "CartPole-v1", RAINBOW),
}


@pytest.mark.parametrize("case", CASES)
def test_a_crashed_run_resumed_equals_the_uninterrupted_one(case: str, exact_resume: Call) -> None:
    algo_id, env_id, fields = CASES[case]
    fields = {**fields, "policy_lr": "lin_0.01", "max_epochs": 7, "saves_alike": True}
    whole, resumed = exact_resume(algo_id, env_id, **fields)
    one, two = (
        [segment["sha256"] for segment in load_checkpoint(path).state["replay"]["segments"]]
        for path in (whole.checkpoints_dir / "last", resumed.checkpoints_dir / "last")
    )
    assert one == two


@pytest.mark.parametrize("case", CASES)
def test_the_seed_decides_the_weights(case: str, train: Call, weight_hash: Call) -> None:
    algo_id, env_id, fields = CASES[case]
    first, again, other = (
        weight_hash(train(algo_id, env_id, **{**fields, "seed": seed})) for seed in (1, 1, 2)
    )
    assert first == again != other


def test_resume_goes_on_from_any_checkpoint_that_is_kept(
    train: Call, resume: Call, weight_hash: Call
) -> None:
    fields = {"checkpoint_freq_epochs": 1, "max_epochs": 6, "prioritized": True}
    whole = train("dqn", "CartPole-v1", **fields)
    expected = weight_hash(whole)
    steps = sorted(int(p.name) for p in whole.checkpoints_dir.iterdir() if p.name.isdecimal())
    resumed = resume(f"{whole.id}/{steps[0]}")
    assert weight_hash(resumed) == expected


@pytest.mark.parametrize("ratio", [0.25, 1.0, 2.0])
@pytest.mark.parametrize("train_freq", [1, 7, 64])
def test_updates_for_an_env_step_are_the_same_for_any_number_of_envs(
    train_freq: int, ratio: float, train: Call
) -> None:
    counts = []
    for n_envs in (1, 3, 8):
        run = train(
            "dqn",
            "CartPole-v1",
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


def test_nothing_is_learnt_before_learning_starts(train: Call) -> None:
    fields: dict[str, Any] = {"learning_starts": 40, "train_freq": 1, "updates_per_step": 1.0}
    run = train("dqn", "CartPole-v1", n_envs=1, n_steps=50, max_env_steps=50, **fields)
    state = load_checkpoint(run.checkpoints_dir / "last").state
    assert state["agent"]["n_updates"] == 11  # after env steps 40 to 50


def test_a_checkpoint_writes_the_rows_that_are_new_and_prunes_the_old(train: Call) -> None:
    run = train("dqn", "CartPole-v1", checkpoint_freq_epochs=1, max_epochs=9, keep_checkpoints=2)
    listed = {
        segment["file"]
        for path in run.checkpoints_dir.iterdir()
        if path.name.isdecimal()
        for segment in json.loads((path / "state.json").read_text())["replay"]["segments"]
    }
    assert listed == {path.name for path in (run.path / "replay").iterdir()}


def test_without_a_saved_replay_a_resume_says_so_and_fills_it_first(
    train: Call, resume: Call
) -> None:
    fields = {"save_replay": False, "checkpoint_freq_epochs": 1, "max_epochs": 4}
    run = train("dqn", "CartPole-v1", **fields)
    assert not (run.path / "replay").exists()
    notes = Notes()
    resume("@last", max_epochs=6, observer=notes)
    assert any("not an exact resume" in note for note in notes.notes)


def test_the_replay_is_announced_and_refused_if_it_cannot_fit(
    train: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    notes = Notes()
    train("dqn", "CartPole-v1", observer=notes)
    assert any("replay: 60 transitions take 0.0 MB in memory" in note for note in notes.notes)
    monkeypatch.setattr(
        "gymnasium_solver.algos.replay_learner.available_memory_bytes", lambda: 1_000_000
    )
    with pytest.raises(ConfigError, match=r"buffer_size.*replay_dir"):
        train("dqn", "CartPole-v1", buffer_size=10_000_000)
