"""The `spec` block: what it takes, what it refuses and how; and that every shipped block is whole
and true."""

from typing import Any

import gymnasium
import numpy as np
import pytest

from gymnasium_solver.algos.file_schema import json_schema
from gymnasium_solver.config.find import SHIPPED, ConfigEntry, find_configs, read_config_file
from gymnasium_solver.config.spec import Spec, read_spec
from gymnasium_solver.envs.make import env_from_config
from gymnasium_solver.envs.sheet import spec_mismatches
from gymnasium_solver.errors import ConfigError, MissingError
from gymnasium_solver.training.prepare import build_config, load_config

# One block in the shape of the reference systems, with everything that theirs hold.
FOREIGN: dict[str, Any] = {
    "source": "https://example.org",
    "description": "A game.",
    "goal": "win",
    "render_fps": 60,
    "action_space": {
        "discrete": 3,
        "labels": {0: "NOOP", 1: "LEFT", 2: "RIGHT"},
        "valid": [0, 1],
        "note": "all three work",
        "full_space": {"count": 18, "enable_with": "full_action_space=True"},
    },
    "observation_space": {
        "default": "objects",
        "variants": {
            "rgb": {"shape": [210, 160, 3], "dtype": "uint8", "range": [0, 255], "note": "frames"},
            "objects": {
                "shape": ["n"],
                "dtype": "float32",
                "components": [
                    {"name": "Ball.x", "range": [-1.0, 1.0]},
                    {"name": "leg", "values": [0, 1], "description": "contact"},
                ],
            },
            "state": {"n": 16, "dtype": "int64"},
        },
    },
    "rewards": {
        "per_point": "+1/-1",
        "life_lost": -1,
        "range": [-1, 1],
        "threshold_solved": 20,
        "components": [{"name": "kill", "value": 1.0, "sign": "positive", "note": "each"}],
    },
    "returns": {"episodic": "score difference", "range": [-21, 21], "threshold_solved": 20},
    "modes": {"values": [0, 1], "default": 0},
    "difficulties": {"values": [0, 1], "default": 0},
    "versions": {"v5": "sticky actions"},
}


def test_a_block_of_the_reference_loads_and_is_typed() -> None:
    spec = read_spec(FOREIGN)
    assert spec.action_space.label_list() == ["NOOP", "LEFT", "RIGHT"]
    assert spec.observation_space.view().components[0].name == "Ball.x"
    assert spec.observation_space.view("rgb").shape == [210, 160, 3]
    assert spec.rewards.events == {"per_point": "+1/-1", "life_lost": -1}
    assert spec.threshold == 20
    assert spec.modes.values == [0, 1]
    with pytest.raises(ValueError, match="frozen"):
        spec.goal = "lose"  # type: ignore[misc]


def test_labels_may_skip_the_order_of_their_lines() -> None:
    spec = read_spec({"action_space": {"labels": {10: "k", 2: "c", 1: "b"}}})
    assert spec.action_space.label_list() == ["b", "c", "k"]


@pytest.mark.parametrize(
    ("block", "line"),
    [
        ({"discription": "x"}, "spec.discription: unknown key. Did you mean description?"),
        (
            {"action_space": {"lables": ["a"]}},
            "spec.action_space.lables: unknown key. Did you mean labels?",
        ),
        (
            {"observation_space": {"components": [{"name": "x", "rnage": [0, 1]}]}},
            "spec.observation_space.components.0.rnage: unknown key. Did you mean range?",
        ),
        (
            {"observation_space": {"components": [{"range": [0, 1]}]}},
            "spec.observation_space.components.0: needs a name",
        ),
        (
            {"rewards": {"descripton": "x"}},
            "spec.rewards: descripton: unknown key. Did you mean description?",
        ),
        ({"rewards": {"on_goal": [1]}}, "spec.rewards: on_goal: got [1], expected its reward"),
        (
            {"rewards": {"components": [{"name": "a", "vlaue": 1}]}},
            "spec.rewards.components.0.vlaue: unknown key. Did you mean value?",
        ),
        (
            {"returns": {"range": [5, 1]}},
            "spec.returns.range: starts at 5.0 but ends at 1.0: expected [lowest, highest]",
        ),
        ({"returns": {"range": 5}}, "spec.returns.range: got 5, expected a pair"),
        ({"returns": {"threshold_solved": "9"}}, "got '9', expected a number"),
        ({"action_space": {"labels": ["a", "a"]}}, "labels has 'a' twice"),
        ({"action_space": {"labels": ["a"], "discrete": 2}}, "has 1 labels, but 2 actions"),
        ({"action_space": {"labels": "a"}}, "expected a list or a block of key: value lines"),
        ({"action_space": {"labels": {"x": "a"}}}, "expected action numbers"),
        (
            {"action_space": {"labels": ["left"], "valid": ["lefft"]}},
            "valid has 'lefft', which is not a label. Did you mean left?",
        ),
        ({"action_space": {"valid": [True]}}, "got True, expected a whole number or text"),
        (
            {"action_space": {"labels": ["left"], "descriptions": {"lefft": "x"}}},
            "descriptions has 'lefft'. Did you mean left?",
        ),
        ({"observation_space": {"default": "rgb", "variants": {"rbg": {}}}}, "Did you mean rbg?"),
        ({"reward": "a", "rewards": {"description": "b"}}, "give one of them"),
        (
            {"returns": {"threshold_solved": 1}, "rewards": {"threshold_solved": 2}},
            "threshold_solved is 1.0 in returns, but 2.0 in rewards",
        ),
    ],
)
def test_a_slip_is_one_line_that_names_its_place(block: dict[str, Any], line: str) -> None:
    with pytest.raises(ConfigError) as error:
        read_spec(block)
    assert line in str(error.value)
    assert len(str(error.value).splitlines()) == 1


