"""Without torch, Gymnasium and EnvPool: verbs that read work, the others say what to install."""

import json
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from gymnasium_solver.algos import ALGOS, algo_class
from gymnasium_solver.config.load import config_dict
from gymnasium_solver.registry import config_class
from gymnasium_solver.training.prepare import load_config
from tests.share.kinds import train_kind

ROOT = Path(__file__).parents[2]
NEEDS = ("--resources", "cpus=1 memory=2 gpus=0 hours=1")
BLOCKED = ("torch", "envpool", "gymnasium", "threadpoolctl")
# In a process in which these packages cannot be imported: (exit code, output, error) of each verb.
PROGRAM = """
import contextlib, io, json, sys
for name in sys.argv[1].split(","): sys.modules[name] = None
from gymnasium_solver.cli.main import main
found = []
for argv in json.loads(sys.argv[2]):
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = main(argv)
    found.append((code, out.getvalue(), err.getvalue()))
import gymnasium_solver as gs
try: gs.train
except ImportError as error: found.append((0, str(error), ""))
print(json.dumps(found))
"""


def output_of(program: str, *args: str) -> str:
    command = [sys.executable, "-c", program, ",".join(BLOCKED), *args]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def run_blocked(argvs: list[list[str]]) -> list[tuple[int, str, str]]:
    found: list[tuple[int, str, str]] = json.loads(
        output_of(PROGRAM, json.dumps(argvs)).splitlines()[-1]
    )
    return found


def test_what_reads_works_and_what_trains_says_what_is_missing(tmp_path: Path) -> None:
    run = train_kind("ppo-discrete", tmp_path)
    other = train_kind("ppo-discrete", tmp_path, seed=5)
    at = ["--runs-dir", str(tmp_path)]
    reading = [
        ["--help"],
        ["list", "cartpole"],
        ["envs", "cartpole"],
        ["baselines"],
        ["metrics"],
        ["runs", *at, "--json"],
        ["run", run.id, *at, "--json"],
        ["compare", run.id, other.id, *at],
        ["plot", run.id, "-o", str(tmp_path / "x.png"), *at],
        ["report", run.id, "-o", str(tmp_path / "x.html"), *at],
        ["tag", run.id, "kept", *at],
        ["doctor", "run", run.id, *at],
        ["doctor"],
        ["track", run.id, "--to", "tensorboard", *at],
        ["publish", run.id, "--repo", "ann/x", "--dry-run", "--no-video", *at],
        ["show", "CartPole-v1:ppo", "--json"],
        ["show", "CartPole-v1:ppo_rewardshaped"],
        ["show", "ALE/Pong-v5:ppo", "--policy-lr", "lin_1e-3"],
        ["schema"],
        ["train", "CartPole-v1:ppo", "--help"],
        ["train", "CartPole-v1:ppo", "--seeds", "2", "--backend", "dstack", *NEEDS, *at],
        ["experiments", *at],
    ]
    training = [
        ["train", "CartPole-v1:ppo", *at],
        ["eval", run.id, *at],
        ["export", run.id, *at],
        ["video", run.id, *at],
        ["train", "CartPole-v1:ppo", "--seeds", "2", *at],
    ]
    *found, python = run_blocked(reading + training)
    for argv, (code, _, err) in zip(reading, found, strict=False):
        assert code == 0, (argv, err)
    for argv, (code, _, err) in zip(training, found[len(reading) :], strict=True):
        assert code == 2, argv
        lines = err.strip().splitlines()
        assert len(lines) == 1, (argv, err)
        assert "pip install 'gymnasium-solver[train]'" in lines[0]
    assert "gymnasium-solver[train]" in python[1]
    shown = next(out for argv, (_, out, _) in zip(reading, found, strict=False) if "show" in argv)
    assert json.loads(shown) == config_dict(load_config("CartPole-v1:ppo"))


@pytest.mark.slow
def test_wrong_fields_are_refused_and_needs_must_be_given(tmp_path: Path) -> None:
    at = ["--runs-dir", str(tmp_path)]
    *found, _ = run_blocked(
        [
            ["show", "CartPole-v1:ppo", "--gamma", "3"],
            ["show", "CartPole-v1:ppo", "--clip-rnge", "0.2"],
            ["train", "CartPole-v1:ppo", "--seeds", "2", "--backend", "dstack", *at],
        ]
    )
    assert [code for code, _, _ in found] == [2, 2, 2]
    assert "gamma: got 3" in found[0][2]
    assert "--clip-range" in found[1][2]
    assert "--resources" in found[2][2]


CLASSES = """
import sys
from gymnasium_solver.registry import ALGOS, config_class
names = {a: config_class(a).__module__ for a in ALGOS}
print(names, *(m for m in sys.argv[1].split(",") if m in sys.modules))
"""
SHIPPED = """
import json, sys
for name in sys.argv[1].split(","): sys.modules[name] = None
from gymnasium_solver.config.find import find_configs
from gymnasium_solver.config.load import config_dict
from gymnasium_solver.training.prepare import load_config
names = [e.name for e in find_configs() if "<" not in e.env_id][:: int(sys.argv[2])]
print(json.dumps({n: config_dict(load_config(n)) for n in names}))
"""


def test_config_classes_are_those_of_the_agents_and_import_no_torch() -> None:
    for algo_id in ALGOS:
        assert config_class(algo_id) is algo_class(algo_id).Config
    modules = {algo_id: config_class(algo_id).__module__ for algo_id in ALGOS}
    assert output_of(CLASSES) == str(modules)  # followed by the heavy modules it imported


def test_configs_are_the_same_without_torch() -> None:
    """Shipped configs, resolved."""
    configs = json.loads(output_of(SHIPPED, "3"))
    assert len(configs) > 30
    for name, fields in configs.items():
        assert fields == json.loads(json.dumps(config_dict(load_config(name)))), name


def test_the_base_package_needs_none_of_them() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"]

    def names(requirements: list[str]) -> set[str]:
        cut = (r.split(";")[0].split("[")[0] for r in requirements)
        return {"".join(c for c in r if c.isalnum() or c in "-_").rstrip("0123456789") for r in cut}

    assert not names(project["dependencies"]) & set(BLOCKED)
    assert names(extras["train"]) == {*BLOCKED, "greenlet"}
    for extra in ("atari", "mujoco", "vizdoom", "retro", "box2d", "play", "onnx", "minari", "jax"):
        assert "gymnasium-solver[train]" in extras[extra], extra
    assert any("train" in requirement for requirement in extras["dev"])


@pytest.mark.parametrize("package", ["ui", "mcp", "hub", "wandb", "sweep"])
def test_light_extras_stay_light(package: str) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert not any("[train" in r for r in project["optional-dependencies"][package])
