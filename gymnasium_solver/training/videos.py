"""Observers that show the policy at play, each by a process of its own while training continues.

    video: best             # of evaluations: docs/watch.md#videos-while-training
    gsolve train --render   # a window with the newest policy

The recorder asks for a checkpoint at the evaluated policy and runs `gsolve video` on a copy of it,
with low priority. One process runs at a time; of the videos that become due meanwhile, only the
newest is kept. At the end of the run it waits for at most `WAIT_S`. Whatever goes wrong is a
warning. Finished videos and failures are events in events.jsonl.

The window is `gsolve play RUN --grid RxC --follow`. Its observer asks for a checkpoint every
`FRESH_S` seconds while it is open. Training learns the same with or without either.
"""

import json
import logging
import math
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gymnasium_solver.config.env_ids import is_python_env
from gymnasium_solver.config.schema import Config
from gymnasium_solver.errors import ConfigError
from gymnasium_solver.runs.query import RunSummary, get_events
from gymnasium_solver.runs.run import Run
from gymnasium_solver.training.observer import Control, EvalResult, Observer, TrainInfo
from gymnasium_solver.training.threads import helper_environ

WAIT_S = 120.0  # for a video
FRESH_S = CLOSE_S = 5.0  # of the window
MOST_TILES = 16
LOWEST_PRIORITY = 19
log = logging.getLogger(__name__)


Process = Any  # what of subprocess.Popen is used: poll, wait and kill
Launch = Callable[[list[str], Path], Process]
"""Starts a command with its output in the files `out` and `err` of a folder."""


def can_record(config: Config) -> bool:
    """Whether another process can build the environment of this config."""
    return not is_python_env(config.env_id)


@dataclass
class Job:
    env_steps: int
    folder: Path  # holds a copy of the checkpoint, and the output of the process
    process: Process | None = None


