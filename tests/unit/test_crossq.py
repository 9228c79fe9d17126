"""CrossQ: the joint pass, moments and when they move, acting by running moments."""

import math
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import Tensor, nn

from gymnasium_solver.algos.continuous import ActorBatch
from gymnasium_solver.algos.crossq import CrossQ
from gymnasium_solver.algos.soft import (
    actor_loss,
    critic_loss,
    discrete_critic_loss,
)
from gymnasium_solver.data.replay import ReplayBatch
from gymnasium_solver.errors import ConfigError
from gymnasium_solver.nets.actor_critics import squash
from gymnasium_solver.nets.renorm import BatchRenorm, batch_statistics
from tests.acting import BOX, best, drawn, small_agent, small_rollout

PLAIN = {"r_max": torch.tensor(1.0), "d_max": torch.tensor(0.0)}


def train_pass(layers: nn.Module, x: Tensor) -> tuple[Tensor, list[Tensor]]:
    with batch_statistics(layers, (PLAIN["r_max"], PLAIN["d_max"])) as moments:
        y = layers(x)
    return y, moments


def moments_in(found: dict[str, Tensor]) -> list[Tensor]:
    return [value for name, value in found.items() if name.startswith("moment")]


def agent_for(seed: int = 0, actions: Any = BOX, **fields: Any) -> CrossQ:
    agent: CrossQ
    agent = small_agent("crossq", actions, seed=seed, **{"critic_hidden_dims": [8], **fields})
    return agent


def random_batch(n: int = 5, discount: float = 0.9) -> tuple[ReplayBatch, Tensor]:
    generator = torch.Generator().manual_seed(0)

    def draw(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator)

    batch = ReplayBatch(
        draw(n, 3), draw(n, 2), draw(n), torch.full((n,), discount), draw(n, 3), torch.ones(n)
    )
    noise = draw(n, 2)
    return batch._replace(noise=noise), noise


def test_the_target_comes_from_the_same_pass_without_gradient() -> None:
    net, (batch, noise) = agent_for(seed=1).net, random_batch()
    loss, found = critic_loss(net, None, batch, {"alpha": torch.tensor(0.3), **PLAIN})

    next_actions, log_prob = squash(net.actor(batch.next_obs), noise)
    now = torch.cat([batch.obs, batch.actions], 1)
    following = torch.cat([batch.next_obs, next_actions], 1)
    both, expected_moments = train_pass(net.critic.mlps.layers, torch.cat([now, following]))
    q, next_q = both[:, :5, 0], both[:, 5:, 0]
    wanted = (batch.reward + 0.9 * (torch.minimum(*next_q) - 0.3 * log_prob)).detach()
    torch.testing.assert_close(found["errors"], (q - wanted).abs().mean(0))
    torch.testing.assert_close(found["opt/q/mean"], q.mean())
    expected = 0.5 * ((q[0] - wanted).square().mean() + (q[1] - wanted).square().mean())
    torch.testing.assert_close(loss, expected)
    moments = moments_in(found)
    for a, b in zip(moments, expected_moments, strict=True):
        torch.testing.assert_close(a, b)
    params = list(net.critic.parameters())
    ours, theirs = torch.autograd.grad(loss, params), torch.autograd.grad(expected, params)
    for a, b in zip(ours, theirs, strict=True):
        torch.testing.assert_close(a, b)
    # The first moments are those of both halves together.
    torch.testing.assert_close(moments[0][0], torch.cat([now, following]).mean(0).detach())


def test_a_pass_apart_would_give_other_values() -> None:
    """What the joint pass is for: next observations far away are not normalised away."""
    net, (batch, _) = agent_for(seed=1).net, random_batch()
    apart, _ = train_pass(net.critic.mlps.layers, torch.cat([batch.obs, batch.actions], 1))
    far = batch._replace(next_obs=batch.next_obs + 5)
    _, found = critic_loss(net, None, far, {"alpha": torch.tensor(0.0), **PLAIN})
    assert abs(float(found["opt/q/mean"] - apart.detach().mean())) > 0.01


def test_the_actor_climbs_critics_with_running_moments() -> None:
    net, (batch, noise) = agent_for(seed=2).net, random_batch()
    given = ActorBatch(batch.obs, noise=noise)
    loss, found = actor_loss(net, given, {"alpha": torch.tensor(0.3), **PLAIN})
    outputs, expected_moments = train_pass(net.actor.layers, batch.obs)
    actions, log_prob = squash(outputs, noise)
    q = net.critic(batch.obs, actions)
    torch.testing.assert_close(loss, (0.3 * log_prob - torch.minimum(*q)).mean())
    torch.testing.assert_close(found["opt/policy/entropy"], -log_prob.mean().detach())
    assert len(moments_in(found)) == len(expected_moments) == 4


