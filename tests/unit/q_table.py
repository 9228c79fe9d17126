"""A Q network that is a table, and a rollout over it, for targets worked by hand.

Without hidden layers and on discrete observations Q(s, a) = weight[a, s] + bias[a].
"""

from typing import Any

import numpy as np
import torch
from gymnasium import spaces

from gymnasium_solver.algos import algo_class
from gymnasium_solver.data.rollout import Rollout
from gymnasium_solver.spaces.actions import DiscreteActions

STATES, ACTIONS = spaces.Discrete(5), spaces.Discrete(3)
# Q of state s (row) and action a (column).
TABLE = np.array([[1, 2, 3], [4, 0, 0], [0, 8, 5], [6, 7, 0], [10, 0, 20]], np.float32)


def table_agent(algo_id: str, obs: Any = STATES, actions: Any = ACTIONS, **fields: Any) -> Any:
    """One with gamma .9 whose network has the table, unless it has hidden layers."""
    algo: Any = algo_class(algo_id)
    small = {"n_envs": 1, "n_steps": 4, "hidden_dims": [], "gamma": 0.9}
    config = algo.Config(env_id="x", algo_id=algo_id, **{**small, **fields})
    agent = algo(config, obs, actions, seed=0)
    if obs is STATES and not config.hidden_dims:
        layer: Any = agent.net.q.advantage[0]
        layer.weight.data.copy_(torch.from_numpy(TABLE.T))
        layer.bias.data.zero_()
    return agent


def crafted_rollout(n_envs: int = 1) -> Rollout:
    """s1 -a0-> s2 -a2-> cut at s3; reset; s0 -a1-> s4, where the rollout ends. The same in all."""
    rollout = Rollout.allocate(4, n_envs, STATES, DiscreteActions(ACTIONS))
    assert isinstance(rollout.obs, np.ndarray)
    rollout.obs[:] = np.array([1, 2, 3, 0, 4])[:, None]
    rollout.actions[:] = np.array([0, 2, 0, 1])[:, None]
    rollout.reward[:] = np.array([1, 2, 0, 3])[:, None]
    rollout.valid[:] = np.array([True, True, False, True])[:, None]
    rollout.truncated[1] = True
    return rollout


def batch_of(agent: Any, rollout: Rollout) -> Any:
    return agent.fit.batch(rollout, agent._targets(rollout))
