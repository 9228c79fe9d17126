"""PPO's further switches: each against its formula, exact on resume, and off by default."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from gymnasium_solver.algos.advantages import AdvantageScale
from gymnasium_solver.algos.policy_loss import adapted, evaluate_actions
from gymnasium_solver.algos.ppo import PPO, ppo_loss
from gymnasium_solver.nets.heads import ValueScale
from tests.unit.test_learner_state import (
    DISCRETE,
    acted,
    agent_for,
    prepared,
    random_rollout,
)


def rollout_of(agent: Any, seed: int) -> Any:
    return acted(agent, random_rollout(DISCRETE, seed))


def test_dual_clip_bounds_the_loss_of_bad_actions() -> None:
    agent = agent_for("ppo", normalize_advantages="off")
    batch = prepared(agent, rollout_of(agent, 1)).batch
    rng = np.random.default_rng(0)
    moved = torch.from_numpy(rng.normal(0, 1.5, len(batch.log_prob)).astype(np.float32))
    batch = batch._replace(log_prob=batch.log_prob - moved)  # log ratio = moved
    numbers = {"clip_range": torch.tensor(0.2), "vf_coef": torch.tensor(0.0)}
    evaluated = evaluate_actions(agent.net, agent.actions, batch)
    found = -ppo_loss(agent.net, evaluated, batch, numbers, dual_clip=2.0).policy
    with torch.no_grad():
        outputs, _ = agent.net(batch.obs)
        ratio = (
            torch.log_softmax(outputs, 1).gather(1, batch.actions[:, None])[:, 0] - batch.log_prob
        ).exp()
    wanted = []
    for r, a in zip(ratio.tolist(), batch.advantage.tolist(), strict=True):
        clipped = min(r * a, min(max(r, 0.8), 1.2) * a)
        wanted.append(max(clipped, 2.0 * a) if a < 0 else clipped)
    assert found.item() == pytest.approx(np.mean(wanted), rel=1e-4)
    without = -ppo_loss(agent.net, evaluated, batch, numbers).policy
    assert without.item() < found.item(), "some ratio was above 2"


def test_scalings() -> None:
    rng = np.random.default_rng(1)
    advantage, returns = rng.normal(0, 30, (2, 6, 3))
    valid = rng.random((6, 3)) < 0.8
    np.testing.assert_allclose(
        AdvantageScale("symlog")(advantage, returns, valid),
        np.sign(advantage) * np.log(1 + np.abs(advantage)),
    )
    scale = AdvantageScale("percentile")
    widths = []
    for _ in range(3):
        low, high = np.percentile(returns[valid], [5, 95])
        widths.append(high - low)
        used = scale(advantage, returns, valid)
        running = widths[0]
        for width in widths:
            running = 0.99 * running + 0.01 * width
        np.testing.assert_allclose(used, advantage / running)
        np.testing.assert_allclose(scale(advantage, returns, valid, learns=False), used)
        returns = returns * 2
    small = AdvantageScale("percentile")
    np.testing.assert_array_equal(small(advantage, returns * 1e-4, valid), advantage)
    inside = AdvantageScale("rollout")(advantage, returns, valid)[valid]
    assert inside.mean() == pytest.approx(0)
    assert inside.std() == pytest.approx(1)


def test_normalised_values_are_exact_on_rescale() -> None:
    torch.manual_seed(0)
    head, scale = nn.Linear(4, 1).double(), ValueScale().double()
    features = torch.randn(50, 4).double()
    seen = []
    for size in (1.0, 100.0, 0.01):
        before = scale(head(features))
        returns = size * torch.randn(40).double() + 3 * size
        seen.append(returns)
        scale.update(returns, head)
        torch.testing.assert_close(scale(head(features)), before, rtol=1e-9, atol=1e-9)
    together = torch.cat(seen)  # the first rollouts weigh equally
    assert float(scale.mean) == pytest.approx(float(together.mean()), rel=1e-4)
    assert float(scale.std) == pytest.approx(float(together.std(correction=0)), rel=1e-3)


@pytest.mark.parametrize("mean", [0.0, 1e3, 1e5])
def test_normalised_values_keep_a_deviation_that_is_small_beside_the_mean(mean: float) -> None:
    head, scale = nn.Linear(4, 1), ValueScale()
    rng = torch.Generator().manual_seed(0)
    for _ in range(40):
        scale.update(mean + torch.randn(2000, generator=rng), head)
    assert float(scale.std) == pytest.approx(1.0, rel=0.03)
    assert float(scale.mean) == pytest.approx(mean, abs=0.1)


def test_normalised_values_of_a_checkpoint_with_mean_squares() -> None:
    scale = ValueScale()
    old = {"mean": torch.tensor(3.0), "std": torch.tensor(2.0), "square": torch.tensor(13.0)}
    scale.load_state_dict(old | {"count": torch.tensor(5.0)})
    assert scale.moments.tolist() == [3.0, 4.0]


def test_the_critic_learns_in_normalised_units() -> None:
    agent = agent_for("ppo", normalize_values=True)
    rollout = rollout_of(agent, 1)
    rollout.reward *= 1000
    batch = prepared(agent, rollout).batch
    scale = agent.net.value_scale
    assert float(scale.std) > 100
    terms = agent._terms(batch, {"clip_range": torch.tensor(0.2), "vf_coef": torch.tensor(0.5)})
    with torch.no_grad():
        raw = (agent.net.value(batch.obs) - batch.returns).square().mean()
    assert terms.value.item() == pytest.approx(float(raw / scale.std**2), rel=1e-4)
    assert terms.value.item() < 10
    torch.testing.assert_close(
        agent.net.value(batch.obs).detach(), batch.value, rtol=1e-3, atol=0.1
    )
    agent.update(rollout, 24, 100)
    assert agent.descent.mode == "recorded", "the statistics are read in place"
    before = scale.mean.clone()
    agent.update(rollout_of(agent, 2), 48, 100)
    assert not torch.equal(scale.mean, before)


def test_advantages_are_recomputed_with_the_critic_of_the_moment() -> None:
    fields: dict[str, Any] = {
        "n_epochs": 3, "normalize_advantages": "off", "normalize_reward": True, "policy_lr": 0.05,
    }  # fmt: skip
    agent = agent_for("ppo", recompute_advantages=True, **fields)
    seen: list[np.ndarray] = []
    prepare = agent._prepare

    def spy(*args: Any, **kwargs: Any) -> Any:
        data = prepare(*args, **kwargs)
        seen.append(data.targets.values.copy())
        return data

    agent._prepare = spy
    rollout = rollout_of(agent, 1)
    count = agent.reward_normalizer.state()
    agent.update(rollout, 24, 100)
    assert len(seen) == 3
    assert not np.array_equal(seen[0], seen[1])
    assert not np.array_equal(seen[1], seen[2])
    once = agent_for("ppo", **fields)
    once.update(rollout, 24, 100)
    ours, theirs = agent.reward_normalizer.state(), once.reward_normalizer.state()
    assert ours == theirs != count, "rewards are taken into their statistics once"


def test_the_learning_rate_follows_the_kl() -> None:
    agent = agent_for("ppo", adaptive_kl=0.01, policy_lr="lin_0.1")
    for kl, factor in ((0.03, 1 / 1.5), (0.01, 1 / 1.5), (0.001, 1.0), (0.001, 1.5)):
        agent.lr_factor = adapted(agent.lr_factor, kl, 0.01)
        assert agent.lr_factor == pytest.approx(factor)
    metrics = agent.update(rollout_of(agent, 1), 50, 100)
    assert metrics["hp/policy_lr"] == pytest.approx(0.05 * 1.5)
    assert agent.lr_factor == adapted(1.5, metrics["opt/ppo/approx_kl"], 0.01)
    assert adapted(0.011, 1.0, 0.01) == pytest.approx(0.01)
    untouched = agent_for("ppo")
    untouched.update(rollout_of(untouched, 1), 50, 100)
    assert untouched.lr_factor == 1.0


@pytest.mark.parametrize(
    ("adaptive_kl", "has_images", "n", "n_measured"),
    [(None, True, 512, 256), (0.01, True, 512, 512), (0.01, False, 2048, 2048),
     (None, False, 2048, 512)],
)  # fmt: skip
def test_how_many_samples_are_measured(
    adaptive_kl: float | None, has_images: bool, n: int, n_measured: int
) -> None:
    """Fewer than before, but not for a divergence that changes the learning rate."""
    batch: Any = SimpleNamespace(is_sequence=False, rows=range(n), n=n)
    batch.take = lambda part: SimpleNamespace(rows=batch.rows[part])
    data: Any = SimpleNamespace(batch=batch)
    seen: list[int] = []

    def on(batches: Any, numbers: Any) -> list[Any]:
        seen.append(len(batches[0].rows))
        return []

    agent: Any = SimpleNamespace(
        net=SimpleNamespace(has_images=has_images),
        config=SimpleNamespace(adaptive_kl=adaptive_kl, n_epochs=1),
        measure=SimpleNamespace(on=on),
    )
    PPO._measure(agent, data, {})
    assert seen == [n_measured]
