"""Fused functions (fast/fused.py): weights are read in place, and what fails or disagrees is not
used. The kernels themselves need a GPU; torch's compiler also makes C++ for a CPU."""

import shutil
from collections.abc import Sequence
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.fx.experimental.proxy_tensor import make_fx

from gymnasium_solver.algos.sac import SAC, SACConfig
from gymnasium_solver.errors import ConfigError
from gymnasium_solver.fast import fused
from tests.acting import BOX, OBS


class Line:
    """The gradient of a small loss whose weights are not among the inputs."""

    def __init__(self) -> None:
        self.weight = torch.ones(3, requires_grad=True)
        self.shift = torch.tensor(2.0)  # a small tensor, which the compiler would copy

    def gradient(self, inputs: Sequence[Tensor]) -> list[Tensor]:
        loss = ((inputs[0] @ self.weight + self.shift) ** 2).mean()
        return [*torch.autograd.grad(loss, self.weight), loss.detach()]


def test_tensors_that_a_function_reads_become_inputs() -> None:
    line, x = Line(), torch.arange(6.0).view(2, 3)
    module = make_fx(lambda *tensors: line.gradient(list(tensors)))(x)
    read = fused._lifted(module)
    assert sorted(t.numel() for t in read) == [1, 3]
    with torch.no_grad():
        line.weight.mul_(3.0)
        line.shift.add_(1.0)
    for got, wanted in zip(module(*read, x), line.gradient([x]), strict=True):
        torch.testing.assert_close(got, wanted)


@pytest.mark.parametrize("fault", ["error", "wrong"])
def test_what_fails_or_disagrees_is_not_used(fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    line = Line()

    def compiled(function: Any, inputs: Any) -> Any:
        if fault == "error":
            raise RuntimeError("no Triton")
        return lambda given: [t + 1 for t in function(given)]

    monkeypatch.setattr(fused, "_compiled", compiled)
    assert fused.fuse(line.gradient, [torch.ones(2, 3)]) is None


@pytest.mark.parametrize(("factor", "is_used"), [(1.001, True), (-1.0, False), (1.5, False)])
def test_small_gradients_are_compared_by_their_size(
    factor: float, is_used: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those of a normalised critic are about 1e-5."""

    def small(inputs: Sequence[Tensor]) -> list[Tensor]:
        return [1e-5 * inputs[0]]

    def compiled(function: Any, inputs: Any) -> Any:
        return lambda given: [factor * t for t in function(given)]

    monkeypatch.setattr(fused, "_compiled", compiled)
    x = torch.randn(2000, generator=torch.Generator().manual_seed(0))
    assert (fused.fuse(small, [x]) is not None) == is_used


@pytest.mark.parametrize(("n_off", "is_used"), [(2, True), (9, False)])
def test_a_class_drawn_at_a_limit_may_differ(
    n_off: int, is_used: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def compiled(function: Any, inputs: Any) -> Any:
        return lambda given: [torch.cat([1.0 - t[:n_off], t[n_off:]]) for t in function(given)]

    monkeypatch.setattr(fused, "_compiled", compiled)
    found = fused.fuse(lambda given: [given[0].clone()], [torch.ones(4000)])
    assert (found is not None) == is_used


def test_the_wait_is_told_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    line = Line()
    monkeypatch.setattr(fused, "_compiled", lambda function, inputs: function)
    fused._tell.cache_clear()
    with caplog.at_level("INFO"):
        for _ in range(2):
            assert fused.fuse(line.gradient, [torch.ones(2, 3)]) is not None
    assert [record.message for record in caplog.records if "fuses" in record.message] == [
        "torch's compiler fuses the kernels of the GPU, which takes up to a minute"
    ]


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("g++") is None, reason="torch's compiler needs g++ for a CPU")
def test_a_fused_function_computes_the_same_and_follows_the_weights() -> None:
    line, x = Line(), torch.arange(6.0).view(2, 3)
    found = fused.fuse(line.gradient, [x])
    assert found is not None
    with torch.no_grad():
        line.weight.mul_(3.0)
        line.shift.add_(1.0)
    for got, wanted in zip(found([x]), line.gradient([x]), strict=True):
        torch.testing.assert_close(got, wanted)


def test_fused_kernels_exclude_bf16() -> None:
    config = SACConfig(env_id="x", algo_id="sac", compile="fused", bf16=True)
    with pytest.raises(ConfigError, match="compile: fused does not compute in bf16"):
        SAC(config, OBS, BOX, seed=0)
