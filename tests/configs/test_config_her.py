"""The field `her`: how it is written, read back and refused."""

from typing import Any

import pytest

from gymnasium_solver.config.load import config_dict
from gymnasium_solver.config.nested import Her
from gymnasium_solver.config.yaml_file import parse_value
from gymnasium_solver.errors import ConfigError
from gymnasium_solver.training.prepare import build_config, load_config

BASE = {"env_id": "Probe/BitFlip-v0", "algo_id": "dqn"}


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ("true", Her(strategy="future", k=4)),
        ("false", None),
        ("null", None),
        ("{}", Her(strategy="future", k=4)),
        ("{k: 8}", Her(strategy="future", k=8)),
        ("{strategy: final, k: 1e1}", Her(strategy="final", k=10)),
        ("{strategy: episode}", Her(strategy="episode", k=4)),
    ],
)
def test_her_is_read_and_written_back(written: str, expected: Her | None) -> None:
    config = build_config({**BASE, "her": parse_value(written)})
    assert config.her == expected  # type: ignore[attr-defined]
    assert build_config(config_dict(config)) == config


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("future", "expected true, false or"),
        ({"strategy": "futur"}, "strategy: got 'futur', expected one of 'future', 'final', 'ep"),
        ({"k": 0}, "k: got 0, expected a whole number >= 1"),
        ({"k": True}, "k: got true, expected a whole number"),
        ({"n": 4}, "n: unknown field"),
    ],
)
def test_what_her_cannot_be_is_refused(given: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        build_config({**BASE, "her": given})


def test_a_share_of_k_in_k_plus_one_is_replaced() -> None:
    assert Her(k=4).share == 0.8


def test_a_dotted_override_sets_one_part() -> None:
    config = load_config("Probe/BitFlip-v0:dqn", overrides={"her.k": 2})
    assert config.her == Her(strategy="future", k=2)  # type: ignore[attr-defined]


def test_her_needs_a_replay() -> None:
    with pytest.raises(ConfigError, match="her: unknown field here; it belongs to"):
        build_config({"env_id": "CartPole-v1", "algo_id": "ppo", "her": True})


@pytest.mark.parametrize("name", ["n_sampled_goal", "goal_selection_strategy"])
def test_names_of_other_libraries_lead_to_her(name: str) -> None:
    with pytest.raises(ConfigError, match="Did you mean her"):
        build_config({**BASE, name: 4})
