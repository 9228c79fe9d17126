"""Heads of critics: values, targets and losses against closed forms."""

import math
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from gymnasium_solver.nets.heads import (
    CategoricalHead,
    CriticHead,
    QuantileHead,
    ScalarHead,
    critic_head,
)

KINDS = ["scalar", "symlog", "c51", "two_hot", "hl_gauss", "quantile"]


def head_of(kind: Any, n_atoms: int = 21) -> CriticHead:
    return critic_head(kind, n_atoms=n_atoms, v_min=-5.0, v_max=5.0)


def outputs_of(head: CriticHead, *shape: int, seed: int = 0) -> Tensor:
    width = (head.n_outputs,) if head.n_outputs > 1 else ()
    return torch.randn(*shape, *width, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("returns", [-4.99, -1.3, 0.0, 0.24, 4.2])
def test_two_hot_has_the_value_as_its_mean_and_two_neighbours(returns: float) -> None:
    head = CategoricalHead(11, -5.0, 5.0, "two_hot")
    target = head.known(torch.tensor([returns]))[0]
    assert target.sum().item() == pytest.approx(1.0)
    assert (target * head.support).sum().item() == pytest.approx(returns, abs=1e-5)
    assert int((target > 0).sum()) <= 2
    assert np.diff(np.flatnonzero(target.numpy())).max(initial=1) == 1


def test_returns_beyond_the_atoms_are_clipped() -> None:
    for kind in ("two_hot", "hl_gauss"):
        head = CategoricalHead(11, -5.0, 5.0, kind)
        far, edge = head.known(torch.tensor([99.0, 5.0]))
        torch.testing.assert_close(far, edge)
        assert far.argmax() == 10


def test_hl_gauss_is_the_mass_of_a_normal_in_each_bin() -> None:
    head = CategoricalHead(21, -5.0, 5.0, "hl_gauss")
    target = head.known(torch.tensor([0.3]))[0]

    def below(x: float) -> float:
        return 0.5 * (1 + math.erf((x - 0.3) / (0.75 * 0.5) / math.sqrt(2)))

    mass = [below(z + 0.25) - below(z - 0.25) for z in head.support.tolist()]
    wanted = np.array(mass) / (below(5.25) - below(-5.25))
    np.testing.assert_allclose(target, wanted, atol=1e-6)
    assert (target * head.support).sum().item() == pytest.approx(0.3, abs=0.01)


def test_c51_moves_and_projects_the_next_distribution() -> None:
    head = CategoricalHead(3, 0.0, 2.0, "c51")
    probs = torch.tensor([[0.2, 0.3, 0.5], [0.0, 0.0, 1.0]])
    reward, discount = torch.tensor([0.5, -0.5]), torch.tensor([0.5, 1.0])
    got = head.target((probs + 1e-30).log(), reward, discount)
    np.testing.assert_allclose(got, [[0.1, 0.65, 0.25], [0.0, 0.5, 0.5]], atol=1e-6)
    shift = torch.tensor([1.0, 0.0])
    moved = head.target((probs + 1e-30).log(), reward, discount, shift)
    same = head.target((probs + 1e-30).log(), reward + discount * shift, discount)
    torch.testing.assert_close(moved, same)


def test_quantiles_of_a_sample_minimise_the_loss() -> None:
    """With one sample as target after another, the quantiles of their distribution are learnt."""
    rng = np.random.default_rng(0)
    samples = torch.from_numpy(rng.exponential(100.0, 4000).astype(np.float32))
    head, outputs = QuantileHead(5), torch.zeros(1, 5, requires_grad=True)
    optimizer = torch.optim.Adam([outputs], 2.0)
    for _ in range(400):
        optimizer.zero_grad()
        loss, _ = head.loss(outputs.expand(4000, 5), head.known(samples))
        loss.mean().backward()
        optimizer.step()
    wanted = np.quantile(samples.numpy(), [0.1, 0.3, 0.5, 0.7, 0.9])
    np.testing.assert_allclose(outputs.detach()[0], wanted, rtol=0.05, atol=1.0)


@pytest.mark.parametrize("kind", KINDS)
def test_a_perfect_critic_has_the_lowest_loss_and_the_value(kind: str) -> None:
    head = head_of(kind)
    returns = torch.tensor([-2.1, 0.6, 3.2])
    wanted = head.known(returns)
    if isinstance(head, ScalarHead):
        best = wanted.clone()
    elif isinstance(head, QuantileHead):
        best = returns.unsqueeze(1).expand(-1, head.n_outputs).clone()
    else:
        best = (wanted + 1e-12).log()
    torch.testing.assert_close(head.value(best), returns, atol=1e-2, rtol=0)
    lowest, _ = head.loss(best, wanted)
    for seed in range(5):
        other, _ = head.loss(best + 0.5 * outputs_of(head, 3, seed=seed), wanted)
        assert (other > lowest).all()


def test_symlog_squashes_the_target_and_not_the_value() -> None:
    head = head_of("symlog")
    values = torch.tensor([-1000.0, -0.5, 0.0, 3.0, 1e6])
    torch.testing.assert_close(head.value(head.known(values)), values)
    # A target is computed from values: 2 + 0.5 * (3 + 1) = 4, and log(1 + 4) is fitted.
    reward, discount, shift = torch.tensor([2.0]), torch.tensor([0.5]), torch.tensor([1.0])
    wanted = head.target(head.known(torch.tensor([3.0])), reward, discount, shift)
    torch.testing.assert_close(wanted, torch.tensor([math.log(5.0)]))


@pytest.mark.parametrize("kind", KINDS)
def test_the_lowest_of_several_critics(kind: str) -> None:
    head = head_of(kind)
    outputs = outputs_of(head, 3, 6)
    lowest, values = head.lowest(outputs), head.value(outputs)
    torch.testing.assert_close(head.value(lowest), values.amin(0))
    for b in range(6):
        assert torch.equal(lowest[b], outputs[int(values[:, b].argmin()), b])


@pytest.mark.parametrize("kind", KINDS)
def test_the_loss_of_several_critics_is_weighted_and_summed(kind: str) -> None:
    head = head_of(kind)
    outputs, weight = outputs_of(head, 2, 4), torch.tensor([1.0, 0.5, 0.0, 2.0])
    wanted = head.known(torch.tensor([1.0, -1.0, 2.0, 0.0]))
    total, mean, error = head.critics_loss(outputs, wanted, weight)
    half = 0.5 if isinstance(head, ScalarHead) else 1.0
    each = [half * (weight * head.loss(outputs[i], wanted)[0]).mean() for i in range(2)]
    torch.testing.assert_close(total, each[0] + each[1])
    torch.testing.assert_close(mean, head.value(outputs).mean())
    assert error.shape == (4,)
