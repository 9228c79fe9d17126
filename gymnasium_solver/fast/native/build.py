"""Compiles C text to a shared library, once: libraries are kept in the user's cache folder.

A library is code that runs with the user's rights. The folder must therefore belong to the user and
be closed to everyone else, and each library is loaded only if its hash is the one that was written
down when it was compiled. A folder that fails this is not used: the library is compiled into a
private temporary folder instead.

The name of a library is a hash of the text, the flags, the compiler and the kind of CPU.

A compiler may be broken. A new library is therefore used only after what it computes was compared
with NumPy or torch (`prove`), in a process of its own, which wrong code may crash. The verdict is
kept beside the hash, so that this happens once. Whatever goes wrong here is one line for the user
that names the compiler, and `Unsupported` for the caller, which computes in NumPy or torch.

A program is linked with objects that do not depend on it: matrix products, threads and optimisers.
These take longer to compile than most programs, once per machine. `start_compiling` has them made
by a process of its own while a run imports torch and builds environments and networks.
"""

import ctypes
import faulthandler
import fcntl
import hashlib
import logging
import mmap
import os
import platform
import shlex
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import cache, partial
from pathlib import Path
from typing import Any, NamedTuple, NoReturn, Protocol

import numpy as np

from gymnasium_solver.errors import Unsupported, first_line
from gymnasium_solver.paths import temporary_folder

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
    "support": (["runtime.h", "pool.c", "lanes.c", "optimizer.c"], ["-O2", "-c"]),
}
PROGRAM_FLAGS = ["-O2", "-c"]
PART_LENGTH, MOST_PARTS = 5000, 4  # characters of the functions of a program that are one file
EXACT = ["-O2", "-ffp-contract=off"]
ROLLOUT = ([Path(__file__).with_name("rollout.c")], EXACT)
# Of C that is not ours: what gcc and clang by default only warn of, is nearly always a mistake.
SOURCE_FLAGS = [
    "-O2", "-ffp-contract=off", "-fno-math-errno", "-fno-trapping-math", "-std=gnu11", "-fPIC",
    "-shared", "-fvisibility=hidden", "-Werror=implicit-function-declaration",
    "-Werror=implicit-int", "-Werror=incompatible-pointer-types", "-Werror=int-conversion",
    "-Werror=return-type",
]  # fmt: skip
CPU_FLAGS: list[list[str]] = [
    ["-march=native"],
    ["-mcpu=native"],
    [],
]  # the first that the compiler accepts
TRIAL = "fences"  # another word for another trial: files that passed the former one are tried again
LIBRARIES = ["-lm", "-lpthread"]
COMPILE_SECONDS = 120  # that the compiler may take, with the time that another process has the lock
CHECK_SECONDS = 120  # that a new library may take to compute what it is compared by
PROVEN = "agrees"  # the second line of the note of a library


class CompiledEnvs(Protocol):
    """N copies that step in C, without a check of their actions (fast/native/rollout.py)."""

    @property
    def function(self) -> Any:
        """int64_t step(void *arguments): returns how many envs are done."""

    @property
    def arguments(self) -> ctypes.Structure:
        """With pointers to a row of each: actions, obs, reward, terminated, truncated, and of
        `parts`."""

    @property
    def parts(self) -> Mapping[str, int]:
        """The parts of observations that are a dict, in the order of the pointers."""

    @property
    def needs_python(self) -> bool:
        """Whether `prepare` has something to do where episodes begin."""

    def begin(self, units: tuple[np.ndarray, np.ndarray] | None) -> None:
        """Actions are in these units from now on (`ActionKind.env_units`)."""

    def prepare(self) -> None:
        """Provide what the next reset rows need from Python."""

    def release(self) -> None:
        """Step into arrays of their own again."""


@cache
def find_compiler() -> tuple[str, ...] | None:
    """The command of the C compiler: $CC, cc, gcc or clang; None without one."""
    if sys.platform == "win32":
        return None
    for text in (os.environ.get("CC", ""), "cc", "gcc", "clang"):
        try:
            command = shlex.split(text)
        except ValueError as error:
            log.warning("CC=%s is not used: %s", text, error)
            continue
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
    folder = temporary_folder("programs")
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
    with _failures():
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


