"""Which configs are found, by which name, and what a misspelt name is answered with."""

import re
from pathlib import Path

import pytest

from gymnasium_solver.config.find import find_configs, read_config_file
from gymnasium_solver.config.foreign import OLD_CONFIGS
from gymnasium_solver.errors import ConfigError
from gymnasium_solver.training.prepare import load_config


@pytest.fixture(autouse=True)
def in_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("GSOLVE_CONFIGS", raising=False)


def write(path: str, text: str) -> None:
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    Path(path).write_text(text, encoding="utf-8")


def names(pattern: str | None = None) -> list[str]:
    return [entry.name for entry in find_configs(pattern)]


def test_entries_tell_what_they_are() -> None:
    entry = next(entry for entry in find_configs() if entry.name == "CartPole-v1:ppo")
    assert (entry.env_id, entry.variant, entry.algo_id) == ("CartPole-v1", "ppo", "ppo")
    assert entry.suite == "classic_control"
    assert entry.description
    assert entry.path.name == "CartPole-v1.yaml"


def test_patterns() -> None:
    assert "CartPole-v1:ppo" in names("cartpole")
    assert "CartPole-v1:ppo" in names("classic_control")
    assert "CartPole-v1:ppo" in names("POLE balance")
    assert set(names("*:ppo_deterministic")) == {"FrozenLake-v1:ppo_deterministic"}
    assert names("no such thing") == []


def test_own_configs_are_found_and_shadow_shipped_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    write("configs/CartPole-v1.yaml", "env_id: CartPole-v1\nppo: {seed: 1}\nppo_mine: {seed: 2}\n")
    assert load_config("CartPole-v1:ppo").seed == 1
    assert load_config("CartPole-v1:ppo_mine").seed == 2
    # A shipped variant that the user's file does not have is still there.
    assert load_config("CartPole-v1:ppo_rewardshaped").env_wrappers
    write("elsewhere/deep/CartPole-v1.yaml", "env_id: CartPole-v1\nppo: {seed: 3}\n")
    monkeypatch.setenv("GSOLVE_CONFIGS", "elsewhere")
    assert load_config("CartPole-v1:ppo").seed == 3
    assert names().count("CartPole-v1:ppo") == 1


def test_own_files_by_stem_by_env_and_flat() -> None:
    write("configs/mine.yaml", "env_id: Acrobot-v1\nppo_fast: {}\n")
    assert "mine:ppo_fast" in names()
    assert load_config("mine:ppo_fast").env_id == "Acrobot-v1"
    assert load_config("Acrobot-v1:ppo_fast").project_id == "mine"
    write("configs/ALE-Pong-v5.yaml", "env_id: ALE/Pong-v5\nppo: {}\n")
    assert load_config("ALE/Pong-v5:ppo").env_id == "ALE/Pong-v5"
    write("configs/flat.yaml", "env_id: Acrobot-v1\nalgo_id: reinforce\nseed: 5\n")
    assert load_config("flat:reinforce").seed == 5


def test_foreign_files_do_not_disturb() -> None:
    write("configs/compose.yaml", "services: {web: {image: x}}\n")
    write("configs/broken.yaml", "a: [1\n")
    write("configs/list.json", "[1, 2]")
    before = names()
    assert "CartPole-v1:ppo" in before
    assert not [name for name in before if name.startswith(("compose", "broken", "list"))]
    with pytest.raises(ConfigError, match=r"broken\.yaml:\d"):
        load_config("broken:ppo")


@pytest.mark.parametrize(
    ("target", "message"),
    [
        (
            "CartPole-v1-ablations",
            "^CartPole-v1-ablations needs a variant: CartPole-v1-ablations:",
        ),
        ("CartPole-v1:pp", "^CartPole-v1 has no variant 'pp'; it has: CartPole-v1:ppo, "),
        ("CartPole-v1:", "^CartPole-v1 has no variant ''; it has: CartPole-v1:ppo, "),
        (
            "CartPole-v1_ppo",
            "no config named 'CartPole-v1_ppo'; the nearest are: .*CartPole-v1:ppo",
        ),
        ("cartpole:ppo", "no config named 'cartpole:ppo'; the nearest are: CartPole-v1:ppo"),
        ("CartPoll-v1:ppo", "the nearest are: CartPole-v1:ppo"),
        ("lander", "the nearest are: LunarLander"),
        ("ppo_cartpole", "the nearest are: CartPole-v1:ppo"),
        ("zzzzzzzz", "gsolve list shows"),
        ("", "no config named ''"),
    ],
)
def test_misspelt_targets_list_the_nearest(target: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        load_config(target)


def test_a_config_is_also_named_by_its_file() -> None:
    assert load_config("ALE-Pong-v5:ppo_ram") == load_config("ALE/Pong-v5:ppo_ram")


@pytest.mark.parametrize("old", OLD_CONFIGS)
def test_old_names_answer_with_the_command_of_today(old: str) -> None:
    for target in (old, old.replace("ALE-", "ALE/")):
        with pytest.raises(ConfigError, match=f": gsolve train {re.escape(OLD_CONFIGS[old])}$"):
            load_config(target)


def test_ppo_is_the_default() -> None:
    assert load_config("CartPole-v1") == load_config("CartPole-v1:ppo")
    assert load_config("Taxi-v3", overrides={"seed": 3}).algo_id == "ppo"
    dqn = load_config("CartPole-v1", overrides={"algo_id": "dqn"})
    assert dqn == load_config("CartPole-v1:dqn"), "an algorithm that is named wins"
    write("configs/only.yaml", "env_id: Acrobot-v1\ndqn: {}\n")
    assert load_config("only").algo_id == "dqn"


def test_two_argument_form() -> None:
    assert load_config("CartPole-v1", "ppo") == load_config("CartPole-v1:ppo")
    assert load_config("CartPole-v1", variant="ppo").variant == "ppo"


def test_a_file_is_read_again_when_it_changes_and_its_lines_are_copies(tmp_path: Path) -> None:
    path = tmp_path / "My-v0.yaml"
    path.write_text("env_id: My-v0\nppo:\n  env_kwargs: {a: 1}\n")
    section = read_config_file(path).section("ppo")
    section["env_kwargs"]["a"] = 2
    assert read_config_file(path).section("ppo")["env_kwargs"] == {"a": 1}
    path.write_text("env_id: My-v0\nppo:\n  env_kwargs: {a: 3}\n")
    assert read_config_file(path).section("ppo")["env_kwargs"] == {"a": 3}
