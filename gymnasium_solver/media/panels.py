"""What the play window shows: the frame, the agent's numbers, observations, plots, keys."""

import math
from collections.abc import Sequence

import numpy as np

from gymnasium_solver.media.actors import Decision
from gymnasium_solver.media.canvas import (
    BLUE,
    FAINT,
    GREEN,
    LARGE,
    NORMAL,
    ORANGE,
    PINK,
    SMALL,
    TEXT,
    Canvas,
    Rect,
)
from gymnasium_solver.media.drawing import rgb
from gymnasium_solver.media.labels import Bar, Feature, action_bars, numbers
from gymnasium_solver.media.session import Session

ROW = 22  # pixels of a row with a bar
NAME, NUMBER, SEEN = 160, 74, 64  # pixels of the columns beside a bar
WITH_UNIT = 116
GAP = 10


class Ranges:
    """The range of each number seen so far, for numbers without bounds."""

    def __init__(self) -> None:
        self._seen: dict[int, tuple[float, float]] = {}

    def of(self, index: int, feature: Feature, value: float) -> tuple[float, float]:
        low, high = self._seen.get(index, (value, value))
        self._seen[index] = low, high = min(low, value), max(high, value)
        low = min(low, -1.0) if feature.low is None else feature.low
        high = max(high, 1.0) if feature.high is None else feature.high
        return (low, high) if high > low else (low - 1.0, high + 1.0)


