"""The probes for memory, Dict observations and actions in parts: the known best play scores 1."""

from typing import Any

import numpy as np
import pytest

from gymnasium_solver.envs.journal import JournaledEnv
from gymnasium_solver.envs.make import make_vector_env
from gymnasium_solver.envs.random_policy import RandomPolicy


def best(name: str, obs: Any, cue: np.ndarray, legal: Any) -> np.ndarray:
    """The best actions at these observations; `cue` is the first observation of each episode."""
    if name == "Memory":
        return (cue > 0).astype(np.int64)
    if name == "MemoryParts":
        return np.where(legal[:, 2], 2, cue > 0).astype(np.int64)
    if name == "DictObs":
        return (obs["signal"][:, 0] > 0).astype(np.int64)
    up = obs[:, 0] > 0
    if name == "MultiDiscrete":
        return np.stack([up, 2 * up], axis=1).astype(np.int64)
    if name == "MultiBinary":
        return np.stack([up, ~up, np.ones_like(up)], axis=1).astype(np.int64)
    return np.stack([up, obs[:, 0] / 2], axis=1).astype(np.float64)


@pytest.mark.parametrize(
    "name", ["Memory", "MemoryParts", "DictObs", "MultiDiscrete", "MultiBinary", "DictAction"]
)
def test_the_best_play_scores_one(name: str) -> None:
    env = make_vector_env(f"Probe/{name}-v0", 8)
    obs = env.reset(1)
    cue = np.zeros(8)
    first = np.ones(8, bool)
    returns = []
    for _ in range(60):
        if name.startswith("Memory"):
            seen = obs[:, 0] if name == "Memory" else obs["cue"][:, 0]
            cue = np.where(first, seen, cue)
            assert ((seen == 0) | first).all()
        step = env.step(best(name, obs, cue, env.action_mask))
        obs, first = step.obs, step.is_reset
        returns += step.episode_return[step.is_over].tolist()
        assert all(env.observation_space.contains(row) for row in rows_of(obs))
    np.testing.assert_allclose(returns, 1.0, rtol=1e-6)
    env.close()


@pytest.mark.parametrize("name", ["Memory", "DictObs", "DictAction"])
def test_random_play_scores_less_and_is_journaled(name: str) -> None:
    env = JournaledEnv(make_vector_env(f"Probe/{name}-v0", 8))
    policy = RandomPolicy(env.action_space, 8, 1)
    env.reset(1)
    returns = []
    for _ in range(200):
        step = env.step(policy.act())
        returns += step.episode_return[step.is_over].tolist()
    assert np.mean(returns) < 0.3
    state = env.state()
    again = JournaledEnv(make_vector_env(f"Probe/{name}-v0", 8))
    restored = again.restore(state)
    assert repr(restored) == repr(step.obs)
    if name == "DictObs":
        state["obs"]["noise"] = state["obs"]["noise"] + 1
        with pytest.raises(Exception, match="obs differs"):
            again.restore(state)


def rows_of(obs: Any) -> list[Any]:
    if isinstance(obs, dict):
        return [{name: part[i] for name, part in obs.items()} for i in range(8)]
    return list(obs)
