"""Makes the pictures of README.md and docs/cli.md: docs/images/*.svg of the console, curves.png.

    .venv/bin/python -m docs.make_pictures

Nothing is drawn by hand: the real command runs in a pseudo terminal (so not on Windows), and what
its screen shows becomes the SVG; the curves are what `gsolve plot` draws of a second, longer run.
Runs go to a temporary folder. Look at the pictures before you commit them.
"""

import fcntl
import io
import os
import pty
import re
import select
import struct
import subprocess
import sys
import tempfile
import termios
import time
from pathlib import Path
from typing import NamedTuple

from rich.console import Console
from rich.text import Text

from docs.terminal_screen import Screen

IMAGES = Path(__file__).parent / "images"
GSOLVE = [sys.executable, "-m", "gymnasium_solver.cli.main"]
TRAIN = ["train", "CartPole-v1:ppo", "--seed", "1"]
TRAIN_ON = [*TRAIN[:2], "--seed", "2", "--early-stop-on-eval-threshold", "null"]
SLOW_ENV = '''\
import time

import gymnasium as gym
import numpy as np


class SlowDrive(gym.Env):
    """Fourteen steps a second, as a simulator with pictures may have."""

    observation_space = gym.spaces.Box(-1, 1, (4,), np.float32)
    action_space = gym.spaces.Discrete(3)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.state = self.np_random.uniform(-1, 1, 4).astype(np.float32)
        return self.state, {}

    def step(self, action):
        time.sleep(1 / 14)
        self.state = self.np_random.uniform(-1, 1, 4).astype(np.float32)
        return self.state, float(action == 1), False, False, {}


gym.register("SlowDrive-v0", SlowDrive, max_episode_steps=20)
'''
SLOW = ["train", "slow_drive:SlowDrive-v0:ppo", "--n-envs", "1", "--max-env-steps", "20_000"]
LIMIT_S = 120.0


class Shot(NamedTuple):
    """A picture of a command that runs: when the screen matches `when`, or at the end."""

    name: str
    arguments: list[str]
    columns: int
    lines: int
    when: str | None = None
    typed: str = ""
    """Typed as soon as the screen matches; the picture is taken a moment later."""


SHOTS = (
    Shot("train", TRAIN, 108, 60),
    Shot("console-80x24", TRAIN_ON, 80, 24, when=r" (3[5-9]|[4-9]\d)\.\d %"),
    Shot("console-slow", SLOW, 100, 30, when=r"collecting 1\d\d /", typed="\x03"),
)

# rich's own template loads a font from a server, which no page of ours should do.
SVG = """\
<svg class="rich-terminal" viewBox="0 0 {width} {height}" xmlns="http://www.w3.org/2000/svg">
<style>
.{unique_id}-matrix, .{unique_id}-title {{
  font-family: "DejaVu Sans Mono", Menlo, Consolas, "Liberation Mono", monospace;
}}
.{unique_id}-matrix {{ font-size: {char_height}px; line-height: {line_height}px; }}
.{unique_id}-title {{ font-size: 18px; }}
{styles}
</style>
<defs>
<clipPath id="{unique_id}-clip-terminal">
<rect x="0" y="0" width="{terminal_width}" height="{terminal_height}" />
</clipPath>
{lines}
</defs>
{chrome}
<g transform="translate({terminal_x}, {terminal_y})" clip-path="url(#{unique_id}-clip-terminal)">
{backgrounds}
<g class="{unique_id}-matrix">
{matrix}
</g>
</g>
</svg>
"""


def screen_of(shot: Shot, folder: str) -> Screen:
    """What the command shows in a terminal of its own when the picture is taken."""
    pid, ours = pty.fork()
    if pid == 0:  # the command
        os.chdir(folder)
        os.environ.update(TERM="xterm-256color", COLORTERM="truecolor")
        os.environ.update(COLUMNS=str(shot.columns), LINES=str(shot.lines))
        os.execv(GSOLVE[0], [*GSOLVE, *shot.arguments])
    fcntl.ioctl(ours, termios.TIOCSWINSZ, struct.pack("HHHH", shot.lines, shot.columns, 0, 0))
    screen, deadline_s = Screen(), time.monotonic() + LIMIT_S
    while _read(ours, screen, 1.0):
        if shot.when and re.search(shot.when, screen.text()):
            os.write(ours, shot.typed.encode())
            settled_s = time.monotonic() + 1.0
            while time.monotonic() < settled_s:
                _read(ours, screen, 0.05)
            break
        if time.monotonic() > deadline_s:
            raise SystemExit(f"gsolve {' '.join(shot.arguments)}:\n{screen.text()}")
    os.close(ours)  # the kernel sends SIGHUP to the command
    os.waitpid(pid, 0)
    return screen


def _read(terminal: int, screen: Screen, timeout_s: float) -> bool:
    """Feed the screen; False at the end of the output."""
    if not select.select([terminal], [], [], timeout_s)[0]:
        return True
    try:
        block = os.read(terminal, 65536)
    except OSError:  # Linux's way to say that the other end is closed
        return False
    while block and _is_cut(block):
        block += os.read(terminal, 1)
    screen.feed(block.decode())
    return bool(block)


def _is_cut(block: bytes) -> bool:
    """Whether a block ends inside a character or a code."""
    try:
        return re.search(r"\x1b(\[[?0-9;]*)?$", block.decode()) is not None
    except UnicodeDecodeError:
        return True


def save_svg(screen: Screen, shot: Shot, path: Path) -> None:
    console = Console(
        record=True, width=shot.columns, file=io.StringIO(), force_terminal=True, highlight=False
    )
    console.print(Text.from_ansi(screen.ansi().rstrip()), soft_wrap=True)
    title = f"gsolve {' '.join(shot.arguments)}"
    svg = console.export_svg(title=title, code_format=SVG, unique_id="gsolve")
    path.write_text("".join(f"{line.rstrip()}\n" for line in svg.splitlines()), encoding="utf-8")


def main() -> None:
    IMAGES.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "slow_drive.py").write_text(SLOW_ENV)
        for shot in SHOTS:
            save_svg(screen_of(shot, folder), shot, IMAGES / f"{shot.name}.svg")
        picture = str(IMAGES.resolve() / "curves.png")
        for arguments in ([*TRAIN_ON, "-q"], ["plot", "@last", "-o", picture]):
            subprocess.run([*GSOLVE, *arguments], cwd=folder, check=True)
    for path in sorted(IMAGES.iterdir()):
        print(f"{path.name}: {path.stat().st_size / 1000:.0f} kB")


if __name__ == "__main__":
    main()
