"""Every distribution of actions learns the probes."""

from typing import Any

import numpy as np
import pytest

from tests.probe.conftest import Learn

BOX = ["gaussian", "gaussian_state", "squashed", "beta", "multivariate", "lognormal", "gumbel"]
COMMON: dict[str, Any] = {"seed": 3, "n_steps": 32, "batch_size": 64, "n_epochs": 5}
COMMON |= {"policy_lr": "lin_0.01", "gamma": 0.99, "test_episodes": 2}
ALGOS: dict[str, dict[str, Any]] = {"ppo": {}}


@pytest.mark.parametrize("dist", BOX)
def test_the_right_number_is_learnt(dist: str, learn: Learn) -> None:
    agent = learn("ppo", "ObsActionRewardContinuous", action_dist=dist, max_env_steps=10_000)
    for obs in (-1.0, 1.0):
        action = agent.act(np.array([obs], np.float32))
        assert action == pytest.approx(obs / 2, abs=0.2)


def test_the_right_choice_is_learnt_with_gumbel(learn: Learn) -> None:
    agent = learn("ppo", "ObsActionReward", action_dist="gumbel", max_env_steps=6_000)
    assert [agent.act(np.array([obs], np.float32)) for obs in (-1.0, 1.0)] == [0, 1]
