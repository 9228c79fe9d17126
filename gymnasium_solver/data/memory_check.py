"""Checks before training that the rollout and the replay buffer fit into memory."""

from pathlib import Path

import psutil

from gymnasium_solver.errors import ConfigError

_GIB = 2**30


REPLAY_ADVICE = (
    "Set a smaller buffer_size, or set replay_dir to a folder on a disk with that much free "
    "space, to use a memory-mapped file."
)


def check_fits(
    estimate: int, available: int, what: str = "the replay buffer", advice: str = REPLAY_ADVICE
) -> None:
    """Raise ConfigError if `estimate` bytes do not fit into `available` bytes."""
    if estimate > available:
        raise ConfigError(
            f"{what} takes {estimate / _GIB:.2f} GiB, but only {available / _GIB:.2f} GiB of "
            f"memory is free. {advice}"
        )


def available_memory_bytes(root: Path = Path("/")) -> int:
    """Memory that this process can still allocate: the free memory of the machine or of the
    process's cgroup, whichever is less. `root` contains `proc` and `sys`."""
    limits = [psutil.virtual_memory().available, *_cgroup_bytes(root)]
    return min(limit for limit in limits if limit is not None)


def _cgroup_bytes(root: Path) -> list[int | None]:
    """Free memory of each cgroup of this process; any of its parents may set the limit.

    psutil reports the memory of the machine, not the limit of a container."""
    left: list[int | None] = []
    mount = root / "sys/fs/cgroup"
    for line in _lines(root / "proc/self/cgroup"):
        _, controllers, path = line.split(":", 2)
        if controllers == "":
            top, files = mount, ("memory.max", "memory.current")
        elif "memory" in controllers.split(","):
            top, files = mount / "memory", ("memory.limit_in_bytes", "memory.usage_in_bytes")
        else:
            continue
        folder = top / path.strip("/")
        while True:  # in a container the path may be the host's; then only the root exists
            left.append(_left_in(folder, *files))
            if folder == top:
                break
            folder = folder.parent
    return left


def _left_in(folder: Path, limit_file: str, usage_file: str) -> int | None:
    limit = _number(folder / limit_file)
    if limit is None:
        return None
    usage, cache = _number(folder / usage_file) or 0, 0
    for line in _lines(folder / "memory.stat"):
        # Inactive file pages count as usage but can be reclaimed, including those of child groups
        # (v1).
        if line.startswith(("inactive_file ", "total_inactive_file ")):
            cache = int(line.split()[1])
    return max(0, limit - max(0, usage - cache))


def _number(path: Path) -> int | None:
    """The number in the file; None if it is missing or says `max`."""
    text = "".join(_lines(path)).strip()
    return int(text) if text.isdecimal() else None


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text().splitlines()
    except OSError:
        return []
