"""DreamerV3: its losses in closed form, what a batch and an update are, and what is refused.

Several tests are of mistakes that other implementations made: the last action kept over a reset,
initial weights of block layers by block, the first state's continuation left out of the weights,
and values that are not exactly 0 at the start."""

import math
import shutil
from copy import deepcopy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import Tensor, nn

from gymnasium_solver.algos.configs.dreamerv3 import SIZES, DreamerV3Config
from gymnasium_solver.algos.dreamerv3 import DreamerV3, dream_batch
from gymnasium_solver.algos.dreamerv3_losses import (
    Dream,
    DreamBatch,
    barlow_loss,
    behaviour_losses,
    continuation_loss,
    dreamer_loss,
    imagine,
    kl_losses,
    lambda_returns,
    next_range,
    reconstruction_loss,
    replay_critic_loss,
    return_scale,
)
from gymnasium_solver.data.rollout import Rollout
from gymnasium_solver.errors import RunError
from gymnasium_solver.fast.fused import fuse
from gymnasium_solver.nets.heads import SymexpTwoHotHead, symexp, symlog
from gymnasium_solver.nets.image_codec import BlockLinear, ImageDecoder, ImageEncoder
from gymnasium_solver.nets.rssm import DreamerNet
from gymnasium_solver.nets.rssm_scan import drawn, memory_step, step
from gymnasium_solver.policies.latent import IMAGINED
from gymnasium_solver.share.export.deployed import deployed_policy
from gymnasium_solver.spaces.action_dists import BoundedNormalActions
from gymnasium_solver.training.loop import train
from gymnasium_solver.training.prepare import build_config
from tests.world_models import BAD_SETTINGS, NoHostReads, assert_refused

OBS, CHOICE = spaces.Box(-9.0, 9.0, (3,), np.float32), spaces.Discrete(2)
BOX = spaces.Box(-2.0, 2.0, (2,), np.float32)
TINY: dict[str, Any] = {
    "deter_dim": 16, "core_dim": 8, "n_classes": 4, "n_latents": 3, "units": 12, "n_blocks": 4,
    "cnn_depth": 2, "n_atoms": 15, "imagination_steps": 3, "batch_size": 4, "sequence_length": 5,
    "buffer_size": 200, "learning_starts": 10, "compile": False,
}  # fmt: skip
L, B = 5, 4


def config(**more: Any) -> DreamerV3Config:
    own = build_config({"env_id": "CartPole-v1", "algo_id": "dreamerv3", **TINY, **more})
    assert isinstance(own, DreamerV3Config)
    return own


def learner(
    obs: spaces.Space[Any] = OBS, actions: spaces.Space[Any] = CHOICE, **more: Any
) -> DreamerV3:
    return DreamerV3(config(**more), obs, actions, 0)


def image(*shape: int) -> spaces.Box:
    return spaces.Box(0, 255, shape, np.uint8)


def rollout(own: DreamerV3, rows: int = 40, ends: int = 0, seed: int = 0) -> Rollout:
    """Random steps of one env; with `ends` every so many of them a termination and a reset row."""
    rng = np.random.default_rng(seed)
    found: Any = Rollout.allocate(rows, 1, own.observation_space, own.actions)
    for part in found.obs.values() if isinstance(found.obs, dict) else [found.obs]:
        numbers = rng.integers(0, 2, part.shape) if part.dtype.kind in "iu" else rng.normal(
            size=part.shape
        )  # fmt: skip
        part[...] = numbers
    width = own.net.core_width
    found.carry = {"core": rng.normal(size=(rows + 1, 1, width)).astype(np.float16)}
    found.actions[...] = rng.integers(0, 2, found.actions.shape)
    found.reward[...] = rng.normal(size=found.reward.shape)
    found.valid[...] = True
    found.is_first[0] = True
    if ends:
        found.terminated[ends - 1 :: ends + 1] = True
        found.valid[ends :: ends + 1] = False
        found.is_first[ends + 1 :: ends + 1] = True
    return found


def batch_of(own: DreamerV3, ends: int = 0) -> DreamBatch:
    """A batch with its noise."""
    own.remember(rollout(own, ends=ends))
    (sample,) = own.samples(1, {})
    found: DreamBatch = own.on_device(sample)
    n = B * L
    return found._replace(
        latent_noise=own.uniform_noise(L, B, 3),
        dream_noise=own.uniform_noise(3, n, 3),
        action_noise=own._action_noise(3, n),
    )


def numbers(gamma: float = 0.9, ent_coef: float = 0.1) -> dict[str, Tensor]:
    return {"gamma": torch.tensor(gamma), "ent_coef": torch.tensor(ent_coef)}


def trained(*modules: nn.Module) -> None:
    """Output layers that are no longer zero."""
    generator = torch.Generator().manual_seed(2)
    with torch.no_grad():
        for module in modules:
            last: Any = [layer for layer in module.modules() if isinstance(layer, nn.Linear)][-1]
            last.weight.normal_(0.0, 0.3, generator=generator)


# -- maths ------------------------------------------------------------------------------------


