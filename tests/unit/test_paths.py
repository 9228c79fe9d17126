"""Temporary folders: gone with their process, and after a kill with the next one."""

import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from gymnasium_solver.paths import open_regular, temporary_folder

WAITS = """
import sys
from gymnasium_solver.paths import temporary_folder
folder = temporary_folder("test")
print(folder.name, flush=True)
sys.stdin.read()
"""


@pytest.fixture
def tmpdir_of_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", None)
    return tmp_path


def test_what_a_killed_process_leaves_is_swept(tmpdir_of_all: Path) -> None:
    pipe = subprocess.PIPE
    with subprocess.Popen([sys.executable, "-c", WAITS], stdin=pipe, stdout=pipe) as process:
        assert process.stdout is not None
        left = Path(process.stdout.readline().decode().strip())
        with temporary_folder("test") as own:
            assert left.is_dir(), "its process is alive"
            assert Path(own).is_dir()
        assert not Path(own).exists()
        process.send_signal(signal.SIGKILL)
    assert left.is_dir()
    with temporary_folder("other"):
        assert left.is_dir(), "of another kind"
    hidden = left.rename(left.with_name(f".{left.name}"))
    with temporary_folder("test", tmpdir_of_all) as own:
        assert Path(own).parent == tmpdir_of_all
        assert not hidden.exists()
    left.mkdir()
    with temporary_folder("test"):
        assert not left.exists()
    assert list(tmpdir_of_all.iterdir()) == []


def test_only_regular_files_are_opened(tmp_path: Path) -> None:
    file, link, pipe = tmp_path / "file", tmp_path / "link", tmp_path / "pipe"
    file.write_bytes(b"content")
    link.symlink_to(file)
    os.mkfifo(pipe)
    with open_regular(file) as opened:
        assert opened.read() == b"content"
    with pytest.raises(OSError, match="it is a link"):
        open_regular(link)
    with open_regular(link, follow=True) as opened:
        assert opened.read() == b"content"
    for other in (pipe, tmp_path):
        with pytest.raises(OSError, match="it is not a file"):
            open_regular(other, follow=True)
