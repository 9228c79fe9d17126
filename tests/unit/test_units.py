"""Dead units are found, and only those."""

import pytest
import torch
from torch import nn

from gymnasium_solver.algos.units import Units, watch_units


def measured(net: nn.Module, obs: torch.Tensor) -> dict[str, float]:
    with torch.no_grad(), watch_units(net) as units:
        net(obs)
    return units.metrics(obs)


def layer(weight: list[list[float]], bias: list[float]) -> nn.Linear:
    made = nn.Linear(len(weight[0]), len(weight))
    made.weight.data, made.bias.data = torch.tensor(weight), torch.tensor(bias)
    return made


OBS = torch.linspace(-1, 1, 64).unsqueeze(1)


def test_a_relu_that_never_fires_is_dead() -> None:
    net = nn.Sequential(layer([[1.0], [1.0], [0.1], [-1.0]], [0.0, -5.0, 1.0, -9.0]), nn.ReLU())
    found = measured(net, OBS)
    assert found["opt/activations/1/dead"] == 0.5
    assert found["opt/activations/dead"] == found["opt/activations/dead_max"] == 0.5
    assert found["opt/activations/1/mean"] == pytest.approx((0.25 + 1.0) / 4, abs=0.01)


def test_a_saturated_tanh_is_dead() -> None:
    net = nn.Sequential(layer([[1.0], [1.0]], [0.0, 30.0]), nn.Tanh())
    assert measured(net, OBS)["opt/activations/1/dead"] == 0.5


def test_the_worst_layer_is_told_apart_from_all() -> None:
    net = nn.Sequential(
        layer([[1.0], [2.0], [3.0]], [0.0, 0.0, 0.0]),
        nn.Tanh(),
        layer([[0.0, 0.0, 0.0]], [-1.0]),
        nn.ReLU(),
    )
    found = measured(net, OBS)
    assert found["opt/activations/dead"] == pytest.approx(1 / 4)
    assert found["opt/activations/dead_max"] == 1.0


def test_units_of_convolutions_are_their_channels() -> None:
    conv = nn.Conv2d(1, 3, 1)
    conv.weight.data = torch.ones(3, 1, 1, 1)
    conv.bias.data = torch.tensor([0.0, 0.0, -9.0])  # type: ignore[union-attr]
    found = measured(nn.Sequential(conv, nn.ReLU()), torch.rand(8, 1, 4, 4))
    assert found["opt/activations/1/dead"] == pytest.approx(1 / 3)


def test_constant_observations_make_no_unit_dead() -> None:
    net = nn.Sequential(nn.Linear(1, 8), nn.Tanh())
    assert measured(net, torch.ones(64, 1)) == {}


def test_the_hooks_are_removed() -> None:
    net = nn.Sequential(nn.Linear(1, 8), nn.Tanh())
    measured(net, OBS)
    assert not net[1]._forward_hooks


@pytest.mark.parametrize("shape", [(64, 8), (16, 6, 5, 5), (2, 64, 8)])
def test_the_statistics_are_those_of_all_outputs(shape: tuple[int, ...]) -> None:
    units = Units()
    units.outputs["a"] = y = 100.0 + torch.randn(shape, generator=torch.Generator().manual_seed(1))
    found = units.metrics(OBS)
    wide = y.double()
    assert found["opt/activations/a/mean"] == pytest.approx(float(wide.mean()), rel=1e-6)
    assert found["opt/activations/a/std"] == pytest.approx(float(wide.std(correction=0)), rel=1e-3)
    assert found["opt/activations/a/dead"] == 0.0
