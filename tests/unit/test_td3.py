"""TD3 and DDPG: targets by hand, smoothing, delays, exploration noise and its state."""

import copy
from typing import Any, cast

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from gymnasium_solver.algos import deterministic
from gymnasium_solver.algos.continuous import ActorBatch
from gymnasium_solver.data.replay import ReplayBatch
from gymnasium_solver.envs.journal import JournaledEnv
from gymnasium_solver.envs.make import make_vector_env
from gymnasium_solver.nets.actor_critics import Actor, Critics
from gymnasium_solver.training.collect import Collector
from tests.acting import BOX, N_ENVS, OBS, best, drawn, small_agent, small_rollout


def agent_for(
    algo_id: str = "td3", action_space: Any = BOX, seed: int = 0, observation_space: Any = OBS,
    **fields: Any,
) -> Any:  # fmt: skip
    given = {"critic_lr": None, **fields}
    return small_agent(algo_id, action_space, observation_space, seed, **given)


def batch_for(
    reward: list[float], discount: list[float], noise: Tensor | None = None
) -> ReplayBatch:
    n = len(reward)
    return ReplayBatch(
        obs=torch.zeros(n, 3),
        actions=torch.zeros(n, 2),
        reward=torch.tensor(reward),
        discount=torch.tensor(discount),
        next_obs=torch.zeros(n, 3),
        weight=torch.ones(n),
        noise=noise,
    )


class SumOfActions(nn.Module):
    """Critics that know only the action: factor times its sum."""

    def __init__(self, factors: list[float]):
        super().__init__()
        self.features = nn.Identity()
        self.factors = torch.tensor(factors)

    def forward(self, x: Tensor, actions: Tensor) -> Tensor:
        return self.factors.view(-1, 1) * actions.sum(1).view(1, -1)

    values = forward


def critics_of(factors: list[float]) -> Critics:
    return cast(Critics, SumOfActions(factors))


class Still(nn.Module):
    def __init__(self, outputs: list[float]):
        super().__init__()
        self.features = nn.Identity()
        self.outputs = torch.tensor(outputs)

    def layers(self, y: Tensor) -> Tensor:
        return self.outputs.expand(len(y), -1)


def actor_of(outputs: list[float]) -> Actor:
    return cast(Actor, Still(outputs))


def smoothed_errors(noise: list[list[float]], actor: list[float], critics: list[float]) -> Any:
    """Targets that TD3 sees, its own critics being 0: reward 1, discount 0.9 and 0."""
    net = agent_for().net
    net.critic = critics_of([0.0] * len(critics))
    smoothing = {"noise_std": torch.tensor(0.2), "noise_clip": torch.tensor(0.5)}
    batch = batch_for([1, 1], [0.9, 0], torch.tensor(noise))
    _, found = deterministic.critic_loss(
        net, actor_of(actor), critics_of(critics), batch, smoothing
    )
    return found["errors"].tolist()


def test_the_td3_target_takes_the_lowest_critic_at_the_smoothed_action() -> None:
    """tanh(0) + 0.2 * 1 for the first component, 0.2 * -0.5 for the second: a sum of 0.1."""
    errors = smoothed_errors([[1, -0.5], [1, 1]], [0, 0], [4.0, 2.0])
    assert errors == pytest.approx([1 + 0.9 * 2 * 0.1, 1])
    errors = smoothed_errors([[1, 1], [1, 1]], [0, 0], [-4, 2])
    assert errors == pytest.approx([abs(1 - 0.9 * 4 * 0.4), 1])


def test_smoothing_noise_is_clipped_and_so_is_the_action() -> None:
    """A noise of 9 counts as 0.5; at an action of 1 there is no room for any above it."""
    assert smoothed_errors([[9, 0], [0, 0]], [0, 0], [1.0])[0] == pytest.approx(1 + 0.9 * 0.5)
    assert smoothed_errors([[-9, 0], [0, 0]], [0, 0], [-1.0])[0] == pytest.approx(1 + 0.9 * 0.5)
    assert smoothed_errors([[9, 0], [0, 0]], [50, 0], [1.0])[0] == pytest.approx(1 + 0.9 * 1)
    assert smoothed_errors([[-9, 0], [0, 0]], [50, 0], [1.0])[0] == pytest.approx(1 + 0.9 * 0.5)


