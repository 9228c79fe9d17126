"""A process that dies while saving never costs a checkpoint, nor the replay rows that it lists."""

import os
import random
import subprocess
import sys
import time
from pathlib import Path

import pytest

SAVER = Path(__file__).with_name("saver.py")
ENVIRONMENT = os.environ | {"PYTHONPATH": str(SAVER.parents[2])}
pytestmark = pytest.mark.skipif(os.name == "nt", reason="fork and kill -9")


def saver(*arguments: object) -> int:
    """The number that it prints."""
    command = [sys.executable, str(SAVER), *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, env=ENVIRONMENT)
    assert done.returncode == 0, done.stderr
    return int(done.stdout)


@pytest.mark.parametrize("what", ["new", "replay"])
def test_kill_9_during_saves(tmp_path: Path, what: str) -> None:
    """Killed at random moments, again and again, on the same folder."""
    rng, saved, directory = random.Random(0), 0, tmp_path / "saved"
    most = 1 if what == "new" else sys.maxsize  # saved, but killed before it was told
    for _ in range(6):
        command = [sys.executable, str(SAVER), what, "loop", str(directory)]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=ENVIRONMENT)
        assert process.stdout is not None
        assert saved <= int(process.stdout.readline()) <= saved + most
        saved = int(process.stdout.readline())
        time.sleep(rng.uniform(0.0, 0.15))
        process.kill()
        saved = max([saved, *map(int, process.stdout.read().split())])
        process.wait()
        process.stdout.close()
    assert 0 < saved <= saver(what, "finish", directory) <= saved + most


@pytest.mark.parametrize("what", ["new", "replace", "prune", "rewind", "clean", "replay"])
def test_death_before_every_change_to_the_disk(tmp_path: Path, what: str) -> None:
    deaths = saver(what, "crash", tmp_path)
    assert deaths > (10 if what == "replay" else 5), "almost nothing changed: is it still counted?"
