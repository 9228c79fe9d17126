"""Wrappers around actions: what reaches the env, what the agent may do, what is refused."""

import numpy as np
import pytest
from gymnasium import spaces

from gymnasium_solver.envs.make import make_vector_env
from gymnasium_solver.envs.vector import VectorEnv
from gymnasium_solver.envs.wrappers.wrapping import wrap
from gymnasium_solver.errors import EnvError
from tests.envs.scripted import BUTTONS, Scripted

REMAP = "DiscreteActionSpaceRemapperWrapper"


def scripted(n_steps: int = 5, n_envs: int = 2, **given) -> Scripted:
    return Scripted(np.zeros((n_steps + 1, n_envs, 1), np.float32), **given)


def wrapped(env: VectorEnv, name: str, **options) -> VectorEnv:
    return wrap(env, [{"id": name, **options}])


def test_remap_sends_what_the_mapping_says():
    engine = scripted(action=spaces.Discrete(6))
    env = wrapped(engine, REMAP, mapping=[5, 0, 2])
    assert env.action_space == spaces.Discrete(3)
    env.reset(0)
    env.step(np.array([0, 2]))
    env.step(np.array([1, 1]))
    assert np.array(engine.actions).tolist() == [[5, 2], [0, 0]]
    with pytest.raises(EnvError, match="action -1 of env 1 is not in Discrete"):
        env.step(np.array([0, -1]))
    with pytest.raises(EnvError, match="action 3 of env 0 is not in Discrete"):
        env.step(np.array([3, 0]))


def test_remap_of_buttons():
    engine = scripted(action=spaces.MultiBinary(3))
    env = wrapped(engine, REMAP, mapping=[[0, 0, 0], [1, 0, 1]])
    env.reset(0)
    env.step(np.array([1, 0]))
    assert engine.actions[0].tolist() == [[1, 0, 1], [0, 0, 0]]


def test_remap_moves_masks():
    legal = [{"action_mask": np.array([[1, 0, 1, 1], [0, 1, 1, 1]])}] * 6
    env = wrapped(scripted(infos=legal), REMAP, mapping=[3, 1, 0])
    env.reset(0)
    assert env.action_mask is not None
    assert env.action_mask.tolist() == [[True, False, True], [True, True, False]]
    stuck = wrapped(scripted(infos=legal), REMAP, mapping=[1])
    with pytest.raises(EnvError, match=r"in env 0 no action is left.*Map more actions"):
        stuck.reset(0)


@pytest.mark.parametrize(
    ("mapping", "message"),
    [
        ([], "mapping is empty"),
        ([0, 4], "mapping holds 4, which is not in Discrete"),
        ([0, -1], "mapping holds -1, which is not in"),
        ([0, 1.5], "mapping must be a list, each a whole number or a list of whole numbers, got"),
        ([[0, 1]], r"mapping holds \[0, 1\], which is not in"),
        ("01", "mapping must be a list"),
    ],
)
def test_bad_mappings(mapping, message):
    with pytest.raises(EnvError, match=message):
        wrapped(scripted(), REMAP, mapping=mapping)


def test_remap_needs_actions_it_can_map():
    with pytest.raises(EnvError, match="needs Discrete or MultiBinary actions; Pendulum-v1 has"):
        make_vector_env("Pendulum-v1", 1, env_wrappers=[{"id": REMAP, "mapping": [0]}])


def test_sticky_buttons_press_by_chance_and_never_release():
    engine = scripted(2_000, 4, action=spaces.MultiBinary(3))
    env = wrapped(engine, "StickyActionsWrapper", sticky_buttons={"0": 0.75, "2": 0.0})
    env.reset(3)
    given = np.tile(np.array([0, 1, 0]), (4, 1))
    for _ in range(2_000):
        env.step(given)
    pressed = np.array(engine.actions)
    assert given.tolist() == [[0, 1, 0]] * 4  # what the agent handed in is its own
    assert pressed[..., 1].all()
    assert not pressed[..., 2].any()
    assert abs(pressed[..., 0].mean() - 0.75) < 0.02
    assert len(np.unique(pressed[..., 0], axis=1)[0]) > 1  # each env has draws of its own


