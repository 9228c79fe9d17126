"""Trainings whose rollouts stay on the device of the learner: here a CPU, and a GPU where there is
one. That they are the same when resumed is in test_train_resume.py."""

from collections import deque
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Discrete

from gymnasium_solver.algos import ops
from gymnasium_solver.algos.device_update import by_number
from gymnasium_solver.data.device_rollout import DeviceRollout
from gymnasium_solver.data.rollout import Rollout
from gymnasium_solver.envs.device import State, TorchEnv
from gymnasium_solver.envs.make import training_env
from gymnasium_solver.errors import EnvValueError
from gymnasium_solver.fast.cuda_graph import Recurring
from gymnasium_solver.nets.normalizer import DeviceRewardNormalizer, RewardNormalizer
from gymnasium_solver.spaces.actions import action_kind
from gymnasium_solver.training.agents import build_agent
from gymnasium_solver.training.collect import collector_for
from gymnasium_solver.training.device_collect import DeviceCollector
from tests.loop.conftest import Heard, learning_rows, make_config, resume, train

needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")
DEVICES = ["cpu", pytest.param("cuda", marks=needs_gpu)]


class Sign(TorchEnv):
    """Reward 1 for action 1 at positive observations and action 0 at negative ones; a step is an
    episode with one chance in four, and at most five steps."""

    observation_space = Box(-1.0, 1.0, (1,), np.float32)
    action_space = Discrete(2)
    max_episode_steps = 5
    reward_threshold = 4.9

    def __init__(self, device: torch.device, wrong_at: int = 10**6):
        super().__init__(device)
        self.wrong_at = wrong_at

    def reset(self, n: int, rng: torch.Generator) -> State:
        return {"x": self.uniform(n, -1.0, 1.0, rng), "t": torch.zeros(n, device=self.device)}

    def step(
        self, state: State, actions: torch.Tensor, rng: torch.Generator
    ) -> tuple[State, torch.Tensor, torch.Tensor]:
        x, t = state["x"], state["t"] + 1
        after = self.uniform(len(x), -1.0, 1.0, rng)
        after = torch.where(t == self.wrong_at, torch.inf, after)
        return {"x": after, "t": t}, (actions == (x > 0)).float(), after > 0.5

    def observe(self, state: State) -> torch.Tensor:
        return state["x"].unsqueeze(1)


SIGN = f"Torch/{__name__}:Sign"


def built(env_id: str = SIGN, algo_id: str = "ppo", **fields: Any) -> tuple[Any, Any]:
    config = make_config(algo_id, env_id, **fields)
    env = training_env(config)
    agent = build_agent(config, env.observation_space, env.action_space)
    return agent, collector_for(config, env, agent)


@pytest.mark.parametrize("algo_id", ["ppo", "pqn"])
@pytest.mark.parametrize("device", DEVICES)
def test_it_learns(device, algo_id):
    fields = {"n_envs": 64, "n_steps": 8, "batch_size": 128, "n_epochs": 4, "policy_lr": 0.01}
    notes = Heard()
    run = train(
        algo_id, SIGN, max_epochs=30, device=device, test_episodes=20, observer=notes, **fields
    )
    assert not any("host" in note for note in notes.notes)
    meta = run.meta()
    assert meta["engine"] == "torch"
    assert meta["env_steps"] == 30 * 64 * 8, "there are no reset rows"
    last = learning_rows(run)[-1]
    assert last["train/roll/ep_rew/mean"] > 0.9 * last["train/roll/ep_len/mean"]
    assert last.get("train/opt/policy/entropy", 0.0) < 0.3


@pytest.mark.parametrize("device", DEVICES)
def test_episodes_are_counted_across_rollouts(device):
    _, collector = built(device=device, n_envs=7, n_steps=3)
    assert isinstance(collector, DeviceCollector)
    totals, found = np.zeros((2, 7)), deque[tuple[float, float, bool]](maxlen=100)
    n_ended = 0
    for _ in range(8):
        rollout = collector.collect(0, None).on_host(10**6)
        for t in range(3):
            totals += np.stack([rollout.reward[t], np.ones(7)])
            for i in np.flatnonzero(rollout.terminated[t] | rollout.truncated[t]):
                found.append((*totals[:, i], not rollout.terminated[t, i]))
                totals[:, i], n_ended = 0.0, n_ended + 1
        collector.metrics()
    assert 20 < n_ended == collector.n_episodes
    assert list(zip(collector.returns, collector.lengths, collector.truncations)) == list(found)  # noqa: B905


