"""Observations in parts, chosen or dropped on every engine, and frames as stacks of small ones."""

import sys
import types
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest

from gymnasium_solver.cli.main import main
from gymnasium_solver.config.load import dump_config
from gymnasium_solver.envs.engines.envpool import pool_twin
from gymnasium_solver.envs.env_bugs import env_bug
from gymnasium_solver.envs.make import make_vector_env
from gymnasium_solver.envs.suites.buttons import ActionSet
from gymnasium_solver.envs.suites.minigrid import (
    COLOURS,
    THINGS,
    VERBS,
    encode_mission,
    is_mission,
)
from gymnasium_solver.envs.wrappers.frames import VIZDOOM_GRAY, AreaResize, FrameStack, gray
from gymnasium_solver.errors import ConfigError, EnvError
from gymnasium_solver.spaces.observations import flatten_space, part_spaces
from gymnasium_solver.training.loop import train
from gymnasium_solver.training.observer import Observer, TrainInfo
from gymnasium_solver.training.prepare import build_config, load_config

spaces = gymnasium.spaces


@pytest.mark.parametrize("mode", ["sync", "async"])
def test_parts_of_every_kind_by_their_names(mode, record):
    env = make_vector_env("GsolveTest/Parts-v0", 2, vectorization_mode=mode)
    assert env.observation_space == spaces.Dict(
        {
            "count": spaces.Box(0, np.inf, (2,), np.float32),
            "flags": spaces.MultiBinary(2),
            "kinds.0": spaces.Discrete(3, start=5),
            "kinds.1": spaces.MultiDiscrete([2, 3]),
        }
    )
    rollout = record(env, seed=1, n_steps=4)
    for step in (1, 2):
        row = {name: part[step - 1, 0].tolist() for name, part in rollout.next_obs.items()}
        assert row == {
            "count": [0, step],
            "flags": [step % 2, 1],
            "kinds.0": 5 + step % 3,
            "kinds.1": [step % 2, step % 3],
        }


def test_a_usable_ace_of_blackjack_is_one_that_can_count_one(record):
    """EnvPool 1.2 reports every ace as usable, also one that already counts 1."""
    env = make_vector_env("Blackjack-v1", 64)
    assert env.spec.engine == "sync"
    rollout = record(env, seed=1, n_steps=100)
    is_hit = rollout.actions == 1
    usable = rollout.obs["2"] == 1
    assert (rollout.obs["0"][usable] >= 12).all()
    assert (is_hit & usable & ~rollout.is_reset).sum() > 100
    assert not rollout.done[is_hit & usable & ~rollout.is_reset].any()  # a hit never busts it
    with pytest.raises(EnvError, match="ace"):
        make_vector_env("Blackjack-v1", 1, vectorization_mode="envpool")


def test_mazes_without_a_way_are_refused():
    """EnvPool 1.2 puts doors of MultiRoom into the corners of rooms."""
    name = "MiniGrid-MultiRoom-N4-S5-v0"
    with pytest.raises(EnvError, match=f"into a wall.*minigrid:{name}.*pip install minigrid"):
        make_vector_env(name, 1)
    assert pool_twin(f"minigrid:{name}") is None, "no advice to use it"
    assert pool_twin("minigrid:MiniGrid-Empty-5x5-v0") == "MiniGrid-Empty-5x5-v0"


def test_a_missing_package_of_a_shipped_config_is_named():
    error = ModuleNotFoundError("No module named 'minigrid'", name="minigrid")
    assert str(env_bug("X: cannot import", error)).endswith("install it: pip install minigrid")


def test_text_is_left_out_with_a_note():
    space = spaces.Dict({"a": spaces.Tuple([spaces.Discrete(2), spaces.Text(3)])})
    read = flatten_space(space, "X")
    assert read.space == spaces.Dict({"a.0": spaces.Discrete(2)})
    assert read.notes == ("observation part 'a.1' is left out: no network reads it",)
    with pytest.raises(
        EnvError, match="X: observations of type Text are not supported: none of Text"
    ):
        flatten_space(spaces.Text(3), "X")


