"""Log-probabilities and entropies against torch.distributions; draws against probabilities."""

import numpy as np
import pytest
import torch
from gymnasium import spaces

from gymnasium_solver.spaces.distributions import Categorical, DiagGaussian, distribution_for


def normal(*shape: int, seed: int = 0, scale: float = 1.0) -> torch.Tensor:
    return scale * torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("scale", [0.01, 1.0, 30.0])
def test_categorical_is_torchs(scale: float) -> None:
    logits = normal(64, 5, scale=scale)
    actions = torch.arange(64) % 5
    theirs = torch.distributions.Categorical(logits=logits)
    log_prob, entropy = Categorical().log_prob_entropy(logits, None, actions)
    torch.testing.assert_close(log_prob, theirs.log_prob(actions))
    torch.testing.assert_close(entropy, theirs.entropy(), rtol=1e-5, atol=1e-5)


def test_categorical_does_not_depend_on_a_shift_and_survives_large_logits() -> None:
    logits = torch.tensor([[1000.0, 999.0, -1000.0]])
    shifted = logits - 1000.0
    actions = torch.tensor([1])
    for a, b in zip(
        Categorical().log_prob_entropy(logits, None, actions),
        Categorical().log_prob_entropy(shifted, None, actions),
        strict=True,
    ):
        torch.testing.assert_close(a, b)
        assert torch.isfinite(a).all()


@pytest.mark.parametrize("n_actions", [1, 6])
def test_gaussian_is_torchs(n_actions: int) -> None:
    mean, log_std = normal(64, n_actions), normal(n_actions, seed=1)
    actions = normal(64, n_actions, seed=2, scale=3.0)
    theirs = torch.distributions.Independent(torch.distributions.Normal(mean, log_std.exp()), 1)
    log_prob, entropy = DiagGaussian().log_prob_entropy(mean, log_std, actions)
    torch.testing.assert_close(log_prob, theirs.log_prob(actions), rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(entropy.expand(64), theirs.entropy())


def test_categorical_draws_as_often_as_it_says_and_each_row_by_itself() -> None:
    n = 40_000
    logits = np.tile(np.array([[0.0, 1.0, 2.0], [5.0, -5.0, 0.0]], np.float32), (n, 1))
    draws = Categorical().sample(logits, None, np.random.default_rng(0)).reshape(n, 2)
    for column in range(2):
        expected = torch.softmax(torch.as_tensor(logits[column]), 0).numpy()
        observed = np.bincount(draws[:, column], minlength=3) / n
        np.testing.assert_allclose(observed, expected, atol=5 * 0.5 / np.sqrt(n))
    # Independent rows: the joint frequency is the product.
    joint = np.mean((draws[:, 0] == 2) & (draws[:, 1] == 0))
    product = np.mean(draws[:, 0] == 2) * np.mean(draws[:, 1] == 0)
    assert abs(joint - product) < 0.01


def test_gaussian_draws_with_its_mean_and_deviation() -> None:
    n = 40_000
    mean = np.tile(np.array([[1.0, -2.0]], np.float32), (n, 1))
    log_std = np.log(np.array([0.5, 3.0], np.float32))
    draws = DiagGaussian().sample(mean, log_std, np.random.default_rng(0))
    assert draws.dtype == np.float32
    np.testing.assert_allclose(draws.mean(0), [1, -2], atol=5 * 3 / np.sqrt(n))
    np.testing.assert_allclose(draws.std(0), [0.5, 3.0], rtol=0.03)
    assert abs(np.corrcoef(draws.T)[0, 1]) < 0.03


def test_the_mode_is_the_most_likely() -> None:
    logits = np.array([[0.0, 3.0, 1.0], [2.0, 0.0, 1.0]], np.float32)
    assert Categorical().mode(logits).tolist() == [1, 0]
    assert DiagGaussian().mode(logits) is logits


def test_a_drawn_action_is_as_likely_as_torch_says() -> None:
    """The NumPy draw and the torch log-probability are of one and the same distribution."""
    logits = np.tile(np.array([[0.3, -1.0, 0.8]], np.float32), (20_000, 1))
    draws = Categorical().sample(logits, None, np.random.default_rng(1))
    log_prob, entropy = Categorical().log_prob_entropy(
        torch.as_tensor(logits), None, torch.as_tensor(draws)
    )
    assert float(-log_prob.mean()) == pytest.approx(float(entropy[0]), abs=0.02)


def test_which_family_for_which_space() -> None:
    assert isinstance(distribution_for(spaces.Discrete(3)), Categorical)
    assert isinstance(distribution_for(spaces.Box(-1, 1, (2,))), DiagGaussian)