def test_rows_follow_one_another():
    _, collector = built(n_envs=7, n_steps=4)
    first = collector.collect(0, None).final_obs[-1].clone()
    opened = collector._envs.obs.clone()
    rollout = collector.collect(0, None)
    assert torch.equal(rollout.obs[0], opened)
    assert (rollout.obs[0] == first).any(), "an episode that goes on"
    ended = (rollout.terminated | rollout.truncated)[:-1]
    assert 0 < ended.sum() < ended.numel()
    is_next = (rollout.final_obs[:-1] == rollout.obs[1:]).squeeze(-1)
    assert torch.equal(is_next, ~ended)
    outputs = collector.policy.net.actor(rollout.obs.flatten(0, 1))
    log_prob = collector.policy.chosen_log_prob(outputs, rollout.actions.flatten())
    torch.testing.assert_close(log_prob, rollout.log_prob.flatten())


@pytest.mark.parametrize("shape", [(9, 4), (9, 2, 3)])
def test_rows_are_the_same_taken_by_number(shape):
    column, order = torch.randn(shape), torch.tensor([3, 0, 8, 8, 5])
    assert torch.equal(by_number(column, order), column[order])


def test_a_budget_cuts_whole_rows():
    _, collector = built(n_envs=7, n_steps=4)
    assert collector.collect(0, 15).env_steps == 21
    assert collector.collect(21, None).env_steps == 28
    assert collector.collect(49, 28).env_steps == 28


def test_advantages_are_those_of_the_definition():
    rng = np.random.default_rng(1)
    reward, value, after = rng.standard_normal((3, 6, 5)).astype(np.float32)
    terminated, truncated = rng.random((2, 6, 5)) < 0.3
    expected = np.zeros((6, 5))
    for i in range(5):
        later = 0.0
        for t in range(5, -1, -1):
            delta = reward[t, i] + 0.9 * after[t, i] * (not terminated[t, i]) - value[t, i]
            later = delta + 0.9 * 0.8 * later * (not (terminated[t, i] or truncated[t, i]))
            expected[t, i] = later
    r, v, w, ended, cut = map(torch.from_numpy, (reward, value, after, terminated, truncated))
    found = ops.gae_of_tensors(r, v, w, ended, cut, gamma=0.9, gae_lambda=0.8)
    np.testing.assert_allclose(found.numpy(), expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("algo_id", "fields"),
    [
        ("ppo", {"normalize_advantages": "rollout", "ent_coef": 0.01}),
        ("ppo", {"normalize_advantages": "batch", "clip_range_vf": 0.2, "normalize_reward": True}),
        (
            "ppo",
            {"normalize_advantages": "symlog", "normalize_obs": "rolling", "adaptive_kl": 0.001},
        ),
        ("pqn", {"normalize_obs": "rolling", "normalize_reward": True}),
    ],
)
def test_an_update_is_that_of_a_rollout_of_arrays(algo_id, fields):
    """Of the same numbers, without minibatches, whose order differs; two updates."""
    fields = {"compile": False, "batch_size": 999, **fields}
    agents = [built(algo_id=algo_id, **fields)[0] for _ in range(2)]
    rng = np.random.default_rng(1)
    for _ in range(2):
        obs = rng.uniform(-1, 1, (7, 3, 1)).astype(np.float32)
        grid = (6, 3)
        host = Rollout(
            obs=obs,
            actions=rng.integers(2, size=grid),
            reward=rng.standard_normal(grid).astype(np.float32),
            terminated=np.zeros(grid, bool),
            truncated=np.zeros(grid, bool),
            valid=np.ones(grid, bool),
            is_first=np.zeros((7, 3), bool),
            log_prob=np.log(rng.uniform(0.3, 0.7, grid)).astype(np.float32),
        )
        columns = (obs[:-1], obs[1:], host.actions, host.log_prob, host.reward)
        ends = (host.terminated, host.truncated)
        device = DeviceRollout(*(torch.from_numpy(np.array(c)) for c in (*columns, *ends)))
        for agent in agents:
            agent.wants_details = True
        metrics = agents[1].update(device, 0, 1000)
        names, found = next((k, v) for k, v in metrics.items() if isinstance(k, tuple))
        expected = agents[0].update(host, 0, 1000)
        details = {name for name in metrics if "/norm/" in name or "activations" in name}
        assert details == {
            name
            for name in expected
            if ("/norm/" in name or "activations" in name) and name not in names
        }
        assert len(details) > 2
        for name, value in zip(names, found.tolist(), strict=True):
            assert value == pytest.approx(expected[name], rel=1e-3, abs=1e-5), name
    if algo_id == "ppo":
        assert agents[0].lr_factor == agents[1].lr_factor
    for own, other in zip(agents[0].net.buffers(), agents[1].net.buffers(), strict=True):
        torch.testing.assert_close(own, other)
    for own, other in zip(agents[0].net.parameters(), agents[1].net.parameters(), strict=True):
        torch.testing.assert_close(own, other, rtol=1e-4, atol=1e-5)


