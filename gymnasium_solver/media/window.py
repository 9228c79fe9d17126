"""The play window: shows a session, reads keys and a gamepad.

    Window(session, key_map).run()

Keys that are held are followed by their events, so that several count at once; a key that was only
tapped between two steps counts for the next one.
"""

import time
from typing import Any, Protocol

import numpy as np

from gymnasium_solver.media.canvas import Canvas, import_pygame
from gymnasium_solver.media.controls import Controls
from gymnasium_solver.media.keys import BUTTONS, KeyMap
from gymnasium_solver.media.panels import Ranges, draw
from gymnasium_solver.media.session import Session

SIZE = (1180, 740)
LEAST = (760, 520)
MOST_FPS = 60  # the window is drawn at most so often
DEAD_ZONE = 0.25  # of a gamepad's stick


class Ticking(Protocol):
    """What a window needs for its loop."""

    @property
    def is_over(self) -> bool: ...
    def tick(self, now_s: float) -> None: ...


def run_window(window: Ticking) -> None:
    """Tick until the window is over, then close it."""
    pygame = import_pygame()
    try:
        clock = pygame.time.Clock()
        while not window.is_over:
            window.tick(time.monotonic())
            clock.tick(MOST_FPS)
    finally:
        pygame.quit()


class Window(Controls):
    def __init__(self, session: Session, keys: KeyMap | None = None) -> None:
        """`keys`: of the person who plays; None if nobody does."""
        super().__init__(session, keys)
        self.pygame = import_pygame()
        self.pygame.display.init()  # not init(), which also opens a sound device
        self.pygame.font.init()
        self.pygame.display.set_caption(session.options.title)
        self.screen = self.pygame.display.set_mode(SIZE, self.pygame.RESIZABLE)
        self.canvas = Canvas(self.screen)
        self._ranges = Ranges()
        self._held: set[str] = set()
        self._pads = self._open_pads()
        self._pad_keys: set[str] = set()

    def run(self) -> None:
        """Until the session is over or the window is closed."""
        run_window(self)

    @property
    def is_over(self) -> bool:
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
            size = max(event.w, LEAST[0]), max(event.h, LEAST[1])
            self.screen = pygame.display.set_mode(size, pygame.RESIZABLE)
            self.canvas = Canvas(self.screen)
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