def test_sticky_buttons_follow_the_seed():
    def run(seed: int) -> np.ndarray:
        env = make_vector_env(
            BUTTONS,
            3,
            env_wrappers=[{"id": "StickyActionsWrapper", "sticky_buttons": {1: 0.5, 2: 0.5}}],
        )
        env.reset(seed)
        return np.stack([env.step(np.zeros((3, 3), np.int8)).obs for _ in range(30)])

    assert np.array_equal(run(5), run(5))
    assert not np.array_equal(run(5), run(6))


@pytest.mark.parametrize(
    ("buttons", "message"),
    [
        ({}, "sticky_buttons is empty"),
        ({"3": 0.5}, "has the button '3', expected 0 to 2"),
        ({"a": 0.5}, "has the button 'a', expected 0 to 2"),
        ({"1": 1.5}, "gives button 1 the chance 1.5, expected 0 to 1"),
        ({"1": "x"}, r"sticky_buttons must be a block of key: value lines, got"),
        ([1], "sticky_buttons must be a block"),
    ],
)
def test_bad_sticky_buttons(buttons, message):
    engine = scripted(action=spaces.MultiBinary(3))
    with pytest.raises(EnvError, match=message):
        wrapped(engine, "StickyActionsWrapper", sticky_buttons=buttons)


def test_sticky_buttons_need_buttons():
    with pytest.raises(EnvError, match="needs MultiBinary actions; Scripted-v0 has Discrete"):
        wrapped(scripted(), "StickyActionsWrapper", sticky_buttons={"0": 1})


def test_action_rescale():
    engine = scripted(action=spaces.Box(np.array([0, -2], "f"), np.array([10, 2], "f")))
    env = wrapped(engine, "RescaleAction", min_action=-1.0, max_action=1.0)
    assert env.action_space == spaces.Box(-1.0, 1.0, (2,), np.float32)
    env.reset(0)
    env.step(np.array([[-1.0, 0.0], [0.5, 3.0]]))  # 3 is clipped to 1
    assert engine.actions[0].tolist() == [[0.0, 0.0], [7.5, 2.0]]
    other = wrapped(engine, "ActionRescale", low=0, high=4)
    other.reset(0)
    other.step(np.array([[0.0, 4.0], [1.0, 2.0]], np.float32))
    assert engine.actions[1].tolist() == [[0.0, 2.0], [2.5, 0.0]]


def test_action_rescale_needs_bounds():
    unbounded = scripted(action=spaces.Box(-np.inf, np.inf, (1,)))
    with pytest.raises(EnvError, match="needs bounded actions"):
        wrapped(unbounded, "ActionRescale")
    with pytest.raises(EnvError, match="needs Box actions; Scripted-v0 has Discrete"):
        wrapped(scripted(), "ActionRescale")
    with pytest.raises(EnvError, match=r"low 1\.0 must be below high 1\.0"):
        wrapped(scripted(action=spaces.Box(-1, 1, (1,))), "ActionRescale", low=1.0, high=1.0)


def test_valid_actions_as_a_wrapper():
    env = wrapped(scripted(), "ValidActions", valid=[0, 3])
    env.reset(0)
    assert env.action_mask is not None
    assert env.action_mask.tolist() == [[True, False, False, True]] * 2


def test_ale_masks_the_actions_a_game_has_no_use_for():
    pytest.importorskip("ale_py")
    for n_actions in (4, 18):
        engine = scripted(env_id="ALE/Breakout-v5", action=spaces.Discrete(n_actions))
        env = wrapped(engine, "ALEActionMaskingWrapper")
        assert env.action_space == spaces.Discrete(18)
        env.reset(0)
        assert env.action_mask is not None
        # NOOP, FIRE, RIGHT, LEFT of the 18
        assert np.flatnonzero(env.action_mask[0]).tolist() == [0, 1, 3, 4]
        env.step(np.array([4, 17]))
        assert engine.actions[0].tolist() == ([3, 0] if n_actions == 4 else [4, 17])
    with pytest.raises(EnvError, match="is for Atari games; ale-py has no Scripted-v0"):
        wrapped(scripted(), "ALEActionMaskingWrapper")
    odd = scripted(env_id="Breakout-v5", action=spaces.Discrete(5))
    with pytest.raises(EnvError, match=r"has Discrete\(5\), expected its 4 actions or all 18"):
        wrapped(odd, "ALEActionMaskingWrapper")
