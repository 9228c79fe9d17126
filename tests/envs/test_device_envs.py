"""Environments that live on a device: the contract of envs/device.py, and Gymnasium's classics."""

from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Discrete

from gymnasium_solver.envs.device import DeviceEnvs, State, TorchEnv
from gymnasium_solver.envs.env_findings import all_findings
from gymnasium_solver.envs.make import make_vector_env
from gymnasium_solver.envs.suites.torch_classics import CLASSICS
from gymnasium_solver.errors import EnvError

CPU = torch.device("cpu")


class Counting(TorchEnv):
    """Observations are the number of an episode's draw and the step in it; action 1 terminates."""

    observation_space = Box(0.0, 1e6, (2,), np.float32)
    action_space = Discrete(2)
    max_episode_steps = 3

    def reset(self, n: int, rng: torch.Generator) -> State:
        draw = torch.randint(1, 10**6, (n,), generator=rng).float()
        return {"draw": draw, "step": torch.zeros(n)}

    def step(
        self, state: State, actions: torch.Tensor, rng: torch.Generator
    ) -> tuple[State, torch.Tensor, torch.Tensor]:
        after = {**state, "step": state["step"] + 1}
        return after, state["step"] + 10, actions == 1

    def observe(self, state: State) -> torch.Tensor:
        return torch.stack([state["draw"], state["step"]], 1)


class Shapeless(Counting):
    def reset(self, n: int, rng: torch.Generator) -> State:
        return {"step": torch.zeros(n + 1)}


def test_final_observations_and_ends_are_kept_apart():
    envs = DeviceEnvs(Counting(CPU), 2, seed=1)
    first = envs.obs
    assert first[:, 1].tolist() == [0, 0]
    assert first[0, 0] != first[1, 0]
    step = envs.step(torch.tensor([0, 1]))
    assert step.final_obs[:, 1].tolist() == [1, 1]
    assert step.final_obs[:, 0].tolist() == first[:, 0].tolist()
    assert step.obs[:, 1].tolist() == [1, 0]  # the second is the first of a new episode
    assert step.obs[1, 0] != first[1, 0]
    assert (step.terminated.tolist(), step.truncated.tolist()) == ([False, True], [False, False])
    step = envs.step(torch.tensor([0, 0]))
    step = envs.step(torch.tensor([1, 0]))  # the time limit of the first, and a termination
    assert (step.terminated.tolist(), step.truncated.tolist()) == ([True, False], [True, False])
    assert step.reward.tolist() == [12, 11]
    assert step.obs[:, 1].tolist() == [0, 2]


def test_states_are_saved_whole():
    envs, actions = DeviceEnvs(Counting(CPU), 3, seed=1), torch.tensor([0, 1, 0])
    envs.step(actions)
    envs.settle()
    saved = {name: part.clone() for name, part in envs.state().items()}
    ahead = [envs.step(actions) for _ in range(4)]
    other = DeviceEnvs(Counting(CPU), 3, seed=2)
    other.load_state(saved)
    for step in ahead:
        assert all(torch.equal(a, b) for a, b in zip(step, other.step(actions), strict=True))
    with pytest.raises(EnvError, match=r"no state.draw of shape \[2\]"):
        DeviceEnvs(Counting(CPU), 2, seed=1).load_state(saved)


def test_a_wrong_state_is_refused_in_one_line():
    with pytest.raises(EnvError, match=r"Shapeless.reset\(2\) returned step: \[3\], expected"):
        DeviceEnvs(Shapeless(CPU), 2, seed=1)


def test_the_same_seed_gives_the_same_episodes_whatever_torch_drew_before():
    seen = []
    for _ in range(2):
        torch.rand(3)
        envs = DeviceEnvs(CLASSICS["CartPole-v1"](CPU), 4, seed=7)
        actions = torch.ones(4, dtype=torch.int64)
        seen.append(torch.stack([envs.step(actions).obs for _ in range(30)]))
    assert torch.equal(*seen)


STATES = {"CartPole-v1": (0.25, 4), "Acrobot-v1": (3.0, 4), "Pendulum-v1": (4.0, 2)}
"""The largest number of a state and the width."""


