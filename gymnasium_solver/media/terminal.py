"""The play window's sibling for a terminal: a picture of half blocks or text, and a few lines.

    TerminalView(session, console, read_keys, key_map).run()

A terminal reports key presses only, not how long a key is held: a press counts for `HOLD_S`, which
the keyboard's repetition bridges.
"""

import time
from collections.abc import Callable

import numpy as np
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.text import Text

from gymnasium_solver.media.drawing import HalfBlocks
from gymnasium_solver.media.keys import KeyMap
from gymnasium_solver.media.labels import action_bars
from gymnasium_solver.media.session import Controls, Session

HOLD_S = 0.3
MOST_FPS = 20.0  # of drawing, over a slow line
BAR = 24  # characters
MOST_BARS = 8
ACCENT, FAINT = "dark_orange", "bright_black"

ReadKeys = Callable[[float], list[str]]
"""Waits for this many seconds; the names of the keys pressed."""


class TerminalView(Controls):
    def __init__(
        self, session: Session, console: Console, read_keys: ReadKeys, keys: KeyMap | None = None
    ) -> None:
        super().__init__(session, keys)
        self.console = console
        self._read_keys = read_keys
        self._pressed: dict[str, float] = {}  # key: until when it counts

    def run(self) -> None:
        with Live(console=self.console, screen=True, auto_refresh=False) as live:
            drawn_s = 0.0
            while not self.session.is_over:
                now_s = time.monotonic()
                for key in self._read_keys(self.session.wait_s(now_s)):
                    self._press(key, time.monotonic())
                now_s = time.monotonic()
                if self.is_due(now_s):
                    self.advance(now_s)
                if now_s - drawn_s >= 1 / MOST_FPS or self.session.moment.is_over:
                    live.update(self.screen(), refresh=True)
                    drawn_s = now_s

    def _press(self, key: str, now_s: float) -> None:
        if self.keys is not None and key in self.keys.keys:
            self._pressed[key] = now_s + HOLD_S
            self._tapped.add(key)
        else:
            self.control(key, now_s)

    def _keys_action(self, keys: KeyMap, now_s: float) -> np.ndarray | None:
        held = {key for key, until_s in self._pressed.items() if until_s > now_s}
        return keys.action(held | self._tapped)

    # -- what it shows ----------------------------------------------------------------------

    def screen(self) -> RenderableType:
        """Everything, in as many rows as the terminal has."""
        session, console = self.session, self.console
        below: list[RenderableType] = [
            Text(session.status, "bold", no_wrap=True, overflow="ellipsis"),
            *bars(session),
            *self._help(),
        ]
        title = Text(session.options.title, no_wrap=True, overflow="ellipsis")
        title.append(f"   {_state(session)}", ACCENT)
        room = console.height - len(below) - 1
        return Group(title, *self._picture(room), *below)

    def _picture(self, rows: int) -> list[RenderableType]:
        session = self.session
        text = session.stage.text()
        if text is not None:
            return [Text.from_ansi(text.rstrip("\n"))]
        frame = session.moment.frame
        if frame is None:
            return [Text(session.stage.no_frames or "nothing is drawn", FAINT)]
        return [HalfBlocks(frame, self.console.width, max(2, rows))]

    def _help(self) -> list[Text]:
        lines = []
        if self.keys is not None:
            keys = Text(no_wrap=True, overflow="ellipsis")
            for key, name in self.keys.help:
                keys.append(key, ACCENT).append(f" {name}   ")
            lines.append(keys)
        note = self.session.message or self.session.stage.note or ""
        text = "p pause  n step  + - speed  r restart  s save  q quit"
        lines.append(Text(f"{text}   {note}", FAINT, no_wrap=True, overflow="ellipsis"))
        return lines


def _state(session: Session) -> str:
    if session.moment.is_over:
        return "over"
    return "paused" if session.is_paused else f"episode {len(session.returns) + 1}"


def bars(session: Session) -> list[Text]:
    """Probabilities, Q-values or continuous actions as text, and the value."""
    decision = session.moment.decision
    if decision is None:
        return []
    lines = []
    for bar in action_bars(session.stage, session.names, decision)[1][:MOST_BARS]:
        share = bar.share if bar.action is None else bar.action
        filled = round(BAR * min(max(share, 0.0), 1.0))
        line = Text(f"{bar.name[:18]:<18} ", no_wrap=True)
        line.append("█" * filled, ACCENT if bar.is_chosen else "sky_blue3")
        line.append("·" * (BAR - filled), FAINT).append(f" {bar.number}")
        lines.append(line)
    if decision.value is not None:
        lines.append(Text(f"value {decision.value:.4g}", FAINT))
    return lines
