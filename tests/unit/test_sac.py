"""SAC: targets, entropy terms and the temperature by hand; masks; acting; what is configured."""

import math
from typing import Any, cast

import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import Tensor, nn
from torch.distributions import Normal, TanhTransform, TransformedDistribution

from gymnasium_solver.algos import soft
from gymnasium_solver.algos.continuous import ActorBatch
from gymnasium_solver.algos.sac import SAC
from gymnasium_solver.algos.soft import (
    actor_loss,
    critic_loss,
    discrete_actor_loss,
    discrete_critic_loss,
    soft_value,
)
from gymnasium_solver.data.replay import ReplayBatch
from gymnasium_solver.data.rollout import Rollout
from gymnasium_solver.errors import ConfigError
from gymnasium_solver.nets.actor_critics import ActorCritics, Critics, squash
from gymnasium_solver.nets.blocks import StackedLinear
from gymnasium_solver.policies.policy import Carry, Policy
from tests.acting import BOX, N_ENVS, best, drawn, small_agent, small_rollout

DISCRETE = spaces.Discrete(3)


def agent_for(action_space: Any = BOX, seed: int = 0, **fields: Any) -> SAC:
    agent: SAC = small_agent("sac", action_space, seed=seed, **fields)
    return agent


def masked_rollout() -> Rollout:
    """Without the last action."""
    rollout = small_rollout(DISCRETE)
    rollout.mask = np.ones((7, N_ENVS, 3), bool)
    rollout.mask[..., 2] = False
    rollout.actions[:] %= 2
    return rollout


class Constant(nn.Module):
    """Gives the same outputs for every row."""

    def __init__(self, outputs: Any):
        super().__init__()
        self.features = nn.Identity()
        self.outputs = nn.Parameter(torch.tensor(outputs, dtype=torch.float32))

    def forward(self, x: Tensor, actions: Tensor | None = None) -> Tensor:
        if self.outputs.ndim == 1:  # an actor: [A] -> [B, A]
            return self.outputs.expand(len(x), -1)
        found = self.outputs.unsqueeze(1).expand(-1, len(x), -1)  # critics: [n, out] -> [n, B, out]
        return found if found.shape[2] > 1 else found.squeeze(2)

    values = layers = forward

    def sampled(self, y: Tensor, noise: Tensor, beside: None = None) -> tuple[Tensor, Tensor]:
        return squash(self(y), noise)


def critics(outputs: Any) -> Critics:
    return cast(Critics, Constant(outputs))


def constant_net(actor: Any, critics: Any) -> ActorCritics:
    net = agent_for().net
    net.actor = Constant(actor)  # type: ignore[assignment]
    net.critic = Constant(critics)  # type: ignore[assignment]
    return net


def batch_for(
    actions: Any, reward: list[float], discount: list[float], weight: Any = None, **more: Tensor
) -> ReplayBatch:
    n = len(reward)
    return ReplayBatch(
        obs=torch.zeros(n, 3),
        actions=torch.as_tensor(actions),
        reward=torch.tensor(reward),
        discount=torch.tensor(discount),
        next_obs=torch.zeros(n, 3),
        weight=torch.ones(n) if weight is None else torch.tensor(weight),
        **more,
    )


# -- the squashed Gaussian ------------------------------------------------------------------


def test_log_probabilities_are_those_of_a_squashed_normal() -> None:
    generator = torch.Generator().manual_seed(0)
    outputs = 0.5 * torch.randn(50, 4, generator=generator)
    noise = torch.randn(50, 2, generator=generator)
    actions, log_prob = squash(outputs, noise)
    normal = Normal(outputs[:, :2], outputs[:, 2:].exp())
    squashed = TransformedDistribution(normal, TanhTransform(cache_size=1))
    u = outputs[:, :2] + outputs[:, 2:].exp() * noise
    torch.testing.assert_close(actions, torch.tanh(u))
    expected = normal.log_prob(u) - TanhTransform().log_abs_det_jacobian(u, torch.tanh(u))
    torch.testing.assert_close(log_prob, expected.sum(1))
    inner = actions.abs().amax(1) < 0.99  # elsewhere the inverse of tanh loses digits
    theirs = squashed.log_prob(actions).sum(1)
    torch.testing.assert_close(log_prob[inner], theirs[inner], rtol=1e-3, atol=1e-3)


