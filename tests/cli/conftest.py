"""What tests of the command share."""

import json
from typing import Any

import pytest

from gymnasium_solver.cli.main import main
from gymnasium_solver.training.observer import EvalResult

EPOCH = 256  # env steps


class Gsolve:
    """`gsolve("run @last --log", "2")`: the command in this process, and what it printed: with an
    exit code of 1 errors too, with 2 errors alone."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys

    def __call__(self, line: str, *words: str, code: int = 0) -> str:
        self._capsys.readouterr()
        found = main([*line.split(), *words])
        out, err = self._capsys.readouterr()
        assert found == code, out + err
        return {0: out, 1: out + err}.get(code, err)

    def json(self, line: str, *words: str, code: int = 0) -> Any:
        return json.JSONDecoder().raw_decode(self(line, *words, "--json", code=code))[0]


@pytest.fixture
def gsolve(capsys: pytest.CaptureFixture[str]) -> Gsolve:
    return Gsolve(capsys)


@pytest.fixture
def here(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A working folder of its own, whose runs are in ./runs."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("GSOLVE_RUNS", raising=False)
    return tmp_path


def row(epoch: int) -> dict[str, Any]:
    """What a training logs after an epoch."""
    return {
        "env_steps": EPOCH * epoch,
        "epoch": epoch,
        "wall_s": 0.1 * epoch,
        "train/roll/ep_rew/mean": 20.0 + 11.0 * epoch,
        "train/roll/ep_len/mean": 20.0 + 11.0 * epoch,
        "train/opt/loss/total": 0.3,
        "train/opt/loss/policy": -0.01 / epoch,
        "train/opt/loss/value": 0.5,
        "train/opt/policy/entropy": 0.69 - 0.001 * epoch,
        "train/opt/value/explained_var": 0.9,
        "train/opt/ppo/approx_kl": 0.01,
        "train/opt/ppo/clip_fraction": 0.2,
        "train/opt/grads/norm/all": 1.5,
        "train/hp/policy_lr": 1e-3,
        "train/sys/timing/env_share": 0.31,
        "train/sys/timing/act_share": 0.22,
        "train/sys/timing/update_share": 0.41,
        "train/sys/timing/eval_share": 0.06,
    }


def evaluation(epoch: int, mean: float, greedy: bool = True) -> EvalResult:
    spread = (mean, 3.0, mean - 3, mean + 3, mean)
    return EvalResult(
        EPOCH * epoch, epoch, 2, greedy, 11, *spread, [mean - 3.0, mean + 3.0], [1, 1]
    )
