"""Pictures in a terminal."""

import numpy as np
from rich.console import Console

from gymnasium_solver.media.drawing import HalfBlocks


def test_half_blocks_keep_proportions_and_colours() -> None:
    frame = np.zeros((100, 200, 3), np.uint8)
    frame[:50] = (255, 0, 0)
    console = Console(force_terminal=True, color_system="truecolor", width=80)
    lines = console.render_lines(HalfBlocks(frame, columns=40, rows=20), pad=False)
    assert len(lines) == 10  # two pixels a sign: as wide as high
    assert {sum(len(segment.text) for segment in line) for line in lines} == {40}
    assert str(lines[0][0].style) == "#ff0000 on #ff0000"
    assert str(lines[-1][0].style) == "#000000 on #000000"
