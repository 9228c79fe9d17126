"""TD-MPC2: its losses in closed form, what an update does in which order, and what is refused.

Several tests are of mistakes that other implementations made: initial weights of stacked critics,
dropout in targets, the scale of values from all latent states, entropy after the squashing."""

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import Tensor

from gymnasium_solver.algos.configs.tdmpc2 import SIZES, TDMPC2Config
from gymnasium_solver.algos.tdmpc2 import TDMPC2
from gymnasium_solver.algos.tdmpc2_losses import (
    ModelBatch,
    PolicyBatch,
    model_loss,
    next_scale,
    policy_loss,
    step_weights,
    td_targets,
    termination_loss,
)
from gymnasium_solver.algos.units import percentiles
from gymnasium_solver.data.rollout import Rollout
from gymnasium_solver.errors import ConfigError
from gymnasium_solver.nets.blocks import Mish, StackedLinear
from gymnasium_solver.nets.heads import SymlogCategoricalHead, symexp, symlog
from gymnasium_solver.nets.world_model import (
    WorldModel,
    lowest_of_picked,
    mean_of_picked,
    shifted,
)
from gymnasium_solver.policies.planner import Drawn, draw, plan
from gymnasium_solver.training.loop import train
from gymnasium_solver.training.prepare import build_config
from tests.world_models import BAD_SETTINGS, NoHostReads, assert_refused

OBS, ACTIONS = spaces.Box(-1.0, 1.0, (3,), np.float32), spaces.Box(-2.0, 2.0, (2,), np.float32)
TINY: dict[str, Any] = {
    "enc_dim": 16, "mlp_dim": 32, "latent_dim": 16, "n_critics": 3, "batch_size": 8,
    "n_samples": 16, "n_policy_samples": 4, "n_elites": 4, "plan_iterations": 2,
    "buffer_size": 500, "learning_starts": 20, "compile": False,
}  # fmt: skip
NUMBERS = {"scale": torch.ones(()), "entropy": torch.tensor(1e-4)}
N, H = 6, 3


def config(**more: Any) -> TDMPC2Config:
    own = build_config({"env_id": "Pendulum-v1", "algo_id": "tdmpc2", **TINY, **more})
    assert isinstance(own, TDMPC2Config)
    return own


def learner(seed: int = 0, obs: spaces.Space[Any] = OBS, **more: Any) -> TDMPC2:
    return TDMPC2(config(**more), obs, ACTIONS, seed)


def model_batch(net: WorldModel, seed: int = 0, **more: Any) -> ModelBatch:
    generator = torch.Generator().manual_seed(seed)

    def normal(*shape: int) -> Tensor:
        return torch.randn(shape, generator=generator)

    pick = torch.tensor([1.0, 0.0, 1.0]).expand(N, 3).contiguous()
    ones = torch.ones(N, H)
    given = ModelBatch(
        normal(N, H + 1, 3), normal(N, H, 2).tanh(), normal(N, H), ones, ones, normal(N, H, 2), pick
    )
    return given._replace(**more)


def policy_batch(net: WorldModel, **more: Any) -> PolicyBatch:
    generator = torch.Generator().manual_seed(1)
    z = torch.softmax(torch.randn(N, H + 1, 2, 8, generator=generator), -1).flatten(2)
    noise = torch.randn(N, H + 1, 2, generator=generator)
    pick = torch.tensor([1.0, 0.0, 1.0]).expand(N, 3).contiguous()
    return PolicyBatch(z, torch.ones(N, H + 1), noise, pick)._replace(**more)


def trained(module: Any) -> None:
    """Output layers that are no longer zero, of a model or of critics."""
    generator = torch.Generator().manual_seed(2)
    critic = module.critic if isinstance(module, WorldModel) else module
    layers: list[Any] = [critic.mlps.layers[-1]]
    if isinstance(module, WorldModel):
        layers.append(module.dynamics.reward[-1])
    with torch.no_grad():
        for layer in layers:
            layer.weight.normal_(0.0, 0.3, generator=generator)


# -- maths ------------------------------------------------------------------------------------


