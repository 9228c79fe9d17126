"""Converts raw observations to network input, part by part: the first step of every network.

    encoder = ObsEncoder(observation_space, images=("camera",), normalize="rolling", clip=10.0)
    x = encoder(obs)            # a tensor [B, width], or a dict with images and indices in it

- Box and MultiBinary parts are flattened, concatenated and optionally normalised. uint8 values are
  scaled to [0, 1] by the bounds of their space.
- Discrete and MultiDiscrete parts are one-hot encoded. With `embeds`, or a Discrete part with more
  than `LARGEST_ONE_HOT` values, they stay indices, for embeddings (features.py).
- Image parts keep their axes for convolutions: [B, channels, height, width], with uint8 scaled to
  [0, 1] and each value optionally normalised.

The statistics of the normaliser are saved, loaded and frozen with the network's weights.
"""

import math
from collections.abc import Callable, Collection
from operator import itemgetter
from typing import Any, cast

import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor, nn

from gymnasium_solver.nets.normalizer import NormalizeMode, ObsNormalizer
from gymnasium_solver.spaces.observations import (
    ImageLayout,
    Obs,
    Space,
    image_layout,
    part_spaces,
    unit_scale,
)
from gymnasium_solver.tree import leaves_of, map_tree

TensorObs = Tensor | dict[str, Tensor]  # raw observations as tensors on the network's device
Encoded = Tensor | dict[str, Tensor]
"""Input of the torsos: [B, width], or a dict of the vector (key "") and named images and
indices."""

LARGEST_ONE_HOT = 1024
# Images per forward pass without gradients: activations of convolutions are a hundred times as
# large as the images.
IMAGES_AT_ONCE = {"cpu": 256, "cuda": 4096}
OBS_AT_ONCE = 4096  # rows per update of the normaliser


