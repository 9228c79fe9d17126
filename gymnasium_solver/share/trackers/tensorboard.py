"""TensorBoard: scalars, histograms of actions, weights and gradients, the layers as a graph, videos
as moving images, config and alerts as text, hyper-parameters. Its event files are written without
TensorFlow or protobuf, so that a machine that only reads runs needs neither.

    tensorboard --logdir runs/<id>/trackers/tensorboard
"""

import io
import json
import os
import re
import struct
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from gymnasium_solver.config.yaml_file import dump_yaml
from gymnasium_solver.errors import RunError
from gymnasium_solver.paths import writing_file
from gymnasium_solver.runs import machine
from gymnasium_solver.runs.checkpoint import find_checkpoint
from gymnasium_solver.runs.curves import event_rows
from gymnasium_solver.runs.files import read_bytes
from gymnasium_solver.runs.query import RunSummary
from gymnasium_solver.share.trackers.follow import Sent, Sink, Subject, numbers

if TYPE_CHECKING:
    from PIL import Image

_BIN = re.compile(r"(?P<name>.+)/hist/(?P<bin>\d+)")
TD_WIDTH = 3.0  # standard deviations on each side of the histogram of TD errors
BOX_BINS = 10  # of actions in a range, from -1 to 1
MOST_FRAMES, MOST_WIDTH = 300, 320  # of a video as GIF
WEIGHT_BINS = 30  # of weights and gradients
KINDS = {1: "Norm", 2: "Linear", 3: "StackedLinear", 4: "Conv2d"}  # by the axes of the weights
STAGES = (("convolutions", "features"), (), ("advantage", "value"), ("head",))
STREAM = 2
DT_STRING = 7
SUCCESS, FAILURE = 1, 2  # of the HParams plugin


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
        with writing_file("event files", self.folder):
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
                half = TD_WIDTH * found.get(f"{name}/std", 1.0)
                middle = found.get(f"{name}/mean", 0.0)
                limits = [middle + half * (2.0 * (i + 1) / n - 1.0) for i in range(n)]
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
        with writing_file("the event file", self._file.path):
            size = self._file.sync()
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


# -- a checkpoint: weights and gradients, the layers as a graph -----------------------------------
# Read from its files, without torch and without a cost for training. Gradients are Adam's running
# mean of them; other optimisers keep none.


def arrays_of(path: Path) -> dict[str, np.ndarray]:
    """The arrays of a safetensors file; {} if it is gone or cannot be read."""
    from safetensors import SafetensorError
    from safetensors.numpy import load

    with suppress(RunError, SafetensorError, KeyError, TypeError):
        return dict(load(read_bytes(path, "")))
    return {}


def histograms(checkpoint: Path) -> Iterator[bytes]:
    """Of the weights by layer, and of the gradients by optimiser."""
    for name, values in weights_of(checkpoint).items():
        yield from _histogram(f"weights/{name.replace('.', '/')}", values)
    for name, values in arrays_of(checkpoint / "optimizer.safetensors").items():
        owner, _, kind = name.rpartition(".")
        if kind == "mean":
            yield from _histogram(f"gradients/{owner or 'all'}", values)


def weights_of(checkpoint: Path) -> dict[str, np.ndarray]:
    """What is learnt, without the statistics of observations."""
    found = arrays_of(checkpoint / "model.safetensors")
    return {name: values for name, values in found.items() if not name.startswith("encoder.")}


def _histogram(tag: str, values: np.ndarray) -> Iterator[bytes]:
    finite = values[np.isfinite(values)] if values.dtype.kind == "f" else values[:0]
    if finite.size:
        counts, edges = np.histogram(finite.astype(np.float64), bins=WEIGHT_BINS)
        yield histogram(tag, edges[1:].tolist(), counts.astype(float).tolist())


