"""Followers beside a training: `gsolve train --track wandb,tensorboard`."""

import subprocess
import sys
from collections.abc import Sequence

from gymnasium_solver.config.schema import Config
from gymnasium_solver.runs.run import Run
from gymnasium_solver.share.trackers.follow import FOLDER
from gymnasium_solver.share.trackers.sink import check_names
from gymnasium_solver.training.observer import Observer, TrainInfo


class Launcher(Observer):
    """Starts one process per tracker when the run exists. Training does not wait for them: they
    end by themselves after the run has."""

    def __init__(self, names: Sequence[str]) -> None:
        self.names = check_names(list(names))

    def on_start(self, run: Run, config: Config, info: TrainInfo) -> None:
        for name in self.names:
            start(run, name)


def start(run: Run, name: str) -> "subprocess.Popen[bytes]":
    """Follow a run in a process of its own; its output is in trackers/<name>.log."""
    folder = run.path / FOLDER
    folder.mkdir(exist_ok=True)
    words = ["track", str(run.path.absolute()), "--to", name, "--follow"]
    with (folder / f"{name}.log").open("ab") as log:
        return subprocess.Popen(
            [sys.executable, "-m", "gymnasium_solver", *words],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,  # Ctrl-C stops the training; the follower sends what is left
        )


def read_names(text: str) -> list[str]:
    """The names in `--track wandb,tensorboard`."""
    names = [name.strip() for name in text.split(",") if name.strip()]
    return check_names(list(dict.fromkeys(names)))