def test_minigrid_view_is_one_hot_in_every_cell():
    env = make_vector_env("MiniGrid-DoorKey-5x5-v0", 8)
    image = make_vector_env("MiniGrid-DoorKey-5x5-v0", 8, env_kwargs={"observation": "image"})
    vector, cells = env.reset(3), image.reset(3)
    view = vector[:, : 49 * 21].reshape(8, 49, 21)
    for part, (low, high) in enumerate([(0, 11), (11, 17), (17, 21)]):
        assert (view[..., low:high].sum(axis=-1) == 1).all()
        assert np.array_equal(
            view[..., low:high].argmax(axis=-1), cells.reshape(8, 49, 3)[..., part]
        )
    assert (vector[:, 1029:1033].sum(axis=1) == 1).all()


def test_missions_of_babyai_are_read_too():
    """The package gives BabyAI a class of its own, derived from that of MiniGrid."""
    mission = type(
        "MissionSpace", (gymnasium.spaces.Text,), {"__module__": "minigrid.core.mission"}
    )
    babyai = type("BabyAIMissionSpace", (mission,), {"__module__": "minigrid.envs.babyai"})
    assert is_mission(mission(9))
    assert is_mission(babyai(9))
    assert not is_mission(gymnasium.spaces.Text(9))


def test_levels_of_babyai_end_at_their_own_limit():
    """EnvPool registers them with a limit of 0, which was taken for a limit of no step. A limit of
    the config, which is 10,000 where none is registered, comes on top."""
    for limit, length in ((None, 64), (10_000, 64), (20, 20)):
        env = make_vector_env("BabyAI-GoToObj-v0", 2, max_episode_steps=limit)
        env.reset(1)
        steps = [env.step(np.zeros(2, int)) for _ in range(length + 1)]
        assert [step.truncated.all() for step in steps] == [False] * (length - 1) + [True, False]
        assert steps[-1].is_reset.all()
        assert steps[-2].episode_length.tolist() == [length] * 2


class Grid(gymnasium.Env):
    """Observes as the package minigrid does."""

    observation_space = spaces.Dict(
        {"image": spaces.Box(0, 255, (7, 7, 3), np.uint8), "direction": spaces.Discrete(4)}
    )
    action_space = spaces.Discrete(7)

    def _look(self):
        return {"image": np.full((7, 7, 3), 1, np.uint8), "direction": 2, "mission": "go to a door"}

    def reset(self, *, seed=None, options=None):
        return self._look(), {}

    def step(self, action):
        return self._look(), 0.0, False, False, {}


def test_the_package_minigrid_is_read_at_every_step(monkeypatch):
    package: Any = types.ModuleType("minigrid")
    space = type("MissionSpace", (spaces.Text,), {"__module__": "minigrid.core.mission"})(99)
    package.Grid = type(
        "Grid",
        (Grid,),
        {"observation_space": spaces.Dict({**Grid.observation_space, "mission": space})},
    )
    monkeypatch.setitem(sys.modules, "minigrid", package)
    gymnasium.register("Grid-v0", entry_point="minigrid:Grid", max_episode_steps=9)
    try:
        env: Any = make_vector_env("Grid-v0", 2)
        first, then = env.reset(1), env.step(np.zeros(2, int)).obs
    finally:
        del gymnasium.registry["Grid-v0"]
    assert first.shape == then.shape == (2, *env.observation_space.shape)
    np.testing.assert_array_equal(first, then)


def test_missions_tell_verbs_and_things_in_order():
    code = encode_mission("put the red ball near the box, then open a grey door")
    verbs, things = code[:12].reshape(3, 4), code[12:].reshape(3, 11)
    assert [VERBS[i] for i in verbs[:2].argmax(axis=1)] == ["put", "open"]
    assert not verbs[2].any()
    assert [THINGS[i] for i in things[:, 6:].argmax(axis=1)] == ["ball", "box", "door"]
    assert [row[:6].sum() for row in things] == [1, 0, 1]
    assert COLOURS[things[2, :6].argmax()] == "grey"


@pytest.mark.parametrize(
    ("size_in", "size_out"), [((20, 40), (14, 21)), ((7, 5), (3, 2)), ((4, 6), (8, 9))]
)
def test_area_resize_is_the_mean_of_the_area(size_in, size_out):
    frames = np.random.default_rng(0).integers(256, size=(2, 3, *size_in)).astype(np.uint8)
    (h, w), (h_out, w_out) = size_in, size_out
    # Blown up so that both sizes divide it, then averaged.
    big = frames.repeat(h_out, axis=2).repeat(w_out, axis=3).astype(np.float64)
    mean = big.reshape(2, 3, h_out, h, w_out, w).mean(axis=(3, 5))
    small = AreaResize(size_in, size_out)(frames)
    assert small.shape == (2, 3, *size_out)
    assert np.abs(small - mean).max() <= 0.5 + 1e-9


