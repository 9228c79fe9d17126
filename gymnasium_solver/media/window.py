"""The windows of `gsolve play`: one session with everything about it, or several episodes at once.

    Window(session, key_map).run()
    GridWindow(rounds(scene, seed, shots), scene.stage.fps, "CartPole-v1").run()

Keys that are held are followed by their events, so that several count at once; a key that was only
tapped between two steps counts for the next one. A grid knows P (pause), + and - (speed) and Q.
"""

import os
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from gymnasium_solver.errors import needing
from gymnasium_solver.media.drawing import fit
from gymnasium_solver.media.keys import BUTTONS, KeyMap
from gymnasium_solver.media.panels import LEAST, Layout, Painter
from gymnasium_solver.media.player import Scene
from gymnasium_solver.media.record import Shots, grid_frames
from gymnasium_solver.media.session import Controls, Pace, Session

MOST_FPS = 60  # the window is drawn at most this often
DEAD_ZONE = 0.25  # of a gamepad's stick
MOST_SIZE = (1280, 960)  # of a grid at first


def import_pygame() -> Any:
    """pygame, without its greeting; MissingError if it is not installed."""
    os.environ.setdefault("PYGAME_HIDE_SUPPORT_PROMPT", "1")
    with needing(
        'a window needs pygame: pip install "gymnasium-solver[play]", or play in the terminal '
        "with --text."
    ):
        import pygame
    return pygame


class _Surface:
    """A window of pygame that shows pictures and ticks until its pace is over."""

    pace: Pace

    def open(self, size: tuple[int, int], title: str) -> None:
        self.pygame = import_pygame()
        self.pygame.display.init()  # not init(), which also opens a sound device
        self.pygame.display.set_caption(title)
        self.resize(*size)

    def resize(self, width: int, height: int) -> None:
        self.screen = self.pygame.display.set_mode((width, height), self.pygame.RESIZABLE)

    def show(self, picture: np.ndarray) -> None:
        height, width = picture.shape[:2]
        body = np.ascontiguousarray(picture).tobytes()
        self.screen.blit(self.pygame.image.frombuffer(body, (width, height), "RGB"), (0, 0))
        self.pygame.display.flip()

    def tick(self, now_s: float) -> None:
        raise NotImplementedError

    def run(self) -> None:
        """Tick until it is over or the window is closed."""
        try:
            clock = self.pygame.time.Clock()
            while not self.pace.is_over:
                self.tick(time.monotonic())
                clock.tick(MOST_FPS)
        finally:
            self.pygame.quit()