def draw(canvas: Canvas, session: Session, keys: Sequence[tuple[str, str]], ranges: Ranges) -> None:
    """The whole window."""
    canvas.clear()
    width, height = canvas.size
    left = int(width * 0.56)
    head, foot = 44, 34
    plots = max(110, (height - head - foot) // 4)
    body = height - head - foot - plots - 2 * GAP
    _head(canvas, session, (GAP, 8, width - 2 * GAP, head - 8))
    _frame(canvas, session, (GAP, head, left - GAP, body))
    _plots(canvas, session, (GAP, head + body + GAP, left - GAP, plots))
    column: Rect = (left + GAP, head, width - left - 2 * GAP, height - head - foot - GAP)
    _column(canvas, session, column, keys, ranges)
    _foot(canvas, session, (GAP, height - foot + 4, width - 2 * GAP, foot))


def _head(canvas: Canvas, session: Session, rect: Rect) -> None:
    left, top, width, _ = rect
    moment = session.moment
    state = "over" if moment.is_over else "paused" if session.is_paused else _speed(session)
    right = f"episode {len(session.returns) + (not moment.is_over)}   {state}"
    taken = canvas.text(right, (left + width, top + 2), NORMAL, ORANGE, "right")
    canvas.text(session.options.title, (left, top), LARGE, TEXT, width=width - taken - 30)


def _speed(session: Session) -> str:
    if math.isinf(session.speed):
        return "full speed"
    return f"{session.options.fps * session.speed:g} steps/s"


def _frame(canvas: Canvas, session: Session, rect: Rect) -> None:
    left, top, width, height = rect
    inner = canvas.panel(rect)
    picture: Rect = (inner[0], inner[1], inner[2], inner[3] - 26)
    frame, text = session.moment.frame, session.stage.text()
    if frame is not None:
        canvas.picture(picture, frame)
    elif text is not None:
        for row, line in enumerate(text.splitlines()):
            canvas.text(line, (left + 20, top + 20 + 22 * row), LARGE)
    else:
        why = session.stage.no_frames or "nothing is drawn"
        canvas.text(why, (left + width / 2, top + height / 2), SMALL, FAINT, "centre", width - 20)
    canvas.text(session.status, (left + 12, top + height - 28), NORMAL, width=width - 24)


def _plots(canvas: Canvas, session: Session, rect: Rect) -> None:
    left, top, width, height = rect
    half = (width - GAP) // 2
    track = session.track
    inner = canvas.panel((left, top, half, height), "reward per step")
    canvas.plot(inner, [(track.rewards, GREEN)], is_steps=True)
    title = "return so far"
    series: list[tuple[Sequence[float | None], tuple[int, int, int]]] = [(track.returns, BLUE)]
    if any(value is not None for value in track.values):
        title = "return so far, expected from here (pink)"
        series.append((track.values, PINK))
    inner = canvas.panel((left + half + GAP, top, width - half - GAP, height), title)
    canvas.plot(inner, series)


def _column(
    canvas: Canvas,
    session: Session,
    rect: Rect,
    keys: Sequence[tuple[str, str]],
    ranges: Ranges,
) -> None:
    """The panels on the right, from top to bottom, as far as they fit."""
    left, top, width, height = rect
    decision = session.moment.decision
    end = top + height
    if keys:
        rows = min(len(keys), 8)
        top = _keys(canvas, keys[: 2 * rows], (left, top, width, 36 + 20 * min(rows, 4))) + GAP
    images = _images(decision)
    reserve = 150 if images else 0
    title, bars = "", list[Bar]()
    if decision is not None:
        title, bars = action_bars(session.stage, session.names, decision)
    if bars:
        most = max(1, (end - top - reserve) // ROW - 3)
        room = 36 + ROW * min(len(bars), most if not session.features else max(4, most // 2))
        top = _actions(canvas, title, bars, (left, top, width, room)) + GAP
    if images and end - top > 80:
        top = _network(canvas, images, (left, top, width, min(150, end - top))) + GAP
    if session.features and end - top > 36 + ROW:
        most = (end - top - 36) // ROW
        n = min(len(session.features), most)
        room = 36 + ROW * n
        _observations(canvas, session, decision, (left, top, width, room), ranges, n)
        top += room + GAP
    if len(session.returns) > 1 and end - top > 110:
        inner = canvas.panel((left, top, width, min(160, end - top)), _episodes(session))
        canvas.plot(inner, [(session.returns, ORANGE)])


def _episodes(session: Session) -> str:
    returns = session.returns
    mean, last = f"{np.mean(returns):.6g}", f"{returns[-1]:.6g}"
    return f"returns of {len(returns)} finished episodes, mean {mean}, last {last}"


def _keys(canvas: Canvas, keys: Sequence[tuple[str, str]], rect: Rect) -> int:
    inner = canvas.panel(rect, "keys")
    columns = 2
    for i, (key, name) in enumerate(keys):
        if i // columns * 20 + 16 > inner[3]:
            break
        left = inner[0] + i % columns * inner[2] // columns
        top = inner[1] + i // columns * 20
        taken = canvas.text(key, (left, top), NORMAL, ORANGE)
        canvas.text(name, (left + taken + 8, top), NORMAL, width=inner[2] // columns - taken - 14)
    return rect[1] + rect[3]


def _actions(canvas: Canvas, title: str, bars: Sequence[Bar], rect: Rect) -> int:
    """Probabilities, Q-values, or mean and deviation; the chosen action is orange."""
    inner = canvas.panel(rect, title)
    for i, bar in enumerate(bars[: inner[3] // ROW]):
        top = inner[1] + i * ROW
        place = (inner[0] + NAME, top + 3, inner[2] - NAME - NUMBER, ROW - 9)
        canvas.text(bar.name, (inner[0], top), NORMAL, TEXT, width=NAME - 8)
        is_marked = bar.action is None and bar.is_chosen
        canvas.bar(place, bar.share, bar.zero, ORANGE if is_marked else BLUE)
        for end in bar.deviation:
            canvas.mark(place[0] + place[2] * end, place[1], place[3], FAINT)
        if bar.action is not None:
            canvas.mark(place[0] + place[2] * bar.action, place[1] - 2, place[3] + 4, ORANGE)
        canvas.text(bar.number, (inner[0] + inner[2], top), NORMAL, TEXT, "right")
    return rect[1] + rect[3]


def _images(decision: Decision | None) -> list[np.ndarray]:
    """Pictures of what the network sees: planes of an image side by side."""
    if decision is None:
        return []
    pictures = []
    for name, planes in decision.seen.items():
        if name.startswith("image"):
            shades = planes - planes.min()
            shades = shades / (shades.max() or 1.0)
            if len(shades) == 3:
                pictures.append(rgb(np.moveaxis(shades, 0, -1)))
            else:
                pictures += [rgb(plane) for plane in shades[-4:]]
    return pictures


def _network(canvas: Canvas, pictures: Sequence[np.ndarray], rect: Rect) -> int:
    inner = canvas.panel(rect, "what the network sees, newest last")
    width = inner[2] // len(pictures)
    for i, picture in enumerate(pictures):
        canvas.picture((inner[0] + i * width, inner[1], width - 6, inner[3]), picture)
    return rect[1] + rect[3]


def _observations(
    canvas: Canvas,
    session: Session,
    decision: Decision | None,
    rect: Rect,
    ranges: Ranges,
    n: int,
) -> None:
    """Each number with its name, in its range; the network's input beside it where it differs."""
    raw = numbers(session.moment.raw)
    seen = decision.seen.get("") if decision is not None else None
    has_seen = seen is not None and len(seen) == len(raw) and not np.allclose(seen, raw, atol=1e-4)
    title = "observation" + (", and what the network sees" if has_seen else "")
    hidden = len(session.features) - n
    inner = canvas.panel(rect, title + (f" ({hidden} more)" if hidden else ""))
    right = WITH_UNIT + (SEEN if has_seen else 0)
    for i, feature in enumerate(session.features[:n]):
        top, value = inner[1] + i * ROW, float(raw[i])
        low, high = ranges.of(i, feature, value)
        zero = min(max((0.0 - low) / (high - low), 0.0), 1.0)
        canvas.text(feature.name, (inner[0], top), NORMAL, TEXT, width=NAME - 8)
        bar = (inner[0] + NAME, top + 3, inner[2] - NAME - right, ROW - 9)
        canvas.bar(bar, (value - low) / (high - low), zero, GREEN)
        number_at = inner[0] + inner[2] - (SEEN if has_seen else 0)
        canvas.text(f"{value:.4g} {feature.unit}".rstrip(), (number_at, top), NORMAL, TEXT, "right")
        if has_seen and seen is not None:
            place = (inner[0] + inner[2], top)
            canvas.text(f"{seen[i]:+.2f}", place, NORMAL, FAINT, "right")


def _foot(canvas: Canvas, session: Session, rect: Rect) -> None:
    left, top, width, _ = rect
    user = session.options.mode == "user"
    pause = "P" if user else "P or space"
    text = f"{pause} pause   N step   + - speed   R restart   S save   Q quit"
    taken = canvas.text(text, (left, top), SMALL, FAINT)
    room = width - taken - 30
    note = session.message or session.stage.note or ""
    canvas.text(
        note, (left + width, top), SMALL, ORANGE if session.message else FAINT, "right", room
    )
