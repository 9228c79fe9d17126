"""What policies tell about a state: it agrees with what they do in it."""

from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces

from gymnasium_solver.nets.actor_critic import ActorCritic
from gymnasium_solver.nets.actor_critics import ActorCritics
from gymnasium_solver.nets.network import Network
from gymnasium_solver.nets.q_network import QNetwork
from gymnasium_solver.nets.recurrent import Recurrence
from gymnasium_solver.policies.continuous import DeterministicPolicy, SoftPolicy
from gymnasium_solver.policies.policy import ActorPolicy, Policy
from gymnasium_solver.policies.q_policy import QPolicy
from gymnasium_solver.spaces.actions import DiscreteActions, action_kind
from tests.acting import generator

OBS = spaces.Box(-np.inf, np.inf, (4,), np.float32)
BOX = spaces.Box(np.array([-2, 0], np.float32), np.array([2, 10], np.float32))
MLP = Network((7, 9), "tanh")
N = 5
FIRST = np.ones(N, bool)


def seen() -> np.ndarray:
    return np.random.default_rng(1).normal(size=(N, 4)).astype(np.float32) * 3


def actor(actions: Any, network: Network = MLP, **options: Any) -> tuple[ActorPolicy, ActorCritic]:
    kind = action_kind(actions)
    net = ActorCritic(OBS, kind, network, generator=generator(), **options)
    net.get_parameter("actor_head.weight").data.normal_(generator=generator())
    return ActorPolicy(net, OBS, kind, np.random.default_rng(0), record=False), net


def soft(actions: Any) -> SoftPolicy:
    kind = action_kind(actions)
    is_discrete = isinstance(kind, DiscreteActions)
    n = kind.n if isinstance(kind, DiscreteActions) else 2 * kind.shape[0]
    net = ActorCritics(
        OBS,
        MLP,
        n_actor_outputs=n,
        n_critics=2,
        n_critic_actions=0 if is_discrete else kind.shape[0],
        n_values=n if is_discrete else 0,
        generator=generator(),
    )
    return SoftPolicy(net, OBS, kind, np.random.default_rng(0), 0.0, record=False)


def greedy(policy: Policy, mask: Any = None) -> np.ndarray:
    return policy.greedy(seen(), policy.initial_carry(N), FIRST, mask).actions


def test_probabilities_and_value_of_an_actor() -> None:
    policy, net = actor(spaces.Discrete(3))
    mask = np.tile([True, True, False], (N, 1))
    outlook = policy.outlook(seen(), {}, FIRST, mask)
    assert outlook.probabilities is not None
    assert outlook.probabilities.sum(axis=1) == pytest.approx(np.ones(N))
    assert outlook.probabilities[:, 2] == pytest.approx(np.zeros(N))
    assert (outlook.probabilities.argmax(axis=1) == greedy(policy, mask)).all()
    assert outlook.value == pytest.approx(net.value(torch.from_numpy(seen())).detach().numpy())


def test_probabilities_of_buttons_and_of_several_choices() -> None:
    bits, _ = actor(spaces.MultiBinary(3))
    chances = bits.outlook(seen(), {}, FIRST, None).probabilities
    assert chances is not None
    assert ((chances > 0.5) == greedy(bits)).all()
    several, _ = actor(spaces.MultiDiscrete([2, 3]))
    chances = several.outlook(seen(), {}, FIRST, None).probabilities
    assert chances is not None
    assert chances[:, :2].sum(axis=1) == pytest.approx(np.ones(N))
    assert chances[:, 2:].sum(axis=1) == pytest.approx(np.ones(N))
    assert (chances[:, 2:].argmax(axis=1) == greedy(several)[:, 1]).all()


def test_sampling_follows_the_probabilities() -> None:
    policy, _ = actor(spaces.Discrete(3))
    obs = np.repeat(seen()[:1], 4000, axis=0)
    first = np.ones(4000, bool)
    chances = policy.outlook(obs[:1], {}, first[:1], None).probabilities
    drawn = policy.sample(obs, {}, first).actions
    assert chances is not None
    assert np.bincount(drawn, minlength=3) / 4000 == pytest.approx(chances[0], abs=0.03)


