"""Every distribution of actions learns the probes, and resumes exactly."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gymnasium_solver.training import loop
from gymnasium_solver.training.agents import load_agent
from gymnasium_solver.training.observer import Observer
from gymnasium_solver.training.prepare import build_config

BOX = ["gaussian", "gaussian_state", "squashed", "beta", "multivariate"]
PPO: dict[str, Any] = {
    "algo_id": "ppo", "seed": 3, "n_envs": 8, "n_steps": 32, "batch_size": 64, "n_epochs": 5,
    "policy_lr": "lin_0.01", "hidden_dims": [16], "eval_freq_epochs": None, "test_episodes": 2,
}  # fmt: skip


class Crash(BaseException):
    pass


class CrashAt(Observer):
    def on_epoch(self, row: dict[str, Any]) -> None:
        if row["epoch"] == 3:
            raise Crash


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


@pytest.mark.parametrize("dist", ["beta", "squashed", "multivariate"])
def test_a_run_resumes_exactly(dist: str, tmp_path: Path) -> None:
    fields = PPO | {"env_id": "Pendulum-v1", "action_dist": dist, "max_epochs": 4}
    whole = loop.train(build_config(fields), runs_root=tmp_path)
    config = build_config({**fields, "checkpoint_freq_epochs": 2})
    with pytest.raises(Crash):
        loop.train(config, runs_root=tmp_path, observers=[CrashAt()])
    run = loop.resume("@last", runs_root=tmp_path)
    model = "checkpoints/last/model.safetensors"
    assert (run.path / model).read_bytes() == (whole.path / model).read_bytes()
