"""Frames: gray, resized, stacked and rendered observations for any environment.

    shrink = AreaResize((120, 160), (84, 84))
    stack = FrameStack(Box(0, 255, (1, 84, 84), uint8), n=4)
    obs = stack.push(shrink(frames), opened)        # uint8 (N, 4, 84, 84), fresh each time

A config's fields grayscale_obs, resize_obs and frame_stack put the wrappers around environments
that do not have such options themselves; games that do use the same functions. An image is a uint8
array (H, W, 3), (H, W, 1), (3, H, W), (1, H, W) or (H, W); its layout is kept, except that stacked
images have their channels first: k frames of (H, W, 3) become (3 k, H, W). NumPy only, exact on any
machine.
"""

from collections.abc import Mapping
from math import gcd
from typing import Any, NamedTuple

import numpy as np
from gymnasium import spaces

from gymnasium_solver.envs.vector import ObservationWrapper, VectorEnv
from gymnasium_solver.envs.wrappers import id_of
from gymnasium_solver.envs.wrappers.observations import Map, ObservationMap, parts_named
from gymnasium_solver.envs.wrappers.options import require
from gymnasium_solver.errors import EnvError
from gymnasium_solver.spaces import space_types
from gymnasium_solver.spaces.observations import obs_arrays, part_spaces, space_of
from gymnasium_solver.spaces.space_types import Space

LEAST_SIDE = 8  # a smaller uint8 array is a board or a grid of symbols, not an image
# Luma weights in 256ths. ITU-R BT.601 is what gray frames are usually made with; VizDoom's own gray
# is 0.21 R + 0.72 G + 0.07 B.
BT601 = (77, 150, 29)
VIZDOOM_GRAY = (54, 184, 18)


def gray(planes: np.ndarray, weights: tuple[int, int, int] = BT601) -> np.ndarray:
    """RGB planes (..., 3, H, W) uint8 -> gray (..., H, W) uint8, rounded down.

    Integer arithmetic only: floats would round differently where the compiler fuses a product and
    a sum (aarch64), and the agent's observations would depend on the machine."""
    weighted = planes.astype(np.uint16)
    weighted *= np.array(weights, np.uint16)[:, None, None]
    total = weighted[..., 0, :, :]
    total += weighted[..., 1, :, :]
    total += weighted[..., 2, :, :]
    total >>= 8
    return total.astype(np.uint8)


