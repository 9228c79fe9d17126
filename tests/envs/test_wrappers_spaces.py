"""Wrappers of observations and of actions, by numbers worked by hand."""

from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

from gymnasium_solver.envs.make import make_vector_env
from gymnasium_solver.envs.vector import VectorEnv
from gymnasium_solver.envs.wrappers.wrapping import wrap
from gymnasium_solver.errors import EnvError
from tests.envs.scripted import BUTTONS, Scripted

OBS = np.array([[[1.0, -4.0]], [[3.0, 20.0]], [[-30.0, 0.5]]], np.float32)  # three rows of one env


def seen(obs: np.ndarray, *wrappers, observation=None) -> tuple[list, Any]:
    env = wrap(Scripted(obs, observation=observation), list(wrappers))
    rows = [env.reset(0)]
    rows += [env.step(np.zeros(1, np.int64)).obs for _ in range(len(obs) - 1)]
    for row in rows:
        assert row.dtype == env.observation_space.dtype
        assert env.observation_space.contains(row[0])
    return [row[0].tolist() for row in rows], env.observation_space


def test_observation_scale():
    rows, space = seen(OBS, {"id": "ObservationScale", "scale": [0.5, -1], "shift": 1})
    assert rows == [[1.5, 5.0], [2.5, -19.0], [-14.0, 0.5]]
    box = spaces.Box(np.array([0, 0], np.float32), np.array([4, np.inf], np.float32))
    _, space = seen(np.abs(OBS[:1]), {"id": "ObservationScale", "scale": -2.0}, observation=box)
    assert space.low.tolist() == [-8.0, -np.inf]
    assert space.high.tolist() == [0.0, 0.0]


def test_observation_scale_takes_images_to_float():
    image = np.full((2, 1, 2, 2, 3), 255, np.uint8)
    rows, space = seen(image, {"id": "ObservationScale", "scale": 1 / 255})
    assert np.array(rows).max() == 1.0
    assert space.dtype == np.float32


def test_observation_clip():
    rows, space = seen(OBS, {"id": "ObservationClip"})
    assert rows == [[1.0, -4.0], [3.0, 10.0], [-10.0, 0.5]]
    rows, space = seen(OBS, {"id": "ObservationClip", "low": [-1, 0], "high": 2.0})
    assert rows == [[1.0, 0.0], [2.0, 2.0], [-1.0, 0.5]]
    assert space.low.tolist() == [-1.0, 0.0]
    assert space.high.tolist() == [2.0, 2.0]


def test_observation_components():
    for chosen in ({"keep": [1]}, {"drop": [0]}):
        rows, space = seen(OBS, {"id": "ObservationComponents", **chosen})
        assert rows == [[-4.0], [20.0], [0.5]]
    box = spaces.Box(np.array([-30, -10], np.float32), np.array([10, 30], np.float32))
    rows, space = seen(OBS, {"id": "ObservationComponents", "keep": [1, 0]}, observation=box)
    assert rows[1] == [20.0, 3.0]
    assert space.high.tolist() == [30.0, 10.0]


def test_observation_rescale():
    box = spaces.Box(np.array([-30, -10], np.float32), np.array([10, 30], np.float32))
    rows, space = seen(OBS, {"id": "RescaleObservation", "min_obs": 0.0, "max_obs": 1.0},
                       observation=box)  # fmt: skip
    np.testing.assert_allclose(rows, [[0.775, 0.15], [0.825, 0.75], [0.0, 0.2625]], rtol=1e-6)
    assert space == spaces.Box(0.0, 1.0, (2,), np.float32)


@pytest.mark.parametrize(
    ("wrapper", "message"),
    [
        ({"id": "ObservationScale", "scale": [1, 2, 3]}, r"scale has 3 numbers, .* shape \(2,\)"),
        ({"id": "ObservationScale", "scale": "x"}, "scale must be a number or a list of n"),
        ({"id": "ObservationClip", "low": [0, 9], "high": 5}, r"low \[0, 9\] is above high 5"),
        ({"id": "ObservationComponents"}, "takes one of keep and drop"),
        ({"id": "ObservationComponents", "keep": [2]}, "2 is not one of the components 0 to 1"),
        ({"id": "ObservationComponents", "drop": [0, 1]}, "leaves no component"),
        ({"id": "ObservationRescale"}, "needs bounded observations; .*Use ObservationScale"),
        ({"id": "ObservationRescale", "low": 1}, "low 1 must be below high 1.0"),
    ],
)
def test_bad_options(wrapper, message):
    with pytest.raises(EnvError, match=message):
        seen(OBS, wrapper)


