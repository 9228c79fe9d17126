"""Stores a replay buffer in a run folder: each row is written once, and a checkpoint lists the
segments it needs."""

from pathlib import Path
from typing import Any

import numpy as np

from gymnasium_solver.data.memory import Memory
from gymnasium_solver.runs.segments import (
    Segment,
    append_segment,
    check_segments,
    extended,
    load_segments,
    needed,
    prune_segments,
    referenced,
)

HEAD = "head."  # prefix of the data of the newest observation, which is in no row yet


class ReplayLog:
    def __init__(self, directory: Path):
        self.directory = directory
        self.segments: list[Segment] = []

    def save(self, memory: Memory) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
        """Write the rows added since the last save; return arrays and JSON for the checkpoint."""
        replay = memory.replay
        written = self.segments[-1]["stop"] if self.segments else 0
        start, stop = max(written, replay.oldest_row), replay.n_added
        rows = replay.rows(start, stop)
        head = {HEAD + name: a[-1:] for name, a in rows.items() if len(a) > stop - start}
        if stop > start:
            body = {name: a[: stop - start] for name, a in rows.items()}
            new = append_segment(self.directory, start, stop, body, self.segments)
            self.segments = extended(self.segments, new)
        self.segments = needed(self.segments, replay.oldest_row)
        arrays, extra = memory.state()
        return arrays | head, {
            "segments": self.segments,
            "memory": extra,
            "has_masks": HEAD + "mask" in head,
        }

    def load(self, memory: Memory, arrays: dict[str, np.ndarray], state: dict[str, Any]) -> None:
        """Rebuild the replay buffer as it was at `save`."""
        head = {k.removeprefix(HEAD): a for k, a in arrays.items() if k.startswith(HEAD)}
        self.segments = check_segments(state["segments"])
        before: tuple[int, dict[str, np.ndarray]] | None = None
        # A segment ends with the observation after its last row, which is the first one of the next
        # segment.
        for start, rows in load_segments(self.directory, self.segments):
            if before is not None:
                memory.replay.put_rows(before[0], _joined(before[1], rows, head))
            before = start, rows
        if before is not None:
            memory.replay.put_rows(before[0], _joined(before[1], head, head))
        own = {name: a for name, a in arrays.items() if not name.startswith(HEAD)}
        memory.load_state(own, state["memory"])

    def prune(self, checkpoints_dir: Path) -> None:
        """Delete segments that no checkpoint lists."""
        prune_segments(self.directory, referenced(checkpoints_dir))


def _joined(
    rows: dict[str, np.ndarray], after: dict[str, np.ndarray], head: dict[str, np.ndarray]
) -> dict[str, np.ndarray]:
    return {
        name: np.concatenate([a, after[name][:1]]) if name in head else a
        for name, a in rows.items()
    }