# -- off-policy -----------------------------------------------------------------------------------

REPLAY: dict[str, Any] = {
    "learning_starts": 50,
    "buffer_size": 2000,
    "batch_size": 64,
    "hidden_dims": [32],
}


def test_a_replay_buffer_has_the_transitions_of_a_device():
    """Each step once, with the true final observations, and none across episodes."""
    agent, collector = built(algo_id="dqn", n_envs=7, train_freq=42, n_steps=6, **REPLAY)
    assert isinstance(collector, DeviceCollector)
    expected = set()
    for _ in range(3):
        rollout = collector.collect(0, None)
        agent.remember(rollout.with_final_rows())
        for t, i in np.ndindex(*rollout.reward.shape):
            discount = 0.9 * (not rollout.terminated[t, i])
            numbers = (rollout.obs[t, i, 0], rollout.actions[t, i], rollout.reward[t, i])
            step = (*map(float, numbers), round(float(discount), 4))
            expected.add((*step, float(rollout.final_obs[t, i, 0])))
    replay = agent.memory.replay
    index = np.flatnonzero(replay.is_valid(np.arange(replay.n_rows * 7)))
    assert len(index) == len(expected) == 3 * 6 * 7
    found = replay.transitions(index, 1, 0.9)
    columns = (found.obs[:, 0], found.actions, found.reward, found.discount, found.next_obs[:, 0])
    rows = {(a, b, c, round(d, 4), e) for a, b, c, d, e in zip(*map(np.ndarray.tolist, columns))}  # noqa: B905
    assert rows == expected
    three = replay.transitions(index, 3, 0.9)
    assert np.isin(three.next_obs, [step[-1] for step in expected]).all()


@pytest.mark.parametrize("algo_id", ["dqn", "sac", "crossq", "td3"])
def test_the_same_actions_are_chosen_on_the_device(algo_id):
    env_id = SIGN if algo_id == "dqn" else "Torch/Pendulum-v1"
    agent, _ = built(env_id, algo_id, **REPLAY)
    policy, rng = agent.policy, np.random.default_rng(1)
    obs = rng.uniform(-1, 1, (9, *agent.observation_space.shape)).astype(np.float32)
    policy.epsilon = policy.noise_std = 0.0
    noise = policy.ready_noise((9,), torch.Generator().manual_seed(1))
    quiet = torch.ones_like(noise) if algo_id == "dqn" else torch.zeros_like(noise)
    policy.is_random = False
    with torch.no_grad():
        found, _ = policy.choose(torch.from_numpy(obs), quiet, policy.choice_numbers)
        expected = policy.greedy(obs, policy.initial_carry(9), np.ones(9, bool)).actions
        np.testing.assert_allclose(found.numpy(), expected, rtol=1e-5, atol=1e-6)
        policy.is_random = True
        drawn, _ = policy.choose(torch.from_numpy(obs), noise, policy.choice_numbers)
    if algo_id != "dqn":
        np.testing.assert_allclose(drawn.numpy(), noise.chunk(2, -1)[1].numpy())


@pytest.mark.parametrize(
    ("algo_id", "env_id"), [("dqn", SIGN), ("sac", SIGN), ("td3", "Torch/Pendulum-v1")]
)
def test_off_policy_learning_takes_rollouts_of_the_device(algo_id, env_id):
    notes = Heard()
    fields = {"n_envs": 16, "train_freq": 64, "updates_per_step": 0.2, "policy_lr": 0.003, **REPLAY}
    run = train(
        algo_id, env_id, n_steps=18, max_epochs=12, observer=notes, test_episodes=5, **fields
    )
    assert not any("host" in note for note in notes.notes)
    assert run.meta()["env_steps"] == 12 * 16 * 18, "the last rollout of an epoch is shorter"
    last = learning_rows(run)[-1]
    if env_id == SIGN:
        assert last["train/roll/ep_rew/mean"] > 0.75 * last["train/roll/ep_len/mean"]


