"""Sweep files: our own, W&B's in all their shapes, SLM-Lab's."""

from pathlib import Path

import pytest

from gymnasium_solver.config.yaml_file import parse_yaml
from gymnasium_solver.errors import ConfigError
from gymnasium_solver.experiments.search.files import given_params, is_sweep_file, read_sweep_file
from gymnasium_solver.experiments.search.plan import Plan, prepare, read_plan

WANDB = """\
name: cartpole
project: CartPole-v1
method: {method}
metric:
  name: train/roll/ep_rew/mean
  goal: maximize
{more}
parameters:
{parameters}
program: train.py
command:
  - ${{env}}
  - ${{interpreter}}
  - ${{program}}
  - --config_id
  - "CartPole-v1:ppo"
  - --wandb_sweep
"""


def read(tmp_path: Path, text: str, name: str = "sweep.yaml") -> tuple[Plan, list[str]]:
    path = tmp_path / name
    path.write_text(text)
    assert is_sweep_file(path)
    data, notes = read_sweep_file(path)
    return read_plan(data, path.name), notes


def wandb(tmp_path: Path, parameters: str, method: str = "bayes", more: str = "") -> Plan:
    lines = "\n".join(f"  {line}" for line in parameters.splitlines())
    return read(tmp_path, WANDB.format(parameters=lines, method=method, more=more))[0]


def test_a_wandb_file_as_it_is_written(tmp_path: Path) -> None:
    plan = wandb(
        tmp_path,
        "policy_lr:\n  distribution: log_uniform_values\n  min: 3e-5\n  max: 3e-3\n"
        "clip_range:\n  distribution: uniform\n  min: 0.05\n  max: 0.35\n"
        "n_epochs:\n  values: [5, 10, 20]\nbatch_size:\n  values: [0.25, 0.5, 1.0]",
        more="early_terminate:\n  type: hyperband\n  min_iter: 5",
    )
    assert plan.config == "CartPole-v1:ppo"
    assert plan.sampler == "auto"
    assert plan.trials is None
    assert plan.params["policy_lr"] == "log:3e-05..0.003"
    assert plan.params["batch_size"] == "choice:[0.25, 0.5, 1.0]"
    assert (plan.prune.rule, plan.prune.first, plan.prune.unit) == ("hyperband", 5.0, "rows")
    assert (plan.metric.name, plan.metric.goal) == ("train/roll/ep_rew/mean", "maximize")


@pytest.mark.parametrize(
    ("parameter", "expected"),
    [
        ("{min: 0.0005, max: 0.005}", "uniform:0.0005..0.005"),
        ("{min: 1, max: 8}", "int:1..8"),
        ("{min: 1, max: 8.0}", "uniform:1..8"),
        ("{values: [3e-5, 1e-4]}", "choice:[3e-05, 0.0001]"),
        ("{values: [[64, 64], [128, 64]]}", "choice:[[64, 64], [128, 64]]"),
        ("{values: [1, 2], probabilities: [0.3, 0.7]}", "choice:[1, 2]:[0.3, 0.7]"),
        ("{distribution: int_uniform, min: 2, max: 4}", "int:2..4"),
        ("{distribution: q_uniform, min: 0, max: 1, q: 0.25}", "uniform:0..1:0.25"),
        ("{distribution: log_uniform, min: -9.21034, max: -4.60517}", "log:0.0001"),
        ("{distribution: q_log_uniform_values, min: 1, max: 100, q: 5}", "log:1..100:5"),
        ("{distribution: inv_log_uniform_values, min: 1e-4, max: 0.1}", "log:0.0001..0.1"),
        ("{distribution: normal, mu: 0.2, sigma: 0.05}", "normal:0.2,0.05"),
        ("{mu: 0.2, sigma: 0.05}", "normal:0.2,0.05"),
        ("{distribution: q_normal, mu: 5, sigma: 1, q: 0.5}", "normal:5,1:0.5"),
        ("{distribution: log_normal, mu: -7, sigma: 1}", "lognormal:-7,1"),
    ],
)
def test_wandb_distributions(tmp_path: Path, parameter: str, expected: str) -> None:
    assert wandb(tmp_path, f"x: {parameter}").params["x"].startswith(expected)


