"""What a loss may be made of to be replayed, what it reads, and what must be left to torch."""

import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

from gymnasium_solver.fast import aten, recorded

WIDTH, HIDDEN, N_ACTIONS = 7, 64, 5
# Products of (256 x 64) and (64 x 64) are large enough for torch's kernels, those of 64 are not.
SIZES = (1, 2, 64, 256, 300)


def columns(n, seed=0):
    """Observations, actions, a mask with at least one True a row, rewards, noise."""
    g = torch.Generator().manual_seed(seed)
    mask = torch.rand(n, N_ACTIONS, generator=g) < 0.6
    mask[:, 2] = True
    return [
        torch.randn(n, WIDTH, generator=g),
        torch.randint(N_ACTIONS, (n,), generator=g),
        mask,
        torch.randn(n, generator=g),
        torch.randn(n, N_ACTIONS, generator=g),
    ]


def linear_net(n_out=N_ACTIONS):
    with torch.random.fork_rng():
        torch.manual_seed(3)
        return nn.Sequential(
            nn.Linear(WIDTH, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, HIDDEN), nn.ReLU(),
            nn.Linear(HIDDEN, n_out),
        )  # fmt: skip


def check(loss, params, coefficients=(), constants=(), sizes=SIZES):
    gradient = recorded.record_gradient(loss, params, columns(256), coefficients, constants)
    assert gradient is not None, "this loss should be replayable"
    for n in sizes:
        batch = columns(n, seed=n)
        before = [column.clone() for column in batch]
        expected = recorded.eager(loss, params, batch, coefficients)
        got = gradient(batch, coefficients)
        for a, b in zip(got, expected, strict=True):
            torch.testing.assert_close(a, b, rtol=1e-3, atol=1e-5)
        assert all(map(torch.equal, batch, before)), "the replay wrote to its inputs"
    return gradient


# -- losses as value-based and actor-critic learners have them ----------------------------------


@pytest.mark.parametrize("double", [False, True])
@pytest.mark.parametrize("masked", [False, True])
def test_dqn(double, masked):
    net, target = linear_net(), linear_net()
    with torch.no_grad():
        for p in target.parameters():
            p.mul_(0.9)

    def loss(batch, coefficients):
        x, actions, mask, reward, _ = batch
        with torch.no_grad():
            next_q = target(x.flip(1))
            choosing = net(x.flip(1)) if double else next_q
            if masked:
                choosing = choosing.masked_fill(~mask, -torch.inf)
            best = choosing.argmax(1, keepdim=True)
            wanted = reward + coefficients[0] * next_q.gather(1, best).squeeze(1)
        q = net(x).gather(1, actions.unsqueeze(1)).squeeze(1)
        error = F.smooth_l1_loss(q, wanted, reduction="none")
        return error.mean(), [(q - wanted).abs(), q.mean()]

    check(loss, list(net.parameters()), [0.9], list(target.parameters()))


class Twin(nn.Module):
    """Two critics as one stack of weights [2, in, out]."""

    def __init__(self, seed):
        super().__init__()
        g = torch.Generator().manual_seed(seed)
        sizes = [(WIDTH + N_ACTIONS, HIDDEN), (HIDDEN, HIDDEN), (HIDDEN, 1)]
        self.weights = nn.ParameterList(
            [nn.Parameter(torch.randn(2, a, b, generator=g) / math.sqrt(a)) for a, b in sizes]
        )
        self.biases = nn.ParameterList(
            [nn.Parameter(0.1 * torch.randn(2, 1, b, generator=g)) for _, b in sizes]
        )

    def forward(self, x):
        h = x.expand(2, *x.shape)
        for i, (weight, bias) in enumerate(zip(self.weights, self.biases, strict=True)):
            h = torch.baddbmm(bias, h.relu() if i else h, weight)
        return h.squeeze(2)


def squashed(outputs, noise):
    mean, log_std = outputs.chunk(2, dim=1)
    u = mean + log_std.clamp(-20, 2).exp() * noise
    log_slope = 2 * (math.log(2) - u - F.softplus(-2 * u))
    return torch.tanh(u), (-0.5 * noise.square() - log_std - log_slope).sum(1)


def test_sac_critics():
    actor, critic, target = linear_net(2 * N_ACTIONS), Twin(1), Twin(2)

    def loss(batch, coefficients):
        x, _, _, reward, noise = batch
        with torch.no_grad():
            actions, log_prob = squashed(actor(x), noise)
            next_q = target(torch.cat([x, actions], 1)).amin(0)
            wanted = reward + 0.9 * (next_q - coefficients[0] * log_prob)
        error = critic(torch.cat([x, noise], 1)) - wanted
        return 0.5 * error.square().mean(1).sum(), [error.abs().mean(0)]

    check(
        loss, list(critic.parameters()), [0.2], [*actor.parameters(), *target.parameters()]
    )  # fmt: skip


