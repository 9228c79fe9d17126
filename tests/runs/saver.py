"""Saves checkpoints so that a test can kill it. Run as a script; imports neither torch nor pytest.

saver.py loop DIR             saves for ever; prints the env steps of each save that returned
saver.py check DIR            checks what is there; prints the env steps of `last`
saver.py finish DIR           saves once more and checks that nothing is left over
saver.py crash DIR SCENARIO   dies before the 1st, 2nd, ... change to the disk of a scenario,
                              checks the folder after each death; prints how many there were
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

_CHANGES = ("fsync", "mkdir", "rename", "replace", "symlink", "unlink", "rmdir")
_DIED = 9


def save(directory: Path, env_steps: int, mark: int, size: int = 10, best: bool = False) -> None:
    tensors = {"model": {"w": np.full(size, mark)}, "optimizer": {"m": np.full(size, mark)}}
    state = {"mark": mark}
    save_checkpoint(directory, env_steps, tensors, state, {"score": mark}, best=best)


def check(directory: Path) -> int:
    """Both pointers load and verify, every checkpoint is of one piece; the env steps of `last`."""
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


def finish(directory: Path) -> None:
    """The next save works, and leaves nothing of the dead ones."""
    save(directory, 10**6, 6)
    assert check(directory) == 10**6
    leftovers = [path.name for path in directory.iterdir() if path.name.startswith(".")]
    assert not leftovers, leftovers


def loop(directory: Path) -> None:
    """New checkpoints, replaced ones and pruned ones in turn, big enough to be killed inside."""
    last = check(directory) if directory.exists() else 0
    print(last, flush=True)
    for env_steps in range(last + 1, sys.maxsize):
        save(directory, env_steps, env_steps, size=50_000, best=env_steps % 3 == 1)
        print(env_steps, flush=True)
        save(directory, env_steps, 1000 + env_steps, size=50_000)
        prune(directory, keep=2)


SCENARIOS: dict[str, Callable[[Path], object]] = {
    "new": lambda directory: save(directory, 400, 4, best=True),
    "replace": lambda directory: save(directory, 300, 5, best=True),
    "prune": lambda directory: prune(directory, keep=0),
    "rewind": lambda directory: rewind(directory, 100),
    "clean": clean_leftovers,
}


def crash(directory: Path, scenario: str) -> int:
    """Let a child die before each change to the disk in turn, until one gets through."""
    start = directory / "start"
    for env_steps, best in ((100, False), (200, False), (300, True)):
        save(start, env_steps, env_steps // 100, best=best)
    if scenario == "clean":  # what a death inside a replacement leaves
        os.rename(start / "300", start / ".old-300-1")
        shutil.copytree(start / "200", start / ".tmp-300-1")
    for deaths in range(1000):
        folder = directory / str(deaths)
        shutil.copytree(start, folder, symlinks=True)
        if not _dies(functools.partial(SCENARIOS[scenario], folder), deaths):
            return deaths
        check(folder)
        finish(folder)
        shutil.rmtree(folder)
    raise AssertionError("the scenario never ends")


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


def main(verb: str, directory: Path, *arguments: str) -> None:
    setattr(os, "fsync", lambda handle: None)  # noqa: B010  only power cuts need it; be quick
    if verb == "loop":
        loop(directory)
    elif verb == "finish":
        print(check(directory))
        finish(directory)
    else:
        print(crash(directory, *arguments))


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), *sys.argv[3:])
