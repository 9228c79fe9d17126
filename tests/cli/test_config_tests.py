"""Configs that are tried: `gsolve smoke` tells passes, failures, skips, crashes and hangs apart;
`gsolve train --dev` finds what is broken."""

import signal
from pathlib import Path
from typing import Any

import pytest
import torch

from gymnasium_solver.algos import ppo
from gymnasium_solver.backends.isolated import run_isolated
from gymnasium_solver.cli import train as train_module
from gymnasium_solver.cli.flags import read_fields
from gymnasium_solver.errors import GsolveError
from gymnasium_solver.training import config_tests
from gymnasium_solver.training.prepare import load_config
from tests.cli.conftest import Gsolve


def test_a_pass_a_failure_and_a_skip(tmp_path: Path, monkeypatch: Any, gsolve: Gsolve) -> None:
    monkeypatch.chdir(tmp_path)
    Path("configs").mkdir()
    base = "description: smoketest\nppo: {n_steps: 32, batch_size: 8}\n"
    Path("configs/Good.yaml").write_text(f"env_id: CartPole-v1\n{base}")
    Path("configs/Bad.yaml").write_text(f"env_id: CartPole-v9\n{base}")
    Path("configs/Misspelt.yaml").write_text(f"env_id: CartPole-v1\nclip_rang: 1\n{base}")
    told = gsolve.json("smoke smoketest", code=1)
    assert told["counts"] == {"pass": 1, "skip": 0, "fail": 2}
    by_name = {result["name"]: result for result in told["results"]}
    assert by_name["Good:ppo"]["engine"] == "vector"
    assert by_name["Bad:ppo"]["reason"].startswith("random: Unknown environment 'CartPole-v9'")
    assert "clip_rang: unknown field" in by_name["Misspelt:ppo"]["reason"]
    assert not Path("runs").exists(), "it leaves nothing behind"


def test_the_table_and_its_exit_code(gsolve: Gsolve) -> None:
    text = gsolve("smoke Bandit-v0:reinforce --steps 5")
    assert "✓ pass Bandit-v0:reinforce" in text
    assert text.endswith("1 passed, 0 skipped, 0 failed\n")
    gsolve("smoke", "nothing is like this", code=1)
    gsolve("smoke --limit 0", code=2)


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


# --- gsolve train --dev


@pytest.mark.parametrize("target", ["CartPole-v1:ppo", "CartPole-v1:dqn", "Pendulum-v1:sac"])
def test_sound_configs_pass(target: str, gsolve: Gsolve, tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.chdir(tmp_path)
    out = gsolve("train", target, "--dev")
    assert "this config learns" in out
    assert "a gradient reaches all" in out
    assert not list(tmp_path.iterdir()), "it makes no run"


@pytest.mark.parametrize("target", ["Taxi-v3:mbie", "CartPole-v1:random"])
def test_without_gradients_the_environment_and_the_metrics_are_looked_at(
    target: str, gsolve: Gsolve
) -> None:
    out = gsolve("train", target, "--dev")
    assert "metrics are finite; there are no gradients" in out
    assert "a gradient reaches" not in out


def problems(config: Any) -> str:
    return " | ".join(check.problem or "" for check in config_tests.dev_checks(config))


def test_a_part_without_a_gradient_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_value_loss(*args: Any, **options: Any) -> Any:
        terms = original(*args, **options)
        return terms._replace(total=terms.policy + 0.0 * terms.value)

    original = ppo.ppo_loss
    monkeypatch.setattr(ppo, "ppo_loss", no_value_loss)
    found = problems(load_config("CartPole-v1:ppo"))
    assert "no gradient reaches policy.critic_torso.0.weight" in found
    assert "unchanged" in found


def test_a_loss_that_does_not_fall_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    descent = config_tests._descent_check
    monkeypatch.setattr(
        config_tests,
        "_descent_check",
        lambda agent, name, given, rate: descent(agent, name, given, -rate),
    )
    found = problems(load_config("CartPole-v1:ppo"))
    assert "the loss of policy does not fall on one fixed batch" in found


def test_a_loss_that_is_not_finite_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*args: Any, **options: Any) -> Any:
        terms = original(*args, **options)
        return terms._replace(total=terms.total * torch.nan)

    original = ppo.ppo_loss
    monkeypatch.setattr(ppo, "ppo_loss", broken)
    assert "not finite" in problems(load_config("CartPole-v1:ppo"))


def test_a_debugger_means_one_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    config = load_config("CartPole-v1:ppo")
    nothing = read_fields("train", ["CartPole-v1:ppo"])
    monkeypatch.setattr(train_module.sys, "gettrace", lambda: None)
    assert train_module.debuggable(nothing, config) is config
    monkeypatch.setattr(train_module.sys, "gettrace", lambda: print)
    seen = train_module.debuggable(nothing, config)
    assert (seen.n_envs, seen.vectorization_mode) == (1, "sync")
    asked = read_fields("train", ["CartPole-v1:ppo", "--n-envs", "3"])
    assert train_module.debuggable(asked, config) is config
