"""Recorded episodes of a run: `runs/<id>/episodes/<episode id>/`, the one format of all tools.

    for episode in list_episodes(run): print(episode.id, episode.status, episode.result)
    episode = get_episode(run, "50000-seed7-greedy-3fa2")
    episode.columns()["value"]               # f32[n rows, width] by name
    episode.frame("render", 12)              # an encoded image

Files: `episode.json` (facts), `columns.f32` (a row of numbers for each state), `derived.f32` (what
needs the whole episode: return to go, TD error, advantage), `actions.bin` (the exact actions),
`digests.bin` (8 bytes for each observation), `info.jsonl`, and frame packs. Of an episode of T
steps, row t is state t, the decision made in it and its reward; row T has neither (NaN).

A frame pack `<view>-<chunk>.pack` has up to CHUNK still images. It begins with a u32 count and
CHUNK + 1 u32 offsets from its start (little-endian); image i is the bytes from offset i to offset
i + 1. The count is written last: a reader that takes it first finds whole images.

Everything but `derived.f32` grows step by step, so an episode can be read while it is played, and
after its player was killed. Reading needs no torch.
"""

import os
import re
import secrets
import shutil
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from io import BufferedRandom, FileIO
from pathlib import Path
from typing import Any, Self

import numpy as np

from gymnasium_solver.errors import RunError
from gymnasium_solver.paths import open_regular
from gymnasium_solver.runs import files, machine
from gymnasium_solver.runs.jsonl import read_jsonl
from gymnasium_solver.runs.run import Run, live_status, utc_now

FORMAT = 1
FACTS, COLUMNS, DERIVED_FILE = "episode.json", "columns.f32", "derived.f32"
ACTIONS, DIGESTS, INFO = "actions.bin", "digests.bin", "info.jsonl"
DERIVED = ("return_to_go", "td_error", "advantage")
VIEWS = ("render", "net", "model")
MIME = {"png": "image/png", "jpeg": "image/jpeg"}
DIGEST = 8  # bytes
CHUNK = 64
HEADER = 4 * (CHUNK + 2)
LARGEST_PACK = 1 << 30  # bytes of a pack that is read; 64 images of any size we write are far below
MOST_COLUMNS = 100_000
_ID = re.compile(r"[0-9]{1,20}-seed[0-9]{1,10}-(?:greedy|sampled)-[0-9a-f]{4,16}")
_DTYPES = re.compile(r"[<|]?[fiu][1248]|[<|]?b1")
_FIX = "Delete this episode and record it again."


def is_episode_id(name: str) -> bool:
    return _ID.fullmatch(name) is not None


@dataclass(frozen=True)
class Column:
    name: str
    start: int
    width: int
    labels: list[str]