def test_log_probabilities_hold_far_out() -> None:
    """tanh(30) is 1 to the last digit; the slope's logarithm is log 4 - 60 all the same."""
    outputs = torch.tensor([[30.0, 0.0]]).requires_grad_()
    actions, log_prob = squash(outputs, torch.zeros(1, 1))
    assert actions.tolist() == [[1.0]]
    assert log_prob.item() == pytest.approx(-0.5 * math.log(2 * math.pi) - math.log(4) + 60)
    (gradient,) = torch.autograd.grad(log_prob.sum(), outputs)
    assert gradient.tolist() == [[2, -1]]


def test_deviations_are_clamped() -> None:
    noise = torch.ones(1, 1)
    for given, used in ((7.0, 2.0), (-50.0, -20.0)):
        limited = squash(torch.tensor([[0.0, given]]), noise)
        expected = squash(torch.tensor([[0.0, used]]), noise)
        torch.testing.assert_close(limited, expected)


# -- targets and losses, Box ----------------------------------------------------------------


def test_the_target_is_reward_plus_the_lowest_next_value_and_entropy() -> None:
    """Mean 0, deviation 1, noise 0: a' = 0, log pi = -log sqrt(2 pi) for each of two components.

    Row 0 goes on (a truncation does too): 1 + 0.9 (min(5, 3) - 0.5 log pi). Row 1 terminated: 2.
    """
    net = constant_net([0, 0, 0, 0], [[0.0], [0.0]])
    batch = batch_for(torch.zeros(2, 2), [1, 2], [0.9, 0], noise=torch.zeros(2, 2))
    alpha, target = torch.tensor(0.5), critics([[5.0], [3.0]])
    loss, found = critic_loss(net, target, batch, {"alpha": alpha})
    log_pi = 2 * -0.5 * math.log(2 * math.pi)
    wanted = [1 + 0.9 * (3 - 0.5 * log_pi), 2]
    assert found["errors"].tolist() == pytest.approx(wanted), (
        "critics of 0: the error is the target"
    )
    assert loss.item() == pytest.approx(2 * 0.5 * (wanted[0] ** 2 + 4) / 2), "two critics"
    assert found["opt/q/mean"].item() == 0


def test_weights_of_prioritised_replay_scale_the_loss_and_not_the_errors() -> None:
    net = constant_net([0, 0, 0, 0], [[1.0], [3.0]])
    noise = torch.zeros(2, 2)
    batch = batch_for(torch.zeros(2, 2), [5, 0], [0, 0], weight=[0.25, 1.0], noise=noise)
    loss, found = critic_loss(net, net.critic, batch, {"alpha": torch.tensor(0.0)})
    # Critic 1 errs by -4 and 1, critic 3 by -2 and 3.
    assert loss.item() == pytest.approx(0.5 * ((0.25 * 16 + 1) / 2 + (0.25 * 4 + 9) / 2))
    assert found["errors"].tolist() == [(4 + 2) / 2, (1 + 3) / 2]
    assert found["opt/q/mean"].item() == 2


def test_the_critics_alone_get_a_gradient() -> None:
    agent = agent_for()
    batch = batch_for(torch.zeros(3, 2), [1, 2, 3], [0.9, 0.9, 0.9], noise=torch.ones(3, 2))
    loss, _ = critic_loss(agent.net, agent.target, batch, {"alpha": torch.tensor(1.0)})
    loss.backward()
    assert all(p.grad is not None for p in agent.net.critic.parameters())
    assert all(p.grad is None for p in agent.net.actor.parameters())
    assert all(p.grad is None for p in agent.target.parameters())


