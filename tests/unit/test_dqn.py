"""DQN's targets on crafted batches, with numbers worked by hand."""

from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import Tensor

from gymnasium_solver.algos.dqn import DQN, DQNConfig, q_losses
from gymnasium_solver.data.replay import ReplayBatch
from gymnasium_solver.errors import ConfigError
from gymnasium_solver.fast import recorded
from gymnasium_solver.nets.heads import CategoricalHead, QuantileHead, huber
from gymnasium_solver.nets.network import Network
from gymnasium_solver.nets.q_network import NoisyLinear, QNetwork, factor_noise
from gymnasium_solver.policies.q_policy import QPolicy
from gymnasium_solver.spaces.actions import DiscreteActions
from tests.acting import best, drawn

OBS, ACTIONS = spaces.Box(-9, 9, (3,), np.float32), spaces.Discrete(3)


def agent(**settings: Any) -> DQN:
    config = DQNConfig(env_id="X", algo_id="dqn", **{"hidden_dims": (), **settings})
    return DQN(config, OBS, ACTIONS, seed=3)


def table(head: Any, values: list[list[float]]) -> None:
    """Q(one-hot state, action) = values[state][action]."""
    layer = head.advantage[0]
    with torch.no_grad():
        layer.weight.copy_(torch.tensor(values).T)
        layer.bias.zero_()


def batch_of(**columns: Any) -> ReplayBatch:
    n = len(columns["state"])
    return ReplayBatch(
        obs=torch.eye(3)[columns["state"]],
        actions=torch.tensor(columns["action"]),
        reward=torch.tensor(columns["reward"], dtype=torch.float32),
        discount=torch.tensor(columns["discount"], dtype=torch.float32),
        next_obs=torch.eye(3)[columns["next_state"]],
        weight=torch.ones(n),
    )


ONLINE = [[1.0, 2.0, 3.0], [5.0, 4.0, 0.0], [0.0, 0.0, 0.0]]
TARGET = [[0.0, 0.0, 0.0], [1.0, 7.0, 2.0], [8.0, 9.0, 10.0]]
STEP = {"state": [0, 0], "action": [2, 0], "reward": [1, 1], "discount": [0.9, 0.0]}


def test_dqn_and_double_dqn_differ_where_the_nets_disagree() -> None:
    a = agent()
    table(a.net.q, ONLINE)
    table(a.target, TARGET)
    batch = batch_of(**STEP, next_state=[1, 1])
    # Plain: the target net's best at state 1 is 7. Double: the online net picks action 0, worth 1
    # in the target net. The second row terminated: its target is the reward alone.
    q, _, plain = q_losses(a.net, a.target, batch, double=False)
    _, _, double = q_losses(a.net, a.target, batch, double=True)
    assert q.tolist() == [3.0, 1.0]
    np.testing.assert_allclose(plain.detach(), [abs(3 - (1 + 0.9 * 7)), 1 - 1], rtol=1e-6)
    np.testing.assert_allclose(double.detach(), [abs(3 - (1 + 0.9 * 1)), 1 - 1], rtol=1e-6)


@pytest.mark.parametrize("double", [False, True])
def test_a_forbidden_action_is_not_bootstrapped_from(double: bool) -> None:
    a = agent()
    table(a.net.q, ONLINE)
    table(a.target, TARGET)
    mask = torch.tensor([[False, False, True], [True, True, True]])
    batch = batch_of(**STEP, next_state=[1, 1])._replace(next_mask=mask)
    _, _, error = q_losses(a.net, a.target, batch, double=double)
    assert error[0].item() == pytest.approx(abs(3 - (1 + 0.9 * 2)))


def test_the_target_gets_no_gradient_and_the_weight_scales_a_row() -> None:
    a = agent(loss="mse", compile=False)
    table(a.net.q, ONLINE)
    table(a.target, TARGET)
    batch = batch_of(**STEP, next_state=[1, 1])._replace(weight=torch.tensor([0.5, 1.0]))
    grad, loss, *_ = a.descent.gradient(batch, [])
    error = 3 - (1 + 0.9 * 7)
    assert loss.item() == pytest.approx(0.5 * error**2 / 2, rel=1e-5)
    weights, _ = grad[:9].view(3, 3), grad[9:]
    expected = np.zeros((3, 3))
    expected[2, 0] = 0.5 * 2 * error / 2  # action 2 in state 0; the other row's error is 0
    np.testing.assert_allclose(weights, expected, atol=1e-5)


def test_huber_is_half_the_square_up_to_one_and_linear_beyond() -> None:
    error = torch.tensor([0.0, 0.5, -1.0, 3.0, -4.0])
    np.testing.assert_allclose(huber(error), [0, 0.125, 0.5, 2.5, 3.5])