def test_a_config_refuses_a_bad_block() -> None:
    fields = {"env_id": "CartPole-v1", "algo_id": "ppo"}
    with pytest.raises(ConfigError, match=r"^spec\.gaol: unknown key. Did you mean goal\?$"):
        build_config({**fields, "spec": {"gaol": "x"}})
    assert build_config({**fields, "spec": FOREIGN}).spec["modes"] == FOREIGN["modes"]


def test_the_json_schema_knows_the_block() -> None:
    schema = json_schema()
    assert "action_space" in schema["properties"]["spec"]["properties"]
    assert "labels" in schema["$defs"]["ActionSpec"]["properties"]
    assert schema["$defs"]["Rewards"]["additionalProperties"] == {"type": ["number", "string"]}


# --- the shipped blocks

# A file that only varies settings (ablations) leaves the description to the env's own.
ENTRIES = [
    entry
    for entry in find_configs()
    if entry.path.is_relative_to(SHIPPED) and entry.path.stem == entry.env_id.replace("/", "-")
]


def different_environments() -> list[ConfigEntry]:
    """One config of each environment and way it is set up: the others only learn differently."""
    found: dict[str, ConfigEntry] = {}
    for entry in ENTRIES:
        section = read_config_file(entry.path).section(entry.variant)
        fields = ("spec", "env_kwargs", "env_wrappers", "obs_type", "frame_stack")
        found.setdefault(f"{entry.env_id} {[section.get(name) for name in fields]}", entry)
    return list(found.values())


DIFFERENT = different_environments()


def missing_parts(spec: Spec) -> list[str]:
    """Fields that a shipped block must have and this one lacks."""
    seen = spec.observation_space
    stated = {
        "description": spec.description,
        "goal": spec.goal,
        "source": spec.source,
        "action_space.labels": spec.action_space.labels,
        "observation_space": seen.components or seen.shape or seen.n or seen.variants,
        "rewards": spec.reward_text or spec.rewards.events or spec.rewards.components,
        "episode": spec.episode,
    }
    return [name for name, value in stated.items() if not value]


def test_every_shipped_environment_has_a_whole_block() -> None:
    lacking = {}
    for entry in DIFFERENT:
        if missing := missing_parts(read_spec(load_config(entry.name).spec)):
            lacking[entry.name] = missing
    told = "\n".join(f"{name}: spec lacks {', '.join(parts)}" for name, parts in lacking.items())
    assert not lacking, told


@pytest.mark.sample(30)
@pytest.mark.parametrize("entry", DIFFERENT, ids=[entry.name for entry in DIFFERENT])
def test_the_block_fits_the_environment(entry: ConfigEntry) -> None:
    config = load_config(entry.name)
    spec = read_spec(config.spec)
    try:
        env = env_from_config(config, 1)
    except MissingError as error:
        pytest.skip(str(error))
    try:
        obs_type, frames = (getattr(config, name, None) for name in ("obs_type", "frame_stack"))
        assert spec_mismatches(spec, env, obs_type, frames or 1) == []
        if spec.threshold is None:
            assert env.spec.reward_threshold is None
        elif entry == next(e for e in ENTRIES if e.env_id == entry.env_id):
            expected = env.spec.reward_threshold or config.reward_threshold
            assert spec.threshold == pytest.approx(expected, rel=1e-2)
    finally:
        env.close()


class _Env:
    """As much of a vector env as is looked at."""

    def __init__(self, action: Any, observation: Any) -> None:
        self.action_space, self.observation_space = action, observation


def test_what_does_not_fit_is_told() -> None:
    box = gymnasium.spaces.Box(np.array([-1, -2], np.float32), np.array([1, 2], np.float32))
    env: Any = _Env(gymnasium.spaces.Discrete(3), box)
    parts = [{"name": "a", "range": [-1, 1]}, {"name": "b", "range": [-2, 2]}]
    good = {"action_space": {"labels": ["x", "y", "z"]}, "observation_space": {"components": parts}}
    assert spec_mismatches(read_spec(good), env) == []
    for bad, line in (
        ({"action_space": {"labels": ["x", "y"]}}, "2 labels, but the env has 3"),
        ({"action_space": {"multibinary": 3}}, "but the actions are Discrete"),
        ({"observation_space": {"components": parts[:1]}}, "names 1 numbers, but the env has 2"),
        (
            {"observation_space": {"components": [{"name": "a", "range": [0, 1]}, parts[1]]}},
            "a has the range [0.0, 1.0], but the env [-1, 1]",
        ),
        (
            {"observation_space": {"components": [parts[0], {"name": "b"}]}},
            "b is bounded by [-2, 2]",
        ),
        ({"observation_space": {"n": 4}}, "observation_space.n is 4"),
    ):
        problems = spec_mismatches(read_spec(bad), env)
        assert len(problems) == 1
        assert line in problems[0]
    throttle: Any = _Env(box, gymnasium.spaces.Discrete(4))
    wrong = read_spec({"action_space": {"range": [-1, 1]}, "observation_space": {"n": 5}})
    assert len(spec_mismatches(wrong, throttle)) == 2
    unbounded = {"action_space": {"labels": ["gas", "brake"]}}  # `gsolve envs`: Discrete(2)
    assert "reads as Discrete" in spec_mismatches(read_spec(unbounded), throttle)[0]
    right = {"action_space": {"range": [[-1, 1], [-2, 2]]}, "observation_space": {"n": 4}}
    assert spec_mismatches(read_spec(right), throttle) == []