def test_two_hot_bins_are_of_the_symlog_of_a_value() -> None:
    head = SymlogCategoricalHead(101, -10.0, 10.0)
    values = torch.tensor([0.0, 1.0, -7.3, 1234.5, -20_000.0])
    wanted = head.known(values)
    assert wanted.sum(1).tolist() == pytest.approx([1.0] * 5)
    assert ((wanted > 1e-4).sum(1) <= 2).all()
    assert head.value(wanted.clamp(min=1e-30).log()).tolist() == pytest.approx(
        values.tolist(), rel=1e-3, abs=1e-4
    )
    assert wanted[0, 50] == pytest.approx(1.0)  # zero has a bin of its own
    place = (math.log(2.0) + 10.0) / 0.2
    assert wanted[1, 53] == pytest.approx(1 - (place - 53), abs=1e-4)
    assert head.value(torch.zeros(101)).item() == pytest.approx(0.0, abs=1e-5)  # first weights
    assert head.known(torch.tensor([1e9])).argmax() == 100  # clipped, and not wrapped around


def test_symlog_and_its_inverse() -> None:
    x = torch.tensor([-5.0, -0.1, 0.0, 2.0, 3000.0])
    assert symlog(x)[3].item() == pytest.approx(math.log(3.0))
    assert symexp(symlog(x)).tolist() == pytest.approx(x.tolist(), rel=1e-4)


def test_mish_is_that_of_torch() -> None:
    x = torch.linspace(-30.0, 40.0, 141, requires_grad=True)
    own, theirs = Mish()(x), torch.nn.functional.mish(x)
    assert torch.allclose(own, theirs, atol=1e-6)
    (a,) = torch.autograd.grad(own.sum(), x, retain_graph=True)
    (b,) = torch.autograd.grad(theirs.sum(), x)
    assert torch.allclose(a, b, atol=1e-5)


def test_a_latent_state_has_groups_that_sum_to_one() -> None:
    net = learner().net
    z = net.encode(torch.randn(5, 3))
    assert z.shape == (5, 16)
    assert (z > 0).all()
    assert z.view(5, 2, 8).sum(2).flatten().tolist() == pytest.approx([1.0] * 10, abs=1e-5)
    assert net.next(z, torch.zeros(5, 2)).view(5, 2, 8).sum(2).detach().numpy() == pytest.approx(
        1.0
    )


def test_steps_weigh_rho_to_the_power_of_t() -> None:
    valid = torch.tensor([[1.0, 1.0, 1.0], [1.0, 0.0, 0.0]])
    assert step_weights(valid, 0.5).tolist() == [
        pytest.approx([1 / 3, 0.5 / 3, 0.25 / 3]),
        pytest.approx([1 / 3, 0.0, 0.0]),
    ]


def test_rho_depends_on_terminations() -> None:
    assert config().step_weight == 0.7
    assert config(episodic=False).step_weight == 0.5
    assert config(rho=0.9).step_weight == 0.9


def test_percentiles_are_interpolated() -> None:
    values = torch.randn(37)
    for share, found in zip((0.05, 0.5, 0.95), percentiles(values, (0.05, 0.5, 0.95)), strict=True):
        assert found.item() == pytest.approx(torch.quantile(values, share).item(), abs=1e-6)


def test_picked_critics() -> None:
    q = torch.tensor([[1.0, 1.0], [-9.0, -9.0], [3.0, -3.0]])
    pick = torch.tensor([[1.0, 1.0], [0.0, 0.0], [1.0, 1.0]])
    assert lowest_of_picked(q, pick).tolist() == [1.0, -3.0]
    assert mean_of_picked(q, pick).tolist() == [2.0, -1.0]


def test_the_loss_of_terminations() -> None:
    logits = torch.tensor([[2.0, -1.0]])
    goes_on, valid = torch.tensor([[0.0, 1.0]]), torch.ones(1, 2)
    wanted = torch.nn.functional.binary_cross_entropy_with_logits(logits, 1.0 - goes_on)
    assert termination_loss(logits, goes_on, valid).item() == pytest.approx(wanted.item())
    assert termination_loss(logits, goes_on, torch.zeros(1, 2)).item() == 0.0


def test_images_are_shifted_and_their_border_is_repeated() -> None:
    images = torch.arange(16.0).view(1, 1, 4, 4).repeat(3, 1, 1, 1)
    shares = torch.tensor([[0.5, 0.5], [0.999, 0.5], [0.5, 0.0]])
    found = shifted(images, shares, 1)
    assert torch.equal(found[0], images[0])
    assert found[1, 0, :, 0].tolist() == [4.0, 8.0, 12.0, 12.0]
    assert found[2, 0, 0].tolist() == [0.0, 0.0, 1.0, 2.0]


