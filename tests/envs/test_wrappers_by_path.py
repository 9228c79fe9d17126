"""Wrappers by import path: Gymnasium's own, and classes of the user's."""

from typing import Any

import gymnasium
import numpy as np
import pytest

from gymnasium_solver.envs.as_gymnasium import treatment_of
from gymnasium_solver.envs.make import env_from_config, make_vector_env
from gymnasium_solver.envs.vector import VectorEnv, VectorWrapper
from gymnasium_solver.envs.wrappers.wrapping import check_wrappers
from gymnasium_solver.errors import ConfigError, EnvError
from gymnasium_solver.training.prepare import load_config
from tests.envs.conftest import COUNTING

G = "gymnasium.wrappers"


class Doubled(gymnasium.RewardWrapper[Any, Any]):
    def __init__(self, env: gymnasium.Env[Any, Any], factor: float = 2.0) -> None:
        super().__init__(env)
        self.factor = factor

    def reward(self, reward: Any) -> float:
        return self.factor * float(reward)


class BatchDoubled(VectorWrapper):
    def __init__(self, env: VectorEnv, factor: float = 2.0) -> None:
        super().__init__(env)
        self.factor = factor

    def step(self, actions: Any) -> Any:
        step = self.env.step(actions)
        return step._replace(reward=self.factor * step.reward)


class Raising(gymnasium.Wrapper[Any, Any, Any, Any]):
    def step(self, action: Any) -> Any:
        raise KeyError("no such size")


def half(reward: Any) -> float:
    return float(reward) / 2


def make(env_id: str, *wrappers: dict[str, Any], mode: str = "auto", **more: Any) -> VectorEnv:
    return make_vector_env(env_id, 2, env_wrappers=wrappers, vectorization_mode=mode, **more)


def play(env: VectorEnv, n_steps: int) -> tuple[Any, list[Any]]:
    first = env.reset(1)
    return first, [env.step(np.zeros(2, np.int64)) for _ in range(n_steps)]


@pytest.mark.parametrize("mode", ["auto", "sync", "async"])
@pytest.mark.parametrize("path", [f"{G}.RescaleObservation", f"{G}:RescaleObservation"])
def test_a_wrapper_of_gymnasium(mode: str, path: str) -> None:
    env = make("MountainCar-v0", {"id": path, "min_obs": -1, "max_obs": 1}, mode=mode)
    assert env.spec.engine == ("sync" if mode == "auto" else mode)
    first, _ = play(env, 2)
    own = play(make("MountainCar-v0", mode="sync"), 2)[0]
    low, high = np.array([-1.2, -0.07]), np.array([0.6, 0.07])
    np.testing.assert_allclose(first, 2 * (own - low) / (high - low) - 1, atol=1e-5)
    assert env.observation_space.low.tolist() == [-1.0, -1.0]  # type: ignore[attr-defined]


def test_the_choice_of_engine_is_told() -> None:
    env = make("MountainCar-v0", {"id": f"{G}.TimeAwareObservation"})
    assert env.spec.engine == "sync"
    (note,) = env.spec.notes
    assert "TimeAwareObservation" in note
    assert "EnvPool" in note
    assert env.observation_space.shape == (3,)


class Weighted(gymnasium.RewardWrapper[Any, Any]):
    """The number that a vector of rewards is worth."""

    def reward(self, reward: Any) -> float:
        return float(np.dot([0.5, 0.25], reward))


class PaysVectors(gymnasium.RewardWrapper[Any, Any]):
    def reward(self, reward: Any) -> Any:
        return np.array([1.0, 2.0])


def pays_vectors(**kwargs: Any) -> gymnasium.Env[Any, Any]:
    return PaysVectors(gymnasium.make("MountainCar-v0", **kwargs))


@pytest.mark.parametrize("mode", ["sync", "async"])
def test_a_vector_that_a_wrapper_makes_a_number_is_scored_by_that(mode: str) -> None:
    if "GsolveVectors-v0" not in gymnasium.registry:
        gymnasium.register("GsolveVectors-v0", pays_vectors, disable_env_checker=True)
    env = make("GsolveVectors-v0", {"id": f"{__name__}:Weighted"}, mode=mode)
    _, steps = play(env, 3)
    assert steps[-1].reward.tolist() == [1.0, 1.0]
    assert steps[-1].episode_return.tolist() == [3.0, 3.0]


@pytest.mark.parametrize("mode", ["sync", "async"])
def test_scores_are_those_of_the_env_itself(mode: str) -> None:
    wrapper = {"id": "tests.envs.test_wrappers_by_path:Doubled", "factor": 3.0}
    _, steps = play(make(COUNTING, wrapper, mode=mode), 8)
    rewards = np.array([step.reward for step in steps])
    resets = np.array([step.is_reset for step in steps])
    assert (rewards[~resets] == 3.0).all()
    assert (rewards[resets] == 0.0).all()
    for step in steps:
        assert step.episode_return.tolist() == step.episode_length.tolist()  # 1 a step


def test_scores_of_a_wrapper_that_steps_several_times() -> None:
    _, steps = play(make(COUNTING, {"id": f"{G}.RepeatAction", "num_repeats": 2}, mode="sync"), 3)
    assert steps[0].reward.tolist() == steps[0].episode_return.tolist() == [2.0, 2.0]
    assert steps[0].episode_length.tolist() == [1, 1]


def test_functions_and_spaces_by_import_path() -> None:
    wrapper = {"id": f"{G}.TransformReward", "func": "tests.envs.test_wrappers_by_path:half"}
    _, steps = play(make(COUNTING, wrapper, mode="sync"), 1)
    assert steps[0].reward.tolist() == [0.5, 0.5]


