"""Named overlays, and keys that match several fields."""

from pathlib import Path
from typing import Any

import pytest

from gymnasium_solver.config.load import find_overlays
from gymnasium_solver.errors import ConfigError
from gymnasium_solver.training.prepare import build_config, load_config

FILE = """
env_id: CartPole-v1
_overlays:
  big: {hidden_dims: [32, 32], policy_lr: 0.5}
  slow: {/.*_lr/: 1e-5}
ppo: {policy_lr: 0.1, n_envs: 2}
sac: {policy_lr: 0.1}
"""


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("mine.yaml").write_text(FILE)


def test_overlays_apply_in_order_and_flags_win() -> None:
    config: Any = load_config("mine.yaml:ppo", overlays=["big"])
    assert (config.hidden_dims, config.policy_lr.start, config.n_envs) == ((32, 32), 0.5, 2)
    config = load_config("mine.yaml:ppo", overlays=["big", "slow"])
    assert (config.hidden_dims, config.policy_lr.start) == ((32, 32), 1e-5)
    config = load_config("mine.yaml:ppo", overlays=["big", "slow"], overrides={"policy_lr": 0.2})
    assert config.policy_lr.start == 0.2


def test_a_pattern_sets_every_field_it_matches() -> None:
    config: Any = load_config("mine.yaml:sac", overrides={"/.*_lr/": 1e-5})
    assert (config.policy_lr.start, config.critic_lr.start) == (1e-5, 1e-5)


def test_in_a_file_the_lines_by_name_win() -> None:
    fields = {"env_id": "CartPole-v1", "algo_id": "sac", "/.*_lr/": 1e-5, "policy_lr": 0.1}
    config: Any = build_config(fields)
    assert (config.policy_lr.start, config.critic_lr.start) == (0.1, 1e-5)


PRESETS = {"xqc", "simbav2", "flashsac"}  # of SAC


@pytest.mark.parametrize("name", sorted(find_overlays()))
def test_the_shipped_overlays_fit_any_shipped_config(name: str) -> None:
    if name not in PRESETS:
        assert load_config("CartPole-v1:ppo", overlays=[name]) != load_config("CartPole-v1:ppo")
    load_config("Pendulum-v1:sac", overlays=[name])


def test_own_overlays_for_all_configs(tmp_path: Path) -> None:
    (tmp_path / "configs").mkdir()
    (tmp_path / "configs/_overlays.yaml").write_text("_overlays: {quick: {max_env_steps: 7}}")
    assert load_config("CartPole-v1:ppo", overlays=["quick"]).max_env_steps == 7


def test_mistakes() -> None:
    with pytest.raises(ConfigError, match=r"no overlay 'bigg'. Did you mean big"):
        load_config("mine.yaml:ppo", overlays=["bigg"])
    with pytest.raises(ConfigError, match=r"/\.\*_rate/ matches no field of ppo"):
        load_config("mine.yaml:ppo", overrides={"/.*_rate/": 1})
    with pytest.raises(ConfigError, match="not a regular expression"):
        load_config("mine.yaml:ppo", overrides={"/*/": 1})
