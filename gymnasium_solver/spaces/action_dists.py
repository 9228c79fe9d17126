"""Further distributions of actions, chosen by `action_dist`.

    actions = chosen_kind(env.action_space, "beta")

gaussian_state   a normal whose deviation is an output of the network, too
squashed         the same through tanh: no action is beyond the bounds, none piles up at them
beta             a Beta distribution on the bounds (Chou et al. 2017)
multivariate     a normal with a learnt covariance, the same in all states
lognormal        a log-normal above the lower bound: most actions are small, some are large
gumbel           of a Box a Gumbel distribution, with a longer tail upwards; of discrete actions a
                 relaxed one-hot vector (Jang et al. 2017), of which the env gets the largest entry
argmax           always the likeliest action; gradients are those of the categorical

A squashed action is stored before the tanh, a log-normal and a relaxed one as a logarithm, so that
no precision is lost near the edges; `to_env` does the rest.
"""

import math
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor, nn

from gymnasium_solver.errors import ConfigError
from gymnasium_solver.spaces.actions import (
    LOG_SQRT_2PI,
    ActionKind,
    Array,
    BoxActions,
    BoxBase,
    DiscreteActions,
    Moments,
    Pair,
    ProductActions,
    Rng,
    action_kind,
    softmax,
)
from gymnasium_solver.spaces.observations import Space
from gymnasium_solver.spaces.space_types import is_box, is_discrete, is_product, parts_of

LOG_STD_MIN, LOG_STD_MAX = -10.0, 2.0
BOUNDED_STD = (0.1, 1.0)  # least and greatest deviation of a bounded normal
EDGE = 1e-6  # of a Beta sample: the density may be infinite at the bounds
# Of a demonstrated action at a bound, which no tanh reaches: arctanh is 3.8 there, a value that a
# network can learn.
SQUASHED_EDGE = 1e-3


