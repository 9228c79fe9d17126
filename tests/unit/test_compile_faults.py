"""Broken compilers and caches: right numbers, or NumPy and one line that names the compiler."""

import ctypes
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path

import pytest
import torch
from gymnasium.envs.classic_control import CartPoleEnv
from safetensors.torch import load_file
from torch import Tensor, nn

from gymnasium_solver.fast import recorded
from gymnasium_solver.fast.native import build
from gymnasium_solver.fast.native.program import NativeGradient
from gymnasium_solver.fast.tape import Unsupported

REAL = build.find_compiler()
pytestmark = pytest.mark.skipif(REAL is None, reason="needs a C compiler")
TEXT = "\nint number(void) { return 3; }\n"
CC = REAL[0] if REAL else ""
# The file after -o, and the call of a working compiler.
TO = 'to=; was=; for a in "$@"; do [ "$was" = -o ] && to="$a"; was="$a"; done\n'
WORKS = f'{CC} "$@"\n'

COMPILERS = {
    "fails": "exit 1",
    "fails with 255": "exit 255",
    "is killed": "kill -SEGV $$",
    "makes nothing": "exit 0",
    "makes an empty file": ': > "$to"',
    "makes text": 'echo no library > "$to"',
    "makes a folder": 'mkdir -p "$to"',
    "makes a pipe": 'mkfifo "$to"',
    "makes a link to nowhere": 'ln -s /nowhere/at/all "$to"',
    "makes half a file": WORKS + 'head -c 700 "$to" > "$to.half"; mv "$to.half" "$to"',
    "makes a library with other functions": 'echo "int other(void) { return 4; }" > "$to.c"\n'
    f'{CC} -shared -fPIC -o "$to" "$to.c"',
    "talks in bytes": r"printf '\377\376\n'" + "\n" + WORKS,
    "fails in bytes": r"printf '\377\376\n' >&2; exit 1",
    "talks a lot": "head -c 3000000 /dev/zero | tr '\\0' x >&2\n" + WORKS,
    "does not know this CPU": 'case "$*" in *=native*) exit 1;; esac\n' + WORKS,
    "deletes its source": 'for a in "$@"; do case "$a" in *.c) rm "$a";; esac; done; exit 1',
    "hangs": "exec sleep 1000",
    "hangs in a child": "sleep 1000",
    "hangs and ignores signals": "trap '' TERM INT; sleep 1000",
}
WORKING = {"talks in bytes", "talks a lot", "does not know this CPU"}
VARIABLES = {
    "an open quote": "'gcc",
    "an open escape": "gcc\\",
    "blank": "   ",
    "missing": "/nowhere/cc",
    "a folder": "/",
    "a text file": "/etc/passwd",
    "options only": "-O2",
}


