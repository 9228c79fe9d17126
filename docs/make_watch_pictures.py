"""Makes the pictures of docs/watch.md: the play window, the terminal view, a grid video.

    .venv/bin/python -m docs.make_watch_pictures

Nothing is drawn by hand: an agent is trained for a few seconds, and the pictures are the window's
surface (SDL's dummy driver needs no display), the terminal view's screen, and a frame of the video.
Look at them before you commit them.
"""

import os
import tempfile
from pathlib import Path
from typing import Any

os.environ.setdefault("SDL_VIDEODRIVER", "dummy")

from PIL import Image
from rich.console import Console

import gymnasium_solver as gs
from docs.make_pictures import IMAGES, SVG
from gymnasium_solver.media.panels import INSIDE
from gymnasium_solver.media.player import Scene, open_scene
from gymnasium_solver.media.record import Shots, grid_frames
from gymnasium_solver.media.session import Options, Session
from gymnasium_solver.media.stage import Stage
from gymnasium_solver.media.terminal import TerminalView
from gymnasium_solver.media.window import Window
from gymnasium_solver.training.targets import Found, find_run

SEED = 2
WINDOW_STEPS, GRID_STEPS = 130, 140


def session_of(found: Found, n_steps: int) -> tuple[Session, Stage]:
    scene = Scene.open(found)
    player = scene.player(SEED, greedy=False, explains=True)
    session = Session(player, Options(scene.stage.fps, title=scene.title), SEED)
    for _ in range(n_steps):
        session.advance()
    return session, scene.stage


def save_window(found: Found, path: Path, n_steps: int, *more: str) -> None:
    """`more`: panels that are not shown by default."""
    session, stage = session_of(found, n_steps)
    window = Window(session)
    window.layout.shown |= set(more)
    window.draw()
    save_small(Image.fromarray(window.picture), path)
    stage.close()


def save_terminal(found: Found, path: Path) -> None:
    session, stage = session_of(found, WINDOW_STEPS)
    with open(os.devnull, "w", encoding="utf-8") as nowhere:
        console = Console(
            file=nowhere,
            record=True,
            width=88,
            height=30,
            force_terminal=True,
            color_system="truecolor",
        )
        console.print(TerminalView(session, console, lambda timeout_s: []).screen())
        svg = console.export_svg(
            title="gsolve play @last --text", code_format=SVG, unique_id="play"
        )
    path.write_text("".join(f"{line.rstrip()}\n" for line in svg.splitlines()), encoding="utf-8")
    stage.close()


def save_grid(found: Found, path: Path) -> None:
    with open_scene(found, 16) as scene:
        shots = Shots(episodes=16, rows=4, columns=4, title=scene.title)
        for t, (frame, _) in enumerate(grid_frames(scene.player(SEED, greedy=False), shots)):
            if t == GRID_STEPS:
                save_small(Image.fromarray(frame), path)
                break


def save_small(image: Image.Image, path: Path) -> None:
    """With a palette: flat colours need no more, and the file is a third as large."""
    image.convert("P", palette=Image.Palette.ADAPTIVE, colors=255).save(path, optimize=True)


def images_run(folder: str) -> Found:
    """A network with convolutions, hardly trained."""
    fields: dict[str, Any] = {"n_epochs": 1, "eval_freq_epochs": None, "test_episodes": 1}
    run = gs.train("ALE/Breakout-v5:ppo", runs_dir=folder, seed=1, max_env_steps=4096, **fields)
    return find_run(f"{run.path}/@last", Path(folder))


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        run = gs.train(
            "CartPole-v1:ppo",
            runs_dir=folder,
            seed=1,
            max_env_steps=6_000,
            early_stop_on_eval_threshold=False,
        )
        found = find_run(f"{run.path}/@last", Path(folder))
        save_window(found, IMAGES / "play.png", WINDOW_STEPS)
        save_terminal(found, IMAGES / "play_terminal.svg")
        save_grid(found, IMAGES / "video_grid.png")
        save_window(images_run(folder), IMAGES / "play_inside.png", 25, *INSIDE)
    for name in ("play.png", "play_inside.png", "play_terminal.svg", "video_grid.png"):
        print(f"{name}: {(IMAGES / name).stat().st_size / 1000:.0f} kB")


if __name__ == "__main__":
    main()
