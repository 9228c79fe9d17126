"""Simulators with the tensor API of Isaac Lab and ManiSkill: here a small one in either style."""

from typing import Any

import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Dict, Discrete

from gymnasium_solver.envs.make import make_vector_env
from gymnasium_solver.errors import EnvError
from tests.loop.conftest import Heard, resume, train

CPU = torch.device("cpu")


class Counting:
    """Observations are the number of an episode's draw and the step in it; action 1 terminates, and
    the third step truncates. Tensors are overwritten by the next step."""

    def __init__(self, num_envs: int, last: int = 3):
        self.num_envs, self.last = num_envs, last
        self.single_observation_space: Any = Box(0.0, np.inf, (2,), np.float32)
        self.single_action_space = Discrete(2)
        self.numbers, self.rng = torch.zeros(num_envs, 2), torch.Generator()
        self.reward_buf = torch.zeros(num_envs)

    @property
    def unwrapped(self) -> Any:
        return self

    def opened(self, rows: torch.Tensor) -> None:
        draws = torch.randint(1, 10**6, (len(rows),), generator=self.rng).float()
        self.numbers[rows] = torch.stack([draws, torch.zeros(len(rows))], 1)

    def advanced(self, actions: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        self.reward_buf[:] = 10 + self.numbers[:, 1]
        self.numbers[:, 1] += 1
        return actions == 1, self.numbers[:, 1] >= self.last


class IsaacStyle(Counting):
    """Groups of observations, `env_ids`, and no final observations."""

    def __init__(self, num_envs: int, device: str, last: int = 3):
        super().__init__(num_envs, last)
        own = self.single_observation_space
        self.single_observation_space = Dict({"policy": own, "critic": own})
        self.max_episode_length = last

    def reset(self, seed: int | None = None, env_ids: Any = None, options: Any = None) -> Any:
        if seed is not None:
            self.rng.manual_seed(seed)
        self.opened(torch.arange(self.num_envs) if env_ids is None else env_ids)
        return {"policy": self.numbers, "critic": self.numbers}, {}

    def step(self, action: torch.Tensor) -> Any:
        terminated, truncated = self.advanced(action)
        self.opened((terminated | truncated).nonzero().squeeze(1))
        obs = {"policy": self.numbers, "critic": self.numbers}
        return obs, self.reward_buf, terminated, truncated, {"log": {}}


class ManiSkillStyle(Counting):
    """`env_idx` in the options, and final observations where any episode ended."""

    def __init__(self, num_envs: int = 1, last: int = 3, **others: Any):
        super().__init__(num_envs, last)
        self.elapsed_steps = self.numbers[:, 1]

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        if seed is not None:
            self.rng.manual_seed(seed)
        self.opened((options or {}).get("env_idx", torch.arange(self.num_envs)))
        return self.numbers, {}

    def step(self, actions: torch.Tensor) -> Any:
        terminated, truncated = self.advanced(actions)
        obs, info, done = self.numbers, dict[str, Any](), terminated | truncated
        if done.any():
            final = obs.clone()
            obs, info = self.reset(options={"env_idx": done.nonzero().squeeze(1)})
            info |= {"final_observation": final, "_final_observation": done}
        return obs, self.reward_buf, terminated, truncated, info


class Direct(IsaacStyle):
    """It resets all copies or none."""

    def reset(self, seed: int | None = None, options: Any = None) -> Any:  # type: ignore[override]
        return super().reset(seed)


def of_other_size(num_envs: int) -> Any:
    return ManiSkillStyle(num_envs + 1)


def without_step(num_envs: int) -> Any:
    made = ManiSkillStyle(num_envs)
    made.step = None  # type: ignore[assignment]
    return made


def of_columns(num_envs: int) -> Any:
    made = ManiSkillStyle(num_envs)
    made.reward_buf = made.reward_buf.unsqueeze(1)
    made.advanced = lambda actions: (actions == 1, actions == 1)  # type: ignore[method-assign]
    return made


def no_copies() -> None: ...


def env_id(kind: Any) -> str:
    return f"Torch/{__name__}:{kind.__name__}"


STYLES = [IsaacStyle, ManiSkillStyle]


@pytest.mark.parametrize("kind", STYLES)
def test_ends_and_final_observations_of_copies(kind):
    env: Any = make_vector_env(env_id(kind), 2)
    assert env.not_on(CPU) is None
    assert env.not_on(torch.device("cuda")) == "device: cuda (the simulator is on cpu)"
    envs = env.on(CPU, 1)
    first = envs.obs
    assert first[:, 1].tolist() == [0, 0]
    step = envs.step(torch.tensor([0, 1]))
    assert first[:, 1].tolist() == [0, 0], "what was handed out is not overwritten"
    assert step.obs[:, 1].tolist() == [1, 0]
    hides = kind is IsaacStyle
    assert envs.hides_ends == hides
    assert step.final_obs[:, 1].tolist() == [1, 0 if hides else 1]
    assert step.final_obs[:, 0].tolist() == first[:, 0].tolist(), "of the episode that ended"
    assert (step.terminated.tolist(), step.truncated.tolist()) == ([False, True], [False, False])
    envs.step(torch.tensor([0, 0]))
    step = envs.step(torch.tensor([1, 0]))
    assert (step.terminated.tolist(), step.truncated.tolist()) == ([True, False], [True, False])
    assert step.reward.tolist() == [12, 11]
    with pytest.raises(EnvError, match="the state of a simulator cannot be saved"):
        envs.load_state(envs.state())


@pytest.mark.parametrize("kind", STYLES)
def test_on_the_host_a_new_episode_is_one_row_later(kind):
    env = make_vector_env(env_id(kind), 2)
    assert env.observation_space.shape == (2,), "the policy's"
    assert env.spec.notes == ()
    obs = env.reset(1)
    steps = [env.step([0, i == 0]) for i in range(4)]
    assert [step.is_reset.tolist() for step in steps] == [[0, 0], [0, 1], [0, 0], [1, 0]]
    hides = kind is IsaacStyle
    ends = {0: 0, 2: 2} if hides else {0: 1, 2: 3}
    expected = [[1, ends[0]], [2, 0], [ends[2], 1], [0, 2]]
    assert [step.obs[:, 1].tolist() for step in steps] == expected
    assert steps[2].truncated.tolist() == [True, False]
    assert steps[2].episode_return.tolist() == [33, 10]
    assert steps[1].reward.tolist() == [11, 0]
    assert steps[0].obs[0, 0] == obs[0, 0]
    again = [env.reset(1), *(env.step([0, i == 0]).obs for i in range(4))]
    for own, other in zip(again, [obs, *(step.obs for step in steps)], strict=True):
        assert np.array_equal(own, other)


def test_a_simulator_that_resets_all_copies_at_once_says_so():
    env = make_vector_env(env_id(Direct), 2)
    assert "cannot reset single copies" in env.spec.notes[0]
    env.reset(1)
    steps = [env.step([0, i == 0]) for i in range(3)]
    assert steps[1].obs[:, 1].tolist() == [2, 1], "one step late"


@pytest.mark.parametrize("kind", STYLES)
def test_a_training_says_what_is_hidden_and_resumes_with_new_episodes(kind):
    notes = Heard()
    fields = {"n_envs": 4, "n_steps": 6, "env_kwargs": {"last": 2}}
    run = train("ppo", env_id(kind), max_epochs=2, observer=notes, **fields)
    assert not any("needs rollouts on the host" in note for note in notes.notes)
    told = [note for note in notes.notes if "gives no final observations" in note]
    assert len(told) == (kind is IsaacStyle)
    assert run.meta()["max_episode_steps"] == (2 if kind is IsaacStyle else None)
    resumed = Heard()
    resume(run.id, max_epochs=3, observer=resumed)
    assert any("cannot be saved. New episodes are started" in note for note in resumed.notes)


@pytest.mark.parametrize(
    ("kind", "fields", "match"),
    [
        (no_copies, {}, "takes no num_envs"),
        (of_other_size, {}, "2 copies were asked for, it has 3"),
        (without_step, {}, "ManiSkillStyle has no step"),
        (IsaacStyle, {"env_kwargs": {"size": 1}}, "unknown env_kwargs key 'size'. It takes: last"),
        (IsaacStyle, {"max_episode_steps": 9}, "max_episode_steps is 3, which the simulator"),
    ],
)
def test_what_cannot_work_is_refused(kind, fields, match):
    with pytest.raises(EnvError, match=match):
        make_vector_env(env_id(kind), 2, **fields)


def test_columns_in_place_of_numbers_are_refused():
    env: Any = make_vector_env(env_id(of_columns), 2)
    with pytest.raises(EnvError, match=r"returned as reward a tensor \[2, 1\], expected"):
        env.on(CPU, 1).step(torch.tensor([0, 0]))
