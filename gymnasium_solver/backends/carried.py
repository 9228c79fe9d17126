"""The folder of a run on a machine that does not see it: sent there, and sent back as it changes.

    for part in Changes(folder).parts(): send(part)       # here: everything; later: what is new
    apply(part, elsewhere)                                # there

A part is a tar of at most 64 MB, or of one larger file. The order is such that a receiver that is
killed between two parts has a folder that can be resumed: data first, then checkpoints, `done` last
in each, then the pointers to them.
"""

import io
import os
import tarfile
from collections.abc import Iterator
from pathlib import Path

from gymnasium_solver.runs.files import write_atomic, write_pointer

PART_BYTES = 64 * 2**20
GONE = ".gone"  # in a part: names that are no longer there
Stamp = tuple[int, int, str]  # size, time of change, target of a pointer


class Changes:
    """What has changed in a folder since the last call. Temporary files are left out."""

    def __init__(self, folder: Path, *, known: bool = False) -> None:
        """`known`: the receiver has all that is in the folder now."""
        self.folder = folder
        self._sent = _stamps(folder) if known else {}

    def parts(self) -> Iterator[bytes]:
        """The tars of what is new. Read from a folder that a training writes: if a checkpoint is
        saved meanwhile, what it needs of the replay may be newer than what was read."""
        while True:
            now = _stamps(self.folder)
            changed = [name for name, stamp in now.items() if self._sent.get(name) != stamp]
            gone = sorted(self._sent.keys() - now.keys())
            found = list(self._tars(sorted(changed, key=_order), gone)) if changed or gone else []
            if _checkpoints(_stamps(self.folder)) == _checkpoints(now):
                break
        self._sent = now
        yield from found

    def _tars(self, names: list[str], gone: list[str]) -> Iterator[bytes]:
        part, size = [("\n".join(gone).encode(), GONE, "")], 0
        for name in names:
            path = self.folder / name
            try:
                target = os.readlink(path) if path.is_symlink() else ""
                data = b"" if target else path.read_bytes()
            except FileNotFoundError:  # replaced or removed just now: the next call sees it
                continue
            if part and size + len(data) > PART_BYTES:
                yield _tar(part)
                part, size = [], 0
            part.append((data, name, target))
            size += len(data)
        if part:
            yield _tar(part)


def apply(part: bytes, folder: Path) -> None:
    """Put the files of a part into a folder, each at once, and remove what is gone."""
    folder.mkdir(parents=True, exist_ok=True)
    with tarfile.open(fileobj=io.BytesIO(part)) as tar:
        for member in tar:
            path = folder / member.name
            if Path(member.name).is_absolute() or ".." in Path(member.name).parts:
                continue
            path.parent.mkdir(parents=True, exist_ok=True)
            if member.issym():
                write_pointer(path, member.linkname)
                continue
            file = tar.extractfile(member)
            data = b"" if file is None else file.read()
            if member.name == GONE:
                _remove(data.decode().splitlines(), folder)
            else:
                write_atomic(path, data)


def _remove(names: list[str], folder: Path) -> None:
    for name in names:
        (folder / name).unlink(missing_ok=True)
    for name in sorted({str(Path(name).parent) for name in names}, key=len, reverse=True):
        if name != "." and not any((folder / name).iterdir()):
            (folder / name).rmdir()


def _tar(members: list[tuple[bytes, str, str]]) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as tar:
        for data, name, target in members:
            info = tarfile.TarInfo(name)
            info.size = len(data)
            if target:
                info.type, info.linkname = tarfile.SYMTYPE, target
            tar.addfile(info, io.BytesIO(data))
    return out.getvalue()


def _stamps(folder: Path) -> dict[str, Stamp]:
    """Every file by its name in the folder, and what tells whether it has changed."""
    found: dict[str, Stamp] = {}
    for root, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if not name.startswith(".")]
        links = [name for name in folders if os.path.islink(os.path.join(root, name))]
        for name in [*links, *names]:
            path = Path(root, name)
            try:
                facts = path.lstat()
                target = os.readlink(path) if path.is_symlink() else ""
            except FileNotFoundError:
                continue
            if not name.startswith("."):
                stamp = (facts.st_size, facts.st_mtime_ns, target)
                found[path.relative_to(folder).as_posix()] = stamp
    return found


def _order(name: str) -> tuple[int, str]:
    path = Path(name)
    if path.parts[0] != "checkpoints":
        return 0, name
    return (3 if len(path.parts) == 2 else 2 if path.name == "done" else 1), name


def _checkpoints(stamps: dict[str, Stamp]) -> set[str]:
    return {name for name in stamps if _order(name)[0] >= 2}
