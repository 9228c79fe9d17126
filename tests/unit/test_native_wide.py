"""Compiled programs of wide networks: larger blocks of samples, weights packed by several threads,
constants packed once for several steps."""

from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from gymnasium_solver.fast import recorded
from gymnasium_solver.fast.native.build import can_compile
from gymnasium_solver.fast.native.emit import MANY_PARAMETERS, WIDE_BLOCK
from gymnasium_solver.fast.native.program import NativeGradient, set_threads
from gymnasium_solver.fast.optimizer import Ema, FlatOptimizer
from tests.optimizers import flat_optimizer

pytestmark = pytest.mark.skipif(not can_compile(), reason="needs a C compiler")

# Widths that are no multiple of a panel, a tile or a vector: the rest of each is handled too.
SIZES = [7, 141, 235, 3]


def network(seed: int) -> nn.Sequential:
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        first, second, third = (nn.Linear(a, b) for a, b in pairwise(SIZES))
    return nn.Sequential(first, nn.ReLU(), second, nn.ReLU(), third)


class Wide(NamedTuple):
    loss: Any
    optimizer: FlatOptimizer
    target: nn.Module
    flat_target: Tensor
    gradient: NativeGradient


def columns(n: int, seed: int = 0) -> list[Tensor]:
    g = torch.Generator().manual_seed(seed)
    obs, following = (torch.randn(n, SIZES[0], generator=g) for _ in range(2))
    return [obs, torch.randn(n, generator=g), following]


def made(tau: float | None = None) -> Wide:
    """As DQN: values of a network, and of a target network that is not differentiated."""
    net = network(0)
    optimizer = flat_optimizer(net, "adam", max_grad_norm=0.5, ema=Ema(tau))
    target, flat, _ = optimizer.targets["net"]
    target.load_state_dict(network(1).state_dict())

    def loss(batch: Any, c: Any) -> tuple[Tensor, list[Tensor]]:
        obs, reward, following = batch
        wanted = reward + 0.9 * target(following).amax(1)
        error = net(obs).amax(1) - wanted
        return error.square().mean(), [error.square().mean(), error.abs()]

    constants = list(target.parameters())
    gradient = recorded.record_gradient(
        loss, optimizer.params, columns(64), (), constants, form="compiled"
    )
    assert isinstance(gradient, NativeGradient)
    optimizer.native = gradient.optimizer
    return Wide(loss, optimizer, target, flat, gradient)


def test_the_network_is_wide_enough() -> None:
    wide = made()
    assert wide.optimizer.flat.numel() > MANY_PARAMETERS
    assert wide.gradient.program.layout.block == WIDE_BLOCK


@pytest.mark.parametrize("n", [1, 3, 64, 130, 300])
def test_a_wide_network_agrees_with_torch(n: int) -> None:
    wide, batch = made(), columns(n, seed=n)
    wanted = recorded.eager(wide.loss, wide.optimizer.params, batch, ())
    for a, b in zip(wide.gradient(batch, ()), wanted, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-3, atol=1e-5)


def test_the_same_bits_for_any_number_of_threads() -> None:
    """Of packing, blocks, sums over lanes and the optimiser, which all share the work."""
    batch, found = columns(300), []
    for threads in (1, 2, 3):
        before = set_threads(threads)
        wide = made()
        for _ in range(4):
            grad, *outputs = wide.gradient(batch, ())
            norm = wide.optimizer.step(grad, 1e-2)
        set_threads(before)
        moments = wide.optimizer.state()
        found.append([grad, *outputs, norm, wide.optimizer.flat, *moments.values()])
    for other in found[1:]:
        assert all(map(torch.equal, other, found[0]))


@pytest.mark.parametrize("seed", [2, 3])
def test_constants_may_change_between_passes(seed: int) -> None:
    """They are packed once for all steps of a pass, and again for the next pass."""
    one, other, batch = made(), made(), columns(60)
    one.gradient(batch, ())  # packs the first target
    new = network(seed).state_dict()
    parts: list[Any] = np.array_split(np.random.default_rng(0).permutation(60), 3)
    for wide in (one, other):
        wide.target.load_state_dict(new)
    norms = [
        one.optimizer.step(one.gradient([c[torch.from_numpy(p)] for c in batch], ())[0], 1e-2)
        for p in parts
    ]
    _, found = other.gradient.descend(batch, parts, (), other.optimizer, 1e-2)
    assert torch.equal(found, torch.stack(norms))
    assert torch.equal(one.optimizer.flat, other.optimizer.flat)


def test_a_target_network_moves_after_each_step() -> None:
    """As with torch's lerp, and the next gradient reads it as it is then."""
    one, other, batch = made(tau=0.1), made(), columns(60)
    parts: list[Any] = np.array_split(np.arange(60), 3)
    flats = [wide.flat_target for wide in (one, other)]
    outputs, norms = one.gradient.descend(batch, parts, (), one.optimizer, 1e-2)
    for i, rows in enumerate(parts):
        grad, loss, _ = other.gradient([c[torch.from_numpy(rows)] for c in batch], ())
        norm = other.optimizer.step(grad, 1e-2)
        flats[1].lerp_(other.optimizer.flat, 0.1)
        torch.testing.assert_close(outputs[i, 0], loss, rtol=1e-5, atol=1e-6)
        torch.testing.assert_close(norms[i], norm, rtol=1e-4, atol=1e-6)
    torch.testing.assert_close(*flats, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("tau", [0.1, 1.0])
def test_a_step_with_a_target(tau: float) -> None:
    """One pass over memory; a whole move is a copy."""
    one, other, batch = made(tau), made(), columns(60)
    grads = [wide.gradient(batch, ())[0] for wide in (one, other)]
    one.optimizer.step(grads[0], 1e-2)
    other.optimizer.step(grads[1], 1e-2)
    other.flat_target.lerp_(other.optimizer.flat, tau)
    assert torch.equal(one.optimizer.flat, other.optimizer.flat)
    torch.testing.assert_close(one.flat_target, other.flat_target, rtol=1e-6, atol=1e-8)
    assert torch.equal(one.flat_target, one.optimizer.flat) == (tau == 1.0)


def test_the_norm_of_a_step_without_clipping() -> None:
    """It is computed in the pass of the step, which is that of a limit never reached."""
    batch, found = columns(60), []
    for limit in (None, 1e9):
        wide = made()
        wide.optimizer.max_grad_norm = limit
        grad = wide.gradient(batch, ())[0].clone()
        norm = wide.optimizer.step(grad.clone(), 1e-2)
        torch.testing.assert_close(norm, grad.norm(), rtol=1e-5, atol=0.0)
        found.append((norm, wide.optimizer.flat.clone()))
    assert all(map(torch.equal, *found))
