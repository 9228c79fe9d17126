"""The door: help, version, verbs, exit codes; and that nothing heavy is imported for them."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import gymnasium_solver
from gymnasium_solver.cli import flags
from gymnasium_solver.cli import main as cli
from gymnasium_solver.errors import ConfigError, DivergedError

HEAVY = ("torch", "gymnasium", "envpool", "numpy", "pydantic", "rich", "matplotlib", "yaml")
NOT_FOR_TRAINING = (
    "torch._dynamo", "torch._inductor", "sympy", "numpy.polynomial", "scipy",
    "pandas", "matplotlib", "PIL", "pygame", "imageio", "envpool", "mujoco", "optuna", "starlette",
    "ray", "wandb", "mcp", "gymnasium_solver.media", "gymnasium_solver.serve",
    "gymnasium_solver.share", "gymnasium_solver.experiments", "gymnasium_solver.backends",
)  # fmt: skip


def modules_after(*argv: str, env: dict[str, str] | None = None) -> set[str]:
    """Names of the modules a fresh process has loaded after running this command."""
    code = (
        "import sys; from gymnasium_solver.cli.main import main; "
        f"main({list(argv)!r}); print('MODULES', *sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env=env
    )
    return set(done.stdout.rpartition("MODULES ")[2].split())


@pytest.mark.parametrize("argv", [["--help"], ["--version"], ["train", "--help"], ["trian"]])
def test_help_imports_nothing_heavy(argv):
    assert modules_after(*argv).isdisjoint(HEAVY)


def test_listing_needs_neither_torch_nor_environments(tmp_path):
    env = os.environ | {"GSOLVE_RUNS": str(tmp_path)}
    for verb in ("list", "runs"):
        assert modules_after(verb, env=env).isdisjoint({"torch", "gymnasium", "envpool", "numpy"})


def test_a_plain_training_imports_only_what_it_needs(tmp_path):
    """Each of these takes 10 ms to a second, at the start of every training."""
    config = ("train", "CartPole-v1:fast", "-q", "--runs-dir", str(tmp_path))
    loaded = modules_after(*config, "--max-env-steps", "1024", "--compile", "numpy")
    assert {"torch", "gymnasium", "numpy"} <= loaded
    assert loaded & set(NOT_FOR_TRAINING) == set()


def test_importing_changes_nothing_in_the_process():
    """No environment variables, import hooks or collector settings: those are the user's."""
    code = """
import gc, os, sys, gymnasium, threadpoolctl, torch
before = dict(os.environ), list(sys.meta_path), gc.isenabled(), gc.get_freeze_count()
import gymnasium_solver.cli.main, gymnasium_solver.training.loop
after = dict(os.environ), list(sys.meta_path), gc.isenabled(), gc.get_freeze_count()
assert before[0] == after[0], set(after[0].items()) ^ set(before[0].items())
ours = [finder for finder in after[1] if "gymnasium_solver" in repr(finder)]
assert not ours and before[2:] == after[2:]
"""
    subprocess.run([sys.executable, "-c", code], check=True)