def test_batch_wrappers_by_import_path_keep_the_engine() -> None:
    wrapper = {"id": "tests.envs.test_wrappers_by_path.BatchDoubled", "factor": 5.0}
    env = make(COUNTING, wrapper)
    assert env.spec.engine == "vector"
    assert play(env, 1)[1][0].reward.tolist() == [5.0, 5.0]


def test_frames_are_skipped_beneath() -> None:
    wrappers = ({"id": "FrameSkip", "skip": 2}, {"id": f"{G}.ClipReward", "max_reward": 1.5})
    _, steps = play(make(COUNTING, *wrappers, mode="sync"), 1)
    assert steps[0].reward.tolist() == [1.5, 1.5]
    assert steps[0].episode_return.tolist() == [2.0, 2.0]


def test_rendered_observations() -> None:
    env = make("CartPole-v1", {"id": f"{G}.AddRenderObservation"})
    assert env.observation_space.shape == (400, 600, 3)
    assert play(env, 1)[0].max() == 255


@pytest.mark.parametrize(
    ("spec", "problem"),
    [
        ({"id": f"{G}.RescaleObservatio"}, r"no RescaleObservatio\b.*RescaleObservation"),
        ({"id": "gymnasium.rappers.ClipReward"}, "cannot import 'gymnasium.rappers'"),
        ({"id": f"{G}.FrameStack"}, "renamed.*FrameStackObservation"),
        ({"id": f"{G}.NormalizeObservation"}, "normalize_obs: rolling"),
        ({"id": f"{G}.NormalizeReward"}, "normalize_reward: true"),
        ({"id": f"{G}.Autoreset"}, "reset.*Leave it out"),
        ({"id": f"{G}.vector.ClipReward", "max_reward": 1.0}, f"Use {G}.ClipReward"),
        ({"id": f"{G}.ClipReward", "max_rewrd": 1.0}, "unknown option 'max_rewrd'.*max_reward"),
        ({"id": f"{G}.RescaleObservation", "min_obs": 0}, "missing.*'max_obs'"),
        ({"id": f"{G}.RepeatAction", "num_repeats": "two"}, "num_repeats must be a whole number"),
        ({"id": f"{G}.TransformReward", "func": 3}, "func must be an import path, module:name"),
        ({"id": f"{G}.TransformReward", "func": "math:nope"}, "math has no nope"),
        ({"id": "math:sqrt"}, "must be a class"),
        ({"id": "collections:OrderedDict"}, "must be a class that derives from gymnasium.Wrapper"),
        ({"id": "TransformReward"}, "gymnasium.wrappers.TransformReward"),
        ({"id": "StickyAction"}, "gymnasium.wrappers.StickyAction|StickyActions"),
    ],
)
def test_what_is_wrong_is_told_when_a_config_is_read(spec: dict[str, Any], problem: str) -> None:
    with pytest.raises(EnvError, match=problem) as caught:
        check_wrappers([spec])
    assert "\n" not in str(caught.value)
    with pytest.raises(ConfigError, match=f"env_wrappers: .*{problem}"):
        load_config("CartPole-v1:ppo", overrides={"env_wrappers": [spec]})


def test_an_order_that_cannot_be_kept() -> None:
    wrappers = [{"id": "RewardScale", "scale": 2.0}, {"id": f"{G}.ClipReward", "max_reward": 1.0}]
    with pytest.raises(EnvError, match=r"ClipReward.*single environments.*before RewardScale"):
        check_wrappers(wrappers)


@pytest.mark.parametrize("mode", ["envpool", "vector"])
def test_engines_without_single_envs(mode: str) -> None:
    with pytest.raises(EnvError, match=r"ClipReward.*single environments.*auto, sync or async"):
        make("CartPole-v1", {"id": f"{G}.ClipReward", "max_reward": 1.0}, mode=mode)


def test_ids_without_single_envs() -> None:
    clip = {"id": f"{G}.ClipReward", "max_reward": 1.0}
    with pytest.raises(EnvError, match=r"Probe/ConstantReward-v0.*ClipReward"):
        make("Probe/ConstantReward-v0", clip)
    with pytest.raises(EnvError, match=r"ALE/Pong-v5.*AtariPreprocessing.*frame_skip"):
        make("ALE/Pong-v5", {"id": f"{G}.AtariPreprocessing"})
    with pytest.raises(EnvError, match=r"Play2048.*ClipReward.*Gymnasium does not have"):
        make("Play2048-v1", clip)


def test_what_a_wrapper_raises_is_told() -> None:
    env = make(COUNTING, {"id": "tests.envs.test_wrappers_by_path:Raising"}, mode="sync")
    with pytest.raises(EnvError, match=rf"{COUNTING}.*KeyError: 'no such size'.*by_path.py"):
        play(env, 1)
    with pytest.raises(EnvError, match=rf"{COUNTING}: wrapper .*GrayscaleObservation.*3 channels"):
        make(COUNTING, {"id": f"{G}.GrayscaleObservation"})


def test_a_resume_replays_what_wrappers_do(record: Any) -> None:
    wrapper = {"id": f"{G}.DelayObservation", "delay": 2}
    env, again = (make(COUNTING, wrapper, mode="sync") for _ in range(2))
    assert record(env, 3, 20).same_as(record(again, 3, 20))
    assert record(env, 4, 20).same_as(record(again, 4, 20))


def test_an_agent_knows_that_only_its_own_env_has_the_wrapper() -> None:
    path = f"{G}.TimeAwareObservation"
    config = load_config("MountainCar-v0:ppo", overrides={"env_wrappers": [path]})
    env = env_from_config(config, 1)
    assert treatment_of(env, config).own_env == [path]
