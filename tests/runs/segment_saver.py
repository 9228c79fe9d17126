"""Saves checkpoints with replay segments so that a test can kill it. Run as a script.

segment_saver.py loop DIR     saves for ever; prints the rows of each checkpoint that was saved
segment_saver.py check DIR    checks what is there; prints the rows of `last`
segment_saver.py crash DIR    dies before the 1st, 2nd, ... change to the disk of a save, checks the
                              folder after each death; prints how many deaths there were
"""

import os
import shutil
import sys
from functools import partial
from pathlib import Path

import numpy as np

from gymnasium_solver.runs.checkpoint import (
    LAST,
    list_checkpoints,
    load_checkpoint,
    pointer_env_steps,
    prune,
    rewind,
    save_checkpoint,
)
from gymnasium_solver.runs.segments import (
    append_segment,
    extended,
    load_segments,
    needed,
    prune_segments,
    referenced,
)
from tests.runs.saver import _dies

CAPACITY = 50_000  # rows that a replay of this size still needs


def rows(start: int, stop: int) -> dict[str, np.ndarray]:
    count = np.arange(start, stop)
    return {"obs": count[:, None] * np.ones(4, np.float32), "action": count.astype(np.int64)}


def save(run: Path, n_rows: int) -> int:
    """The next checkpoint, `n_rows` after the last; its row count."""
    directory, checkpoints = run / "replay", run / "checkpoints"
    run.mkdir(exist_ok=True)
    start = pointer_env_steps(checkpoints, LAST) or 0
    segments = []
    if start:
        segments = load_checkpoint(checkpoints / LAST).state["replay"]["segments"]
    stop = start + n_rows
    new = append_segment(directory, start, stop, rows(start, stop), previous=segments)
    segments = needed(extended(segments, new), stop - CAPACITY)
    save_checkpoint(checkpoints, stop, {}, {"replay": {"segments": segments}}, {})
    prune(checkpoints, keep=2)
    prune_segments(directory, referenced(checkpoints))
    return stop


def check(run: Path) -> int:
    """Every finished checkpoint has the rows it needs; the rows of `last`."""
    for info in list_checkpoints(run / "checkpoints"):
        segments = load_checkpoint(info.path).state["replay"]["segments"]
        at = segments[0]["start"]
        assert at <= max(0, info.env_steps - CAPACITY)
        for start, arrays in load_segments(run / "replay", segments):
            assert start == at
            at += len(arrays["action"])
            expected = rows(start, at)
            assert all(np.array_equal(arrays[name], expected[name]) for name in expected)
        assert at == info.env_steps
    return pointer_env_steps(run / "checkpoints", LAST) or 0


def finish(run: Path) -> None:
    """The next save works, and leaves nothing of the dead ones."""
    save(run, 10)
    check(run)
    found = {path.name for path in (run / "replay").iterdir()}
    assert found == referenced(run / "checkpoints"), found


def loop(run: Path) -> None:
    if (run / "checkpoints").exists():
        rewind(run / "checkpoints", check(run))
    print(check(run), flush=True)
    for turn in range(sys.maxsize):
        print(save(run, 30_000 if turn % 3 == 0 else 1_000), flush=True)


def crash(directory: Path) -> int:
    start = directory / "start"
    for n_rows in (30_000, 30_000, 500, 500):
        save(start, n_rows)
    for deaths in range(1000):
        run = directory / str(deaths)
        shutil.copytree(start, run, symlinks=True)
        if not _dies(partial(save, run, 500), deaths):
            return deaths
        check(run)
        finish(run)
        shutil.rmtree(run)
    raise AssertionError("the save never ends")


def main(verb: str, directory: Path) -> None:
    setattr(os, "fsync", lambda handle: None)  # noqa: B010  only power cuts need it; be quick
    if verb == "loop":
        loop(directory)
    else:
        print({"check": check, "crash": crash}[verb](directory))


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