def graph(checkpoint: Path) -> bytes:
    """The layers that have weights, as a GraphDef; b"" without a readable checkpoint."""
    shapes: dict[str, list[int]] = {}
    for name, values in weights_of(checkpoint).items():
        if values.size > 1:
            layer = name.rpartition(".")[0] or name
            shapes[layer] = max(shapes.get(layer, []), list(values.shape), key=len)
    if not shapes:
        return b""
    nodes = [_node("observation", "Placeholder", [], [])]
    for layer, inputs in inputs_of(shapes).items():
        kind = KINDS.get(len(shapes[layer]), "Parameter")
        before = [one.replace(".", "/") for one in inputs] or ["observation"]
        nodes.append(_node(layer.replace(".", "/"), kind, before, shapes[layer]))
    return message(*((1, node) for node in nodes))


def inputs_of(shapes: Mapping[str, Sequence[int]]) -> dict[str, list[str]]:
    """The layers in order, each with those that it takes the outputs of; [] for the observation.

    The order is by names: convolutions, hidden layers, streams of a dueling network, heads. A layer
    follows the one before it in its part; the first of a part follows the ends of the parts before
    it in its network. A head without a torso of its own follows one of the size that it takes."""
    found: dict[str, list[str]] = {}
    ends: dict[str, str] = {}  # the last layer of each part
    for layer in sorted(shapes, key=lambda name: (_stage(name), _natural(name))):
        part, stage = re.sub(r"\.\d+$", "", layer), _stage(layer)
        earlier = [name for name in ends if _stage(name) < stage]
        own = [name for name in earlier if _network(name) == _network(part)]
        size = shapes[layer][1] if len(shapes[layer]) > 1 else 0
        shared = [name for name in earlier if stage >= STREAM and shapes[ends[name]][0] == size]
        nearest = max(map(_stage, own or shared), default=0)
        before = [ends[name] for name in own or shared[-1:] if _stage(name) == nearest]
        found[layer] = [ends[part]] if part in ends else before
        ends[part] = layer
    return found


def _stage(name: str) -> int:
    return max((i for i, own in enumerate(STAGES) if any(w in name for w in own)), default=1)


def _network(name: str) -> str:
    return re.split(r"[._]", name)[0]


def _natural(name: str) -> list[tuple[int, str]]:
    """Layer 10 after layer 9."""
    return [(int(p), "") if p.isdecimal() else (-1, p) for p in re.split(r"(\d+)", name)]


def _node(name: str, op: str, inputs: list[str], shape: list[int]) -> bytes:
    sizes = message(*((2, message((1, size))) for size in shape))
    attribute = message((1, "weights"), (2, message((7, sizes))))
    given = [(3, one) for one in inputs]
    return message((1, name), (2, op), *given, *([(5, attribute)] if shape else []))


# -- messages and files of TensorBoard ------------------------------------------------------------
# Field numbers are those of event.proto, summary.proto, tensor.proto and, for hyper-parameters,
# api.proto of the HParams plugin.


def message(*fields: tuple[int, Any]) -> bytes:
    """(number, value) of each field: a whole number, a double, a float (np.float32), text, bytes or
    another message, or a list of doubles."""
    parts = []
    for number, value in fields:
        if isinstance(value, int):
            parts += [_varint(number << 3), _varint(int(value))]
        elif isinstance(value, float):
            parts += [_varint(number << 3 | 1), struct.pack("<d", value)]
        elif isinstance(value, np.float32):
            parts += [_varint(number << 3 | 5), struct.pack("<f", value)]
        else:
            data = value.encode(errors="replace") if isinstance(value, str) else value
            data = struct.pack(f"<{len(data)}d", *data) if isinstance(data, list) else data
            parts += [_varint(number << 3 | 2), _varint(len(data)), data]
    return b"".join(parts)


def _varint(value: int) -> bytes:
    value &= 0xFFFFFFFFFFFFFFFF
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def scalar(tag: str, value: float) -> bytes:
    limit = 3.4028235e38  # a float holds no more
    return message((1, tag), (2, np.float32(max(-limit, min(limit, value)))))


