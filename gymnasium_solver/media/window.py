"""The windows of `gsolve play`: one session with everything about it, or several episodes at once.

    Window(session, key_map).run()
    GridWindow(rounds(stage, actor, seed, shots, newest), stage.fps, "CartPole-v1").run()

Keys that are held are followed by their events, so that several count at once; a key that was only
tapped between two steps counts for the next one. A grid knows P (pause), + and - (speed) and Q.
"""

import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from gymnasium_solver.media.actors import Actor, NewestPolicy, PolicyActor
from gymnasium_solver.media.canvas import Canvas, import_pygame
from gymnasium_solver.media.keys import BUTTONS, KeyMap
from gymnasium_solver.media.panels import Ranges, draw
from gymnasium_solver.media.player import Player
from gymnasium_solver.media.record import Shots, grid_frames
from gymnasium_solver.media.session import (
    REST_S,
    SAME_KEYS,
    Controls,
    Session,
    changed_speed,
)
from gymnasium_solver.media.stage import Stage

SIZE = (1180, 740)
LEAST = (760, 520)
MOST_FPS = 60  # the window is drawn at most this often
DEAD_ZONE = 0.25  # of a gamepad's stick
MOST_SIZE = (1280, 960)  # of a grid at first


class _Surface:
    """A window of pygame that ticks until it is over."""

    is_over: bool

    def open(self, size: tuple[int, int], title: str) -> None:
        self.pygame = import_pygame()
        self.pygame.display.init()  # not init(), which also opens a sound device
        self.pygame.font.init()
        self.pygame.display.set_caption(title)
        self.resize(size)

    def resize(self, size: tuple[int, int]) -> None:
        self.screen = self.pygame.display.set_mode(size, self.pygame.RESIZABLE)
        self.canvas = Canvas(self.screen)

    def tick(self, now_s: float) -> None:
        raise NotImplementedError

    def run(self) -> None:
        """Until it is over or the window is closed."""
        try:
            clock = self.pygame.time.Clock()
            while not self.is_over:
                self.tick(time.monotonic())
                clock.tick(MOST_FPS)
        finally:
            self.pygame.quit()


class Window(Controls, _Surface):
    def __init__(self, session: Session, keys: KeyMap | None = None) -> None:
        """`keys`: of the person who plays; None if nobody does."""
        super().__init__(session, keys)
        self.open(SIZE, session.options.title)
        self._ranges = Ranges()
        self._held: set[str] = set()
        self._pads = self._open_pads()
        self._pad_keys: set[str] = set()

    @property
    def is_over(self) -> bool:  # type: ignore[override]
        return self.session.is_over

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
        help_lines = self.keys.help if self.keys is not None else []
        draw(self.canvas, self.session, help_lines, self._ranges)
        self.pygame.display.flip()

    def picture(self) -> np.ndarray:
        """What the window shows, uint8 (height, width, 3)."""
        return np.moveaxis(self.pygame.surfarray.array3d(self.screen), 0, 1).copy()

    # -- input ------------------------------------------------------------------------------

    def _take(self, event: Any, now_s: float) -> None:
        pygame = self.pygame
        if event.type == pygame.QUIT:
            self.session.quit()
        elif event.type == pygame.VIDEORESIZE:
            self.resize((max(event.w, LEAST[0]), max(event.h, LEAST[1])))
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
    stage: Stage,
    actor: Actor,
    seed: int,
    shots: Shots,
    newest: NewestPolicy | None = None,
    n_rounds: int | None = None,
) -> Iterator[tuple[np.ndarray, bool]]:
    """Pictures of all episodes, each with whether it ends a round. With `newest`, every round
    takes the newest policy, and the last round is that of the policy the run ended with."""
    done = 0
    while n_rounds is None or done < n_rounds:
        if newest is not None:
            was_training = newest.is_training
            if newest.refresh() and isinstance(actor, PolicyActor):
                actor.take_over(newest.agent)
            shots = replace(shots, title=newest.title)
        yield from grid_frames(Player(stage, actor, seed + done), shots)
        done += 1
        if newest is not None and not was_training:
            return


class GridWindow(_Surface):
    def __init__(self, pictures: Iterator[tuple[np.ndarray, bool]], fps: float, title: str) -> None:
        self._pictures, self._fps = pictures, fps
        self.picture, self._is_last = next(pictures)
        height, width = self.picture.shape[:2]
        self.open((min(width, MOST_SIZE[0]), min(height, MOST_SIZE[1])), title)
        self.speed = 1.0
        self.is_paused = self.is_over = False
        self._next_s = 0.0

    def tick(self, now_s: float) -> None:
        """Read what has happened, take the next picture if it is due, draw."""
        for event in self.pygame.event.get():
            self._take(event)
        if not self.is_paused and now_s >= self._next_s:
            self._advance(now_s)
        self.canvas.clear()
        self.canvas.picture((0, 0, *self.canvas.size), self.picture)
        self.pygame.display.flip()

    def _advance(self, now_s: float) -> None:
        following = next(self._pictures, None)
        if following is None:
            self.is_over = True
            return
        self.picture, self._is_last = following
        pause_s = 1.0 / (self._fps * self.speed)
        if self._is_last:
            pause_s = max(pause_s, REST_S / max(1.0, self.speed))
        self._next_s = now_s + pause_s

    def _take(self, event: Any) -> None:
        if event.type == self.pygame.QUIT:
            self.is_over = True
        elif event.type == self.pygame.VIDEORESIZE:
            self.resize((event.w, event.h))
        elif event.type == self.pygame.KEYDOWN:
            self.control(self.pygame.key.name(event.key))

    def control(self, key: str) -> None:
        key = SAME_KEYS.get(key, key)
        if key == "q":
            self.is_over = True
        elif key == "p":
            self.is_paused = not self.is_paused
        elif key in ("+", "-"):
            self.speed = changed_speed(self.speed, 1 if key == "+" else -1)
            self._next_s = 0.0