def test_frame_stack_begins_with_the_first_frame_repeated():
    stack = FrameStack(spaces.Box(0, 255, (1, 1, 1), np.uint8), 3)
    frame = lambda a, b: np.array([a, b], np.uint8).reshape(2, 1, 1, 1)  # noqa: E731
    both = np.ones(2, np.bool_)
    first = stack.push(frame(1, 10), both)
    assert first[:, :, 0, 0].tolist() == [[1, 1, 1], [10, 10, 10]]
    second = stack.push(frame(2, 20), ~both)
    assert second[:, :, 0, 0].tolist() == [[1, 1, 2], [10, 10, 20]]
    third = stack.push(frame(3, 30), np.array([False, True]))
    assert third[:, :, 0, 0].tolist() == [[1, 2, 3], [30, 30, 30]]
    assert first[:, :, 0, 0].tolist() == [[1, 1, 1], [10, 10, 10]]


def test_buttons_as_actions():
    names, opposite = ["L", "R", "FIRE"], [("L", "R")]
    single = ActionSet.read("X", "single", names, opposite)
    assert single.table.astype(int).tolist() == [[0, 0, 0], [1, 0, 0], [0, 1, 0], [0, 0, 1]]
    combined = ActionSet.read("X", "combined", names, opposite)
    assert combined.space == spaces.Discrete(6)
    assert not (combined.table[:, 0] & combined.table[:, 1]).any()
    listed = ActionSet.read("X", [[], "FIRE", ["L", "FIRE"]], names, opposite)
    press = listed.presses([0, 2, 3], 4)  # the second of four buttons is not ours
    assert press(np.array([2, 0])) == [[1, 0, 0, 1], [0, 0, 0, 0]]
    free = ActionSet.read("X", "buttons", names, opposite)
    assert free.presses([0, 1, 2], 3)(np.array([[1, 0, 1]])) == [[1, 0, 1]]


@pytest.mark.parametrize("weights", [(77, 150, 29), VIZDOOM_GRAY])
def test_gray_is_integer_arithmetic(weights):
    """By Python's own integers, for every value of a channel: the same on any machine."""
    values = np.arange(256, dtype=np.uint8).reshape(16, 16)
    rng = np.random.default_rng(0)
    planes = np.stack([values, rng.permuted(values), np.full_like(values, 255)])
    expected = [
        [sum(w * int(p[y, x]) for w, p in zip(weights, planes, strict=True)) // 256
         for x in range(16)] for y in range(16)
    ]  # fmt: skip
    assert gray(planes, weights).tolist() == expected
    assert np.array_equal(gray(np.stack([planes] * 3), weights)[1], expected)
    assert gray(np.full((3, 1, 1), 255, np.uint8), weights).tolist() == [[255]]


@pytest.mark.parametrize("mode", ["sync", "async"])
def test_words_are_left_out_and_the_run_says_so(mode, tmp_path):
    env = make_vector_env("GsolveTest/Words-v0", 2, vectorization_mode=mode)
    assert list(env.reset(0)) == ["count"]
    note = "observation part 'words' is left out: no network reads it"
    assert env.spec.notes == (note,)
    if mode == "sync":
        infos = []

        class Listener(Observer):
            def on_start(self, run: Any, config: Any, info: TrainInfo) -> None:
                infos.append(info)

        fields = {"env_id": "GsolveTest/Words-v0", "algo_id": "ppo", "max_env_steps": 64,
                  "n_envs": 2, "n_steps": 16, "batch_size": 16, "eval_freq_epochs": None,
                  "test_episodes": 1}  # fmt: skip
        train(build_config(fields), runs_root=tmp_path, observers=[Listener()])
        assert note in infos[0].notes


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


def test_parts_of_other_engines() -> None:
    goals = ["observation", "desired_goal"]
    assert parts("FetchReach-v4", goals) == goals
    assert parts("WalkerWalk-v1", {"drop": ["height"]}) == ["orientations", "velocity"]
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


def test_what_only_a_simulator_knows_is_dropped_by_default() -> None:
    env = make_vector_env("Go1Handstand-v1", 1)
    assert env.observation_space.shape == (45,)
    (note,) = env.spec.notes
    assert "privileged_state" in note
    assert "obs_keys" in note
    env = make_vector_env("Go1Handstand-v1", 1, obs_keys=["state", "privileged_state"])
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
