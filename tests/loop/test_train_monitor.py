"""`monitor`: more metrics, and no other training."""

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch

from gymnasium_solver.algos.extensions.monitor import effective_rank
from gymnasium_solver.errors import ConfigError

Call = Callable[..., Any]


@pytest.mark.parametrize("algo_id", ["ppo", "dqn", "sac"])
def test_a_monitored_run_trains_the_same(
    algo_id: str, train: Call, weight_hash: Call, learning_rows: Call
) -> None:
    names = ["weights", "updates", "rank"]
    plain = train(algo_id, "CartPole-v1", n_steps=32)
    seen = train(algo_id, "CartPole-v1", n_steps=32, monitor=names)
    assert weight_hash(seen) == weight_hash(plain)
    rows = [row for row in learning_rows(seen) if any("/opt/weights/norm/" in key for key in row)]
    assert rows
    keys = rows[-1].keys()
    assert any(key.startswith("train/opt/rank/") for key in keys)
    ratios = [value for key, value in rows[-1].items() if "updates/ratio" in key]
    assert ratios
    assert all(0 < value < 1 for value in ratios)


def test_effective_rank() -> None:
    assert effective_rank(torch.eye(5)) == pytest.approx(5.0)
    assert effective_rank(torch.ones(7, 3)) == pytest.approx(1.0)
    assert effective_rank(torch.zeros(4, 4)) == 0.0
    shares = [2 / 3, 1 / 3]
    expected = math.exp(-sum(p * math.log(p) for p in shares))
    assert effective_rank(torch.diag(torch.tensor([2.0, 1.0]))) == pytest.approx(expected)


def test_an_unknown_name_is_refused(make_config: Call) -> None:
    with pytest.raises(ConfigError, match="monitor"):
        make_config("ppo", "CartPole-v1", monitor=["wieghts"])
