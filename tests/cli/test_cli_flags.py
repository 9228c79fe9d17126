"""Any field is a flag and means what the same line in the YAML means."""

import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from gymnasium_solver.cli.flags import Args, UsageError, read_fields
from gymnasium_solver.cli.train import add_agent_parameters
from gymnasium_solver.config.load import config_dict
from gymnasium_solver.runs.query import get_config, get_run
from gymnasium_solver.training.prepare import load_config

CARTPOLE = "CartPole-v1:ppo"


def parse(*argv: str):
    args = read_fields("train", argv)
    return args.config_name(), args.overrides()


@pytest.mark.parametrize(
    ("argv", "overrides"),
    [
        (["--policy-lr", "1e-3"], {"policy_lr": 1e-3}),
        (["--policy_lr=1e-3"], {"policy_lr": 1e-3}),
        (["--policy-lr", "lin_0.001"], {"policy_lr": "lin_0.001"}),
        (["--policy-lr", "{start: 1e-3, end: 0}"], {"policy_lr": {"start": 1e-3, "end": 0}}),
        (["--hidden-dims", "64", "32"], {"hidden_dims": [64, 32]}),
        (["--hidden-dims", "[64, 32]"], {"hidden_dims": [64, 32]}),
        (["--early-stop-on-eval-threshold", "null"], {"early_stop_on_eval_threshold": None}),
        (["--reward-threshold", "-200"], {"reward_threshold": -200}),
        (["--normalize-obs"], {"normalize_obs": True}),
        (["--no-normalize-obs"], {"normalize_obs": False}),
        (["--normalize-obs", "static", "--seed", "3"], {"normalize_obs": "static", "seed": 3}),
        (["--env-kwargs", "a=1", "b=x"], {"env_kwargs.a": 1, "env_kwargs.b": "x"}),
        (
            ["--env-kwargs", "a=1", "--env_kwargs", "b=x=y"],
            {"env_kwargs.a": 1, "env_kwargs.b": "x=y"},
        ),
        (["--env-kwargs.state", "Level2-1"], {"env_kwargs.state": "Level2-1"}),
        (["--set", "policy_lr=1e-3", "-s", "seed=4"], {"policy_lr": 1e-3, "seed": 4}),
        (["--override", "seed=4"], {"seed": 4}),
        (["--seed", "1", "--seed", "2"], {"seed": 2}),
    ],
)
def test_flags_are_yaml_lines(argv, overrides):
    assert parse(CARTPOLE, *argv) == (CARTPOLE, overrides)
    assert parse(*argv, CARTPOLE) == (CARTPOLE, overrides)


def test_target_spellings():
    assert parse("--config_id", CARTPOLE)[0] == CARTPOLE
    assert parse("--config-id=" + CARTPOLE)[0] == CARTPOLE
    assert parse("-q", CARTPOLE)[0] == CARTPOLE
    assert parse("--n-envs", "4", "my/dir/file.yaml")[0] == "my/dir/file.yaml"
    assert parse("--n-envs", "4") == (None, {"n_envs": 4})
    with pytest.raises(UsageError, match="expected one target"):
        parse(CARTPOLE, "--config_id", "Taxi-v3:ppo")


def test_a_value_that_looks_like_a_target_stays_a_value():
    returns = ("--returns-type", "mc:rtg")
    assert parse(*returns) == (None, {"returns_type": "mc:rtg"})
    assert parse("--resume", "@last", *returns) == (None, {"returns_type": "mc:rtg"})
    assert parse(*returns, "--seed", "4", CARTPOLE) == (
        CARTPOLE,
        {"returns_type": "mc:rtg", "seed": 4},
    )
    assert parse(*returns, "mine:reinforce") == ("mine:reinforce", {"returns_type": "mc:rtg"})


def test_command_line_equals_yaml_file(tmp_path, gsolve):
    """The same values by flags and by lines of a file give the same config."""
    lines = {
        "policy_lr": "lin_0.002",
        "hidden_dims": [32, 32],
        "batch_size": 0.5,
        "early_stop_on_eval_threshold": None,
        "max_env_steps": 1e4,
        "normalize_obs": True,
        "env_kwargs": {"sutton_barto_reward": True},
    }
    base = config_dict(load_config(CARTPOLE))
    path = tmp_path / "CartPole-v1.yaml"
    path.write_text(yaml.safe_dump(base | lines))
    from_file = config_dict(load_config(str(path)))
    flags = (
        "--policy-lr lin_0.002 --hidden-dims 32 32 --batch-size 0.5 --max-env-steps 1e4 "
        "--early-stop-on-eval-threshold null --normalize-obs --env-kwargs sutton_barto_reward=true"
    )
    assert gsolve.json(f"show {CARTPOLE} {flags}") == from_file