class Episode:
    """One recorded episode. Facts are read when it is opened, all else when it is asked for."""

    def __init__(self, path: Path) -> None:
        self.path, self.id = path, path.name
        self.facts = files.read_json(path / FACTS, _FIX)
        if self.facts.get("format") != FORMAT:
            raise RunError(f"{path}: an episode of another version. {_FIX}")

    @property
    def status(self) -> str:
        """One of running, done, failed, or interrupted: its player is gone."""
        status = live_status(self.facts)
        return "interrupted" if status == "killed" else status

    @property
    def is_running(self) -> bool:
        return self.status == "running"

    @property
    def result(self) -> dict[str, Any]:
        """The result of a finished episode (steps, return, ended, ...); {} before."""
        result = self.facts.get("result")
        return result if isinstance(result, dict) else {}

    @property
    def total(self) -> float | None:
        """The return, before reward wrappers."""
        return files.finite(self.result.get("return"))

    @cached_property
    def layout(self) -> list[Column]:
        """The columns of columns.f32, in order."""
        found, start = [], 0
        listed = self.facts.get("columns")
        for entry in listed if isinstance(listed, list) else []:
            width, name = entry.get("width"), entry.get("name")
            if type(width) is not int or not 0 < width <= MOST_COLUMNS or not isinstance(name, str):
                raise RunError(f"{self.path / FACTS}: a wrong column. {_FIX}")
            found.append(Column(name, start, width, list(map(str, entry.get("labels") or []))))
            start += width
        if not found or start > MOST_COLUMNS:
            raise RunError(f"{self.path / FACTS}: it has no columns. {_FIX}")
        return found

    @property
    def width(self) -> int:
        return self.layout[-1].start + self.layout[-1].width

    @property
    def n_rows(self) -> int:
        return self._size(COLUMNS) // (4 * self.width)

    def rows(self, start: int = 0) -> bytes:
        """The bytes of columns.f32 from a row on: whole rows of little-endian float32."""
        data = self._read(COLUMNS)
        whole = len(data) - len(data) % (4 * self.width)
        return data[start * 4 * self.width : whole]

    def columns(self) -> dict[str, np.ndarray]:
        """[rows, width] by name, and [rows] for those of width 1 and the derived ones."""
        table = np.frombuffer(self.rows(), "<f4").reshape(-1, self.width)
        parts = {c.name: table[:, c.start : c.start + c.width] for c in self.layout}
        named = {name: part[:, 0] if part.shape[1] == 1 else part for name, part in parts.items()}
        derived = np.frombuffer(self.derived_bytes(), "<f4")
        if derived.size and not derived.size % len(DERIVED):
            named |= zip(DERIVED, derived.reshape(-1, len(DERIVED)).T, strict=True)
        return named

    def derived_bytes(self) -> bytes:
        """The bytes of derived.f32, rows of DERIVED; empty while the episode is played."""
        return self._read(DERIVED_FILE)

    def actions(self) -> np.ndarray:
        """[T, ...]: the exact actions, as `step` of the environment takes them."""
        facts = self.facts.get("action") or {}
        dtype, shape = str(facts.get("dtype")), facts.get("shape")
        if not _DTYPES.fullmatch(dtype) or not isinstance(shape, list):
            raise RunError(f"{self.path / FACTS}: it does not describe its actions. {_FIX}")
        one = np.dtype((np.dtype(dtype), tuple(int(n) for n in shape)))
        data = self._read(ACTIONS)
        return np.frombuffer(data[: len(data) - len(data) % one.itemsize], one)

    def digests(self) -> list[bytes]:
        """A digest of the observation of each state, as the agent gets it."""
        data = self._read(DIGESTS)
        return [data[i : i + DIGEST] for i in range(0, len(data) - DIGEST + 1, DIGEST)]

    def info(self) -> list[dict[str, Any]]:
        """What the environment said in `info` at each step."""
        return read_jsonl(self.path / INFO)

    def _pack_path(self, view: str, chunk: int) -> Path:
        if view not in VIEWS:
            views = " or ".join(VIEWS)
            raise RunError(f"there is no view {view!r} of an episode; expected {views}.")
        return pack_path(self.path, view, chunk)

    def n_frames(self, view: str) -> int:
        """How many whole images there are."""
        chunk = 0
        while self._pack_path(view, chunk + 1).is_file():
            chunk += 1
        try:
            with open_regular(self._pack_path(view, chunk)) as file:
                head = file.read(4)
        except OSError:
            return 0
        count: int = struct.unpack("<I", head)[0] if len(head) == 4 else 0
        return chunk * CHUNK + min(count, CHUNK)

    def mime(self, view: str) -> str:
        frames = self.facts.get("frames")
        entry = frames.get(view) if isinstance(frames, dict) else None
        return MIME.get(str((entry or {}).get("format")), "application/octet-stream")

    def pack(self, view: str, chunk: int) -> bytes:
        """A whole pack; RunError if it is missing or damaged."""
        path = self._pack_path(view, chunk)
        try:
            with open_regular(path) as file:
                if os.fstat(file.fileno()).st_size > LARGEST_PACK:
                    raise RunError(f"{path} is not a frame pack.")
                data = file.read()
        except FileNotFoundError:
            raise RunError(f"{self.id} has no frames {path.name}.") from None
        except OSError as error:
            raise RunError(f"{path} is not a frame pack: {error.strerror}.") from None
        offsets_of(data, path.name)
        return data

    def frame(self, view: str, t: int) -> bytes:
        """The encoded image of one step; RunError if there is none."""
        pack, slot = self.pack(view, t // CHUNK), t % CHUNK
        offsets = offsets_of(pack)
        if slot + 1 >= len(offsets):
            raise RunError(f"{self.id} has no frame of step {t}.")
        return pack[offsets[slot] : offsets[slot + 1]]

    def _size(self, name: str) -> int:
        try:
            return (self.path / name).stat().st_size
        except OSError:
            return 0

    def _read(self, name: str) -> bytes:
        path = self.path / name
        return files.read_bytes(path, _FIX) if path.exists() else b""

    def delete(self) -> None:
        """RunError while it is played."""
        if self.is_running:
            raise RunError(f"{self.id} is being played. Stop it first.")
        shutil.rmtree(self.path)

    def to_dict(self) -> dict[str, Any]:
        """The facts, and what has been recorded so far."""
        hidden = ("pid", "pid_started", "machine")
        return {
            **{name: value for name, value in self.facts.items() if name not in hidden},
            "id": self.id,
            "status": self.status,
            "n_rows": self.n_rows,
            "n_frames": {view: n for view in VIEWS if (n := self.n_frames(view))},
            "has_derived": self._size(DERIVED_FILE) > 0,
        }


def get_episode(run: Run, episode_id: str) -> Episode:
    """RunError if there is none of this id; a unique part of an id is enough."""
    root = run.episodes_dir
    if is_episode_id(episode_id) and (root / episode_id / FACTS).is_file():
        return Episode(root / episode_id)
    ids = episode_ids(run)
    matches = [name for name in ids if episode_id and episode_id in name]
    if len(matches) == 1:
        return Episode(root / matches[0])
    if matches:
        raise RunError(f"{episode_id!r} matches {len(matches)} episodes: {', '.join(matches[:6])}.")
    known = f"It has {', '.join(ids[:6])}." if ids else "It has none; gsolve inspect records them."
    raise RunError(f"{run.id} has no episode {episode_id!r}. {known}")


def episode_ids(run: Run) -> list[str]:
    root = run.episodes_dir
    if not root.is_dir():
        return []
    return sorted(
        path.name for path in root.iterdir() if is_episode_id(path.name) and not path.is_symlink()
    )


def list_episodes(run: Run) -> list[Episode]:
    """The episodes that can be read, newest first."""
    found = []
    for name in episode_ids(run):
        try:
            found.append(Episode(run.episodes_dir / name))
        except RunError:
            continue  # one that is damaged, or just being created, hides no others
    return sorted(found, key=lambda one: str(one.facts.get("created_at")), reverse=True)


def worst_first(episodes: list[Episode]) -> list[Episode]:
    """Sort episodes by return; those without one come last."""

    return sorted(episodes, key=lambda one: (one.total is None, one.total or 0.0))


def pack_path(folder: Path, view: str, chunk: int) -> Path:
    return folder / f"{view}-{chunk:04d}.pack"


def offsets_of(pack: bytes, name: str = "pack") -> tuple[int, ...]:
    """The offsets of the whole images: one more than there are images."""
    if len(pack) < HEADER:
        raise RunError(f"{name} is not a frame pack: it is too short.")
    count = struct.unpack_from("<I", pack)[0]
    if count > CHUNK:
        raise RunError(f"{name} is damaged: it says that it has {count} images.")
    offsets = struct.unpack_from(f"<{count + 1}I", pack, 4)
    if offsets[0] != HEADER or offsets[-1] > len(pack) or list(offsets) != sorted(offsets):
        raise RunError(f"{name} is damaged: its offsets are wrong.")
    return offsets


# -- writing --------------------------------------------------------------------------------------


class EpisodeWriter:
    """Writes an episode while it is played.

    writer = EpisodeWriter.create(run, facts)
    writer.add(row, action, digest, info)      # a state and its decision
    writer.add_frame("render", body)
    writer.finish(derived, {"steps": 200, "return": 200.0, "ended": "truncated"})"""

    def __init__(self, run: Run, name: str, facts: Mapping[str, Any]) -> None:
        self.path, self.run = run.episodes_dir / name, run
        self.facts: dict[str, Any] = dict(facts)
        self.n_rows = 0
        self._files: dict[str, FileIO] = {}
        self._packs: dict[str, PackWriter] = {}

    @classmethod
    def create(cls, run: Run, facts: Mapping[str, Any]) -> Self:
        """`facts` has env_steps, seed and greedy, of which the id is made; `columns` and `action`,
        which the readers need; and anything else to be kept."""
        how = "greedy" if facts["greedy"] else "sampled"
        name = f"{facts['env_steps']}-seed{facts['seed']}-{how}-{secrets.token_hex(2)}"
        base = {"format": FORMAT, "id": name, "run": run.id, "created_at": utc_now()}
        writer = cls(run, name, {**base, **facts, "status": "running", **machine.process()})
        with files.writing("the episode", writer.path.parent):
            writer.path.parent.mkdir(exist_ok=True)  # not its parents: a deleted run stays deleted
            try:
                writer.path.mkdir()
            except FileExistsError:
                return cls.create(run, facts)
            for file in (COLUMNS, ACTIONS, DIGESTS, INFO):
                writer._files[file] = (writer.path / file).open("wb", buffering=0)
            writer.save_facts()
        return writer

    def save_facts(self, **more: Any) -> None:
        self.facts.update(more)
        files.write_atomic(self.path / FACTS, files.dump_json(self.facts))

    def add(
        self,
        row: np.ndarray,
        action: np.ndarray | None,
        digest: bytes,
        info: Mapping[str, Any] | None = None,
    ) -> None:
        """A state. `action`: what was done in it, None in the last one."""
        with files.writing("the episode", self.path):
            if action is not None:
                self._files[ACTIONS].write(action.tobytes())
            self._files[DIGESTS].write(digest)
            self._files[INFO].write(files.json_bytes(files.jsonable(info or {})))
            self._files[COLUMNS].write(row.astype("<f4").tobytes())  # last: it is what is counted
        self.n_rows += 1

    def add_frame(self, view: str, body: bytes) -> None:
        with files.writing("a frame", self.path):
            if view not in self._packs:
                self._packs[view] = PackWriter(self.path, view)
            self._packs[view].add(body)

    def finish(self, derived: np.ndarray | None, result: Mapping[str, Any]) -> Episode:
        """`derived` [rows, 3]."""
        self.close()
        with files.writing("the episode", self.path):
            if derived is not None:
                files.write_atomic(self.path / DERIVED_FILE, derived.astype("<f4").tobytes())
            self.save_facts(status="done", result=dict(result))
        return Episode(self.path)

    def fail(self, why: str) -> None:
        """The episode ends with an error; what has been recorded stays."""
        self.close()
        if self.path.is_dir():
            self.save_facts(status="failed", why=why)

    def close(self) -> None:
        for file in self._files.values():
            file.close()
        for pack in self._packs.values():
            pack.close()


class PackWriter:
    def __init__(self, folder: Path, view: str) -> None:
        self.folder, self.view, self.n_frames = folder, view, 0
        self._file: BufferedRandom | None = None
        self._end = HEADER

    def add(self, body: bytes) -> None:
        chunk, slot = divmod(self.n_frames, CHUNK)
        if slot == 0:
            self.close()
            self._file = pack_path(self.folder, self.view, chunk).open("w+b")
            self._write(struct.pack("<II", 0, HEADER) + bytes(4 * CHUNK), 0)
            self._end = HEADER
        self._write(body, self._end)
        self._end += len(body)
        self._write(struct.pack("<I", self._end), 4 * (slot + 2))
        self._write(struct.pack("<I", slot + 1), 0)
        self.n_frames += 1

    def _write(self, data: bytes, place: int) -> None:
        assert self._file is not None
        self._file.seek(place)
        self._file.write(data)
        self._file.flush()  # in this order, for readers

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
