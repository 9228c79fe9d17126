"""The cache of compiled programs: private, checked by hash, shared between processes."""

import ctypes
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from gymnasium_solver.fast.native import build
from gymnasium_solver.fast.tape import Unsupported

pytestmark = pytest.mark.skipif(not build.can_compile(), reason="needs a C compiler")

TEXT = "\nint number(void) { return 3; }\n"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache, with a small text in place of the matrix products and the rest."""
    monkeypatch.setenv(build.CACHE_VARIABLE, str(tmp_path))
    monkeypatch.setattr(build, "_text", lambda name: f"/* {name} */\n")
    fresh: dict[str, Any] = {"_loaded": {}, "_proven": set(), "_failure": None, "_useless": None}
    for name, value in fresh.items():
        monkeypatch.setattr(build, name, value)
    return tmp_path / "programs"


def number() -> int:
    build._loaded.clear()
    result: int = build.load_compiled(TEXT).number()
    return result


def test_a_library_is_compiled_once_and_kept_privately(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert number() == 3
    assert folder.stat().st_mode & 0o777 == 0o700
    monkeypatch.setattr(build, "_cc", lambda *args: pytest.fail("compiled again"))
    assert number() == 3
    monkeypatch.undo()


def test_a_changed_library_is_not_loaded_but_compiled_again(folder: Path) -> None:
    assert number() == 3
    (file,) = folder.glob("*.so")
    right = file.read_bytes()
    file.unlink()  # the old one is mapped by this process
    file.write_bytes(right[:-8] + b"tampered")
    assert number() == 3
    assert file.read_bytes()[-8:] != b"tampered"


def test_a_library_without_its_hash_is_compiled_again(folder: Path) -> None:
    number()
    (note,) = folder.glob("*.so.sha256")
    note.unlink()
    assert number() == 3
    assert note.exists()


@pytest.mark.parametrize("mode", [0o770, 0o707, 0o755])
def test_a_folder_that_others_can_enter_is_not_used(
    folder: Path, mode: int, caplog: pytest.LogCaptureFixture
) -> None:
    folder.mkdir(parents=True)
    folder.chmod(mode)
    assert number() == 3
    assert list(folder.iterdir()) == []
    assert "chmod 700" in caplog.text


def test_a_link_in_place_of_the_folder_is_not_used(folder: Path, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir(mode=0o700)
    folder.symlink_to(elsewhere)
    assert number() == 3
    assert list(elsewhere.iterdir()) == []


def test_two_processes_compile_at_the_same_time(tmp_path: Path) -> None:
    code = (
        "from gymnasium_solver.fast.native import build\n"
        "build._text = lambda name: '/* */\\n'\n"
        f"print(build.load_compiled({TEXT!r}).number())"
    )
    own = {**os.environ, build.CACHE_VARIABLE: str(tmp_path)}
    both = [
        subprocess.Popen([sys.executable, "-c", code], env=own, stdout=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    assert [process.communicate(timeout=60)[0].strip() for process in both] == ["3", "3"]
    assert len(list((tmp_path / "programs").glob("*.so"))) == 1
    assert not list((tmp_path / "programs").glob(".gsolve-build-*"))


def test_a_text_that_does_not_compile_is_no_crash(folder: Path) -> None:
    with pytest.raises(Unsupported, match="rejects"):
        build.load_compiled("this is not C")


def test_without_a_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    build.find_compiler.cache_clear()
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.delenv("CC", raising=False)
    try:
        assert not build.can_compile()
    finally:
        build.find_compiler.cache_clear()


def test_the_name_depends_on_the_text_and_the_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    one = build._key("a")
    assert build._key("b") != one
    monkeypatch.setattr(build, "machine", lambda: "another")
    assert build._key("a") != one


def test_the_cache_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv(build.CACHE_VARIABLE, raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert build.cache_folder() == tmp_path / "gymnasium-solver" / "programs"
    assert ctypes.sizeof(ctypes.c_void_p) == 8


LATE = r"""
#include <time.h>
static __thread int is_caller;
static void wait_us(long us) { struct timespec some = {0, 1000 * us}; nanosleep(&some, 0); }
/* As if the system stopped a worker after it has looked at a job. */
#define __atomic_load_n(p, order)                                                   \
    ({ __typeof__(*(p)) found = __atomic_load_n(p, order);                          \
       if (!is_caller && (void *)(p) != (void *)&pool.ticket) wait_us(500); found; })
"""
COUNT = r"""
static long ran[8];
static void count(void *with, long part, long thread) {
    __atomic_fetch_add(&ran[part], 1, __ATOMIC_SEQ_CST);
    if (is_caller) wait_us(20); /* so that the workers have a share */
}
long not_once(long jobs) {
    long wrong = 0;
    is_caller = 1;
    for (long job = 0; job < jobs; job++) {
        long parts = job / 4 % 2 ? 8 : 2; /* the pool uses a slot again after four jobs */
        memset(ran, 0, sizeof ran);
        in_parts(count, 0, parts, 4);
        for (long i = 0; i < 8; i++)
            wrong += __atomic_load_n(&ran[i], __ATOMIC_SEQ_CST) != (i < parts);
    }
    return wrong;
}
"""


def test_a_thread_that_comes_late_takes_no_part_of_another_job(tmp_path: Path) -> None:
    """It may be stopped between any two instructions, and on aarch64 it may see writes in another
    order."""
    source, library = tmp_path / "pool.c", tmp_path / "pool.so"
    source.write_text(LATE + build._text("runtime.h") + build._text("pool.c") + COUNT)
    compiler = build.find_compiler()
    assert compiler is not None
    command = [*compiler, *build.FLAGS, "-O2", "-shared", "-o", str(library), str(source)]
    subprocess.run([*command, *build.LIBRARIES], check=True, timeout=60)
    assert ctypes.CDLL(str(library)).not_once(1000) == 0
