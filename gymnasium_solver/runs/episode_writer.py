"""Writes an episode while it is played (the format is in runs/episodes.py).

writer = EpisodeWriter.create(run, facts)
writer.add(row, action, digest, info)      # a state and its decision
writer.add_frame("render", body)
writer.finish(derived, {"steps": 200, "return": 200.0, "ended": "truncated"})
"""

import os
import secrets
from collections.abc import Mapping
from io import FileIO
from typing import TYPE_CHECKING, Any, Self

from gymnasium_solver.runs import machine
from gymnasium_solver.runs.episodes import (
    ACTIONS,
    COLUMNS,
    DERIVED_FILE,
    DIGESTS,
    FACTS,
    FORMAT,
    INFO,
    Episode,
    episodes_dir,
)
from gymnasium_solver.runs.files import cannot_write, dump_json, json_bytes, jsonable, write_atomic
from gymnasium_solver.runs.packs import PackWriter
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
        try:
            writer.path.parent.mkdir(exist_ok=True)  # not its parents: a deleted run stays deleted
            writer.path.mkdir()
            for file in (COLUMNS, ACTIONS, DIGESTS, INFO):
                writer._files[file] = (writer.path / file).open("wb", buffering=0)
            writer.save_facts()
        except FileExistsError:
            return cls.create(run, facts)
        except OSError as error:
            raise cannot_write("the episode", writer.path.parent, error) from error
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
        try:
            if action is not None:
                self._files[ACTIONS].write(action.tobytes())
            self._files[DIGESTS].write(digest)
            self._files[INFO].write(json_bytes(jsonable(info or {})))
            self._files[COLUMNS].write(row.astype("<f4").tobytes())  # last: it is what is counted
        except OSError as error:
            raise cannot_write("the episode", self.path, error) from error
        self.n_rows += 1

    def add_frame(self, view: str, body: bytes) -> None:
        try:
            if view not in self._packs:
                self._packs[view] = PackWriter(self.path, view)
            self._packs[view].add(body)
        except OSError as error:
            raise cannot_write("a frame", self.path, error) from error

    def finish(self, derived: "np.ndarray | None", result: Mapping[str, Any]) -> Episode:
        """`derived` [rows, 3]."""
        try:
            if derived is not None:
                write_atomic(self.path / DERIVED_FILE, derived.astype("<f4").tobytes())
            self.save_facts(status="done", result=dict(result))
        except OSError as error:
            raise cannot_write("the episode", self.path, error) from error
        finally:
            self.close()
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
