"""Agents trained on probe environments, each of which has one right answer.

A probe that fails tells which part is wrong: the value loss, the observation's way into the
network, discounting, bootstrapping, the policy gradient, or the action map.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gymnasium_solver.training.agents import load_agent
from gymnasium_solver.training.loop import train
from gymnasium_solver.training.prepare import build_config
from tests.world_models import GAMMA, column

Learn = Callable[..., Any]


def trained(algo_id: str, probe: str, root: Path, **fields: Any) -> Any:
    """The agent of a training in this folder."""
    common = {"env_id": f"Probe/{probe}-v0", "algo_id": algo_id, "seed": 1, "n_envs": 8}
    common |= {"hidden_dims": [16], "gamma": GAMMA, "eval_freq_epochs": None}
    run = train(build_config({**common, **fields}), runs_root=root)
    return load_agent(run.id, root)


@pytest.fixture
def learn(request: pytest.FixtureRequest, tmp_path: Path) -> Learn:
    """learn("ppo_shared", probe, **fields): an agent of PPO, with the fields that the file has for
    all (COMMON) and under this name (ALGOS)."""
    common, algos = request.module.COMMON, request.module.ALGOS

    def run(name: str, probe: str, **fields: Any) -> Any:
        algo_id, _, _ = name.partition("_")
        return trained(algo_id, probe, tmp_path, **{**common, **algos[name], **fields})

    return run


def assert_remembers(agent: Any, *cues: float, **start: Any) -> None:
    """Played in a plain loop: the cue at the start of an episode is the answer at its end."""
    for cue in cues:
        if not start:
            agent.reset()
        action = agent.act(np.array([cue], np.float32), **start)
        for _ in range(3):
            action = agent.act(np.array([0.0], np.float32))
        assert action == (cue > 0)


def assert_forbidden_actions_do_not_count(agent: Any, values: np.ndarray, atol: float) -> None:
    """Values of Probe/Masked at -1, 0 and 1. It refuses a forbidden action; bootstrapped from one,
    obs 0 would be worth 2."""
    on = [values[0, 1], values[0, 2], values[2, 0], values[2, 2]]  # 3.6 if so from action 3
    np.testing.assert_allclose(on, 2 - GAMMA, atol=atol)
    assert values[[0, 2], 3] == pytest.approx([2, 2], abs=0.4)
    mask = np.array([[False, True, True, True], [True, False, True, True]])
    assert agent.act(column(-1, 1), mask=mask).tolist() == [3, 3]
