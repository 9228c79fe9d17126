"""frame_stack, frame_skip, grayscale_obs and resize_obs for any environment, and Dict parts."""

from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from gymnasium_solver.envs.journal import JournaledEnv
from gymnasium_solver.envs.make import env_from_config, make_vector_env
from gymnasium_solver.envs.random_steps import RandomPolicy
from gymnasium_solver.envs.wrappers.frames import AreaResize, gray
from gymnasium_solver.envs.wrappers.wrapping import wrap
from gymnasium_solver.errors import EnvError
from gymnasium_solver.training.prepare import load_config
from tests.envs.scripted import Scripted


def play(env: Any, n_steps: int) -> list[Any]:
    rows = [env.reset(0)]
    return rows + [env.step(np.zeros(env.n_envs, np.int64)).obs for _ in range(n_steps)]


def test_vectors_are_stacked_and_never_across_a_reset_row():
    obs = np.arange(10, dtype=np.float32).reshape(5, 1, 2)
    env = wrap(Scripted(obs, ends=((2, 0),)), [{"id": "FrameStackObservation", "stack_size": 3}])
    rows = play(env, 4)
    assert [row[0].tolist() for row in rows] == [
        [0, 1, 0, 1, 0, 1],
        [0, 1, 0, 1, 2, 3],
        [0, 1, 2, 3, 4, 5],  # the final observation
        [6, 7, 6, 7, 6, 7],  # the reset row
        [6, 7, 6, 7, 8, 9],
    ]
    assert env.observation_space.shape == (6,)
    assert rows[0][0].tolist() == [0, 1, 0, 1, 0, 1]  # what was handed out stays as it was


def test_images_are_stacked_channels_first():
    frames = np.random.default_rng(0).integers(256, size=(4, 2, 12, 10, 3)).astype(np.uint8)
    env = wrap(Scripted(frames), [{"id": "FrameStack", "num_stack": 2}])
    rows = play(env, 3)
    assert env.observation_space == spaces.Box(0, 255, (6, 12, 10), np.uint8)
    expected = np.concatenate([np.moveaxis(frames[t], -1, 1) for t in (1, 2)], axis=1)
    assert np.array_equal(rows[2], expected)


@pytest.mark.parametrize("last", [True, False])
def test_gray_and_size_keep_the_layout(last):
    frames = np.random.default_rng(0).integers(256, size=(2, 2, 12, 10, 3)).astype(np.uint8)
    planes = np.moveaxis(frames, -1, 2)
    given = frames if last else np.ascontiguousarray(planes)
    specs: list[dict[str, Any]] = [
        {"id": "GrayscaleObservation"},
        {"id": "ResizeObservation", "shape": [6, 5]},
    ]
    env = wrap(Scripted(given), specs)
    rows = play(env, 1)
    expected = AreaResize((12, 10), (6, 5))(gray(planes[1]))
    shape = (6, 5, 1) if last else (1, 6, 5)
    assert env.observation_space == spaces.Box(0, 255, shape, np.uint8)
    assert np.array_equal(rows[1].reshape(2, 6, 5), expected)
    assert rows[1].flags.c_contiguous


def test_discrete_numbers_are_stacked():
    obs = np.arange(3, dtype=np.int64).reshape(3, 1)
    engine = Scripted(obs, observation=spaces.Discrete(5))
    env = wrap(engine, [{"id": "FrameStackObservation", "stack_size": 2}])
    assert env.observation_space == spaces.MultiDiscrete([5, 5])
    assert [row[0].tolist() for row in play(env, 2)] == [[0, 0], [0, 1], [1, 2]]


@pytest.mark.parametrize(
    ("env_id", "options", "shape"),
    [
        ("CartPole-v1", {"frame_stack": 4, "frame_skip": 2}, (16,)),
        ("Taxi-v3", {"frame_stack": 2}, (2,)),
        (
            "CarRacing-v3",
            {"frame_stack": 3, "grayscale_obs": True, "resize_obs": True},
            (3, 84, 84),
        ),
        ("CarRacing-v3", {"resize_obs": [48, 40]}, (48, 40, 3)),
        ("Bandit-v0", {"frame_stack": 2}, (2,)),
    ],
)
def test_any_env_takes_the_fields(env_id, options, shape):
    """From a config, exactly restored by the journal."""
    config = load_config(f"{env_id}:ppo", overrides=options | {"max_episode_steps": 6})
    env = JournaledEnv(env_from_config(config, 2))
    assert env.observation_space.shape == shape
    policy = RandomPolicy(env.action_space, 2, 0)
    env.reset(3)
    for _ in range(15):
        obs = env.step(policy.act(env.action_mask)).obs
        assert env.observation_space.contains(obs[0])
    other = JournaledEnv(env_from_config(config, 2))
    assert np.array_equal(other.restore(env.state()), obs)


def test_rendered_pixels_take_the_fields():
    env = make_vector_env(
        "CartPole-v1",
        1,
        env_wrappers=[{"id": "PixelObservationWrapper"}],
        frame_options={"frame_stack": 2, "grayscale_obs": True, "resize_obs": (40, 60)},
    )
    assert env.observation_space.shape == (2, 40, 60)
    assert env.reset(0).shape == (1, 2, 40, 60)