def test_c51_projection_by_hand() -> None:
    probs = torch.tensor([[0.2, 0.3, 0.5], [0.2, 0.3, 0.5], [0.2, 0.3, 0.5], [0.0, 0.0, 1.0]])
    reward = torch.tensor([0.5, 0.25, 9.0, -0.5])
    discount = torch.tensor([0.5, 0.0, 1.0, 1.0])
    got = CategoricalHead(3, 0.0, 2.0, "c51").target(probs.log(), reward, discount)
    # Row 0: atoms go to 0.5, 1.0, 1.5: halves of 0.2, all of 0.3, halves of 0.5.
    # Row 1: terminated, all mass at 0.25. Row 2: beyond the top. Row 3: 2 - 0.5 = 1.5.
    expected = [[0.1, 0.65, 0.25], [0.75, 0.25, 0.0], [0.0, 0.0, 1.0], [0.0, 0.5, 0.5]]
    np.testing.assert_allclose(got, expected, atol=1e-6)
    np.testing.assert_allclose(got.sum(1), 1.0, atol=1e-6)


def test_c51_error_is_a_cross_entropy_that_a_perfect_net_minimises() -> None:
    a = agent(distributional=True, n_atoms=3, v_min=0, v_max=2)
    batch = batch_of(state=[0], action=[1], reward=[1.0], discount=[0.0], next_state=[1])
    layer: Any = a.net.q.advantage[0]
    with torch.no_grad():
        layer.weight.zero_()
        layer.bias.zero_()
    q, _, error = q_losses(a.net, a.target, batch, double=False)
    assert q.item() == pytest.approx(1.0)
    assert error.item() == pytest.approx(np.log(3), rel=1e-5)
    with torch.no_grad():
        layer.bias[3:6] = torch.tensor([-20.0, 20.0, -20.0])  # action 1: all on the atom 1
    assert q_losses(a.net, a.target, batch, double=False)[2].item() == pytest.approx(0, abs=1e-6)


def test_c51_chooses_by_the_expected_return_and_by_the_online_net_if_double() -> None:
    a = agent(distributional=True, n_atoms=3, v_min=0, v_max=2)
    for head, choice in ((a.net.q, 0), (a.target, 2)):
        layer: Any = head.advantage[0]
        with torch.no_grad():
            layer.weight.zero_()
            layer.bias.fill_(0.0)
            layer.bias[3 * choice : 3 * choice + 3] = torch.tensor([-20.0, -20.0, 20.0])
    batch = batch_of(state=[0], action=[0], reward=[0.0], discount=[1.0], next_state=[1])
    # Target's best action 2 is surely worth 2; the online net's choice 0 is evenly spread there.
    _, _, plain = q_losses(a.net, a.target, batch, double=False)
    _, _, double = q_losses(a.net, a.target, batch, double=True)
    assert plain.item() == pytest.approx(0.0, abs=1e-5)
    assert double.item() == pytest.approx((40 + 40 + 0) / 3, rel=1e-4)


def q_network(hidden_dims: tuple[int, ...], norm: Any = None, **options: Any) -> QNetwork:
    network = Network(hidden_dims, "relu", norm=norm, block=options.pop("block", "mlp"))
    return QNetwork(OBS, 3, network, generator=torch.Generator().manual_seed(0), **options)


def test_dueling_advantages_have_zero_mean() -> None:
    net = q_network((8,), dueling=True)
    x = torch.randn(5, 3, generator=torch.Generator().manual_seed(1))
    value = net.q.value
    assert value is not None
    np.testing.assert_allclose(net(x).mean(1).detach(), value(x)[:, 0].detach(), atol=1e-5)


NETS: list[dict[str, Any]] = [
    {},
    {"dueling": True},
    {"noisy_sigma": 0.5},
    {"head": CategoricalHead(5, 0.0, 3.0, "c51")},
    {"head": QuantileHead(5)},
    {"norm": "layer"},
    {"norm": "rms", "block": "simba"},
    {"dueling": True, "noisy_sigma": 0.5, "head": CategoricalHead(5, 0.0, 3.0, "c51")},
    {"hidden_dims": ()},
    {"hidden_dims": (7,), "dueling": True},
]


@pytest.mark.parametrize("options", NETS)
def test_acting_in_numpy_equals_the_torch_net_without_noise(options: dict[str, Any]) -> None:
    net = q_network(**{"hidden_dims": (7, 9), **options})
    obs = np.random.default_rng(0).normal(size=(6, 3)).astype(np.float32)
    kind = DiscreteActions(ACTIONS)
    policy = QPolicy(net, OBS, kind, np.random.default_rng(0), "greedy", record=True)
    with torch.no_grad():
        expected = net.head.value(net(torch.from_numpy(obs)))
    net.q.resample(np.random.default_rng(1))  # what an update leaves behind
    found, _ = policy._values(obs, {}, np.zeros(len(obs), bool))
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)
    assert policy._infer._program is not None, "recorded"