class ObsEncoder(nn.Module):
    def __init__(
        self,
        space: Space,
        *,
        images: Collection[str] = (),
        embeds: bool = False,
        one_hot: str | None = None,
        normalize: NormalizeMode = False,
        clip: float = 10.0,
    ):
        """`images`: the parts for convolutions; "" for the whole observation. `embeds`: all
        Discrete and MultiDiscrete parts stay indices, for embeddings, except the part `one_hot`."""
        super().__init__()
        self.parts = part_spaces(space)
        self.is_dict = isinstance(space, spaces.Dict)
        self.layouts: dict[str, ImageLayout] = {}
        self.images: list[_Image] = []
        self.index_sizes: dict[str, list[int]] = {}  # parts for embeddings, with their sizes
        self.vectors: list[_Vector] = []
        self.one_hots: list[_OneHot] = []
        for name, part in self.parts.items():
            if name in images:
                layout = image_layout(part)
                assert layout is not None, "network_for rejects other images"
                self.layouts[name] = layout
                self.images.append(_Image(name, part, layout, normalize, clip))
            elif isinstance(part, spaces.Discrete | spaces.MultiDiscrete):
                is_large = isinstance(part, spaces.Discrete) and part.n > LARGEST_ONE_HOT
                if (embeds or is_large) and name != one_hot:
                    self.index_sizes[name] = _sizes(part)[0]
                else:
                    self.one_hots.append(_OneHot(name, part))
            else:
                self.vectors.append(_Vector(name, part))
        self._vector_modules = nn.ModuleList(self.vectors)
        self._one_hot_modules = nn.ModuleList(self.one_hots)
        self._image_modules = nn.ModuleList(self.images)
        bounds = [vector.bounds for vector in self.vectors] or [np.zeros((2, 0))]
        self.normalizer = ObsNormalizer(np.concatenate(bounds, axis=1), normalize, clip)
        self.columns: dict[str, tuple[int, int]] = {}
        """Where each part lies in the vector part of an encoded observation."""
        self.width = 0  # length of that vector
        found = [(v.name, v.width) for v in self.vectors]
        for name, width in found + [(o.name, o.width) for o in self.one_hots]:
            self.columns[name] = (self.width, self.width + width)
            self.width += width

    @property
    def is_vector(self) -> bool:
        """Whether an encoded observation is one tensor [B, width]."""
        return not self.layouts and not self.index_sizes

    def forward(self, obs: TensorObs) -> Encoded:
        parts = obs if isinstance(obs, dict) else {"": obs}
        vector = self._vector(parts)
        if self.is_vector:
            assert vector is not None
            return vector
        encoded = {} if vector is None else {"": vector}
        for image in self.images:
            encoded[f"image {image.name}"] = image(parts[image.name])
        for name in self.index_sizes:
            encoded[f"index {name}"] = self._index(parts[name], self.parts[name])
        return encoded

    def _index(self, obs: Tensor, space: Space) -> Tensor:
        """Indices from 0 on: [B], or [B, components] of a MultiDiscrete part, where each component
        has rows of its own in the embedding."""
        sizes, starts = _sizes(space)
        if isinstance(space, spaces.Discrete):
            return obs.long() - starts[0]
        first_rows = np.cumsum([0, *sizes[:-1]]) - starts
        columns = obs.flatten(1).long().unbind(1)
        moved = [c + int(row) for c, row in zip(columns, first_rows, strict=True)]
        return torch.stack(moved, dim=1)

    def _vector(self, parts: dict[str, Tensor]) -> Tensor | None:
        """Numbers (normalised) followed by one-hot parts: [B, width]."""
        columns = []
        if self.vectors:
            columns.append(self.normalizer(self._numbers(parts)))
        columns += [one_hot(parts[one_hot.name]) for one_hot in self.one_hots]
        if len(columns) <= 1:
            return columns[0] if columns else None
        return torch.cat(columns, dim=1)

    def _numbers(self, parts: dict[str, Tensor]) -> Tensor:
        """All Box and MultiBinary parts as floats, before normalisation."""
        flat = [vector(parts[vector.name]) for vector in self.vectors]
        return flat[0] if len(flat) == 1 else torch.cat(flat, dim=1)

    # -- statistics -------------------------------------------------------------------------

    @property
    def learns_moments(self) -> bool:
        """Whether `observe` has any effect."""
        return self.normalizer.mode == "rolling" and bool(self.vectors or self.images)

    @property
    def has_moments(self) -> bool:
        """Whether anything has been observed yet."""
        own = [self.normalizer, *(image.normalizer for image in self.images)]
        return any(part is not None and float(part.count) > 0 for part in own)

    def observe(self, obs: Obs) -> None:
        """Update the normalisers' running moments with raw observations [n, ...]."""
        if not self.learns_moments:
            return
        arrays = obs if isinstance(obs, dict) else {"": obs}
        n = len(next(iter(arrays.values())))
        at_once = IMAGES_AT_ONCE["cpu"] if self.images else OBS_AT_ONCE
        for start in range(0, n, at_once):
            rows = {k: torch.from_numpy(v[start : start + at_once]) for k, v in arrays.items()}
            if self.vectors:
                self.normalizer.update(self._numbers(rows).numpy())
            for image in self.images:
                image.observe(rows[image.name])

    @torch.no_grad()
    def observe_on_device(self, obs: Tensor) -> None:
        """The same of a tensor [n, ...] on the network's device, which is one vector part."""
        if self.learns_moments:
            self.normalizer.update_on_device(self._numbers({"": obs}))


class _Vector(nn.Module):
    """A Box or MultiBinary part: flat floats, uint8 scaled to [0, 1] by its bounds."""

    low: Tensor
    factor: Tensor

    def __init__(self, name: str, space: Space):
        super().__init__()
        self.name = name
        self.width = math.prod(space.shape or ())
        bounds = np.array([0.0, 1.0])[:, None].repeat(self.width, axis=1)
        if isinstance(space, spaces.Box):
            bounds = np.stack([space.low.reshape(-1), space.high.reshape(-1)]).astype(np.float64)
        low, factor = unit_scale(space) or (np.zeros(1), np.ones(1))
        self.bounds = (bounds - low) * factor
        # Numbers if all components are scaled alike, else buffers.
        self._alike = None
        if len({*zip(low, factor, strict=True)}) == 1:
            self._alike = float(low[0]), float(factor[0])
        else:
            for kind, values in (("low", low), ("factor", factor)):
                self.register_buffer(kind, torch.from_numpy(values).float(), persistent=False)

    def forward(self, obs: Tensor) -> Tensor:
        flat = obs.flatten(1) if obs.ndim > 1 else obs.unsqueeze(1)
        flat = flat.float()
        if self._alike is None:
            return (flat - self.low) * self.factor
        low, factor = self._alike
        if low:
            flat = flat - low
        return flat if factor == 1.0 else flat * factor


