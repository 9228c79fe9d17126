"""Compiles C text to a shared library, once: libraries are kept in the user's cache folder.

A library is code that runs with the user's rights. The folder must therefore belong to the user and
be closed to everyone else, and each library is loaded only if its hash is the one that was written
down when it was compiled. A folder that fails this is not used: the library is compiled into a
private temporary folder instead.

The name of a library is a hash of the text, the flags, the compiler and the kind of CPU.
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
from functools import cache
from pathlib import Path
from typing import Any, Protocol

from gymnasium_solver.errors import Unsupported

log = logging.getLogger(__name__)

CACHE_VARIABLE = "GSOLVE_CACHE_DIR"
FLAGS = [
    "-ftree-vectorize", "-fopenmp-simd", "-fno-math-errno", "-fno-trapping-math",
    "-ffp-contract=fast", "-std=gnu11", "-fPIC", "-w",
]  # fmt: skip
# Matrix products are worth more optimisation, which takes half a second, once per machine. For the
# loops of a program the first level is as fast and compiles three times faster. Scheduling before
# registers are assigned makes gcc copy accumulators on aarch64 (15 % slower); x86 does without it.
MATMUL_FLAGS, PROGRAM_FLAGS = ["-O2", "-fno-schedule-insns", "-c"], ["-O2", "-c"]
CPU_FLAGS: list[list[str]] = [
    ["-march=native"],
    ["-mcpu=native"],
    [],
]  # the first that the compiler accepts
LIBRARIES = ["-lm", "-lpthread"]
COMPILE_SECONDS = 120


class CompiledEnvs(Protocol):
    """N copies that step in C, without a check of their actions (fast/native/rows.py)."""

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


def load_compiled(text: str, steps: bool = True) -> ctypes.CDLL:
    """The library of a generated text, after runtime.c and before run.c: cached, or compiled now.
    `steps`: with optimizer.c and loop.c, which take as long to compile as a forward pass."""
    compiler = find_compiler()
    if compiler is None:
        raise Unsupported("no C compiler")
    before, after = ["runtime.c", "optimizer.c"], ["run.c", "loop.c"]
    n = 2 if steps else 1
    source = "".join([*map(_text, before[:n]), text, *map(_text, after[:n])])
    name = _key(_text("matmul.c"), source)
    return _load(name, lambda folder, file: _compile_both(folder, file, source, compiler))


def load_file(source: Path, flags: Sequence[str]) -> ctypes.CDLL:
    """The library of a C file that needs no other."""
    compiler = find_compiler()
    if compiler is None:
        raise Unsupported("no C compiler")
    text, options = source.read_text(), [*flags, "-shared"]

    def make(folder: Path, file: Path) -> None:
        _made(file, lambda to: _cc(compiler, options, text, to))

    return _load(_key(text, " ".join(options)), make)


def _load(name: str, make: Callable[[Path, Path], None]) -> ctypes.CDLL:
    """The library of this name: loaded before, from the cache, or made in a folder."""
    if name not in _loaded:
        folder = _usable_folder()
        file = folder / f"{name}.so"
        if not _is_intact(file):
            make(folder, file)
        try:
            _loaded[name] = ctypes.CDLL(str(file))
        except OSError as error:
            raise Unsupported(f"the compiled program does not load: {error}") from error
    return _loaded[name]


def _key(*texts: str) -> str:
    flags = " ".join([*FLAGS, *MATMUL_FLAGS, *PROGRAM_FLAGS, *LIBRARIES])
    return hashlib.sha256("\0".join([*texts, flags, machine()]).encode()).hexdigest()[:32]


def _compile_both(folder: Path, file: Path, source: str, compiler: tuple[str, ...]) -> None:
    """Compile the matrix products, if they are not there yet, beside the program; then link."""
    text = _text("matmul.c")
    products = folder / f"matmul-{_key(text)}.o"
    with ThreadPoolExecutor(1) as beside:
        waiting = beside.submit(_made, products, lambda to: _cc(compiler, MATMUL_FLAGS, text, to))
        with tempfile.TemporaryDirectory(dir=folder, prefix="build-") as place:
            part = Path(place) / "program.o"
            _cc(compiler, PROGRAM_FLAGS, source, part)
            waiting.result()
            command = [*compiler, "-shared", "-o"]
            objects = [str(part), str(products), *LIBRARIES]
            _made(file, lambda to: _run([*command, str(to), *objects]))


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


def _cc(compiler: tuple[str, ...], flags: Sequence[str], text: str, to: Path) -> None:
    """Compile a text, for this CPU if the compiler can."""
    source = to.with_suffix(".c")
    source.write_text(text)
    for cpu in CPU_FLAGS:
        command = [*compiler, *FLAGS, *flags, *cpu, "-o", str(to), str(source)]
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
