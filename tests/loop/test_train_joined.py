"""DQN's gradient steps of a round in one compiled call (algos/joined_steps.py)."""

from collections.abc import Callable
from typing import Any

import pytest

from gymnasium_solver.algos.dqn import DQN
from gymnasium_solver.algos.joined_steps import JoinedSteps
from gymnasium_solver.fast.native.build import can_compile

pytestmark = pytest.mark.skipif(not can_compile(), reason="needs a C compiler")

Call = Callable[..., Any]
FIELDS = {"compile": "native", "max_epochs": 5, "train_freq": 8, "updates_per_step": 0.4}


@pytest.fixture
def rounds(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Steps of each compiled call."""
    counted: list[int] = []
    call = JoinedSteps.__call__

    def spy(self: JoinedSteps, n_updates: int, *args: Any) -> dict[str, Any]:
        counted.append(n_updates)
        return call(self, n_updates, *args)

    monkeypatch.setattr(JoinedSteps, "__call__", spy)
    return counted


def test_the_same_bits_as_one_step_after_another(
    train: Call,
    weight_hash: Call,
    learning_rows: Call,
    rounds: list[int],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    joined = train("dqn", "CartPole-v1", **FIELDS)
    assert len(rounds) > 5
    assert min(rounds) > 1
    rounds.clear()
    monkeypatch.setattr(DQN, "can_join_steps", lambda self: False)
    separate = train("dqn", "CartPole-v1", **FIELDS)
    assert not rounds
    assert weight_hash(joined) == weight_hash(separate)
    for a, b in zip(learning_rows(joined), learning_rows(separate), strict=True):
        assert a["train/opt/q/mean"] == pytest.approx(b["train/opt/q/mean"], rel=1e-5, abs=1e-6)


@pytest.mark.parametrize("special", [{"prioritized": True}, {"noisy": True}, {"compile": "numpy"}])
def test_not_where_python_is_needed_between_steps(
    special: dict[str, Any], train: Call, rounds: list[int]
) -> None:
    train("dqn", "CartPole-v1", **(FIELDS | special))
    assert not rounds
