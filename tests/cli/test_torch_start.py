"""Torch starts without its compiler's tables, and gets them when the compiler comes."""

import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = """
import sys
from gymnasium_solver.cli.torch_start import METAS, defer_metas

defer_metas()
import torch

assert not hasattr(sys.modules[METAS], "register_meta"), "they were loaded with torch"
assert "torch._decomp" not in sys.modules
torch.Generator().manual_seed(1)
layer = torch.nn.Linear(3, 2)
layer(torch.ones(4, 3)).sum().backward()
assert layer.weight.grad.shape == (2, 3)

compiled = torch.compile(torch.nn.functional.gelu, backend="aot_eager")
x = torch.linspace(-1, 1, 5)
assert torch.equal(compiled(x), torch.nn.functional.gelu(x))
assert hasattr(sys.modules[METAS], "register_meta"), "the compiler did without them"
assert torch._meta_registrations is sys.modules[METAS]
"""


def needs_tried_torch() -> None:
    import torch

    from gymnasium_solver.cli.torch_start import TRIED

    if not torch.__version__.startswith(TRIED):
        pytest.skip(f"torch {torch.__version__} starts as it always does; tried with {TRIED}")


def test_metas_come_with_the_compiler_alone() -> None:
    needs_tried_torch()
    subprocess.run([sys.executable, "-c", SCRIPT], check=True)


def test_another_version_starts_as_it_always_does() -> None:
    code = """
import sys
from gymnasium_solver.cli import torch_start

torch_start.TRIED = "none"
torch_start.defer_metas()
import torch

assert hasattr(torch._meta_registrations, "register_meta")
import torch._dynamo
"""
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_torch_that_is_there_is_left_alone() -> None:
    import torch

    from gymnasium_solver.cli.torch_start import METAS, defer_metas

    finders = list(sys.meta_path)
    defer_metas()
    assert sys.meta_path == finders
    assert hasattr(sys.modules[METAS], "register_meta")
    assert torch._meta_registrations is sys.modules[METAS]


@pytest.mark.parametrize("target", ["CartPole-v1:ppo", "CartPole-v1:rainbow", "Pendulum-v1:sac"])
def test_a_command_trains_without_them(target: str, tmp_path: Path) -> None:
    """As users start it: the tests' own process has all of torch."""
    flags = ["--max-env-steps=1500", "--eval-freq-epochs=null", "--runs-dir", str(tmp_path), "-q"]
    command = [sys.executable, "-m", "gymnasium_solver", "train", target, *flags]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
