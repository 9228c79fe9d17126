"""`gsolve tune-envs`: cases, the choice, and the config it writes."""

import json
from pathlib import Path

import pytest

from gymnasium_solver.bench.tune import Case, Speed, best, cases, tuned
from gymnasium_solver.cli.main import main
from gymnasium_solver.training.prepare import load_config

CONFIG = load_config("CartPole-v1:ppo", overrides={"n_envs": 8, "n_steps": 30})


def test_only_envpool_has_threads() -> None:
    found = cases([4, 8], ["envpool", "sync"], [1, 2])
    assert [(c.engine, c.n_envs, c.threads) for c in found] == [
        ("envpool", 4, 1), ("envpool", 4, 2), ("envpool", 8, 1), ("envpool", 8, 2),
        ("sync", 4, 1), ("sync", 8, 1),
    ]  # fmt: skip


def test_the_best() -> None:
    speeds = [
        Speed(Case("sync", 8, 1), 10.0),
        Speed(Case("vector", 16, 1), 30.0),
        Speed(Case("async", 8, 1), None, "broken"),
    ]
    assert best(speeds) is speeds[1]
    assert best(speeds, 8) is speeds[0]
    assert best(speeds[2:]) is None


def test_the_written_config_keeps_the_size_of_a_rollout() -> None:
    speeds = [
        Speed(Case("vector", 16, 1), 30.0),
        Speed(Case("vector", 32, 1), 40.0),  # 240 is not a multiple of 32
        Speed(Case("sync", 8, 1), 10.0),
    ]
    found = tuned(CONFIG, speeds)
    assert (found["vectorization_mode"], found["n_envs"], found["n_steps"]) == ("vector", 16, 15)


def test_measured(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--try-envs", "2", "--engines", "sync", "vector", "--seconds", "0.05", "--json"]
    output = tmp_path / "tuned.yaml"
    assert main(["tune-envs", "CartPole-v1:ppo", *words, "--write", str(output)]) == 0
    assert load_config(str(output)).n_envs == 2
    found, _ = json.JSONDecoder().raw_decode(capsys.readouterr().out)
    assert {case["engine"] for case in found["cases"]} == {"sync", "vector"}
    assert all(case["steps_per_s"] > 100 for case in found["cases"])
    assert found["fastest"]["n_envs"] == 2
    assert found["fastest_for_config"] is None


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["CartPole-v1:ppo", "--engines", "fast"], "--engines fast: expected"),
        (
            ["CartPole-v1:ppo", "--try-envs", "0"],
            "--try-envs 0: expected a whole number",
        ),
        (["CartPole-v1:ppo", "--seconds", "x"], "--seconds x: expected a number"),
        (["CartPole-v1:ppo", "--n-env", "3"], "unknown flag '--n-env'"),
        (["a", "b"], "expected one target"),
    ],
)
def test_wrong_command_lines(
    words: list[str], text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["tune-envs", *words]) == 2
    assert text in capsys.readouterr().err