def test_the_ddpg_target_is_the_one_critic_at_the_target_actors_action() -> None:
    net = agent_for("ddpg").net
    net.critic = critics_of([0.0])
    batch = batch_for([1, 1], [0.9, 0])
    loss, found = deterministic.critic_loss(net, actor_of([0.5, 0.0]), critics_of([3.0]), batch, {})
    wanted = 1 + 0.9 * 3 * np.tanh(0.5)
    assert found["errors"].tolist() == pytest.approx([wanted, 1])
    assert loss.item() == pytest.approx(0.5 * (wanted**2 + 1) / 2)
    assert found["opt/q/mean"].item() == 0


def test_the_actor_climbs_the_first_critic() -> None:
    net = agent_for(seed=3).net
    x = torch.randn(5, 3)
    loss, _ = deterministic.actor_loss(net, ActorBatch(x))
    q = net.critic(x, torch.tanh(net.actor(x)))
    torch.testing.assert_close(loss, -q[0].mean())
    grads = torch.autograd.grad(loss, list(net.actor.parameters()))
    assert all(g.abs().sum() > 0 for g in grads)


def test_td3_delays_the_actor_and_all_targets() -> None:
    agent = agent_for(policy_delay=2, updates_per_step=0.25)
    moved = []
    for i in range(4):
        targets = [t.flat for o in agent.optimizers.values() for t in o.targets.values()]
        assert len(targets) == 2
        before = [t.clone() for t in (agent.actor.optimizer.flat, *targets)]
        metrics = agent.update(small_rollout(n_rows=2, seed=i), 4 * (i + 1), 100)
        after = (agent.actor.optimizer.flat, *targets)
        moved.append([not torch.equal(a, b) for a, b in zip(before, after, strict=True)])
        assert ("opt/loss/policy" in metrics) == moved[-1][0]
    assert moved == [[False] * 3, [True] * 3, [False] * 3, [True] * 3]
    assert agent.critic.optimizer.n_steps == 4


def test_ddpg_moves_everything_every_time_with_one_critic() -> None:
    agent = agent_for("ddpg", updates_per_step=0.25, tau=0.25)
    assert agent.net.critic.mlps.n == 1
    targets = [t for o in agent.optimizers.values() for t in o.targets.values()]
    before = [target.flat.clone() for target in targets]
    agent.update(small_rollout(n_rows=2), 4, 100)
    for target, old in zip(targets, before, strict=True):
        torch.testing.assert_close(target.flat, old + 0.25 * (target.source - old))
        assert not torch.equal(target.flat, old)


# -- exploration ----------------------------------------------------------------------------


def still_agent(noise_type: str, std: float, observation_space: Any = OBS, box: Any = BOX) -> Any:
    """Its actor always says 0."""
    noise: dict[str, Any] = {"exploration_noise": std, "exploration_noise_type": noise_type}
    agent = agent_for("td3", box, observation_space=observation_space, **noise)
    for p in agent.net.actor.parameters():
        p.data.zero_()
    return agent


def test_gaussian_noise_is_new_every_step() -> None:
    policy = still_agent("gaussian", 0.1).policy
    obs = np.zeros((2000, 3), np.float32)
    first, second = drawn(policy, obs), drawn(policy, obs)
    assert first.std() == pytest.approx(0.1, rel=0.05)
    assert abs(np.corrcoef(first[:, 0], second[:, 0])[0, 1]) < 0.1
    np.testing.assert_array_equal(best(policy, obs), 0)
    wide = drawn(still_agent("gaussian", 5.0).policy, obs)
    assert (np.abs(wide).max(), np.abs(wide).min() < 0.5) == (1.0, True)