def test_two_hot_bins_are_those_of_the_paper() -> None:
    head = SymexpTwoHotHead(255)
    assert head.bins[127] == 0.0
    assert head.bins[128].item() == pytest.approx(math.expm1(20 / 127), rel=1e-4)
    assert head.bins[-1].item() == pytest.approx(math.expm1(20.0), rel=1e-4)
    assert torch.equal(head.bins, -head.bins.flip(0))
    low, high = head.bins[130].item(), head.bins[131].item()
    value = 0.25 * low + 0.75 * high
    log_probs = torch.log_softmax(torch.randn(255, generator=torch.Generator().manual_seed(0)), -1)
    wanted = -(0.25 * log_probs[130] + 0.75 * log_probs[131])
    loss, _ = head.loss(log_probs, torch.tensor(value))
    assert loss.item() == pytest.approx(wanted.item(), rel=1e-4)
    exact, _ = head.loss(log_probs.expand(3, 255), torch.tensor([0.0, 1e12, -1e12]))
    assert exact.tolist() == pytest.approx((-log_probs[[127, 254, 0]]).tolist(), rel=1e-5)


def test_the_value_of_two_hot_outputs() -> None:
    head = SymexpTwoHotHead(255)
    probs = torch.full((255,), 1e-30)
    probs[140], probs[141] = 0.4, 0.6
    wanted = 0.4 * head.bins[140] + 0.6 * head.bins[141]
    assert head.value(probs.log()).item() == pytest.approx(wanted.item(), rel=1e-4)
    # Exactly 0 at the start, although the largest bins are 5e8: also with a shift of all outputs.
    assert head.value(torch.zeros(7, 255)).tolist() == [0.0] * 7
    assert head.value(torch.full((255,), 3.7)).item() == 0.0


def test_divergences_are_balanced_and_free_after_the_sum() -> None:
    generator = torch.Generator().manual_seed(0)
    post, prior = (
        torch.softmax(0.6 * torch.randn(2, 5, 4, generator=generator), -1).requires_grad_()
        for _ in range(2)
    )
    by_hand = torch.distributions.kl_divergence(
        torch.distributions.Categorical(post), torch.distributions.Categorical(prior)
    )
    dynamics, representation = kl_losses(post, prior, 0.0)
    assert torch.allclose(dynamics, by_hand.sum(1), atol=1e-5)
    assert torch.allclose(dynamics, representation)
    assert (
        torch.autograd.grad(dynamics.sum(), post, allow_unused=True, retain_graph=True)[0] is None
    )
    (grad,) = torch.autograd.grad(representation.sum(), prior, allow_unused=True)
    assert grad is None
    # Each latent is below the free nats, their sum is above: not clipped one by one.
    free = (by_hand.max() + by_hand.sum(1).min()).item() / 2
    assert by_hand.max() < free < by_hand.sum(1).min()
    assert torch.allclose(kl_losses(post, prior, free)[0], by_hand.sum(1), atol=1e-5)
    high = by_hand.sum(1).max().item() + 1
    clipped, _ = kl_losses(post, prior, high)
    assert clipped.tolist() == pytest.approx([high, high])
    assert not torch.autograd.grad(clipped.sum(), prior)[0].any()


def test_lambda_returns_by_hand() -> None:
    reward = torch.tensor([9.0, 1.0, 2.0, 3.0]).unsqueeze(1)
    goes_on = torch.tensor([9.0, 0.9, 0.8, 0.7]).unsqueeze(1)
    value = torch.tensor([9.0, 10.0, 20.0, 30.0]).unsqueeze(1)
    r2 = 3.0 + 0.7 * 30.0
    r1 = 2.0 + 0.8 * (0.05 * 20.0 + 0.95 * r2)
    r0 = 1.0 + 0.9 * (0.05 * 10.0 + 0.95 * r1)
    found = lambda_returns(reward, goes_on, torch.full((4, 1), 0.95), value)
    assert found[:, 0].tolist() == pytest.approx([r0, r1, r2])
    # Row 2 is the last of its episode, cut off: the value stands for what would have followed.
    share = torch.tensor([0.95, 0.95, 0.0, 0.95]).unsqueeze(1)
    found = lambda_returns(reward, goes_on, share, value)
    cut = 2.0 + 0.8 * 20.0
    assert found[1, 0].item() == pytest.approx(cut)
    assert found[0, 0].item() == pytest.approx(1.0 + 0.9 * (0.05 * 10.0 + 0.95 * cut))


def test_states_correlate_with_tokens_in_place_of_a_decoder() -> None:
    generator = torch.Generator().manual_seed(0)
    found, tokens = (torch.randn(6, 3, generator=generator) for _ in range(2))
    wanted = 0.0
    for i in range(3):
        for j in range(3):
            a, b = found[:, i], tokens[:, j]
            c = ((a - a.mean()) * (b - b.mean())).sum() / (6 * a.std() * b.std())
            wanted += (c - 1).square().item() if i == j else 5e-4 * c.square().item()
    assert barlow_loss(found, tokens).item() == pytest.approx(wanted, rel=1e-4)
    own = learner(image(48, 48, 3), decoder_free=True)
    net, batch = own.net, batch_of(own)
    total, losses = dreamer_loss(net, own.slow, own.actions, batch, numbers(), own.config)
    others = (
        losses["opt/loss/dynamics"]
        + 0.1 * losses["opt/loss/representation"]
        + losses["opt/loss/reward"]
    )
    others += losses["opt/loss/termination"] + 0.3 * losses["opt/loss/replay_critic"]
    others += losses["opt/loss/policy"] + losses["opt/loss/critic"]
    assert total.item() == pytest.approx(
        (others + 0.05 * losses["opt/loss/reconstruction"]).item(), rel=1e-5
    )
    # Tokens stay as they are: the encoder learns through the states alone.
    assert net.model.project is not None
    seen = net.seen(batch.obs.flatten(0, 1))
    rows = torch.randn(L * B, net.state_width)
    kept = net.tokens(seen)
    assert kept.shape == net.model.project(rows).shape
    assert net.model.decode_image is None
    assert net.shown(rows) == {}