@pytest.mark.parametrize(
    "space", [Box(-2.0, 3.0, (2,)), Box(-np.inf, np.inf, (2,)), Discrete(3, start=5)]
)
def test_actions_are_converted_as_arrays_are(space):
    kind = action_kind(space)
    noise = kind.ready_noise((9,), torch.Generator().manual_seed(1))
    assert noise is not None
    log_std = torch.full((2,), -0.3)
    actions = kind.from_ready(
        torch.linspace(-1, 2, noise.numel()).view(noise.shape), log_std, noise
    )
    np.testing.assert_allclose(
        kind.to_env_tensor(actions).numpy(), kind.to_env(actions.numpy()), rtol=1e-6
    )


@pytest.mark.parametrize("by_size", [False, True])
def test_rewards_are_scaled_as_arrays_are(by_size):
    rng = np.random.default_rng(1)
    arrays, tensors = (RewardNormalizer(3, 0.9, 5.0, 2.0, by_size=by_size) for _ in range(2))
    on_device = DeviceRewardNormalizer(tensors, torch.device("cpu"))
    for _ in range(3):
        reward, done = rng.standard_normal((4, 3)).astype(np.float32), rng.random((4, 3)) < 0.3
        expected = arrays(reward, done, np.ones_like(done))
        found = on_device(torch.from_numpy(reward), torch.from_numpy(done))
        np.testing.assert_allclose(found.numpy(), expected, rtol=1e-6)
    on_device.pull()
    for name, value in arrays.state().items():
        np.testing.assert_allclose(tensors.state()[name], value, err_msg=name)


def test_samples_have_the_probabilities_of_the_outputs():
    kind = action_kind(Discrete(3))
    noise = kind.ready_noise((20_000,), torch.Generator().manual_seed(1))
    outputs = torch.tensor([0.0, 1.0, -1.0]).expand(20_000, 3)
    assert noise is not None
    shares = kind.from_ready(outputs, None, noise).bincount() / 20_000
    torch.testing.assert_close(shares, outputs[0].softmax(0), atol=0.015, rtol=0)


@pytest.mark.parametrize(
    ("algo_id", "fields", "named"),
    [
        ("ppo", {"target_kl": 0.1}, "target_kl"),
        ("ppo", {"recurrent": "gru", "recurrent_dim": 8}, "recurrent"),
        ("ppo", {"env_wrappers": [{"id": "RewardClip", "low": -1, "high": 1}]}, "a wrapper"),
        ("a2c", {}, "algo_id: a2c"),
        ("dqn", {"exploration": "boltzmann"}, "its exploration"),
    ],
)
def test_what_needs_the_host_is_told_and_works(algo_id, fields, named):
    notes = Heard()
    train(algo_id, SIGN, observer=notes, max_epochs=1, **fields)
    told = [note for note in notes.notes if "needs rollouts on the host" in note]
    assert len(told) == 1
    assert f"but {named} needs" in told[0]


def test_a_failed_capture_is_told_once(monkeypatch):
    reason = "operation not permitted when stream is capturing"
    monkeypatch.setattr(Recurring, "failure", reason)
    notes = Heard()
    train("ppo", SIGN, observer=notes, max_epochs=3)
    told = [note for note in notes.notes if "without a CUDA graph" in note]
    assert [note.split()[0] for note in told] == ["rollouts", "updates"]
    assert all(note.endswith(reason) for note in told)


def test_other_environments_are_told_nothing():
    notes = Heard()
    train("ppo", "CartPole-v1", observer=notes, max_epochs=1)
    assert not any("host" in note for note in notes.notes)


def test_a_rounded_budget_is_told():
    notes = Heard()
    run = train("ppo", SIGN, observer=notes, max_env_steps=100)
    assert run.meta()["env_steps"] == 102
    assert "max_env_steps: 100 becomes 102, whole rows of 3 envs" in notes.notes


def test_values_that_are_not_finite_are_reported():
    with pytest.raises(
        EnvValueError, match="of the observation are not finite; the first is in env"
    ):
        train("ppo", SIGN, env_kwargs={"wrong_at": 4}, n_envs=16)


def test_a_run_goes_on_elsewhere_with_new_episodes():
    run, notes = train("ppo", SIGN, max_epochs=2), Heard()
    resume(run.id, max_epochs=3, target_kl=0.1, observer=notes)
    assert any("not an exact resume" in note for note in notes.notes)


def test_a_run_that_never_sampled_on_the_host_goes_on_without_compiled_programs():
    run = train("ppo", SIGN, max_epochs=2, compile="native")
    assert resume(run.id, max_epochs=3, compile=False).meta()["epoch"] == 3
