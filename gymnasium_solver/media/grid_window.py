"""A window with several episodes at once, round after round, each by the newest policy of the run.

    GridWindow(rounds(stage, actor, seed, shots, newest), stage.fps, "CartPole-v1").run()

Keys: P pauses, + and - change the speed, Q closes the window.
"""

from collections.abc import Iterator

import numpy as np

from gymnasium_solver.media.actors import Actor, PolicyActor
from gymnasium_solver.media.canvas import Canvas, import_pygame
from gymnasium_solver.media.controls import SAME_KEYS
from gymnasium_solver.media.episodes import Player
from gymnasium_solver.media.newest import NewestPolicy
from gymnasium_solver.media.record import Shots, grid_frames
from gymnasium_solver.media.session import REST_S, SPEEDS
from gymnasium_solver.media.stage import Stage
from gymnasium_solver.media.window import run_window

MOST_SIZE = (1280, 960)


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
            shots = shots.titled(newest.title)
        yield from grid_frames(Player(stage, actor, seed + done), shots)
        done += 1
        if newest is not None and not was_training:
            return


class GridWindow:
    def __init__(self, pictures: Iterator[tuple[np.ndarray, bool]], fps: float, title: str) -> None:
        self.pygame = import_pygame()
        self.pygame.display.init()  # not init(), which also opens a sound device
        self.pygame.font.init()
        self.pygame.display.set_caption(title)
        self._pictures, self._fps = pictures, fps
        self.picture, self._is_last = next(pictures)
        height, width = self.picture.shape[:2]
        size = min(width, MOST_SIZE[0]), min(height, MOST_SIZE[1])
        self.canvas = Canvas(self.pygame.display.set_mode(size, self.pygame.RESIZABLE))
        self.speed = 1.0
        self.is_paused = self.is_over = False
        self._next_s = 0.0

    def run(self) -> None:
        """Until the pictures end or the window is closed."""
        run_window(self)

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

    def _take(self, event: object) -> None:
        kind = getattr(event, "type", None)
        if kind == self.pygame.QUIT:
            self.is_over = True
        elif kind == self.pygame.VIDEORESIZE:
            size = getattr(event, "w", 1), getattr(event, "h", 1)
            self.canvas = Canvas(self.pygame.display.set_mode(size, self.pygame.RESIZABLE))
        elif kind == self.pygame.KEYDOWN:
            self.control(self.pygame.key.name(getattr(event, "key", 0)))

    def control(self, key: str) -> None:
        key = SAME_KEYS.get(key, key)
        if key == "q":
            self.is_over = True
        elif key == "p":
            self.is_paused = not self.is_paused
        elif key in ("+", "-"):
            place = SPEEDS.index(self.speed) + (1 if key == "+" else -1)
            self.speed = SPEEDS[min(max(0, place), len(SPEEDS) - 1)]
            self._next_s = 0.0
