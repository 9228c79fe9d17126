"""Torch starts without its compiler's tables, and gets them when the compiler comes."""

import subprocess
import sys

SCRIPT = """
import sys
from gymnasium_solver.cli.torch_start import METAS, defer_metas

defer_metas()
import torch

assert not hasattr(sys.modules[METAS], "register_meta"), "they were loaded with torch"
assert "torch._decomp" not in sys.modules
layer = torch.nn.Linear(3, 2)
layer(torch.ones(4, 3)).sum().backward()
assert layer.weight.grad.shape == (2, 3)

compiled = torch.compile(torch.nn.functional.gelu, backend="aot_eager")
x = torch.linspace(-1, 1, 5)
assert torch.equal(compiled(x), torch.nn.functional.gelu(x))
assert hasattr(sys.modules[METAS], "register_meta"), "the compiler did without them"
assert torch._meta_registrations is sys.modules[METAS]
"""


def test_metas_come_with_the_compiler_alone() -> None:
    subprocess.run([sys.executable, "-c", SCRIPT], check=True)


def test_a_torch_that_is_there_is_left_alone() -> None:
    import torch

    from gymnasium_solver.cli.torch_start import METAS, defer_metas

    finders = list(sys.meta_path)
    defer_metas()
    assert sys.meta_path == finders
    assert hasattr(sys.modules[METAS], "register_meta")
    assert torch._meta_registrations is sys.modules[METAS]
