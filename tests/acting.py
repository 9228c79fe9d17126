"""Small agents without a training loop, what their policies do, and rollouts."""

from typing import Any

import numpy as np
import torch
from gymnasium import spaces

from gymnasium_solver.algos import algo_class
from gymnasium_solver.algos.on_policy import outputs_by_torch
from gymnasium_solver.data.rollout import Rollout
from gymnasium_solver.envs.journal import JournaledEnv
from gymnasium_solver.envs.make import training_env
from gymnasium_solver.policies.policy import Mask, Policy
from gymnasium_solver.spaces.actions import action_kind
from gymnasium_solver.spaces.observations import obs_len, part_spaces, take_rows
from gymnasium_solver.training.agents import build_agent
from gymnasium_solver.training.collect import Collector

OBS, BOX = spaces.Box(-10, 10, (3,), np.float32), spaces.Box(-2, 2, (2,), np.float32)
N_ENVS = 2


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def small_agent(
    algo_id: str, actions: Any = BOX, obs: Any = OBS, seed: int = 0, **fields: Any
) -> Any:
    """An agent with a network of six units; one with a replay soon learns from it."""
    algo: Any = algo_class(algo_id)
    small = {"n_envs": N_ENVS, "hidden_dims": [6], "batch_size": 4, "buffer_size": 200}
    small |= {"learning_starts": 4, "policy_lr": 0.01}
    small = {name: value for name, value in small.items() if name in algo.Config.model_fields}
    config = algo.Config(env_id="x", algo_id=algo_id, **{**small, **fields})
    return algo(config, obs, actions, seed=seed)


def collecting(config: Any, n_rows: int | None = None) -> tuple[Any, Collector]:
    """The agent of a config, and what plays its environments with it, that many rows at a time."""
    env = training_env(config)
    agent = build_agent(config, env.observation_space, env.action_space)
    return agent, Collector(JournaledEnv(env), agent.policy, n_rows or config.n_steps, 1, 10**6)


def small_rollout(actions: Any = BOX, n_rows: int = 6, seed: int = 0) -> Rollout:
    """Random numbers, of which every row counts."""
    rng = np.random.default_rng(seed)
    rollout = Rollout.allocate(n_rows, N_ENVS, OBS, action_kind(actions))
    assert isinstance(rollout.obs, np.ndarray)
    rollout.obs[:] = rng.normal(1, 2, rollout.obs.shape)
    rollout.reward[:] = rng.normal(size=rollout.reward.shape)
    if isinstance(actions, spaces.Discrete):
        rollout.actions[:] = rng.integers(0, actions.n, rollout.actions.shape)
    else:
        rollout.actions[:] = rng.uniform(-1, 1, rollout.actions.shape)
    rollout.valid[:] = True
    return rollout


def values_by_torch(agent: Any, rollout: Rollout) -> np.ndarray:
    """Values of all observations of a rollout, as no compiled form computes them."""
    return outputs_by_torch(agent, rollout, agent.net.value, agent.net.core is not None)


def drawn(policy: Policy, obs: Any, mask: Mask = None) -> np.ndarray:
    """What `sample` gives, from a new carry."""
    n = obs_len(obs)
    return policy.sample(obs, policy.initial_carry(n), np.ones(n, bool), mask).actions


def best(policy: Policy, obs: Any, mask: Mask = None) -> np.ndarray:
    """What `greedy` gives, from a new carry."""
    n = obs_len(obs)
    return policy.greedy(obs, policy.initial_carry(n), np.ones(n, bool), mask).actions


def random_rollout(policy: Policy, n_rows: int, n_envs: int, seed: int = 0) -> Rollout:
    """Observations and rewards drawn at random, actions by the policy; every row counts."""
    rng, space = np.random.default_rng(seed), policy.observation_space
    rollout = Rollout.allocate(n_rows, n_envs, space, policy.actions, n_outputs=policy.n_outputs)
    obs = rollout.obs if isinstance(rollout.obs, dict) else {"": rollout.obs}
    for name, part in part_spaces(space).items():
        part.seed(seed)
        obs[name][:] = [[part.sample() for _ in range(n_envs)] for _ in range(n_rows + 1)]
    rollout.reward[:] = rng.normal(size=rollout.reward.shape)
    rollout.valid[:] = True
    rollout.is_first[0] = True
    rollout.log_std = policy.log_std()
    carry = policy.initial_carry(n_envs)
    for t in range(n_rows):
        acted = policy.sample(take_rows(rollout.obs, t), carry, rollout.is_first[t])
        rollout.actions[t], carry = acted.actions, acted.carry
        if rollout.outputs is not None:
            rollout.outputs[t] = acted.outputs
    return rollout
