"""Gray, resized and stacked observations for any environment.

A config's fields grayscale_obs, resize_obs and frame_stack put these wrappers around environments
that do not have such options themselves (games do). An image is a uint8 array (H, W, 3), (H, W, 1),
(3, H, W), (1, H, W) or (H, W); its layout is kept, except that stacked images have their channels
first: k frames of (H, W, 3) become (3 k, H, W).
"""

from typing import Any, NamedTuple

import gymnasium
import numpy as np

from gymnasium_solver.envs.suites.game_frames import AreaResize, gray
from gymnasium_solver.envs.vector import Step, VectorEnv, VectorWrapper
from gymnasium_solver.envs.wrappers.encode import Map, ObservationMap, Space
from gymnasium_solver.envs.wrappers.parameters import require
from gymnasium_solver.spaces.observations import part_spaces

LEAST_SIDE = 8
"""A smaller uint8 array is a board or a grid of symbols, not an image."""
_spaces = gymnasium.spaces


class FrameLayout(NamedTuple):
    """Where the channels of an image are."""

    channels: int
    height: int
    width: int
    axis: int | None
    """Of the channels in (N, ...): 1 or -1; None: no such axis."""

    def planes(self, obs: np.ndarray) -> np.ndarray:
        """(N, ...) -> (N, channels, height, width)."""
        if self.axis is None:
            return obs[:, None]
        return obs if self.axis == 1 else np.moveaxis(obs, -1, 1)

    def shape(self, channels: int, height: int, width: int) -> tuple[int, ...]:
        if self.axis is None:
            return height, width
        return (channels, height, width) if self.axis == 1 else (height, width, channels)

    def restore(self, planes: np.ndarray) -> np.ndarray:
        """The inverse of `planes`, contiguous."""
        if self.axis is None:
            return np.ascontiguousarray(planes[:, 0])
        return np.ascontiguousarray(planes if self.axis == 1 else np.moveaxis(planes, 1, -1))


def frame_layout(space: Space) -> FrameLayout | None:
    """The layout of an image, or None if the space is not an image."""
    shape = space.shape or ()
    if not isinstance(space, _spaces.Box) or space.dtype != np.uint8:
        return None
    if len(shape) == 2:
        layout = FrameLayout(1, *shape, None)
    elif len(shape) == 3:
        first, last = shape[0] <= shape[2], shape
        layout = (
            FrameLayout(shape[0], *shape[1:], 1) if first else FrameLayout(last[2], *shape[:2], -1)
        )
    else:
        return None
    return layout if min(layout.height, layout.width) >= LEAST_SIDE else None


class ImageMap(ObservationMap):
    """Base of wrappers of images."""

    needs = "image (uint8)"

    def _applies(self, space: Space) -> bool:
        return frame_layout(space) is not None

    def _advice(self, space: Space) -> str:
        is_image = isinstance(space, _spaces.Box) and len(space.shape or ()) == 3
        if not is_image or space.dtype.kind != "f":  # type: ignore[union-attr]
            return ""
        return (
            ". An image has dtype uint8 and values of 0 to 255; put before it: "
            "{id: gymnasium.wrappers.DtypeObservation, dtype: uint8}"
        )


class GrayscaleObservation(ImageMap):
    """Makes RGB images gray, (H, W, 1) or (1, H, W); gray ones stay as they are."""

    name = "GrayscaleObservation"

    def __init__(self, env: VectorEnv, key: str | None = None) -> None:
        super().__init__(env)
        self._map_parts(key)

    def _applies(self, space: Space) -> bool:
        layout = frame_layout(space)
        return layout is not None and layout.channels in (1, 3)

    def _build(self, space: Any) -> tuple[Space, Map]:
        layout = frame_layout(space)
        assert layout is not None
        if layout.channels == 1:
            return space, lambda obs: obs
        shape = layout.shape(1, layout.height, layout.width)

        def to_gray(obs: np.ndarray) -> np.ndarray:
            return layout.restore(gray(layout.planes(obs))[:, None])

        return _spaces.Box(0, 255, shape, np.uint8), to_gray