@pytest.mark.parametrize(
    ("env_id", "options", "words"),
    [
        (
            "CartPole-v1",
            {"grayscale_obs": True},
            r"needs image \(uint8\) observations; CartPole-v1",
        ),
        ("Taxi-v3", {"resize_obs": True}, r"needs image \(uint8\) observations; Taxi-v3"),
        ("CartPole-v1", {"obs_type": "ram"}, "obs_type is an option of Atari games"),
        ("Bandit-v0", {"frame_skip": 2}, "Bandit-v0 cannot skip frames"),
    ],
)
def test_where_they_do_not_apply(env_id, options, words):
    with pytest.raises(EnvError, match=words):
        make_vector_env(env_id, 1, frame_options=options)


def test_a_skip_is_given_once():
    wrappers = [{"id": "FrameSkip", "skip": 2}]
    with pytest.raises(EnvError, match="frame_skip and FrameSkipWrapper are both given"):
        make_vector_env("Acrobot-v1", 1, env_wrappers=wrappers, frame_options={"frame_skip": 2})


def dict_env(*wrappers: dict[str, Any]) -> Any:
    return wrap(make_vector_env("Probe/DictObs-v0", 2), list(wrappers))


def test_wrappers_map_a_part_or_every_part():
    env = dict_env({"id": "ObservationScale", "scale": 2.0, "key": "signal"})
    obs = env.reset(1)
    assert set(np.abs(obs["signal"]).reshape(-1)) == {2.0}
    assert np.abs(obs["noise"]).max() <= 1
    assert env.observation_space["signal"].high.tolist() == [2.0]
    env = dict_env({"id": "ObservationClip", "low": -0.1, "high": 0.1}, {"id": "DiscreteEncoder"})
    obs = env.reset(1)
    assert np.abs(obs["noise"]).max() <= 0.1 + 1e-6
    assert obs["kind"].shape == (2, 3)
    assert env.observation_space.contains({name: part[0] for name, part in obs.items()})
    env = dict_env({"id": "FrameStackObservation", "stack_size": 2})
    obs = env.reset(1)
    assert obs["noise"].shape == (2, 8)
    assert env.observation_space["kind"] == spaces.MultiDiscrete([3, 3])


def test_parts_are_selected():
    env = dict_env({"id": "ObservationParts", "drop": ["noise"]})
    assert list(env.reset(1)) == ["kind", "signal"]
    env = dict_env({"id": "ObservationParts", "keep": ["signal"]})
    assert env.reset(1).shape == (2, 1)
    assert env.step([0, 1]).obs.shape == (2, 1)
    assert env.observation_space.shape == (1,)


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        (
            {"id": "ObservationScale", "key": "sound"},
            "'sound' is not a part; .* has kind, noise, signal",
        ),
        ({"id": "DiscreteEncoder", "key": "noise"}, "needs Discrete observations; .* has Box"),
        ({"id": "GrayscaleObservation"}, "needs image .* has Dict"),
        ({"id": "ObservationParts", "drop": ["kind", "noise", "signal"]}, "leaves no part"),
        ({"id": "ObservationParts"}, "takes one of keep and drop"),
        ({"id": "FrameStack", "num_stack": 2, "key": "x"}, "'x' is not a part"),
    ],
)
def test_bad_parts(spec, words):
    with pytest.raises(EnvError, match=words):
        dict_env(spec)


def test_key_is_for_dicts():
    with pytest.raises(EnvError, match="key is for Dict observations; CartPole-v1 has Box"):
        wrap(make_vector_env("CartPole-v1", 1), [{"id": "ObservationScale", "key": "x"}])


def test_pixels_beside_the_state():
    wrapper = {"id": "PixelObservationWrapper", "pixels_only": False,
               "render_kwargs": {"height": 40, "width": 60}}  # fmt: skip
    env = make_vector_env("CartPole-v1", 2, env_wrappers=[wrapper])
    plain = make_vector_env("CartPole-v1", 2, vectorization_mode=env.spec.engine)
    assert np.array_equal(env.reset(1)["state"], plain.reset(1))
    step, other = env.step([0, 1]), plain.step([0, 1])
    assert np.array_equal(step.obs["state"], other.obs)
    assert step.obs["pixels"].shape == (2, 40, 60, 3)
    assert env.observation_space.contains({name: part[0] for name, part in step.obs.items()})


class FloatImages(gymnasium.Env[Any, Any]):
    observation_space = gymnasium.spaces.Box(0.0, 255.0, (10, 12, 3), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        return np.full((10, 12, 3), 200.0, np.float32), {}

    def step(self, action):
        return np.full((10, 12, 3), 200.0, np.float32), 0.0, False, False, {}


def test_images_of_real_numbers_are_told_how_to_become_bytes():
    if "GsolveTest/FloatImages-v0" not in gymnasium.registry:
        gymnasium.register(
            "GsolveTest/FloatImages-v0", lambda **_: FloatImages(), disable_env_checker=True
        )
    options: Any = {"frame_options": {"grayscale_obs": True, "resize_obs": [8, 8]}}
    with pytest.raises(EnvError, match=r"dtype uint8.*gymnasium.wrappers.DtypeObservation"):
        make_vector_env("GsolveTest/FloatImages-v0", 1, **options)
    first = {"id": "gymnasium.wrappers.DtypeObservation", "dtype": "uint8"}
    env = make_vector_env("GsolveTest/FloatImages-v0", 1, env_wrappers=[first], **options)
    assert env.reset(1).tolist() == np.full((1, 8, 8, 1), 200).tolist()