# -- networks ---------------------------------------------------------------------------------


def test_first_weights() -> None:
    """Of stacked critics too: truncated normal, and zeros where rewards and values are output."""
    net = learner(mlp_dim=64).net
    layers: list[Any] = [m for m in net.modules() if isinstance(m, torch.nn.Linear | StackedLinear)]
    last = (net.dynamics.reward[-1], net.critic.mlps.layers[-1])
    for layer in layers:
        assert not layer.bias.any()
        if layer in last:
            assert not layer.weight.any()
        elif layer.weight.numel() > 500:
            assert layer.weight.std().item() == pytest.approx(0.02, rel=0.2)
    stacked: Any = net.critic.mlps.layers[0].weight
    assert not torch.equal(stacked[0], stacked[1])
    z, actions = net.encode(torch.randn(4, 3)), torch.randn(4, 2)
    assert net.reward(z, actions).abs().max() < 1e-4
    assert net.value(z, actions, torch.ones(4, 3)).abs().max() < 1e-4


@pytest.mark.parametrize(("name", "millions"), [("1M", 1.0), ("5M", 5.0)])
def test_model_sizes(name: str, millions: float) -> None:
    """With the observations and actions of dog-run, for which the authors count."""
    names = ("enc_dim", "mlp_dim", "latent_dim", "n_critics")
    own = config(model_size=name, **dict.fromkeys(names))
    assert own.size == SIZES[name]
    space = spaces.Box(-1.0, 1.0, (223,), np.float32)
    net = TDMPC2(own, space, spaces.Box(-1.0, 1.0, (38,), np.float32), 0).net
    n = sum(p.numel() for p in net.parameters()) / 1e6
    assert millions * 0.9 < n < millions * 1.6
    assert config(model_size="1M", latent_dim=64).size == SIZES["1M"]._replace(
        latent_dim=64, enc_dim=16, mlp_dim=32, n_critics=3
    )


def test_plans_of_many_components_take_more_iterations() -> None:
    assert (config(plan_iterations="auto").iterations(19), config().iterations(38)) == (6, 2)
    assert config(plan_iterations="auto").iterations(20) == 8


def test_dropped_units_and_none_in_targets_and_plans() -> None:
    own = learner()
    keep = own._dropout(400, 2)
    assert keep is not None
    assert keep.unique().tolist() == pytest.approx([0.0, 1 / 0.99])
    assert (keep == 0).float().mean().item() == pytest.approx(0.01, abs=0.003)
    assert own._dropout(4, 2) is not None
    assert learner(dropout=0.0)._dropout(4, 2) is None
    trained(own.net)
    z, actions = own.net.encode(torch.randn(4, 3)), torch.randn(4, 2)
    plain, again = own.net.critic(z, actions), own.net.critic(z, actions)
    dropped = own.net.critic(z, actions, torch.zeros(3, 4, 32))
    assert torch.equal(plain, again)
    assert not torch.allclose(plain, dropped)


# -- losses -----------------------------------------------------------------------------------


def test_targets_bootstrap_unless_terminated() -> None:
    own = learner()
    trained(own.target)
    net, target = own.net, own.target
    batch = model_batch(net, goes_on=torch.tensor([[1.0, 1.0, 0.0]]).expand(N, H))
    next_z = net.encode(batch.obs[:, 1:].flatten(0, 1)).detach()
    found = td_targets(net, target, next_z, batch, torch.tensor(0.9))
    q = net.head.value(target(next_z, net.prior_action(next_z, batch.noise.flatten(0, 1))))
    lowest = torch.minimum(q[0], q[2]).view(N, H)
    assert torch.allclose(found[:, :2], batch.reward[:, :2] + 0.9 * lowest[:, :2], atol=1e-5)
    assert torch.equal(found[:, 2], batch.reward[:, 2])
    assert not found.requires_grad