def test_wandb_constants_and_nested_parameters(tmp_path: Path) -> None:
    plan = wandb(
        tmp_path,
        "n_steps: 512\nn_epochs: {value: 4}\nbatch_size: {values: [64]}\n"
        "policy_lr:\n  parameters:\n    start: {min: 0.001, max: 0.01}\n    end: {value: 0.0}",
        method="grid",
        more="run_cap: 7",
    )
    assert plan.set == {"n_steps": 512, "n_epochs": 4, "batch_size": 64, "policy_lr.end": 0.0}
    assert plan.params == {"policy_lr.start": "uniform:0.001..0.01"}
    assert (plan.sampler, plan.trials) == ("grid", 7)


def test_a_nested_constant_where_the_config_has_the_short_form(tmp_path: Path) -> None:
    """CartPole-v1:ppo has `clip_range: lin_0.2`."""
    nested = "clip_range:\n  parameters:\n    start: {min: 0.1, max: 0.3}\n    end: {value: 0.05}"
    plan = wandb(tmp_path, nested).replace(config="CartPole-v1:ppo")
    base = parse_yaml(prepare(plan).base, "base")
    assert base["clip_range"] == {"start": 0.2, "end": 0.05}


def test_wandb_defaults(tmp_path: Path) -> None:
    text = "method: random\nmetric: {name: val/x, target: 4}\nparameters: {a: {values: [1, 2]}}\n"
    plan, notes = read(tmp_path, text)
    assert plan.metric.goal == "minimize"
    assert plan.metric.target == 4.0
    assert any("minimised" in note for note in notes)
    text = "method: grid\nparameters: {a: {values: [1, 2]}}\nearly_terminate: {type: hyperband, "
    plan, _ = read(tmp_path, text + "max_iter: 27, s: 2}\ncommand: [python, train.py, "
                   "'Acrobot-v1:ppo', --max-env-steps, 1e5, --override, n_envs=4]\n")  # fmt: skip
    assert plan.prune.first == 3
    assert plan.config == "Acrobot-v1:ppo"
    assert plan.set == {"max_env_steps": 1e5, "n_envs": 4}


def test_names_of_the_reference_are_ours(tmp_path: Path) -> None:
    text = WANDB.format(parameters="  n_steps: {values: [64, 128]}", method="grid", more="")
    plan, notes = read(tmp_path, text.replace("CartPole-v1:ppo", "ALE-Pong-v5:objects_ppo"))
    assert plan.config == "ALE/Pong-v5:ppo_objects"
    assert "ALE-Pong-v5:objects_ppo is ALE/Pong-v5:ppo_objects here" in notes