def test_the_actor_climbs_the_lowest_value_and_its_entropy() -> None:
    net = agent_for(seed=3).net
    torch.manual_seed(3)
    x, noise = torch.randn(32, 3), torch.randn(32, 2)
    loss, found = actor_loss(net, ActorBatch(x, noise=noise), {"alpha": torch.tensor(0.3)})
    actions, log_prob = squash(net.actor(x), noise)
    q = net.critic(x, actions)
    assert (q[0] < q[1]).any()
    assert (q[1] < q[0]).any()
    expected = [0.3 * log_prob[i] - min(q[0, i], q[1, i]) for i in range(32)]
    torch.testing.assert_close(loss, sum(expected) / 32)
    torch.testing.assert_close(found["opt/policy/entropy"], -log_prob.detach().mean())


# -- the temperature ------------------------------------------------------------------------


@pytest.mark.parametrize(("gap", "rises"), [(-0.5, True), (0.5, False)])
def test_too_little_entropy_raises_the_temperature(gap: float, rises: bool) -> None:
    agent = agent_for(ent_coef="auto_2", optimizer="sgd")
    temperature = agent.net.temperature
    assert temperature is not None
    assert agent.alpha is not None
    loss = soft.train_alpha(agent, torch.tensor(gap), agent.critic, {"policy_lr": 0.1})
    assert loss.item() == pytest.approx(math.log(2) * gap)
    assert temperature.alpha == pytest.approx(2 * math.exp(-0.1 * gap))
    assert (temperature.alpha > 2) == rises


def test_steps_along_alpha_are_as_long_as_it_is() -> None:
    """d(alpha * gap) / d(log alpha) = alpha * gap, as autograd has it."""
    agent = agent_for(ent_coef="auto_2", alpha_loss="alpha", optimizer="sgd")
    temperature = agent.net.temperature
    assert temperature is not None
    log_alpha = temperature.log_alpha.detach().clone().requires_grad_()
    expected = log_alpha.exp() * 0.5
    expected.backward()
    assert log_alpha.grad is not None
    loss = soft.train_alpha(agent, torch.tensor(0.5), agent.critic, {"policy_lr": 0.1})
    assert loss.item() == pytest.approx(expected.item())
    after = math.log(2) - 0.1 * log_alpha.grad.item()
    assert temperature.log_alpha.item() == pytest.approx(after)


def test_the_temperature_keeps_its_bounds() -> None:
    agent = agent_for(optimizer="sgd", log_alpha_min=-0.2, log_alpha_max=0.1)
    temperature, descent = agent.net.temperature, agent.alpha
    assert temperature is not None
    assert descent is not None
    for gap, expected in ((-9.0, 0.1), (9.0, -0.2)):
        soft.train_alpha(agent, torch.tensor(gap), agent.critic, {"policy_lr": 1.0})
        assert temperature.log_alpha.item() == pytest.approx(expected)
        assert descent.optimizer.flat.item() == pytest.approx(expected), "where it goes on from"


def test_target_entropies() -> None:
    def target(agent: SAC, mask: Tensor | None = None, at: float = 0) -> float:
        hp = agent.scheduled_values(int(at), 100)
        return float(soft.target_entropy(agent, hp, ActorBatch(None, mask)))

    assert target(agent_for(BOX)) == -2
    assert target(agent_for(BOX, target_entropy=-0.7)) == -0.7
    assert target(agent_for(BOX, target_entropy={"start": 0, "end": -4}), at=50) == -2
    assert target(agent_for(DISCRETE)) == pytest.approx(0.3 * math.log(3))
    half = agent_for(DISCRETE, target_entropy_ratio=0.5)
    assert target(half) == pytest.approx(0.5 * math.log(3))
    mask = torch.tensor([[True, True, False], [True, False, False]])
    assert target(half, mask) == pytest.approx(0.5 * (math.log(2) + 0) / 2)
    assert target(agent_for(DISCRETE, target_entropy=0.3), mask) == 0.3


