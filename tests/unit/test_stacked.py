"""Stacked critics against separate ones; batch renormalisation against direct computation."""

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from gymnasium_solver.fast.forward import Inference
from gymnasium_solver.nets.blocks import Blocks, StackedLinear, StackedMLP
from gymnasium_solver.nets.renorm import (
    EPSILON,
    MOMENTUM,
    BatchRenorm,
    batch_statistics,
    take_moments,
)
from tests.acting import generator


def train_pass(layers: nn.Module, x: Tensor, *bounds: Tensor) -> tuple[Tensor, list[Tensor]]:
    r_max, d_max = bounds
    with batch_statistics(layers, (r_max, d_max)) as moments:
        y = layers(x)
    return y, moments


def separate(stack: StackedMLP) -> list[nn.Sequential]:
    """The same networks as plain modules of their own."""
    nets = []
    for i in range(stack.n):
        layers: list[nn.Module] = []
        for layer in stack.layers:
            if isinstance(layer, StackedLinear):
                plain = nn.Linear(layer.weight.shape[1], layer.weight.shape[2])
                plain.weight.data = layer.weight[i].detach().T.clone()
                assert layer.bias is not None
                plain.bias.data = layer.bias[i, 0].detach().clone()
                layers.append(plain)
            else:
                layers.append(layer)
        nets.append(nn.Sequential(*layers))
    return nets


@pytest.mark.parametrize("hidden_dims", [(), (7,), (7, 9)], ids=str)
@pytest.mark.parametrize("n", [1, 2, 3])
def test_a_stack_equals_separate_networks_in_values_and_gradients(
    n: int, hidden_dims: tuple[int, ...]
) -> None:
    stack = StackedMLP(Blocks("tanh", generator(), n=n), 5, hidden_dims, 2)
    x = torch.randn(11, 5, generator=generator(1))
    nets = separate(stack)
    expected = torch.stack([net(x) for net in nets])
    torch.testing.assert_close(stack(x), expected)
    torch.testing.assert_close(stack.first(x), expected[0])
    weight = torch.randn(expected.shape, generator=generator(2))
    (stack(x) * weight).sum().backward()
    (expected * weight).sum().backward()
    for stacked, *plain in zip(
        [layer for layer in stack.layers if isinstance(layer, StackedLinear)],
        *[[layer for layer in net if isinstance(layer, nn.Linear)] for net in nets],
        strict=True,
    ):
        assert stacked.weight.grad is not None
        assert stacked.bias.grad is not None
        for i, layer in enumerate(plain):
            torch.testing.assert_close(stacked.weight.grad[i], layer.weight.grad.T)
            torch.testing.assert_close(stacked.bias.grad[i, 0], layer.bias.grad)


def test_the_critics_of_a_stack_begin_apart_and_within_the_usual_bounds() -> None:
    (weight, _) = StackedMLP(Blocks("relu", generator(), n=2), 16, (), 400).parameters()
    assert not torch.equal(weight[0], weight[1])
    assert float(weight.detach().abs().max()) <= 16**-0.5
    assert float(weight.detach().abs().max()) > 0.95 * 16**-0.5


def test_spectral_norm_divides_by_the_largest_singular_value() -> None:
    layer = StackedLinear(2, 6, 4, generator(), spectral_norm=True)
    nn.init.zeros_(layer.get_parameter("bias"))
    layer.power_iteration(200)
    x = torch.eye(6)
    largest = torch.linalg.svdvals(layer.weight.detach())[:, :1, None]
    torch.testing.assert_close(layer(x), layer.weight / largest)
    assert torch.linalg.svdvals(layer(x).detach())[:, 0].tolist() == pytest.approx([1, 1])


def test_spectral_norm_follows_weights_that_move() -> None:
    layer = StackedLinear(2, 6, 4, generator(), spectral_norm=True)
    nn.init.zeros_(layer.get_parameter("bias"))
    for _ in range(300):
        layer.weight.data.add_(0.01 * torch.randn(2, 6, 4, generator=generator(3)))
        layer.power_iteration()
    norms = torch.linalg.svdvals(layer(torch.eye(6)).detach())[:, 0]
    assert norms.tolist() == pytest.approx([1, 1], abs=0.01)


# -- batch renormalisation ------------------------------------------------------------------


def bounds(r_max: float, d_max: float) -> tuple[Tensor, Tensor]:
    return torch.tensor(r_max), torch.tensor(d_max)


PLAIN = bounds(1.0, 0.0)


def scaled_layer(shape: tuple[int, ...]) -> BatchRenorm:
    layer = BatchRenorm(shape)
    layer.weight.data.uniform_(0.5, 2, generator=generator(4))
    layer.bias.data.normal_(generator=generator(5))
    layer.running_mean.normal_(generator=generator(6))
    layer.running_var.uniform_(0.5, 2, generator=generator(7))
    return layer