def test_the_discount_is_in_the_label_of_continuation() -> None:
    logits, terminal = torch.tensor([0.3, -1.0]), torch.tensor([0.0, 1.0])
    wanted = nn.functional.binary_cross_entropy_with_logits(
        logits, torch.tensor([0.9, 0.0]), reduction="none"
    )
    found = continuation_loss(logits, terminal, torch.tensor(0.9))
    assert found.tolist() == pytest.approx(wanted.tolist())


def test_the_range_of_returns_follows_slowly_and_is_at_least_one() -> None:
    returns = torch.linspace(0.0, 100.0, 101)
    found = next_range(torch.tensor([1.0, 2.0]), returns)
    assert found.tolist() == pytest.approx([0.99 + 0.05, 1.98 + 0.95])
    assert return_scale(found).item() == pytest.approx(found[1].item() - found[0].item())
    assert return_scale(torch.tensor([0.0, 0.3])).item() == 1.0


def test_latents_are_drawn_by_their_probabilities() -> None:
    probs = torch.tensor([0.2, 0.5, 0.3]).expand(3, 3).clone().requires_grad_()
    hot = drawn(probs, torch.tensor([0.1, 0.69, 0.9999999]))
    assert hot.detach().argmax(1).tolist() == [0, 1, 2]
    assert hot.sum(1).tolist() == [1.0] * 3
    assert drawn(probs, None).argmax(1).tolist() == [1] * 3
    weight = torch.tensor([1.0, 2.0, 3.0])
    (grad,) = torch.autograd.grad((hot * weight).sum(), probs)
    assert torch.equal(grad, weight.expand(3, 3))  # straight through


def test_actions_are_normals_with_a_bounded_mean_and_deviation() -> None:
    kind = BoundedNormalActions(BOX)
    outputs = torch.tensor([[0.5, -9.0, 0.0, 30.0]])
    mean, std = kind.moments(outputs.numpy(), None)
    assert mean[0].tolist() == pytest.approx([math.tanh(0.5), -1.0], abs=1e-5)
    low = 0.1 + 0.9 / (1 + math.exp(-2.0))
    assert std[0].tolist() == pytest.approx([low, 1.0], rel=1e-5)
    action = kind.from_noise(outputs, None, torch.tensor([[1.0, -2.0]]))
    assert action[0].tolist() == pytest.approx([mean[0, 0] + low, -3.0], rel=1e-4)
    normal = torch.distributions.Normal(torch.from_numpy(mean), torch.from_numpy(std))
    log_prob, entropy = kind.log_prob_entropy(outputs, None, action)
    assert log_prob.item() == pytest.approx(normal.log_prob(action).sum().item(), rel=1e-4)
    assert entropy.item() == pytest.approx(normal.entropy().sum().item(), rel=1e-4)
    assert kind.to_env(action.numpy())[0, 1] == -2.0  # clipped for the environment
    assert kind.mode(outputs.numpy())[0].tolist() == pytest.approx(mean[0].tolist())


# -- networks ---------------------------------------------------------------------------------


def test_block_layers_are_blocks_with_the_fan_in_of_all() -> None:
    layer = BlockLinear(64, 128, 4, torch.Generator().manual_seed(0))
    assert layer.weight.std().item() == pytest.approx(64**-0.5, rel=0.05)
    assert layer.weight.abs().max().item() <= 2 * 1.1368 / 8 + 1e-6
    x = torch.randn(3, 4, 16)
    full = torch.block_diag(*layer.weight)
    assert torch.allclose(layer(x).flatten(1), x.flatten(1) @ full, atol=1e-5)


def test_first_outputs() -> None:
    net = learner(n_atoms=255).net
    state = torch.randn(9, net.state_width)
    assert net.values(state).tolist() == [0.0] * 9
    assert net.rewards(state).tolist() == [0.0] * 9
    assert torch.softmax(net.actor(state), 1).detach().numpy() == pytest.approx(0.5, abs=0.02)


@pytest.mark.parametrize(("name", "millions"), [("1m", 1.0), ("12m", 12.0)])
def test_model_sizes(name: str, millions: float) -> None:
    """With images of 64 x 64, for which the authors count."""
    names = ("deter_dim", "core_dim", "n_classes", "units", "cnn_depth")
    more = {"model_size": name, "n_latents": 32, "n_blocks": 8, "n_atoms": 255}
    own = learner(image(64, 64, 3), BOX, **dict.fromkeys(names), **more)
    assert own.config.size == SIZES[name]
    n = sum(p.numel() for p in own.net.parameters()) / 1e6
    assert millions * 0.6 < n < millions * 1.2


def test_latents_have_a_uniform_share() -> None:
    net = learner().net
    with torch.no_grad():
        last: Any = net.rssm.prior_layers[-1]
        last.bias.copy_(torch.tensor([100.0, 0.0, 0.0, 0.0]).repeat(3))
    probs = net.rssm.prior(torch.zeros(2, net.state_width))
    assert probs[0, 0].tolist() == pytest.approx([0.9925, 0.0025, 0.0025, 0.0025], rel=1e-4)


