"""Observations that are rendered frames."""

from collections.abc import Mapping
from typing import Any

import gymnasium
import numpy as np

from gymnasium_solver.envs.suites.game_frames import AreaResize, gray
from gymnasium_solver.envs.vector import Step, VectorEnv, VectorWrapper
from gymnasium_solver.envs.wrappers.parameters import require
from gymnasium_solver.errors import EnvError
from gymnasium_solver.spaces.observations import obs_arrays, part_spaces

NAME = "PixelObservationWrapper"


class PixelObservation(VectorWrapper):
    """Shows the agent rendered frames: uint8 (height, width, 3), or (height, width, 1) with
    `grayscale`. `render_kwargs: {height: 84, width: 84}` shrinks them by area.

    The env is made with render_mode rgb_array; `auto` takes an engine that can draw. Each env is
    drawn at every step, which costs far more than the step itself. With `pixels_only: false` the
    observation is a Dict of `pixels` and `state` (or the parts that the env has).
    """

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
        size = _size(dict(render_kwargs or {}), frame.shape[:2])
        self._shrink = AreaResize(frame.shape[:2], size)
        shape = (*size, 1 if grayscale else 3)
        pixels = gymnasium.spaces.Box(0, 255, shape, np.uint8)
        beside = {key or "state": part for key, part in part_spaces(env.observation_space).items()}
        self.observation_space = (
            pixels if pixels_only else gymnasium.spaces.Dict([("pixels", pixels), *beside.items()])
        )

    def reset(self, seed: int) -> Any:
        return self._seen(self.env.reset(seed))

    def step(self, actions: Any) -> Step:
        # At the end of an episode the env has not been reset yet: what is drawn is the true end.
        step = self.env.step(actions)
        return step._replace(obs=self._seen(step.obs))

    def _seen(self, state: Any) -> Any:
        frames = self._frames()
        if self._pixels_only:
            return frames
        beside = {key or "state": part for key, part in obs_arrays(state)}
        return {"pixels": frames, **beside}

    def _frames(self) -> np.ndarray:
        frames = np.stack([self._draw(index) for index in range(self.n_envs)])
        planes = np.moveaxis(frames, -1, 1)
        if self._grayscale:
            return np.ascontiguousarray(self._shrink(gray(planes))[..., None])
        return np.ascontiguousarray(np.moveaxis(self._shrink(planes), 1, -1))

    def _draw(self, index: int) -> np.ndarray:
        frame = self.env.render(index)
        if frame is None or frame.ndim != 3 or frame.shape[2] != 3:
            got = "nothing" if frame is None else f"an array of shape {frame.shape}"
            raise EnvError(
                f"{self.spec.env_id}: {NAME} needs RGB frames, but the {self.spec.engine} engine "
                f"draws {got}. Leave the wrapper out, or try vectorization_mode sync."
            )
        return frame


def _size(given: dict[str, int], drawn: tuple[int, ...]) -> tuple[int, int]:
    for key in given:
        takes = f"render_kwargs takes height and width, got {key!r}"
        require(key in ("height", "width"), NAME, takes)
    height, width = given.get("height", drawn[0]), given.get("width", drawn[1])
    wrong = f"render_kwargs must be 1 to {drawn[0]} by 1 to {drawn[1]}, got {height} x {width}"
    require(1 <= height <= drawn[0] and 1 <= width <= drawn[1], NAME, wrong)
    return height, width
