"""TensorBoard: scalars, histograms of actions, weights and gradients, the layers as a graph, videos
as moving images, config and alerts as text, hyper-parameters. Its event files are written without
TensorFlow or protobuf, so that a machine that only reads runs needs neither.

    tensorboard --logdir runs/<id>/trackers/tensorboard
"""

import io
import json
import re
import time
from collections.abc import Mapping
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gymnasium_solver.config.yaml_file import dump_yaml
from gymnasium_solver.errors import RunError
from gymnasium_solver.paths import cannot_write_file
from gymnasium_solver.runs import machine
from gymnasium_solver.runs.checkpoint import find_checkpoint
from gymnasium_solver.runs.curves import event_rows
from gymnasium_solver.runs.files import read_bytes
from gymnasium_solver.runs.query import RunSummary
from gymnasium_solver.share.trackers.event_file import (
    EventFile,
    histogram,
    hparams_end,
    hparams_start,
    image,
    scalar,
    text,
)
from gymnasium_solver.share.trackers.follow import Sent, Sink, Subject, numbers
from gymnasium_solver.share.trackers.network_events import graph, histograms

if TYPE_CHECKING:
    from PIL import Image

_BIN = re.compile(r"(?P<name>.+)/hist/(?P<bin>\d+)")
TD_WIDTH = 3.0  # standard deviations on each side of the histogram of TD errors
BOX_BINS = 10  # of actions in a range, from -1 to 1
MOST_FRAMES, MOST_WIDTH = 300, 320  # of a video as GIF


class TensorBoardSink(Sink):
    """One event file. It is cut to what is known to be complete; after a rewind it is replaced by a
    new one, which a running TensorBoard takes up."""

    def open(self, subject: Subject, state: Mapping[str, Any], sent: Sent) -> Sent:
        self._subject = subject
        own = subject.folder / "tensorboard"
        self.folder = own if subject.options.out is None else subject.options.out / subject.run.id
        self._started_s = datetime.fromisoformat(subject.meta["created_at"]).timestamp()
        self._last_s = self._started_s
        self._closed_at: str | None = None
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            path, size = Path(str(state.get("path", ""))), int(state.get("size", 0))
            is_ours = path.parent == self.folder.absolute() and path.is_file()
            if is_ours and path.stat().st_size >= size > 0:
                self._file = EventFile(path, size)
                self._last_s = float(state.get("last_s", self._started_s))
                self._closed_at = state.get("closed_at")
                self._has_graph = bool(state.get("has_graph"))
                return sent
            self._start()
        except OSError as error:
            raise cannot_write_file("event files", self.folder, error) from None
        return Sent()

    def _start(self) -> None:
        """A new file instead of those that this tracker wrote before."""
        self._has_graph = False
        for old in self.folder.glob("events.out.tfevents.*.gsolve"):
            old.unlink()
        name = f"events.out.tfevents.{time.time_ns():020d}.{machine.hostname()}.gsolve"
        self._file = EventFile(self.folder.absolute() / name, wall_time=self._started_s)
        config = self._subject.config
        start = hparams_start(hyperparams(config), self._subject.run.id, self._started_s)
        self._add(0, text("config", f"```yaml\n{dump_yaml(config)}\n```"), start)

    def _add(self, step: int, *values: bytes) -> None:
        self._file.add(self._last_s, step, values)

    def rewind(self, kept: Sent) -> Sent:
        self._file.close()
        self._last_s = self._started_s
        self._start()
        return Sent()

    def row(self, index: int, row: Mapping[str, Any]) -> None:
        wall_s = row.get("wall_s")
        if isinstance(wall_s, int | float):
            self._last_s = self._started_s + wall_s
        found = numbers(row)
        bins: dict[str, dict[int, float]] = {}
        for name in list(found):
            if match := _BIN.fullmatch(name):
                bins.setdefault(match["name"], {})[int(match["bin"])] = found.pop(name)
        values = [scalar(name, value) for name, value in found.items() if name != "wall_s"]
        space = self._subject.run.meta().get("action_space") if bins else None
        for name, counts in bins.items():
            n = len(counts)
            limits = [i + 0.5 for i in range(n)]
            if name.endswith("td_error"):  # in standard deviations around the mean
                half, mean = (
                    TD_WIDTH * found.get(f"{name}/std", 1.0),
                    found.get(f"{name}/mean", 0.0),
                )
                limits = [mean + half * (2.0 * (i + 1) / n - 1.0) for i in range(n)]
            elif n == BOX_BINS and isinstance(space, dict) and "low" in space:
                limits = [-1.0 + 2.0 * (i + 1) / n for i in range(n)]
            values.append(histogram(f"{name}/hist", limits, [counts[i] for i in sorted(counts)]))
        self._add(row["env_steps"], *values)

    def event(self, index: int, event: Mapping[str, Any]) -> None:
        for row in event_rows([event], self._subject.run.meta()):
            values = [scalar(name, value) for name, value in numbers(row).items()]
            self._add(row["env_steps"], *values)
        step, kind = int(event.get("env_steps") or 0), event.get("kind")
        if kind == "video":
            if gif := as_gif(self._subject.run.path / str(event.get("path"))):
                self._add(step, image("video", *gif))
        elif kind == "checkpoint":
            self._add_network(step)
        elif kind in ("alert", "config", "diverged"):
            fields = {k: v for k, v in event.items() if k not in ("kind", "at")}
            shown = event.get("text") or json.dumps(fields, default=str)
            self._add(step, text(f"{kind}s", f"{step:,}: {shown}"))

    def _add_network(self, env_steps: int) -> None:
        """Weights and gradients of a checkpoint, if it is still there; the layers once."""
        folder = find_checkpoint(self._subject.run.checkpoints_dir, env_steps)
        if folder is None:
            return
        self._add(env_steps, *histograms(folder))
        if not self._has_graph and (layers := graph(folder)):
            self._file.add_graph(self._last_s, layers)
            self._has_graph = True

    def commit(self) -> dict[str, Any]:
        try:
            size = self._file.sync()
        except OSError as error:
            raise cannot_write_file("the event file", self._file.path, error) from None
        return {"path": str(self._file.path), "size": size, "last_s": self._last_s,
                "closed_at": self._closed_at, "has_graph": self._has_graph}  # fmt: skip

    def close(self, summary: RunSummary) -> str:
        at = f"{summary.status} {summary.env_steps}"
        if self._closed_at != at:
            values = []
            if summary.status in ("finished", "failed"):
                values.append(hparams_end(summary.status == "finished", self._last_s))
            with suppress(RunError):
                report = read_bytes(self._subject.run.report_path, "").decode(errors="replace")
                values.append(text("report", report))
            self._add(summary.env_steps, *values)
            self._closed_at = at
        return f"tensorboard --logdir {self.folder}"