@pytest.mark.parametrize(
    ("parameter", "message"),
    [
        ("{distribution: log_uniform, min: 1e-5, max: 1e-2}", "log_uniform_values"),
        ("{distribution: unifrom, min: 0, max: 1}", r"Did you mean uniform\?"),
        ("{min: 1}", "expected value, values, or min and max"),
        ("{values: 4}", "expected a list"),
        ("{min: a, max: 1}", "min is 'a', expected a number"),
    ],
)
def test_wrong_wandb_parameters(tmp_path: Path, parameter: str, message: str) -> None:
    with pytest.raises(ConfigError, match=f"x: .*{message}"):
        wandb(tmp_path, f"x: {parameter}")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("method: bays\nparameters: {a: {values: [1, 2]}}", "method 'bays': expected grid"),
        ("metod: grid\nparameters: {a: {values: [1, 2]}}", "Did you mean method?"),
        ("method: grid\nparameters: {}", "expected a block of parameters"),
        ("method: grid\nparameters: {a: 1}\nearly_terminate: {type: x}", "type: hyperband"),
        ("config: x\ntrails: 3", "trails: unknown key. Did you mean trials?"),
        ("config: x\nmetric: {gaol: maximize}", "metric.gaol: unknown key. Did you mean goal?"),
        ("config: x\nsampler: bayes", "sampler: got 'bayes'"),
        ("config: x\ntrials: 0", "trials"),
        ("config: x\nparams: {a: 3}", "is not a range; set a fixed value under `set:`"),
        ("config: x\nparams: {a: {lgo: [1, 2]}}", "Did you mean log?"),
        ("config: x\ncost: env_steps\nsampler: gp", "cost needs the sampler"),
        ("config: x\nprune: {rule: asha}\nseeds: 3", "use it with seeds: 1"),
    ],
)
def test_wrong_files(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(ConfigError) as error:
        read(tmp_path, text)
    assert message in str(error.value)


def test_our_own_yaml(tmp_path: Path) -> None:
    plan, _ = read(
        tmp_path,
        "config: CartPole-v1:ppo\nset: {max_env_steps: 5e4}\ntrials: 20\n"
        "params:\n  policy_lr: log:1e-5..1e-2\n  n_epochs: [4, 10]\n"
        "  clip_range: {uniform: [0.1, 0.4], step: 0.05}\n"
        "  vf_coef: {log: [0.1, 1.0], if: {n_epochs: 4}}\n"
        "  ent_coef__loguniform: [1e-5, 0.1]\n",
    )
    params = {param.name: str(param) for param in plan.space().params}
    assert params == {
        "policy_lr": "log:1e-05..0.01",
        "n_epochs": "choice:[4, 10]",
        "clip_range": "uniform:0.1..0.4:0.05",
        "vf_coef": "log:0.1..1 if n_epochs=4",
        "ent_coef": "log:1e-05..0.1",
    }


def test_slm_lab(tmp_path: Path) -> None:
    spec = """{"ppo_cartpole": {"agent": {"name": "PPO"}, "search": {
        "agent.algorithm.gamma__uniform": [0.95, 0.999],
        "agent.algorithm.lam__uniform": [0.9, 0.99],
        "agent.net.optim_spec.lr__loguniform": [1e-5, 1e-2]}}}"""
    plan, notes = read(tmp_path, spec, "spec.json")
    assert plan.params == {
        "gamma": "uniform:0.95..0.999",
        "gae_lambda": "uniform:0.9..0.99",
        "policy_lr": "log:1e-05..0.01",
    }
    assert "agent.algorithm.lam is read as gae_lambda" in notes
    nested = "search: {agent: [{algorithm: {gamma__choice: [0.9, 0.99]}}]}"
    assert read(tmp_path, nested)[0].params == {"gamma": "choice:[0.9, 0.99]"}
    with pytest.raises(ConfigError, match="is not key__distribution"):
        read(tmp_path, "search: {gamma: [0.9, 0.99]}")


def test_parameters_of_an_agent(tmp_path: Path) -> None:
    path = tmp_path / "config-abc.yaml"
    path.write_text("wandb_version: 1\npolicy_lr: {value: 3e-4}\nn_epochs: 4\n")
    assert given_params(path) == {"policy_lr": 3e-4, "n_epochs": 4}


def test_configs_are_no_sweep_files(tmp_path: Path) -> None:
    path = tmp_path / "config.yaml"
    path.write_text("env_id: CartPole-v1\nppo: {n_steps: 32}\n")
    assert not is_sweep_file(path)
    assert not is_sweep_file(tmp_path / "none.yaml")


def test_the_file_in_the_docs(tmp_path: Path) -> None:
    page = (Path(__file__).parents[2] / "docs" / "sweep.md").read_text(encoding="utf-8")
    block = page.partition("```yml\n")[2].partition("```")[0]
    plan, _ = read(tmp_path, block)
    assert plan.trials == 60
    assert len(plan.space().params) == 4
