"""JAX environments whose rollouts stay on the device of the learner: here a CPU."""

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from gymnasium_solver.envs.make import make_vector_env
from gymnasium_solver.errors import EnvError
from gymnasium_solver.training.agents import build_agent
from gymnasium_solver.training.collect import Collector, collector_for
from gymnasium_solver.training.device_collect import DeviceCollector
from tests.loop.conftest import make_config, resume, train

jax = pytest.importorskip("jax", reason="the extra jax is not installed")
CPU = torch.device("cpu")


class Counting:
    """In gymnax's form: observations are an episode's draw and the step in it; action 1 ends it."""

    default_params = SimpleNamespace()

    def reset_env(self, key: Any, params: Any) -> Any:
        draw = jax.random.uniform(key)
        return jax.numpy.stack([draw, 0.0]), {"draw": draw, "t": 0.0, "key": key}

    def step_env(self, key: Any, state: Any, action: Any, params: Any) -> Any:
        after = {**state, "t": state["t"] + 1}
        obs = jax.numpy.stack([after["draw"], after["t"]])
        return obs, after, 10.0 + state["t"], action == 1, {}

    def observation_space(self, params: Any) -> Any:
        return SimpleNamespace(low=0.0, high=1e6, shape=(2,))

    def action_space(self, params: Any) -> Any:
        return SimpleNamespace(n=2)


ENV = f"Gymnax/{__name__}:Counting"


def copies(n_envs: int = 2, seed: int = 1) -> Any:
    env: Any = make_vector_env(ENV, n_envs, max_episode_steps=3)
    return env.on(CPU, seed)


def test_final_observations_and_ends_are_kept_apart():
    envs = copies()
    first = envs.obs.clone()
    assert first[:, 1].tolist() == [0, 0]
    assert first[0, 0] != first[1, 0]
    step = envs.step(torch.tensor([0, 1]))
    assert step.final_obs[:, 1].tolist() == [1, 1]
    assert step.final_obs[:, 0].tolist() == first[:, 0].tolist()
    assert step.obs[:, 1].tolist() == [1, 0]
    assert step.obs[1, 0] != first[1, 0]
    assert (step.terminated.tolist(), step.truncated.tolist()) == ([False, True], [False, False])
    envs.step(torch.tensor([0, 0]))
    step = envs.step(torch.tensor([1, 0]))
    assert (step.terminated.tolist(), step.truncated.tolist()) == ([True, False], [True, False])
    assert step.reward.tolist() == [12, 11]
    assert step.obs[:, 1].tolist() == [0, 2]


def test_every_episode_begins_anew():
    envs, ends = copies(3), torch.tensor([[1, 1, 0], [0, 1, 0], [1, 1, 1], [1, 0, 1]])
    seen = envs.obs[:, 0].tolist()
    for actions in ends:
        seen += envs.step(actions).obs[actions == 1, 0].tolist()
    assert len(set(seen)) == len(seen) == 3 + 8


def test_arrays_are_not_copied():
    envs = copies(64)
    assert envs.obs.data_ptr() == envs._obs.unsafe_buffer_pointer()
    step = envs.step(torch.zeros(64, dtype=torch.int64))
    assert step.obs.data_ptr() == envs._obs.unsafe_buffer_pointer()


def test_states_are_saved_whole_and_a_step_is_compiled_once():
    envs, actions = copies(3), torch.tensor([0, 1, 0])
    envs.step(actions)
    saved = envs.state()
    ahead = [[part.clone() for part in envs.step(actions)] for _ in range(4)]
    other = copies(3, seed=2)
    other.load_state({name: part.numpy() for name, part in saved.items()})
    assert torch.equal(other.generator.get_state(), envs.generator.get_state())
    for step in ahead:
        assert all(torch.equal(a, b) for a, b in zip(step, other.step(actions), strict=True))
    # A simulator of physics is compiled for a minute. Its state has numbers of Python's ("t").
    assert (envs._advance._cache_size(), other._advance._cache_size()) == (1, 1)
    with pytest.raises(EnvError, match="the saved environments have no state"):
        copies(2).load_state(saved)


def test_rollouts_stay_where_both_are():
    for algo_id, kind in (("ppo", DeviceCollector), ("a2c", Collector)):
        config = make_config(algo_id, ENV)
        env = make_vector_env(ENV, config.n_envs, max_episode_steps=3)
        agent = build_agent(config, env.observation_space, env.action_space)
        collector = collector_for(config, env, agent)
        assert isinstance(collector, kind), algo_id
        collector.close()


def test_a_training_is_the_same_when_resumed():
    fields = {"n_envs": 4, "n_steps": 6, "max_episode_steps": 3, "seed": 3}
    whole = train("ppo", ENV, max_epochs=4, **fields)
    part = train("ppo", ENV, max_epochs=2, **fields)
    again = resume(part.id, max_epochs=4)
    weights = [run.agent("@last").export_flat() for run in (whole, again)]
    assert weights[0].keys() == weights[1].keys()
    for name, own in weights[0].items():
        assert (own == weights[1][name]).all(), name


class Summing(Counting):
    """Its state begins as a whole number, and has halves later."""

    def reset_env(self, key: Any, params: Any) -> Any:
        return jax.numpy.zeros(2), 0

    def step_env(self, key: Any, state: Any, action: Any, params: Any) -> Any:
        return jax.numpy.zeros(2), state + 0.5, state + 0.5, action == 1, {}


def test_a_state_that_becomes_a_fraction_is_not_cut_off():
    env: Any = make_vector_env(f"Gymnax/{__name__}:Summing", 2)
    envs, other, actions = env.on(CPU, 1), env.on(CPU, 2), torch.tensor([0, 0])
    assert [envs.step(actions).reward[0].item() for _ in range(3)] == [0.5, 1.0, 1.5]
    other.load_state({name: part.numpy() for name, part in envs.state().items()})
    assert other.step(torch.tensor([0, 1])).reward.tolist() == [2.0, 2.0]
    assert other.step(actions).reward.tolist() == [2.5, 0.5]