def test_the_loss_of_the_model_step_by_step() -> None:
    """As the authors' code has it: means over the batch for each step, weighted, over H."""
    own = learner()
    trained(own.net)
    net, gamma = own.net, torch.tensor(0.9)
    goes_on = torch.ones(N, H)
    goes_on[0, 2] = 0.0
    batch = model_batch(net, goes_on=goes_on)
    total, found = model_loss(net, own.target, batch, gamma, config(rho=0.5))
    head = net.head
    with torch.no_grad():
        next_z = net.encode(batch.obs[:, 1:].flatten(0, 1))
        wanted = td_targets(net, own.target, next_z, batch, gamma)
        seen, z = next_z.view(N, H, -1), net.encode(batch.obs[:, 0])
        consistency: Any = 0.0
        reward: Any = 0.0
        value: Any = 0.0
        logits: list[Any] = []
        for t in range(H):
            a, weight = batch.actions[:, t], 0.5**t
            outputs = net.reward_outputs(z, a)
            known = head.known(batch.reward[:, t])
            reward += weight * -(known * outputs.log_softmax(-1)).sum(-1).mean()
            for q in net.critic(z, a):
                cross = -(head.known(wanted[:, t]) * q.log_softmax(-1)).sum(-1)
                value += weight * cross.mean() / 3
            z = net.next(z, a)
            consistency += weight * torch.nn.functional.mse_loss(z, seen[:, t])
            logits.append(net.end_logits(z))
        ends = torch.nn.functional.binary_cross_entropy_with_logits(
            torch.stack(logits, 1), 1.0 - goes_on
        )
        by_hand = (20.0 * consistency + 0.1 * reward + 0.1 * value) / H + ends
    assert total.item() == pytest.approx(float(by_hand), rel=1e-4)
    assert found["opt/loss/termination"].item() == pytest.approx(float(ends), rel=1e-4)
    assert found["z"].shape == (N, H + 1, 16)
    assert not found["z"].requires_grad


def test_steps_after_the_end_of_an_episode_count_nothing() -> None:
    own = learner()
    trained(own.net)
    valid = torch.tensor([[1.0, 0.0, 0.0]]).expand(N, H)
    batch = model_batch(own.net, valid=valid)
    other = model_batch(own.net, seed=5)
    obs, actions = batch.obs.clone(), batch.actions.clone()
    obs[:, 2:], actions[:, 1:] = other.obs[:, 2:], other.actions[:, 1:]
    reward = torch.cat([batch.reward[:, :1], other.reward[:, 1:]], 1)
    changed = batch._replace(obs=obs, actions=actions, reward=reward)
    losses = [
        model_loss(own.net, own.target, given, torch.tensor(0.9), config(rho=0.5))[0].item()
        for given in (batch, changed)
    ]
    assert losses[0] == pytest.approx(losses[1], rel=1e-5)
    z = policy_batch(own.net).z.clone()
    given = policy_batch(own.net, valid=torch.tensor([[1.0, 1.0, 0.0, 0.0]]).expand(N, H + 1))
    first, _ = policy_loss(own.net, given, NUMBERS, 0.5)
    z[:, 2:] = 0.125
    second, _ = policy_loss(own.net, given._replace(z=z), NUMBERS, 0.5)
    assert first.item() == pytest.approx(second.item(), rel=1e-5)


def test_the_gradient_of_the_model_does_not_reach_targets_or_the_policy() -> None:
    own = learner()
    trained(own.net)
    total, _ = model_loss(
        own.net, own.target, model_batch(own.net), torch.tensor(0.9), config(rho=0.5)
    )
    total.backward()
    assert all(p.grad is None for p in own.net.prior.parameters())
    assert all(p.grad is None for p in own.target.parameters())
    assert all(p.grad is not None for p in own.net.dynamics.parameters())


def test_the_loss_of_the_policy() -> None:
    own = learner()
    trained(own.net)
    net, batch = own.net, policy_batch(own.net)
    numbers = {"scale": torch.tensor(4.0), "entropy": torch.tensor(0.1)}
    loss, found = policy_loss(net, batch, numbers, 0.5)
    by_hand: Any = 0.0
    entropies = []
    for t in range(H + 1):
        mean, log_std = net.prior_moments(batch.z[:, t])
        actions = torch.tanh(mean + log_std.exp() * batch.noise[:, t])
        q = net.head.value(net.critic(batch.z[:, t], actions))
        before_tanh = torch.distributions.Normal(mean, log_std.exp())
        entropy = -before_tanh.log_prob(mean + log_std.exp() * batch.noise[:, t]).sum(1)
        entropies.append(entropy)
        gain = (q[0] + q[2]) / 2 / 4.0 + 0.1 * 2 * entropy  # times the number of components
        by_hand -= 0.5**t * gain.mean() / (H + 1)
    assert loss.item() == pytest.approx(by_hand.item(), rel=1e-4)
    assert found["opt/policy/entropy"].item() == pytest.approx(
        torch.stack(entropies).mean().item(), rel=1e-4
    )


