"""The picture in the play window: the frame, the agent's numbers, observations, plots, keys, and
what happens inside the convolutions of its network.

    layout = Layout.saved()
    layout.take("f5")             # a key: the class activation map, on or off
    Painter(session, layout, keys).picture()
"""

import json
import math
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image, ImageDraw

from gymnasium_solver.algos.agent import Agent
from gymnasium_solver.errors import ConfigError
from gymnasium_solver.media import drawing
from gymnasium_solver.media.drawing import PALETTES, cut, font, group_pictures, resized
from gymnasium_solver.media.explain_step import explained_encoder, groups_of, look, subject_of
from gymnasium_solver.media.labels import Bar, Feature, action_bars, numbers
from gymnasium_solver.media.player import Decision, Moment, PolicyActor, encoder_of
from gymnasium_solver.media.saliency import TITLES, conv_layers
from gymnasium_solver.media.session import Session
from gymnasium_solver.runs.machine import user_folder

BACKGROUND, PANEL, LINE = (22, 24, 29), (31, 34, 41), (58, 63, 74)
TEXT, FAINT = (232, 234, 238), (142, 149, 161)
# Okabe and Ito's palette, brightened for a dark ground
BLUE, ORANGE, GREEN, PINK = (86, 180, 233), (230, 159, 0), (60, 190, 140), (216, 140, 180)
SMALL, NORMAL, LARGE = 13, 15, 20
ROW = 22  # pixels of a row with a bar
NAME, NUMBER, SEEN = 160, 74, 64  # pixels of the columns next to a bar
WITH_UNIT = 116
GAP = 10
PANELS = {
    "actions": "f1", "plots": "f2", "network": "f3", "observations": "f4",
    "cam": "f5", "activations": "f6", "filters": "f7", "toolbar": "f10",
}  # fmt: skip
"""The panels that can be switched, and their keys."""
INSIDE = ("cam", "activations", "filters")  # those that look into a network with convolutions
METHODS = tuple(TITLES)
CLICKS = {"cam": "m", "activations": "l", "filters": "l"}  # what a click into a panel does
TOOLS = (
    ("p", "pause"), ("n", "step"), ("-", "slower"), ("+", "faster"), ("r", "restart"),
    ("s", "save"), ("q", "quit"),
)  # fmt: skip
SIZE, LEAST = (1180, 740), (760, 520)  # of the window
ALIGNED = {"left": 0.0, "centre": 0.5, "right": 1.0}
Rect = tuple[int, int, int, int]  # left, top, width, height
Place = tuple[float, float, float, float]  # the same, between pixels
Colour = tuple[int, int, int]


@dataclass
class Layout:
    """Which panels the window shows, in which colours and size. F9 keeps it for the next time."""

    shown: set[str] = field(default_factory=lambda: set(PANELS) - set(INSIDE))
    palette: str = next(iter(PALETTES))
    method: str = METHODS[0]  # of the class activation map
    size: tuple[int, int] = SIZE
    layer: int = 0
    """Of the network, whose activations and filters are shown; counts on over the last one."""
    plot_steps: int | None = None  # the plots show the last steps only; None: the whole episode

    def take(self, key: str) -> str | None:
        """Do what a key means, and tell it; None if it means nothing here."""
        names = {own: name for name, own in PANELS.items()}
        if key in names:
            self.shown ^= {names[key]}
            return f"{names[key]} {'on' if names[key] in self.shown else 'off'}"
        if key == "f8":
            self.palette = _after(self.palette, tuple(PALETTES))
            return f"palette {self.palette}"
        if key == "f9":
            return self.save()
        if key == "m":
            self.method = _after(self.method, METHODS)
            return self.method
        if key == "l":
            self.layer += 1
            return "next layer"
        return None

    def save(self) -> str:
        """Keep it for the next window; what happened."""
        content = {"shown": sorted(self.shown), "palette": self.palette, "method": self.method,
                   "size": self.size}  # fmt: skip
        path = layout_file()
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(json.dumps(content) + "\n", encoding="utf-8")
        except OSError as error:
            return f"{path} cannot be written: {error.strerror or error}"
        return f"layout kept in {path}"

    @classmethod
    def saved(cls) -> "Layout":
        """As it was kept; what is not known or not right is left at its default."""
        layout = cls()
        with suppress(OSError, ValueError, TypeError, AttributeError):
            kept = json.loads(layout_file().read_text(encoding="utf-8"))
            layout.shown = set(kept.get("shown", layout.shown)) & set(PANELS)
            if kept.get("palette") in PALETTES:
                layout.palette = kept["palette"]
            if kept.get("method") in METHODS:
                layout.method = kept["method"]
            width, height = (int(side) for side in kept.get("size", SIZE))
            layout.size = min(max(width, LEAST[0]), 8000), min(max(height, LEAST[1]), 8000)
        return layout


