"""`gsolve bench`: what is asked for reaches the parts, and bad input is told. `gsolve tune-envs`:
cases, the choice, and the config it writes."""

from pathlib import Path
from typing import Any

import pytest

from gymnasium_solver.bench import report
from gymnasium_solver.bench.tune import Case, Speed, best, cases, tuned
from gymnasium_solver.training.prepare import load_config
from tests.cli.conftest import Gsolve


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, ...]]:
    """What would be run."""
    calls: list[tuple[Any, ...]] = []

    def run(*args: Any, **more: Any) -> dict[str, Any]:
        calls.append((*args, more))
        return {"quick": True, "parts": {}}

    monkeypatch.setattr(report, "run", run)
    return calls


def test_flags_reach_the_parts(
    asked: list[tuple[Any, ...]], tmp_path: Path, gsolve: Gsolve
) -> None:
    flags = ["--only", "engines", "startup", "--quick", "--repeats", "2", "--name", "n"]
    flags += ["--out", str(tmp_path), "--peers-python", "py"]
    assert gsolve.json("bench", *flags) == {"quick": True, "parts": {}}
    [(parts, options, out, name, more)] = asked
    assert (parts, out, name) == (["engines", "startup"], tmp_path, "n")
    assert (options.quick, options.repeats) == (True, 2)
    assert options.peers_python == Path("py").absolute()
    assert more["command"] == "gsolve bench --quick --only engines startup --repeats 2"
    assert more["images"] == tmp_path  # nothing lands in the docs


def test_some_tasks_have_result_files_of_their_own(
    gsolve: Gsolve, asked: list[tuple[Any, ...]]
) -> None:
    gsolve("bench --only training --tasks sac dqn")
    [(_, options, _, name, more)] = asked
    assert options.chosen(["ppo", "dqn", "sac"]) == ["dqn", "sac"]
    assert name == "speed_sac_dqn", "speed.json keeps its other tasks"
    assert more["command"] == "gsolve bench --only training --tasks sac dqn --repeats 3"


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["training", "--tasks", "sak"], "none is a task of training; expected ppo, dqn, sac"),
        (["training", "--tasks", "sac", "x"], "--tasks x: unknown; expected ppo, dqn, sac"),
        (["training", "solve", "--tasks", "sac"], "none is a task of solve; expected CartPole-v1"),
        (["startup", "--tasks", "sac"], "startup; it has no tasks to choose from"),
    ],
)
def test_unknown_tasks_are_told(
    flags: list[str], said: str, tmp_path: Path, gsolve: Gsolve
) -> None:
    assert said in gsolve("bench --out", str(tmp_path), "--only", *flags, code=2)
    assert list(tmp_path.iterdir()) == []


def test_all_parts_three_times_is_what_is_measured_for_publishing(
    gsolve: Gsolve,
    asked: list[tuple[Any, ...]],
) -> None:
    gsolve("bench")
    [(parts, options, out, name, more)] = asked
    assert parts == list(report.PARTS)
    assert (options.repeats, name) == (3, "speed")
    assert out.parts[-2:] == ("benchmarks", "results")
    assert more["images"].parts[-2:] == ("docs", "images")


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["--only", "engine"], "unknown part; expected training, solve, engines"),
        (["--repeats", "0"], "expected a whole number of at least 1"),
        (["--repeat", "1"], "Did you mean --repeats"),
    ],
)
def test_bad_input_is_told(
    flags: list[str],
    said: str,
    asked: list[tuple[Any, ...]],
    gsolve: Gsolve,
) -> None:
    assert said in gsolve("bench", *flags, code=2)
    assert asked == []


# --- tune-envs


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


def test_measured(tmp_path: Path, gsolve: Gsolve) -> None:
    words = ["--try-envs", "2", "--engines", "sync", "vector", "--seconds", "0.05"]
    output = tmp_path / "tuned.yaml"
    found = gsolve.json("tune-envs CartPole-v1:ppo", *words, "--write", str(output))
    assert load_config(str(output)).n_envs == 2
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
def test_wrong_command_lines(words: list[str], text: str, gsolve: Gsolve) -> None:
    assert text in gsolve("tune-envs", *words, code=2)