@pytest.mark.parametrize(
    ("ent_coef", "first"), [("auto", 1.0), ("auto_0.1", 0.1), (0.2, None), ("lin_0.2", None)]
)
def test_the_temperature_is_learnt_or_given(ent_coef: Any, first: float | None) -> None:
    agent = agent_for(ent_coef=ent_coef)
    assert (agent.net.temperature is None) == (first is None)
    assert ("alpha" in agent.optimizers) == (first is not None)
    metrics = agent.update(small_rollout(BOX), 50, 100)
    assert ("opt/loss/alpha" in metrics) == (first is not None)
    if agent.net.temperature is None:
        halfway = 0.2 if ent_coef == 0.2 else 0.1
        assert metrics["opt/policy/alpha"] == pytest.approx(halfway)
    else:
        assert agent.net.temperature.alpha == pytest.approx(first, rel=0.2)
        assert agent.net.temperature.alpha != pytest.approx(first, rel=0.001)


@pytest.mark.parametrize(
    ("space", "fields", "first"),
    [
        (BOX, {}, 1.0),
        (BOX, {"normalize_reward": True}, 0.01),
        (DISCRETE, {}, 0.01),
        (DISCRETE, {"ent_coef": "auto_0.1"}, 0.1),
    ],
)
def test_where_the_temperature_starts(space: Any, fields: dict[str, Any], first: float) -> None:
    """At 1, entropy would pay more than a goal that ends the episode, and than small rewards."""
    agent = agent_for(space, **fields)
    assert agent.net.temperature is not None
    assert float(agent.net.temperature.alpha) == pytest.approx(first)


@pytest.mark.parametrize("ent_coef", ["auto_0", "auto_-1", "automatic", -0.1, True, "lin"])
def test_bad_entropy_weights_are_refused(ent_coef: Any) -> None:
    with pytest.raises(ConfigError, match=r"ent_coef.*auto_NUMBER.*lin_NUMBER"):
        agent_for(ent_coef=ent_coef)


# -- discrete actions -----------------------------------------------------------------------


def test_the_soft_value_is_an_exact_expectation() -> None:
    generator = torch.Generator().manual_seed(0)
    log_probs = torch.log_softmax(torch.randn(4, 3, generator=generator), 1)
    q, alpha = torch.randn(4, 3, generator=generator), 0.7
    value = soft_value(log_probs, q, torch.tensor(alpha))
    for row in range(4):
        p = [math.exp(log_probs[row, a]) for a in range(3)]
        brute = sum(p[a] * (float(q[row, a]) - alpha * math.log(p[a])) for a in range(3))
        assert value[row].item() == pytest.approx(brute, rel=1e-5)


def test_the_discrete_target_by_hand() -> None:
    """Probabilities (1/2, 1/4, 1/4), the lowest values of two critics (1, 2, 0), alpha 0.1."""
    p = [0.5, 0.25, 0.25]
    net = constant_net([math.log(x) for x in p], [[0.0, 0, 0], [0, 0, 0]])
    target = critics([[1.0, 5, 0], [4, 2, 3]])
    batch = batch_for([0, 1], [1.0, 7.0], [0.9, 0.0])
    loss, found = discrete_critic_loss(net, target, batch, {"alpha": torch.tensor(0.1)})
    entropy = -sum(x * math.log(x) for x in p)
    wanted = 1 + 0.9 * (0.5 * 1 + 0.25 * 2 + 0.1 * entropy)
    assert found["errors"].tolist() == pytest.approx([wanted, 7])
    assert loss.item() == pytest.approx((wanted**2 + 49) / 2)


def test_forbidden_actions_are_not_bootstrapped_from() -> None:
    """Without action 2, whose value is enormous: (2/3, 1/3) over the values (1, 2)."""
    net = constant_net([math.log(2), 0, 5], [[0.0, 0, 0], [0, 0, 0]])
    target = critics([[1.0, 2, 1e6], [1, 2, 1e6]])
    mask = torch.tensor([[True, True, False]])
    batch = batch_for([0], [0.0], [1.0], next_mask=mask)
    _, found = discrete_critic_loss(net, target, batch, {"alpha": torch.tensor(0.5)})
    entropy = math.log(3) - 2 / 3 * math.log(2)
    assert found["errors"].tolist() == pytest.approx([4 / 3 + 0.5 * entropy])


