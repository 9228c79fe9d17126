"""Saves checkpoints, or replay segments with them, so that a test can kill it. Run as a script;
imports neither torch nor pytest.

saver.py WHAT loop DIR        saves for ever; prints the env steps of each save that returned
saver.py WHAT finish DIR      checks what is there, prints the env steps of `last`, then saves once
                              more and checks that nothing is left over
saver.py WHAT crash DIR       dies before the 1st, 2nd, ... change to the disk, checks the folder
                              after each death; prints how many there were

WHAT: new, replace, prune, rewind, clean (what is done to checkpoints) or replay.
"""

import functools
import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np

from gymnasium_solver.runs.checkpoint import (
    BEST,
    LAST,
    clean_leftovers,
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

_CHANGES = ("fsync", "mkdir", "rename", "replace", "symlink", "unlink", "rmdir")
_DIED = 9
CAPACITY = 50_000  # rows that a replay of this size still needs


class Checkpoints:
    """Checkpoints whose tensors and state all have one mark."""

    def save(
        self, directory: Path, env_steps: int, mark: int, size: int = 10, best: bool = False
    ) -> None:
        tensors = {"model": {"w": np.full(size, mark)}, "optimizer": {"m": np.full(size, mark)}}
        state = {"mark": mark}
        save_checkpoint(directory, env_steps, tensors, state, {"score": mark}, best=best)

    def check(self, directory: Path) -> int:
        """Both pointers load and verify, every checkpoint is of one piece; the env steps of
        `last`."""
        for name in (BEST, LAST):
            assert pointer_env_steps(directory, name) is not None, f"{name} is lost"
        infos = list_checkpoints(directory)
        for info in infos:
            loaded = load_checkpoint(info.path)
            assert loaded.env_steps == info.env_steps
            mark = loaded.state["mark"]
            assert (loaded.tensors["model"]["w"] == mark).all()
            assert (loaded.tensors["optimizer"]["m"] == mark).all()
            assert loaded.metrics == {"score": mark}
        return next(info.env_steps for info in infos if info.is_last)

    def finish(self, directory: Path) -> None:
        """The next save works, and leaves nothing of the dead ones."""
        self.save(directory, 10**6, 6)
        assert self.check(directory) == 10**6
        leftovers = [path.name for path in directory.iterdir() if path.name.startswith(".")]
        assert not leftovers, leftovers

    def loop(self, directory: Path) -> None:
        """New, replaced and pruned checkpoints in turn, big enough to be killed inside."""
        last = self.check(directory) if directory.exists() else 0
        print(last, flush=True)
        for env_steps in range(last + 1, sys.maxsize):
            self.save(directory, env_steps, env_steps, size=50_000, best=env_steps % 3 == 1)
            print(env_steps, flush=True)
            self.save(directory, env_steps, 1000 + env_steps, size=50_000)
            prune(directory, keep=2)

    def begin(self, directory: Path, what: str) -> None:
        for env_steps, best in ((100, False), (200, False), (300, True)):
            self.save(directory, env_steps, env_steps // 100, best=best)
        if what == "clean":  # what a death inside a replacement leaves
            os.rename(directory / "300", directory / ".old-300-1")
            shutil.copytree(directory / "200", directory / ".tmp-300-1")

    def act(self, directory: Path, what: str) -> None:
        if what in ("new", "replace"):
            self.save(directory, *((400, 4) if what == "new" else (300, 5)), best=True)
        elif what == "prune":
            prune(directory, keep=0)
        elif what == "rewind":
            rewind(directory, 100)
        else:
            clean_leftovers(directory)


class Replay:
    """A run whose checkpoints list the segments with the rows of its replay."""

    def rows(self, start: int, stop: int) -> dict[str, np.ndarray]:
        count = np.arange(start, stop)
        return {"obs": count[:, None] * np.ones(4, np.float32), "action": count.astype(np.int64)}

    def save(self, run: Path, n_rows: int) -> int:
        """The next checkpoint, `n_rows` after the last; its row count."""
        directory, checkpoints = run / "replay", run / "checkpoints"
        run.mkdir(exist_ok=True)
        start = pointer_env_steps(checkpoints, LAST) or 0
        segments = []
        if start:
            segments = load_checkpoint(checkpoints / LAST).state["replay"]["segments"]
        stop = start + n_rows
        new = append_segment(directory, start, stop, self.rows(start, stop), previous=segments)
        segments = needed(extended(segments, new), stop - CAPACITY)
        save_checkpoint(checkpoints, stop, {}, {"replay": {"segments": segments}}, {})
        prune(checkpoints, keep=2)
        prune_segments(directory, referenced(checkpoints))
        return stop

    def check(self, run: Path) -> int:
        """Every finished checkpoint has the rows it needs; the rows of `last`."""
        for info in list_checkpoints(run / "checkpoints"):
            segments = load_checkpoint(info.path).state["replay"]["segments"]
            at = segments[0]["start"]
            assert at <= max(0, info.env_steps - CAPACITY)
            for start, arrays in load_segments(run / "replay", segments):
                assert start == at
                at += len(arrays["action"])
                expected = self.rows(start, at)
                assert all(np.array_equal(arrays[name], expected[name]) for name in expected)
            assert at == info.env_steps
        return pointer_env_steps(run / "checkpoints", LAST) or 0

    def finish(self, run: Path) -> None:
        """The next save works, and leaves nothing of the dead ones."""
        self.save(run, 10)
        self.check(run)
        found = {path.name for path in (run / "replay").iterdir()}
        assert found == referenced(run / "checkpoints"), found

    def loop(self, run: Path) -> None:
        if (run / "checkpoints").exists():
            rewind(run / "checkpoints", self.check(run))
        print(self.check(run), flush=True)
        for turn in range(sys.maxsize):
            print(self.save(run, 30_000 if turn % 3 == 0 else 1_000), flush=True)

    def begin(self, run: Path, what: str) -> None:
        for n_rows in (30_000, 30_000, 500, 500):
            self.save(run, n_rows)

    def act(self, run: Path, what: str) -> None:
        self.save(run, 500)


def crash(saver: Checkpoints | Replay, directory: Path, what: str) -> int:
    """Let a child die before each change to the disk in turn, until one gets through."""
    start = directory / "start"
    saver.begin(start, what)
    for deaths in range(1000):
        folder = directory / str(deaths)
        shutil.copytree(start, folder, symlinks=True)
        if not _dies(functools.partial(saver.act, folder, what), deaths):
            return deaths
        saver.check(folder)
        saver.finish(folder)
        shutil.rmtree(folder)
    raise AssertionError("it never ends")


def _dies(action: Callable[[], object], changes_allowed: int) -> bool:
    pid = os.fork()
    if pid:
        status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        assert status in (0, _DIED), f"the child ended with {status}"
        return status == _DIED
    count = 0

    def counted(real: Callable[..., object]) -> Callable[..., object]:
        def change(*args: object, **kwargs: object) -> object:
            nonlocal count
            if count == changes_allowed:
                os._exit(_DIED)  # as kill -9: nothing is cleaned up, no `finally` runs
            count += 1
            return real(*args, **kwargs)

        return change

    for name in _CHANGES:
        setattr(os, name, counted(getattr(os, name)))
    try:
        action()
    except BaseException as error:
        print(repr(error), file=sys.stderr)
        os._exit(1)
    os._exit(0)


def main(what: str, verb: str, directory: Path) -> None:
    setattr(os, "fsync", lambda handle: None)  # noqa: B010  only power cuts need it; be quick
    saver = Replay() if what == "replay" else Checkpoints()
    if verb == "loop":
        saver.loop(directory)
    elif verb == "finish":
        print(saver.check(directory))
        saver.finish(directory)
    else:
        print(crash(saver, directory, what))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], Path(sys.argv[3]))
