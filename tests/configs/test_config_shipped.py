"""Every shipped config loads, dumps to itself, and describes its environment rightly."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

from gymnasium_solver.algos.off_policy import OffPolicyConfig
from gymnasium_solver.config.find import SHIPPED
from gymnasium_solver.config.load import (
    ConfigEntry,
    config_dict,
    dump_config,
    find_configs,
    load_config,
)
from gymnasium_solver.envs.make import env_from_config

ENTRIES = [entry for entry in find_configs() if entry.path.is_relative_to(SHIPPED)]
NAMES = [entry.name for entry in ENTRIES]
EXPECTED = [
    "Bandit-v0",
    "CartPole-v1",
    "Acrobot-v1",
    "MountainCar-v0",
    "MountainCarContinuous-v0",
    "Pendulum-v1",
    "FrozenLake-v1",
    "Taxi-v3",
    "LunarLander-v3",
    "LunarLanderContinuous-v3",
    "BipedalWalker-v3",
    "HalfCheetah-v5",
    "Hopper-v5",
    "Walker2d-v5",
    "Ant-v5",
    "Humanoid-v5",
    "Swimmer-v5",
    "Reacher-v5",
    "InvertedPendulum-v5",
    "InvertedDoublePendulum-v5",
]


def test_the_promised_environments_have_a_ppo_config() -> None:
    assert {f"{env_id}:ppo" for env_id in EXPECTED} <= set(NAMES)
    files = {path.stem for path in SHIPPED.rglob("*.yaml")}
    assert files == {entry.name.split(":")[0] for entry in ENTRIES}


@pytest.mark.parametrize("name", NAMES)
def test_load_dump_load_is_equal(name: str, tmp_path: Path) -> None:
    config = load_config(name)
    path = tmp_path / "config.yaml"
    path.write_text(dump_config(config), encoding="utf-8")
    again = load_config(str(path))
    assert again == config
    assert config_dict(again) == config_dict(config)
    assert type(again) is type(config)
    assert list(config_dict(config)) == list(type(config).model_fields)


@pytest.mark.parametrize("name", NAMES)
def test_the_budget_is_many_updates_and_evaluations(name: str) -> None:
    config = load_config(name)
    assert config.description
    assert config.max_env_steps is not None
    assert config.eval_freq_epochs is not None
    rollout = config.n_envs * config.n_steps
    epochs = config.max_env_steps // rollout
    assert epochs >= 20
    assert 10 <= epochs // config.eval_freq_epochs <= 60
    batch_size = getattr(config, "batch_size", 1)
    assert isinstance(config, OffPolicyConfig) or rollout % batch_size == 0


# A file that only varies settings (ablations) leaves the description to the env's own.
OWN_FILES = [entry for entry in ENTRIES if entry.path.stem == entry.env_id.replace("/", "-")]


@pytest.mark.parametrize("entry", OWN_FILES, ids=[entry.name for entry in OWN_FILES])
def test_spec_fits_the_environment(entry: ConfigEntry) -> None:
    config = load_config(entry.name)
    env = env_from_config(config, 1)
    try:
        spec = config.spec
        for key in ("source", "description", "goal", "reward", "episode", "returns"):
            assert key in spec, key
        labels = spec["action_space"]["labels"]
        actions, observations = env.action_space, env.observation_space
        if isinstance(actions, spaces.Discrete):
            assert len(labels) == actions.n
        else:
            assert isinstance(actions, spaces.Box)
            assert len(labels) == actions.shape[0]
            low, high = spec["action_space"]["range"]
            np.testing.assert_allclose(actions.low, low)
            np.testing.assert_allclose(actions.high, high)
        assert len(set(labels)) == len(labels)
        _check_components(spec["observation_space"]["components"], observations)
        if entry.variant in ("ppo", "reinforce"):
            threshold = spec["returns"].get("threshold_solved")
            expected = config.reward_threshold or env.spec.reward_threshold
            assert (threshold is None) == (expected is None)
            assert threshold is None or threshold == pytest.approx(expected, rel=1e-2)
    finally:
        env.close()


def _check_components(components: list[dict[str, Any]], space: spaces.Space) -> None:
    assert len({part["name"] for part in components}) == len(components)
    if isinstance(space, spaces.Discrete):
        assert [part["values"] for part in components] == [space.n]
        return
    assert isinstance(space, spaces.Box)
    sizes = [part.get("size", 1) for part in components]
    assert sum(sizes) == space.shape[0]
    starts = np.cumsum([0, *sizes])
    for part, start in zip(components, starts, strict=False):
        # A bounded component must say so; where the space has no bound, a known range may be told.
        if "range" in part and np.isfinite(space.high[start]):
            low, high = part["range"]
            assert (low, high) == pytest.approx((space.low[start], space.high[start]), abs=2e-3)
        elif np.isfinite(space.high[start]) and space.high[start] < 1e30:
            pytest.fail(f"{part['name']} is bounded by {space.low[start]} and {space.high[start]}")