def test_vectors_only():
    for name in ("ObservationScale", "ObservationClip", "ObservationRescale"):
        with pytest.raises(EnvError, match="needs Box observations; FrozenLake-v1 has Discrete"):
            make_vector_env("FrozenLake-v1", 1, env_wrappers=[{"id": name}])


# -- pixels ---------------------------------------------------------------------------------


def pixels(
    env_id: str = "CartPole-v1", n_envs: int = 2, mode: str = "auto", limit: int = 4, **options
):
    wrappers = [{"id": "PixelObservationWrapper", **options}]
    return make_vector_env(
        env_id, n_envs, env_wrappers=wrappers, vectorization_mode=mode, max_episode_steps=limit
    )


def test_pixels_are_what_the_env_draws():
    env = pixels()
    assert env.observation_space == spaces.Box(0, 255, (400, 600, 3), np.uint8)
    obs = env.reset(1)
    assert obs.dtype == np.uint8
    for t in range(10):
        step = env.step(np.array([1, t % 2]))
        for row in range(2):
            assert np.array_equal(step.obs[row], env.render(row))
        obs = step.obs


def test_the_last_frame_of_an_episode_is_the_true_one():
    """Cut after 4 steps it shows what it shows there without a limit; then the next episode."""
    cut, longer = pixels(n_envs=1), pixels(n_envs=1, limit=100)
    assert np.array_equal(cut.reset(1), longer.reset(1))
    for t in range(4):
        step, other = cut.step(np.array([1])), longer.step(np.array([1]))
        assert np.array_equal(step.obs, other.obs)
        assert step.truncated[0] == (t == 3)
    step, other = cut.step(np.array([1])), longer.step(np.array([1]))
    assert step.is_reset[0]
    assert not np.array_equal(step.obs, other.obs)


def test_pixels_small_and_gray():
    env = pixels(render_kwargs={"height": 40, "width": 60}, grayscale=True)
    assert env.observation_space.shape == (40, 60, 1)
    obs = env.reset(1)
    assert obs.shape == (2, 40, 60, 1)
    # In whole numbers: as floats the weights of white add up to 255 or, on aarch64, to just below.
    gray = env.render(0).astype(int) @ np.array([299, 587, 114]) // 1000
    block = gray[70:80, 100:110].astype(float).mean()
    assert abs(obs[0, 7, 10, 0] - block) <= 0.5


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"render_kwargs": {"size": 3}}, "render_kwargs takes height and width, got 'size'"),
        ({"render_kwargs": {"height": 500}}, "render_kwargs must be 1 to 400 by 1 to 600, got 500"),
        ({"render_kwargs": {"height": "a"}}, "render_kwargs must be a block"),
    ],
)
def test_bad_pixel_options(options, message):
    with pytest.raises(EnvError, match=message):
        pixels(**options)


def test_what_cannot_draw_is_refused():
    wrappers = [{"id": "PixelObservationWrapper"}]
    with pytest.raises(EnvError, match="Bandit-v0: PixelObservationWrapper needs RGB frames, but"):
        make_vector_env("Bandit-v0", 1, env_wrappers=wrappers)
    with pytest.raises(
        EnvError, match=r"FrozenLake-v1: PixelObs.*the envpool engine draws nothing"
    ):
        pixels("FrozenLake-v1", mode="envpool")


def test_auto_takes_an_engine_that_draws():
    pytest.importorskip("pygame", reason="Gymnasium draws toy text with pygame")
    env = pixels("FrozenLake-v1", 1)
    assert env.spec.engine == "sync"
    assert "EnvPool does not draw FrozenLake-v1" in env.spec.engine_reason


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
