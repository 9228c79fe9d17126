"""Without torch, Gymnasium and EnvPool: verbs that read work, the others say what to install."""

import json
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from tests.share.kinds import train_kind

ROOT = Path(__file__).parents[2]
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


def run_blocked(argvs: list[list[str]], root: Path) -> list[tuple[int, str, str]]:
    command = [sys.executable, "-c", PROGRAM, ",".join(BLOCKED), json.dumps(argvs)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found: list[tuple[int, str, str]] = json.loads(done.stdout.splitlines()[-1])
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
    ]
    training = [
        ["train", "CartPole-v1:ppo", *at],
        ["eval", run.id, *at],
        ["export", run.id, *at],
        ["video", run.id, *at],
        ["show", "CartPole-v1:ppo"],
    ]
    *found, python = run_blocked(reading + training, tmp_path)
    for argv, (code, _, err) in zip(reading, found, strict=False):
        assert code == 0, (argv, err)
    for argv, (code, _, err) in zip(training, found[len(reading) :], strict=True):
        assert code == 2, argv
        lines = err.strip().splitlines()
        assert len(lines) == 1, (argv, err)
        assert "pip install 'gymnasium-solver[train]'" in lines[0]
    assert "gymnasium-solver[train]" in python[1]


def test_the_base_package_needs_none_of_them() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"]

    def names(requirements: list[str]) -> set[str]:
        cut = (r.split(";")[0].split("[")[0] for r in requirements)
        return {"".join(c for c in r if c.isalnum() or c in "-_").rstrip("0123456789") for r in cut}

    assert not names(project["dependencies"]) & set(BLOCKED)
    assert names(extras["train"]) == set(BLOCKED)
    for extra in ("atari", "mujoco", "vizdoom", "retro", "box2d", "play", "onnx", "minari", "jax"):
        assert "gymnasium-solver[train]" in extras[extra], extra
    assert any("train" in requirement for requirement in extras["dev"])


@pytest.mark.parametrize("package", ["ui", "mcp", "hub", "wandb", "sweep"])
def test_light_extras_stay_light(package: str) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert not any("[train" in r for r in project["optional-dependencies"][package])
