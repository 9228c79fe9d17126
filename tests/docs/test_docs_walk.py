"""The walk of architecture.md: few files, and every stop is passed by a training."""

import sys
from pathlib import Path
from typing import Any

from docs.walk import MOST_FILES, PACKAGE, WALK
from gymnasium_solver.cli.main import main


def test_the_walk_has_few_files() -> None:
    files = [stop.file for stop in WALK]
    assert len(set(files)) == len(files) <= MOST_FILES


def test_a_training_passes_every_stop(tmp_path: Path) -> None:
    called: set[tuple[str, str]] = set()

    def note(frame: Any, event: str, arg: Any) -> None:
        if event == "call":
            called.add((frame.f_code.co_filename, frame.f_code.co_qualname))

    words = ["CartPole-v1:ppo", "--max-env-steps", "600", "--n-steps", "32", "--n-envs", "4"]
    words += ["--eval-freq-epochs", "2", "--eval-episodes", "2", "--test-episodes", "2"]
    words += ["--compile", "false", "--runs-dir", str(tmp_path), "--seed", "1", "-q"]
    sys.setprofile(note)
    try:
        main(["train", *words])
    finally:
        sys.setprofile(None)
    missed = [
        f"{stop.file}: {name}"
        for stop in WALK
        for name in stop.names
        if name[0].islower() or name.startswith("_") or "." in name
        if (str(PACKAGE / stop.file), name) not in called
    ]
    assert not missed, "the walk of docs/architecture.md has stops that a training does not pass"
