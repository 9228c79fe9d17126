"""Evaluation during training (`eval_async`), in another process.

The result of an evaluation is taken when the next one is due, at an epoch that depends on nothing
but the config; training waits there if it is not ready. So a run does not depend on how fast the
process is: it is deterministic, and a resumed run submits the evaluation that was pending again.
"""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import IO, Any

from gymnasium_solver.config.env_ids import is_python_env
from gymnasium_solver.config.schema import Config
from gymnasium_solver.errors import ConfigError, EnvError
from gymnasium_solver.runs.run import Run
from gymnasium_solver.training.observer import EvalResult


def check_async(config: Config) -> None:
    """ConfigError if another process cannot evaluate this config."""
    if is_python_env(config.env_id):
        raise ConfigError(
            "eval_async: the environment was given as Python code, which no other process has. "
            "Register it, or use eval_async: false"
        )


class BackgroundEvaluator:
    """One process, started with the first job; one job at a time."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._process: subprocess.Popen[str] | None = None

    def submit(self, checkpoint: Path, env_steps: int, epoch: int, kind: str = "val") -> None:
        path = str(checkpoint.resolve())
        job = {"kind": kind, "path": path, "env_steps": env_steps, "epoch": epoch}
        pipe = self._started().stdin
        assert pipe is not None
        try:
            pipe.write(json.dumps(job) + "\n")
            pipe.flush()
        except BrokenPipeError:
            raise self._died() from None

    def result(self) -> EvalResult:
        """The result of the job that was submitted last; waits for it."""
        assert self._process is not None
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise self._died()
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            raise EnvError(f"eval_async: the evaluation failed: {answer['error']}")
        return EvalResult.from_dict(answer)

    def close(self) -> None:
        if self._process is None:
            return
        for pipe in (self._process.stdin, self._process.stdout):
            _close(pipe)
        self._process.kill()
        self._process.wait()
        self._process = None

    def _started(self) -> "subprocess.Popen[str]":
        if self._process is None:
            self._process = subprocess.Popen(
                [
                    sys.executable,
                    "-m",
                    "gymnasium_solver.training.eval_worker",
                    str(self._run.path),
                ],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                env=os.environ
                | {
                    "OMP_NUM_THREADS": "1",
                    "CUDA_VISIBLE_DEVICES": "",
                    "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),  # the same modules
                },
                start_new_session=os.name == "posix",  # Ctrl-C is for training
            )
        return self._process

    def _died(self) -> EnvError:
        assert self._process is not None
        code = self._process.wait()
        return EnvError(
            f"eval_async: the evaluation process ended with exit code {code}; its messages are "
            "above. gsolve train --resume continues the run; --eval-async false evaluates in the "
            "training process"
        )


def _close(pipe: "IO[str] | None") -> None:
    try:
        if pipe is not None:
            pipe.close()
    except BrokenPipeError:
        pass