def test_each_discrete_action_is_learnt_by_its_own_output() -> None:
    net = constant_net([0, 0, 0], [[1.0, 2, 3], [4, 5, 6]])
    batch = batch_for([2, 0], [0.0, 0.0], [0.0, 0.0])
    loss, found = discrete_critic_loss(net, net.critic, batch, {"alpha": torch.tensor(0.0)})
    assert found["errors"].tolist() == [(3 + 6) / 2, (1 + 4) / 2]
    assert found["opt/q/mean"].item() == pytest.approx((3 + 1 + 6 + 4) / 4)
    loss.backward()
    gradient = next(net.critic.parameters()).grad
    assert gradient is not None
    assert gradient.tolist() == [[0.5, 0, 1.5], [2, 0, 3]]


def test_the_discrete_actor_against_brute_force() -> None:
    net = agent_for(DISCRETE, seed=1).net
    x = torch.randn(6, 3)
    mask = torch.tensor([[True, True, False], [True, True, True]] * 3)
    numbers = {"alpha": torch.tensor(0.4), "penalty_coef": torch.tensor(0.0)}
    loss, found = discrete_actor_loss(net, ActorBatch(x, mask=mask), numbers)
    q, logits = net.critic(x).amin(0).detach(), net.actor(x).detach()
    total, entropies = 0.0, 0.0
    for row in range(6):
        legal = [a for a in range(3) if mask[row, a]]
        weights = [math.exp(logits[row, a]) for a in legal]
        p = [w / sum(weights) for w in weights]
        entropies += -sum(x * math.log(x) for x in p)
        total += sum(
            pa * (0.4 * math.log(pa) - float(q[row, a])) for pa, a in zip(p, legal, strict=True)
        )
    assert loss.item() == pytest.approx(total / 6, rel=1e-5)
    assert found["opt/policy/entropy"].item() == pytest.approx(entropies / 6, rel=1e-5)
    loss.backward()
    gradients = [p.grad for p in net.actor.parameters()]
    assert all(g is not None and torch.isfinite(g).all() for g in gradients)
    assert all(p.grad is None for p in net.critic.parameters())


def test_the_entropy_penalty_by_hand() -> None:
    """Half the coefficient times the squared distance to the steady actor's entropy."""
    net = constant_net([math.log(3), 0.0, -200], [[0.0, 0, 0]])
    uniform: Any = Constant([0.0, 0, -200])
    numbers = {"alpha": torch.tensor(0.0), "penalty_coef": torch.tensor(2.0)}
    given = ActorBatch(torch.zeros(4, 3))
    loss, found = discrete_actor_loss(net, given, numbers, steady_actor=uniform)
    own = math.log(4) - 0.75 * math.log(3)
    assert found["opt/policy/entropy"].item() == pytest.approx(own)
    assert loss.item() == pytest.approx(0.5 * 2 * (math.log(2) - own) ** 2)


def test_the_steady_actor_follows_and_is_only_there_for_the_penalty() -> None:
    assert agent_for(DISCRETE).steady_actor is None
    agent = agent_for(DISCRETE, entropy_penalty_coef=0.5, tau=0.1)
    assert agent.critic.optimizer.targets
    assert agent.actor.optimizer.targets
    agent.update(small_rollout(DISCRETE), 12, 100)
    steady, actor = (next(iter(m.parameters())) for m in (agent.steady_actor, agent.net.actor))  # type: ignore[union-attr]
    assert not torch.equal(steady, actor)
    assert not torch.equal(steady, next(iter(agent_for(DISCRETE).net.actor.parameters())))