def test_an_episode_starts_without_a_state_and_without_an_action() -> None:
    """Row 1 begins an episode: nothing before it counts, also not the action of its row."""
    net = learner().net
    generator = torch.Generator().manual_seed(0)
    tokens, noise = torch.randn(3, 2, 12, generator=generator), torch.rand(3, 2, 3)
    state, actions = torch.randn(2, net.state_width), torch.eye(2)[torch.tensor([[0, 1]] * 3)]
    is_first = torch.tensor([[False] * 2, [True] * 2, [False] * 2])
    states, _ = net.rssm.observe(tokens, actions, is_first, state, noise)
    other = actions.clone()
    other[:2] = 1.0 - other[:2]
    again, _ = net.rssm.observe(tokens, other, is_first, -state, noise)
    assert not torch.allclose(states[0], again[0])
    assert torch.equal(states[1:], again[1:])
    alone, _ = net.rssm.observe(
        tokens[1:2], torch.zeros(1, 2, 2), torch.zeros(1, 2, dtype=torch.bool),
        torch.zeros(2, net.state_width), noise[1:2],
    )  # fmt: skip
    assert torch.allclose(states[1], alone[0], atol=1e-6)


def test_a_step_is_that_of_the_layers_one_after_the_other() -> None:
    """As the authors write it: blocks of memory side by side with the features of memory, latents
    and action; a GRU on the blocks; the posterior of memory and tokens."""
    own = learner(actions=BOX)
    rssm, silu = own.net.rssm, nn.functional.silu
    generator = torch.Generator().manual_seed(0)
    for parameter in rssm.parameters():
        parameter.data += 0.3 * torch.randn(parameter.shape, generator=generator)
    state, actions = torch.randn(5, 28, generator=generator), torch.rand(5, 2, generator=generator)
    tokens, noise = torch.randn(5, 12, generator=generator), torch.rand(5, 3, generator=generator)
    deter, latent = state.split([16, 12], dim=1)
    features = [rssm.from_deter(deter), rssm.from_latent(latent), rssm.from_action(actions)]
    blocks = deter.unflatten(1, (4, 4))
    shared = torch.cat(features, 1).unsqueeze(1).expand(-1, 4, -1)
    mixed = silu(rssm.mix_norm(rssm.mix(torch.cat([blocks, shared], 2)).flatten(1)))
    reset, candidate, update = rssm.gates(mixed.unflatten(1, (4, 4))).chunk(3, dim=2)
    new = torch.tanh(torch.sigmoid(reset) * candidate)
    update = torch.sigmoid(update - 1.0)
    after = (update * new + (1.0 - update) * blocks).flatten(1)
    probs = rssm.latents.probs(rssm.posterior_layers(rssm.seen(torch.cat([after, tokens], 1))))
    for n in (1, 2):  # a row alone, and in a scan
        first = torch.zeros(n, 5, dtype=torch.bool)
        rows, taken = tokens.expand(n, 5, 12), actions.expand(n, 5, 2)
        states, found = rssm.observe(rows, taken, first, state, noise.expand(n, 5, 3))
        assert torch.allclose(states[0, :, :16], after, atol=1e-6)
        assert torch.equal(states[0, :, 16:], drawn(probs, noise).flatten(1).detach())
        assert torch.allclose(found[0], probs, atol=1e-6)
    later = rssm.imagine(state, actions, noise)
    assert torch.allclose(later[:, :16], after, atol=1e-6)
    assert torch.equal(later[:, 16:], drawn(rssm.prior(after), noise).flatten(1).detach())


def test_the_written_gradient_is_that_of_autograd() -> None:
    """Row by row with an episode that begins within; of states, latents, inputs and weights."""
    rssm = learner().net.rssm.double()
    generator = torch.Generator().manual_seed(0)

    def normal(*shape: int) -> Tensor:
        return torch.randn(shape, generator=generator, dtype=torch.float64)

    for parameter in rssm.parameters():  # no zeros, no ones
        parameter.data = parameter.data + 0.1 * normal(*parameter.shape)
    tokens, actions, state = normal(4, 3, 12), normal(4, 3, 2), normal(3, 28)
    is_first = torch.tensor([[False] * 3, [False, True, False], [False] * 3, [True, False, False]])
    noise, keep = torch.rand(4, 3, 3, generator=generator), (~is_first).double().unsqueeze(-1)
    inputs = [part.requires_grad_() for part in (tokens, actions, state)]
    by_state, by_probs = normal(4, 3, 28), normal(4, 3, 3, 4)

    def gradients(states: Tensor, probs: Tensor) -> list[Tensor | None]:
        total = (states * by_state).sum() + (probs * by_probs).sum()
        wanted = [*inputs, *rssm.parameters()]
        return list(torch.autograd.grad(total, wanted, allow_unused=True))

    found = rssm.observe(tokens, actions, is_first, state, noise)
    given = rssm.from_action(actions * keep)
    seen = nn.functional.linear(tokens, rssm.seen.weight[:, 16:], rssm.seen.bias)
    rows, weights, last = [], rssm.weights(), state
    for t in range(4):
        rows.append(step(weights, rssm.latents, last * keep[t], given[t], seen[t], noise[t]))
        last = rows[-1][0]
    plain = torch.stack([row[0] for row in rows]), torch.stack([row[1] for row in rows])
    assert torch.allclose(found[0], plain[0])
    assert torch.allclose(found[1], plain[1])
    names = ["tokens", "actions", "state", *(name for name, _ in rssm.named_parameters())]
    for name, a, b in zip(names, gradients(*found), gradients(*plain), strict=True):
        assert (a is None) == (b is None) == name.startswith("prior"), name
        if a is not None and b is not None:
            assert torch.allclose(a, b, rtol=1e-8, atol=1e-10), name


