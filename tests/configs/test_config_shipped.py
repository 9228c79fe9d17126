"""Every shipped config loads and dumps to itself; test_config_spec.py checks what it tells."""

from pathlib import Path

import pytest

from gymnasium_solver.algos.configs.shared import OffPolicyConfig
from gymnasium_solver.config.find import SHIPPED, find_configs
from gymnasium_solver.config.load import config_dict, dump_config
from gymnasium_solver.config.schema import LearnerConfig
from gymnasium_solver.training.prepare import load_config

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
    files = {path.stem for path in SHIPPED.rglob("[!_]*.yaml")}  # _overlays.yaml is no config
    assert files == {entry.path.stem for entry in ENTRIES}


@pytest.mark.sample(60)
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


@pytest.mark.parametrize("name", NAMES)
def test_a_tuned_config_leaves_nothing_to_the_scales_that_auto_finds(name: str) -> None:
    """Another rule behind `auto` must not change what was tuned."""
    config = load_config(name)
    if config.algo_id == "mbie":  # which scales nothing
        return
    assert isinstance(config, LearnerConfig)
    assert config.normalize_obs != "auto"
    assert config.normalize_reward != "auto"
