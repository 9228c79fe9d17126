"""DQN's gradient steps of a round in one compiled call (fast/descent.py)."""

from collections.abc import Callable
from typing import Any

import pytest

from gymnasium_solver.fast.descent import Descent
from gymnasium_solver.fast.native.build import can_compile

pytestmark = pytest.mark.skipif(not can_compile(), reason="needs a C compiler")

Call = Callable[..., Any]
FIELDS = {"compile": "native", "max_epochs": 5, "train_freq": 8, "updates_per_step": 0.4}


@pytest.fixture
def rounds(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Steps of each compiled call."""
    counted: list[int] = []
    call = Descent._in_one_call

    def spy(self: Descent, batch: Any, numbers: Any, lr: Any, parts: Any, stop: Any) -> Any:
        counted.append(len(parts))
        return call(self, batch, numbers, lr, parts, stop)

    monkeypatch.setattr(Descent, "_in_one_call", spy)
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
    monkeypatch.setattr(Descent, "_in_one_call", lambda *arguments: None)
    separate = train("dqn", "CartPole-v1", **FIELDS)
    assert weight_hash(joined) == weight_hash(separate)
    for a, b in zip(learning_rows(joined), learning_rows(separate), strict=True):
        assert a["train/opt/q/mean"] == pytest.approx(b["train/opt/q/mean"], rel=1e-5, abs=1e-6)


@pytest.mark.parametrize("special", [{"prioritized": True}, {"noisy": True}, {"compile": "numpy"}])
def test_not_where_python_is_needed_between_steps(
    special: dict[str, Any], train: Call, rounds: list[int]
) -> None:
    train("dqn", "CartPole-v1", **(FIELDS | special))
    assert not rounds