def fake_compiler(folder: Path, script: str) -> str:
    file = folder / "fake-cc"
    file.write_text("#!/bin/sh\n" + TO + script + "\n")
    file.chmod(0o755)
    return str(file)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache and a process that has compiled nothing yet; a small text in place of the
    matrix products and the rest."""
    monkeypatch.setenv(build.CACHE_VARIABLE, str(tmp_path / "cache"))
    monkeypatch.setattr(build, "_text", lambda name: f"/* {name} */\n")
    forget(monkeypatch)
    return tmp_path / "cache" / "programs"


def forget(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("_loaded", "_proven"):
        monkeypatch.setattr(build, name, type(getattr(build, name))())
    for name in ("_failure", "_useless"):
        monkeypatch.setattr(build, name, None)
    build.find_compiler.cache_clear()
    build.machine.cache_clear()


@pytest.fixture(autouse=True)
def _afterwards() -> Iterator[None]:
    yield
    build.find_compiler.cache_clear()
    build.machine.cache_clear()


def is_three(library: ctypes.CDLL) -> bool:
    return bool(library.number() == 3)


def number() -> int:
    """3, or what a broken library answers; Unsupported if there is none."""
    library = build.load_compiled(TEXT)
    build.prove(library, partial(is_three, library))
    result: int = library.number()
    return result


@pytest.mark.sample(8)
@pytest.mark.parametrize("fault", COMPILERS)
def test_a_broken_compiler_is_one_line(
    folder: Path,
    fault: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    compiler = fake_compiler(tmp_path, COMPILERS[fault])
    monkeypatch.setenv("CC", compiler)
    if "hangs" in fault:
        monkeypatch.setattr(build, "COMPILE_SECONDS", 1)
    if fault in WORKING:
        assert number() == 3
        assert not caplog.records
        return
    for _ in range(3):
        with pytest.raises(Unsupported):
            number()
    (line,) = [record for record in caplog.records if record.levelname == "WARNING"]
    assert compiler in line.getMessage()
    assert "\n" not in line.getMessage()
    assert not list(folder.glob(".gsolve-build-*"))


def test_a_compiler_that_hangs_costs_one_time_out(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    counted = tmp_path / "starts"
    monkeypatch.setattr(build, "COMPILE_SECONDS", 1)
    monkeypatch.setenv("CC", fake_compiler(tmp_path, f"echo x >> {counted}; sleep 1000"))
    for _ in range(3):
        with pytest.raises(Unsupported, match="1 s"):
            number()
    assert len(counted.read_text().split()) <= 3  # two objects and the program, at the same time


@pytest.mark.parametrize("given", VARIABLES, ids=str)
def test_an_odd_cc(folder: Path, given: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CC", VARIABLES[given])
    build.find_compiler.cache_clear()
    assert number() == 3  # by the next one: cc


def test_a_compiler_that_is_deleted_while_a_run_uses_it(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiler = fake_compiler(tmp_path, WORKS)
    monkeypatch.setenv("CC", compiler)
    assert build.can_compile()
    Path(compiler).unlink()
    with pytest.raises(Unsupported):
        number()
    build.start_compiling()


def _replaced(make: Callable[[Path], object], pattern: str) -> Callable[[Path], None]:
    """Put something else in the place of a file of the cache."""

    def fault(folder: Path) -> None:
        (file,) = folder.glob(pattern)
        file.unlink()
        make(file)

    return fault


def _linked(to: Path) -> None:
    target = to.parent.parent / "target"
    target.write_text("precious")
    to.symlink_to(target)


REPLACEMENTS: dict[str, Callable[[Path], object]] = {
    "a folder": lambda file: file.mkdir(),
    "a pipe": os.mkfifo,
    "a link": _linked,
    "not text": lambda file: file.write_bytes(b"\xff\xfe\x00"),
    "empty": lambda file: file.touch(),
}
CACHES = {
    f"{name} is {what}": _replaced(make, pattern)
    for name, pattern in {
        "library": "*.so",
        "note": "*.so.sha256",
        "lock": "*[0-9a-f].lock",
    }.items()
    for what, make in REPLACEMENTS.items()
}


@pytest.mark.sample(6)
@pytest.mark.parametrize("fault", CACHES)
def test_a_damaged_cache(
    folder: Path, fault: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(build, "OBJECTS", {})  # one lock
    assert number() == 3
    CACHES[fault](folder)
    forget(monkeypatch)
    if "lock" in fault:  # which matters only if something is to be made
        for note in folder.glob("*.sha256"):
            note.unlink()
    try:
        assert number() == 3
        assert not caplog.records
    except Unsupported:
        (line,) = caplog.records
        assert CC in line.getMessage()
    target = folder.parent / "target"
    assert not target.exists() or target.read_text() == "precious"


def test_a_cache_that_cannot_be_written_and_no_temporary_folder(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "cache").write_text("a file")
    build._temporary.cache_clear()
    monkeypatch.setattr(build.tempfile, "tempdir", "/nowhere")
    with pytest.raises(Unsupported):
        number()
    build._temporary.cache_clear()
    assert len([record for record in caplog.records if record.levelname == "WARNING"]) == 1


# -- wrong programs -------------------------------------------------------------------------------


def test_a_library_is_checked_once(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert number() == 3
    forget(monkeypatch)
    library = build.load_compiled(TEXT)
    build.prove(library, lambda: pytest.fail("checked again"))
    assert build.is_proven(library)


@pytest.mark.skipif(sys.platform != "linux", reason="checked in the process itself elsewhere")
@pytest.mark.parametrize(
    "body", ["return 4;", "return *(volatile int *)0;", "for (;;);", "__builtin_trap();"]
)
def test_a_wrong_program_is_never_called_by_this_process(
    folder: Path, body: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(build, "CHECK_SECONDS", 1)
    text = "\nint number(void) { " + body + " }\n"
    for _ in range(2):  # a no is not written down
        library = build.load_compiled(text)
        with pytest.raises(Unsupported, match="wrong"):
            build.prove(library, partial(is_three, library))
    assert len(caplog.records) == 1


def test_the_checks_of_the_shipped_files_see_wrong_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each edit of rollout.c and cartpole.c is noticed by its check."""
    from gymnasium_solver.envs.engines.c import classics, engine
    from gymnasium_solver.fast.native import rollout

    monkeypatch.setenv(build.CACHE_VARIABLE, str(tmp_path))
    changed = tmp_path / "changed.c"

    def change(text: str, before: str, after: str) -> None:
        assert before in text
        changed.write_text(text.replace(before, after))

    files, flags = build.ROLLOUT[0], ["-O0", "-ffp-contract=off"]
    build.load_file(files, flags, rollout._agrees)
    for before, after in [
        ("own[i] + share[i] * to", "own[i] - share[i] * to"),
        ("= !is_reset", "= is_reset"),
        ("r->terminated[i] | r->truncated[i]", "r->terminated[i]"),
        ("is_reset ? 0.0 :", "is_reset ? 1.0 :"),
        ("r->episode_length[i] + 1", "r->episode_length[i] + 2"),
        ("+= r->moving[i].bytes", "+= 2 * r->moving[i].bytes"),
    ]:
        change(files[-1].read_text(), before, after)
        with pytest.raises(Unsupported, match="wrong"):
            build.load_file([*files[:-1], changed], flags, rollout._agrees)
    text, classic = (engine.SHIPPED / "cartpole.c").read_text(), classics.CLASSICS[CartPoleEnv]
    for before, after in [
        ("SECONDS * x_acc", "SECONDS + x_acc"),
        ("- cosine * temp", "+ cosine * temp"),
        ("s->theta > MAX_ANGLE", "s->theta > 2 * MAX_ANGLE"),
        ("*reward = 1.0f", "*reward = 2.0f"),
        ("sine = sin(s->theta)", "sine = (float)sin(s->theta)"),
    ]:
        change(text, before, after)
        assert not classics._agrees(CartPoleEnv, engine.load_program(f"c:{changed}"), classic)


