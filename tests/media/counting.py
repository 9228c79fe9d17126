"""An environment that draws its count, a config of it, and reading videos."""

from importlib.util import find_spec
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest

from gymnasium_solver.training.prepare import build_config
from tests.small import RUN

COUNTING = "GsolveMedia/Counting-v0"
BLOCK = 8  # pixels of a bit
SPEC: dict[str, Any] = {
    "render_fps": 20,
    "action_space": {"labels": ["go_left", "go_right"]},
    "observation_space": {"components": [{"name": "count", "range": [0, 10]}, {"name": "luck"}]},
}
SMALL = RUN | {"seed": 1, "max_epochs": 2}


class Counting(gymnasium.Env[np.ndarray, Any]):
    """Counts its steps, draws the count in bits, pays the count; 3 to 7 steps an episode."""

    metadata = {"render_modes": ["rgb_array"], "render_fps": 12}
    observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (2,), np.float32)
    action_space: gymnasium.spaces.Space[Any] = gymnasium.spaces.Discrete(2)

    def __init__(self, render_mode: str | None = None, length: int | None = None) -> None:
        self.render_mode, self.fixed = render_mode, length
        self.count, self.length = 0, 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.count = 0
        self.length = self.fixed or int(self.np_random.integers(3, 8))
        return self._look(), {}

    def _look(self) -> np.ndarray:
        return np.array([self.count, self.np_random.normal()], np.float32)

    def step(self, action: Any) -> Any:
        self.count += 1
        is_over = self.count >= self.length
        return self._look(), float(self.count), is_over, False, {"n": self.count}

    def render(self) -> np.ndarray:
        return picture_of(self.count)


def picture_of(count: int) -> np.ndarray:
    """45 x 67 pixels, both odd; the lowest bit on the left."""
    picture = np.full((45, 67, 3), 60, np.uint8)
    for bit in range(8):
        shade = 250 if count >> bit & 1 else 5
        picture[:BLOCK, bit * BLOCK : (bit + 1) * BLOCK] = shade
    return picture


def count_in(picture: np.ndarray, scale: int = 1, top: int = 0, left: int = 0) -> int:
    """Read the count from a picture, or from a tile at (top, left)."""
    size = BLOCK * scale
    block = picture[top : top + size, left : left + 8 * size].astype(float).mean(axis=2)
    level = block.reshape(size, 8, size).mean(axis=(0, 2))
    return int(sum(1 << bit for bit in range(8) if level[bit] > 45))  # 87 where dimmed


if COUNTING not in gymnasium.registry:
    gymnasium.register(COUNTING, Counting)  # type: ignore[arg-type]


def counting_config(**fields: Any) -> Any:
    base = {"env_id": COUNTING, "algo_id": "ppo", "spec": SPEC, "vectorization_mode": "sync"}
    return build_config({**base, **SMALL, **fields})


def read_video(path: Path) -> tuple[dict[str, Any], list[np.ndarray]]:
    """Its properties and its frames, by ffmpeg; skips the test without it."""
    ffmpeg = pytest.importorskip("imageio_ffmpeg", reason="the extra `video` is not installed")
    reader = ffmpeg.read_frames(str(path))
    facts = next(reader)
    width, height = facts["size"]
    frames = [np.frombuffer(body, np.uint8).reshape(height, width, 3) for body in reader]
    return facts, frames


needs_ffmpeg = pytest.mark.skipif(
    find_spec("imageio_ffmpeg") is None,
    reason="the extra `video` (imageio-ffmpeg) is not installed",
)