class Window(Controls, _Surface):
    def __init__(
        self, session: Session, keys: KeyMap | None = None, layout: Layout | None = None
    ) -> None:
        """`keys`: of the person who plays; None if nobody does."""
        super().__init__(session, keys)
        self.pace, self.layout = session, layout or Layout()
        self.open(self.layout.size, session.options.title)
        self.painter = Painter(session, self.layout, keys.help if keys is not None else [])
        self._held: set[str] = set()
        self._pads = self._open_pads()
        self._pad_keys: set[str] = set()

    def tick(self, now_s: float) -> None:
        """Read what has happened, take the steps that are due, draw."""
        for event in self.pygame.event.get():
            self._take(event, now_s)
        self._read_pads()
        began_s = time.monotonic()
        while not self.session.is_over and self.is_due(now_s):
            self.advance(now_s)
            fast = self.session.speed * self.session.options.fps > MOST_FPS
            if not fast or time.monotonic() - began_s > 1 / MOST_FPS:
                break  # otherwise several steps to one drawing
        self.draw()

    def draw(self) -> None:
        self.picture = self.painter.picture()
        self.show(self.picture)

    def control(self, key: str, now_s: float) -> None:
        told = self.layout.take(key)
        if told is None:
            super().control(key, now_s)
        else:
            self.session.message = told

    # -- input ------------------------------------------------------------------------------

    def _take(self, event: Any, now_s: float) -> None:
        pygame = self.pygame
        if event.type == pygame.QUIT:
            self.session.quit()
        elif event.type == pygame.VIDEORESIZE:
            self.layout.size = max(event.w, LEAST[0]), max(event.h, LEAST[1])
            self.resize(*self.layout.size)
        elif event.type == pygame.MOUSEBUTTONDOWN and event.button == 1:
            self._click(event.pos, now_s)
        elif event.type == pygame.WINDOWFOCUSLOST:
            self._held.clear()  # the window does not see the keys that are let go elsewhere
        elif event.type == pygame.KEYUP:
            self._held.discard(pygame.key.name(event.key))
        elif event.type == pygame.KEYDOWN:
            name = pygame.key.name(event.key)
            if self.keys is not None and name in self.keys.keys:
                self._held.add(name)
                self._tapped.add(name)
            else:
                self.control(name, now_s)

    def _click(self, place: tuple[int, int], now_s: float) -> None:
        x, y = place
        for (left, top, width, height), key in self.painter.buttons:
            if left <= x < left + width and top <= y < top + height:
                self.control(key, now_s)
                return

    def _keys_action(self, keys: KeyMap, now_s: float) -> np.ndarray | None:
        return keys.action(self._held | self._tapped | self._pad_keys, self._axes())

    # -- gamepads ---------------------------------------------------------------------------

    def _open_pads(self) -> list[Any]:
        try:
            self.pygame.joystick.init()
            n = self.pygame.joystick.get_count()
            return [self.pygame.joystick.Joystick(i) for i in range(n)]
        except self.pygame.error:
            return []

    def _read_pads(self) -> None:
        """Sticks, hats and buttons as keys."""
        held: set[str] = set()
        for pad in self._pads:
            x, y = self._stick(pad)
            hat = pad.get_hat(0) if pad.get_numhats() else (0, 0)
            for push, less, more in ((x + hat[0], "left", "right"), (y + hat[1], "down", "up")):
                if abs(push) > 0.5:
                    held.add(more if push > 0 else less)
            for i in range(min(pad.get_numbuttons(), len(BUTTONS))):
                if pad.get_button(i):
                    held.add(BUTTONS[i])
        self._tapped |= held - self._pad_keys
        self._pad_keys = held

    def _axes(self) -> list[float]:
        """The first stick: to the right and up."""
        return list(self._stick(self._pads[0])) if self._pads else []

    def _stick(self, pad: Any) -> tuple[float, float]:
        if pad.get_numaxes() < 2:
            return 0.0, 0.0
        x, y = pad.get_axis(0), -pad.get_axis(1)
        return (x if abs(x) > DEAD_ZONE else 0.0), (y if abs(y) > DEAD_ZONE else 0.0)


# -- several episodes ---------------------------------------------------------------------------


def rounds(
    scene: Scene,
    seed: int,
    shots: Shots,
    *,
    greedy: bool | None = None,
    follows: bool = False,
    n_rounds: int | None = None,
) -> Iterator[tuple[np.ndarray, bool]]:
    """Pictures of all episodes, each with whether it ends a round. If it `follows` a training run,
    every round takes the newest policy, and the last round is that of the policy the run ended
    with."""
    done = 0
    while n_rounds is None or done < n_rounds:
        is_last = follows and not scene.is_training
        if follows:
            scene.refresh()
            shots = replace(shots, title=scene.title)
        yield from grid_frames(scene.player(seed + done, greedy), shots)
        done += 1
        if is_last:
            return


class GridWindow(_Surface):
    def __init__(self, pictures: Iterator[tuple[np.ndarray, bool]], fps: float, title: str) -> None:
        self._pictures, self.pace = pictures, Pace(fps)
        self.picture, _ = next(pictures)
        height, width = self.picture.shape[:2]
        self.open((min(width, MOST_SIZE[0]), min(height, MOST_SIZE[1])), title)

    def tick(self, now_s: float) -> None:
        """Read what has happened, take the next picture if it is due, draw."""
        for event in self.pygame.event.get():
            if event.type == self.pygame.QUIT:
                self.pace.quit()
            elif event.type == self.pygame.VIDEORESIZE:
                self.resize(event.w, event.h)
            elif event.type == self.pygame.KEYDOWN:
                self.pace.control(self.pygame.key.name(event.key))
        if self.pace.is_due(now_s):
            following = next(self._pictures, None)
            if following is None:
                self.pace.quit()
            else:
                self.picture, is_last = following
                self.pace.rest(now_s, is_last)
        self.show(fit(self.picture, *self.screen.get_size()))