def load_file(
    sources: Sequence[Path], flags: Sequence[str], agrees: Callable[[ctypes.CDLL], bool]
) -> ctypes.CDLL:
    """The library of C files, one text after the other. `agrees`: see `prove`."""
    with _failures():
        unit = _library(sources, flags)
        library = _load(unit.name, unit.make)
    prove(library, lambda: agrees(library))
    return library


@cache
def thread_pool() -> int | None:
    """The address of `in_parts` (pool.c); None without a C compiler."""
    try:
        library = load_file([Path(__file__).with_name("pool.c")], EXACT, _shares_out)
    except Unsupported:
        return None
    return ctypes.cast(library.in_parts, ctypes.c_void_p).value


def _shares_out(library: ctypes.CDLL) -> bool:
    """Whether a new pool does each part once."""
    done: list[int] = []
    part = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_long, ctypes.c_long)(
        lambda with_, part, thread: done.append(part)
    )
    library.in_parts(part, None, ctypes.c_long(20), ctypes.c_long(3))
    return sorted(done) == list(range(20))


class SourceError(Exception):
    """The compiler rejects somebody's C file; the message is the compiler's."""


def load_source(
    text: str, includes: Sequence[Path], fault: Callable[[ctypes.CDLL], str], limit_s: int
) -> ctypes.CDLL:
    """The library of a C text that is not ours. The includes are searched in these folders, and
    count for the hash with all that they include. SourceError if the compiler rejects it, or makes
    nothing of use; Unsupported if `fault`, in a copy of this process, finds one ("" is none),
    crashes, or takes longer than `limit_s`."""
    try:
        library = _load_source(text, includes)
    except (OSError, Unsupported) as error:
        raise SourceError(first_line(error)) from error
    file = Path(library._name)
    if not _is_proven(file):
        if found := _said_by_child(lambda: fault(library), limit_s):
            raise Unsupported(found)
        _write_proven(file)
    return library


def _load_source(text: str, includes: Sequence[Path]) -> ctypes.CDLL:
    folder = _usable_folder()
    with temporary_folder("build", folder) as place:
        paths = [word for path in includes for word in ("-I", str(path))]
        whole = Path(place) / "whole.i"
        command = [*_compiler(), "-std=gnu11", "-E", "-x", "c", *paths, "-o", str(whole), "-"]
        code, said = _output(command, Path(place), text)
        if code:
            raise SourceError(said)
        expanded = whole.read_text(errors="replace")
    name = f"{_key(expanded, ' '.join(SOURCE_FLAGS), TRIAL)}.so"
    return _load(name, lambda folder: _compile_source(folder / name, expanded))


def _compile_source(file: Path, text: str) -> None:
    def make(to: Path) -> None:
        source = to.with_suffix(".c")
        source.write_text(text)
        for cpu in CPU_FLAGS:
            command = [*_compiler(), *SOURCE_FLAGS, *cpu, "-o", str(to), str(source), "-lm"]
            code, said = _output(command, to.parent)
            if not code:
                return
        raise SourceError(said)

    _made(file, make)


class Unit(NamedTuple):
    """A text that is compiled by itself, once per machine."""

    name: str  # of the file that is made
    text: str
    flags: Sequence[str]

    def make(self, folder: Path) -> Path:
        file = folder / self.name
        _made(file, lambda to: _cc(self.flags, self.text, to))
        return file


def _library(sources: Sequence[Path], flags: Sequence[str]) -> Unit:
    text, options = "".join(source.read_text() for source in sources), [*flags, "-shared"]
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
    try:
        folder, shared = cache_folder(), [*_objects(), _library(*ROLLOUT)]
        if all(_is_intact(folder / unit.name) for unit in shared):
            return
        command = [sys.executable, "-m", "gymnasium_solver.fast.native.build"]
        path = os.pathsep.join([str(Path(__file__).parents[3]), os.environ.get("PYTHONPATH", "")])
        env, none = os.environ | {"PYTHONPATH": path}, subprocess.DEVNULL
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
        if not _is_proven(file) and not _in_child(lambda: bool(ctypes.CDLL(str(file)))):
            raise Unsupported("what it made does not load")
        _loaded[name] = ctypes.CDLL(str(file))
    return _loaded[name]


# -- what can go wrong ----------------------------------------------------------------------------


_failure: str | None = None


@contextmanager
def _failures() -> Iterator[None]:
    """Whatever fails here is Unsupported, and said once."""
    try:
        yield
    except Exception as error:
        _say(error)
        raise Unsupported(str(error)) from error


