"""The parts of XQC, SimbaV2 and FlashSAC: batch norm in a joint pass, features and weights of fixed
length, returns of bounded size, noise that is kept."""

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import nn
from torch.nn import functional

from gymnasium_solver.algos import soft
from gymnasium_solver.algos.batch_rows import rows_of
from gymnasium_solver.algos.continuous import ActorBatch, both_critics
from gymnasium_solver.algos.sac import SAC, SACConfig
from gymnasium_solver.data.rollout import Rollout
from gymnasium_solver.errors import ConfigError
from gymnasium_solver.fast.descent import Descent
from gymnasium_solver.nets.actor_critics import squash
from gymnasium_solver.nets.blocks import Blocks, RMSNorm, StackedLinear, StackedMLP
from gymnasium_solver.nets.hypersphere import SphereBlock, ToSphere, on_sphere
from gymnasium_solver.nets.normalizer import RewardNormalizer
from gymnasium_solver.nets.renorm import MOMENTUM, BatchRenorm, batch_norms, batch_statistics
from gymnasium_solver.policies.noise import RepeatedNoise
from gymnasium_solver.training.agents import _check_like
from tests.acting import BOX, generator, small_agent, small_rollout

PRESETS: dict[str, dict[str, Any]] = {
    "xqc": {"norm": "batch", "unit_norm": True, "policy_delay": 3},
    "simbav2": {"block": "simbav2", "log_std_bound": "tanh", "actor_first": True},
    "flash": {"block": "flash", "log_std_bound": "tanh", "actor_first": True, "noise_repeat": 4},
}


def agent_for(seed: int = 0, space: spaces.Space[Any] = BOX, **fields: Any) -> SAC:
    small: dict[str, Any] = {"hidden_dims": [8, 8], "batch_size": 16, "activation": "relu"}
    small |= {"critic_head": "c51", "n_atoms": 5, "v_min": -2.0, "v_max": 2.0}
    agent: SAC = small_agent("sac", space, seed=seed, **{**small, **fields})
    return agent


def rollout_for(n_rows: int = 12) -> Rollout:
    return small_rollout(n_rows=n_rows)


def lengths_are_kept(module: nn.Module) -> None:
    """Weights of units have length 1; scale and bias of a unit batch norm together sqrt(width)."""
    for layer in module.modules():
        if isinstance(layer, nn.Linear):
            torch.testing.assert_close(layer.weight.norm(dim=1), torch.ones(len(layer.weight)))
        elif isinstance(layer, StackedLinear):
            size = layer.weight.norm(dim=1)
            torch.testing.assert_close(size, torch.ones_like(size))
        elif isinstance(layer, BatchRenorm) and layer.is_unit:
            both = torch.cat([layer.weight, layer.bias], -1).norm(dim=-1)
            torch.testing.assert_close(
                both, torch.full_like(both, math.sqrt(layer.weight.shape[-1]))
            )
        elif isinstance(layer, RMSNorm) and layer.is_unit:
            size = layer.weight.norm(dim=-1)
            torch.testing.assert_close(
                size, torch.full_like(size, math.sqrt(layer.weight.shape[-1]))
            )


@pytest.mark.parametrize("form", ["native", False])
@pytest.mark.parametrize("preset", PRESETS)
def test_lengths_hold_from_the_first_weights_on(preset: str, form: Any) -> None:
    agent = agent_for(**PRESETS[preset], compile=form)
    lengths_are_kept(agent.net.actor)
    lengths_are_kept(agent.net.critic)
    before = agent.critic.optimizer.flat.clone()
    agent.update(rollout_for(), 0, 1000)
    assert not torch.equal(agent.critic.optimizer.flat, before)
    lengths_are_kept(agent.net.actor)
    lengths_are_kept(agent.net.critic)


@pytest.mark.parametrize("preset", PRESETS)
def test_every_form_learns_the_same(preset: str) -> None:
    """A shift that the next batch norm removes has a gradient of rounding errors, which Adam with a
    small epsilon would make large."""
    found = []
    x, a = torch.randn(9, 3, generator=generator()), torch.rand(9, 2, generator=generator())
    for form in ("native", "numpy", False):
        fields = {
            **PRESETS[preset],
            "policy_delay": 1,
            "updates_per_step": 2 / 24,
            "adam_eps": 0.01,
        }
        agent = agent_for(**fields, compile=form)
        agent.update(rollout_for(), 0, 1000)
        rows = rows_of(agent.net, ActorBatch(x, next_obs=-x))
        now, later, _ = both_critics(agent.net, agent.target, rows, a, -a)
        with batch_statistics(agent.net.actor):
            actions = agent.net.actor(x)
        found.append(torch.cat([t.detach().reshape(-1) for t in (now, later, actions)]))
    for other in found[1:]:
        torch.testing.assert_close(other, found[0], rtol=1e-3, atol=1e-3)


