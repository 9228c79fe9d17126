"""Saliency, activation maps and receptive fields on networks whose answer is known."""

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from gymnasium_solver.media.saliency import (
    TITLES,
    ConvLayer,
    ReceptiveField,
    TopPatches,
    activations,
    activations_and_gradients,
    cam,
    conv_layers,
    gradient_saliency,
    gradient_times_input,
    occlusion,
    spread,
)
from gymnasium_solver.nets.cnn import Cnn, convolutions
from gymnasium_solver.spaces.observations import ImageLayout

PIXEL = (6, 3)  # row and column that the hand-made network looks at
PLANE = 1


def one_pixel() -> tuple[Tensor, nn.Sequential, ConvLayer]:
    """An image of 2 planes, bright at PIXEL of PLANE and somewhere else in the other plane, and
    convolutions whose first channel copies PLANE, the second the other one."""
    conv = nn.Conv2d(2, 2, 3, padding=1, bias=False)
    with torch.no_grad():
        conv.weight.zero_()
        conv.weight[0, PLANE, 1, 1] = conv.weight[1, 1 - PLANE, 1, 1] = 1.0
    stack = nn.Sequential(conv, nn.ReLU())
    planes = torch.full((1, 2, 10, 8), 0.05)
    planes[0, PLANE, PIXEL[0], PIXEL[1]] = 1.0
    planes[0, 1 - PLANE, 1, 6] = 0.4
    return planes, stack, conv_layers(stack)[0]


def score_of_pixel(stack: nn.Module, planes: Tensor) -> Tensor:
    return 5 * stack(planes)[:, 0, PIXEL[0], PIXEL[1]]


def place(map_: np.ndarray) -> tuple[int, ...]:
    return tuple(int(i) for i in np.unravel_index(map_.argmax(), map_.shape))


def test_gradient_saliency_is_that_of_the_one_pixel() -> None:
    planes, stack, _ = one_pixel()
    map_ = gradient_saliency(lambda x: score_of_pixel(stack, x), planes)
    expected = np.zeros((2, 10, 8))
    expected[PLANE, PIXEL[0], PIXEL[1]] = 5
    np.testing.assert_allclose(map_, expected)


@pytest.mark.parametrize("size", [1, 3])
def test_occlusion_finds_the_pixel_and_its_frame(size: int) -> None:
    planes, stack, _ = one_pixel()
    maps = occlusion(lambda x: score_of_pixel(stack, x), planes, [[0], [1]], size)
    assert not maps[1 - PLANE].any()
    seen = maps[PLANE]
    assert seen[PIXEL] == seen.max() > 0
    rows, columns = np.nonzero(seen)  # the squares of this size that cover the pixel
    assert abs(rows - PIXEL[0]).max() == abs(columns - PIXEL[1]).max() == size - 1
    if size == 1:
        assert seen[PIXEL] == pytest.approx(5 * (1 - 0.05))  # the rest of the plane is its median


def test_occlusion_is_negative_where_covering_raises_the_score() -> None:
    planes, stack, _ = one_pixel()
    map_ = occlusion(lambda x: -score_of_pixel(stack, x), planes, [[0, 1]], 1)[0]
    assert map_[PIXEL] == map_.min() < 0


@pytest.mark.parametrize("method", TITLES)
def test_every_activation_map_points_to_the_pixel(method: str) -> None:
    planes, stack, layer = one_pixel()
    map_ = cam(method, lambda x: score_of_pixel(stack, x), layer, planes)
    assert map_.shape == (10, 8)
    assert map_.min() >= 0
    assert place(map_) == PIXEL
    assert not layer.output._forward_hooks  # nothing stays on the network


@pytest.mark.parametrize("method", [name for name in TITLES if name != "eigencam"])
def test_activation_maps_follow_the_score(method: str) -> None:
    """A score of the other channel moves the map; EigenCAM does not know the score."""
    planes, stack, layer = one_pixel()
    map_ = cam(method, lambda x: 50 * stack(x)[:, 1, 1, 6], layer, planes)
    assert place(map_) == (1, 6)


@pytest.mark.parametrize("method", TITLES)
def test_maps_of_a_layer_without_padding_lie_where_it_looks(method: str) -> None:
    """The map of a unit is shown at the centre of its receptive field, also near the border."""
    conv = nn.Conv2d(1, 1, 5, stride=3, bias=False)
    nn.init.ones_(conv.weight)
    stack = nn.Sequential(conv, nn.ReLU())
    planes = torch.full((1, 1, 20, 20), 0.01)
    planes[0, 0, 2, 17] = 1.0  # the centre of the field of the unit (0, 5)
    (layer,) = conv_layers(stack)
    map_ = cam(method, lambda x: stack(x)[:, 0, 0, 5], layer, planes)
    assert map_[2, 17] == map_.max()
    assert map_[2, 12] < 0.5 * map_.max()