def _say(error: Exception) -> None:
    global _failure
    compiler = find_compiler()
    if _failure is not None or compiler is None:  # said before
        return
    _failure = first_line(error)
    log.warning(
        "what %s compiles is not used (%s): NumPy or torch does it instead, more slowly. "
        "Set CC to another C compiler, or `compile: numpy`.",
        shlex.join(compiler),
        _failure,
    )


def prove(library: ctypes.CDLL, agrees: Callable[[], bool]) -> None:
    """Unsupported unless a library computes the right numbers. A yes is written down."""
    file = Path(library._name)
    if _is_proven(file):
        return
    with _failures():
        if not _in_child(agrees):
            raise Unsupported("a program that it made crashes or computes wrong numbers")
    _write_proven(file)


def _write_proven(file: Path) -> None:
    with suppress(OSError, ValueError, IndexError):
        note = _note_of(file)
        with temporary_folder("build", file.parent) as folder:
            new = Path(folder) / "sha256"
            new.write_text(f"{_read(note).decode().split()[0]}\n{PROVEN}\n")
            os.replace(new, note)
    _proven.add(str(file))


def is_proven(library: ctypes.CDLL) -> bool:
    return _is_proven(Path(library._name))


_proven: set[str] = set()


def _is_proven(file: Path) -> bool:
    if str(file) not in _proven:
        with suppress(OSError, ValueError):
            if _read(_note_of(file)).decode().split()[1:] == [PROVEN]:
                _proven.add(str(file))
    return str(file) in _proven


def _in_child(agrees: Callable[[], bool]) -> bool:
    """The answer of a copy of this process."""
    return not _said_by_child(lambda: "" if agrees() else "no", CHECK_SECONDS)


def _said_by_child(say: Callable[[], str], limit_s: int) -> str:
    """What a copy of this process says: wrong code may crash it, or never end."""
    if sys.platform != "linux":  # elsewhere a process with threads is not copied safely
        return say()
    with mmap.mmap(-1, mmap.PAGESIZE) as told:  # memory of both
        try:
            with warnings.catch_warnings():
                # Of threads; the copy uses none of them.
                warnings.simplefilter("ignore", DeprecationWarning)
                child = os.fork()
        except OSError:  # not enough memory
            return say()
        if child:
            code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
            if told[0]:
                return told[1:].partition(b"\0")[0].decode(errors="replace")
            if code == -signal.SIGALRM:
                return f"it does not end within {limit_s} s. Look for a loop without an end"
            why = signal.strsignal(-code) if code < 0 else "it exits"
            return f"it crashes ({why}). Look for an index outside an array, or a division by 0"
        try:
            for number in (signal.SIGALRM, signal.SIGINT, signal.SIGTERM):
                signal.signal(number, signal.SIG_DFL)
            signal.alarm(limit_s)
            faulthandler.disable()  # a crash is an answer
            nothing = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nothing, 1)
            os.dup2(nothing, 2)
            if torch := sys.modules.get("torch"):
                torch.set_num_threads(1)  # its other threads are not copied
            # If the code calls exit(), libraries would wait for their threads at the end.
            libc = ctypes.CDLL(None)
            libc.__cxa_atexit(ctypes.cast(libc._exit, ctypes.c_void_p), None, None)
            told[1:] = say().encode()[: mmap.PAGESIZE - 1].ljust(mmap.PAGESIZE - 1, b"\0")
            told[0] = 1  # it is through
        finally:
            os._exit(0)


def _key(*texts: str) -> str:
    flags = " ".join([*FLAGS, *PROGRAM_FLAGS, *LIBRARIES, *(str(f) for _, f in OBJECTS.values())])
    return hashlib.sha256("\0".join([*texts, flags, machine()]).encode()).hexdigest()[:32]


def _compile_program(file: Path, sources: Sequence[str]) -> None:
    """Compile the parts of a program, and with them the objects that are not there yet; then
    link."""
    objects = _objects()
    with (
        ThreadPoolExecutor(len(objects) + len(sources)) as pool,
        temporary_folder("build", file.parent) as place,
    ):
        shared = [pool.submit(unit.make, file.parent) for unit in objects]
        own = [Path(place) / f"part{i}.o" for i in range(len(sources))]
        list(pool.map(partial(_cc, PROGRAM_FLAGS), sources, own))
        given = [*map(str, own), *(str(made.result()) for made in shared), *LIBRARIES]
        _made(file, lambda to: _run([*_compiler(), "-shared", "-o", str(to), *given], to))