def test_without_corrections_it_is_batch_norm() -> None:
    layer, norm = scaled_layer((1, 3)), nn.BatchNorm1d(3, eps=EPSILON)
    norm.weight.data, norm.bias.data = layer.weight.data[0].clone(), layer.bias.data[0].clone()
    x = (torch.randn(20, 3, generator=generator()) * 3 + 1).requires_grad_()
    y, mean, var = layer.train_pass(x, *PLAIN)
    expected = norm(x)
    torch.testing.assert_close(y, expected)
    torch.testing.assert_close(mean[0], x.mean(0))
    torch.testing.assert_close(var[0], x.var(0, correction=0))
    weight = torch.randn(20, 3, generator=generator(1))
    ours = torch.autograd.grad((y * weight).sum(), [x, layer.weight, layer.bias])
    theirs = torch.autograd.grad((expected * weight).sum(), [x, norm.weight, norm.bias])
    for a, b in zip(ours, theirs, strict=True):
        torch.testing.assert_close(a.reshape(b.shape), b, rtol=1e-4, atol=1e-5)


def test_corrections_by_hand() -> None:
    """A batch (0, 2): mean 1, variance 1. Running mean 0, deviation 2: r = 1 / 2, d = 1 / 2."""
    layer = BatchRenorm((1, 1))
    layer.running_var.fill_(4 - EPSILON)
    x = torch.tensor([[0.0], [2.0]])
    std = (1 + EPSILON) ** 0.5
    y, _, _ = layer.train_pass(x, *bounds(3, 5))
    r, d = std / 2, 1 / 2
    assert y[:, 0].tolist() == pytest.approx([-r / std + d, r / std + d])
    # Within the bounds it is exactly what the running moments give: that is its point.
    torch.testing.assert_close(y, layer(x))
    y, _, _ = layer.train_pass(x, *bounds(1.25, 0.3))
    assert y[:, 0].tolist() == pytest.approx([-0.8 / std + 0.3, 0.8 / std + 0.3])


def test_no_gradient_flows_through_the_corrections() -> None:
    """r and d count as constants: with the batch's own moments the sum of outputs is constant."""
    layer = scaled_layer((1, 2))
    x = torch.randn(9, 2, generator=generator()).requires_grad_()
    y, mean, var = layer.train_pass(x, *bounds(100, 100))
    assert not mean.requires_grad
    assert not var.requires_grad
    (gradient,) = torch.autograd.grad(y.sum(), x)
    torch.testing.assert_close(gradient, torch.zeros(9, 2), rtol=0, atol=1e-5)
    (through_running,) = torch.autograd.grad(layer(x).sum(), x)
    assert float(through_running.abs().min()) > 0.1


def test_running_moments_move_a_little_and_only_when_told() -> None:
    first = BatchRenorm((1, 2))
    layers = nn.Sequential(first, nn.Linear(2, 3), BatchRenorm((1, 3)))
    x = torch.tensor([[0.0, 10.0], [2.0, 10.0]])
    _, moments = train_pass(layers, x, *PLAIN)
    assert len(moments) == 4
    assert first.running_mean.tolist() == [[0, 0]]
    take_moments(layers, moments)
    assert first.running_mean[0].tolist() == pytest.approx([MOMENTUM * 1, MOMENTUM * 10])
    assert first.running_var[0].tolist() == pytest.approx([1, 1 - MOMENTUM])


def test_each_of_a_stack_has_its_own_moments() -> None:
    stack = StackedMLP(Blocks("relu", generator(), n=2, norm="renorm"), 4, (6,), 1)
    x = torch.randn(30, 4, generator=generator(1))
    y, moments = train_pass(stack.layers, x, *PLAIN)
    assert y.shape == (2, 30, 1)
    take_moments(stack.layers, moments)
    hidden = [layer for layer in stack.layers if isinstance(layer, BatchRenorm)][1]
    assert hidden.running_mean.shape == (2, 1, 6)
    assert not torch.allclose(hidden.running_mean[0], hidden.running_mean[1])
    for i in range(2):  # one network of the stack alone
        alone = StackedMLP(Blocks("relu", generator(), n=1, norm="renorm"), 4, (6,), 1)
        for own, whole in zip(alone.parameters(), stack.parameters(), strict=True):
            own.data = whole.data[i : i + 1].clone()
        torch.testing.assert_close(train_pass(alone.layers, x, *PLAIN)[0][0], y[i])


def test_recorded_acting_goes_by_the_running_moments() -> None:
    layers = nn.Sequential(scaled_layer((1, 3)), nn.Linear(3, 5), nn.ReLU(), scaled_layer((1, 5)))
    x = torch.randn(8, 3, generator=generator())
    infer = Inference(layers, layers, record=True)
    with torch.no_grad():
        np.testing.assert_allclose(infer(x.numpy()), layers(x).numpy(), rtol=1e-5, atol=1e-6)
        assert infer._program is not None
        _, moments = train_pass(layers, x, *PLAIN)
        before = infer(x.numpy())
        take_moments(layers, moments)
        after = layers(x).numpy()
    assert not np.allclose(before, after)
    np.testing.assert_allclose(infer(x.numpy()), after, rtol=1e-5, atol=1e-6)
