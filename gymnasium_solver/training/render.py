"""`gsolve train --render`: a window that shows the policy at play while it trains.

The window is a process of its own, `gsolve play RUN --grid RxC --follow`, so training is not slowed
by drawing, and learns the same with or without it. The observer asks for a checkpoint every
`FRESH_S` seconds while the window is open; closing the window does not end the training.
"""

import logging
import math
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from gymnasium_solver.config.schema import Config
from gymnasium_solver.errors import ConfigError
from gymnasium_solver.runs.query import RunSummary
from gymnasium_solver.runs.run import Run
from gymnasium_solver.training.observer import Control, EvalResult, Observer, TrainInfo
from gymnasium_solver.training.videos import Process, can_record, start_process

FRESH_S = 5.0
CLOSE_S = 5.0
MOST_TILES = 16
log = logging.getLogger(__name__)


def check_render(config: Config, has_display: bool) -> None:
    """ConfigError if no window can show this config."""
    if not can_record(config):
        raise ConfigError(
            "--render: the environment was given as Python code, which no other process has. "
            "Register it."
        )
    if not has_display:
        raise ConfigError(
            "--render needs a display. In a terminal: gsolve play @last --follow --text; in a "
            "browser: gsolve ui."
        )


def grid_for(n_envs: int) -> tuple[int, int]:
    """Rows and columns with a tile for each training env, up to 16."""
    n = min(n_envs, MOST_TILES)
    rows = max(1, math.isqrt(n))
    return rows, min(math.ceil(n / rows), MOST_TILES // rows)


class LiveWindow(Observer):
    def __init__(self, launch: Callable[[list[str], Path], Process] | None = None) -> None:
        self._launch = launch or start_process
        self._process: Process | None = None
        self._is_done = False
        self._control = Control()
        self._run: Run | None = None
        self._grid = (1, 1)
        self._asked_s = -math.inf

    def on_start(self, run: Run, config: Config, info: TrainInfo) -> None:
        self._run, self._control, self._grid = run, info.control, grid_for(config.n_envs)

    def on_epoch(self, row: dict[str, Any]) -> None:
        if self._process is not None and (code := self._process.poll()) is not None:
            self._closed(code)
        if not self._is_done and time.monotonic() - self._asked_s >= FRESH_S:
            self._asked_s = time.monotonic()
            self._control.checkpoint()

    def on_checkpoint(self, path: Path, kind: str) -> None:
        if self._process is None and not self._is_done and self._run is not None:
            self._process = self._launch(command(self._run, self._grid), self._folder())

    def on_end(self, summary: RunSummary, final: dict[str, EvalResult]) -> None:
        process, self._is_done = self._process, True
        if process is None:
            return
        process.kill()
        try:
            process.wait(CLOSE_S)
        except subprocess.TimeoutExpired:
            log.warning("the window of --render did not close")

    def _folder(self) -> Path:
        """Holds what the process prints."""
        assert self._run is not None
        folder = self._run.path / "render"
        folder.mkdir(exist_ok=True)
        return folder

    def _closed(self, code: int) -> None:
        """The window was closed, or could not be opened."""
        self._process, self._is_done = None, True
        if code:
            said = (self._folder() / "err").read_text(errors="replace").strip().splitlines()
            log.warning("--render: %s", said[-1] if said else f"exit code {code}")


def command(run: Run, grid: tuple[int, int]) -> list[str]:
    return [
        *(sys.executable, "-m", "gymnasium_solver", "play", str(run.path.resolve())),
        *("--grid", f"{grid[0]}x{grid[1]}", "--follow", "--trust"),  # a run of this process
    ]