class VideoRecorder(Observer):
    """Records the evaluations that the config's `video` names, and those that are asked for by
    `Control.record_video`."""

    run: Run

    def __init__(self, when: str | int, launch: Launch | None = None) -> None:
        self.when, self._launch = when, launch or start_process
        self._control = Control()
        self._n_evals = self._n_jobs = 0
        self._due: int | None = None  # env steps of the checkpoint to record
        self._has_asked = False
        self._running: Job | None = None
        self._next: Job | None = None
        self._is_hopeless = False

    def on_start(self, run: Run, config: Config, info: TrainInfo) -> None:
        self.run, self._control = run, info.control
        for leftover in run.videos_dir.glob(".*"):  # of a process that was killed
            shutil.rmtree(leftover, ignore_errors=True)
        if isinstance(self.when, int) and info.resumed_from:
            evals = get_events(run, "eval")
            self._n_evals = sum(event.get("stage") == "val" for event in evals)
        if self.when != "off" and not can_record(config):
            self._is_hopeless = True
            log.warning("video: %s was given as Python code, which no other process has", run.id)

    def on_epoch(self, row: dict[str, Any]) -> None:
        self._check()

    def on_eval(self, result: EvalResult, is_best: bool) -> None:
        self._n_evals += 1
        is_asked, self._control.wants_video = self._control.wants_video, False
        if (is_asked or self._wants(is_best)) and not self._is_hopeless:
            self._due = result.env_steps
            self._has_asked = not self._control.wants_checkpoint
            self._control.checkpoint()

    def on_checkpoint(self, path: Path, kind: str) -> None:
        env_steps = int(path.name)
        if self._due != env_steps:
            return
        self._due = None
        if self._has_asked:  # a late evaluation (eval_async) has its checkpoint already
            self._control.wants_checkpoint = False
        _remove(self._next)
        self._next = self._prepare(path, env_steps)
        self._check()

    def on_end(self, summary: RunSummary, final: dict[str, EvalResult]) -> None:
        self._check()
        if self._running is not None:
            last = self._next or self._running
            log.info("waiting for the video at %s env steps", f"{last.env_steps:,}")
        deadline = time.monotonic() + WAIT_S
        while self._running is not None and self._running.process is not None:
            try:
                self._running.process.wait(max(0.0, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                self._give_up(self._running.process, f"was not finished after {WAIT_S:.0f} s")
            except KeyboardInterrupt:  # the run itself is complete
                self._give_up(self._running.process, "was not finished")
            else:
                self._check()

    # -- jobs -------------------------------------------------------------------------------

    def _wants(self, is_best: bool) -> bool:
        if isinstance(self.when, int):
            return self._n_evals % self.when == 0
        return self.when == "every_eval" or (self.when == "best" and is_best)

    def _prepare(self, checkpoint: Path, env_steps: int) -> Job:
        """Copy the checkpoint, which may be pruned before the process has read it."""
        self._n_jobs += 1
        job = Job(env_steps, self.run.videos_dir / f".{self._n_jobs}")
        job.folder.mkdir(parents=True)
        copy = job.folder / str(env_steps)
        try:
            shutil.copytree(checkpoint, copy, copy_function=os.link)
        except (OSError, shutil.Error):  # a file system without hard links
            shutil.rmtree(copy, ignore_errors=True)
            shutil.copytree(checkpoint, copy)
        return job

    def _check(self) -> None:
        """Note a process that has ended, and start the next one."""
        job = self._running
        if job is not None and job.process is not None:
            if (code := job.process.poll()) is None:
                return
            self._running = None
            self._ended(job, code)
        if self._next is not None:
            job, self._next = self._next, None
            job.process = self._launch(video_command(self.run, job), job.folder)
            self._running = job

    def _ended(self, job: Job, code: int) -> None:
        if code == 0:
            result = json.loads((job.folder / "out").read_text())
            result["path"] = str(Path(result["path"]).relative_to(self.run.path.resolve()))
            self.run.log_event("video", env_steps=job.env_steps, **result)
            log.info("video: %s", result["path"])
        else:
            why = _last_words(job.folder, code).removeprefix("gsolve video: ")
            text = f"no video at {job.env_steps:,} env steps: {why}"
            self.run.log_event("video_failed", env_steps=job.env_steps, text=text)
            # Exit code 2: what was asked for is not possible here, so the next one would fail too.
            self._is_hopeless = code == 2
            if self._is_hopeless:
                _remove(self._next)
                self._next = None
            log.warning("%s%s", text, ". No more are tried in this run" * self._is_hopeless)
        _remove(job)

    def _give_up(self, process: Process, why: str) -> None:
        """End the process and say how to get its video."""
        process.kill()
        process.wait()
        jobs = [job for job in (self._running, self._next) if job is not None]
        for job in jobs:
            _remove(job)
        self._running, self._next, env_steps = None, None, jobs[-1].env_steps
        text = f"the video at {env_steps:,} env steps {why}"
        self.run.log_event("video_failed", env_steps=env_steps, text=text)
        log.warning("%s: gsolve video %s/%s records it", text, self.run.id, env_steps)


def _remove(job: Job | None) -> None:
    if job is not None:
        shutil.rmtree(job.folder, ignore_errors=True)


def video_command(run: Run, job: Job) -> list[str]:
    return [
        *(sys.executable, "-m", "gymnasium_solver", "video", str(run.path.resolve())),
        *("--checkpoint-folder", str((job.folder / str(job.env_steps)).resolve())),
        *("--seed", "val", "--json", "--trust"),  # the run is that of this process
    ]


# -- the window of --render ----------------------------------------------------------------


def check_render(config: Config, has_display: bool) -> None:
    """ConfigError if no window can show this config."""
    if not can_record(config):
        raise ConfigError(
            "--render: the environment was given as Python code, which no other process has. "
            "Register it."
        )
    if not has_display:
        raise ConfigError(
            "--render needs a display. In a terminal: gsolve play @last --follow --text; in a "
            "browser: gsolve ui."
        )


def grid_for(n_envs: int) -> tuple[int, int]:
    """Rows and columns with a tile for each training env, up to 16."""
    n = min(n_envs, MOST_TILES)
    rows = max(1, math.isqrt(n))
    return rows, min(math.ceil(n / rows), MOST_TILES // rows)


class LiveWindow(Observer):
    """Opens the window of `--render` at the first checkpoint, and closes it with the run."""

    _run: Run

    def __init__(self, launch: Launch | None = None) -> None:
        self._launch = launch or start_process
        self._process: Process | None = None
        self._is_done = False
        self._control = Control()
        self._grid = (1, 1)
        self._asked_s = -math.inf

    def on_start(self, run: Run, config: Config, info: TrainInfo) -> None:
        self._run, self._control, self._grid = run, info.control, grid_for(config.n_envs)
        self._folder = run.path / "render"  # holds what the process prints

    def on_epoch(self, row: dict[str, Any]) -> None:
        if self._process is not None and (code := self._process.poll()) is not None:
            # The window was closed, or could not be opened.
            self._process, self._is_done = None, True
            if code:
                log.warning("--render: %s", _last_words(self._folder, code))
        if not self._is_done and time.monotonic() - self._asked_s >= FRESH_S:
            self._asked_s = time.monotonic()
            self._control.checkpoint()

    def on_checkpoint(self, path: Path, kind: str) -> None:
        if self._process is None and not self._is_done:
            self._folder.mkdir(exist_ok=True)
            self._process = self._launch(window_command(self._run, self._grid), self._folder)

    def on_end(self, summary: RunSummary, final: dict[str, EvalResult]) -> None:
        self._is_done = True
        if self._process is not None:
            self._process.kill()
            try:
                self._process.wait(CLOSE_S)
            except subprocess.TimeoutExpired:
                log.warning("the window of --render did not close")


def window_command(run: Run, grid: tuple[int, int]) -> list[str]:
    return [
        *(sys.executable, "-m", "gymnasium_solver", "play", str(run.path.resolve())),
        *("--grid", f"{grid[0]}x{grid[1]}", "--follow", "--trust"),  # a run of this process
    ]


# -- processes --------------------------------------------------------------------------------


def start_process(argv: list[str], folder: Path) -> "subprocess.Popen[bytes]":
    """Run with low priority, on one thread and without the GPU."""
    import psutil

    with (folder / "out").open("wb") as out, (folder / "err").open("wb") as err:
        process = subprocess.Popen(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=err,
            env=helper_environ(),
            start_new_session=os.name == "posix",  # Ctrl-C is for training
        )
    try:
        low = LOWEST_PRIORITY if os.name == "posix" else psutil.BELOW_NORMAL_PRIORITY_CLASS
        psutil.Process(process.pid).nice(low)
    except psutil.Error:  # it has ended already, or may not be changed
        pass
    return process


def _last_words(folder: Path, code: int) -> str:
    """Why a process ended: the last line that it printed as an error."""
    said = (folder / "err").read_text(errors="replace").strip().splitlines()
    return said[-1] if said else f"exit code {code}"