def test_sac_actor():
    actor, critic = linear_net(2 * N_ACTIONS), Twin(1)

    def loss(batch, coefficients):
        actions, log_prob = squashed(actor(batch[0]), batch[4])
        q = critic(torch.cat([batch[0], actions], 1)).amin(0)
        return (coefficients[0] * log_prob - q).mean(), [log_prob]

    check(loss, list(actor.parameters()), [0.2], list(critic.parameters()))


# -- one operation after another ----------------------------------------------------------------


def c51(h, b):
    probs = torch.softmax(h, 1)
    support = torch.arange(N_ACTIONS).float()
    wanted = (1 - (b[3].unsqueeze(1) - support).abs()).clamp(min=0)
    return -(wanted.unsqueeze(2) * probs.log().unsqueeze(1)).sum(2).mean()


OPERATIONS = {
    "softmax and sums of it": c51,
    "log_softmax with illegal actions": lambda h, b: -torch.log_softmax(
        h.masked_fill(~b[2], -1e8), 1
    )[:, 2].mean(),
    "logits read again": lambda h, b: (torch.log_softmax(h, 1) * h).mean(),
    "max over a dim": lambda h, b: h.max(1).values.square().mean(),
    "amax over two dims": lambda h, b: h.amax((0, 1)) + h.amin(0).sum(),
    "layer_norm": lambda h, b: (F.layer_norm(h, (N_ACTIONS,)) * b[4]).mean(),
    "batch statistics": lambda h, b: ((h - h.mean(0)) / (h.var(0, correction=0) + 1e-3).sqrt())
    .square()
    .mul(b[4])
    .mean(),
    "an unbiased deviation": lambda h, b: (b[4] / (1 + h.std(0))).mean(),
    "a mean over a mask's count": lambda h, b: (h * b[2] / b[2].sum(1, keepdim=True)).sum(),
    "stack, select and slices": lambda h, b: (
        torch.stack([h, b[4]], 0).select(0, 0)[:, 1:4] * h[:, -1:]
    ).mean(),
    "split and cat": lambda h, b: torch.cat([p * i for i, p in enumerate(h.split(2, 1))], 1)
    .square()
    .mean(),
    "unbind": lambda h, b: sum(c * i for i, c in enumerate(h.unbind(1))).square().mean(),
    "rows by index": lambda h, b: h[torch.arange(len(h)), b[1]].square().mean(),
    "huber": lambda h, b: F.huber_loss(h, b[4], delta=0.5),
    "smooth_l1, mean, beta": lambda h, b: F.smooth_l1_loss(h, b[4], beta=0.5),
    "where and comparisons": lambda h, b: torch.where(
        (h > 0.1) & b[2] | (h <= -0.2), h.square(), 0.5 * h
    ).mean(),
    "an action's one-hot": lambda h, b: (
        h * (b[1].unsqueeze(1) == torch.arange(N_ACTIONS)).float()
    ).sum(1).square().mean(),
    "integers times floats": lambda h, b: (h.mean(1) * (b[1] + 1)).square().mean(),
    "gelu, silu, elu": lambda h, b: (F.gelu(h) + F.silu(h) * F.elu(h)).mean(),
    "sigmoid and logarithms": lambda h, b: (
        torch.sigmoid(h).log() + torch.log1p(h.exp()) + F.softplus(h, beta=2.0)
    ).mean(),
    "powers and roots": lambda h, b: (
        (h.abs() + 1).sqrt() + h**3 + 1 / (h.abs() + 1)
    ).mean(),
    "scaled additions": lambda h, b: torch.add(h, b[4], alpha=0.3)
    .sub(b[4], alpha=2)
    .square()
    .mean(),
    "minimum and maximum": lambda h, b: torch.minimum(h, b[4]).mean()
    - torch.maximum(h, b[3].unsqueeze(1)).mean(),
    "clamps": lambda h, b: (h.clamp(-0.1, 0.2) + h.clamp(max=0.1) + h.clamp(min=-0.1)).mean(),
    "an outer product": lambda h, b: (h[:, :1] @ h[:1]).square().mean(),
    "a stacked product": lambda h, b: torch.bmm(h.unsqueeze(2), b[4].unsqueeze(1)).square().mean(),
    "in place": lambda h, b: (h * 2).masked_fill_(b[2], 0.0).add_(1.0).square().mean(),
    "sums over several dims": lambda h, b: (h.sum((0, 1)) + h.view(-1, 1, N_ACTIONS).sum(2).sum())
    .square(),
}  # fmt: skip


@pytest.mark.parametrize("name", OPERATIONS)
def test_operation(name):
    net, operation = linear_net(), OPERATIONS[name]

    def loss(batch, coefficients):
        return operation(net(batch[0]), batch), []

    sizes = SIZES[1:] if name == "an unbiased deviation" else SIZES  # of one sample there is none
    check(loss, list(net.parameters()), sizes=sizes)


