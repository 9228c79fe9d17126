"""Recorded trainings: what short runs learn, within rounding, and the order of calls in an epoch.

The runs are so short that rounding has not grown, so the numbers hold on every machine: torch,
NumPy and C round differently too, and each of them must reproduce the record. A change that is
meant to change learning writes a new record, which is then reviewed with it:

    GSOLVE_WRITE_GOLDEN=1 python -m pytest tests/loop/test_golden.py
"""

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gymnasium_solver.algos.ppo import PPO
from gymnasium_solver.runs.checkpoint import load_checkpoint
from gymnasium_solver.runs.run import Run
from gymnasium_solver.training import loop
from gymnasium_solver.training.collect import Collector
from gymnasium_solver.training.observer import Observer
from gymnasium_solver.training.trainer import Trainer
from tests.loop.conftest import learning_rows, train

RECORD = Path(__file__).parent / "golden.json"
WRITES = "GSOLVE_WRITE_GOLDEN"
RTOL, ATOL = 5e-3, 2e-4
# Batch norms divide by the small deviations of early batches, which magnifies rounding: x86_64 and
# aarch64 differ by up to 3e-3 here, the other runs by less than 1e-6.
ATOLS = {"crossq": 1e-2}
FEW: dict[str, Any] = {"n_envs": 2, "n_steps": 16, "max_epochs": 3, "seed": 5}
SHORT: dict[str, Any] = {"vectorization_mode": "sync", "max_episode_steps": 30}
RUNS: dict[str, tuple[str, str, dict[str, Any]]] = {
    "ppo": ("ppo", "CartPole-v1", SHORT),
    "ppo with real actions": ("ppo", "Pendulum-v1", SHORT),
    "ppo with a gru": ("ppo", "Probe/Memory-v0", {"recurrent": "gru", "recurrent_dim": 6}),
    "reinforce": ("reinforce", "CartPole-v1", SHORT),
    "a2c": ("a2c", "CartPole-v1", SHORT),
    "dqn": ("dqn", "CartPole-v1", {**SHORT, "dueling": True, "prioritized": True}),
    "sac": ("sac", "Pendulum-v1", SHORT),
    "crossq": ("crossq", "CartPole-v1", SHORT),
}
FORMS: dict[str, Any] = {"torch": False, "numpy": "numpy", "native": "native"}
# In every form; of the others it is enough that torch repeats the record.
IN_EVERY_FORM = ("ppo", "dqn")
CASES = [(name, "torch") for name in RUNS] + [
    (name, form) for name in IN_EVERY_FORM for form in ("numpy", "native")
]


def summary_of(run: Run, rows: list[dict[str, Any]]) -> dict[str, Any]:
    """The losses of every epoch, and of each tensor of weights a sum with weights of its own, which
    differs for any other order or sign."""
    losses = [
        {name: value for name, value in row.items() if name.startswith("train/opt/loss/")}
        for row in rows
    ]
    model = load_checkpoint(run.checkpoints_dir / "last").tensors["model"]
    sums = {
        name: float(np.dot(value.ravel(), np.cos(np.arange(value.size))))
        for name, value in sorted(model.items())
        if value.dtype == np.float32
    }
    return {"env_steps": [row["env_steps"] for row in rows], "losses": losses, "weights": sums}


@pytest.mark.parametrize(("name", "form"), CASES, ids=str)
def test_a_run_learns_what_it_learnt_before(name: str, form: str) -> None:
    algo_id, env_id, fields = RUNS[name]
    run = train(algo_id, env_id, **{**FEW, **fields, "compile": FORMS[form]})
    found = summary_of(run, learning_rows(run))
    record = json.loads(RECORD.read_text()) if RECORD.exists() else {}
    if os.environ.get(WRITES) and form == "torch":
        record[name] = found
        RECORD.write_text(json.dumps(record, indent=1, sort_keys=True) + "\n")
    wanted = record[name]
    atol = ATOLS.get(name, ATOL)
    assert found["env_steps"] == wanted["env_steps"]
    for own, other in zip(found["losses"], wanted["losses"], strict=True):
        assert own == pytest.approx(other, rel=RTOL, abs=atol)
    assert found["weights"] == pytest.approx(wanted["weights"], rel=RTOL, abs=atol)


# -- the order of calls --------------------------------------------------------------------------

EPOCH = ["set_clock", "before_rollout", "collect", "update", "judge", "on_epoch", "log_metrics"]


def test_the_calls_of_an_epoch_come_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever reads the loop finds this order: schedules are set before acting, an update sees the
    rollout before anything is judged, observers may add to a row before it is logged, and an epoch
    is saved last."""
    calls: list[str] = []

    def traced(owner: Any, method: str, name: str | None = None) -> None:
        plain = getattr(owner, method)

        def call(*args: Any, **kwargs: Any) -> Any:
            calls.append(name or method)
            return plain(*args, **kwargs)

        monkeypatch.setattr(owner, method, call)

    class Told(Observer):
        def on_epoch(self, row: dict[str, Any]) -> None:
            calls.append("on_epoch")

        def on_eval(self, result: Any, is_best: bool) -> None:
            calls.append("on_eval")

    for owner, method in (
        *((PPO, method) for method in ("set_clock", "before_rollout", "update")),
        (Collector, "collect"),
        (Run, "log_metrics"),
        (Trainer, "save"),
    ):
        traced(owner, method)
    traced(loop, "judge_epoch", "judge")
    fields = {**FEW, **SHORT, "max_epochs": 2, "eval_freq_epochs": 2, "eval_episodes": 2}
    train("ppo", "CartPole-v1", observer=Told(), checkpoint_freq_epochs=1, **fields)
    last = len(calls) - calls[::-1].index("on_epoch")
    assert calls[: 2 * len(EPOCH) + 1] == [*EPOCH, "save", *EPOCH]
    assert calls[last : last + 3] == ["log_metrics", "on_eval", "save"]
