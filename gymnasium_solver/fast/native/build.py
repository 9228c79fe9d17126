"""Compiles C text to a shared library, once: libraries are kept in the user's cache folder.

A library is code that runs with the user's rights. The folder must therefore belong to the user and
be closed to everyone else, and each library is loaded only if its hash is the one that was written
down when it was compiled. A folder that fails this is not used: the library is compiled into a
private temporary folder instead.

The name of a library is a hash of the text, the flags, the compiler and the kind of CPU.

A program is linked with objects that do not depend on it: matrix products, threads and optimisers.
These take longer to compile than most programs, once per machine. `start_compiling` has them made
by a process of its own while a run imports torch and builds environments and networks.
"""

import ctypes
import fcntl
import hashlib
import logging
import os
import platform
import shlex
import shutil
import stat
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache, partial
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from gymnasium_solver.errors import Unsupported

log = logging.getLogger(__name__)

CACHE_VARIABLE = "GSOLVE_CACHE_DIR"
FLAGS = [
    "-ftree-vectorize", "-fopenmp-simd", "-fno-math-errno", "-fno-trapping-math",
    "-ffp-contract=fast", "-std=gnu11", "-fPIC", "-w",
]  # fmt: skip
# What every program is linked with: files and flags. Scheduling before registers are assigned makes
# gcc copy accumulators on aarch64 (15 % slower); x86 does without it.
OBJECTS = {
    "matmul": (["matmul.c"], ["-O2", "-fno-schedule-insns", "-c"]),
    "support": (["runtime.h", "threads.c", "optimizer.c"], ["-O2", "-c"]),
}
PROGRAM_FLAGS = ["-O2", "-c"]
PART_LENGTH, MOST_PARTS = 5000, 4  # characters of the functions of a program that are one file
ROLLOUT = (Path(__file__).with_name("rollout.c"), ["-O2", "-ffp-contract=off"])
CPU_FLAGS: list[list[str]] = [
    ["-march=native"],
    ["-mcpu=native"],
    [],
]  # the first that the compiler accepts
LIBRARIES = ["-lm", "-lpthread"]
COMPILE_SECONDS = 120


class CompiledEnvs(Protocol):
    """N copies that step in C, without a check of their actions (fast/native/rollout.py)."""

    @property
    def function(self) -> Any:
        """int64_t step(void *arguments): returns how many envs are done."""

    @property
    def arguments(self) -> ctypes.Structure:
        """With pointers to a row of each: actions, obs, reward, terminated, truncated."""

    def prepare(self) -> None:
        """Provide what the next step needs from Python."""

    def release(self) -> None:
        """Step into arrays of their own again."""


@cache
def find_compiler() -> tuple[str, ...] | None:
    """The command of the C compiler: $CC, cc, gcc or clang; None without one."""
    if sys.platform == "win32":
        return None
    for text in (os.environ.get("CC", ""), "cc", "gcc", "clang"):
        command = shlex.split(text)
        if command and (path := shutil.which(command[0])):
            return (path, *command[1:])
    return None


def can_compile() -> bool:
    return find_compiler() is not None


_is_preferred = False


def prefer_compiled() -> None:
    """From now on in this process, what has the same bits in C and in NumPy runs in C. For one that
    compiles anyway; elsewhere it would cost the time of a C compiler."""
    global _is_preferred
    _is_preferred = True


def is_preferred() -> bool:
    return _is_preferred


@cache
def _text(name: str) -> str:
    return Path(__file__).with_name(name).read_text()


@cache
def machine() -> str:
    """The kind of CPU and the compiler, as text."""
    compiler = find_compiler() or ("",)
    file = Path(compiler[0]).resolve()
    found = file.stat()
    cpu = platform.machine() + platform.system()
    try:
        names = ("flags", "model name", "Features", "CPU part")
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        cpu += "\n".join(sorted({line for line in lines if line.startswith(names)}))
    except OSError:
        cpu += platform.processor()
    return "\n".join([*compiler, str(file), f"{found.st_size} {found.st_mtime_ns}", cpu])


