"""Repeating a run: identical, the same score elsewhere, or different."""

import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gymnasium_solver.backends.local import gsolve
from gymnasium_solver.cli.main import main
from gymnasium_solver.errors import RunError
from gymnasium_solver.experiments.repro import (
    DIFFERENT,
    IDENTICAL,
    SAME_SCORE,
    check_repeatable,
    judge,
    prediction_interval,
    repetition,
)
from gymnasium_solver.runs.checkpoint import save_checkpoint
from gymnasium_solver.runs.run import Run
from tests.experiments.fake_runs import finished


def make(root: Path, name: str, score: float, weights: float, **meta: Any) -> Run:
    test = {"mean": score, "stderr": 1.0, "episodes": 100, "greedy": True}
    run = finished(root, name, score, int(score), test=test, env_steps=100, **meta)
    tensors = {"model": {"w": np.full(3, weights, dtype=np.float32)}}
    save_checkpoint(run.checkpoints_dir, 100, tensors, {}, {"score": score})
    return run


def test_identical_weights_pass(tmp_path: Path) -> None:
    found = judge(make(tmp_path, "a", 400, 1.0), make(tmp_path, "b", 400, 1.0))
    assert (found.verdict, found.passed, found.differed) == (IDENTICAL, True, {})


def test_other_weights_on_the_same_machine_fail(tmp_path: Path) -> None:
    found = judge(make(tmp_path, "a", 400, 1.0), make(tmp_path, "b", 400, 2.0))
    assert (found.verdict, found.passed) == (DIFFERENT, False)
    assert "other weights on the same kind of machine" in found.text


@pytest.mark.parametrize(("score", "word"), [(401.0, SAME_SCORE), (300.0, DIFFERENT)])
def test_elsewhere_the_score_decides(tmp_path: Path, score: float, word: str) -> None:
    other = {"versions": {"torch": "9.9"}}
    found = judge(make(tmp_path, "a", 400, 1), make(tmp_path, "b", score, 2, **other))
    assert (found.verdict, found.n_seeds) == (word, 1)
    assert found.differed["torch"][1] == "9.9"


def test_recorded_seeds_give_the_interval(tmp_path: Path) -> None:
    run = make(tmp_path, "a", 400, 1.0)
    for i, score in enumerate((350.0, 450.0)):
        make(tmp_path, f"seed{i}", score, 5.0)
    found = judge(run, make(tmp_path, "a-repro", 330, 2.0, versions={"torch": "9"}))
    assert (found.verdict, found.n_seeds) == (SAME_SCORE, 3)


def test_prediction_interval_covers_a_new_seed() -> None:
    rng = np.random.default_rng(0)
    hits = 0
    for _ in range(2000):
        *known, new = rng.normal(size=6)
        low, high = prediction_interval([float(x) for x in known])
        hits += low <= new <= high
    assert 0.93 <= hits / 2000 <= 0.97


def test_a_run_that_is_not_finished_is_refused(tmp_path: Path) -> None:
    run = make(tmp_path, "a", 400, 1.0)
    run.update_meta(status="interrupted")
    with pytest.raises(RunError, match="not finished"):
        check_repeatable(run)


def test_changes_during_training_are_told(tmp_path: Path) -> None:
    run = make(tmp_path, "a", 400, 1.0)
    run.log_event("config", env_steps=5, changed={"policy_lr": 0.1})
    assert "changed during training" in check_repeatable(run)[0]


def test_the_folder_of_a_repetition(tmp_path: Path) -> None:
    run = make(tmp_path, "a", 400, 1.0)
    task = repetition(run, tmp_path)
    assert task.folder == tmp_path / "a-repro"
    assert task.words[-2:] == ("--seed", "400")
    make(tmp_path, "a-repro", 400, 1.0)
    assert repetition(run, tmp_path).folder == tmp_path / "a-repro-2"


def test_the_verb_compares_two_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name, weights in (("aa", 1.0), ("bb", 2.0), ("cc", 1.0)):
        make(tmp_path, name, 400, weights)
    where = ["--runs-dir", str(tmp_path)]
    assert main(["repro", "aa", "--against", "cc", *where]) == 0
    assert "PASS  identical weights" in capsys.readouterr().out
    assert main(["repro", "aa", "--against", "bb", *where]) == 1
    assert "FAIL" in capsys.readouterr().out


@pytest.mark.services
def test_a_real_run_is_repeated_bit_for_bit(tmp_path: Path) -> None:
    where = ["--runs-dir", str(tmp_path)]
    words = ["CartPole-v1:ppo", "--max-env-steps", "3000", "--seed", "3", "--run-name", "a", "-q"]
    subprocess.run(gsolve("train", *words, *where), check=True, timeout=300)
    done = subprocess.run(gsolve("repro", "a", *where), capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "PASS  identical weights after 3,000 env steps" in done.stdout