@cache
def _normal_nodes() -> tuple[Array, Array]:
    """Gauss-Hermite nodes for expectations under a normal: 16 are exact to 1e-3 here."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(16)
    return nodes, weights


class StateGaussianActions(BoxBase):
    """Independent normals; the network gives mean and log standard deviation of each number."""

    def __init__(
        self,
        space: spaces.Box,
        log_std_init: float = 0.0,
        limits: tuple[float, float] = (LOG_STD_MIN, LOG_STD_MAX),
    ):
        """`limits`: of the log standard deviation."""
        super().__init__(space)
        self.n_outputs, self.log_std_init, self.limits = 2 * self.width, log_std_init, limits

    def log_prob_entropy(self, outputs: Tensor, log_std: Tensor | None, actions: Tensor) -> Pair:
        mean, log_scale = self._split(outputs)
        z = (actions - mean) * (-log_scale).exp()
        log_prob = -(0.5 * z.square() + log_scale + LOG_SQRT_2PI).sum(-1)
        return log_prob, (log_scale + (0.5 + LOG_SQRT_2PI)).sum(-1)

    def _split(self, outputs: Tensor) -> Pair:
        mean, raw = outputs.chunk(2, dim=-1)
        return mean, (raw + self.log_std_init).clamp(*self.limits)

    def moments(self, outputs: Array, log_std: Array | None) -> Moments:
        mean, raw = np.split(outputs, 2, axis=1)
        return mean, np.exp(np.clip(raw + self.log_std_init, *self.limits))

    def sample(self, outputs: Array, log_std: Array | None, rng: Rng) -> Array:
        mean, std = self.moments(outputs, None)
        noise = rng.standard_normal(mean.shape, dtype=np.float32)
        return (mean + std * noise).astype(np.float32)

    def mode(self, outputs: Array) -> Array:
        return outputs[:, : self.width]

    def centre(self, outputs: Tensor) -> Tensor:
        return outputs[:, : self.width]

    def _held(self, outputs: Tensor) -> Tensor:
        mean, raw = outputs.chunk(2, dim=-1)
        return torch.cat([mean.detach(), raw], dim=-1)


class BoundedNormalActions(StateGaussianActions):
    """Normals with a mean in (-1, 1) and a deviation between 0.1 and 1, both of the network.
    Samples may lie beyond the bounds; the environment gets them clipped (DreamerV3)."""

    def _mean_std(self, outputs: Tensor) -> Pair:
        mean, raw = outputs.chunk(2, dim=-1)
        low, high = BOUNDED_STD
        return torch.tanh(mean), low + (high - low) * torch.sigmoid(raw + 2.0)

    def _split(self, outputs: Tensor) -> Pair:
        mean, std = self._mean_std(outputs)
        return mean, std.log()

    def moments(self, outputs: Array, log_std: Array | None) -> Moments:
        mean, std = self._mean_std(torch.from_numpy(outputs))
        return mean.numpy(), std.numpy()

    def noise(self, n: int, rng: Rng) -> Array:
        return rng.standard_normal((n, self.width), dtype=np.float32)

    def from_noise(self, outputs: Tensor, log_std: Tensor | None, noise: Tensor) -> Tensor:
        mean, std = self._mean_std(outputs)
        return torch.addcmul(mean, std, noise)

    def mode(self, outputs: Array) -> Array:
        found: Array = np.tanh(outputs[:, : self.width])
        return found

    def centre(self, outputs: Tensor) -> Tensor:
        return torch.tanh(outputs[:, : self.width])


class SquashedActions(StateGaussianActions):
    """tanh of a normal. Stored actions are those before the tanh.

    The mode is taken as the tanh of the normal's mean, as SAC does. The entropy has no closed form;
    the expected logarithm of the tanh's derivative is integrated numerically."""

    def log_prob_entropy(self, outputs: Tensor, log_std: Tensor | None, actions: Tensor) -> Pair:
        log_prob, entropy = super().log_prob_entropy(outputs, None, actions)
        mean, log_scale = self._split(outputs)
        nodes, weights = (
            torch.as_tensor(part, dtype=outputs.dtype, device=outputs.device)
            for part in _normal_nodes()
        )
        points = mean.unsqueeze(-1) + log_scale.exp().unsqueeze(-1) * nodes
        expected = (log_slope(points) * (weights / weights.sum())).sum(-1)
        return log_prob - log_slope(actions).sum(-1), entropy + expected.sum(-1)

    def uniform(self, n: int, rng: Rng, mask: Array | None = None) -> Array:
        inside = rng.uniform(-1.0, 1.0, (n, self.width)).clip(-1 + 1e-6, 1 - 1e-6)
        return np.arctanh(inside).astype(np.float32)

    def to_env(self, actions: Array) -> Array:
        return super().to_env(np.tanh(actions))

    def from_env(self, actions: Array) -> Array:
        inside = super().from_env(actions).clip(-1 + SQUASHED_EDGE, 1 - SQUASHED_EDGE)
        return np.arctanh(inside).astype(np.float32)

    def centre(self, outputs: Tensor) -> Tensor:
        return torch.tanh(super().centre(outputs))

    def _scaled(self, actions: Tensor) -> Tensor:
        return torch.tanh(actions)

    def _held(self, outputs: Tensor) -> Tensor:
        # A mean far beyond the bounds means the bound, where demonstrated actions are stored.
        mean, raw = outputs.chunk(2, dim=-1)
        edge = math.atanh(1 - SQUASHED_EDGE)
        return torch.cat([mean.detach().clamp(-edge, edge), raw], dim=-1)


class LogNormalActions(StateGaussianActions):
    """The lower bound plus exp of a normal, in halves of the range; beyond the upper bound it is
    clipped. Stored actions are the logarithms.

    The mode is taken as the median, exp of the normal's mean, which a wide normal does not push to
    the bound."""

    def log_prob_entropy(self, outputs: Tensor, log_std: Tensor | None, actions: Tensor) -> Pair:
        log_prob, entropy = super().log_prob_entropy(outputs, None, actions)
        mean, _ = self._split(outputs)
        return log_prob - actions.sum(-1), entropy + mean.sum(-1)

    def uniform(self, n: int, rng: Rng, mask: Array | None = None) -> Array:
        return np.log(rng.uniform(EDGE, 2.0, (n, self.width))).astype(np.float32)

    def to_env(self, actions: Array) -> Array:
        return super().to_env(np.exp(actions) - 1.0)

    def from_env(self, actions: Array) -> Array:
        above = super().from_env(actions) + 1.0
        return np.log(above.clip(SQUASHED_EDGE, None)).astype(np.float32)

    def centre(self, outputs: Tensor) -> Tensor:
        return super().centre(outputs).exp() - 1.0

    def _scaled(self, actions: Tensor) -> Tensor:
        return actions.exp() - 1.0


