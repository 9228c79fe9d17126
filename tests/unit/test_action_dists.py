"""Distributions of actions against torch.distributions."""

from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import distributions as td

from gymnasium_solver.errors import ConfigError
from gymnasium_solver.spaces.action_dists import LOG_STD_MAX, LOG_STD_MIN, chosen_kind

BOX = spaces.Box(np.array([-2.0, 0.0, 1.0]), np.array([2.0, 1.0, 5.0]), dtype=np.float64)
N = 6


def outputs_of(kind: Any, seed: int = 0, n: int = N) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(n, kind.n_outputs, generator=generator, dtype=torch.float64)


def log_std_of(kind: Any) -> torch.Tensor | None:
    if not kind.n_log_std:
        return None
    generator = torch.Generator().manual_seed(5)
    return 0.5 * torch.randn(kind.n_log_std, generator=generator, dtype=torch.float64)


def reference(dist: str, kind: Any, outputs: torch.Tensor, log_std: Any) -> td.Distribution:
    """The same distribution over the stored actions."""
    if dist == "gaussian":
        return td.Independent(td.Normal(outputs, log_std.exp()), 1)
    if dist == "multivariate":
        return td.MultivariateNormal(outputs, scale_tril=kind._factor(log_std))
    if dist == "beta":
        alpha, beta = (1 + torch.nn.functional.softplus(outputs)).chunk(2, dim=-1)
        onto = td.AffineTransform(-1.0, 2.0)
        return td.Independent(td.TransformedDistribution(td.Beta(alpha, beta), [onto]), 1)
    mean, raw = outputs.chunk(2, dim=-1)
    if dist == "gumbel":
        return td.Independent(td.Gumbel(mean, raw.clamp(LOG_STD_MIN, LOG_STD_MAX).exp()), 1)
    return td.Independent(td.Normal(mean, raw.clamp(LOG_STD_MIN, LOG_STD_MAX).exp()), 1)


@pytest.mark.parametrize("dist", ["gaussian", "gaussian_state", "beta", "multivariate", "gumbel"])
def test_log_probabilities_entropies_and_gradients(dist: str) -> None:
    kind = chosen_kind(BOX, dist)
    outputs, log_std = outputs_of(kind).requires_grad_(), log_std_of(kind)
    other = reference(dist, kind, outputs, log_std)
    actions = other.sample()
    log_prob, entropy = kind.log_prob_entropy(outputs, log_std, actions)
    torch.testing.assert_close(log_prob, other.log_prob(actions))
    if dist == "beta":  # a scaled distribution has no entropy in torch: add the logarithm
        alpha, beta = (1 + torch.nn.functional.softplus(outputs)).chunk(2, dim=-1)
        expected = td.Beta(alpha, beta).entropy().sum(-1) + 3 * np.log(2)
    else:
        expected = other.entropy()
    torch.testing.assert_close(entropy.expand(N), expected)
    ours = torch.autograd.grad(log_prob.sum() + entropy.sum(), outputs, retain_graph=True)[0]
    theirs = torch.autograd.grad(other.log_prob(actions).sum() + expected.sum(), outputs)[0]
    torch.testing.assert_close(ours, theirs)


def test_squashed_against_a_transformed_normal() -> None:
    kind = chosen_kind(BOX, "squashed")
    outputs = 0.4 * outputs_of(kind)  # of very wide normals the integral is coarser
    mean, raw = outputs.chunk(2, dim=-1)
    normal = td.Normal(mean, raw.clamp(LOG_STD_MIN, LOG_STD_MAX).exp())
    squashed = td.TransformedDistribution(normal, [td.TanhTransform(cache_size=1)])
    before = normal.sample()
    action = squashed.transforms[0](before)
    log_prob, entropy = kind.log_prob_entropy(outputs, None, before)
    torch.testing.assert_close(log_prob, squashed.log_prob(action).sum(-1), rtol=1e-5, atol=1e-5)
    many = normal.sample((200_000,))
    estimate = -squashed.log_prob(squashed.transforms[0](many)).sum(-1).mean(0)
    torch.testing.assert_close(entropy, estimate, rtol=0.03, atol=0.03)


def test_gumbel_against_the_relaxed_categorical() -> None:
    space = spaces.Discrete(4, start=2)
    kind = chosen_kind(space, "gumbel", temperature=0.7)
    outputs = outputs_of(kind)
    other = td.relaxed_categorical.ExpRelaxedCategorical(
        torch.tensor(0.7, dtype=torch.float64), logits=outputs
    )
    actions = other.sample()
    log_prob, entropy = kind.log_prob_entropy(outputs, None, actions)
    torch.testing.assert_close(log_prob, other.log_prob(actions))
    torch.testing.assert_close(entropy, td.Categorical(logits=outputs).entropy())
    rows = np.repeat(outputs[:1].numpy(), 40_000, axis=0)
    drawn = kind.to_env(kind.sample(rows, None, np.random.default_rng(0)))
    shares = np.bincount(drawn - 2, minlength=4) / len(drawn)
    expected = td.Categorical(logits=outputs[0]).probs.numpy()
    np.testing.assert_allclose(shares, expected, atol=0.01)
    assert (kind.to_env(kind.mode(outputs.numpy())) == outputs.argmax(1).numpy() + 2).all()