@pytest.mark.parametrize("n", [63, 64, 65])  # around LARGE_ARRAY for 256 columns
def test_operations_give_the_same_on_both_sides_of_the_limits(n):
    g = torch.Generator().manual_seed(n)
    x, y, z = (torch.randn(n, 256, generator=g) for _ in range(3))
    assert aten._threshold_backward(x.numpy(), y.numpy(), 0).tolist() == (x * (y > 0)).tolist()
    assert aten._relu(x.numpy()).tolist() == x.relu().tolist()
    for a, b in ((x, z.T), (x[:, :1], y[:1]), (x.T, z)):
        np.testing.assert_allclose(aten._product(a.numpy(), b.numpy()), a @ b, 1e-4, 1e-4)


# -- what a loss reads -----------------------------------------------------------------------------


def test_constants_are_read_where_they_lie_and_not_differentiated():
    net, scale = linear_net(), nn.Parameter(torch.tensor([1.0, 2.0, 3.0, 4.0, 5.0]))

    def loss(batch, coefficients):
        return (net(batch[0]) * scale).mean(), []

    params = list(net.parameters())
    gradient = check(loss, params, (), [scale])
    before = gradient(columns(64), ())[0].clone()
    assert len(before) == sum(p.numel() for p in params)
    with torch.no_grad():
        scale.mul_(2.0)
    torch.testing.assert_close(gradient(columns(64), ())[0], 2 * before, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("shape", [(), (1,), (5,)], ids=["scalar", "one", "five"])
def test_a_tensor_from_elsewhere_leaves_the_loss_to_torch(shape):
    """Its value would be that of the recording for ever."""
    net, outside = linear_net(), torch.ones(shape)

    def loss(batch, coefficients):
        return (net(batch[0]) * outside).mean(), []

    params = list(net.parameters())
    assert recorded.record_gradient(loss, params, columns(64), ()) is None
    gradient = recorded.LossGradient(loss, params, record=True)
    before = gradient(columns(64), ())[0].clone()
    outside.mul_(3.0)
    torch.testing.assert_close(gradient(columns(64), ())[0], 3 * before, rtol=1e-4, atol=1e-6)


def test_a_literal_scalar_is_part_of_the_loss():
    net = linear_net()

    def loss(batch, coefficients):
        return (net(batch[0]) * torch.tensor(0.5)).mean(), []

    check(loss, list(net.parameters()))


def test_randomness_leaves_the_loss_to_torch():
    net = linear_net()

    def loss(batch, coefficients):
        return (net(batch[0]) * torch.rand(N_ACTIONS)).mean(), []

    assert recorded.record_gradient(loss, list(net.parameters()), columns(64), ()) is None


def test_a_decision_on_data_leaves_the_loss_to_torch():
    net = linear_net()

    def loss(batch, coefficients):
        h = net(batch[0])
        return (h.mean() if batch[3].sum() > 0 else h.sum()), []

    assert recorded.record_gradient(loss, list(net.parameters()), columns(64), ()) is None


# -- results ---------------------------------------------------------------------------------------


def test_outputs_outlive_the_next_call():
    net = linear_net()

    def loss(batch, coefficients):
        h = net(batch[0])
        return h.mean(), [h.sum(1), h]

    gradient = check(loss, list(net.parameters()))
    _, *outputs = gradient(columns(64, seed=1), ())
    copies = [output.clone() for output in outputs]
    gradient(columns(64, seed=2), ())
    assert all(map(torch.equal, outputs, copies))


def test_the_same_bits_whatever_came_before():
    """A resumed run starts with another batch than the run it continues."""
    net = linear_net()

    def loss(batch, coefficients):
        return F.smooth_l1_loss(net(batch[0]), batch[4]), []

    params = list(net.parameters())
    one = recorded.record_gradient(loss, params, columns(256), ())
    two = recorded.record_gradient(loss, params, columns(31, seed=5), ())
    assert one is not None
    assert two is not None
    for n in (17, 256, 250):
        two(columns(n, seed=n), ())
    batch = columns(256, seed=9)
    assert torch.equal(one(batch, ())[0].clone(), two(batch, ())[0])


@pytest.mark.parametrize(("n_odd", "is_used"), [(1, True), (2, False)])
def test_one_sample_tipped_by_rounding_is_no_reason_to_refuse(monkeypatch, n_odd, is_used):
    """An odd sample stands for one that lies almost on a tie; two lie in two quarters."""

    def relu(bias, x, y):
        out = aten._affine(bias, x, y, relu=True)
        out[x[:, 0] == 123.0] += 1.0
        return out

    monkeypatch.setitem(aten.FUSED, ("addmm.default", "relu.default"), relu)
    net, batch = linear_net(), columns(64)
    batch[0][:n_odd, 0] = 123.0

    def loss(batch, coefficients):
        return net(batch[0]).square().mean(), []

    gradient = recorded.record_gradient(loss, list(net.parameters()), batch, ())
    assert (gradient is not None) == is_used
