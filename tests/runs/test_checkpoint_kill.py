"""A process that dies while saving never costs a checkpoint."""

import os
import random
import subprocess
import sys
import time
from pathlib import Path

import pytest

SAVER = Path(__file__).with_name("saver.py")
pytestmark = pytest.mark.skipif(os.name == "nt", reason="fork and kill -9")


def saver(*arguments: object) -> str:
    command = [sys.executable, str(SAVER), *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_kill_9_during_saves(tmp_path: Path) -> None:
    """Killed at random moments, again and again, on the same folder."""
    rng, saved, directory = random.Random(0), 0, tmp_path / "checkpoints"
    for _ in range(6):
        process = subprocess.Popen(
            [sys.executable, str(SAVER), "loop", str(directory)], stdout=subprocess.PIPE, text=True
        )
        assert process.stdout is not None
        assert saved <= int(process.stdout.readline()) <= saved + 1
        saved = int(process.stdout.readline())
        time.sleep(rng.uniform(0.0, 0.15))
        process.kill()
        saved = max([saved, *map(int, process.stdout.read().split())])
        process.wait()
        process.stdout.close()
    assert saved <= int(saver("finish", directory)) <= saved + 1


@pytest.mark.parametrize("scenario", ["new", "replace", "prune", "rewind", "clean"])
def test_death_before_every_change_to_the_disk(tmp_path: Path, scenario: str) -> None:
    deaths = int(saver("crash", tmp_path, scenario))
    assert deaths > 5, "the scenario changed almost nothing: is it still counted?"