def cache_folder() -> Path:
    """The folder of compiled programs: $GSOLVE_CACHE_DIR, or in the user's cache folder."""
    if own := os.environ.get(CACHE_VARIABLE):
        return Path(own) / "programs"
    if base := os.environ.get("XDG_CACHE_HOME"):
        return Path(base) / "gymnasium-solver" / "programs"
    home = Path.home() / ("Library/Caches" if sys.platform == "darwin" else ".cache")
    return home / "gymnasium-solver" / "programs"


def is_private(folder: Path) -> bool:
    """Whether a folder belongs to this user and nobody else can read or write it."""
    found = folder.lstat()
    is_closed = not found.st_mode & (stat.S_IRWXG | stat.S_IRWXO)
    return stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid() and is_closed


@cache
def _temporary() -> Path:
    """A private folder of this process, for when the cache cannot be used."""
    folder = tempfile.TemporaryDirectory(prefix="gsolve-programs-")
    _temporary_folders.append(folder)
    return Path(folder.name)


_temporary_folders: list[tempfile.TemporaryDirectory[str]] = []


def _usable_folder() -> Path:
    folder = cache_folder()
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        folder.mkdir(mode=0o700, exist_ok=True)
        if is_private(folder) and os.access(folder, os.W_OK):
            return folder
        log.warning(
            "%s is open to other users or not yours, so compiled programs are not kept: chmod 700 "
            "it, or set %s.",
            folder,
            CACHE_VARIABLE,
        )
    except OSError as error:
        log.info("no cache of compiled programs: %s", error)
    return _temporary()


_loaded: dict[str, ctypes.CDLL] = {}


def load_compiled(text: str, functions: Sequence[str] = ()) -> ctypes.CDLL:
    """The library of a generated text and of the functions that it calls, each of which may be in a
    file of its own: cached, or compiled now."""
    sources = [_text("runtime.h") + part for part in (text, *_shared_out(functions))]
    name = f"{_key(*sources, *(unit.text for unit in _objects()))}.so"
    return _load(name, lambda folder: _compile_program(folder / name, sources))