class GumbelBoxActions(StateGaussianActions):
    """Independent Gumbel distributions; the network gives place and log scale of each number."""

    def log_prob_entropy(self, outputs: Tensor, log_std: Tensor | None, actions: Tensor) -> Pair:
        place, log_scale = self._split(outputs)
        z = (actions - place) * (-log_scale).exp()
        return -(z + (-z).exp() + log_scale).sum(-1), (log_scale + 1.0 + np.euler_gamma).sum(-1)

    def moments(self, outputs: Array, log_std: Array | None) -> Moments:
        place, scale = super().moments(outputs, None)
        return place + np.euler_gamma * scale, scale * (math.pi / math.sqrt(6.0))

    def sample(self, outputs: Array, log_std: Array | None, rng: Rng) -> Array:
        place, scale = super().moments(outputs, None)
        return (place - scale * np.log(rng.standard_exponential(place.shape))).astype(np.float32)


class ArgmaxActions(DiscreteActions):
    """The likeliest action, also in training; its log-probability is that of the categorical."""

    def sample(self, outputs: Array, log_std: Array | None, rng: Rng) -> Array:
        return self.mode(outputs)

    def noise(self, n: int, rng: Rng) -> Array:
        return np.ones((n, self.n), np.float32)  # has no effect, as its logarithm is 0

    def ready_noise(self, shape: tuple[int, ...], rng: torch.Generator) -> Tensor:
        return torch.zeros((*shape, self.n), device=rng.device)


def log_slope(u: Tensor) -> Tensor:
    """log(1 - tanh(u)^2), in a form that is accurate at large u."""
    return 2.0 * (math.log(2.0) - u - nn.functional.softplus(-2.0 * u))


class BetaActions(BoxBase):
    """A Beta distribution of each number on its bounds; alpha and beta are above 1, so it has one
    peak."""

    def __init__(self, space: spaces.Box):
        super().__init__(space)
        self.n_outputs = 2 * self.width

    def log_prob_entropy(self, outputs: Tensor, log_std: Tensor | None, actions: Tensor) -> Pair:
        alpha, beta = (1.0 + nn.functional.softplus(outputs)).chunk(2, dim=-1)
        x = ((actions + 1.0) / 2.0).clamp(EDGE, 1.0 - EDGE)
        total = alpha + beta
        log_b = torch.lgamma(alpha) + torch.lgamma(beta) - torch.lgamma(total)
        log_prob = (alpha - 1) * x.log() + (beta - 1) * torch.log1p(-x) - log_b - math.log(2.0)
        entropy = (
            log_b
            - (alpha - 1) * torch.digamma(alpha)
            - (beta - 1) * torch.digamma(beta)
            + (total - 2) * torch.digamma(total)
            + math.log(2.0)
        )
        return log_prob.sum(-1), entropy.sum(-1)

    def _parameters(self, outputs: Array) -> list[Array]:
        return np.split(1.0 + np.logaddexp(0.0, outputs), 2, axis=1)

    def sample(self, outputs: Array, log_std: Array | None, rng: Rng) -> Array:
        x = rng.beta(*self._parameters(outputs)).clip(EDGE, 1.0 - EDGE)
        return (2.0 * x - 1.0).astype(np.float32)

    def mode(self, outputs: Array) -> Array:
        alpha, beta = self._parameters(outputs)
        peak = (alpha - 1.0) / np.maximum(alpha + beta - 2.0, EDGE)
        return (2.0 * peak - 1.0).astype(np.float32)

    def from_env(self, actions: Array) -> Array:
        return super().from_env(actions).clip(2 * EDGE - 1, 1 - 2 * EDGE)

    def spread_loss(self, outputs: Tensor, log_std: Tensor | None, actions: Tensor) -> Tensor:
        return outputs.new_zeros(())  # mean and deviation are not apart

    def centre(self, outputs: Tensor) -> Tensor:
        alpha, beta = nn.functional.softplus(outputs).chunk(2, dim=-1)  # less 1 each
        return 2.0 * alpha / (alpha + beta).clamp(min=EDGE) - 1.0

    def moments(self, outputs: Array, log_std: Array | None) -> Moments:
        alpha, beta = self._parameters(outputs)
        total = alpha + beta
        std = np.sqrt(alpha * beta / (total + 1.0)) / total
        return 2.0 * alpha / total - 1.0, 2.0 * std