def test_sequences_in_bf16() -> None:
    """Products are rounded; states, latents and gradients stay in single precision."""
    rssm = learner(actions=BOX).net.rssm
    generator = torch.Generator().manual_seed(0)
    tokens, actions = (torch.randn(4, 3, n, generator=generator) for n in (12, 2))
    given = (tokens, actions, torch.zeros(4, 3, dtype=torch.bool), torch.zeros(3, 28))
    noise = torch.rand(4, 3, 3, generator=generator)
    found = []
    for is_on in (False, True):
        with torch.autocast("cpu", torch.bfloat16, enabled=is_on):
            states, probs = rssm.observe(*given, noise)
        total = states[..., :16].square().sum() + probs.float().square().sum()
        found.append((states, torch.autograd.grad(total, [rssm.mix.weight, rssm.seen.weight])))
    (states, grads), (rounded, near) = found
    assert rounded.dtype == torch.float32
    assert torch.allclose(rounded, states, atol=0.05)
    for a, b in zip(grads, near, strict=True):
        assert b.dtype == torch.float32
        assert (a - b).norm() < 0.1 * a.norm()


def test_the_memory_starts_by_keeping_most() -> None:
    """The update gate has a bias of -1; candidates are between -1 and 1."""
    rssm = learner().net.rssm
    with torch.no_grad():
        rssm.gates.weight.zero_()
    state = torch.cat([torch.full((1, 16), 0.5), torch.zeros(1, 12)], 1)
    after = memory_step(rssm.weights(), state, torch.zeros(1, 8))
    assert after[0, 0].item() == pytest.approx(0.5 * (1 - 1 / (1 + math.exp(1.0))), rel=1e-5)


def test_actions_beyond_the_bounds_are_read_as_the_bounds() -> None:
    net = learner(actions=BOX).net
    found = net.action_input(torch.tensor([[0.5, -3.0], [2.0, -0.1]]))
    assert found.flatten().tolist() == pytest.approx([0.5, -1.0, 1.0, -0.1])
    one_hot = learner().net.action_input(torch.tensor([[1], [0]]))
    assert one_hot.tolist() == [[[0.0, 1.0]], [[1.0, 0.0]]]


def test_the_size_of_a_single_number_reaches_the_model() -> None:
    """A norm over w * a has the same outputs for all a of one sign."""
    rssm = learner(actions=spaces.Box(-1.0, 1.0, (1,))).net.rssm
    small, large = rssm.from_action(torch.tensor([[0.2], [0.9]]))
    assert (small - large).norm() > 0.2 * large.norm()
    one_of_two: Any = learner().net.rssm.from_action[0]
    assert not one_of_two.bias.any()  # choices have weights of their own


def test_images_are_encoded_and_decoded() -> None:
    generator = torch.Generator().manual_seed(0)
    encode = ImageEncoder(3, (48, 64), 2, generator)
    assert encode(torch.rand(2, 3, 48, 64)).shape == (2, encode.width)
    assert encode.width == 8 * 3 * 4
    decode = ImageDecoder(3, (48, 64), 2, 6, 16, 12, 4, generator)
    images = decode(torch.randn(2, 16), torch.randn(2, 12))
    assert images.shape == (2, 3, 48, 64)
    assert ((images > 0) & (images < 1)).all()


# -- batches ----------------------------------------------------------------------------------


def test_rows_of_a_batch() -> None:
    """A row has the reward that came with its observation; the final observation of an episode is
    a row, from which no return goes on."""
    own = learner()
    own.remember(rollout(own, ends=3))  # steps 0 1 2, reset row 3, steps 4 5 6, reset row 7, ...
    assert own.memory is not None
    rows = own.memory.replay.sequences(np.array([1]), 5, carry_row=1)
    batch = dream_batch(rows, scale=2.0, clip=1.0)
    replay: Any = own.memory.replay
    reward = np.clip(2.0 * replay._columns["reward"][:, 0], -1, 1)
    np.testing.assert_array_equal(batch.obs[:, 0], replay._columns["obs"][2:7, 0])
    np.testing.assert_allclose(batch.reward[:, 0], [reward[1], reward[2], 0, *reward[4:6]])
    assert batch.terminal[:, 0].tolist() == [0, 1, 0, 0, 0]
    assert batch.last[:, 0].tolist() == [0, 1, 0, 0, 0]
    assert batch.is_first[:, 0].tolist() == [False, False, True, False, False]
    np.testing.assert_array_equal(batch.core, replay._columns["carry.core"][2])
    assert batch.core.dtype == np.float32


def test_the_carry_has_the_state_and_the_last_action() -> None:
    own = learner(actions=BOX)
    policy, obs = own.policy, np.zeros((3, 3), np.float32)
    first, later = np.ones(3, bool), np.zeros(3, bool)
    policy.is_random = True  # also of random actions
    acted = policy.sample(obs, policy.initial_carry(3), first)
    np.testing.assert_array_equal(acted.carry["core"][:, -2:], acted.actions)
    assert policy.recorded_carry(acted.carry)["core"].dtype == np.float16
    policy.is_random = False
    after = policy.greedy(obs, acted.carry, later)
    np.testing.assert_allclose(after.carry["core"][:, -2:], after.actions)
    other = policy.took(after.carry, np.array([[2.0, -1.0]] * 3, np.float32))  # of a person
    np.testing.assert_allclose(other["core"][:, -2:], [[1.0, -0.5]] * 3)
    np.testing.assert_array_equal(other["core"][:, :-2], after.carry["core"][:, :-2])
    found = []
    for carry, is_first in ((acted.carry, first), (policy.initial_carry(3), later)):
        policy.rng = np.random.default_rng(0)
        found.append(policy.greedy(obs, carry, is_first).carry["core"])
    np.testing.assert_allclose(found[0], found[1], atol=1e-6)  # a new episode forgets the carry


