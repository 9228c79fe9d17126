"""`gsolve train` under `wandb agent`."""

import sys
from pathlib import Path

import pytest

import gymnasium_solver.cli.train  # noqa: F401 (it declares the verb)
from gymnasium_solver.cli.field_flags import changes_of, read_fields
from gymnasium_solver.cli.flags import Args, UsageError
from gymnasium_solver.cli.train import add_agent_parameters
from gymnasium_solver.runs.query import get_config, get_run


def under_agent(*words: str) -> Args:
    args = read_fields("train", words)
    add_agent_parameters(args)
    return args


def test_parameters_of_the_agent_are_fields(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "config-abc.yaml"
    path.write_text(
        "wandb_version: 1\npolicy_lr: {value: {start: 0.01, end: 0.0}}\nn_epochs: {value: 4}\n"
        "hidden_dims: {value: [32, 32]}\nactivation: {value: relu}\n"
    )
    monkeypatch.setenv("WANDB_SWEEP_PARAM_PATH", str(path))
    monkeypatch.setenv("WANDB_RUN_ID", "abc")
    args = under_agent("--config_id", "CartPole-v1:ppo", "--wandb_sweep", "--n-epochs", "7")
    overrides, fill = changes_of(args)
    assert overrides == {"n_epochs": 7}  # a flag wins
    assert fill["policy_lr"] == '{"start": 0.01, "end": 0.0}'
    assert fill["hidden_dims"] == "[32, 32]"
    assert (args.run_name, args.if_exists) == ("abc", "resume")
    named = under_agent("x", "--run-name", "mine")
    assert (named.run_name, named.if_exists) == ("mine", None)


def test_without_an_agent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("WANDB_SWEEP_PARAM_PATH", raising=False)
    assert under_agent("CartPole-v1:ppo").set == []
    with pytest.raises(UsageError, match="WANDB_SWEEP_PARAM_PATH is not set"):
        under_agent("CartPole-v1:ppo", "--wandb-sweep")


@pytest.mark.services
def test_the_real_agent_starts_a_trial(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """wandb's own agent writes the file, sets the variables and starts the command."""
    pytest.importorskip("wandb")
    from wandb.wandb_agent import Agent

    monkeypatch.chdir(tmp_path)
    for name in ("WANDB_RUN_ID", "WANDB_SWEEP_PARAM_PATH"):
        monkeypatch.setenv(name, "")
    monkeypatch.setenv("WANDB_SWEEP_ID", "s1")
    monkeypatch.setenv("WANDB_DIR", str(tmp_path))
    agent = object.__new__(Agent)
    agent._in_jupyter, agent._function, agent._forward_signals = False, None, False
    agent._run_processes = {}
    agent._sweep_command = [
        "${env}", sys.executable, "-m", "gymnasium_solver", "train", "--config_id",
        "CartPole-v1:ppo", "--wandb_sweep", "--max-env-steps", "600", "--test-episodes", "2",
        "--eval-episodes", "2", "--runs-dir", str(tmp_path / "runs"), "-q",
    ]  # fmt: skip
    args = {"policy_lr": {"value": 0.002}, "n_epochs": {"value": 3}}
    agent._command_run({"run_id": "r1", "program": "train.py", "args": args})
    assert agent._run_processes["r1"].wait() == 0
    assert get_run("r1", tmp_path / "runs").status == "finished"
    config = get_config("r1", tmp_path / "runs")
    assert (config["policy_lr"], config["n_epochs"]) == (0.002, 3)