def layout_file() -> Path:
    return user_folder() / "play.json"


def _after(now: str, names: tuple[str, ...]) -> str:
    return names[(names.index(now) + 1) % len(names)]


class Canvas:
    """A picture to draw on."""

    def __init__(self, width: int, height: int) -> None:
        self.image = Image.new("RGB", (width, height), BACKGROUND)
        self._draw = ImageDraw.Draw(self.image)

    def box(self, rect: Place, colour: Colour, radius: int = 2) -> None:
        left, top, width, height = rect
        right, bottom = left + max(1, width) - 1, top + max(1, height) - 1
        corners = (round(left), round(top), round(right), round(bottom))
        self._draw.rounded_rectangle(corners, radius, colour)

    def panel(self, rect: Rect, title: str = "") -> Rect:
        """A titled box; what is left inside it."""
        self.box(rect, PANEL, 6)
        left, top, width, height = rect
        if title:
            self.text(title, (left + 10, top + 7), SMALL, FAINT, width=width - 20)
        head = 28 if title else 8
        return left + 10, top + head, width - 20, height - head - 8

    def text(
        self,
        text: str,
        place: tuple[float, float],
        size: int = NORMAL,
        colour: Colour = TEXT,
        align: str = "left",
        width: float = math.inf,
    ) -> int:
        """Write one line, cut to `width`; its width in pixels."""
        drawn = _written(cut(text, width, size), size)
        left = place[0] - ALIGNED[align] * drawn.width
        self._draw.bitmap((round(left), round(place[1])), drawn, colour)
        return drawn.width

    def bar(self, rect: Place, share: float, zero: float, colour: Colour) -> None:
        """A horizontal bar from `zero` to `share`, both in [0, 1] of the width."""
        left, top, width, height = rect
        self.box(rect, LINE)
        start, end = sorted((left + width * zero, left + width * min(max(share, 0.0), 1.0)))
        self.box((start, top, max(2, end - start), height), colour)

    def plot(
        self,
        rect: Rect,
        series: Sequence[tuple[Sequence[float | None], Colour]],
        is_steps: bool = False,
    ) -> None:
        """Lines over the steps on a common scale; `is_steps`: vertical strokes from 0."""
        known = [value for line, _ in series for value in line if value is not None]
        if not known:
            return
        low, high = min(known), max(known)
        if is_steps:
            low, high = min(low, 0.0), max(high, 0.0)
        if high - low < 1e-9:
            low, high = low - 1.0, high + 1.0
        left, top, width, height = rect[0] + 54, rect[1] + 2, rect[2] - 58, rect[3] - 8
        for value, y in ((high, top), (low, top + height)):
            self._draw.line((left, y, left + width, y), LINE)
            self.text(f"{value:.4g}", (left - 6, y - 8), SMALL, FAINT, "right")
        ground = top + height * high / (high - low)
        for line, colour in series:
            n, stride = max(2, len(line)), max(1, len(line) // (2 * width))
            points = [
                (left + width * i / (n - 1), top + height * (high - value) / (high - low))
                for i, value in enumerate(line)
                if value is not None and i % stride == 0
            ]
            strokes = [(x, ground, x, y) for x, y in points if y != ground]
            for stroke in strokes if is_steps else [points]:
                if len(stroke) > 1:
                    self._draw.line(stroke, colour)

    def picture(self, rect: Rect, frame: np.ndarray) -> None:
        """A frame, as large as fits, in the middle of the rectangle."""
        left, top, width, height = rect
        scale = min(width / frame.shape[1], height / frame.shape[0])
        image = Image.fromarray(resized(frame, float(int(scale)) if scale >= 2 else scale))
        place = left + (width - image.width) // 2, top + (height - image.height) // 2
        self.image.paste(image, place)


@lru_cache(maxsize=4096)
def _written(text: str, size: int) -> Image.Image:
    """A line of text as a mask; most of a window stays the same from step to step."""
    mask = Image.new("L", (max(1, math.ceil(font(size).getlength(text))), size + 6))
    ImageDraw.Draw(mask).text((0, 0), text, 255, font(size))
    return mask


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


Pictures = dict[str, tuple[str, list[np.ndarray]]]
"""By panel: its title, and the pictures side by side."""


class CnnView:
    """The inside of the convolutions of a session's agent; made once for each moment."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self._moment: Moment | None = None
        self._made: dict[Any, Pictures] = {}

    @property
    def agent(self) -> Agent | None:
        """The agent, if its network has convolutions of ours."""
        actor = self.session.player.actor
        agent = actor.agent if isinstance(actor, PolicyActor) else None
        encoder = None if agent is None else encoder_of(agent)
        return agent if encoder is not None and encoder.layouts else None

    def pictures(self, layout: Layout) -> Pictures:
        """{} at the end of an episode, and for other networks."""
        agent, moment = self.agent, self.session.moment
        if agent is None or moment.decision is None or moment.decision.chosen is None:
            return {}
        if moment is not self._moment:
            self._moment, self._made = moment, {}
        key = layout.method, layout.layer, layout.palette
        if key not in self._made:
            try:
                self._made[key] = _inside(agent, moment, layout)
            except ConfigError as error:  # a network of a plugin
                self._made[key], self.session.message = {}, str(error)
        return self._made[key]


def _inside(agent: Agent, moment: Moment, layout: Layout) -> Pictures:
    view, colours = look(agent, moment, (layout.method,)), drawing.PALETTES[layout.palette]
    image = view.images[0]
    name = list(image.activations)[layout.layer % len(image.activations)]
    heat = drawing.stretched(image.maps[layout.method])
    layers = conv_layers(next(iter(subject_of(agent, moment, "action").stacks.values())))
    weights = layers[layout.layer % len(layers)].conv.weight.detach().cpu().numpy()
    cams = [drawing.overlay(one, heat, colours.heat) for one in image.pictures()]
    maps = drawing.channel_grid(image.activations[name], colours.heat)
    return {
        "cam": (f"{layout.method} of the {view.what}; M: another method", cams),
        "activations": (f"activations of {name}; L: another layer", [maps]),
        "filters": (f"filters of {name}", [drawing.filter_grid(weights, colours.signed)]),
    }


class Painter:
    """Draws the window of a session, as its layout asks for."""

    def __init__(self, session: Session, layout: Layout, keys: Sequence[tuple[str, str]]) -> None:
        self.session, self.layout, self.keys = session, layout, keys
        self.inside = CnnView(session)
        self._ranges = Ranges()
        self.buttons: list[tuple[Rect, str]] = []  # where a click does what a key does

    def picture(self) -> np.ndarray:
        """The whole window, uint8 (height, width, 3)."""
        width, height = self.layout.size
        session, shown = self.session, self.layout.shown
        canvas, self.buttons = Canvas(width, height), []
        has_column = bool(self.keys) or bool(shown - {"plots", "toolbar"})
        left = int(width * 0.56) if has_column else width - GAP
        head, foot = 44, 56 if "toolbar" in shown else 34
        plots = max(110, (height - head - foot) // 4) if "plots" in shown else 0
        body = height - head - foot - plots - (2 if plots else 1) * GAP
        _head(canvas, session, width)
        _frame(canvas, session, (GAP, head, left - GAP, body))
        if plots:
            place = (GAP, head + body + GAP, left - GAP, plots)
            _plots(canvas, session, place, self.layout.plot_steps)
        if has_column:
            room = height - head - foot - GAP
            self._column(canvas, (left + GAP, head, width - left - 2 * GAP, room))
        self._foot(canvas, width, height - foot + 4)
        return np.asarray(canvas.image)

    def _column(self, canvas: Canvas, rect: Rect) -> None:
        """The panels on the right, from top to bottom, as far as they fit."""
        session, shown = self.session, self.layout.shown
        left, top, width, height = rect
        decision, end = session.moment.decision, top + height

        def panel(room: int, title: str, key: str = "") -> Rect:
            nonlocal top
            self.buttons += [((left, top, width, room), key)] if key else []
            inner = canvas.panel((left, top, width, room), title)
            top += room + GAP
            return inner

        if self.keys:
            rows = min(len(self.keys), 8)
            _keys(canvas, self.keys[: 2 * rows], panel(36 + 20 * min(rows, 4), "keys"))
        images = _images(self.inside.agent, decision) if "network" in shown else []
        inside = self.inside.pictures(self.layout) if shown & set(INSIDE) else {}
        views = [(name, *inside[name]) for name in INSIDE if name in shown and name in inside]
        if images:
            views.insert(0, ("network", "what the network sees, newest last", images))
        title, bars = "", list[Bar]()
        if decision is not None and "actions" in shown:
            title, bars = action_bars(session.stage, session.names, decision)
        features = session.features if "observations" in shown else []
        if bars:
            most = max(4 if views else 1, (end - top - 150 * len(views)) // ROW - 3)
            n_bars = min(len(bars), most if not features else max(4, most // 2))
            _actions(canvas, bars, panel(36 + ROW * n_bars, title))
        for i, (name, title, pictures) in enumerate(views):
            room = (end - top) // (len(views) - i) - GAP  # the same for each of those left
            if room > 80:
                inner = panel(
                    min(150 if name == "network" else 240, room), title, CLICKS.get(name, "")
                )
                each = inner[2] // len(pictures)
                for place, picture in enumerate(pictures):
                    canvas.picture((inner[0] + place * each, inner[1], each - 6, inner[3]), picture)
        if features and end - top > 36 + ROW:
            n = min(len(features), (end - top - 36) // ROW)
            raw = numbers(session.moment.raw)
            seen = None if decision is None else decision.seen.get("")
            if seen is not None and (len(seen) != len(raw) or np.allclose(seen, raw, atol=1e-4)):
                seen = None
            title = "observation" + ("" if seen is None else ", and what the network sees")
            hidden = len(features) - n
            inner = panel(36 + ROW * n, title + (f" ({hidden} more)" if hidden else ""))
            _observations(canvas, features[:n], raw, seen, inner, self._ranges)
        if len(returns := session.returns) > 1 and end - top > 110 and "plots" in shown:
            mean, last = f"{np.mean(returns):.6g}", f"{returns[-1]:.6g}"
            title = f"returns of {len(returns)} finished episodes, mean {mean}, last {last}"
            canvas.plot(panel(min(160, end - top), title), [(returns, ORANGE)])

    def _foot(self, canvas: Canvas, width: int, top: int) -> None:
        """What happened last, and the toolbar: a click on a word does what its key does."""
        session, layout, told = self.session, self.layout, self.session.message
        taken = GAP
        if "toolbar" in layout.shown:
            for key, text in TOOLS:
                taken = self._button(canvas, key, text, (taken, top))
            can_look = self.inside.agent is not None
            panels = [(key, name) for name, key in PANELS.items() if can_look or name not in INSIDE]
            left = GAP
            for key, name in (*panels, ("f8", f"palette {layout.palette}"), ("f9", "keep")):
                left = self._button(canvas, key, name, (left, top + 22))
        note, colour = told or session.stage.note or "", ORANGE if told else FAINT
        canvas.text(note, (width - GAP, top), SMALL, colour, "right", width - GAP - taken - 30)

    def _button(self, canvas: Canvas, key: str, text: str, place: tuple[int, int]) -> int:
        """A word of the toolbar, green while its panel is shown; where the next one begins."""
        left, top = place
        colour = GREEN if text in self.layout.shown else FAINT
        taken = canvas.text(f"{key.upper()} {text}", place, SMALL, colour)
        self.buttons.append(((left, top, taken, 20), key))
        return left + taken + 16


def _head(canvas: Canvas, session: Session, width: int) -> None:
    moment = session.moment
    is_fastest = math.isinf(session.speed)
    speed = "full speed" if is_fastest else f"{session.options.fps * session.speed:g} steps/s"
    state = "over" if moment.is_over else "paused" if session.is_paused else speed
    right = f"episode {len(session.returns) + (not moment.is_over)}   {state}"
    taken = canvas.text(right, (width - GAP, 10), NORMAL, ORANGE, "right")
    canvas.text(session.options.title, (GAP, 8), LARGE, width=width - 2 * GAP - taken - 30)


def _frame(canvas: Canvas, session: Session, rect: Rect) -> None:
    left, top, width, height = rect
    inner = canvas.panel(rect)
    frame, text = session.moment.frame, session.stage.text()
    if frame is not None:
        canvas.picture((inner[0], inner[1], inner[2], inner[3] - 26), frame)
    elif text is not None:
        for row, line in enumerate(text.splitlines()):
            canvas.text(line, (left + 20, top + 20 + 22 * row), LARGE)
    else:
        why = session.stage.no_frames or "nothing is drawn"
        canvas.text(why, (left + width / 2, top + height / 2), SMALL, FAINT, "centre", width - 20)
    canvas.text(session.status, (left + 12, top + height - 28), width=width - 24)


def _plots(canvas: Canvas, session: Session, rect: Rect, last: int | None) -> None:
    """Of the last steps, or of all."""
    left, top, width, height = rect
    half, track = (width - GAP) // 2, session.track
    since = 0 if last is None else -last
    inner = canvas.panel((left, top, half, height), "reward per step")
    canvas.plot(inner, [(track.rewards[since:], GREEN)], is_steps=True)
    title = "return so far"
    series: list[tuple[Sequence[float | None], Colour]] = [(track.returns[since:], BLUE)]
    if any(value is not None for value in track.values):
        title = "return so far, expected from here (pink)"
        series.append((track.values[since:], PINK))
    inner = canvas.panel((left + half + GAP, top, width - half - GAP, height), title)
    canvas.plot(inner, series)


def _keys(canvas: Canvas, keys: Sequence[tuple[str, str]], inner: Rect) -> None:
    half = inner[2] // 2
    for i, (key, name) in enumerate(keys):
        row, column = divmod(i, 2)
        if row * 20 + 16 > inner[3]:
            break
        left, top = inner[0] + column * half, inner[1] + row * 20
        taken = canvas.text(key, (left, top), NORMAL, ORANGE)
        canvas.text(name, (left + taken + 8, top), width=half - taken - 14)


def _actions(canvas: Canvas, bars: Sequence[Bar], inner: Rect) -> None:
    """Probabilities, Q-values, or mean and deviation; the chosen action is orange."""
    for i, bar in enumerate(bars[: inner[3] // ROW]):
        top = inner[1] + i * ROW
        left, width, height = inner[0] + NAME, inner[2] - NAME - NUMBER, ROW - 9
        canvas.text(bar.name, (inner[0], top), width=NAME - 8)
        is_marked = bar.action is None and bar.is_chosen
        place = (left, top + 3, width, height)
        canvas.bar(place, bar.share, bar.zero, ORANGE if is_marked else BLUE)
        for end in bar.deviation:
            canvas.box((left + width * end - 1, top + 3, 3, height), FAINT)
        if bar.action is not None:
            canvas.box((left + width * bar.action - 1, top + 1, 3, height + 4), ORANGE)
        canvas.text(bar.number, (inner[0] + inner[2], top), align="right")


def _images(agent: Agent | None, decision: Decision | None) -> list[np.ndarray]:
    """Pictures of what the network sees: of each part of the observation the newest four."""
    if agent is None or decision is None or not decision.seen:
        return []
    pictures = []
    for name in explained_encoder(agent).layouts:
        pictures += group_pictures(decision.seen[f"image {name}"], groups_of(agent, name))[-4:]
    return pictures


def _observations(
    canvas: Canvas,
    features: Sequence[Feature],
    raw: np.ndarray,
    seen: np.ndarray | None,
    inner: Rect,
    ranges: Ranges,
) -> None:
    """Each number with its name, in its range; the network's input next to it where it differs."""
    for_seen = 0 if seen is None else SEEN
    for i, feature in enumerate(features):
        top, value, right = inner[1] + i * ROW, float(raw[i]), inner[0] + inner[2]
        low, high = ranges.of(i, feature, value)
        zero = min(max((0.0 - low) / (high - low), 0.0), 1.0)
        canvas.text(feature.name, (inner[0], top), width=NAME - 8)
        bar = (inner[0] + NAME, top + 3, inner[2] - NAME - WITH_UNIT - for_seen, ROW - 9)
        canvas.bar(bar, (value - low) / (high - low), zero, GREEN)
        number = f"{value:.4g} {feature.unit}".rstrip()
        canvas.text(number, (right - for_seen, top), align="right")
        if seen is not None:
            canvas.text(f"{seen[i]:+.2f}", (right, top), NORMAL, FAINT, "right")