def test_greedy_actions_draw_latents_and_take_the_most_likely_action() -> None:
    own = learner(actions=BOX)
    obs, first = np.ones((3, 3), np.float32), np.ones(3, bool)
    carry, policy = own.policy.initial_carry(3), own.policy
    policy.rng = np.random.default_rng(3)
    acted = policy.greedy(obs, carry, first)
    noise = torch.from_numpy(np.random.default_rng(3).random((3, 3), dtype=np.float32))
    with torch.no_grad():
        state = own.net.advance(torch.from_numpy(obs), torch.from_numpy(carry["core"]),
                                torch.from_numpy(first), noise)  # fmt: skip
        mean = torch.tanh(own.net.actor(state)[:, :2]).numpy()
    np.testing.assert_allclose(acted.carry["core"][:, :-2], state.numpy(), atol=1e-6)
    np.testing.assert_allclose(acted.actions, mean, atol=1e-6)


def test_what_is_imagined_beside_an_episode() -> None:
    """From every 50th state, with the actions that were taken and without observations."""
    own = learner(spaces.Dict(a=OBS, b=spaces.Discrete(3)))
    net, policy, loop = own.net, own.policy, own.policy.open_loop(2)
    rng, first, carry = np.random.default_rng(0), np.ones(2, bool), policy.initial_carry(2)
    state, draws = torch.zeros(2, net.state_width), np.random.default_rng(0)
    for t in range(IMAGINED + 2):
        numbers = rng.normal(size=(2, 3)).astype(np.float32)
        obs: dict[str, np.ndarray] = {"a": numbers, "b": rng.integers(0, 3, 2)}
        acted = policy.sample(obs, carry, first)
        found = loop(carry, acted.carry, first)
        noise = torch.from_numpy(draws.random((2, 3), dtype=np.float32))
        after = torch.from_numpy(acted.carry["core"][:, : net.state_width])
        with torch.no_grad():
            last = torch.eye(2)[carry["core"][:, -1].astype(int)]
            state = after if t % IMAGINED == 0 else net.rssm.imagine(state, last, noise)
            shown = net.reconstructed(state).numbers
        assert shown is not None
        wanted = torch.cat([symexp(shown[:, :3]), torch.softmax(shown[:, 3:], 1)], 1).numpy()
        np.testing.assert_allclose(found.imagined[""], wanted, atol=1e-4)
        assert np.allclose(found.imagined[""], found.reconstructed[""]) == (t % IMAGINED == 0)
        carry, first = acted.carry, np.zeros(2, bool)


def test_an_export_is_refused_in_one_line() -> None:
    with pytest.raises(RunError, match="draws the latents") as caught:
        deployed_policy(learner(), None, False)  # type: ignore[arg-type]
    assert len(str(caught.value).splitlines()) == 1


# -- losses -----------------------------------------------------------------------------------


def test_what_is_imagined_follows_the_actor_and_the_prior() -> None:
    own = learner()
    batch = batch_of(own)
    start = torch.randn(B * L, own.net.state_width)
    dream = imagine(own.net, own.actions, start, batch)
    assert dream.states.shape == (4, B * L, own.net.state_width)
    assert not dream.states.requires_grad
    with torch.no_grad():
        state = start
        for t in range(3):
            action = own.actions.from_noise(own.net.actor(state), None, batch.action_noise[t])
            assert torch.equal(action, dream.actions[t])
            given = own.net.rssm.from_action(torch.eye(2)[action])
            deter = memory_step(own.net.rssm.weights(), state, given)
            latent = drawn(own.net.rssm.prior(deter), batch.dream_noise[t])
            state = torch.cat([deter, latent.flatten(1)], 1)
            assert torch.allclose(state, dream.states[t + 1], atol=1e-6)


def test_losses_of_actor_and_critic_by_hand() -> None:
    own = learner()
    net, slow = own.net, own.slow
    trained(net.critic, net.model.reward, net.model.continuation, slow)
    generator = torch.Generator().manual_seed(0)
    states = torch.randn(3, 6, net.state_width, generator=generator)
    actions = torch.randint(0, 2, (2, 6), generator=generator)
    found, _, returns = behaviour_losses(
        net, slow, own.actions, Dream(states, actions), numbers(), 0.95
    )
    with torch.no_grad():
        c, v, r = net.continues(states), net.values(states), net.rewards(states)
        r1 = r[2] + c[2] * v[2]
        r0 = r[1] + c[1] * (0.05 * v[1] + 0.95 * r1)
        assert torch.allclose(returns, torch.stack([r0, r1]), atol=1e-5)
        weight = torch.stack([c[0], c[0] * c[1]])  # also of the first state
        scale = return_scale(next_range(torch.zeros(2), returns))
        log_probs = torch.log_softmax(net.actor(states[:-1]), -1)
        chosen = log_probs.gather(2, actions.unsqueeze(2)).squeeze(2)
        entropy = -(log_probs.exp() * log_probs).sum(2)
        gain = chosen * (returns - v[:-1]) / scale + 0.1 * entropy
        assert found["policy"].item() == pytest.approx(-(weight * gain).mean().item(), rel=1e-4)
        outputs = net.critic(states[:-1])
        held = net.head.value(slow(states[:-1]))
        fitted = net.head.loss(outputs, returns)[0] + net.head.loss(outputs, held)[0]
        assert found["critic"].item() == pytest.approx((weight * fitted).mean().item(), rel=1e-4)
    total = found["policy"] + found["critic"]
    total.backward()
    assert all(p.grad is None for p in net.model.parameters())
    assert all(p.grad is not None for p in (*net.actor.parameters(), *net.critic.parameters()))


