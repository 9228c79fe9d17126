"""Parts of a Dict observation, chosen or dropped, on every engine."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gymnasium_solver.cli.main import main
from gymnasium_solver.config.load import dump_config
from gymnasium_solver.envs.make import make_vector_env
from gymnasium_solver.envs.vector import VectorEnv
from gymnasium_solver.errors import ConfigError, EnvError
from gymnasium_solver.spaces.observations import part_spaces
from gymnasium_solver.training.prepare import build_config, load_config

PARTS = "GsolveTest/Parts-v0"  # count, kinds.0, kinds.1, flags


def parts(env_id: str, obs_keys: Any, mode: str = "auto", **more: Any) -> list[str]:
    """The names of the parts, of the space and of what is observed."""
    env = make_vector_env(env_id, 2, obs_keys=obs_keys, vectorization_mode=mode, **more)
    names = list(part_spaces(env.observation_space))
    obs = env.reset(1)
    assert list(obs) == names if names != [""] else isinstance(obs, np.ndarray)
    step = env.step(np.zeros((2, *(env.action_space.shape or ())), env.action_space.dtype))
    assert list(step.obs) == names if names != [""] else step.obs.shape == obs.shape
    return names


@pytest.mark.parametrize("mode", ["sync", "async"])
@pytest.mark.parametrize(
    ("obs_keys", "names"),
    [
        (None, ["count", "flags", "kinds.0", "kinds.1"]),
        (["flags", "count"], ["count", "flags"]),  # in the order of the space
        (["kinds"], ["kinds.0", "kinds.1"]),  # a group
        (["kinds.1"], [""]),  # one part is an array
        ({"drop": ["kinds"]}, ["count", "flags"]),
        ({"drop": ["kinds.0", "count"]}, ["flags", "kinds.1"]),
    ],
)
def test_parts_are_chosen_or_dropped(mode: str, obs_keys: Any, names: list[str]) -> None:
    assert parts(PARTS, obs_keys, mode) == names


def test_parts_of_envpool() -> None:
    assert parts("FetchReach-v4", ["observation", "desired_goal"]) == [
        "observation",
        "desired_goal",
    ]
    assert parts("WalkerWalk-v1", {"drop": ["height"]}) == ["orientations", "velocity"]


def test_parts_of_an_own_env() -> None:
    assert parts("Probe/DictObs-v0", ["signal"]) == [""]


def test_minigrid_has_parts_once_they_are_chosen() -> None:
    env_id = "MiniGrid-Empty-5x5-v0"
    assert parts(env_id, None) == [""]
    assert parts(env_id, ["image", "direction"]) == ["direction", "image"]
    assert parts(env_id, {"drop": ["mission"]}) == ["direction", "image"]
    with pytest.raises(EnvError, match=r"observation: onehot.*one part"):
        parts(env_id, ["image"], env_kwargs={"observation": "onehot"})


def test_what_is_wrong_names_the_parts() -> None:
    known = r"count, flags, kinds\.0, kinds\.1"
    with pytest.raises(
        EnvError, match=rf"{PARTS} has no observation part 'coun'.*count\?.*{known}"
    ):
        parts(PARTS, ["coun"])
    with pytest.raises(EnvError, match=rf"no observation part 'nope'.*{known}"):
        parts(PARTS, {"drop": ["nope"]})
    with pytest.raises(EnvError, match=r"drops every part"):
        parts(PARTS, {"drop": ["count", "flags", "kinds"]})
    with pytest.raises(EnvError, match=r"CartPole-v1 has observations in one part.*obs_keys"):
        parts("CartPole-v1", ["x"])
    with pytest.raises(EnvError, match=r"Words-v0.*'words' is Text, which no network reads"):
        parts("GsolveTest/Words-v0", ["words"])


def test_parts_come_before_the_wrappers() -> None:
    scale = {"id": "ObservationScale", "scale": 0.0}
    env = make_vector_env(PARTS, 2, obs_keys=["count", "flags"], env_wrappers=[scale])
    assert env.reset(1)["count"].tolist() == [[0.0, 0.0], [0.0, 0.0]]
    stacked = make_vector_env(PARTS, 2, obs_keys=["count"], frame_options={"frame_stack": 3})
    assert stacked.observation_space.shape == (6,)


def privileged(env_id: str, obs_keys: Any = None) -> VectorEnv:
    return make_vector_env(env_id, 1, obs_keys=obs_keys)


def test_what_only_a_simulator_knows_is_dropped_by_default() -> None:
    env = privileged("Go1Handstand-v1")
    assert env.observation_space.shape == (45,)
    (note,) = env.spec.notes
    assert "privileged_state" in note
    assert "obs_keys" in note
    env.close()
    env = privileged("Go1Handstand-v1", ["state", "privileged_state"])
    assert list(part_spaces(env.observation_space)) == ["state", "privileged_state"]
    assert env.spec.notes == ()


# -- in configs -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        (["a", "b"], ["a", "b"]),
        ("a", ["a"]),
        ({"drop": ["a"]}, {"drop": ["a"]}),
        ({"drop": "a"}, {"drop": ["a"]}),
        ({"keep": "a"}, ["a"]),
        (None, None),
    ],
)
def test_forms_of_the_field(given: Any, kept: Any) -> None:
    config = build_config({"env_id": "X-v0", "algo_id": "ppo", "obs_keys": given})
    assert config.obs_keys == kept
    assert build_config(dict(config)).obs_keys == kept
    assert "obs_keys" in dump_config(config)


@pytest.mark.parametrize(
    "given", [[], {"drop": []}, {"dorp": ["a"]}, {"drop": ["a"], "keep": ["b"]}, 3, [1], ["a", "a"]]
)
def test_forms_that_are_refused(given: Any) -> None:
    with pytest.raises(ConfigError, match=r"^obs_keys: .*expected"):
        build_config({"env_id": "X-v0", "algo_id": "ppo", "obs_keys": given})


@pytest.mark.parametrize(
    ("words", "kept"),
    [
        (["--obs-keys", "count", "flags"], "obs_keys: [count, flags]"),
        (["--obs-keys", "count"], "obs_keys: [count]"),
        (["--obs-keys", "{drop: [kinds]}"], "drop: [kinds]"),
        (["--obs-keys.drop", "kinds"], "drop: [kinds]"),
    ],
)
def test_the_flag(words: list[str], kept: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["show", "CartPole-v1:ppo", *words]) == 0
    assert kept in capsys.readouterr().out


def test_an_unlisted_env_is_looked_at_with_its_parts(tmp_path: Path) -> None:
    config = load_config("Probe/DictObs-v0:ppo", overrides={"obs_keys": ["signal"]})
    assert config.obs_keys == ["signal"]
    with pytest.raises(EnvError, match="no observation part"):
        load_config("Probe/DictObs-v0:ppo", overrides={"obs_keys": ["nope"]})