class AreaResize:
    """Resizes uint8 frames (..., H, W): each pixel is the mean of the area that it covers.

    Sizes are cut by their common divisor into equal blocks with whole-number weights, and summed as
    such: exact on any machine. No matrix product, whose threads would fight for the cores that the
    games run on (8 frames of 120 x 160: 0.44 ms, against 1.3 with one thread and 8 with two)."""

    def __init__(self, size_in: tuple[int, int], size_out: tuple[int, int]) -> None:
        self.size_in, self.size_out = size_in, size_out
        self._rows, self._columns = map(_overlaps, size_in, size_out)
        self._total = self._rows.shape[1] * self._columns.shape[1]

    def __call__(self, frames: np.ndarray) -> np.ndarray:
        if self.size_in == self.size_out:
            return frames
        flat = frames.reshape(-1, *self.size_in)
        # The axis that is summed comes first each time, so that the sums run over whole stretches.
        tall = _sum_areas(np.moveaxis(flat, 1, 0), self._rows)  # (h, n, W)
        small = _sum_areas(np.moveaxis(tall, 2, 0), self._columns)  # (w, h, n)
        mean = (small + self._total // 2) // self._total
        return mean.transpose(2, 1, 0).astype(np.uint8).reshape(*frames.shape[:-2], *self.size_out)


def _overlaps(n_in: int, n_out: int) -> np.ndarray:
    """[outputs, inputs] of one block: how much of each input pixel an output pixel covers."""
    divisor = gcd(n_in, n_out)
    wide, narrow = n_in // divisor, n_out // divisor
    start_out = np.arange(narrow)[:, None] * wide
    start_in = np.arange(wide)[None] * narrow
    shared = np.minimum(start_out + wide, start_in + narrow) - np.maximum(start_out, start_in)
    return np.maximum(shared, 0)


def _sum_areas(values: np.ndarray, overlaps: np.ndarray) -> np.ndarray:
    """Weighted sums along the first axis, one for each output pixel."""
    n_out, n_in = overlaps.shape
    dtype: Any = np.uint16 if values.dtype == np.uint8 and 255 * n_in < 2**16 else np.uint32
    blocks = values.astype(dtype, order="C").reshape(-1, n_in, *values.shape[1:])
    sums = np.empty((len(blocks), n_out, *values.shape[1:]), dtype)
    for i, weights in enumerate(overlaps):
        first, *others = np.flatnonzero(weights)
        np.multiply(blocks[:, first], dtype(weights[first]), out=sums[:, i])
        for j in others:
            sums[:, i] += blocks[:, j] * dtype(weights[j])
    return sums.reshape(-1, *values.shape[1:])


class FrameLayout(NamedTuple):
    """Where the channels of an image are."""

    channels: int
    height: int
    width: int
    axis: int | None  # the axis of the channels in (N, ...): 1 or -1; None: there is no such axis

    def planes(self, obs: np.ndarray) -> np.ndarray:
        """(N, ...) -> (N, channels, height, width)."""
        return obs[:, None] if self.axis is None else np.moveaxis(obs, self.axis, 1)

    def restore(self, planes: np.ndarray) -> np.ndarray:
        """The inverse of `planes`, contiguous."""
        moved = planes[:, 0] if self.axis is None else np.moveaxis(planes, 1, self.axis)
        return np.ascontiguousarray(moved)

    def mapped(self, to_planes: Map, channels: int, height: int, width: int) -> tuple[Space, Map]:
        """The space of images of this size in the same layout, and a function of planes as one of
        such images."""
        shape = self.restore(np.empty((1, channels, height, width), np.uint8)).shape[1:]
        box = spaces.Box(0, 255, shape, np.uint8)
        return box, lambda obs: self.restore(to_planes(self.planes(obs)))


def frame_layout(space: Space) -> FrameLayout | None:
    """The layout of an image, or None if the space is not an image."""
    shape = space.shape or ()
    if not space_types.is_box(space) or space.dtype != np.uint8 or len(shape) not in (2, 3):
        return None
    if len(shape) == 2:
        layout = FrameLayout(1, *shape, None)
    else:
        a, b, c = shape
        layout = FrameLayout(a, b, c, axis=1) if a <= c else FrameLayout(c, a, b, axis=-1)
    return layout if min(layout.height, layout.width) >= LEAST_SIDE else None


class ImageMap(ObservationMap):
    """Base of wrappers of images."""

    needs = "image (uint8)"

    def _applies(self, space: Space) -> bool:
        return frame_layout(space) is not None

    def _advice(self, space: Space) -> str:
        if not space_types.is_box(space) or len(space.shape) != 3 or space.dtype.kind != "f":
            return ""
        return (
            ". An image has dtype uint8 and values of 0 to 255; put before it: "
            "{id: gymnasium.wrappers.DtypeObservation, dtype: uint8}"
        )


class GrayscaleObservation(ImageMap):
    """Makes RGB images gray, (H, W, 1) or (1, H, W); gray ones stay as they are."""

    def _applies(self, space: Space) -> bool:
        layout = frame_layout(space)
        return layout is not None and layout.channels in (1, 3)

    def _build(self, space: Any) -> tuple[Space, Map]:
        layout = frame_layout(space)
        assert layout is not None
        if layout.channels == 1:
            return space, lambda obs: obs
        size = layout.height, layout.width
        return layout.mapped(lambda planes: gray(planes)[:, None], 1, *size)


class ResizeObservation(ImageMap):
    """Resizes images to `shape`, [height, width]: each pixel is the mean of the area it covers."""

    def __init__(self, env: VectorEnv, shape: list[int], key: str | None = None) -> None:
        good = len(shape) == 2 and min(shape) >= 1
        require(good, self, f"shape must be [height, width], got {shape!r}")
        self._size = (shape[0], shape[1])
        super().__init__(env, key)

    def _build(self, space: Any) -> tuple[Space, Map]:
        layout = frame_layout(space)
        assert layout is not None
        resize = AreaResize((layout.height, layout.width), self._size)
        return layout.mapped(resize, layout.channels, *self._size)


class FrameStackObservation(ObservationWrapper):
    """Shows the last `stack_size` observations at once, oldest first; an episode begins with its
    first observation repeated.

    Vectors are joined, images stacked along their channels (which come first), discrete numbers
    become a MultiDiscrete. Of a Dict observation every part is stacked, or the one that `key`
    names."""

    effect = "new_obs"

    def __init__(self, env: VectorEnv, stack_size: int, key: str | None = None) -> None:
        super().__init__(env)
        wrong = f"stack_size must be an int >= 1, got {stack_size!r}"
        require(stack_size >= 1, self, wrong)
        self._stacks = {
            name: FrameStack(part, stack_size) for name, part in parts_named(self, key).items()
        }
        parts = part_spaces(env.observation_space)
        self.observation_space = space_of(parts | {n: s.space for n, s in self._stacks.items()})

    def seen(self, obs: Any, opened: np.ndarray) -> Any:
        if "" in self._stacks:
            return self._stacks[""].push(obs, opened)
        return obs | {name: stack.push(obs[name], opened) for name, stack in self._stacks.items()}


class FrameStack:
    """The last `n` observations of one part, oldest first; images are stacked along their channels,
    which come first."""

    def __init__(self, space: Any, n: int) -> None:
        self._layout = layout = frame_layout(space)
        self._n, self._shape = n, tuple(space.shape or (1,))
        if layout is not None:
            self._shape = (layout.channels, layout.height, layout.width)
        self.space = self._stacked_space(space)
        self._stack: np.ndarray | None = None

    def _stacked_space(self, space: Any) -> Space:
        n, (lead, *inner) = self._n, self._shape
        if space_types.is_discrete(space):
            return spaces.MultiDiscrete([int(space.n)] * n, start=[int(space.start)] * n)
        repeated = (n, *[1] * len(inner))
        if space_types.is_multi_discrete(space):
            nvec, start = np.tile(space.nvec, repeated), np.tile(space.start, repeated)
            return spaces.MultiDiscrete(nvec, start=start)
        if space_types.is_multi_binary(space):
            return spaces.MultiBinary((n * lead, *inner))
        if self._layout is not None:
            return spaces.Box(0, 255, (n * lead, *inner), np.uint8)
        low, high = (np.tile(end.reshape(self._shape), repeated) for end in (space.low, space.high))
        return spaces.Box(low, high, dtype=space.dtype.type)

    def push(self, obs: np.ndarray, opened: np.ndarray) -> np.ndarray:
        """Add the newest of all envs; rows of the bool mask `opened` begin with theirs repeated."""
        planes = obs if self._layout is None else self._layout.planes(obs)
        newest = planes.reshape(len(obs), *self._shape)
        stack = np.empty((len(obs), self._n, *self._shape), newest.dtype)
        stack[:, -1] = newest
        if self._stack is not None:
            stack[:, :-1] = self._stack[:, 1:]
        stack[opened] = newest[opened, None]
        self._stack = stack
        return stack.reshape(len(obs), -1, *self._shape[1:])


class PixelObservation(ObservationWrapper):
    """Shows the agent rendered frames: uint8 (height, width, 3), or (height, width, 1) with
    `grayscale`. `render_kwargs: {height: 84, width: 84}` shrinks them by area.

    The env is made with render_mode rgb_array; `auto` takes an engine that can draw. Each env is
    drawn at every step, which costs far more than the step itself. With `pixels_only: false` the
    observation is a Dict of `pixels` and `state` (or the parts that the env has)."""

    effect = "new_obs"

    def __init__(
        self,
        env: VectorEnv,
        pixels_only: bool = True,
        render_kwargs: Mapping[str, int] | None = None,
        grayscale: bool = False,
    ) -> None:
        super().__init__(env)
        self._grayscale, self._pixels_only = grayscale, pixels_only
        env.reset(0)  # frames and their size exist only after a reset
        frame = self._draw(0)
        size = self._size(dict(render_kwargs or {}), frame.shape[:2])
        self._shrink = AreaResize(frame.shape[:2], size)
        shape = (*size, 1 if grayscale else 3)
        pixels = spaces.Box(0, 255, shape, np.uint8)
        others = {key or "state": part for key, part in part_spaces(env.observation_space).items()}
        self.observation_space = pixels if pixels_only else space_of({"pixels": pixels} | others)

    def seen(self, obs: Any, opened: np.ndarray) -> Any:
        # At the end of an episode the env has not been reset yet: what is drawn is the true end.
        drawn = np.stack([self._draw(index) for index in range(self.n_envs)])
        planes = np.moveaxis(drawn, -1, 1)
        planes = gray(planes)[:, None] if self._grayscale else planes
        frames = np.ascontiguousarray(np.moveaxis(self._shrink(planes), 1, -1))
        if self._pixels_only:
            return frames
        return {"pixels": frames} | {key or "state": part for key, part in obs_arrays(obs)}

    def _draw(self, index: int) -> np.ndarray:
        frame = self.env.render(index)
        if frame is None or frame.ndim != 3 or frame.shape[2] != 3:
            got = "nothing" if frame is None else f"an array of shape {frame.shape}"
            raise EnvError(
                f"{self.spec.env_id}: {id_of(self)} needs RGB frames, but the {self.spec.engine} "
                f"engine draws {got}. Leave the wrapper out, or try vectorization_mode sync."
            )
        return frame

    def _size(self, given: dict[str, int], drawn: tuple[int, ...]) -> tuple[int, int]:
        for key in given:
            takes = f"render_kwargs takes height and width, got {key!r}"
            require(key in ("height", "width"), self, takes)
        height, width = given.get("height", drawn[0]), given.get("width", drawn[1])
        wrong = f"render_kwargs must be 1 to {drawn[0]} by 1 to {drawn[1]}, got {height} x {width}"
        require(1 <= height <= drawn[0] and 1 <= width <= drawn[1], self, wrong)
        return height, width