def test_noise_of_a_noisy_layer_is_factorised_and_its_own_for_every_row() -> None:
    layer = NoisyLinear(4, 2, 0.5, torch.Generator().manual_seed(0))
    assert layer.weight_sigma[0, 0].item() == pytest.approx(0.25)  # sigma0 / sqrt(n_in)
    x = np.ones((3, 4), np.float32)
    rng, again = np.random.default_rng(5), np.random.default_rng(5)
    noise = [torch.from_numpy(factor_noise(rng, (3, width))) for width in (4, 2)]
    y = layer.with_row_noise(torch.from_numpy(x), *noise).detach().numpy()
    noise_in, noise_out = (
        again.standard_normal((3, 4), np.float32),
        again.standard_normal((3, 2), np.float32),
    )

    def f(e: np.ndarray) -> np.ndarray:
        return np.sign(e) * np.sqrt(np.abs(e))

    for row in range(3):
        spread = np.outer(f(noise_out[row]), f(noise_in[row])) * 0.25
        weight = layer.weight.detach().numpy() + spread
        bias = layer.bias.detach().numpy() + 0.25 * f(noise_out[row])
        np.testing.assert_allclose(y[row], weight @ x[row] + bias, rtol=1e-5, atol=1e-6)
    assert not np.allclose(y[0], y[1])
    layer.resample(np.random.default_rng(6))
    noisy = layer(torch.from_numpy(x)).detach()
    layer.resample(None)
    assert not torch.allclose(noisy, layer(torch.from_numpy(x)).detach())
    assert torch.allclose(noisy[0], noisy[1]), "one noise for a batch that is learnt from"


def policy(exploration: Any) -> QPolicy:
    a = agent()
    table(a.net.q, ONLINE)
    kind = DiscreteActions(ACTIONS)
    return QPolicy(a.net, OBS, kind, np.random.default_rng(0), exploration, record=True)


STATES = np.eye(3, dtype=np.float32)


def test_epsilon_is_drawn_by_every_env_for_itself() -> None:
    p = policy("epsilon_greedy")
    p.epsilon = 0.5
    obs = np.repeat(STATES[:1], 3000, axis=0)
    shares = np.bincount(drawn(p, obs), minlength=3) / 3000
    np.testing.assert_allclose(shares, [1 / 6, 1 / 6, 4 / 6], atol=0.03)


def test_boltzmann_follows_the_temperature() -> None:
    p = policy("boltzmann")
    p.temperature = 2.0
    obs = np.repeat(STATES[:1], 20000, axis=0)
    shares = np.bincount(drawn(p, obs), minlength=3) / 20000
    expected = np.exp(np.array([1, 2, 3]) / 2.0)
    np.testing.assert_allclose(shares, expected / expected.sum(), atol=0.015)


@pytest.mark.parametrize("exploration", ["epsilon_greedy", "boltzmann", "greedy"])
def test_a_forbidden_action_is_never_taken(exploration: str) -> None:
    p = policy(exploration)
    p.epsilon = 0.7
    obs = np.repeat(STATES[:1], 2000, axis=0)
    mask = np.tile([True, True, False], (2000, 1))  # action 2 would be the best
    for is_random in (False, True):
        p.is_random = is_random
        taken = set(drawn(p, obs, mask).tolist())
        assert taken <= {0, 1}
        assert exploration == "greedy" or is_random is False or taken == {0, 1}
    assert set(best(p, obs, mask).tolist()) == {1}


FLAGS: list[dict[str, Any]] = [
    {},
    {"double": True},
    {"dueling": True},
    {"noisy": True},
    {"distributional": True, "v_min": -2.0, "v_max": 4.0, "n_atoms": 11},
    {"double": True, "dueling": True, "noisy": True, "distributional": True, "v_max": 4.0},
    {"loss": "mse"},
]


@pytest.mark.parametrize("flags", FLAGS)
@pytest.mark.parametrize("masked", [False, True])
def test_the_recorded_gradient_is_autograds(flags: dict[str, Any], masked: bool) -> None:
    a = agent(hidden_dims=(16, 8), compile=True, **flags)
    rng = np.random.default_rng(0)

    def column(*shape: int) -> Tensor:
        return torch.from_numpy(rng.normal(size=shape).astype(np.float32))

    def batch(n: int) -> ReplayBatch:
        mask = torch.from_numpy(rng.random((n, 3)) < 0.7)
        mask[:, 0] = True
        return ReplayBatch(
            obs=column(n, 3),
            actions=torch.from_numpy(rng.integers(3, size=n)),
            reward=column(n),
            discount=torch.from_numpy(rng.choice([0, 0.9], n).astype(np.float32)),
            next_obs=column(n, 3),
            weight=column(n).abs(),
            next_mask=mask if masked else None,
        )

    for n in (32, 32, 20):
        a.net.q.resample(a.rng)
        a.target.resample(a.rng)
        b = batch(n)
        got = a.descent.gradient(b, [])
        expected = recorded.eager(a.descent._on_list, a.descent.optimizer.params, b, [])
        for x, y in zip(got, expected, strict=True):
            np.testing.assert_allclose(x, y, rtol=2e-3, atol=1e-5)
    assert a.descent.mode == "recorded"


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"exploration": "noisy"}, "requires noisy: true"),
        ({"distributional": True, "v_min": 3.0, "v_max": 3.0}, "v_max 3.0 must be above v_min"),
        ({"epsilon": 1.5}, "epsilon"),
        ({"updates_per_step": 0}, "updates_per_step"),
        ({"n_step": 0}, "n_step"),
    ],
)
def test_bad_settings_are_refused(settings: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        agent(**settings)
