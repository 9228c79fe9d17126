"""Explains one decision: every map and number about it, as arrays.

view = look(agent, trace, methods_of(["gradcam"]), "action")
view.images[0].cams["gradcam"]          # [H, W]
view.contributions                      # [("cart position", 0.12), ...]
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from torch import nn

from gymnasium_solver.algos.agent import Agent
from gymnasium_solver.errors import ConfigError
from gymnasium_solver.media.cams import TITLES as CAMS
from gymnasium_solver.media.cams import cam
from gymnasium_solver.media.explain_pictures import Group, plane_groups
from gymnasium_solver.media.explain_subject import TARGETS, Subject, Trace, encoder_of, subject_of
from gymnasium_solver.media.filters import ConvLayer, activations, conv_layers
from gymnasium_solver.media.saliency import gradient_saliency, gradient_times_input, occlusion
from gymnasium_solver.nets.encoder import ObsEncoder
from gymnasium_solver.suggest import did_you_mean

METHODS = ("gradient", "occlusion", *CAMS)


def methods_of(names: Sequence[str]) -> tuple[str, ...]:
    """The methods that a user names, in the order of METHODS; all of them for "all" or nothing."""
    chosen = set()
    for name in names:
        plain = name.lower().replace("-", "").replace("_", "").replace("plusplus", "++")
        if plain == "all":
            return METHODS
        if plain not in METHODS:
            hint = did_you_mean(plain, METHODS) or f"Expected all, {', '.join(METHODS)}."
            raise ConfigError(f"--method {name}: unknown. {hint}")
        chosen.add(plain)
    return tuple(name for name in METHODS if name in chosen) if chosen else METHODS


def target_of(name: str) -> str:
    if name not in TARGETS:
        hint = did_you_mean(name, TARGETS) or f"Expected {' or '.join(TARGETS)}."
        raise ConfigError(f"--target {name}: unknown. {hint}")
    return name


@dataclass(frozen=True)
class ImageView:
    """One image part of the network's input."""

    name: str
    """Of the part; "" where the observation is the image."""
    planes: np.ndarray
    """[C, H, W] as the network gets them."""
    groups: list[Group]
    """Which planes are a frame."""
    layer: str
    """The layer of the class activation maps."""
    gradient: np.ndarray | None = None
    """[C, H, W]"""
    occlusion: np.ndarray | None = None
    """[len(groups), H, W]; positive: covering it lowers the score."""
    cams: dict[str, np.ndarray] = field(default_factory=dict)
    """[H, W] by method."""
    activations: dict[str, np.ndarray] = field(default_factory=dict)
    """[K, h, w] by layer."""


@dataclass(frozen=True)
class View:
    what: str
    """The explained number in words."""
    number: float
    images: list[ImageView] = field(default_factory=list)
    contributions: list[tuple[str, float]] = field(default_factory=list)
    """Gradient x input of each component of the vector part."""


def groups_of(agent: Agent, name: str) -> list[Group]:
    """The frames of an image part."""
    encoder, stacked = encoder_of(agent), getattr(agent.config, "frame_stack", None) or 1
    return plane_groups(encoder.layouts[name], encoder.parts[name].shape or (), stacked)


def pick_layer(stack: nn.Module, number: int | None) -> ConvLayer:
    """The layer `number`, from 1; the last one by default."""
    layers = conv_layers(stack)
    if number is not None and not 1 <= number <= len(layers):
        raise ConfigError(
            f"--layer {number}: the network has convolution layers 1 to {len(layers)}"
        )
    return layers[-1 if number is None else number - 1]


def look(
    agent: Agent,
    trace: Trace,
    methods: Sequence[str] = METHODS,
    target: str = "action",
    *,
    layer: int | None = None,
    names: Sequence[str] = (),
) -> View:
    """`names` of the components of the vector part; those of the spaces by default."""
    subject = subject_of(agent, trace, target)
    encoder = encoder_of(agent)
    images = [
        _look_at_image(subject, name, groups_of(agent, name), methods, layer)
        for name in encoder.layouts
    ]
    contributions: list[tuple[str, float]] = []
    if "" in subject.inputs and encoder.width:
        numbers = gradient_times_input(subject.score_of(""), subject.inputs[""])
        known = list(names) if len(names) == len(numbers) else component_names(encoder)
        contributions = [(known[i], float(number)) for i, number in enumerate(numbers)]
    return View(subject.what, subject.number, images, contributions)


def _look_at_image(
    subject: Subject, name: str, groups: list[Group], methods: Sequence[str], number: int | None
) -> ImageView:
    key = f"image {name}"
    planes, stack = subject.inputs[key], subject.stacks[key]
    score, layers, chosen = subject.score_of(key), conv_layers(stack), pick_layer(stack, number)
    maps = activations(layers, lambda: stack(planes))
    return ImageView(
        name,
        planes[0].cpu().numpy(),
        groups,
        chosen.name,
        gradient=gradient_saliency(score, planes) if "gradient" in methods else None,
        occlusion=(
            occlusion(score, planes, [group.planes for group in groups])
            if "occlusion" in methods
            else None
        ),
        cams={method: cam(method, score, chosen, planes) for method in methods if method in CAMS},
        activations={layer: output[0] for layer, output in maps.items()},
    )


def component_names(encoder: ObsEncoder) -> list[str]:
    """Of the vector part: numbers as part[i], one-hot values as part=value."""
    names: list[str] = []
    for vector in encoder.vectors:
        label = vector.name or "obs"
        many = vector.width > 1
        names += [f"{label}[{i}]" if many else label for i in range(vector.width)]
    for one_hot in encoder.one_hots:
        label = one_hot.name or "obs"
        columns, values = one_hot.columns.tolist(), one_hot.values.tolist()
        many = len(set(columns)) > 1
        names += [
            f"{label}[{column}]={value}" if many else f"{label}={value}"
            for column, value in zip(columns, values, strict=True)
        ]
    return names