def test_returns_of_the_replay_stop_at_the_end_of_an_episode() -> None:
    own = learner()
    net = own.net
    trained(net.critic, own.slow)
    states = torch.randn(4, 1, net.state_width)
    after, reward = torch.tensor([1.0, 2.0, 3.0, 4.0]), torch.tensor([0.0, 1.0, 5.0, 0.0])

    def loss(terminal: list[float], after: Tensor = after) -> Tensor:
        batch = DreamBatch(
            None, None, reward.view(4, 1), torch.tensor(terminal).view(4, 1),
            torch.tensor([0.0, 0.0, 1.0, 0.0]).view(4, 1), None, None,
        )  # fmt: skip
        given = (net, own.slow, states, batch, after.view(4, 1), torch.tensor(0.9), 0.95)
        return replay_critic_loss(*given)

    with torch.no_grad():
        outputs, held = net.critic(states[:-1]), net.head.value(own.slow(states[:-1]))
        r1 = 5.0 + 0.9 * 3.0  # cut off: worth what is imagined there
        r0 = 1.0 + 0.9 * (0.05 * 2.0 + 0.95 * r1)
        wanted = torch.tensor([r0, r1, 0.0]).view(3, 1)
        fitted = net.head.loss(outputs, wanted)[0] + net.head.loss(outputs, held)[0]
        assert loss([0, 0, 0, 0]).item() == pytest.approx((fitted[:2].sum() / 3).item(), rel=1e-4)
        other = torch.tensor([1.0, 2.0, -50.0, 4.0])
        assert loss([0, 0, 0, 0]) != loss([0, 0, 0, 0], other)
        assert loss([0, 0, 1, 0]) == loss([0, 0, 1, 0], other)  # terminated: worth nothing more


def test_the_whole_loss_and_where_its_gradients_go() -> None:
    own = learner()
    trained(own.net.critic, own.slow, own.net.model.reward)
    batch = batch_of(own, ends=3)
    total, found = dreamer_loss(own.net, own.slow, own.actions, batch, numbers(), own.config)
    by_hand = (
        found["opt/loss/dynamics"]
        + 0.1 * found["opt/loss/representation"]
        + found["opt/loss/reconstruction"]
    )
    by_hand += (
        found["opt/loss/reward"]
        + found["opt/loss/termination"]
        + 0.3 * found["opt/loss/replay_critic"]
    )
    by_hand += found["opt/loss/policy"] + found["opt/loss/critic"]
    assert total.item() == pytest.approx(by_hand.item(), rel=1e-5)
    names = [name for name, _ in own.net.named_parameters()]
    grads = torch.autograd.grad(total, list(own.net.parameters()), retain_graph=True)
    unreached = [n for n, g in zip(names, grads, strict=True) if not g.abs().max() > 0]
    assert unreached == []
    with torch.no_grad():
        assert own.net.return_range.tolist() == [0.0, 0.0]  # the loss changes nothing
    tokens: Any = own.net.model.encode_numbers
    (grad,) = torch.autograd.grad(
        found["opt/loss/replay_critic"], [tokens[0].weight], retain_graph=True
    )
    assert grad.abs().max() > 0  # reaches the encoder
    assert all(p.grad is None for p in own.slow.parameters())


def test_numbers_choices_and_images_are_reconstructed() -> None:
    space = spaces.Dict(
        camera=spaces.Box(0, 255, (48, 48, 3), np.uint8), goal=spaces.Discrete(3),
        pose=spaces.Box(-9.0, 9.0, (2,), np.float32),
    )  # fmt: skip
    own = learner(space)
    net = own.net
    obs = {
        "camera": torch.randint(0, 256, (2, 48, 48, 3), dtype=torch.uint8),
        "goal": torch.tensor([2, 0]), "pose": torch.tensor([[5.0, -1.0], [0.0, 2.0]]),
    }  # fmt: skip
    seen = net.seen(obs)
    assert seen.numbers is not None
    assert seen.image is not None
    assert torch.allclose(seen.numbers[:, :2], symlog(obs["pose"]))
    assert seen.numbers[:, 2:].tolist() == [[0, 0, 1], [1, 0, 0]]
    found = net.reconstructed(torch.randn(2, net.state_width))
    assert found.numbers is not None
    assert found.image is not None
    wanted = (found.numbers[:, :2] - symlog(obs["pose"])).square().sum(1)
    wanted = wanted + nn.functional.cross_entropy(
        found.numbers[:, 2:], obs["goal"], reduction="none"
    )
    planes = obs["camera"].permute(0, 3, 1, 2) / 255
    wanted = wanted + (found.image - planes).square().flatten(1).sum(1)
    assert torch.allclose(reconstruction_loss(net, found, seen), wanted, rtol=1e-4)
    metrics = own.update(rollout(own, 20), 0, 100)
    assert np.isfinite(float(metrics["opt/loss/reconstruction"]))


# -- the update -------------------------------------------------------------------------------


