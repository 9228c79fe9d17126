"""What `act` of a loaded agent takes: observations of the environment, treated as in training."""

import json
from typing import Any

import gymnasium
import numpy as np
import pytest

import gymnasium_solver as gs
from gymnasium_solver.envs import wrappers
from gymnasium_solver.envs.make import env_from_config
from gymnasium_solver.envs.vector import VectorWrapper
from gymnasium_solver.errors import EnvError

from .conftest import MakeRun, Walk

SCALE = {"id": "ObservationScale", "scale": [10.0, 0.1, 5.0, 3.0], "shift": 1.0}


def trained_obs(run: gs.Run, n_envs: int = 3) -> Any:
    """Observations as the policy saw them in training, and the same before the wrappers."""
    config = gs.load_config(str(run.config_path))
    env = env_from_config(config, n_envs)
    raw = env_from_config(config.replace(env_wrappers=[]), n_envs)
    try:
        return env.reset(5), raw.reset(5)
    finally:
        env.close()
        raw.close()


def test_observation_wrappers_are_applied_by_act(make_run: MakeRun) -> None:
    """The silent bug: CartPole with ObservationScale, played on the raw environment."""
    run = make_run(env_wrappers=[SCALE, {"id": "RewardScale", "scale": 2.0}], policy_lr=0.1)
    agent = run.agent()
    seen, raw = trained_obs(run, 64)
    np.testing.assert_allclose(seen, raw * SCALE["scale"] + 1.0, rtol=1e-5)
    agent.policy.rng = np.random.default_rng(0)
    expected = agent.act(seen, greedy=False, as_trained=True)
    agent.policy.rng = np.random.default_rng(0)
    np.testing.assert_array_equal(agent.act(raw, greedy=False), expected)
    outputs = agent.policy.reader(raw).batch
    np.testing.assert_array_equal(outputs, seen)


def test_wrappers_in_a_row_and_the_ones_that_restrict_actions(make_run: MakeRun) -> None:
    run = make_run(
        "FrozenLake-v1:ppo",
        env_kwargs={},
        env_wrappers=[
            {"id": "DiscreteEncoder", "encoding": "binary"},
            {"id": "ObservationScale", "scale": 3.0},
        ],
        spec={"action_space": {"valid": [1, 2]}},
    )
    agent = run.agent()
    assert agent.observation_space.shape == (4,)
    read = agent.policy.reader(np.int64(5))
    np.testing.assert_array_equal(read.batch, [[0.0, 3.0, 0.0, 3.0]])
    assert read.is_single
    actions = [agent.act(np.arange(16), greedy=False) for _ in range(5)]
    assert set(np.unique(actions)) == {1, 2}
    only_one = agent.act(np.arange(16), mask=np.tile([False, True, False, False], (16, 1)))
    assert set(only_one.tolist()) == {1}


def test_dict_and_tuple_observations_as_the_environment_gives_them(make_run: MakeRun) -> None:
    run = make_run(Walk)
    agent = run.agent()
    env = Walk()
    obs, _ = env.reset(seed=3)
    single = agent.act(obs)
    env.step(single)
    made = gs.make_env(run, env=Walk)
    flat, _ = made.reset(seed=3)
    assert set(flat) == {"place", "inner.0", "inner.1"}
    made.step(agent.act(flat))
    vec = gymnasium.vector.SyncVectorEnv([Walk] * 3)
    batch, _ = vec.reset(seed=1)
    actions = agent.act(batch)
    assert vec.action_space.contains(actions)
    vec.step(actions)
    with pytest.raises(EnvError, match=r"no part 'inner.0'.*gs.make_env\("):
        agent.act({"place": obs["place"]})
    np.testing.assert_allclose(agent.act([obs, obs])["go"], [single["go"]] * 2, rtol=1e-5)
    with pytest.raises(EnvError, match=r"no part 'inner\.0'"):
        agent.act(np.zeros(2))


def test_stacked_observations_are_told_apart_by_their_shape(make_run: MakeRun) -> None:
    run = make_run(frame_stack=2, env_wrappers=[SCALE])
    agent = run.agent()
    with pytest.raises(EnvError, match=r"shape \(4,\).*gs.make_env\('CartPole-v1-ppo"):
        agent.act(np.zeros(4, np.float32))
    env = gs.make_env(run)
    obs, _ = env.reset(seed=1)
    assert obs.shape == (8,)
    assert agent.act(obs) in (0, 1)