def test_both_batches_pass_the_critics_together() -> None:
    agent = agent_for(norm="batch")
    net, target = agent.net, agent.target
    x, next_x = torch.randn(7, 3), 5 + torch.randn(7, 3)
    a, next_a = torch.rand(7, 2), torch.rand(7, 2)
    rows = rows_of(net, ActorBatch(x, next_obs=next_x))
    outputs, following, moments = both_critics(net, target, rows, a, next_a)
    joint = torch.cat([torch.cat([x, a], 1), torch.cat([next_x, next_a], 1)])
    first = batch_norms(net.critic)[0]
    torch.testing.assert_close(moments[0][0], joint.mean(0))
    torch.testing.assert_close(moments[1][0], joint.var(0, correction=0))
    expected = []
    for layers in (net.critic.mlps.layers, target.mlps.layers):
        y = joint.expand(2, *joint.shape)
        for layer in layers:
            if isinstance(layer, BatchRenorm):
                y = torch.stack([
                    functional.batch_norm(y[i], None, None, layer.weight[i, 0], layer.bias[i, 0],
                                          training=True, eps=layer.epsilon)
                    for i in range(2)
                ])  # fmt: skip
            else:
                y = layer(y)
        expected.append(y)
    torch.testing.assert_close(outputs, expected[0][:, :7])
    torch.testing.assert_close(following, expected[1][:, 7:])
    assert not following.requires_grad
    assert first.seen is None  # acting uses running statistics again


def test_moments_move_after_a_step_and_those_of_targets_never_do() -> None:
    agent = agent_for(norm="batch", updates_per_step=1 / 24)
    agent.update(rollout_for(), 0, 1000)
    own, frozen = batch_norms(agent.net.critic)[0], batch_norms(agent.target)[0]
    assert float((own.running_mean / MOMENTUM).abs().max()) > 0.1
    assert not frozen.running_mean.any()
    assert bool((frozen.running_var == 1).all())


def test_the_actor_of_flash_is_normalised_by_both_observations() -> None:
    agent = agent_for(**PRESETS["flash"])
    x, beside, noise = torch.randn(6, 3), 9 + torch.randn(6, 3), torch.zeros(6, 2)
    with batch_statistics(agent.net.actor) as moments:
        rows = (agent.net.actor.features(agent.net.encoder(part)) for part in (x, beside))
        agent.net.actor.sampled(next(rows), noise, next_y=next(rows))
    torch.testing.assert_close(moments[0][0], torch.cat([x, beside]).mean(0))


def test_a_block_on_the_sphere_by_hand() -> None:
    blocks = Blocks("relu", generator(), kind="simbav2")
    layers: list[Any] = blocks.hidden(3, [4])
    first, block = layers
    assert isinstance(first, ToSphere)
    assert isinstance(block, SphereBlock)
    parts: list[Any] = [first.linear, block.inner, block.outer]
    w, inner, outer = (layer.weight.T for layer in parts)
    x = torch.randn(5, 3)
    shifted = functional.normalize(torch.cat([x, torch.full((5, 1), 3.0)], 1), dim=1)
    scale = math.sqrt(2 / 4)
    y = functional.normalize(scale * shifted @ w, dim=1)
    torch.testing.assert_close(first(x), y)
    hidden = torch.relu(scale / 2 * y @ inner) + 1e-8
    step = functional.normalize(hidden @ outer, dim=1) - y
    torch.testing.assert_close(block(y), functional.normalize(y + 0.5 * step, dim=1))
    torch.testing.assert_close(block.alpha.weight, torch.full((4,), 0.5))


@pytest.mark.parametrize("kind", ["simbav2", "flash", "simba"])
def test_the_first_network_of_a_stack_alone(kind: Any) -> None:
    stack = StackedMLP(Blocks("relu", generator(), n=3, kind=kind), 4, [6, 6], 2)
    for p in stack.parameters():
        p.data += 0.1 * torch.randn(p.shape, generator=generator())
    x = torch.randn(5, 4)
    torch.testing.assert_close(stack.first(x), stack(x)[0])


def test_vectors_on_the_sphere_have_length_one_and_zero_stays_finite() -> None:
    y = on_sphere(torch.tensor([[3.0, 4.0], [0.0, 0.0]]))
    torch.testing.assert_close(y, torch.tensor([[0.6, 0.8], [0.0, 0.0]]))


