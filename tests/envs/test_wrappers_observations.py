"""Wrappers that scale, clip and draw observations."""

from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

from gymnasium_solver.envs.make import make_vector_env
from gymnasium_solver.envs.wrappers.wrapping import wrap
from gymnasium_solver.errors import EnvError
from tests.envs.scripted import Scripted

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
