"""Writes an episode while it is played (the format is in runs/episodes.py).

writer = EpisodeWriter.create(run, facts)
writer.add(row, action, digest, info)      # a state and its decision
writer.add_frame("render", body)
writer.finish(derived, {"steps": 200, "return": 200.0, "ended": "truncated"})
"""

import os
import secrets
import struct
from collections.abc import Mapping
from io import FileIO
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from gymnasium_solver.runs import machine
from gymnasium_solver.runs.episodes import (
    ACTIONS,
    CHUNK,
    COLUMNS,
    DERIVED_FILE,
    DIGESTS,
    FACTS,
    FORMAT,
    HEADER,
    INFO,
    Episode,
    episodes_dir,
    pack_path,
)
from gymnasium_solver.runs.files import (
    dump_json,
    json_bytes,
    jsonable,
    write_atomic,
    writing,
)
from gymnasium_solver.runs.run import Run, utc_now

if TYPE_CHECKING:
    import numpy as np


class EpisodeWriter:
    def __init__(self, run: Run, name: str, facts: Mapping[str, Any]) -> None:
        self.path, self.run = episodes_dir(run) / name, run
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
        pid = os.getpid()
        process = {
            "pid": pid,
            "pid_started": machine.process_start(pid),
            "machine": {"hostname": machine.hostname()},
        }
        base = {"format": FORMAT, "id": name, "run": run.id, "created_at": utc_now()}
        writer = cls(run, name, {**base, **facts, "status": "running", **process})
        with writing("the episode", writer.path.parent):
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
        write_atomic(self.path / FACTS, dump_json(self.facts))

    def add(
        self,
        row: "np.ndarray",
        action: "np.ndarray | None",
        digest: bytes,
        info: Mapping[str, Any] | None = None,
    ) -> None:
        """A state. `action`: what was done in it, None in the last one."""
        with writing("the episode", self.path):
            if action is not None:
                self._files[ACTIONS].write(action.tobytes())
            self._files[DIGESTS].write(digest)
            self._files[INFO].write(json_bytes(jsonable(info or {})))
            self._files[COLUMNS].write(row.astype("<f4").tobytes())  # last: it is what is counted
        self.n_rows += 1

    def add_frame(self, view: str, body: bytes) -> None:
        with writing("a frame", self.path):
            if view not in self._packs:
                self._packs[view] = PackWriter(self.path, view)
            self._packs[view].add(body)

    def finish(self, derived: "np.ndarray | None", result: Mapping[str, Any]) -> Episode:
        """`derived` [rows, 3]."""
        self.close()
        with writing("the episode", self.path):
            if derived is not None:
                write_atomic(self.path / DERIVED_FILE, derived.astype("<f4").tobytes())
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
        self._handle: int | None = None
        self._end = HEADER

    def add(self, body: bytes) -> None:
        slot = self.n_frames % CHUNK
        if slot == 0:
            self._open(self.n_frames // CHUNK)
        assert self._handle is not None
        _write_at(self._handle, body, self._end)
        self._end += len(body)
        _write_at(self._handle, struct.pack("<I", self._end), 4 * (slot + 2))
        _write_at(self._handle, struct.pack("<I", slot + 1), 0)
        self.n_frames += 1

    def _open(self, chunk: int) -> None:
        self.close()
        path = pack_path(self.folder, self.view, chunk)
        self._handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o644)
        header = struct.pack("<II", 0, HEADER) + bytes(4 * CHUNK)
        _write_at(self._handle, header, 0)
        self._end = HEADER

    def close(self) -> None:
        if self._handle is not None:
            os.close(self._handle)
            self._handle = None


def _write_at(handle: int, data: bytes, place: int) -> None:
    rest = memoryview(data)
    while rest:
        written = os.pwrite(handle, rest, place)
        rest, place = rest[written:], place + written