def _shared_out(functions: Sequence[str]) -> list[str]:
    """The functions in a few files, to be compiled side by side. How many does not depend on the
    machine: the same text everywhere."""
    parts = [""] * min(MOST_PARTS, sum(map(len, functions)) // PART_LENGTH + 1)
    for function in sorted(functions, key=len, reverse=True):
        least = min(range(len(parts)), key=lambda i: len(parts[i]))
        parts[least] += function + "\n"
    return parts if functions else []


def load_file(source: Path, flags: Sequence[str]) -> ctypes.CDLL:
    """The library of a C file that needs no other."""
    unit = _library(source, flags)
    return _load(unit.name, unit.make)


class Unit(NamedTuple):
    """A text that is compiled by itself, once per machine."""

    name: str  # of the file that is made
    text: str
    flags: Sequence[str]

    def make(self, folder: Path) -> Path:
        file = folder / self.name
        _made(file, lambda to: _cc(self.flags, self.text, to))
        return file


def _library(source: Path, flags: Sequence[str]) -> Unit:
    text, options = source.read_text(), [*flags, "-shared"]
    return Unit(f"{_key(text, ' '.join(options))}.so", text, options)


def _objects() -> list[Unit]:
    texts = {name: "".join(map(_text, files)) for name, (files, _) in OBJECTS.items()}
    return [Unit(f"{name}-{_key(text)}.o", text, OBJECTS[name][1]) for name, text in texts.items()]


_started: list[subprocess.Popen[bytes]] = []


def start_compiling() -> None:
    """Let another process compile what programs share, if it is not in the cache yet. A program
    that needs it waits for it (`_made`)."""
    if _started or not can_compile():
        return
    folder, shared = cache_folder(), [*_objects(), _library(*ROLLOUT)]
    if all(_is_intact(folder / unit.name) for unit in shared):
        return
    command = [sys.executable, "-m", "gymnasium_solver.fast.native.build"]
    path = os.pathsep.join([str(Path(__file__).parents[3]), os.environ.get("PYTHONPATH", "")])
    env, none = os.environ | {"PYTHONPATH": path}, subprocess.DEVNULL
    try:
        process = subprocess.Popen(command, env=env, stdin=none, stdout=none, stderr=none)
        _started.append(process)
    except OSError as error:
        log.info("nothing is compiled ahead: %s", error)


def _load(name: str, make: Callable[[Path], object]) -> ctypes.CDLL:
    """The library in this file: loaded before, from the cache, or made in a folder."""
    if name not in _loaded:
        folder = _usable_folder()
        file = folder / name
        if not _is_intact(file):
            make(folder)
        try:
            _loaded[name] = ctypes.CDLL(str(file))
        except OSError as error:
            raise Unsupported(f"the compiled program does not load: {error}") from error
    return _loaded[name]


def _key(*texts: str) -> str:
    flags = " ".join([*FLAGS, *PROGRAM_FLAGS, *LIBRARIES, *(str(f) for _, f in OBJECTS.values())])
    return hashlib.sha256("\0".join([*texts, flags, machine()]).encode()).hexdigest()[:32]


def _compile_program(file: Path, sources: Sequence[str]) -> None:
    """Compile the parts of a program, and with them the objects that are not there yet; then
    link."""
    objects = _objects()
    with (
        ThreadPoolExecutor(len(objects) + len(sources)) as pool,
        tempfile.TemporaryDirectory(dir=file.parent, prefix="build-") as place,
    ):
        shared = [pool.submit(unit.make, file.parent) for unit in objects]
        own = [Path(place) / f"part{i}.o" for i in range(len(sources))]
        list(pool.map(partial(_cc, PROGRAM_FLAGS), sources, own))
        given = [*map(str, own), *(str(made.result()) for made in shared), *LIBRARIES]
        _made(file, lambda to: _run([*_compiler(), "-shared", "-o", str(to), *given]))


def _made(file: Path, make: Callable[[Path], None]) -> None:
    """Make a file with its hash beside it, unless it is there; one process at a time."""
    with _locked(file.with_suffix(".lock")):
        if _is_intact(file):  # another process may have made it meanwhile
            return
        with tempfile.TemporaryDirectory(dir=file.parent, prefix="build-") as folder:
            made, note = Path(folder) / file.name, Path(folder) / "sha256"
            make(made)
            note.write_text(hashlib.sha256(made.read_bytes()).hexdigest() + "\n")
            _note_of(file).unlink(missing_ok=True)
            os.replace(made, file)
            os.replace(note, _note_of(file))


def _note_of(file: Path) -> Path:
    return file.with_name(file.name + ".sha256")


def _is_intact(file: Path) -> bool:
    """Whether a library is there and has the hash that was written down."""
    try:
        wanted = _note_of(file).read_text().strip()
        return hashlib.sha256(file.read_bytes()).hexdigest() == wanted
    except OSError:
        return False


def _compiler() -> tuple[str, ...]:
    compiler = find_compiler()
    if compiler is None:
        raise Unsupported("no C compiler")
    return compiler


def _cc(flags: Sequence[str], text: str, to: Path) -> None:
    """Compile a text, for this CPU if the compiler can."""
    source = to.with_suffix(".c")
    source.write_text(text)
    for cpu in CPU_FLAGS:
        command = [*_compiler(), *FLAGS, *flags, *cpu, "-o", str(to), str(source)]
        try:
            return _run(command)
        except Unsupported as error:
            failed = error
    raise failed


def _run(command: Sequence[str]) -> None:
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=COMPILE_SECONDS, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise Unsupported(f"the C compiler failed: {error}") from error
    if done.returncode:
        log.info("the C compiler rejects a program: %s", done.stderr[:2000])
        raise Unsupported("the C compiler rejects the program")


@contextmanager
def _locked(file: Path) -> Iterator[None]:
    with file.open("w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        try:
            yield
        finally:
            fcntl.flock(handle, fcntl.LOCK_UN)


def _make_shared() -> None:
    folder, shared = _usable_folder(), [*_objects(), _library(*ROLLOUT)]
    if folder == cache_folder():  # not a folder that ends with this process
        with ThreadPoolExecutor(max(1, min(len(shared), (os.cpu_count() or 1) - 1))) as pool:
            list(pool.map(lambda unit: unit.make(folder), shared))


if __name__ == "__main__":
    _make_shared()