EDITS = {  # sed scripts on every C text
    "no root": "s/sqrtf(/(1.0001f*/",
    "plus for times": "s/ \\* / + /",
    "plus for minus": "s/- /+ /",
    "less for more": "s/ > / < /",
}
EDITING = 'for a in "$@"; do case "$a" in *.c) sed -i "{}" "$a";; esac; done\n' + f'exec {CC} "$@"'


def test_a_wrong_optimiser_is_noticed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv(build.CACHE_VARIABLE, str(tmp_path))
    monkeypatch.setenv("CC", fake_compiler(tmp_path, EDITING.format(EDITS["no root"])))
    forget(monkeypatch)
    net = nn.Linear(3, 2)
    batch = [torch.linspace(-1, 1, 24).view(8, 3)]

    def loss(given: Sequence[Tensor], _: Sequence[Tensor]) -> tuple[Tensor, list[Tensor]]:
        return (net(given[0]) ** 2).mean(), []

    found = recorded.record_gradient(loss, list(net.parameters()), batch, (), form="compiled")
    assert found is not None  # in NumPy
    assert not isinstance(found, NativeGradient)
    assert "fake-cc" in caplog.text


TRAIN = ["train", "CartPole-v1:ppo", "--quiet", "--seed", "1", "--compile", "native",
         "--max-env-steps", "1024", "--eval-episodes", "4", "--test-episodes", "4", "--n-envs", "4",
         "--n-steps", "64"]  # fmt: skip


def trained(folder: Path, compiler: str) -> dict[str, Tensor]:
    """The weights of a training that says once that it does not compile."""
    env = os.environ | {"CC": compiler, build.CACHE_VARIABLE: str(folder / "cache")}
    done = subprocess.run(
        [sys.executable, "-m", "gymnasium_solver", *TRAIN, "--runs-dir", str(folder / "runs")],
        env=env, capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    lines = [line for line in (done.stdout + done.stderr).splitlines() if "compiles" in line]
    assert len(lines) == 1, done.stdout + done.stderr
    (run,) = (path for path in (folder / "runs").iterdir() if not path.is_symlink())
    return load_file(run / "checkpoints" / "last" / "model.safetensors")


@pytest.fixture(scope="module")
def in_numpy(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Tensor]:
    return trained(tmp_path_factory.mktemp("none"), "false")


@pytest.mark.slow
@pytest.mark.parametrize(
    "script",
    [
        *(EDITING.format(edit) for edit in EDITS.values()),
        *(COMPILERS[name] for name in ("fails", "makes nothing", "fails in bytes", "is killed")),
        *(COMPILERS[name] for name in ("makes half a file", "makes text", "makes an empty file")),
    ],
)
def test_a_training_with_a_broken_compiler(
    script: str, tmp_path: Path, in_numpy: dict[str, Tensor]
) -> None:
    """Up to rounding: a program without a wrong line may be used."""
    found = trained(tmp_path, fake_compiler(tmp_path, script))
    torch.testing.assert_close(found, in_numpy, rtol=1e-3, atol=1e-4)
