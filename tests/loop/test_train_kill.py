"""A real `gsolve train` killed with kill -9, SIGTERM or SIGINT, and resumed by command line.

A plugin in the run's own folder makes the process wait in the middle of a rollout, so that the
signal falls where the test wants it.
"""

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from gymnasium_solver.runs import query
from gymnasium_solver.runs.jsonl import read_jsonl
from gymnasium_solver.runs.run import Run
from gymnasium_solver.training import loop
from gymnasium_solver.training.prepare import load_config

Call = Callable[..., Any]
PLUGIN = '''
import os, time
from gymnasium_solver.envs.vector import VectorWrapper
from gymnasium_solver.envs.wrappers import register_wrapper

@register_wrapper("WaitAt")
class WaitAt(VectorWrapper):
    """Waits at a step of the training envs while the file `waiting` exists."""

    steps = 0

    def step(self, actions):
        self.steps += 1
        if self.n_envs == 3 and str(self.steps) == os.environ.get("WAIT_AT_STEP"):
            open("waiting", "w").close()
            while os.path.exists("waiting"):
                time.sleep(0.01)
        return self.env.step(actions)
'''
CONFIG = """
env_id: CartPole-v1
plugins: [wait_plugin_of_kill_test]
env_wrappers: [{id: WaitAt}]
ppo:
  seed: 11
  n_envs: 3
  n_steps: 16
  batch_size: 24
  n_epochs: 2
  hidden_dims: [8]
  policy_lr: lin_0.01
  normalize_obs: rolling
  normalize_reward: true
  max_env_steps: 500
  env_boundary_steps: 200
  checkpoint_freq_epochs: 2
  eval_freq_epochs: 3
  eval_episodes: 2
"""
N_STEPS = 16
GSOLVE = [sys.executable, "-m", "gymnasium_solver.cli.main"]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    (tmp_path / "wait_plugin_of_kill_test.py").write_text(PLUGIN)
    (tmp_path / "tiny.yaml").write_text(CONFIG)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield tmp_path
    sys.modules.pop("wait_plugin_of_kill_test", None)


@pytest.fixture
def whole(folder: Path) -> Run:
    """The run as it goes when nobody interrupts it."""
    return loop.train(load_config("tiny.yaml"), runs_root=Path("whole"))


def start(wait_at_step: int) -> subprocess.Popen[str]:
    """A training that waits before this step of the vector env."""
    return subprocess.Popen(
        [*GSOLVE, "train", "tiny.yaml"],
        env={**os.environ, "WAIT_AT_STEP": str(wait_at_step)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def until_it_waits(process: subprocess.Popen[str]) -> None:
    deadline = time.monotonic() + 60
    while not Path("waiting").exists():
        assert process.poll() is None, process.communicate()[0]
        assert time.monotonic() < deadline, "the training never came to the step to wait at"
        time.sleep(0.01)


def assert_same(run: Run, whole: Run, learning_rows: Call, weight_hash: Call, where: str) -> None:
    assert weight_hash(run) == weight_hash(whole), where
    rows = learning_rows(run)
    assert rows == learning_rows(whole), where
    assert len({row["env_steps"] for row in rows}) == len(rows)
    assert run.meta()["test"] == whole.meta()["test"]


def test_kill_9_then_resume(whole: Run, learning_rows: Call, weight_hash: Call) -> None:
    n_epochs = len(learning_rows(whole))
    # After the first checkpoint, before the end, in the middle of a rollout.
    wait_at = random.randrange(2 * N_STEPS + 1, (n_epochs - 1) * N_STEPS)
    process = start(wait_at)
    try:
        until_it_waits(process)
        assert query.get_run("@last", root=Path("runs")).status == "running"
        process.kill()
        process.communicate()
    finally:
        process.kill()
    assert query.get_run("@last", root=Path("runs")).status == "killed"

    resumed = subprocess.run(
        [*GSOLVE, "train", "--resume", "@last"], capture_output=True, text=True, timeout=120
    )
    assert resumed.returncode == 0, resumed.stderr
    run = Run(Path("runs") / os.readlink("runs/@last"))
    assert_same(run, whole, learning_rows, weight_hash, f"killed at step {wait_at}")
    assert run.meta()["status"] == "finished"
    kinds = {event["kind"] for event in read_jsonl(run.events_path)}
    assert {"checkpoint", "eval"} <= kinds


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=["SIGTERM", "SIGINT"])
def test_a_polite_signal_saves_and_tells_how_to_go_on(
    number: int, whole: Run, learning_rows: Call, weight_hash: Call
) -> None:
    # In epoch 5: a periodic checkpoint would come in epoch 6 only.
    process = start(4 * N_STEPS + 5)
    try:
        until_it_waits(process)
        process.send_signal(number)
        Path("waiting").unlink()
        output, _ = process.communicate(timeout=60)
    finally:
        process.kill()
    assert process.returncode == (75 if number == signal.SIGTERM else 130), output
    run = Run(Path("runs") / os.readlink("runs/@last"))
    meta = run.meta()
    assert (meta["status"], meta["stop_reason"], meta["epoch"]) == ("interrupted", "interrupted", 5)
    assert "INTERRUPTED" in output
    assert f"gsolve train --resume {run.id}" in output
    assert (run.checkpoints_dir / "last" / "done").exists()
    assert os.readlink(run.checkpoints_dir / "last") == str(meta["env_steps"])

    loop.resume(run.id, runs_root=Path("runs"))
    assert_same(run, whole, learning_rows, weight_hash, "interrupted in epoch 5")