def test_what_one_update_changes() -> None:
    own = learner()
    own.remember(rollout(own))
    net = own.net
    before = {name: value.clone() for name, value in net.state_dict().items()}
    was = {name: value.clone() for name, value in own.slow.state_dict().items()}
    (sample,) = own.samples(1, {})
    learnt = own.step(own.on_device(sample), {"policy_lr": 1e-3, "ent_coef": 3e-4}, None)
    assert float(learnt.metrics["opt/imagined/scale"]) == 1.0
    after = net.state_dict()
    for part in ("model.rssm.mix", "model.reward", "actor", "critic", "model.decode_numbers"):
        names = [name for name in before if name.startswith(part)]
        largest = max((after[name] - before[name]).abs().max().item() for name in names)
        assert largest == pytest.approx(1e-3, rel=0.02), part  # the first step of LaProp
    for name, value in own.slow.state_dict().items():
        assert torch.allclose(value, was[name] + 0.02 * (after[f"critic.{name}"] - was[name]))
    group = own.descent.optimizer.groups[0]
    assert (group.kind, group.agc, group.eps) == ("laprop", 0.3, 1e-20)


@pytest.mark.parametrize("actions", [CHOICE, BOX])
def test_layers_that_read_actions_are_not_taken_for_dead(actions: spaces.Space[Any]) -> None:
    """They were: all rows of the measured pass began an episode, where there is no action."""
    own = learner(actions=actions)
    batch, found = batch_of(own), list[Tensor]()
    layer = own.net.rssm.from_action
    layer.register_forward_hook(lambda module, inputs, outputs: found.append(outputs.detach()))
    own.forward_all(batch)
    assert found[0].shape[:2] == (1, L * B)
    assert (found[0].std(1) > 0).any()


def test_updates_are_due_by_the_train_ratio() -> None:
    own = learner(learning_starts=20, updates_per_step=0.5)
    assert own.remember(rollout(own, 10)) == 0
    assert own.remember(rollout(own, 10)) == 5
    assert own.remember(rollout(own, 3)) == 1
    assert own.remember(rollout(own, 1)) == 1


@pytest.mark.parametrize(
    "compiles",
    [
        False,
        pytest.param(
            True,
            marks=[
                pytest.mark.slow,
                pytest.mark.skipif(shutil.which("g++") is None, reason="no g++ for a CPU"),
            ],
        ),
    ],
)
def test_a_row_is_fused_once_and_computes_the_same(compiles: bool) -> None:
    own = learner(actions=BOX)
    trained(own.net.critic, own.slow, own.net.model.reward)
    batch, rows, fused = batch_of(own, ends=3), own.net.rssm.rows, list[str]()

    def gradients() -> list[Tensor]:
        total, _ = own.loss(batch, numbers())
        return [total, *torch.autograd.grad(total, list(own.net.parameters()))]

    def counted(row: Any, inputs: Any) -> Any:
        fused.append(row.__name__)
        return fuse(row, inputs) if compiles else row

    wanted = gradients()
    rows.fuse = counted
    for _ in range(2):
        for found, plain in zip(gradients(), wanted, strict=True):
            assert torch.allclose(found, plain, rtol=1e-4, atol=1e-5)
    assert fused == ["forward", "dream", "backward"]
    assert deepcopy(own.net).rssm.rows._fused == {}  # they read the weights of this network
    if compiles:
        assert all(row is not None and row.__name__ == "fused" for row in rows._fused.values())


def test_the_loss_reads_nothing_on_the_host() -> None:
    own = learner()
    batch = batch_of(own, ends=3)
    with NoHostReads():
        total, _ = own.loss(batch, numbers())
        total.backward()


# -- bad input --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        *((fields, text.format("dreamerv3")) for fields, text in BAD_SETTINGS),
        ({"activation": "tanh"}, "activation: dreamerv3 does not have it"),
        ({"deter_dim": 18}, "deter_dim 18 is not a multiple of n_blocks 4"),
        ({"n_atoms": 20}, "n_atoms 20 must be odd"),
        ({"sequence_length": 1}, "sequence_length"),
        ({"imagination_steps": 0}, "imagination_steps"),
    ],
)
def test_bad_settings_are_refused_in_one_line(fields: dict[str, Any], message: str) -> None:
    assert_refused(config, message=message, **fields)


@pytest.mark.parametrize(
    ("obs", "actions", "fields", "message"),
    [
        (OBS, spaces.MultiBinary(3), {}, "needs Discrete or Box actions"),
        (OBS, spaces.Box(-np.inf, np.inf, (2,)), {}, "finite bounds"),
        (image(84, 84, 3), CHOICE, {}, "not 84 x 84; resize them"),
        (OBS, CHOICE, {"decoder_free": True}, "decoder_free: learns from images, but"),
        (image(48, 48, 3), CHOICE, {"normalize_obs": "rolling"}, "remove normalize_obs"),
        (spaces.Discrete(5000), CHOICE, {}, "would be embedded"),
        (
            spaces.Dict(a=image(48, 48, 3), b=image(64, 64, 3)), CHOICE, {},
            "images of one size, but there are 48 x 48, 64 x 64",
        ),
    ],
)  # fmt: skip
def test_spaces_that_do_not_fit_are_refused_in_one_line(
    obs: Any, actions: Any, fields: dict[str, Any], message: str
) -> None:
    assert_refused(learner, obs, actions, message=message, **fields)


def test_it_trains_evaluates_and_saves(tmp_path: Path) -> None:
    own = config(
        max_env_steps=60, n_envs=2, n_steps=15, eval_episodes=2, updates_per_step=0.1, seed=1,
        test_episodes=2, max_episode_steps=10,
    )  # fmt: skip
    run = train(own, runs_root=tmp_path)
    assert run.status == "finished"
    assert (tmp_path / run.id / "checkpoints" / "last").exists()


def test_the_network_can_be_called() -> None:
    net = learner().net
    assert isinstance(net, DreamerNet)
    assert len(net(torch.zeros(2, 3))) == 7
