"""Features together: self-imitation with a scheduled discount and with intrinsic reward, intrinsic
reward with normalised rewards in a replay."""

from typing import Any

import numpy as np
import pytest

from gymnasium_solver.algos.extensions.self_imitation import SelfImitation
from tests.unit.test_learner_state import DISCRETE, acted, agent_for, random_rollout

SIL: dict[str, Any] = {"sil": True, "sil_updates": 1, "sil_batch_size": 8, "sil_buffer_size": 500}
COUNT: dict[str, Any] = {"kind": "count", "coef": 0.1}


def imitation_of(agent: Any) -> SelfImitation:
    (found,) = (one for one in agent.extensions if isinstance(one, SelfImitation))
    return found


@pytest.mark.parametrize("algo_id", ["ppo", "a2c"])
def test_self_imitation_follows_a_scheduled_discount(algo_id: str) -> None:
    agent = agent_for(algo_id, **SIL, gamma={"start": 0.0, "end": 1.0, "to": 1.0})
    rollout = acted(agent, random_rollout(DISCRETE, 1))
    rollout.reward[:] = 1.0
    agent.set_clock(0, 100)
    agent.update(rollout, 0, 100)
    stored = imitation_of(agent).columns["returns"]
    assert stored.max() == 1.0, "gamma is 0: each return is one reward"
    agent.set_clock(100, 100)
    agent.update(rollout, 100, 100)
    assert stored.max() >= 5.0, "gamma is 1: rewards add up"


def test_self_imitation_takes_no_bonus_for_success() -> None:
    agent = agent_for("ppo", **SIL, intrinsic=COUNT)
    rollout = acted(agent, random_rollout(DISCRETE, 1))
    rollout.reward[:] = 0.0
    agent.set_clock(0, 100)
    bonus = agent.bonus(rollout)
    assert bonus is not None
    assert bonus[rollout.valid].max() > 0
    agent.update(rollout, 24, 100)
    assert len(imitation_of(agent)) == 0
    rollout.reward[4, 0] = 1.0  # the end of an episode
    agent.update(rollout, 48, 100)
    assert len(imitation_of(agent)) == 6 + 5, "with its first rows, of the rollout before"


@pytest.mark.parametrize("more", [{}, {"prioritized": True}, {"n_step": 3, "gamma": 0.0}], ids=str)
def test_a_bonus_in_a_replay_is_not_scaled_as_rewards_are(more: dict[str, Any]) -> None:
    fields: dict[str, Any] = {"batch_size": 32, "buffer_size": 100, "learning_starts": 1, **more}
    agent = agent_for("dqn", **fields, normalize_reward=True, intrinsic=COUNT)
    agent.open_memory(False)
    rollout = random_rollout(DISCRETE, 1)
    rollout.reward[:] = 0.0
    agent.set_clock(0, 100)
    agent.update(rollout, 24, 100)
    rewards = [np.asarray(agent.columns(sample).reward) for sample in agent.samples(4, {})]
    assert 0 < max(reward.max() for reward in rewards) <= 0.1, "at most the coefficient"
