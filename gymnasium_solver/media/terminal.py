"""The play window's sibling for a terminal: a picture of half blocks or text, and a few lines.

    TerminalView(session, console, read_keys, key_map).run()

A terminal reports key presses only, not how long a key is held: a press counts for `HOLD_S`, which
the keyboard's repetition bridges.
"""

import time
from collections.abc import Callable

import gymnasium
import numpy as np
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.text import Text

from gymnasium_solver.media.actors import Decision
from gymnasium_solver.media.controls import Controls
from gymnasium_solver.media.half_blocks import HalfBlocks
from gymnasium_solver.media.keys import KeyMap
from gymnasium_solver.media.session import Session

HOLD_S = 0.3
MOST_FPS = 20.0  # of drawing, over a slow line
BAR = 24  # characters
MOST_BARS = 8
ACCENT, FAINT = "dark_orange", "bright_black"

ReadKeys = Callable[[float], list[str]]
"""Waits for so many seconds; the names of the keys pressed."""


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
    for name, number, share, is_chosen in _rows(session, decision)[:MOST_BARS]:
        filled = round(BAR * min(max(share, 0.0), 1.0))
        line = Text(f"{name[:18]:<18} ", no_wrap=True)
        line.append("█" * filled, ACCENT if is_chosen else "sky_blue3")
        line.append("·" * (BAR - filled), FAINT).append(f" {number}")
        lines.append(line)
    if decision.value is not None:
        lines.append(Text(f"value {decision.value:.4g}", FAINT))
    return lines


def _rows(session: Session, decision: Decision) -> list[tuple[str, str, float, bool]]:
    """(name, number as text, share of the bar, whether it is chosen)."""
    space, names = session.stage.env.action_space, session.names
    chosen = -1
    if isinstance(space, gymnasium.spaces.Discrete):
        chosen = int(decision.action) - int(space.start)
    if decision.probabilities is not None:
        rows = zip(names, decision.probabilities, strict=False)
        return [(name, f"{p:.3f}", float(p), i == chosen) for i, (name, p) in enumerate(rows)]
    if decision.q_values is not None:
        low, span = decision.q_values.min(), np.ptp(decision.q_values) or 1.0
        rows = zip(names, decision.q_values, strict=False)
        return [
            (name, f"{q:.4g}", 0.1 + 0.9 * float((q - low) / span), i == chosen)
            for i, (name, q) in enumerate(rows)
        ]
    if decision.mean is not None and isinstance(space, gymnasium.spaces.Box):
        low = np.where(np.isfinite(space.low), space.low, -3.0).reshape(-1)
        high = np.where(np.isfinite(space.high), space.high, 3.0).reshape(-1)
        action = np.asarray(decision.action).reshape(-1)
        return [
            (name, f"{a:+.3f}", float((a - lo) / (hi - lo)), True)
            for name, a, lo, hi in zip(names, action, low, high, strict=False)
        ]
    return []
