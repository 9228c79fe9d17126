"""`gs.make_env`: a run's environment as a Gymnasium env."""

import warnings
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

import gymnasium_solver as gs
from gymnasium_solver.errors import ConfigError, EnvError, RunError

from .conftest import MakeRun, Walk

SCALE = {"id": "ObservationScale", "scale": 3.0}


def episode(env: gymnasium.Env[Any, Any], agent: Any, seed: int | None = None) -> Any:
    obs, info = env.reset(seed=seed)
    total, is_over = 0.0, False
    while not is_over:
        obs, reward, terminated, truncated, info = env.step(agent.act(obs))
        total, is_over = total + float(reward), terminated or truncated
    return total, info


@pytest.mark.filterwarnings("ignore:.*A Box observation space:UserWarning")
def test_a_single_env_is_a_gymnasium_env_with_the_runs_settings(make_run: MakeRun) -> None:
    run = make_run(env_wrappers=[SCALE, {"id": "RewardScale", "scale": 0.5}], max_episode_steps=7)
    env = gs.make_env(run, seed=4)
    check_env(env, skip_render_check=True)
    env = gs.make_env(run, seed=4)
    assert env.observation_space.shape == (4,)
    raw = gymnasium.make("CartPole-v1").observation_space
    assert isinstance(env.observation_space, gymnasium.spaces.Box)
    np.testing.assert_allclose(env.observation_space.high, raw.high, rtol=1e-6)  # type: ignore[attr-defined]
    agent = run.agent()
    total, info = episode(env, agent)
    assert info["episode_length"] == 7
    assert info["episode_return"] == 7.0, "the score, before reward wrappers"
    assert total == 3.5, "what the learner sees"
    with pytest.raises(EnvError, match="the episode is over; call reset"):
        env.step(0)
    first, _ = env.reset()
    second, _ = env.reset()
    again, _ = gs.make_env(run, seed=4).reset()
    repeated, _ = gs.make_env(run, seed=4).reset()
    np.testing.assert_array_equal(again, repeated)
    assert not np.array_equal(first, second)
    with pytest.raises(EnvError, match="takes no options"):
        env.reset(options={"low": 0})
    env.close()


def test_a_vector_env_resets_at_the_next_step(make_run: MakeRun) -> None:
    run = make_run(max_episode_steps=3)
    env = gs.make_env(run, n_envs=2)
    assert isinstance(env, gymnasium.vector.VectorEnv)
    assert env.metadata["autoreset_mode"] is gymnasium.vector.AutoresetMode.NEXT_STEP
    agent = run.agent()
    obs, _ = env.reset(seed=1)
    assert env.observation_space.contains(obs)
    truncations = []
    for _ in range(5):
        obs, _, _, truncated, info = env.step(agent.act(obs))
        truncations.append(truncated.tolist())
    assert truncations == [[False] * 2, [False] * 2, [True] * 2, [False] * 2, [False] * 2]
    assert info["episode_length"].tolist() == [1, 1]
    with pytest.raises(EnvError, match="one seed for all copies"):
        env.reset(seed=[1, 2])  # type: ignore[arg-type]
    env.close()


def test_envpool_runs_get_gymnasiums_environment_and_are_told(make_run: MakeRun) -> None:
    run = make_run("Pendulum-v1:ppo", vectorization_mode="envpool")
    with pytest.warns(UserWarning, match=r"trained on EnvPool's Pendulum-v1; this is Gymnasium's"):
        env = gs.make_env(run)
    assert "sync" in repr(env)
    episode(env, run.agent(), seed=1)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        made = gs.make_env(gs.load_config(str(run.config_path)))  # nothing was trained
        made.close()


def test_an_environment_that_only_envpool_has_is_stepped_by_it(make_run: MakeRun) -> None:
    run = make_run("Catch-v0", algo="ppo", vectorization_mode="envpool")
    env = gs.make_env(run, seed=3)
    assert "envpool" in repr(env)
    _, info = episode(env, run.agent())
    assert abs(info["episode_return"]) == 1.0
    env.close()


def test_masks_come_with_the_info(make_run: MakeRun) -> None:
    run = make_run("Taxi-v4", algo="ppo", vectorization_mode="sync", max_episode_steps=5)
    env = gs.make_env(run)
    obs, info = env.reset(seed=1)
    assert info["action_mask"].shape == (6,)
    agent = run.agent()
    for _ in range(4):
        action = agent.act(obs, mask=info["action_mask"])
        assert info["action_mask"][action]
        obs, *_, info = env.step(action)


def test_frames_and_gymnasium_wrappers_around_it(make_run: MakeRun) -> None:
    pytest.importorskip("pygame")
    run = make_run(max_episode_steps=4)
    env: Any = gs.make_env(run, render_mode="rgb_array")
    assert env.metadata["render_fps"] == 50
    env = gymnasium.wrappers.RenderCollection(gymnasium.wrappers.RecordEpisodeStatistics(env))
    _, info = episode(env, run.agent(), seed=1)
    assert info["episode"]["l"] == 4
    frames = env.render()
    assert len(frames) == 5
    assert frames[0].ndim == 3
    with pytest.raises(EnvError, match=r"render\(\) needs make_env"):
        gs.make_env(run).render()
    with pytest.raises(EnvError, match="render_mode must be"):
        gs.make_env(run, render_mode="ascii")  # type: ignore[call-overload]
    with pytest.raises(EnvError, match="shows a single environment"):
        gs.make_env(run, 2, render_mode="human")


def test_what_may_be_named_and_changed(make_run: MakeRun) -> None:
    run = make_run()
    for target in (run, run.id, "@last", "@last/@best", "CartPole-v1:ppo", run.agent()):
        env = gs.make_env(target)
        assert env.observation_space.shape == (4,)
        env.close()
    env = gs.make_env(run, max_episode_steps=2)
    assert episode(env, run.agent())[1]["episode_length"] == 2
    with pytest.raises(ConfigError, match="policy_lr has no effect outside training"):
        gs.make_env(run, policy_lr=1.0)
    with pytest.raises(ConfigError, match=r"env_kwarg is not a field. Did you mean env_kwargs\?"):
        gs.make_env(run, env_kwarg={})
    with pytest.raises(ConfigError, match="n_envs must be a whole number"):
        gs.make_env(run, 0)
    with pytest.raises(ConfigError, match="expected a run, a config, their names or an agent"):
        gs.make_env(7)  # type: ignore[call-overload]
    with pytest.raises(RunError, match="there is no run 'nobody'"):
        gs.make_env("nobody")
    with pytest.raises(EnvError, match="failed to make an environment"):
        gs.make_env(make_run(Walk), env=lambda: 1 / 0)  # type: ignore[arg-type,return-value]
