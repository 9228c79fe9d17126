"""eval_async: the same evaluations as in the training process, at the env steps they belong to."""

import os
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gymnasium_solver.errors import ConfigError, EnvError
from gymnasium_solver.runs.checkpoint import list_checkpoints, load_checkpoint
from gymnasium_solver.runs.query import get_events, get_metrics
from gymnasium_solver.runs.run import Run
from gymnasium_solver.training.evaluate import BackgroundEvaluator, check_async
from gymnasium_solver.training.loop import resume, train
from gymnasium_solver.training.observer import Observer
from gymnasium_solver.training.prepare import load_config

VAL = "val/roll/ep_rew/mean"
FIELDS: dict[str, Any] = {
    "n_envs": 2,
    "n_steps": 16,
    "max_epochs": 7,
    "eval_freq_epochs": 2,
    "eval_episodes": 3,
    "test_episodes": 3,
    "hidden_dims": [8],
    "seed": 5,
    "keep_checkpoints": 0,
    "checkpoint_freq_epochs": 1,
    "early_stop_on_eval_threshold": None,
}


def run_it(root: Path, observers: tuple[Observer, ...] = (), **fields: Any) -> Run:
    config = load_config("CartPole-v1:ppo", overrides=FIELDS | {"eval_async": True} | fields)
    return train(config, runs_root=root, observers=observers)


def scores(run: Run) -> list[tuple[int, float | None]]:
    return get_metrics(run, [VAL])[VAL]


def weights(run: Run) -> dict[str, np.ndarray]:
    last = list_checkpoints(run.checkpoints_dir)[-1]
    return load_checkpoint(last.path).tensors["model"]


class StopAfter(Observer):
    """Requests a stop at the end of an epoch."""

    def __init__(self, epoch: int) -> None:
        self.epoch = epoch

    def on_start(self, run: Any, config: Any, info: Any) -> None:
        self.control = info.control

    def on_epoch(self, row: dict[str, Any]) -> None:
        if row["epoch"] == self.epoch:
            self.control.stop("test")


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return run_it(tmp_path_factory.mktemp("whole"))


def test_same_as_in_the_training_process(tmp_path: Path, whole: Run) -> None:
    plain = run_it(tmp_path, eval_async=False)
    assert scores(whole) == scores(plain)
    assert whole.meta()["best"] == plain.meta()["best"]
    assert whole.meta()["test"] == plain.meta()["test"]
    for name, array in weights(plain).items():
        assert np.array_equal(array, weights(whole)[name]), name
    best = [c for c in list_checkpoints(whole.checkpoints_dir) if c.is_best]
    assert best[0].score == whole.meta()["best"]["score"]
    load_checkpoint(best[0].path)  # its manifest holds after the score was added


@pytest.mark.parametrize("stop_at", [3, 4])
def test_resume_is_exact(tmp_path: Path, whole: Run, stop_at: int) -> None:
    """Also with an evaluation pending: it is made again, and logged once."""
    run = run_it(tmp_path, (StopAfter(stop_at),))
    resume(run.id, runs_root=tmp_path)
    assert scores(run) == scores(whole)
    assert run.meta()["best"] == whole.meta()["best"]
    val = [e["env_steps"] for e in get_events(run, "eval") if e["stage"] == "val"]
    assert val == sorted(set(val))
    for name, array in weights(whole).items():
        assert np.array_equal(array, weights(run)[name]), name


def test_a_goal_is_tested_and_ends_the_run(tmp_path: Path) -> None:
    run = run_it(tmp_path, max_epochs=20, early_stop_on_eval_threshold=True, reward_threshold=5.0)
    meta = run.meta()
    assert (meta["stop_reason"], meta["solved"]) == ("solved", True)
    assert meta["epoch"] == 4  # one evaluation after the one that reached it
    assert meta["best"]["epoch"] == 2
    tests = [event for event in get_events(run, "eval") if event["stage"] == "test"]
    assert {event["env_steps"] for event in tests} == {meta["best"]["env_steps"]}


def test_a_dead_process_is_told(tmp_path: Path, whole: Run) -> None:
    evaluator = BackgroundEvaluator(whole)
    best = next(c for c in list_checkpoints(whole.checkpoints_dir) if c.is_best)
    try:
        evaluator.submit(best.path, best.env_steps, 2)
        process = evaluator._process
        assert process is not None
        os.kill(process.pid, signal.SIGKILL)
        with pytest.raises(EnvError, match=r"ended with exit code -9.*--eval-async false"):
            evaluator.result()
    finally:
        evaluator.close()


def test_an_environment_given_as_code_is_refused() -> None:
    config = load_config("CartPole-v1:ppo").replace(env_id="Python/Mine")
    with pytest.raises(ConfigError, match="given as Python code"):
        check_async(config)