class ResizeObservation(ImageMap):
    """Resizes images to `shape`, [height, width]: each pixel is the mean of the area it covers."""

    name = "ResizeObservation"

    def __init__(self, env: VectorEnv, shape: list[int], key: str | None = None) -> None:
        super().__init__(env)
        good = len(shape) == 2 and min(shape) >= 1
        require(good, self.name, f"shape must be [height, width], got {shape!r}")
        self._size = (shape[0], shape[1])
        self._map_parts(key)

    def _build(self, space: Any) -> tuple[Space, Map]:
        layout = frame_layout(space)
        assert layout is not None
        resize = AreaResize((layout.height, layout.width), self._size)
        shape = layout.shape(layout.channels, *self._size)

        def resized(obs: np.ndarray) -> np.ndarray:
            return layout.restore(resize(layout.planes(obs)))

        return _spaces.Box(0, 255, shape, np.uint8), resized


class FrameStackObservation(VectorWrapper):
    """Shows the last `stack_size` observations at once, oldest first; an episode begins with its
    first observation repeated.

    Vectors are joined, images stacked along their channels (which come first), discrete numbers
    become a MultiDiscrete. Of a Dict observation every part is stacked, or the one that `key`
    names."""

    effect = "new_obs"
    name = "FrameStackObservation"

    def __init__(self, env: VectorEnv, stack_size: int, key: str | None = None) -> None:
        super().__init__(env)
        wrong = f"stack_size must be an int >= 1, got {stack_size!r}"
        require(stack_size >= 1, self.name, wrong)
        space = env.observation_space
        parts = part_spaces(space)
        is_dict = isinstance(space, _spaces.Dict)
        if key is not None:
            has = f"{env.spec.env_id} has {', '.join(parts) if is_dict else space}"
            require(is_dict and key in parts, self.name, f"key {key!r} is not a part; {has}")
        chosen = [key] if key is not None else list(parts)
        self._stacks = {name: PartStack(parts[name], env.n_envs, stack_size) for name in chosen}
        self._array = None if is_dict else self._stacks[""]
        new = [(n, self._stacks[n].space if n in self._stacks else p) for n, p in parts.items()]
        self.observation_space = _spaces.Dict(new) if is_dict else new[0][1]

    def _push(self, obs: Any, opened: np.ndarray) -> Any:
        if self._array is not None:
            return self._array.push(obs, opened)
        return obs | {n: stack.push(obs[n], opened) for n, stack in self._stacks.items()}

    def reset(self, seed: int) -> Any:
        return self._push(self.env.reset(seed), np.ones(self.n_envs, np.bool_))

    def step(self, actions: Any) -> Step:
        step = self.env.step(actions)
        return step._replace(obs=self._push(step.obs, step.is_reset))


class PartStack:
    """The last observations of one part, for all envs."""

    def __init__(self, space: Any, n_envs: int, n: int) -> None:
        self._layout = frame_layout(space)
        shape = tuple(space.shape or ())
        if self._layout is not None:
            layout = self._layout
            shape = (layout.channels, layout.height, layout.width)
        self._lead = shape[0] if shape else 1
        self._inner = shape[1:]
        self._stack = np.zeros((n_envs, n, self._lead, *self._inner), space.dtype)
        self._n_envs = n_envs
        self.space = self._stacked_space(space, n)

    def _stacked_space(self, space: Any, n: int) -> Space:
        shape = (n * self._lead, *self._inner)
        if isinstance(space, _spaces.Discrete):
            return _spaces.MultiDiscrete([space.n] * n, start=[space.start] * n)
        if isinstance(space, _spaces.MultiDiscrete):
            repeated = [n, *[1] * (space.nvec.ndim - 1)]
            nvec, start = np.tile(space.nvec, repeated), np.tile(space.start, repeated)
            return _spaces.MultiDiscrete(nvec, start=start)
        if isinstance(space, _spaces.MultiBinary):
            return _spaces.MultiBinary(shape)
        if self._layout is not None:
            return _spaces.Box(0, 255, shape, np.uint8)
        low, high = (
            np.tile(bound.reshape(self._lead, *self._inner), (n, *[1] * len(self._inner)))
            for bound in (space.low, space.high)
        )
        return _spaces.Box(low, high, dtype=space.dtype.type)

    def push(self, obs: np.ndarray, opened: np.ndarray) -> np.ndarray:
        """Add the newest observations; rows of `opened` begin with theirs repeated."""
        newest = obs if self._layout is None else self._layout.planes(obs)
        newest = newest.reshape(self._n_envs, self._lead, *self._inner)
        stack = np.empty_like(self._stack)
        stack[:, :-1] = self._stack[:, 1:]
        stack[:, -1] = newest
        stack[opened] = newest[opened, None]
        self._stack = stack
        return stack.reshape(self._n_envs, -1, *self._inner)