@pytest.mark.parametrize(
    ("argv", "hint"),
    [
        (["--polcy-lr", "3"], "unknown flag '--polcy-lr'. Did you mean --policy-lr?"),
        (["--runs-dri", "x"], "Did you mean --runs-dir?"),
        (["--qiet"], "Did you mean --quiet?"),
        (["--learning-rate", "3"], "Did you mean policy_lr?"),
        (["--learning_rat", "3"], "Did you mean policy_lr?"),
        (["--some_thing", "x"], "unknown flag '--some_thing'. See gsolve train <target> --help"),
        (["--n-envs"], "--n-envs needs a value"),
        (["--no-n-envs"], "--no-n-envs needs a value"),
        (["--n-envs", "true"], "n_envs: got true, expected a whole number"),
        (["--n-envs", "4", "5"], "n_envs: got [4, 5]"),
        (["--gamma", "1.5"], "gamma: got 1.5"),
        (["--set", "nonsense"], "--set takes KEY=VALUE"),
        (["--set", "nonsense=1"], "nonsense: unknown field"),
        (["--env-kwargs", "k"], "--env-kwargs takes KEY=VALUE"),
        (["--env-kwargs", "k=None"], "write k=null"),
        (["-x"], "unknown flag '-x'"),
        (["--resume"], "--resume needs a value"),
        (["--quiet=yes"], "takes no value"),
        (["--resume", "@last"], "remove 'CartPole-v1:ppo'"),
        (["--epoch", "@best"], "--epoch requires --resume"),
    ],
)
def test_wrong_flags_exit_2_and_say_what_is_right(argv, hint, gsolve):
    assert hint in gsolve("train", CARTPOLE, *argv, code=2)


@pytest.mark.parametrize(
    ("target", "hint"),
    [
        ("CartPole-v1-ablations", "CartPole-v1-ablations:rainbow"),
        ("CartPol-v1:ppo", "CartPole-v1:ppo"),
        ("nowhere/file.yaml", "no config file nowhere/file.yaml"),
    ],
)
def test_wrong_targets_exit_2(target, hint, gsolve):
    assert hint in gsolve("train", target, code=2)


@pytest.mark.parametrize(
    ("words", "target", "fields"),
    [
        (["--env-id", "CartPole-v1", "--algo-id", "ppo"], "CartPole-v1", ["algo_id"]),
        (["--env-id", "Acrobot-v1", CARTPOLE], CARTPOLE, ["env_id"]),
        (["--env-id", "Acrobot-v1", "--n-envs", "4", CARTPOLE], CARTPOLE, ["env_id", "n_envs"]),
    ],
)
def test_the_environment_alone_names_the_target(words, target, fields):
    args = read_fields("train", words)
    assert (args.words, sorted(args.fields)) == ([target], fields)


def test_no_target_is_told(gsolve):
    for verb in ("train", "show"):
        assert "no target given" in gsolve(verb, code=2)


def test_placeholders_are_filled_by_set(tmp_path, gsolve):
    path = tmp_path / "generic.yaml"
    path.write_text("env_id: ${env}\nppo: {policy_lr: ${lr}}\n")
    shown = gsolve.json("show", str(path), "-s", "env=Acrobot-v1", "-s", "lr=2e-3")
    assert (shown["env_id"], shown["policy_lr"]) == ("Acrobot-v1", 2e-3)
    assert "--set lr=VALUE" in gsolve("show", str(path), "-s", "env=Acrobot-v1", code=2)


def test_help_of_a_target_shows_every_field_with_its_value_here(gsolve):
    text = gsolve("train", CARTPOLE, "--policy-lr", "0.123", "--help")
    config = load_config(CARTPOLE)
    for name in type(config).model_fields:
        assert f"--{name.replace('_', '-')} " in text
    for title in ("identity", "rollout and budget", "environment", "network", "optimisation"):
        assert f"\n{title}\n" in text
    lines = {line.split()[0]: line for line in text.splitlines() if line.startswith("  --")}
    assert "* 0.123" in lines["--policy-lr"]  # not the default: marked
    assert "* " not in lines["--adam-eps"]
    assert "Learning rate." in lines["--policy-lr"]


def test_show_is_yaml_that_loads_as_the_same_config(tmp_path, gsolve):
    path = tmp_path / "mine.yaml"
    path.write_text(gsolve("show", CARTPOLE, "--policy-lr", "lin_0.002"))
    assert load_config(str(path)) == load_config(CARTPOLE, overrides={"policy_lr": "lin_0.002"})
    assert load_config(str(path)).project_id == "CartPole-v1"


def test_list_envs_of_the_reference_lists(gsolve):
    text = gsolve("train --list-envs cartpole")
    assert CARTPOLE in text
    assert "Taxi" not in text


# --- under `wandb agent`


def under_agent(*words: str) -> Args:
    args = read_fields("train", words)
    add_agent_parameters(args)
    return args


def test_parameters_of_the_agent_are_fields(tmp_path: Path, monkeypatch: Any) -> None:
    path = tmp_path / "config-abc.yaml"
    path.write_text(
        "wandb_version: 1\npolicy_lr: {value: {start: 0.01, end: 0.0}}\nn_epochs: {value: 4}\n"
        "hidden_dims: {value: [32, 32]}\nactivation: {value: relu}\n"
    )
    monkeypatch.setenv("WANDB_SWEEP_PARAM_PATH", str(path))
    monkeypatch.setenv("WANDB_RUN_ID", "abc")
    args = under_agent("--config_id", "CartPole-v1:ppo", "--wandb_sweep", "--n-epochs", "7")
    overrides, fill = args.changes()
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
