"""Writes the pictures of `gsolve explain` as PNG files and collects the sections of its page."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from PIL import Image

from gymnasium_solver.media import explain_pictures as draw
from gymnasium_solver.media.cams import TITLES as CAMS
from gymnasium_solver.media.explain_look import ImageView, View
from gymnasium_solver.media.explain_page import Figure, Section
from gymnasium_solver.media.filters import ConvLayer, Patch

MOST_BARS = 40
PATCH_CHANNELS = 16  # with their strongest patches


@dataclass(frozen=True)
class Step:
    """An explained step."""

    t: int
    frame: np.ndarray | None
    action: str
    value: float | None
    chance: float | None
    view: View


class Album:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.files: list[str] = []
        self.sections: list[Section] = []

    def save(self, name: str, picture: np.ndarray, caption: str) -> Figure:
        file = f"{name}.png"
        Image.fromarray(picture).save(self.folder / file, optimize=True)
        self.files.append(file)
        return Figure(file, caption)

    # -- the network ------------------------------------------------------------------------

    def add_network(
        self, part: str, layers: Sequence[ConvLayer], shapes: dict[str, tuple[int, ...]]
    ) -> None:
        """Layers, receptive fields and filters of the convolutions of one image part."""
        table: list[Sequence[str]] = [
            ("layer", "channels", "output", "kernel", "stride", "receptive field", "step")
        ]
        figures = []
        for layer in layers:
            conv, field = layer.conv, layer.field
            channels, height, width = shapes[layer.name]
            table.append(
                (
                    layer.name,
                    str(channels),
                    f"{height} x {width}",
                    f"{conv.kernel_size[0]} x {conv.kernel_size[1]}",
                    f"{conv.stride[0]}",
                    f"{field.size[0]} x {field.size[1]}",
                    f"{field.jump[0]}",
                )
            )
            weights = conv.weight.detach().cpu().numpy()
            n_out, n_in = weights.shape[:2]
            shown_out, shown_in = draw.filters_shown(n_out, n_in)
            shown, inputs = f"{shown_out} of {n_out} channels", f"{shown_in} of {n_in} inputs each"
            figures.append(
                self.save(
                    f"filters-{_slug(part, layer.name)}",
                    draw.filter_grid(weights),
                    f"Filters of {layer.name}: {shown}, {inputs}. Orange positive, blue negative.",
                )
            )
        text = (
            "Receptive field: the pixels that can influence one unit. Step: by how many pixels the "
            "fields of neighbouring units are apart."
        )
        self.sections.append(Section(f"Network{_of(part)}", text, table, figures))

    # -- one step ---------------------------------------------------------------------------

    def add_step(self, step: Step) -> None:
        view, figures = step.view, []
        prefix = f"step-{step.t:04d}"
        if step.frame is not None:
            figures.append(self.save(f"{prefix}-frame", step.frame, "The environment"))
        for image in view.images:
            figures += self._image_figures(prefix, image)
        if view.contributions:
            figures.append(self._bars(prefix, view.contributions))
        facts = [f"Chosen: {step.action}"]
        if step.chance is not None:
            facts.append(f"probability {step.chance:.3g}")
        if step.value is not None:
            facts.append(f"value {step.value:.4g}")
        text = f"{', '.join(facts)}. Explained: {view.what}, {view.number:.4g}."
        self.sections.append(Section(f"Step {step.t}", text, [], figures))

    def _image_figures(self, prefix: str, image: ImageView) -> list[Figure]:
        bounds = draw.bounds_of(image.planes)
        pictures = [draw.image_of(image.planes, group, bounds) for group in image.groups]
        labels = [group.label for group in image.groups]
        stem, of = f"{prefix}-{_slug(image.name)}".rstrip("-"), _of(image.name)

        def tiles(made: Sequence[np.ndarray]) -> np.ndarray:
            return draw.strip([(a, draw.enlarge(b)) for a, b in zip(labels, made, strict=True)])

        figures = [self.save(f"{stem}-input", tiles(pictures), f"Input of the network{of}")]
        if image.gradient is not None:
            top = np.stack([image.gradient[group.planes].max(0) for group in image.groups])
            made = map(draw.overlay, pictures, draw.unit(top))
            text = "Gradient saliency: how much a small change of a pixel changes the number"
            figures.append(self.save(f"{stem}-gradient", tiles(list(made)), text))
        if image.occlusion is not None:
            made = map(draw.signed_overlay, pictures, draw.unit(image.occlusion))
            text = "Occlusion: orange, covering it lowers the number; blue, it raises the number"
            figures.append(self.save(f"{stem}-occlusion", tiles(list(made)), text))
        if image.cams:
            newest = pictures[-1]
            shown = [
                (_cam_label(method, map_), draw.enlarge(draw.overlay(newest, draw.stretched(map_))))
                for method, map_ in image.cams.items()
            ]
            titles = ", ".join(CAMS[method] for method in image.cams)
            text = f"Class activation maps of {image.layer}, over the newest frame: {titles}"
            figures.append(self.save(f"{stem}-cams", draw.strip(shown, columns=4), text))
        for layer, maps in image.activations.items():
            text = (
                f"Activations of {layer}: {min(len(maps), draw.MOST_MAPS)} of {len(maps)} channels"
            )
            name = f"{stem}-activations-{_slug(layer)}"
            figures.append(self.save(name, draw.channel_grid(maps), text))
        return figures

    def _bars(self, prefix: str, contributions: Sequence[tuple[str, float]]) -> Figure:
        shown = list(contributions)
        text = "Gradient x input of each component"
        if len(shown) > MOST_BARS:
            ranked = sorted(range(len(shown)), key=lambda i: -abs(shown[i][1]))[:MOST_BARS]
            text += f": the {MOST_BARS} largest of {len(shown)}"
            shown = [shown[i] for i in sorted(ranked)]
        names, numbers = zip(*shown, strict=True)
        return self.save(f"{prefix}-contributions", draw.bars(names, numbers), text)

    # -- patches ----------------------------------------------------------------------------

    def add_patches(
        self,
        part: str,
        layer: str,
        best: Sequence[tuple[int, list[Patch]]],
        pictures: dict[int, np.ndarray],
    ) -> None:
        """`pictures` of the steps in which patches were found."""
        tiles = []
        spans = [(p.bottom - p.top, p.right - p.left) for _, patches in best for p in patches]
        largest = max(side for span in spans for side in span)
        for channel, patches in best:
            cut = [
                pictures[patch.step][patch.top : patch.bottom, patch.left : patch.right]
                for patch in patches
            ]
            tiles.append((f"channel {channel + 1}", draw.patch_row(cut, largest)))
        steps = sorted({patch.step for _, patches in best for patch in patches})
        caption = f"{layer}: the strongest patches of {len(best)} channels, best first (steps " + (
            f"{steps[0]} to {steps[-1]})" if len(steps) > 1 else f"{steps[0]})"
        )
        name = f"patches-{_slug(part, layer)}"
        figure = self.save(name, draw.strip(tiles, columns=4), caption)
        title = f"Maximally activating patches{_of(part)}"
        if not self.sections or self.sections[-1].title != title:
            text = "The parts of the images to which a channel responds most over the episode."
            self.sections.append(Section(title, text))
        self.sections[-1].figures.append(figure)


def _cam_label(method: str, map_: np.ndarray) -> str:
    return CAMS[method] if map_.max() > 0 else f"{CAMS[method]} (all 0)"


def _of(part: str) -> str:
    return f": {part}" if part else ""


def _slug(*words: str) -> str:
    """For file names; parts of observations may have any name."""
    joined = "-".join(word for word in words if word)
    return "".join(c if c.isascii() and c.isalnum() else "-" for c in joined).lower()