class Flip(VectorWrapper):
    """Changes observations in a way that nobody declared."""

    def reset(self, seed: int) -> Any:
        return -self.env.reset(seed)

    def step(self, actions: Any) -> Any:
        step = self.env.step(actions)
        return step._replace(obs=-step.obs)


@pytest.mark.parametrize(
    ("target", "fields", "named"),
    [
        ("CartPole-v1:ppo", {"env_wrappers": [{"id": "Flip"}]}, "Flip"),
        ("CartPole-v1:ppo", {"frame_skip": 2}, "frame_skip"),
        (
            "CartPole-v1:ppo",
            {"env_wrappers": [{"id": "gymnasium.wrappers.DelayObservation", "delay": 1}]},
            "gymnasium.wrappers.DelayObservation",
        ),
        ("Pendulum-v1:ppo", {"env_wrappers": [{"id": "ActionRescale"}]}, "ActionRescale"),
        (
            "CartPole-v1:ppo",
            {"env_wrappers": [{"id": "ActionRemap", "mapping": [1, 0]}, SCALE]},
            "DiscreteActionSpaceRemapperWrapper",
        ),
    ],
)
@pytest.mark.filterwarnings("ignore:make_env:UserWarning")
def test_wrappers_that_only_the_runs_environment_has_are_refused(
    target: str, fields: Any, named: str, make_run: MakeRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(wrappers.registered, "Flip", Flip)
    run = make_run(target, **fields)
    agent = run.agent()
    raw = gymnasium.make(target.partition(":")[0])
    obs, _ = raw.reset(seed=1)
    with pytest.raises(EnvError, match=rf"cannot apply {named} of this run.*gs.make_env\('"):
        agent.act(obs)
    with pytest.raises(EnvError, match="as_trained=True"):
        gs.evaluate(agent, 1, env=raw)
    agent.act(obs, as_trained=True)
    assert gs.evaluate(agent, 1, env=raw, as_trained=True).episodes == 1
    raw.close()
    for n_envs in (None, 2):
        env: Any = gs.make_env(run) if n_envs is None else gs.make_env(run, n_envs)
        obs, _ = env.reset(seed=1)
        for _ in range(3):
            obs, *_ = env.step(agent.act(obs))
        with pytest.raises(EnvError, match="cannot apply"):
            agent.act(np.array(obs))
        env.close()


def test_wrappers_that_change_rewards_alone_do_not_matter(make_run: MakeRun) -> None:
    clip = {"id": "gymnasium.wrappers.ClipReward", "max_reward": 0.5}
    run = make_run(env_wrappers=[clip, {"id": "RewardClip"}], vectorization_mode="sync")
    assert run.agent().act(np.zeros(4, np.float32)) in (0, 1)
    assert gs.evaluate(run, 2, env=gs.make_env(run)).mean > 1


def test_chosen_parts_are_chosen_by_act(make_run: MakeRun) -> None:
    run = make_run(Walk, obs_keys=["place"])
    agent = run.agent()
    assert agent.observation_space.shape == (2,)
    agent.act(Walk().reset(seed=1)[0])
    env = gs.make_env(run, env=Walk)
    assert set(env.reset(seed=1)[0]) == {"place", "inner.0", "inner.1"}


def test_a_folder_of_an_older_version_has_no_spaces_before_the_wrappers(make_run: MakeRun) -> None:
    for specs in ([SCALE], []):
        run = make_run(env_wrappers=specs)
        expected = run.agent().act(np.full((9, 4), 0.5, np.float32))
        meta = {name: value for name, value in run.meta().items() if name != "treatment"}
        run.meta_path.write_text(json.dumps(meta))
        np.testing.assert_array_equal(run.agent().act(np.full((9, 4), 0.5, np.float32)), expected)


def test_a_list_of_whole_numbers_is_an_observation(make_run: MakeRun) -> None:
    agent = make_run().agent()
    assert agent.act([0, 0, 1, 0]) == agent.act(np.array([0.0, 0.0, 1.0, 0.0]))