def test_deviations_bounded_by_tanh_agree_between_loss_and_policy() -> None:
    agent = agent_for(log_std_bound="tanh")
    raw = np.random.default_rng(0).normal(0, 3, (6, 4)).astype(np.float32)
    _, std = agent.policy._mean_and_std(raw)
    log_std = -10 + 6 * (1 + np.tanh(raw[:, 2:]))
    np.testing.assert_allclose(std, np.exp(log_std), rtol=1e-4)
    noise = torch.randn(6, 2)
    actions, _ = squash(torch.from_numpy(raw), noise, "tanh")
    expected = np.tanh(raw[:, :2] + std * noise.numpy())
    np.testing.assert_allclose(actions.numpy(), expected, atol=1e-5)


def test_rewards_are_scaled_by_the_largest_return() -> None:
    def scale_after(max_return: float | None) -> float:
        normalizer = RewardNormalizer(1, 0.5, None, max_return)
        reward = np.array([[8.0], [8.0], [0.0], [0.0]])
        off = np.zeros((4, 1), bool)
        normalizer.update(reward, off, ~off)
        again = RewardNormalizer(1, 0.5, None, max_return)
        again.load_state(normalizer.state())
        assert again.scale == normalizer.scale
        return normalizer.scale

    returns = np.array([8, 12, 6, 3])
    assert scale_after(None) == pytest.approx(1 / returns.std(), rel=1e-3)
    assert scale_after(5.0) == pytest.approx(1 / returns.std(), rel=1e-3)  # 12 / 5 is smaller
    assert scale_after(2.0) == pytest.approx(2 / 12)


def test_noise_is_kept_for_as_long_as_drawn() -> None:
    noise, rng = RepeatedNoise(1, 16), np.random.default_rng(0)
    carry, seen = noise.initial(500), []
    for _ in range(400):
        value, carry = noise.normal(carry, np.zeros(500, bool), 1.0, 1.0, rng)
        seen.append(value[:, 0])
    values = np.stack(seen)
    assert values.std() == pytest.approx(1.0, abs=0.02)
    changes = np.diff(values, axis=0) != 0
    chances = np.arange(1, 17.0) ** -2
    mean_length = (chances * np.arange(1, 17)).sum() / chances.sum()
    assert 1 / changes.mean() == pytest.approx(mean_length, rel=0.02)
    lengths = np.diff(np.flatnonzero(changes[:, 0]))
    assert lengths.max() <= 16


def test_target_entropy_of_a_deviation() -> None:
    each = SACConfig(env_id="x", algo_id="sac", target_std=0.15).target_entropy_by_std
    normal = torch.distributions.Normal(torch.tensor(0.0), torch.tensor(0.15))
    assert each == pytest.approx(float(normal.entropy()), rel=1e-6)
    agent = agent_for(target_std=0.15)
    assert soft.target_entropy(agent, {}, None) == pytest.approx(2 * float(normal.entropy()))


def test_the_actor_learns_first_if_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    order: list[str] = []
    step = Descent.__call__

    def noted(self: Descent, *args: Any, **more: Any) -> Any:
        order.append(self.name)
        return step(self, *args, **more)

    monkeypatch.setattr(Descent, "__call__", noted)
    for is_first in (True, False):
        agent = agent_for(actor_first=is_first, updates_per_step=1 / 24)
        agent.update(rollout_for(), 0, 1000)
    assert order == ["policy", "critic", "critic", "policy"]


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"block": "flash", "norm": "layer"}, "block: flash has norms of its own"),
        ({"block": "simbav2", "hidden_dims": [8, 4]}, "hidden layers of one width"),
        ({"noise_repeat": 4, "noise_correlation": 0.5}, "noise_repeat excludes noise_correlation"),
        ({"target_std": 0.1, "target_entropy": -1.0}, "target_std sets target_entropy"),
    ],
)
def test_what_does_not_fit_is_refused(fields: dict[str, Any], message: str) -> None:
    with pytest.raises((ConfigError, ValueError), match=message):
        agent_for(**fields)


def test_discrete_actions_refuse_what_is_for_box_actions() -> None:
    with pytest.raises(ConfigError, match="noise_repeat: needs real-valued actions"):
        agent_for(space=spaces.Discrete(3), noise_repeat=4)


def test_reward_scales_of_earlier_versions_are_read(tmp_path: Path) -> None:
    """Their checkpoints do not have the largest return."""
    own = RewardNormalizer(2, 0.99, None)
    state = own.state()
    del state["largest"]
    _check_like({"reward_normalizer": own.state()}, {"reward_normalizer": state}, "agent", tmp_path)
    own.load_state(state)
    assert own.largest == 0.0


@pytest.mark.parametrize("preset", ["xqc", "flash"])
def test_layers_of_a_part_have_no_batch_norm_of_their_own(preset: str) -> None:
    agent = agent_for(**PRESETS[preset], input_dims=[6], share_encoder=True)
    assert not batch_norms(agent.net.critic.features)
    agent.update(rollout_for(), 0, 1000)
