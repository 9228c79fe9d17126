"""PPO with compiled programs: the same bits in one call as step by step, and what torch learns."""

from typing import Any

import numpy as np
import pytest

from gymnasium_solver.fast.native.build import can_compile
from gymnasium_solver.fast.native.program import set_threads
from tests.unit.test_learner_state import (
    DISCRETE,
    acted,
    agent_for,
    assert_same_weights,
    random_rollout,
)

pytestmark = pytest.mark.skipif(not can_compile(), reason="needs a C compiler")


def compiled(**fields: Any) -> Any:
    return agent_for("ppo", compile="native", n_epochs=3, **fields)


def learn(agent: Any, seed: int, details: bool = False) -> dict[str, float]:
    agent.wants_details = details
    metrics: dict[str, float] = agent.update(acted(agent, random_rollout(DISCRETE, seed)), 24, 100)
    return metrics


@pytest.mark.parametrize(
    "fields",
    [
        {"batch_size": 7},
        {"batch_size": 64, "normalize_advantages": "batch"},
        {"batch_size": 7, "normalize_advantages": "batch"},
        {"batch_size": 7, "recompute_advantages": True},
        {"batch_size": 7, "target_kl": 1e-4},
    ],
    ids=str,
)
def test_passes_in_one_call_are_the_same_bits_as_step_by_step(fields: dict[str, Any]) -> None:
    """Here `alone` makes the steps one by one."""
    together, alone = compiled(**fields), compiled(**fields)
    alone.descent._in_one_call = lambda *arguments: None
    for seed in range(3):
        metrics, detailed = learn(together, seed), learn(alone, seed, details=True)
        assert {name: detailed[name] for name in metrics} == pytest.approx(
            metrics, rel=0, abs=0, nan_ok=True
        )
    assert together.descent.mode == "compiled"
    assert_same_weights(together, alone)
    assert together.rng.bit_generator.state == alone.rng.bit_generator.state


def test_threads_do_not_change_what_is_learnt() -> None:
    agents = []
    for n_threads in (1, 2):
        before = set_threads(n_threads)
        agents.append(compiled(batch_size=64))
        for seed in range(3):
            learn(agents[-1], seed)
        set_threads(before)
    assert_same_weights(*agents)
    assert np.isfinite(agents[0].descent.optimizer.flat.numpy()).all()
