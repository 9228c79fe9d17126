"""Trainings on broken environments, in every engine: each ends with one clear line and a run that
is resumed to the same weights once the fault is gone."""

import hashlib
import multiprocessing
import os
import time
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest

from gymnasium_solver.cli.main import main
from gymnasium_solver.runs.run import Run
from tests.envs import faulty
from tests.envs.faulty import Faulty, FaultyVector

LATE = "GsolveTest/LateFault-v0"
AT = 40  # of all steps of an env: in the third epoch, when the guards are off
IS_ON = [True]
ARRAY, SPOILT = np.zeros(3, np.float32), np.array([0.0, np.nan, 0.0], np.float32)
VALUES: dict[str, tuple[Any, ...]] = {
    "step": (None,), "exit": (None,), "long": (None,), "old": (None,),
    "answer": (None, (), (1, 2, 3, 4, 5, 6), "abcde", 7, {}),
    "terminated": ("False", "", None, [], 0.5, float("nan"), np.array([True, False]), {}, object),
    "truncated": ("False", None, [], 2, {"a": 1}),
    "reward": ("7", None, np.zeros(3), [1.0, 2.0], {}, "much", float("nan"), float("inf"), [[]],
               1 + 2j, object),
    "info": (None, [1], "", 5, (), 0),
    "obs": (np.float32(1), 0.5, np.zeros(4, np.float32), np.zeros((3, 1), np.float32), "123",
            np.array(["1", "2", "3"]), np.array([1.0, None, 2.0]), None, {"a": ARRAY}, [[1.0], 2.0],
            SPOILT, ARRAY + np.inf, [], np.zeros(3, np.complex64)),
}  # fmt: skip
CASES = [(fault, i) for fault, values in VALUES.items() for i in range(len(values))]
OF_PROCESSES = [("hang", 0), ("dies", 0), ("close_hangs", 0)]
BATCHES: dict[str, tuple[Any, ...]] = {
    "step": (None,), "exit": (None,),
    "answer": (None, (1, 2, 3, 4), [1, 2, 3, 4, 5]),
    "terminated": (None, np.array([0.5, 1.0]), np.array([np.nan, 0.0]), True, ["False", "True"]),
    "reward": (None, ["1", "2"], np.zeros(3), np.array([np.nan, 1.0])),
    "info": (None, [1], ""),
    "obs": (None, np.zeros((2, 4), np.float32), np.zeros((3, 3), np.float32),
            np.zeros(3, np.float32), np.full((2, 3), np.nan, np.float32),
            np.array([["1"] * 3] * 2)),
}  # fmt: skip
BATCH_CASES = [(fault, i) for fault, values in BATCHES.items() for i in range(len(values))]


class Late(Faulty):
    """Sound until step AT of its life, and altogether once IS_ON is false."""

    def __init__(self, fault: str, number: int, values: Any = VALUES) -> None:
        super().__init__(fault, 0)
        self.value, self.total = values.get(fault, (None,))[number], 0

    def step(self, action: int) -> Any:
        self.total += 1
        self.at = self.steps + 1 if IS_ON[0] and self.total == AT else 0
        if self.at and self.fault == "dies":
            os._exit(9)
        return super().step(action)

    def close(self) -> None:
        if IS_ON[0] and multiprocessing.parent_process() is not None:
            super().close()


class LateVector(FaultyVector):
    def __init__(self, num_envs: int, fault: str, number: int) -> None:
        super().__init__(num_envs, fault, 0, value=BATCHES[fault][number])

    def step(self, actions: np.ndarray) -> Any:
        self.at = AT if IS_ON[0] else 0
        return super().step(actions)


if LATE not in gymnasium.registry:
    gymnasium.register(
        LATE,
        entry_point=lambda **kwargs: Late(**kwargs),
        vector_entry_point=lambda **kwargs: LateVector(**kwargs),
        disable_env_checker=True,
    )
CONFIG = """
env_id: {env_id}
algo_id: ppo
env_kwargs: {{fault: {fault}, number: {number}}}
vectorization_mode: {mode}
env_timeout_s: 5
n_envs: 2
n_steps: 16
batch_size: 16
n_epochs: 1
hidden_dims: [4]
max_epochs: 5
checkpoint_freq_epochs: 1
eval_freq_epochs: null
test_episodes: 1
eval_episodes: 1
normalize_obs: false
normalize_reward: false
seed: 1
{more}
"""


def weights(runs: Path) -> str:
    run = Run((runs / "@last").resolve())
    return hashlib.sha256(
        (run.checkpoints_dir / "last" / "model.safetensors").read_bytes()
    ).hexdigest()


def check_fault(
    fault: str, number: int, mode: str, tmp_path: Path, capsys: Any, more: str = ""
) -> None:
    text = CONFIG.format(env_id=LATE, fault=fault, number=number, mode=mode, more=more)
    path = tmp_path / "config.yaml"
    path.write_text(text)
    argv = ["train", str(path), "--quiet", "--runs-dir"]
    IS_ON[0] = False
    assert main([*argv, str(tmp_path / "sound")]) == 0
    capsys.readouterr()
    IS_ON[0] = True
    started = time.perf_counter()
    code = main([*argv, str(tmp_path / "runs")])
    said = capsys.readouterr().err
    assert time.perf_counter() - started < 60
    run = Run((tmp_path / "runs" / "@last").resolve())
    if fault == "close_hangs":  # what was learnt is worth more than an orderly end
        assert code == 0
    else:
        assert code in (1, 2), said
        assert "Traceback (most recent call last)" not in said
        line = said.splitlines()[0]
        assert LATE in line, said
        assert len(line) < 1200
        assert run.meta()["status"] == "failed"
        IS_ON[0] = False
        resumed = main(
            ["train", "--resume", run.id, "--quiet", "--runs-dir", str(tmp_path / "runs")]
        )
        assert resumed == 0, capsys.readouterr().err
    assert run.meta()["status"] == "finished"
    assert weights(tmp_path / "runs") == weights(tmp_path / "sound")


def name(case: tuple[str, int]) -> str:
    return f"{case[0]}-{case[1]}"


@pytest.mark.filterwarnings("ignore")
@pytest.mark.sample(1)
@pytest.mark.parametrize("case", CASES, ids=name)
def test_sync(case: tuple[str, int], tmp_path: Path, capsys: Any) -> None:
    check_fault(*case, "sync", tmp_path, capsys)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("case", [*CASES, *OF_PROCESSES], ids=name)
def test_async(case: tuple[str, int], tmp_path: Path, capsys: Any) -> None:
    check_fault(*case, "async", tmp_path, capsys)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("case", BATCH_CASES, ids=name)
def test_vector(case: tuple[str, int], tmp_path: Path, capsys: Any) -> None:
    check_fault(*case, "vector", tmp_path, capsys)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("case", CASES[::3], ids=name)
def test_tasks(case: tuple[str, int], tmp_path: Path, capsys: Any) -> None:
    more = f"tasks: [{{env_id: {LATE}}}, {{env_id: {faulty.FAULTY}, env_kwargs: {{at: 0}}}}]"
    check_fault(*case, "sync", tmp_path, capsys, more)