DISCRETE = spaces.Discrete(3)
MASK = torch.tensor([[True, True, True], [True, False, True]] * 2 + [[False, True, True]])


def test_discrete_targets_are_exact_expectations_over_legal_actions() -> None:
    net, (batch, _) = agent_for(seed=1, actions=DISCRETE).net, random_batch()
    taken = torch.tensor([0, 2, 1, 0, 2])
    batch = batch._replace(actions=taken, noise=None, next_mask=MASK)
    alpha = torch.tensor(0.3)
    loss, found = discrete_critic_loss(net, None, batch, {"alpha": alpha, **PLAIN})

    logits = net.actor(batch.next_obs).masked_fill(~MASK, -math.inf)
    probs = torch.softmax(logits, 1)
    joint = torch.cat([batch.obs, batch.next_obs])
    both, _ = train_pass(net.critic.mlps.layers, joint)
    now, following = both[:, :5], torch.minimum(*both[:, 5:])
    soft = torch.where(MASK, probs * (following - 0.3 * probs.clamp(min=1e-9).log()), 0.0).sum(1)
    wanted = (batch.reward + 0.9 * soft).detach()
    q = now[:, torch.arange(5), taken]
    torch.testing.assert_close(found["errors"], (q - wanted).abs().mean(0).detach())
    torch.testing.assert_close(found["opt/q/mean"], q.mean().detach())
    torch.testing.assert_close(loss, 0.5 * (q - wanted).square().mean(1).sum())
    assert len(moments_in(found)) == 4


def running(module: Any) -> list[Tensor]:
    return [b.clone() for b in module.buffers()]


def same(a: list[Tensor], b: list[Tensor]) -> bool:
    return all(torch.equal(x, y) for x, y in zip(a, b, strict=True))


def test_moments_move_with_the_steps_and_not_by_acting() -> None:
    agent = agent_for(policy_delay=3, updates_per_step=0.25)
    moved = []
    for i in range(3):
        actor, critic = running(agent.net.actor), running(agent.net.critic)
        drawn(agent.policy, np.ones((50, 3), np.float32))
        best(agent.policy, np.ones((50, 3), np.float32))
        assert same(actor, running(agent.net.actor))
        agent.update(small_rollout(n_rows=2, seed=i), 4 * (i + 1), 100)
        moved.append(
            (not same(critic, running(agent.net.critic)), not same(actor, running(agent.net.actor)))
        )
    assert moved == [(True, False), (True, False), (True, True)]
    assert not any(o.targets for o in agent.optimizers.values()), "no target networks"


def test_corrections_begin_after_the_warm_up() -> None:
    agent = agent_for(renorm_warmup=5)
    found = []
    for n in (0, 4, 5, 6):
        agent.critic.optimizer.set_count(n)
        found.append(tuple(agent._bounds(agent.critic).values()))
    assert found == [(1, 0), (1, 0), (3, 5), (3, 5)]
    warm, cold = agent_for(renorm_warmup=0), agent_for(renorm_warmup=100)
    for agent in (warm, cold):
        agent.update(small_rollout(), 12, 100)
    assert not torch.equal(warm.critic.optimizer.flat, cold.critic.optimizer.flat)


def test_adam_forgets_faster() -> None:
    agent = agent_for()
    for descent in (agent.critic, agent.actor):
        assert descent.optimizer.groups[0].beta1 == 0.5


def test_critics_have_their_own_widths() -> None:
    agent = agent_for(hidden_dims=[6], critic_hidden_dims=[9, 10])
    widths = [p.shape[-1] for p in agent.net.critic.parameters() if p.ndim == 3 and p.shape[1] > 1]
    assert widths == [9, 10, 1]
    assert sum(isinstance(layer, BatchRenorm) for layer in agent.net.actor.layers) == 2


def test_acting_computes_what_running_moments_give() -> None:
    agent = agent_for()
    for i in range(5):
        agent.update(small_rollout(seed=i), 12 * (i + 1), 100)
    obs = np.random.default_rng(0).normal(2, 5, (32, 3)).astype(np.float32)
    with torch.no_grad():
        outputs = agent.net.actor_outputs(torch.from_numpy(obs)).numpy()
    np.testing.assert_allclose(best(agent.policy, obs), np.tanh(outputs[:, :2]), atol=1e-5)
    one_by_one = [best(agent.policy, obs[i : i + 1])[0] for i in range(32)]
    np.testing.assert_allclose(best(agent.policy, obs), one_by_one, atol=1e-5)


def test_its_norm_excludes_another_one() -> None:
    with pytest.raises(ConfigError, match="norm: crossq has renorm norm here; remove norm: layer"):
        agent_for(norm="layer")
