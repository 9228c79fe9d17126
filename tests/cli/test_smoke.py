"""`gsolve smoke`: passes, failures, skips, crashes and hangs, each told apart."""

import json
import signal
from pathlib import Path
from typing import Any

import pytest

from gymnasium_solver.backends.isolated import run_isolated
from gymnasium_solver.cli.main import main
from gymnasium_solver.errors import GsolveError
from gymnasium_solver.training import config_tests


def test_a_pass_a_failure_and_a_skip(tmp_path: Path, monkeypatch: Any, capsys: Any) -> None:
    monkeypatch.chdir(tmp_path)
    Path("configs").mkdir()
    base = "description: smoketest\nppo: {n_steps: 32, batch_size: 8}\n"
    Path("configs/Good.yaml").write_text(f"env_id: CartPole-v1\n{base}")
    Path("configs/Bad.yaml").write_text(f"env_id: CartPole-v9\n{base}")
    Path("configs/Misspelt.yaml").write_text(f"env_id: CartPole-v1\nclip_rang: 1\n{base}")
    assert main(["smoke", "smoketest", "--json"]) == 1
    told = json.loads(capsys.readouterr().out)
    assert told["counts"] == {"pass": 1, "skip": 0, "fail": 2}
    by_name = {result["name"]: result for result in told["results"]}
    assert by_name["Good:ppo"]["engine"] == "vector"
    assert by_name["Bad:ppo"]["reason"].startswith("random: Unknown environment 'CartPole-v9'")
    assert "clip_rang: unknown field" in by_name["Misspelt:ppo"]["reason"]
    assert not Path("runs").exists(), "it leaves nothing behind"


def test_the_table_and_its_exit_code(capsys: Any) -> None:
    assert main(["smoke", "Bandit-v0:reinforce", "--steps", "5"]) == 0
    text = capsys.readouterr().out
    assert "✓ pass Bandit-v0:reinforce" in text
    assert text.endswith("1 passed, 0 skipped, 0 failed\n")
    assert main(["smoke", "nothing is like this"]) == 1
    assert main(["smoke", "--limit", "0"]) == 2


def test_an_absent_package_is_a_skip(monkeypatch: pytest.MonkeyPatch) -> None:
    def absent(*_: Any) -> None:
        raise GsolveError('X is an extra: pip install "gymnasium-solver[x]"')

    monkeypatch.setattr(config_tests, "env_from_config", absent)
    result = config_tests.smoke("CartPole-v1:ppo")
    assert result["status"] == "skip"
    assert "gymnasium-solver[x]" in result["reason"]


def test_a_bug_is_a_failure_with_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: Any, **__: Any) -> None:
        raise ZeroDivisionError("oh")

    monkeypatch.setattr("gymnasium_solver.training.loop.train", broken)
    result = config_tests.smoke({"name": "CartPole-v1:ppo", "steps": 3})
    assert (result["status"], result["reason"]) == ("fail", "train: ZeroDivisionError: oh")


def test_a_crash_a_hang_and_an_error_cost_one_job_each(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parent))
    items = ["a", "crash", "b", "exit", "raise", "hang", "c"]
    outcomes = {o.item: o for o in run_isolated("worker_jobs:job", items, timeout_s=3)}
    assert {o.item: o.value for o in outcomes.values() if o.value} == {"a": "A", "b": "B", "c": "C"}
    assert outcomes["crash"].error == f"the process was killed by signal {int(signal.SIGSEGV)}"
    assert outcomes["exit"].error == "the process exited with 3"
    assert outcomes["raise"].error == "RuntimeError: first line"
    assert outcomes["hang"].error == "took longer than 3 s"


def test_two_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parent))
    found = {o.item: o.value for o in run_isolated("worker_jobs:job", ["a", "b", "c"], jobs=2)}
    assert found == {"a": "A", "b": "B", "c": "C"}