def _made(file: Path, make: Callable[[Path], None]) -> None:
    """Make a file with its hash beside it, unless it is there; one process at a time."""
    with _locked(file.with_suffix(".lock")) as waited_s:
        if _is_intact(file):  # another process may have made it meanwhile
            return
        if waited_s > COMPILE_SECONDS / 2:  # another one has tried for as long as it may
            _give_up(f"it was not through after {waited_s:.0f} s")
        with temporary_folder("build", file.parent) as folder:
            made, note = Path(folder) / file.name, Path(folder) / "sha256"
            make(made)
            _proven.discard(str(file))
            note.write_text(hashlib.sha256(_read(made)).hexdigest() + "\n")
            _note_of(file).unlink(missing_ok=True)
            os.replace(made, file)
            os.replace(note, _note_of(file))


def _note_of(file: Path) -> Path:
    return file.with_name(file.name + ".sha256")


def _is_intact(file: Path) -> bool:
    """Whether a library is there and has the hash that was written down."""
    try:
        wanted = _read(_note_of(file)).decode().split()[:1]
        return [hashlib.sha256(_read(file)).hexdigest()] == wanted
    except (OSError, ValueError):
        return False


def _read(file: Path) -> bytes:
    """The bytes of a file of its own: a link is not followed, a pipe not waited for."""
    with open(_regular(file, os.O_RDONLY), "rb") as handle:
        return handle.read()


def _regular(file: Path, flags: int) -> int:
    handle = os.open(file, flags | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, 0o600)
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise OSError(f"{file} is not a file: delete it")
    return handle


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
        try:
            return _run([*_compiler(), *FLAGS, *flags, *cpu, "-o", str(to), str(source)], to)
        except Unsupported as error:
            failed = error
    _give_up(str(failed))


_useless: str | None = None  # why the compiler is not started again by this process


def _give_up(why: str) -> NoReturn:
    global _useless
    _useless = why
    raise Unsupported(why)


def _run(command: Sequence[str], to: Path) -> None:
    """Start the compiler, which must make a file."""
    if _useless is not None:
        raise Unsupported(_useless)
    code, said = _output(command, to.parent)
    if code:
        log.info("the C compiler rejects a program: %s", said[:2000])
        raise Unsupported(": ".join(["it rejects a program", *said[:200].splitlines()[:1]]))
    if not to.is_file() or not to.stat().st_size:
        raise Unsupported("it made no file")


def _output(command: Sequence[str], place: Path, text: str = "") -> tuple[int, str]:
    """The exit code of a compiler that is given a text, and what it printed."""
    pipe, both = subprocess.PIPE, subprocess.STDOUT
    variables = {**os.environ, "TMPDIR": str(place)}  # what a killed compiler leaves, goes too
    with subprocess.Popen(
        command, stdin=pipe, stdout=pipe, stderr=both, process_group=0, env=variables
    ) as process:
        try:
            output, _ = process.communicate(text.encode(), timeout=COMPILE_SECONDS)
        except subprocess.TimeoutExpired:
            _give_up(f"it was not through after {COMPILE_SECONDS} s")
        finally:
            if process.returncode is None:
                os.killpg(process.pid, signal.SIGKILL)  # with what it started
    return process.returncode, output.decode(errors="replace").strip()


@contextmanager
def _locked(file: Path) -> Iterator[float]:
    """One process at a time; yields the seconds that this one waited. One that takes longer than a
    compiler may is not waited for."""
    with open(_regular(file, os.O_RDWR | os.O_CREAT), "w") as handle:
        start = time.monotonic()
        while True:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() - start > COMPILE_SECONDS:
                    raise Unsupported(f"{file} is locked by another process") from None
                time.sleep(0.005)
        try:
            yield time.monotonic() - start
        finally:
            fcntl.flock(handle, fcntl.LOCK_UN)


def _make_shared() -> None:
    folder, shared = _usable_folder(), [*_objects(), _library(*ROLLOUT)]
    if folder == cache_folder():  # not a folder that ends with this process
        with ThreadPoolExecutor(max(1, min(len(shared), (os.cpu_count() or 1) - 1))) as pool:
            list(pool.map(lambda unit: unit.make(folder), shared))


if __name__ == "__main__":
    _make_shared()