@pytest.mark.parametrize("name", CLASSICS)
def test_steps_are_those_of_gymnasium(name):
    """From equal states, float32 beside Gymnasium's numbers: 1e-4 of the largest."""
    env: Any = gymnasium.make(name).unwrapped
    own = CLASSICS[name](CPU)
    registered = gymnasium.spec(name)
    assert own.max_episode_steps == registered.max_episode_steps
    assert own.reward_threshold == registered.reward_threshold
    assert own.observation_space == env.observation_space
    assert own.action_space == env.action_space
    n, rng = 64, np.random.default_rng(1)
    env.action_space.seed(1)
    rows = []
    for i in range(n):
        if name in STATES:
            largest, width = STATES[name]
            state = rng.uniform(-largest, largest, width).astype(np.float32)
        else:
            state = rng.uniform([-1.2, -0.07], [0.6, 0.07]).astype(np.float32)
        action = env.action_space.sample()
        env.reset(seed=i)
        env.state = state.copy() if name == "MountainCarContinuous-v0" else state.astype(np.float64)
        if name == "CartPole-v1":
            env.steps_beyond_terminated = None
        obs, reward, terminated, *_ = env.step(action)
        rows.append((state, np.asarray(action), obs, reward, terminated))
    states, actions, obs, rewards, ends = (np.stack(column) for column in zip(*rows, strict=True))
    after, reward, terminated = own.step(
        {"x": torch.from_numpy(states)}, torch.from_numpy(actions), torch.Generator()
    )
    np.testing.assert_allclose(own.observe(after).numpy(), obs, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(reward.numpy(), rewards, rtol=1e-4, atol=1e-4)
    assert np.array_equal(terminated.numpy(), ends)
    assert name == "Pendulum-v1" or 0 < ends.sum() < n


@pytest.mark.parametrize("name", CLASSICS)
def test_first_states_are_those_of_gymnasium(name):
    env: Any = gymnasium.make(name).unwrapped
    theirs = np.stack([env.reset(seed=i)[0] for i in range(200)])
    own = CLASSICS[name](CPU)
    ours = own.observe(own.reset(2000, torch.Generator().manual_seed(1))).numpy()
    assert ours.shape[1:] == theirs.shape[1:]
    np.testing.assert_allclose(ours.min(0), theirs.min(0), atol=0.1)
    np.testing.assert_allclose(ours.max(0), theirs.max(0), atol=0.1)


@pytest.mark.parametrize(
    ("env_id", "kwargs", "match"),
    [
        ("Torch/Nope-v1", {}, "There are Torch/CartPole-v1"),
        ("Torch/Cartpole-v1", {}, "Torch/CartPole-v1"),
        ("Torch/CartPole-v1", {"length": 2}, "unknown env_kwargs key 'length'. It takes: none"),
        (f"Torch/{__name__}:Nope", {}, "has no Nope"),
        (f"Torch/{__name__}:CPU", {}, "is not a TorchEnv"),
    ],
)
def test_what_does_not_exist_is_refused(env_id, kwargs, match):
    with pytest.raises(EnvError, match=match):
        make_vector_env(env_id, 2, env_kwargs=kwargs)


def test_a_class_of_the_users_is_an_environment_like_others():
    env = make_vector_env(f"Torch/{__name__}:Counting", 2)
    obs = env.reset(1)
    assert env.spec.engine == "torch"
    steps = [env.step([0, i == 0]) for i in range(4)]
    assert [step.is_reset.tolist() for step in steps] == [[0, 0], [0, 1], [0, 0], [1, 0]]
    assert [step.obs[:, 1].tolist() for step in steps] == [[1, 1], [2, 0], [3, 1], [0, 2]]
    assert steps[2].truncated.tolist() == [True, False]
    assert steps[2].episode_return.tolist() == [33, 10]
    assert steps[0].obs[0, 0] == obs[0, 0]


def test_the_doctor_examines_a_class_of_the_users():
    found = list(all_findings(f"Torch/{__name__}:Counting", {}, 8))
    assert not [finding for finding in found if finding.level == "problem"]
    assert "speed" in {finding.name for finding in found}
