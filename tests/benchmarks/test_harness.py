"""The benchmark harness: statistics by hand, tables from records, and failures that are told."""

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from benchmarks import learning
from gymnasium_solver.bench import harness

RESULTS = sorted((harness.ROOT / "benchmarks/results").glob("*.json"))


def test_spread_tells_median_and_range() -> None:
    assert harness.spread([1500.0, 1700.0, 1600.0]) == "1,600 (1,500–1,700)"
    assert harness.spread([2.25], 1) == "2.2"


def test_measured_processes_keep_their_bytecode_and_choose_their_threads(monkeypatch: Any) -> None:
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    monkeypatch.setenv("OMP_NUM_THREADS", "7")
    code = "import os, sys; print(sys.dont_write_bytecode, os.environ.get('OMP_NUM_THREADS'))"
    assert harness.timed([sys.executable, "-c", code]).stdout == "False None\n"
    assert harness.timed([sys.executable, "-c", code], n_threads=1).stdout == "False 1\n"


def test_a_failure_tells_what_it_said_and_names_no_folder() -> None:
    with pytest.raises(harness.FailedProcess, match="exit code 1 ") as told:
        harness.timed([sys.executable, "-c", f"raise OSError({__file__!r})"])
    assert "test_harness.py" in str(told.value)
    assert str(harness.ROOT) not in str(told.value)
    assert str(Path(sys.executable).parent) not in str(told.value)


def test_meter_tells_others_from_our_own_work() -> None:
    meter = harness.Meter()
    harness.timed([sys.executable, "-c", "sum(range(5_000_000))"])
    wall_s, others = meter.read()
    assert wall_s > 0
    assert others >= 0


def summary(test_mean: float | None) -> dict[str, Any]:
    """As `gsolve run RUN --json` prints it: two validations and a test, where there is one."""
    event = {"stage": "val", "greedy": True, "episodes": 20}
    evals = [
        event | {"env_steps": s, "mean": m} for s, m in ((100, 90.0), (200, 480.0), (300, 470.0))
    ]
    test = {"mean": test_mean, "stderr": 1.0, "episodes": 100, "greedy": True}
    verdict: dict[str, Any] = {"test": None, "solved": False}
    if test_mean is not None:
        verdict = {"test": test, "solved": test_mean >= 475.0}
    best = {"score": 480.0, "env_steps": 200, "epoch": 2}
    counts = {"env_steps": 300, "threshold": 475.0, "stop_reason": "max_env_steps"}
    relative = {"score": 1.01, "random": 22.0, "target": 475.0}
    return counts | verdict | {"best": best, "evals": evals, "normalized": relative}


def test_a_seed_is_scored_and_judged_by_its_held_out_test() -> None:
    found = learning.outcome(summary(485.0))
    assert (found["score"], found["solved"], found["solved_env_steps"]) == (485.0, True, 200)
    short = learning.outcome(summary(471.3))  # though a validation reached 480
    assert (short["score"], short["solved"]) == (471.3, False)
    assert not learning.is_solved(short)
    assert learning.outcome(summary(None))["score"] is None


def test_header_names_no_host_and_no_path() -> None:
    text = json.dumps(harness.header("make bench"))
    assert not re.search(r'"/|[a-z]:\\\\|hostname', text, re.IGNORECASE)


@pytest.mark.parametrize("path", RESULTS, ids=lambda path: path.stem)
def test_published_results_name_no_path_and_have_their_table(path: Path) -> None:
    assert not re.search(r"(^|[\s\"'=])/[a-z]+/", path.read_text())
    assert path.with_suffix(".md").exists()
    assert not json.loads(path.read_text()).get("quick")


def test_a_pass_is_resumed_from_the_same_command_and_commit_only(tmp_path: Path) -> None:
    def header(commit: str, command: str = "python -m benchmarks.x") -> dict[str, Any]:
        result = harness.header(command) | {"tried": [1, 2]}
        result["versions"]["commit"] = commit
        return result

    assert harness.earlier(tmp_path, "x", header("abc1234")) is None
    harness.write(tmp_path, "x", header("abc1234"), "")
    found = harness.earlier(tmp_path, "x", header("abc1234"))
    assert found is not None
    assert found["tried"] == [1, 2]
    assert harness.earlier(tmp_path, "x", header("def5678")) is None
    assert harness.earlier(tmp_path, "x", header("abc1234", "python -m benchmarks.x --all")) is None
    harness.write(tmp_path, "x", header("abc1234+changes"), "")
    assert harness.earlier(tmp_path, "x", header("abc1234+changes")) is None


def test_results_of_an_earlier_part_are_no_change_of_the_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def git(*words: str) -> None:
        identity = ["-c", "user.name=a", "-c", "user.email=a@b"]
        subprocess.run(["git", *identity, *words], cwd=tmp_path, check=True, capture_output=True)

    code, result = tmp_path / "code.py", tmp_path / "benchmarks/results/speed.json"
    result.parent.mkdir(parents=True)
    code.write_text("1")
    result.write_text("1")
    git("init", "-q")
    git("add", "-A")
    git("commit", "-qm", "first")
    monkeypatch.setattr(harness, "ROOT", tmp_path)
    monkeypatch.setattr(harness, "IN_CHECKOUT", True)
    result.write_text("2")
    clean = harness.versions()["commit"]
    assert clean is not None
    assert not clean.endswith("+changes")
    code.write_text("2")
    assert harness.versions()["commit"] == f"{clean}+changes"