class MultivariateActions(BoxBase):
    """A normal with a learnt covariance L L^T, the same in all states. `log_std` holds the
    logarithms of L's diagonal, then its entries below, row by row."""

    def __init__(self, space: spaces.Box):
        super().__init__(space)
        n = self.width
        self.n_outputs, self.n_log_std = n, n + n * (n - 1) // 2
        self._below = np.tril_indices(n, -1)

    def first_log_std(self, value: float) -> Tensor:
        start = torch.zeros(self.n_log_std)
        start[: self.width] = float(value)
        return start

    def log_prob_entropy(self, outputs: Tensor, log_std: Tensor | None, actions: Tensor) -> Pair:
        assert log_std is not None
        n, factor = self.width, self._factor(log_std)
        difference = (actions - outputs).unsqueeze(-1)
        z = torch.linalg.solve_triangular(factor, difference, upper=False).squeeze(-1)
        half_log_det = log_std[:n].sum()
        log_prob = -0.5 * z.square().sum(-1) - half_log_det - n * LOG_SQRT_2PI
        return log_prob, half_log_det + n * (0.5 + LOG_SQRT_2PI)

    def _factor(self, log_std: Tensor) -> Tensor:
        n = self.width
        below = torch.zeros(n, n, dtype=log_std.dtype, device=log_std.device)
        rows, cols = (torch.from_numpy(axis).to(log_std.device) for axis in self._below)
        below = below.index_put((rows, cols), log_std[n:])
        return below + torch.diag(log_std[:n].exp())

    def _numpy_factor(self, log_std: Array) -> Array:
        factor = np.diag(np.exp(log_std[: self.width]))
        factor[self._below] = log_std[self.width :]
        return factor

    def sample(self, outputs: Array, log_std: Array | None, rng: Rng) -> Array:
        assert log_std is not None
        noise = rng.standard_normal(outputs.shape, dtype=np.float32)
        return (outputs + noise @ self._numpy_factor(log_std).T).astype(np.float32)

    def mode(self, outputs: Array) -> Array:
        return outputs

    def moments(self, outputs: Array, log_std: Array | None) -> Moments:
        assert log_std is not None
        std = np.sqrt(np.square(self._numpy_factor(log_std)).sum(axis=1))
        return outputs, np.broadcast_to(std, outputs.shape)


class GumbelActions(ActionKind):
    """A relaxed one-hot vector, stored as its logarithm [n]; the env gets the largest entry.

    The entropy is that of the categorical distribution behind it: the density's own has no closed
    form."""

    dtype = np.float32

    def __init__(self, space: spaces.Discrete, temperature: float = 1.0):
        self.space, self.temperature = space, temperature
        self.n, self.start = int(space.n), int(space.start)
        self.n_outputs = self.n
        self.shape = (self.n,)

    def log_prob_entropy(self, outputs: Tensor, log_std: Tensor | None, actions: Tensor) -> Pair:
        log_probs, n = torch.log_softmax(outputs, dim=-1), self.n
        score = log_probs - self.temperature * actions
        constant = math.lgamma(n) + (n - 1) * math.log(self.temperature)
        log_prob = constant + score.sum(-1) - n * torch.logsumexp(score, dim=-1)
        return log_prob, -(log_probs.exp() * log_probs).sum(-1)

    def sample(self, outputs: Array, log_std: Array | None, rng: Rng) -> Array:
        noise = -np.log(rng.standard_exponential(outputs.shape) + 1e-30)
        return self._normalised((outputs + noise) / self.temperature)

    def _normalised(self, scores: Array) -> Array:
        top = scores.max(axis=1, keepdims=True)
        total = np.log(np.exp(scores - top).sum(axis=1, keepdims=True)) + top
        return (scores - total).astype(np.float32)

    def mode(self, outputs: Array) -> Array:
        return self._normalised(outputs)

    def probabilities(self, outputs: Array) -> Array:
        return softmax(outputs)

    def uniform(self, n: int, rng: Rng, mask: Array | None = None) -> Array:
        return self.sample(np.zeros((n, self.n)), None, rng)

    def to_env(self, actions: Array) -> Array:
        return actions.argmax(axis=1) + self.start

    def from_env(self, actions: Array) -> Array:
        raise ConfigError(
            "action_dist: gumbel learns from relaxed one-hot vectors, which demonstrated actions "
            "are not; use categorical"
        )


# -- choosing -------------------------------------------------------------------------------------

_BOX: dict[str, Callable[..., ActionKind]] = {
    "gaussian": BoxActions,
    "gaussian_state": StateGaussianActions,
    "squashed": SquashedActions,
    "beta": BetaActions,
    "multivariate": MultivariateActions,
    "lognormal": LogNormalActions,
    "gumbel": GumbelBoxActions,
}
_DISCRETE: dict[str, Callable[..., ActionKind]] = {
    "categorical": DiscreteActions,
    "gumbel": GumbelActions,
    "argmax": ArgmaxActions,
}