def test_the_command_rarely_looks_for_garbage():
    code = """
import atexit, gc, sys, types
import gymnasium_solver.cli.main as cli
sys.modules["torch"] = types.ModuleType("torch")  # a command that does not need it is not frozen
atexit.register(lambda: print(gc.get_freeze_count() > 1_000))
cli.main = lambda: print(gc.get_threshold()[0] == cli.OBJECTS_BEFORE_GARBAGE, gc.isenabled())
cli.entry()
"""
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout.split() == ["True", "True", "True"]


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, {"ONEDNN_JIT_PROFILE": "0", "GOMP_SPINCOUNT": "300"}),
        ({"ONEDNN_JIT_PROFILE": "6"}, {"ONEDNN_JIT_PROFILE": "6", "GOMP_SPINCOUNT": "300"}),
        ({"DNNL_JIT_PROFILE": "2"}, {"DNNL_JIT_PROFILE": "2", "GOMP_SPINCOUNT": "300"}),
        ({"GOMP_SPINCOUNT": "7"}, {"ONEDNN_JIT_PROFILE": "0", "GOMP_SPINCOUNT": "7"}),
        ({"OMP_WAIT_POLICY": "active"}, {"ONEDNN_JIT_PROFILE": "0", "OMP_WAIT_POLICY": "active"}),
    ],
)
def test_no_perf_maps_and_idle_threads_that_sleep_unless_told_otherwise(
    monkeypatch, given, expected
):
    names = ("ONEDNN_JIT_PROFILE", "DNNL_JIT_PROFILE", "GOMP_SPINCOUNT", "OMP_WAIT_POLICY")
    for name in names:
        monkeypatch.delenv(name, raising=False)
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(sys, "argv", ["gsolve", "--version"])
    with pytest.raises(SystemExit) as stopped:
        cli.entry()
    assert stopped.value.code == 0
    assert {name: os.environ[name] for name in names if name in os.environ} == expected


@pytest.mark.parametrize("argv", [["--help"], ["list"]])
def test_a_reader_that_goes_away_is_no_error(argv):
    with subprocess.Popen(
        [sys.executable, "-m", "gymnasium_solver", *argv],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        assert process.stdout is not None
        process.stdout.close()
        assert process.stderr is not None
        assert process.stderr.read() == b""


def test_help_names_every_verb_and_each_has_a_module_and_help(gsolve):
    text = gsolve("--help")
    for verb in cli.verb_names():
        assert f"\n  {verb} " in text
        assert (Path(cli.__file__).parent / f"{cli.module_of(verb)}.py").is_file()
        assert f"gsolve {verb}" in gsolve(verb, "--help")
    gsolve("help train")


def test_nothing_typed_is_help_and_2(gsolve):
    assert "gsolve train CartPole-v1:ppo" in gsolve("", code=2)
    assert gsolve("--version") == f"gymnasium-solver {gymnasium_solver.__version__}\n"


@pytest.mark.parametrize(
    ("argv", "hint"),
    [
        (["trian"], "Did you mean: gsolve train?"),
        (["evaluate"], "gsolve eval"),
        (["CartPole-v1:ppo"], "gsolve train CartPole-v1:ppo"),
        (["--qiet"], "before the verb"),
        (["xyzzy"], "Verbs: train, "),
        (["enjoy"], "'enjoy' is not implemented. Alternative: gsolve"),
        (["runs", "--jsn"], "Did you mean --json?"),
        (["run", "a", "b"], "unexpected argument 'b'"),
        (["runs", "--limit", "many"], "expected a whole number"),
        (["eval"], "no run given. Usage: gsolve eval RUN[/CHECKPOINT]"),
        (["eval", "x", "--greedy", "--sampled"], "exclude each other"),
    ],
)
def test_wrong_command_lines_exit_2_with_a_hint(argv, hint, gsolve):
    assert hint in gsolve(*argv, code=2)


@pytest.mark.parametrize(
    ("error", "code"),
    [(ConfigError("bad"), 2), (DivergedError("nan"), 1), (KeyboardInterrupt(), 130)],
)
def test_exit_codes_by_error(error, code, monkeypatch, gsolve):
    def fail(argv):
        raise error

    monkeypatch.setitem(flags.VERBS, "list", fail)
    told = gsolve("list", code=code)
    assert told.startswith("gsolve list: ")
    assert "Traceback" not in told


def test_package_is_lazy_and_complete():
    code = "import sys, gymnasium_solver; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert set(done.stdout.split()).isdisjoint(HEAVY)
    assert {"train", "load", "load_config", "__version__"} <= set(dir(gymnasium_solver))
    assert gymnasium_solver.load_config("CartPole-v1:ppo").env_id == "CartPole-v1"
    with pytest.raises(AttributeError, match="no attribute 'trane'"):
        _ = gymnasium_solver.trane