def histogram(tag: str, limits: Sequence[float], counts: Sequence[float]) -> bytes:
    """`limits`: the right edge of each bucket; the first bucket begins one width before it."""
    width = limits[1] - limits[0] if len(limits) > 1 else 1.0
    low, total = limits[0] - width, float(sum(counts))
    middles = [limit - width / 2 for limit in limits]
    sums = [sum(c * m**k for c, m in zip(counts, middles, strict=True)) for k in (1, 2)]
    values = [low, limits[-1], total, *map(float, sums), [low, *limits], [0.0, *counts]]
    return message((1, tag), (5, message(*enumerate(values, start=1))))


def image(tag: str, encoded: bytes, width: int, height: int) -> bytes:
    """`encoded`: a PNG, or a GIF, which TensorBoard plays."""
    return message((1, tag), (4, message((1, height), (2, width), (3, 3), (4, encoded))))


def text(tag: str, markdown: str) -> bytes:
    shape = message((2, message((1, 1))))
    tensor = message((1, DT_STRING), (2, shape), (8, markdown))
    return message((1, tag), (8, tensor), (9, message((1, message((1, "text"))), (4, 2))))


def hparams_start(values: Mapping[str, Any], group: str, start_s: float) -> bytes:
    """The hyper-parameters of the run in this folder."""
    entries = []
    for name, value in values.items():
        typed: tuple[int, Any] = (3, str(value))
        if isinstance(value, int | float):
            typed = (4, value) if isinstance(value, bool) else (2, float(value))
        entries.append((1, message((1, name), (2, message(typed)))))
    info = message(*entries, (4, group), (5, start_s))
    return _hparams("start", message((3, info)))


def hparams_end(is_success: bool, end_s: float) -> bytes:
    info = message((1, SUCCESS if is_success else FAILURE), (2, end_s))
    return _hparams("end", message((4, info)))


def _hparams(when: str, data: bytes) -> bytes:
    plugin = message((1, message((1, "hparams"), (2, data))))
    return message((1, f"_hparams_/session_{when}_info"), (9, plugin))


# -- the file -------------------------------------------------------------------------------------

_CRC = [0] * 256  # CRC-32C, reflected
for _byte in range(256):
    _crc = _byte
    for _ in range(8):
        _crc = (_crc >> 1) ^ (0x82F63B78 if _crc & 1 else 0)
    _CRC[_byte] = _crc


def masked_crc(data: bytes) -> int:
    """The checksum of a record, rotated as TensorFlow does."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc = _CRC[(crc ^ byte) & 0xFF] ^ (crc >> 8)
    crc ^= 0xFFFFFFFF
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


class EventFile:
    """Appends events. `size`: where an earlier writer is known to have ended."""

    def __init__(self, path: Path, size: int | None = None, wall_time: float = 0.0) -> None:
        self.path = path
        self._file = path.open("ab" if size is not None else "wb")
        if size is not None:
            self._file.truncate(size)
        else:
            self._write(message((1, wall_time), (3, "brain.Event:2")))

    def add(self, wall_time: float, step: int, values: Sequence[bytes]) -> None:
        if values:
            summary = message(*((1, value) for value in values))
            self._write(message((1, wall_time), (2, step), (5, summary)))

    def add_graph(self, wall_time: float, graph: bytes) -> None:
        self._write(message((1, wall_time), (4, graph)))

    def _write(self, data: bytes) -> None:
        length = struct.pack("<Q", len(data))
        sums = struct.pack("<I", masked_crc(length)), struct.pack("<I", masked_crc(data))
        self._file.write(length + sums[0] + data + sums[1])

    def sync(self) -> int:
        """The size of the file, now on the disk."""
        self._file.flush()
        os.fsync(self._file.fileno())
        return self._file.tell()

    def close(self) -> None:
        self._file.close()