def test_forbidden_actions_are_never_taken() -> None:
    agent = agent_for(DISCRETE)
    agent.net.actor.layers[-1].bias.data = torch.tensor([0.0, 0.0, 50.0])
    obs, mask = np.zeros((500, 3), np.float32), np.tile([True, True, False], (500, 1))
    assert set(best(agent.policy, obs)) == {2}
    assert 2 not in best(agent.policy, obs, mask)
    assert set(drawn(agent.policy, obs, mask)) == {0, 1}
    agent.policy.is_random = True
    assert set(drawn(agent.policy, obs, mask)) == {0, 1}


def test_masks_reach_the_update() -> None:
    """The value of the forbidden action is enormous: one look at it would show in the loss."""
    agent = agent_for(DISCRETE, policy_delay=1, seed=2)
    for critic in (agent.net.critic, agent.target):
        *_, last_bias = critic.parameters()
        last_bias.data[..., 2] = 1e9
    metrics = agent.update(masked_rollout(), 12, 100)
    for name in ("opt/loss/critic", "opt/loss/policy"):
        assert abs(float(metrics[name])) < 100, name
    assert float(metrics["opt/policy/entropy"]) <= math.log(2) + 1e-6


# -- the learner ----------------------------------------------------------------------------


def test_the_target_follows_by_tau() -> None:
    agent = agent_for(tau=0.25)
    optimizer = agent.critic.optimizer
    _, flat, source = optimizer.targets["critic"]
    assert torch.equal(flat, source)
    flat.fill_(1.0)
    source.fill_(3.0)
    optimizer.step(torch.zeros_like(source), 0.0)
    assert set(flat.tolist()) == {1.5}
    assert next(iter(agent.target.parameters())).unique().tolist() == [1.5]
    optimizer.copy_to_targets()
    assert set(flat.tolist()) == {3.0}


def test_the_actor_waits_for_its_turn() -> None:
    agent = agent_for(policy_delay=3, updates_per_step=0.25)
    moved = []
    for i in range(6):
        before = agent.actor.optimizer.flat.clone()
        metrics = agent.update(small_rollout(BOX, n_rows=2, seed=i), 4 * (i + 1), 100)
        moved.append(not torch.equal(before, agent.actor.optimizer.flat))
        assert ("opt/loss/policy" in metrics) == moved[-1]
        assert "opt/loss/critic" in metrics
    assert moved == [False, False, True, False, False, True]
    assert agent.critic.optimizer.n_steps == 6
    assert agent.alpha is not None
    assert agent.alpha.optimizer.n_steps == 2


def test_learning_rates_are_separate() -> None:
    metrics = agent_for(critic_lr=0.5, alpha_lr=0.25).update(small_rollout(BOX), 12, 100)
    assert (metrics["hp/critic_lr"], metrics["hp/alpha_lr"]) == (0.5, 0.25)
    still = agent_for(policy_lr="lin_0.1", critic_lr=0.5, alpha_lr=0.5)
    actor, critic = still.actor.optimizer.flat.clone(), still.critic.optimizer.flat.clone()
    still.update(small_rollout(BOX), 100, 100)  # policy_lr has come down to 0
    assert torch.equal(still.actor.optimizer.flat, actor)
    assert not torch.equal(still.critic.optimizer.flat, critic)
    assert still.net.temperature is not None
    assert still.net.temperature.alpha != 1.0


def test_spectral_norm_bounds_the_critics() -> None:
    agent = agent_for(spectral_norm=True, critic_lr=0.1)
    for i in range(20):
        agent.update(small_rollout(BOX, seed=i), 12 * (i + 1), 1000)
    with torch.no_grad():
        layers = [m for m in agent.net.critic.mlps.layers if isinstance(m, StackedLinear)]
        for layer in layers:
            outputs = layer(torch.eye(layer.weight.shape[1])) - layer.bias
            assert float(torch.linalg.svdvals(outputs).max()) < 1.5
            assert float(torch.linalg.svdvals(layer.weight).max()) > 1.5


# -- acting ---------------------------------------------------------------------------------


