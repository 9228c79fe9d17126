"""Makes the pictures of README.md: docs/images/train.svg and docs/images/curves.png.

    .venv/bin/python docs/make_pictures.py

Nothing is drawn by hand: the real command runs in a pseudo terminal (so not on Windows), and what
its screen shows at the end becomes the SVG; the curves are what `gsolve plot` draws of a second,
longer run. Runs go to a temporary folder. Look at both pictures before you commit them.
"""

import io
import os
import pty
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from rich.console import Console
from rich.text import Text

IMAGES = Path(__file__).parent / "images"
COLUMNS, LINES = 108, 60
GSOLVE = [sys.executable, "-m", "gymnasium_solver.cli.main"]
TRAIN = ["train", "CartPole-v1:ppo", "--seed", "1"]
TRAIN_ON = [*TRAIN, "--early-stop-on-eval-threshold", "null", "-q"]
# The control codes by which a live display goes back to its first line to draw itself anew.
REDRAW = re.compile(r"\r\x1b\[2K(?:\x1b\[1A\x1b\[2K)*")
OTHER_CODES = re.compile(r"\x1b\[\?[0-9;]*[a-z]")

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


def gsolve_in_terminal(arguments: list[str], folder: str) -> str:
    """Everything the command writes to a terminal of COLUMNS x LINES."""
    ours, theirs = pty.openpty()
    size = {"COLUMNS": str(COLUMNS), "LINES": str(LINES)}
    colours = {"TERM": "xterm-256color", "COLORTERM": "truecolor"}
    process = subprocess.Popen(
        [*GSOLVE, *arguments],
        cwd=folder,
        env=os.environ | size | colours,
        stdout=theirs,
        stderr=theirs,
        stdin=subprocess.DEVNULL,
    )
    os.close(theirs)
    written = b""
    while True:
        try:
            block = os.read(ours, 65536)
        except OSError:  # Linux's way to say that the other end is closed
            break
        if not block:
            break
        written += block
    os.close(ours)
    if process.wait() != 0:
        raise SystemExit(f"gsolve {' '.join(arguments)} failed:\n{written.decode()}")
    return written.decode().replace("\r\n", "\n")


def last_screen(written: str) -> Text:
    """What stands on the screen when the command has ended."""
    return Text.from_ansi(OTHER_CODES.sub("", REDRAW.split(written)[-1]).rstrip())


def save_svg(screen: Text, title: str, path: Path) -> None:
    console = Console(
        record=True, width=COLUMNS, file=io.StringIO(), force_terminal=True, highlight=False
    )
    console.print(screen, soft_wrap=True)
    svg = console.export_svg(title=title, code_format=SVG, unique_id="gsolve")
    path.write_text("".join(f"{line.rstrip()}\n" for line in svg.splitlines()), encoding="utf-8")


def main() -> None:
    IMAGES.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        screen = last_screen(gsolve_in_terminal(TRAIN, folder))
        save_svg(screen, f"gsolve {' '.join(TRAIN)}", IMAGES / "train.svg")
        picture = str(IMAGES.resolve() / "curves.png")
        for arguments in (TRAIN_ON, ["plot", "@last", "-o", picture]):
            subprocess.run([*GSOLVE, *arguments], cwd=folder, check=True)
    for path in sorted(IMAGES.iterdir()):
        print(f"{path.name}: {path.stat().st_size / 1000:.0f} kB")


if __name__ == "__main__":
    main()