@pytest.mark.parametrize(
    "dist", ["gaussian", "gaussian_state", "beta", "multivariate", "squashed", "gumbel"]
)
def test_samples_have_the_moments_of_the_distribution(dist: str) -> None:
    kind = chosen_kind(BOX, dist)
    outputs, log_std = outputs_of(kind, n=1), log_std_of(kind)
    numbers = None if log_std is None else log_std.numpy()
    rows = np.repeat(outputs.numpy(), 60_000, axis=0)
    drawn = kind.sample(rows, numbers, np.random.default_rng(0))
    other = reference(dist, kind, outputs, log_std)
    many = other.sample((60_000,))[:, 0].numpy()
    np.testing.assert_allclose(drawn.mean(0), many.mean(0), atol=0.06)
    np.testing.assert_allclose(np.cov(drawn.T), np.cov(many.T), rtol=0.1, atol=0.05)
    mean, std = kind.moments(outputs.numpy(), numbers)  # type: ignore[misc]
    np.testing.assert_allclose(mean[0], many.mean(0), atol=0.06)
    np.testing.assert_allclose(std[0], many.std(0), rtol=0.05)


def test_lognormal_above_the_lower_bound() -> None:
    kind: Any = chosen_kind(BOX, "lognormal")
    outputs = outputs_of(kind)
    mean, raw = outputs.chunk(2, dim=-1)
    other = td.LogNormal(mean, raw.clamp(LOG_STD_MIN, LOG_STD_MAX).exp())
    drawn = other.sample()
    log_prob, entropy = kind.log_prob_entropy(outputs, None, drawn.log())
    torch.testing.assert_close(log_prob, other.log_prob(drawn).sum(-1))
    torch.testing.assert_close(entropy, other.entropy().sum(-1))
    # In halves of the range above the lower bound, up to the upper one.
    logs = np.log(np.array([[1e-6, 1.0, 9.0]]))
    np.testing.assert_allclose(kind.to_env(logs), [[-2.0, 0.5, 5.0]], atol=1e-5)
    given = np.array([[1.0, 0.2, 3.0]])
    np.testing.assert_allclose(kind.to_env(kind.from_env(given)), given, rtol=1e-5)
    best = kind.to_env(kind.mode(outputs.numpy()))
    inside = kind.centre(outputs).clamp(-1, 1).numpy()
    np.testing.assert_allclose(best, kind.middle + kind.half_width * inside, rtol=1e-6)
    random = kind.to_env(kind.uniform(20_000, np.random.default_rng(0)))
    np.testing.assert_allclose(random.mean(0), kind.middle, atol=0.05)


def test_argmax_takes_the_likeliest_and_learns_like_a_categorical() -> None:
    kind, plain = (chosen_kind(spaces.Discrete(4), dist) for dist in ("argmax", "categorical"))
    outputs = outputs_of(kind)
    drawn = kind.sample(outputs.numpy(), None, np.random.default_rng(0))
    assert (drawn == outputs.argmax(1).numpy()).all()
    noise = torch.from_numpy(kind.noise(N, np.random.default_rng(0)))
    assert torch.equal(kind.from_noise(outputs, None, noise), outputs.argmax(1))
    taken = torch.from_numpy(drawn)
    ours, theirs = (each.log_prob_entropy(outputs, None, taken) for each in (kind, plain))
    for own, other in zip(ours, theirs, strict=True):
        assert torch.equal(own, other)


@pytest.mark.parametrize("dist", ["beta", "gaussian_state", "multivariate", "squashed", "gumbel"])
def test_the_mode_is_the_likeliest_action(dist: str) -> None:
    kind = chosen_kind(BOX, dist)
    outputs, log_std = outputs_of(kind, seed=3), log_std_of(kind)
    if dist == "squashed":  # the tanh of the normal's mode, by definition
        np.testing.assert_allclose(kind.mode(outputs.numpy()), outputs[:, :3].numpy())
        return
    mode = torch.from_numpy(kind.mode(outputs.numpy()).astype(np.float64))
    best, _ = kind.log_prob_entropy(outputs, log_std, mode)
    for shift in (-1e-2, 1e-2):
        for i in range(3):
            moved = mode.clone()
            moved[:, i] += shift
            log_prob, _ = kind.log_prob_entropy(outputs, log_std, moved.clamp(-1 + 1e-6, 1 - 1e-6)
                                                if dist == "beta" else moved)  # fmt: skip
            assert (log_prob <= best + 1e-4).all()


@pytest.mark.parametrize("dist", ["beta", "squashed"])
def test_actions_stay_within_the_bounds(dist: str) -> None:
    kind = chosen_kind(BOX, dist)
    wild = 30 * outputs_of(kind, n=500).numpy()
    actions = kind.sample(wild, None, np.random.default_rng(0))
    env = kind.to_env(actions)
    assert (env >= BOX.low - 1e-6).all()
    assert (env <= BOX.high + 1e-6).all()
    log_prob, entropy = kind.log_prob_entropy(
        torch.from_numpy(wild), None, torch.from_numpy(actions).double()
    )
    assert torch.isfinite(log_prob).all()
    assert torch.isfinite(entropy).all()


def test_in_a_dict_it_applies_where_it_fits() -> None:
    both = spaces.Dict({"go": spaces.Discrete(3), "how": BOX})
    kind = chosen_kind(both, "beta")
    assert kind.n_outputs == 3 + 6
    actions = kind.sample(outputs_of(kind).float().numpy(), None, np.random.default_rng(0))
    assert kind.to_env(actions).shape == (N, 4)


@pytest.mark.parametrize(
    ("space", "dist", "why"),
    [
        (spaces.Discrete(3), "beta", "use categorical, gumbel"),
        (BOX, "categorical", "use gaussian"),
        (spaces.MultiBinary(3), "beta", "use auto"),
        (spaces.Box(-np.inf, np.inf, (2,)), "beta", "finite bounds"),
        (spaces.Dict({"a": spaces.Discrete(2)}), "beta", "fits no part"),
    ],
)
def test_what_does_not_fit_is_refused(space: Any, dist: str, why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        chosen_kind(space, dist)
