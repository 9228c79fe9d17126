"""Pictures: scaled by whole numbers, in grids, in a terminal."""

import numpy as np
import pytest
from rich.console import Console

from gymnasium_solver.media.drawing import GAP, HalfBlocks, cut, grid, resized, scale_for
from tests.media.counting import count_in, picture_of


def test_half_blocks_keep_proportions_and_colours() -> None:
    frame = np.zeros((100, 200, 3), np.uint8)
    frame[:50] = (255, 0, 0)
    console = Console(force_terminal=True, color_system="truecolor", width=80)
    lines = console.render_lines(HalfBlocks(frame, columns=40, rows=20), pad=False)
    assert len(lines) == 10  # two pixels a sign: as wide as high
    assert {sum(len(segment.text) for segment in line) for line in lines} == {40}
    assert str(lines[0][0].style) == "#ff0000 on #ff0000"
    assert str(lines[-1][0].style) == "#000000 on #000000"


def test_pictures_are_scaled_by_whole_numbers() -> None:
    assert scale_for((45, 67), 640, 480) == 9
    assert scale_for((45, 67), 70, 480) == 1
    assert scale_for((400, 600), 300, 300) == 0.5
    assert scale_for((400, 600), 299, 300) == pytest.approx(1 / 3)
    assert scale_for((400, 600), 540, 999) == 0.9
    assert count_in(resized(picture_of(5), 3.0), 3) == 5
    assert resized(picture_of(5), 0.5).shape == (23, 34, 3)
    assert resized(picture_of(5), 0.9).shape == (40, 60, 3)
    three = grid([np.full((4, 6, 3), n, np.uint8) for n in (1, 2, 3)], 2, 2)
    assert three.shape == (2 * (4 + GAP) + GAP, 2 * (6 + GAP) + GAP, 3)
    assert three[GAP, GAP, 0] == 1
    assert three[2 * GAP + 4, GAP, 0] == 3
    assert cut("a long caption", 40, 14).endswith("…")