@pytest.mark.parametrize("activation", ["relu", "tanh", "gelu"])
def test_acting_computes_what_learning_does(activation: str) -> None:
    agent = agent_for(activation=activation, normalize_obs="rolling")
    rng = np.random.default_rng(0)
    agent.encoder.observe(rng.normal(2, 3, (100, 3)).astype(np.float32))
    obs = rng.normal(2, 5, (32, 3)).astype(np.float32)
    with torch.no_grad():
        outputs = agent.net.actor_outputs(torch.from_numpy(obs))
        mean = torch.tanh(outputs[:, :2]).numpy()
        np.testing.assert_allclose(best(agent.policy, obs), mean, rtol=1e-4, atol=1e-5)
        state = agent.policy.rng.bit_generator.state
        actions = drawn(agent.policy, obs)
        agent.policy.rng.bit_generator.state = state
        noise = torch.from_numpy(agent.policy.rng.standard_normal((32, 2), dtype=np.float32))
        expected, _ = squash(outputs, noise)
    np.testing.assert_allclose(actions, expected.numpy(), rtol=1e-4, atol=1e-5)
    assert actions.dtype == np.float32
    assert agent.policy._infer._program is not None, "recorded"


def test_actions_reach_the_bounds_of_the_env() -> None:
    agent = agent_for()
    agent.net.actor.layers[-1].bias.data = torch.tensor([50.0, -50.0, 0.0, 0.0])
    np.testing.assert_array_equal(agent.act(np.zeros(3, np.float32)), [2, -2])
    agent.policy.is_random = True
    actions = agent.act(np.zeros((500, 3), np.float32), greedy=False)
    assert np.abs(actions).max() <= 2
    assert np.abs(actions).max() > 1.9
    assert abs(actions.mean()) < 0.2


def steps_of(policy: Policy, obs: np.ndarray, n_steps: int) -> tuple[np.ndarray, Carry]:
    """Draws of one episode of every env [T, envs, ...], and the carry after them."""
    carry, is_first = policy.initial_carry(len(obs)), np.ones(len(obs), bool)
    actions = []
    for _ in range(n_steps):
        acted = policy.sample(obs, carry, is_first)
        actions.append(acted.actions)
        carry, is_first = acted.carry, np.zeros(len(obs), bool)
    return np.array(actions), carry


def test_correlated_noise_lasts_and_leaves_each_action_as_it_was() -> None:
    agent = agent_for(noise_correlation=0.9)
    for p in agent.net.actor.parameters():
        p.data.zero_()
    obs = np.zeros((400, 3), np.float32)
    actions, carry = steps_of(agent.policy, obs, 30)
    noise = np.arctanh(actions[..., 0])  # [T, envs]
    for t in (0, 1, 29):
        assert noise[t].std() == pytest.approx(1, abs=0.1), t
    assert np.corrcoef(noise[:-1].ravel(), noise[1:].ravel())[0, 1] == pytest.approx(0.9, abs=0.03)
    before = noise[-1]
    after = np.arctanh(agent.policy.sample(obs, carry, np.arange(400) < 200).actions[:, 0])
    assert abs(np.corrcoef(before[:200], after[:200])[0, 1]) < 0.2
    assert np.corrcoef(before[200:], after[200:])[0, 1] > 0.8
    assert after.std() == pytest.approx(1, abs=0.1)


def test_discrete_actions_last_by_the_same_setting() -> None:
    agent = agent_for(DISCRETE, noise_correlation=0.8)
    for p in agent.net.actor.parameters():
        p.data.zero_()
    obs = np.zeros((500, 3), np.float32)
    actions, _ = steps_of(agent.policy, obs, 20)  # [T, envs]
    for t in (0, 1, 19):
        shares = np.bincount(actions[t], minlength=3) / 500
        assert shares == pytest.approx([1 / 3] * 3, abs=0.08), t
    repeats = (actions[1:] == actions[:-1]).mean()
    assert repeats == pytest.approx(0.8 + 0.2 / 3, abs=0.02)
    mask = np.tile([True, True, False], (500, 1))
    assert set(drawn(agent.policy, obs, mask)) == {0, 1}
