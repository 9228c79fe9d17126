"""`gsolve train --dev`: what it finds in sound and in broken configs."""

from pathlib import Path
from typing import Any

import pytest
import torch

import gymnasium_solver.cli.train  # noqa: F401 (it declares the verb)
from gymnasium_solver.algos import ppo
from gymnasium_solver.cli import train as train_module
from gymnasium_solver.cli.field_flags import read_fields
from gymnasium_solver.cli.main import main
from gymnasium_solver.training import config_tests
from gymnasium_solver.training.config_tests import dev_checks
from gymnasium_solver.training.prepare import load_config


@pytest.mark.parametrize("target", ["CartPole-v1:ppo", "CartPole-v1:dqn", "Pendulum-v1:sac"])
def test_sound_configs_pass(target: str, capsys: Any, tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["train", target, "--dev"]) == 0
    out = capsys.readouterr().out
    assert "this config learns" in out
    assert "a gradient reaches all" in out
    assert not list(tmp_path.iterdir()), "it makes no run"


def problems(config: Any) -> str:
    return " | ".join(check.problem or "" for check in dev_checks(config))


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
