"""What the play window shows: which panels, in which colours, in which size. Kept for the next time
by F9.

    layout = Layout.saved()
    layout.take("f5")             # a key: the class activation map, on or off
"""

import json
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from gymnasium_solver.media.drawing import PALETTES
from gymnasium_solver.media.saliency import TITLES
from gymnasium_solver.runs.machine import user_folder

PANELS = {
    "actions": "f1", "plots": "f2", "network": "f3", "observations": "f4",
    "cam": "f5", "activations": "f6", "filters": "f7", "toolbar": "f10",
}  # fmt: skip
"""The panels that can be switched, and their keys."""
INSIDE = ("cam", "activations", "filters")  # those that look into a network with convolutions
METHODS = tuple(TITLES)
SIZE = (1180, 740)
LEAST = (760, 520)


@dataclass
class Layout:
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