def chosen_kind(
    space: Space,
    dist: str = "auto",
    *,
    log_std_init: float = 0.0,
    temperature: float = 1.0,
    sde: bool = False,
) -> ActionKind:
    """The object for an action space with the distribution `dist`. In a Dict or Tuple it applies to
    the leaves that it fits; ConfigError if it fits none. `sde`: the network gives the deviation of
    state-dependent exploration."""
    plain = action_kind(space)
    if sde and not isinstance(plain, BoxActions):
        raise ConfigError(f"sde: needs real-valued actions (a Box), but actions are {space}")
    if sde and dist not in ("auto", "gaussian", "squashed"):
        raise ConfigError(f"sde: action_dist must be gaussian or squashed, not {dist}")
    if dist == "auto" and not sde:
        return plain
    if isinstance(plain, ProductActions):
        if not _fits(space, dist):
            raise ConfigError(f"action_dist: {dist} fits no part of {space}")

        def of_leaf(leaf: Space) -> ActionKind:
            leaf_dist = dist if _fits(leaf, dist) else "auto"
            return chosen_kind(leaf, leaf_dist, log_std_init=log_std_init, temperature=temperature)

        return ProductActions(plain.space, of_leaf)  # type: ignore[arg-type]
    if not sde and not _fits(space, dist):
        fits = ", ".join(_dists(space)) or "auto"
        raise ConfigError(f"action_dist: {dist} does not fit {space}; use {fits}")
    needs_bounds = dist in ("squashed", "beta", "lognormal")
    if needs_bounds and isinstance(plain, BoxActions) and not plain.is_bounded:
        raise ConfigError(f"action_dist: {dist} needs finite bounds, but actions are {space}")
    if sde:
        kind = SquashedActions if dist == "squashed" else StateGaussianActions
        return kind(space, limits=(-math.inf, math.inf))  # type: ignore[arg-type]
    if dist == "gumbel" and is_discrete(space):
        return GumbelActions(space, temperature)
    make = _dists(space)[dist]
    is_of_state = isinstance(make, type) and issubclass(make, StateGaussianActions)
    return make(space, log_std_init) if is_of_state else make(space)


def _dists(space: Space) -> dict[str, Callable[..., ActionKind]]:
    """The distributions that fit a space; none for spaces of other kinds."""
    return _BOX if is_box(space) else _DISCRETE if is_discrete(space) else {}


def _fits(space: Any, dist: str) -> bool:
    if is_product(space):
        return any(_fits(part, dist) for part in parts_of(space).values())
    return dist in _dists(space)


# -- requirements of algorithms -------------------------------------------------------------------


def require_discrete(space: Space, algo_id: str, env_id: str) -> DiscreteActions:
    """Raise ConfigError unless the space is Discrete."""
    kind = action_kind(space)
    if not isinstance(kind, DiscreteActions):
        others = "ppo, sac or td3" if isinstance(kind, BoxActions) else "ppo or reinforce"
        raise ConfigError(
            f"algo_id: {algo_id} needs Discrete actions, but {env_id} has {space}; use {others}."
        )
    return kind


def require_bounded_box(
    space: Space, algo_id: str, env_id: str, needs: str = "continuous actions (a Box)"
) -> BoxActions:
    """Raise ConfigError unless the space is a Box with finite bounds."""
    kind = action_kind(space)
    if not isinstance(kind, BoxActions):
        others = "dqn, ppo or sac" if isinstance(kind, DiscreteActions) else "ppo or reinforce"
        raise ConfigError(
            f"algo_id: {algo_id} needs {needs}, but {env_id} has {space}; use {others}."
        )
    if not kind.is_bounded:
        raise ConfigError(
            f"algo_id: {algo_id} squashes its actions into the bounds of the Box, but {env_id} has "
            f"the unbounded {space}; give it finite bounds "
            "(env_wrappers: [{id: ActionRescale, ...}]), or use ppo."
        )
    return kind


def require_discrete_or_box(
    space: Space, algo_id: str, env_id: str
) -> DiscreteActions | BoundedNormalActions:
    """The kind of a Discrete space, or of a Box with finite bounds; ConfigError for others."""
    kind = action_kind(space)
    if isinstance(kind, DiscreteActions):
        return kind
    require_bounded_box(space, algo_id, env_id, "Discrete or Box actions")
    box: Any = space
    return BoundedNormalActions(box)
