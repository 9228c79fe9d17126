"""Check before training that the rollout and the replay buffer fit into memory."""

from pathlib import Path

import psutil

from gymnasium_solver.errors import ConfigError

_GIB = 2**30


REPLAY_ADVICE = (
    "Set a smaller buffer_size, or replay_dir: a folder on a disk with that much room, to keep it "
    "in a memory-mapped file there."
)


def check_fits(
    estimate: int,
    available: int,
    what: str = "the replay buffer",
    advice: str = REPLAY_ADVICE,
) -> None:
    """Raise ConfigError if `estimate` bytes do not fit into `available` bytes."""
    if estimate > available:
        raise ConfigError(
            f"{what} takes {estimate / _GIB:.2f} GiB, but only {available / _GIB:.2f} GiB of "
            f"memory are free. {advice}"
        )


def available_memory_bytes(root: Path = Path("/")) -> int:
    """Memory this process may still take: what the machine has left, or what the process's cgroup
    leaves of it, whichever is less. `root` holds `proc` and `sys`."""
    limits = [psutil.virtual_memory().available, *_cgroup_bytes(root)]
    return min(limit for limit in limits if limit is not None)


def _cgroup_bytes(root: Path) -> list[int | None]:
    """What each cgroup around this process leaves: any of its parents may set the limit.

    psutil knows the machine's memory only, not a container's limit."""
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
        while True:  # inside a container the path may be the host's: only the top exists then
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
        # File pages that nobody uses count as usage, but give way: also those of a hierarchy (v1).
        if line.startswith(("inactive_file ", "total_inactive_file ")):
            cache = int(line.split()[1])
    return max(0, limit - max(0, usage - cache))


def _number(path: Path) -> int | None:
    """The file's number; None where it is missing or says `max`."""
    text = "".join(_lines(path)).strip()
    return int(text) if text.isdecimal() else None


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text().splitlines()
    except OSError:
        return []