def test_hirescam_adds_up_to_the_score() -> None:
    """Of a linear head without bias, gradient x activation sums to the score itself."""
    torch.manual_seed(0)
    stack = nn.Sequential(nn.Conv2d(1, 3, 3), nn.ReLU())
    head = nn.Linear(3 * 36, 1, bias=False)
    planes = torch.rand(1, 1, 8, 8)
    maps, gradients = activations_and_gradients(
        lambda x: head(stack(x).flatten(1))[:, 0], conv_layers(stack)[0], planes
    )
    score = float(head(stack(planes).flatten(1)).detach())
    assert float((maps * gradients).sum()) == pytest.approx(score, rel=1e-5)


def test_spread_keeps_constants_and_single_units() -> None:
    field = ReceptiveField((36, 36), (8, 8), (0, 0))
    assert torch.allclose(spread(torch.ones(7, 7), field, 84, 84), torch.ones(84, 84))
    assert torch.allclose(spread(torch.full((1, 1), 3.0), field, 40, 40), torch.tensor(3.0))


def test_gradient_times_input_of_a_linear_network_is_weight_times_input() -> None:
    torch.manual_seed(1)
    net = nn.Linear(6, 3)
    x = torch.randn(1, 6)
    given = gradient_times_input(lambda rows: net(rows)[:, 2], x)
    np.testing.assert_allclose(given, (net.weight[2] * x[0]).detach().numpy(), rtol=1e-6)


def test_a_score_that_ignores_the_input_has_no_gradient() -> None:
    assert not gradient_times_input(lambda rows: torch.ones(len(rows)), torch.ones(1, 4)).any()


# -- receptive fields -------------------------------------------------------------------------


def hand_made() -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(1, 1, (3, 5), stride=(2, 1), padding=(1, 0)),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(1, 1, 3, dilation=2),
    )


def preset(name: str, channels: tuple[int, ...], side: int) -> nn.Sequential:
    layout = ImageLayout(1, side, side, (0, 1, 2))
    return convolutions(Cnn(layout, name, channels), 1.0, torch.Generator())[0]


STACKS = {
    "hand-made": (hand_made, 30),
    "cnn_nature": (lambda: preset("cnn_nature", (1, 1, 1), 60), 60),
    "cnn_small": (lambda: preset("cnn_small", (1, 1, 1), 24), 24),
    "cnn_impala": (lambda: preset("cnn_impala", (1,), 28), 28),
}


@pytest.mark.parametrize("name", STACKS)
def test_receptive_fields_equal_those_found_by_changing_every_pixel(name: str) -> None:
    make, side = STACKS[name]
    stack = make()
    for parameter in stack.parameters():
        nn.init.constant_(parameter, 0.05 if parameter.ndim > 1 else 0.0)
    layers = conv_layers(stack)
    base = torch.zeros(1, 1, side, side)
    changed = torch.eye(side * side).view(-1, 1, side, side) * 1e6
    before = activations(layers, lambda: stack(base))
    after = activations(layers, lambda: stack(changed))
    for layer in layers:
        differs = (after[layer.name] != before[layer.name])[:, 0]  # [pixels, h, w]
        unit = (differs.shape[1] // 2, differs.shape[2] // 2)
        pixels = np.flatnonzero(differs[:, unit[0], unit[1]])
        for axis, seen in enumerate((pixels // side, pixels % side)):
            start = layer.field.first[axis] + unit[axis] * layer.field.jump[axis]
            stop = min(side, start + layer.field.size[axis]) - 1
            assert (seen.min(), seen.max()) == (max(0, start), stop), layer.name


def test_layers_of_the_nature_network() -> None:
    layers = conv_layers(preset("cnn_nature", (1, 1, 1), 84))
    assert [layer.name for layer in layers] == ["conv 1", "conv 2", "conv 3"]
    assert [layer.field.size[0] for layer in layers] == [8, 20, 36]
    assert all(isinstance(layer.output, nn.ReLU) for layer in layers)


def test_a_residual_stage_is_one_layer() -> None:
    layers = conv_layers(preset("cnn_impala", (2, 2), 16))
    assert [layer.name for layer in layers] == ["stage 1", "stage 2"]
    assert isinstance(layers[-1].output, nn.ReLU)


# -- patches ----------------------------------------------------------------------------------


def test_patches_are_the_strongest_of_the_episode() -> None:
    kept = TopPatches(ReceptiveField((3, 3), (2, 2), (-1, -1)), 10, 10, n=2)
    for step, strength in enumerate([1.0, 4.0, 2.0, 3.0]):
        maps = np.zeros((3, 5, 5), np.float32)
        maps[0, 0, 4] = strength
        maps[2, 2, 1] = 10 if step == 0 else 0
        kept.see(step, maps)
    (first, patches_of_2), (second, patches_of_0) = kept.best(8)
    assert (first, second) == (2, 0)  # by strength; channel 1 never responds
    assert [patch.step for patch in patches_of_0] == [1, 3]
    strongest = patches_of_0[0]
    assert (strongest.top, strongest.bottom, strongest.left, strongest.right) == (0, 2, 7, 10)
    assert patches_of_2[0][2:] == (3, 6, 1, 4)