def test_mean_and_deviation_of_continuous_actions() -> None:
    policy, _ = actor(BOX, log_std_init=-1.0)
    outlook = policy.outlook(seen(), {}, FIRST, None)
    assert outlook.mean == pytest.approx(greedy(policy))
    assert outlook.std == pytest.approx(np.full((N, 2), np.exp(-1.0)))
    product, _ = actor(spaces.Dict(a=spaces.Discrete(2), b=BOX))
    outlook = product.outlook(seen(), {}, FIRST, None)
    assert outlook.mean is None
    assert outlook.value is not None


def test_an_actor_without_a_critic_has_no_value() -> None:
    policy, _ = actor(spaces.Discrete(3), critic=False)
    outlook = policy.outlook(seen(), {}, FIRST, None)
    assert outlook.value is None
    assert outlook.probabilities is not None


def test_the_memory_of_a_recurrent_policy_counts_and_is_not_changed() -> None:
    with_memory = MLP._replace(recurrence=Recurrence("gru", 6))
    policy, _ = actor(spaces.Discrete(3), with_memory, share_trunk=True)
    carry = policy.greedy(seen(), policy.initial_carry(N), FIRST).carry
    before = carry["core"].copy()
    later = policy.outlook(seen(), carry, ~FIRST, None)
    anew = policy.outlook(seen(), carry, FIRST, None)
    assert (carry["core"] == before).all()
    assert later.probabilities is not None
    assert anew.probabilities is not None
    assert not np.allclose(later.probabilities, anew.probabilities)
    chosen = policy.greedy(seen(), carry, ~FIRST).actions
    assert (later.probabilities.argmax(axis=1) == chosen).all()
    assert later.value is not None


def test_q_values() -> None:
    net = QNetwork(OBS, 3, MLP, noisy_sigma=0.5, generator=generator())
    kind = DiscreteActions(spaces.Discrete(3))
    policy = QPolicy(net, OBS, kind, np.random.default_rng(0), "noisy", record=False)
    mask = np.tile([True, False, True], (N, 1))
    outlook = policy.outlook(seen(), {}, FIRST, mask)
    assert outlook.q_values is not None
    legal = np.where(mask, outlook.q_values, -np.inf)
    assert (legal.argmax(axis=1) == greedy(policy, mask)).all()
    assert outlook.value == pytest.approx(legal.max(axis=1))


def test_soft_policies() -> None:
    box = soft(BOX)
    outlook = box.outlook(seen(), {}, FIRST, None)
    assert outlook.mean == pytest.approx(greedy(box))
    x = box.net.encoder(torch.from_numpy(seen()))
    both = box.net.critic(x, torch.from_numpy(greedy(box))).detach().numpy()
    assert outlook.value == pytest.approx(both.min(axis=0))
    discrete = soft(spaces.Discrete(3))
    outlook = discrete.outlook(seen(), {}, FIRST, None)
    assert outlook.probabilities is not None
    assert outlook.q_values is not None
    assert outlook.value == pytest.approx((outlook.probabilities * outlook.q_values).sum(axis=1))


def test_deterministic_policies() -> None:
    kind = action_kind(BOX)
    net = ActorCritics(
        OBS, MLP, n_actor_outputs=2, n_critics=1, n_critic_actions=2, generator=generator()
    )
    policy = DeterministicPolicy(net, OBS, kind, np.random.default_rng(0), 0.0, record=False)
    policy.noise_std = 0.3
    outlook = policy.outlook(seen(), {}, FIRST, None)
    assert outlook.mean == pytest.approx(greedy(policy))
    assert outlook.std == pytest.approx(np.full((N, 2), 0.3))
    assert outlook.value is not None
    assert outlook.value.shape == (N,)