def test_the_scale_is_of_the_first_latent_states_and_at_least_one() -> None:
    own = learner()
    net = own.net
    batch = policy_batch(net)
    assert next_scale(net, batch, 0.01).item() == 1.0  # all values are 0
    with torch.no_grad():
        last: Any = net.critic.mlps.layers[-1]
        last.weight.normal_(0.0, 20.0)
    z = batch.z[:, 0]
    mean, log_std = net.prior_moments(z)
    actions = torch.tanh(mean + log_std.exp() * batch.noise[:, 0])
    q = net.head.value(net.critic(z, actions))
    q = (q[0] + q[2]) / 2
    spread = torch.quantile(q, 0.95) - torch.quantile(q, 0.05)
    assert spread > 1.5
    wanted = 1.0 + 0.01 * (spread.item() - 1.0)
    assert next_scale(net, batch, 0.01).item() == pytest.approx(wanted, rel=1e-4)
    later = batch.z.clone()
    later[:, 1:] = 0.125
    assert next_scale(net, batch._replace(z=later), 0.01).item() == pytest.approx(wanted, rel=1e-4)


# -- the update -------------------------------------------------------------------------------


def rollout(rows: int = 30, n_envs: int = 1, seed: int = 0, ends: int = 0) -> Rollout:
    """Random steps; with `ends` every so many rows are a termination and a reset row."""
    rng = np.random.default_rng(seed)
    own: Any = Rollout.allocate(rows, n_envs, OBS, learner().actions)
    own.obs[...] = rng.normal(size=own.obs.shape)
    own.actions[...] = rng.uniform(-1, 1, size=own.actions.shape)
    own.reward[...] = rng.normal(size=own.reward.shape)
    own.valid[...] = True
    if ends:
        own.terminated[ends - 1 :: ends + 1] = True
        own.valid[ends :: ends + 1] = False
        own.is_first[ends :: ends + 1] = True
    return own


def test_the_first_updates_are_as_many_as_the_random_steps() -> None:
    own = learner(learning_starts=20)
    assert own.remember(rollout(10)) == 0
    assert own.remember(rollout(9)) == 0
    assert own.remember(rollout(2)) == 2 + 20
    assert own.remember(rollout(1)) == 1
    assert own.n_updates == 23
    assert learner(learning_starts=20, pretrain_updates=5).remember(rollout(20)) == 25
    assert learner(learning_starts=20, pretrain_updates=0).remember(rollout(20)) == 20


def test_plans_discount_as_the_config_says() -> None:
    own = learner(gamma={"start": 0.8, "end": 0.9})
    assert own.policy.gamma == 0.8
    own.set_clock(50, 100)
    own.before_rollout(50, 100)
    assert own.policy.gamma == pytest.approx(0.85)
    assert own.policy.state() == {"gamma": pytest.approx(0.85)}


def test_what_one_update_changes() -> None:
    """The encoder learns at 0.3 of the rate, target critics move by 0.01, and the policy's step
    uses the critics after theirs."""
    own = learner(max_grad_norm=None)
    own.remember(rollout(30))
    net, target = own.net, own.target
    before = {name: value.clone() for name, value in net.state_dict().items()}
    was = {name: value.clone() for name, value in target.state_dict().items()}
    (sample,) = own.samples(1, {})
    own.step(own.on_device(sample), {"policy_lr": 1e-3, "ent_coef": 1e-4}, None)
    after = net.state_dict()

    def largest(prefix: str) -> float:
        names = [name for name in before if name.startswith(prefix)]
        return max((after[name] - before[name]).abs().max().item() for name in names)

    # The first step of Adam is as long as the learning rate, for all but tiny gradients.
    assert largest("dynamics.next") == pytest.approx(1e-3, rel=0.02)
    assert largest("representation.layers") == pytest.approx(3e-4, rel=0.02)
    assert largest("critic") == pytest.approx(1e-3, rel=0.02)
    assert largest("prior") > 0
    for name, value in target.state_dict().items():
        wanted = was[name] + 0.01 * (after[f"critic.{name}"] - was[name])
        assert torch.allclose(value, wanted, atol=1e-7)


