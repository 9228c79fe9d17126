"""Every distribution of actions learns the probes."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gymnasium_solver.training import loop
from gymnasium_solver.training.agents import load_agent
from gymnasium_solver.training.prepare import build_config

BOX = ["gaussian", "gaussian_state", "squashed", "beta", "multivariate", "lognormal", "gumbel"]
PPO: dict[str, Any] = {
    "algo_id": "ppo", "seed": 3, "n_envs": 8, "n_steps": 32, "batch_size": 64, "n_epochs": 5,
    "policy_lr": "lin_0.01", "hidden_dims": [16], "eval_freq_epochs": None, "test_episodes": 2,
}  # fmt: skip


@pytest.mark.parametrize("dist", BOX)
def test_the_right_number_is_learnt(dist: str, tmp_path: Path) -> None:
    config = build_config(
        PPO | {"env_id": "Probe/ObsActionRewardContinuous-v0", "action_dist": dist,
               "max_env_steps": 10_000}
    )  # fmt: skip
    run = loop.train(config, runs_root=tmp_path)
    agent = load_agent(str(run.path) + "/@last")
    for obs in (-1.0, 1.0):
        action = agent.act(np.array([obs], np.float32))
        assert action == pytest.approx(obs / 2, abs=0.2)


def test_the_right_choice_is_learnt_with_gumbel(tmp_path: Path) -> None:
    config = build_config(
        PPO | {"env_id": "Probe/ObsActionReward-v0", "action_dist": "gumbel", "max_env_steps": 6000}
    )
    agent = load_agent(str(loop.train(config, runs_root=tmp_path).path) + "/@last")
    assert [agent.act(np.array([obs], np.float32)) for obs in (-1.0, 1.0)] == [0, 1]
