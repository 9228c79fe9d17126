"""Keys of a person: from labels, from the environment itself, several at once, continuous."""

from collections.abc import Sequence
from typing import Any

import gymnasium
import numpy as np
import pytest

from gymnasium_solver.media.keys import (
    KeyMap,
    axis_keys,
    button_keys,
    choice_keys,
    chords_of,
    idle_action,
    key_map,
)

LANDER = ["nothing", "fire_left_engine", "fire_main_engine", "fire_right_engine"]
TENNIS = ["noop", "fire", "up", "right", "up_right", "up_right_fire"]


def pressed(names: list[str], *held: str) -> str | None:
    idle = idle_action(names)
    keys = choice_keys(names, 0, chords_of(names), idle)
    action = keys.action(held)
    return None if action is None else names[int(action)]


@pytest.mark.parametrize(
    ("names", "held", "action"),
    [
        (["push_left", "push_right"], ["left"], "push_left"),
        (["push_left", "push_right"], [], None),
        (LANDER, ["up"], "fire_main_engine"),
        (LANDER, ["left"], "fire_left_engine"),
        (LANDER, [], "nothing"),
        (TENNIS, ["up", "right"], "up_right"),
        (TENNIS, ["up", "right", "space"], "up_right_fire"),
        (TENNIS, ["space"], "fire"),
        (["noop", "fire", "upright", "uprightfire"], ["up", "right", "space"], "uprightfire"),
        (["south", "north", "east", "west", "pick_up", "drop_off"], ["down"], "south"),
        (["south", "north", "east", "west", "pick_up", "drop_off"], ["x"], "drop_off"),
        (["nothing", "right", "right_jump", "right_run", "jump"], ["right", "x"], "right_run"),
        (["nothing", "move_left", "turn_left", "attack"], ["left"], "turn_left"),
        (["nothing", "move_left", "turn_left", "attack"], ["a"], "move_left"),
        (["nothing", "move_left", "move_right", "attack"], ["left"], "move_left"),
        (["torque_minus_1", "torque_0", "torque_plus_1"], [], "torque_0"),
        (["torque_minus_1", "torque_0", "torque_plus_1"], ["2"], "torque_plus_1"),
        (["action 0", "action 1"], ["1"], "action 1"),
    ],
)
def test_labels_are_read_as_words(names: list[str], held: list[str], action: str | None) -> None:
    assert pressed(names, *held) == action


def test_the_keys_are_shown() -> None:
    keys = choice_keys(LANDER, 0, chords_of(LANDER), 0)
    assert keys.help == [
        ("0", "nothing"),
        ("left or 1", "fire_left_engine"),
        ("up or 2", "fire_main_engine"),
        ("right or 3", "fire_right_engine"),
    ]
    assert {"left", "up", "right", "3"} <= keys.keys
    assert keys.action([]) == 0
    assert choice_keys(["push_left"], 0).action([]) is None


def test_actions_may_start_above_zero() -> None:
    assert (
        choice_keys(["a_left", "b_right"], 5, chords_of(["left", "right"])).action(["right"]) == 6
    )


def given(keys: KeyMap, held: set[str], axes: Sequence[float] = ()) -> list[float]:
    action = keys.action(held, axes)
    assert action is not None
    return list(action.tolist())


def test_buttons_are_held_together() -> None:
    names = ["B", "UP", "DOWN", "LEFT", "RIGHT", "A"]
    keys = button_keys(names, (6,))
    assert given(keys, {"right", "x"}) == [0, 0, 0, 0, 1, 1]
    assert given(keys, {"space", "left", "up"}) == [1, 1, 0, 1, 0, 0]
    assert given(keys, set()) == [0] * 6
    assert ("right", "RIGHT") in keys.help


def test_continuous_actions_by_keys_and_by_stick() -> None:
    space = gymnasium.spaces.Box(np.array([-2, 0, 0], np.float32), np.array([2, 1, 1], np.float32))
    names = ["steering", "gas", "brake"]
    keys = axis_keys(names, space)
    assert given(keys, set()) == [0, 0, 0]
    assert given(keys, {"left", "up"}) == [-2, 1, 0]
    assert given(keys, {"left", "right", "down"}) == [0, 0, 1]
    assert given(keys, set(), [0.5]) == [1, 0, 0]
    assert given(keys, set(), [-1.0, 0.25]) == pytest.approx([-2, 0.25, 0])
    many = gymnasium.spaces.Box(-np.inf, np.inf, (17,), np.float32)
    joints = axis_keys([f"j{i}" for i in range(17)], many)
    assert given(joints, {"up"}) == [0, 1] + [0] * 15


def test_an_environment_may_bring_its_own_keys(counting_stage: Any, monkeypatch: Any) -> None:
    from tests.media.counting import Counting

    own = {("w",): 1, (ord("a"), ord(" ")): 0, ("up",): 1}
    monkeypatch.setattr(Counting, "get_keys_to_action", lambda self: own, raising=False)
    stage = counting_stage()
    keys = key_map(stage, ["go_left", "go_right"])
    assert isinstance(keys, KeyMap)
    assert keys.action({"w"}) == 1
    assert keys.action({"a", "space"}) == 0
    assert keys.action({"a"}) is None
    monkeypatch.setattr(Counting, "get_keys_to_action", lambda self: {"w": "x"}, raising=False)
    assert key_map(stage, ["go_left", "go_right"]).action({"left"}) == 0  # type: ignore[union-attr]