def test_subsequences_never_cross_the_end_of_an_episode() -> None:
    own = learner(batch_size=64)
    own.remember(rollout(60, n_envs=1, ends=5))
    (sample,) = own.samples(1, {})
    batch = own.columns(sample)
    assert batch.valid[:, 0].all()
    ended = np.cumsum(1 - batch.discount, axis=1) * batch.valid
    assert (ended <= 1).all()
    for row in range(64):  # nothing is valid after a termination, and terminations are seen
        ends = np.flatnonzero(batch.discount[row] * batch.valid[row] + (1 - batch.valid[row]) == 0)
        if len(ends):
            assert not batch.valid[row, ends[0] + 1 :].any()
    assert (batch.discount == 0).any(axis=0).all()  # a termination can be any step of a sequence
    assert set(np.unique(batch.discount)) == {0.0, 1.0}


def test_a_task_that_terminates_needs_episodic() -> None:
    own = learner(episodic=False)
    assert own.net.end_logits(torch.zeros(2, 16)) is None
    with pytest.raises(ConfigError, match="episodic: true"):
        own.remember(rollout(30, ends=5))


def test_losses_and_plans_read_nothing_on_the_host() -> None:
    own = learner()
    net, policy = own.net, own.policy
    drawn = draw(policy.search, 2, 2, 3, np.random.default_rng(0), explores=True)
    tensors = Drawn(*(torch.from_numpy(part) for part in drawn))
    with NoHostReads():
        total, _ = model_loss(net, own.target, model_batch(net), torch.tensor(0.9), config(rho=0.5))
        total.backward()
        next_scale(net, policy_batch(net), 0.01)
        policy_loss(net, policy_batch(net), NUMBERS, 0.5)[0].backward()
        own._two_critics(4)
        plan(net, policy.search, net.encode(torch.zeros(2, 3)), torch.zeros(2, 3, 2),
             torch.ones(2), tensors)  # fmt: skip


def test_images_are_learnt_from(tmp_path: Path) -> None:
    image = spaces.Box(0, 255, (3, 16, 16), np.uint8)
    few: dict[str, Any] = {"pretrain_updates": 0, "updates_per_step": 0.1}
    own = learner(obs=image, cnn_channels=[4, 4, 4], n_critics=2, **few)
    assert own.config.image_shift == 3
    rows: Any = Rollout.allocate(30, 1, image, own.actions)
    rng = np.random.default_rng(0)
    rows.obs[...] = rng.integers(0, 256, rows.obs.shape)
    rows.actions[...] = rng.uniform(-1, 1, rows.actions.shape)
    rows.valid[...] = True
    metrics = own.update(rows, 0, 100)
    assert np.isfinite(float(metrics["opt/loss/consistency"]))
    acted = own.policy.greedy(rows.obs[0], own.policy.initial_carry(1), np.ones(1, bool))
    assert acted.actions.shape == (1, 2)


# -- bad input --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        *((fields, text.format("tdmpc2")) for fields, text in BAD_SETTINGS),
        ({"latent_dim": 20}, "latent_dim 20 is not a multiple of simnorm_dim 8"),
        ({"v_min": 3.0, "v_max": 1.0}, "v_max 1.0 must be above v_min 3.0"),
        ({"n_elites": 17}, "n_elites 17 exceeds n_samples 16"),
        ({"n_policy_samples": 16}, "n_policy_samples 16 must be below n_samples 16"),
        ({"plan_std_max": 0.01}, "plan_std_max 0.01 is below plan_std_min 0.05"),
        ({"n_critics": 1}, "n_critics"),
        ({"plan_horizon": 0}, "plan_horizon"),
    ],
)
def test_bad_settings_are_refused_in_one_line(fields: dict[str, Any], message: str) -> None:
    assert_refused(config, message=message, **fields)


@pytest.mark.parametrize("env_id", ["CartPole-v1", "Probe/MultiBinary-v0"])
def test_other_actions_are_refused_in_one_line(env_id: str, tmp_path: Path) -> None:
    own = build_config({"env_id": env_id, "algo_id": "tdmpc2", **TINY})
    with pytest.raises(ConfigError, match=r"^algo_id: tdmpc2 needs Box actions.*$"):
        train(own, runs_root=tmp_path)