def hyperparams(config: Mapping[str, Any]) -> dict[str, Any]:
    """The plain fields of a config; a schedule by its long name."""
    flat: dict[str, Any] = {}
    for name, value in config.items():
        if name in ("spec", "description") or value is None or value == [] or value == {}:
            continue
        if isinstance(value, dict):
            flat |= {f"{name}.{key}": item for key, item in value.items()}
        else:
            flat[name] = value
    return {k: v if isinstance(v, bool | int | float | str) else json.dumps(v, default=str)
            for k, v in flat.items() if v is not None}  # fmt: skip


def as_gif(path: Path) -> tuple[bytes, int, int] | None:
    """A video as GIF with its width and height; None if it is gone or cannot be read here."""
    from PIL import Image

    frames = _frames(path) if path.is_file() else []
    if not frames:
        return None
    small = []
    for frame in frames[:: max(1, len(frames) // MOST_FRAMES)]:
        width = min(MOST_WIDTH, frame.width)
        size = (width, max(1, round(frame.height * width / frame.width)))
        small.append(frame.convert("RGB").resize(size, Image.Resampling.BOX))
    buffer = io.BytesIO()
    small[0].save(buffer, "GIF", save_all=True, append_images=small[1:], duration=50, loop=0)
    return buffer.getvalue(), *small[0].size


def _frames(path: Path) -> "list[Image.Image]":
    from PIL import Image, ImageSequence

    try:
        if path.suffix != ".mp4":
            with Image.open(path) as image:
                return [frame.copy() for frame in ImageSequence.Iterator(image)]
        import imageio_ffmpeg

        frames = imageio_ffmpeg.read_frames(str(path))
        size = next(frames)["size"]
        return [Image.frombytes("RGB", size, data) for data in frames]
    except (ImportError, OSError, RuntimeError, StopIteration, ValueError, SyntaxError):
        return []