class _Image(nn.Module):
    """An image part: planes of floats, uint8 scaled to [0, 1] by its bounds."""

    def __init__(
        self, name: str, space: Space, layout: ImageLayout, normalize: NormalizeMode, clip: float
    ):
        super().__init__()
        self.name, self.layout = name, layout
        self._range = _uint8_range(space) if space.dtype == np.uint8 else None
        self._numbers = _Vector(name, space)
        self.normalizer: ObsNormalizer | None = None
        if normalize:
            self.normalizer = ObsNormalizer(self._numbers.bounds, normalize, clip)

    def forward(self, obs: Tensor) -> Tensor:
        if self.normalizer is not None:  # elementwise, in the order of the space
            return self.layout.planes(self.normalizer(self._numbers(obs)).view(obs.shape))
        planes = self.layout.planes(obs)
        # GPUs convolve in channels-last memory format and would otherwise convert for each layer.
        order = torch.channels_last if obs.is_cuda else torch.preserve_format
        planes = planes.to(torch.float32, memory_format=order)
        if self._range is None:
            return planes
        low, high = self._range
        return planes.mul_(1.0 / (high - low)) if low == 0 else (planes - low) / (high - low)

    def observe(self, obs: Tensor) -> None:
        if self.normalizer is not None:
            self.normalizer.update(self._numbers(obs).numpy())


class _OneHot(nn.Module):
    """A Discrete or MultiDiscrete part, one-hot per component."""

    values: Tensor
    columns: Tensor

    def __init__(self, name: str, space: spaces.Discrete | spaces.MultiDiscrete):
        super().__init__()
        self.name = name
        sizes, starts = _sizes(space)
        self.sizes, self.width = sizes, sum(sizes)
        # The value of each output column, and the component it belongs to.
        values = np.concatenate([s + np.arange(n) for n, s in zip(sizes, starts, strict=True)])
        self._components = np.repeat(np.arange(len(sizes)), sizes)
        self.register_buffer("values", torch.from_numpy(values), persistent=False)
        columns = torch.from_numpy(self._components)
        self.register_buffer("columns", columns, persistent=False)

    def forward(self, obs: Tensor) -> Tensor:
        if obs.ndim == 1:
            return (obs.unsqueeze(1) == self.values).float()
        numbers = obs.flatten(1)
        return (numbers.index_select(1, self.columns) == self.values).float()


def _sizes(space: Space) -> tuple[list[int], list[int]]:
    """Numbers of values and first values of the components of a Discrete or MultiDiscrete space."""
    if isinstance(space, spaces.Discrete):
        return [int(space.n)], [int(space.start)]
    several = cast(spaces.MultiDiscrete, space)
    return [int(n) for n in several.nvec.reshape(-1)], [int(s) for s in several.start.reshape(-1)]


def _uint8_range(space: Space) -> tuple[float, float]:
    """Lowest and highest value of a uint8 space; [0, 255] if its bounds are not informative."""
    box = cast(spaces.Box, space)
    low, high = float(box.low.min()), float(box.high.max())
    return (low, high) if high > low else (0.0, 255.0)


@torch.no_grad()
def in_chunks(network: Callable[[Any], Any], obs: Any, has_images: bool) -> Any:
    """`network(obs)` without gradients, in chunks for image observations; any tree of tensors."""
    first = leaves_of(obs)[0]
    at_once = IMAGES_AT_ONCE.get(first.device.type, IMAGES_AT_ONCE["cpu"])
    n = len(first)
    if not has_images or n <= at_once:
        return network(obs)
    parts = []
    for start in range(0, n, at_once):
        rows = slice(start, start + at_once)
        parts.append(network(map_tree(itemgetter(rows), obs)))
    if isinstance(parts[0], Tensor):
        return torch.cat(parts)
    return tuple(torch.cat(outputs) for outputs in zip(*parts, strict=True))