def test_ou_noise_wanders_around_zero() -> None:
    agent = still_agent("ou", 0.05)
    policy, obs = agent.policy, np.zeros((N_ENVS, 3), np.float32)
    carry, taken = policy.initial_carry(N_ENVS), []
    for i in range(5000):
        acted = policy.sample(obs, carry, np.full(N_ENVS, i == 0))
        carry = acted.carry
        taken.append(acted.actions[:, 0])
    steps = np.array(taken)
    keeps = 0.85
    assert np.corrcoef(steps[:-1, 0], steps[1:, 0])[0, 1] == pytest.approx(keeps, abs=0.03)
    assert steps.std() == pytest.approx(0.05 / np.sqrt(1 - keeps**2), rel=0.1)
    assert abs(np.corrcoef(steps.T)[0, 1]) < 0.15, "each env has its own"


def test_ou_noise_starts_again_where_an_episode_begins() -> None:
    policy, obs = still_agent("ou", 0.1).policy, np.zeros((N_ENVS, 3), np.float32)
    carry = policy.sample(obs, policy.initial_carry(N_ENVS), np.ones(N_ENVS, bool)).carry
    before = carry["noise"].copy()
    assert (before != 0).all()
    fresh = copy.deepcopy(policy.rng).standard_normal((N_ENVS, 2), dtype=np.float32) * 0.1
    acted = policy.sample(obs, carry, np.array([False, True]))
    np.testing.assert_allclose(acted.actions, [0.85 * before[0] + fresh[0], fresh[1]], rtol=1e-5)
    np.testing.assert_array_equal(carry["noise"], before)  # the carry given stays as it was


def test_a_collector_carries_the_noise_and_renews_it_with_the_episode() -> None:
    env = JournaledEnv(make_vector_env("Probe/TruncatedRewardContinuous-v0", N_ENVS))
    agent = still_agent("ou", 0.1, observation_space=env.observation_space, box=env.action_space)
    rng = copy.deepcopy(agent.policy.rng)
    rollout = Collector(env, agent.policy, 12, seed=0, boundary_steps=1000).collect(0, None)
    assert 0 < rollout.is_first[1:-1].sum() < rollout.is_first[1:-1].size
    noise = np.zeros((N_ENVS, 1), np.float32)
    for is_first, actions in zip(rollout.is_first[:-1], rollout.actions, strict=True):
        kept = np.where(is_first[:, None], 0, 0.85 * noise)
        noise = kept + 0.1 * rng.standard_normal((N_ENVS, 1), dtype=np.float32)
        np.testing.assert_allclose(actions, noise, rtol=1e-4, atol=1e-6)


def test_an_evaluation_of_other_envs_does_not_disturb_the_noise() -> None:
    """Every caller has a carry of its own, so that the numbers of envs need not agree."""
    policy, obs = still_agent("ou", 0.1).policy, np.zeros((2, 3), np.float32)
    carry = policy.sample(obs, policy.initial_carry(2), np.ones(2, bool)).carry
    before = carry["noise"].copy()
    assert drawn(policy, np.zeros((5, 3), np.float32)).shape == (5, 2)
    np.testing.assert_array_equal(carry["noise"], before)
    assert policy.sample(obs, carry, np.zeros(2, bool)).actions.shape == (2, 2)
    for n in (2, 5, 2):
        assert policy.act(np.zeros((n, 3), np.float32), greedy=False).shape == (n, 2)


def test_the_noise_follows_its_schedule() -> None:
    agent = agent_for(exploration_noise="lin_0.4")
    agent.before_rollout(50, 100)
    assert agent.policy.noise_std == pytest.approx(0.2)
    assert not agent.policy.is_random
    agent.before_rollout(0, 100)
    assert agent.policy.is_random


def test_acting_computes_what_learning_does() -> None:
    agent = agent_for(normalize_obs="rolling")
    rng = np.random.default_rng(0)
    agent.encoder.observe(rng.normal(2, 3, (100, 3)).astype(np.float32))
    obs = rng.normal(2, 5, (32, 3)).astype(np.float32)
    with torch.no_grad():
        expected = torch.tanh(agent.net.actor_outputs(torch.from_numpy(obs))).numpy()
    np.testing.assert_allclose(best(agent.policy, obs), expected, rtol=1e-4, atol=1e-5)
