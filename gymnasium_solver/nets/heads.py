"""Heads of critics: what the outputs of a network mean as a value, and how they are fitted.

    head = critic_head("c51", n_atoms=51, v_min=-10.0, v_max=10.0)
    outputs                                       # [...] for scalar, else [..., head.n_outputs]
    head.value(outputs)                           # [...]: the expected return
    wanted = head.target(next_outputs, reward, discount)   # r + discount * (Z + shift)
    wanted = head.known(returns)                  # of returns that are known
    loss, error = head.loss(outputs, wanted)      # both [...]; the error is for priorities

scalar     one number, squared or Huber error
symlog     one number, the sign(v) log(1 + |v|) of the value v: errors of large returns count
           little more than those of small ones (Hafner et al. 2023)
c51        a distribution on fixed atoms; the target is the next one, shifted and projected
           (Bellemare et al. 2017)
two_hot    the same outputs; the target is the expected value, split between its two neighbours
hl_gauss   the same; the target is a normal distribution around it (Farebrother et al. 2024)
quantile   quantiles of the return by regression (Dabney et al. 2018)
"""

from collections.abc import Callable
from typing import Any, Literal

import torch
from torch import Tensor, nn

HeadKind = Literal["scalar", "symlog", "c51", "two_hot", "hl_gauss", "quantile"]
HL_GAUSS_WIDTH = 0.75  # standard deviation of the target, in distances of atoms


def huber(error: Tensor) -> Tensor:
    """Huber loss: x^2 / 2 up to 1, linear beyond."""
    size = error.abs()
    near = size.clamp(max=1.0)
    return near * (size - 0.5 * near)


class ScalarHead(nn.Module):
    n_outputs = 1

    def __init__(self, loss: Literal["mse", "huber"] = "mse"):
        super().__init__()
        self._is_huber = loss == "huber"

    def value(self, outputs: Tensor) -> Tensor:
        return outputs

    def target(
        self, outputs: Tensor, reward: Tensor, discount: Tensor, shift: Tensor | None = None
    ) -> Tensor:
        return reward + discount * (outputs if shift is None else outputs + shift)

    def known(self, returns: Tensor) -> Tensor:
        return returns

    def loss(self, outputs: Tensor, wanted: Tensor) -> tuple[Tensor, Tensor]:
        error = outputs - wanted
        return huber(error) if self._is_huber else error.square(), error.abs()

    def critics_loss(
        self, outputs: Tensor, wanted: Tensor, weight: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Half the weighted mean squared error of each critic [n, B], summed over critics.

        Returns the loss, the mean value and, for priorities, the absolute error [B] averaged over
        critics."""
        error = outputs - wanted
        loss = 0.5 * (weight * error.square()).mean(1).sum()
        return loss, self.value(outputs.detach()).mean(), error.detach().abs().mean(0)

    def lowest(self, outputs: Tensor) -> Tensor:
        """The outputs [B] of the lowest of several critics [n, B]."""
        return outputs.amin(0)


class SymlogHead(ScalarHead):
    """The output is the symlog of the value. Order is kept, so the lowest output is of the lowest
    critic."""

    def value(self, outputs: Tensor) -> Tensor:
        return symexp(outputs)

    def target(
        self, outputs: Tensor, reward: Tensor, discount: Tensor, shift: Tensor | None = None
    ) -> Tensor:
        return symlog(super().target(symexp(outputs), reward, discount, shift))

    def known(self, returns: Tensor) -> Tensor:
        return symlog(returns)


def symlog(x: Tensor) -> Tensor:
    return x.sign() * x.abs().log1p()


def symexp(x: Tensor) -> Tensor:
    """The inverse of `symlog`."""
    return x.sign() * x.abs().expm1()


class DistributionHead(nn.Module):
    """Base of the heads with several outputs for a value."""

    n_outputs: int
    value: Callable[[Tensor], Tensor]
    loss: Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]
    moved: Callable[[Tensor, Tensor, Tensor], Tensor]  # the target: r + discount * Z

    def target(
        self, outputs: Tensor, reward: Tensor, discount: Tensor, shift: Tensor | None = None
    ) -> Tensor:
        return self.moved(outputs, reward if shift is None else reward + discount * shift, discount)

    def critics_loss(
        self, outputs: Tensor, wanted: Tensor, weight: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """The weighted mean loss of each critic [n, B], summed over critics; see ScalarHead."""
        loss, error = self.loss(outputs, wanted)
        total = (weight * loss).mean(1).sum()
        return total, self.value(outputs.detach()).mean(), error.detach().mean(0)

    def lowest(self, outputs: Tensor) -> Tensor:
        """The outputs [B, K] of the critic with the lowest value, for each sample."""
        choice = (-self.value(outputs)).argmax(0)  # [B]; argmin has no compiled form
        index = choice.view(1, -1, 1).expand(1, -1, outputs.shape[2])
        return outputs.gather(0, index).squeeze(0)


class CategoricalHead(DistributionHead):
    """Logits over fixed atoms between `v_min` and `v_max`."""

    support: Tensor

    def __init__(
        self, n_atoms: int, v_min: float, v_max: float, kind: Literal["c51", "two_hot", "hl_gauss"]
    ):
        super().__init__()
        self.n_outputs, self.v_min, self.v_max, self.kind = n_atoms, v_min, v_max, kind
        self.spacing = (v_max - v_min) / (n_atoms - 1)
        self.register_buffer("support", torch.linspace(v_min, v_max, n_atoms), persistent=False)

    def value(self, outputs: Tensor) -> Tensor:
        return (torch.softmax(outputs, dim=-1) * self.support).sum(-1)

    def moved(self, outputs: Tensor, reward: Tensor, discount: Tensor) -> Tensor:
        if self.kind != "c51":
            return self.known(reward + discount * self.value(outputs))
        shifted = reward.unsqueeze(-1) + discount.unsqueeze(-1) * self.support  # [B, K]
        return self._projected(shifted, torch.softmax(outputs, dim=-1))

    def known(self, returns: Tensor) -> Tensor:
        if self.kind != "hl_gauss":
            one = returns.unsqueeze(-1)
            return self._projected(one, torch.ones_like(one))
        edges = torch.cat([self.support - self.spacing / 2, self.support[-1:] + self.spacing / 2])
        near = returns.clamp(self.v_min, self.v_max).unsqueeze(-1)
        scale = HL_GAUSS_WIDTH * self.spacing * 2**0.5
        mass = torch.erf((edges - near) / scale)
        whole = mass[..., -1:] - mass[..., :1]
        return (mass[..., 1:] - mass[..., :-1]) / whole

    def _projected(self, values: Tensor, probs: Tensor) -> Tensor:
        """Probabilities of values [B, J] on the atoms [B, K].

        Each value is split between its two neighbours by distance: atom i gets the fraction
        max(0, 1 - |z - z_i| / spacing)."""
        values = values.clamp(self.v_min, self.v_max)
        distance = (values.unsqueeze(-2) - self.support.unsqueeze(-1)).abs() / self.spacing
        return ((1.0 - distance).clamp(min=0.0) * probs.unsqueeze(-2)).sum(-1)  # [B, K, J]

    def loss(self, outputs: Tensor, wanted: Tensor) -> tuple[Tensor, Tensor]:
        """The cross-entropy to the target, twice."""
        entropy = -(wanted * torch.log_softmax(outputs, dim=-1)).sum(-1)
        return entropy, entropy


class SymlogCategoricalHead(CategoricalHead):
    """Two-hot targets on atoms of the symlog of the value: the bins of large values are wider
    (DreamerV3, TD-MPC2)."""

    def __init__(self, n_atoms: int, v_min: float, v_max: float):
        super().__init__(n_atoms, v_min, v_max, "two_hot")

    def value(self, outputs: Tensor) -> Tensor:
        return symexp(super().value(outputs))

    def known(self, returns: Tensor) -> Tensor:
        return super().known(symlog(returns))


class SymexpTwoHotHead(DistributionHead):
    """Two-hot targets on bins that are the symexp of evenly spaced numbers, symmetric around 0: a
    return is split between two bins by its distance to them, and the value is the mean of the bins
    (DreamerV3). The target is the return itself: only two log-probabilities of each row count."""

    bins: Tensor

    def __init__(self, n_bins: int = 255, limit: float = 20.0):
        """`n_bins`: an odd number, as 0 has a bin of its own. `limit`: symlog of the largest."""
        super().__init__()
        self.n_outputs, self._n_positive = n_bins, n_bins // 2
        positive = symexp(torch.linspace(0.0, limit, self._n_positive + 1))[1:]
        bins = torch.cat([-positive.flip(0), torch.zeros(1), positive])
        self.register_buffer("bins", bins, persistent=False)

    def value(self, outputs: Tensor) -> Tensor:
        """Probabilities of opposite bins are subtracted first. Products that are then summed would
        leave a rounding error of the largest bins, 5e8, where all outputs are 0."""
        n, probs = self._n_positive, torch.softmax(outputs, dim=-1)
        return ((probs[..., n + 1 :] - probs[..., :n].flip(-1)) * self.bins[n + 1 :]).sum(-1)

    def known(self, returns: Tensor) -> Tensor:
        return returns

    def loss(self, outputs: Tensor, wanted: Tensor) -> tuple[Tensor, Tensor]:
        """The cross-entropy to the two-hot target, twice."""
        entropy = self.cross_entropy(torch.log_softmax(outputs, dim=-1), wanted)
        return entropy, entropy

    def cross_entropy(self, log_probs: Tensor, wanted: Tensor) -> Tensor:
        above = torch.bucketize(wanted, self.bins, right=True).clamp(1, self.n_outputs - 1)
        low, high = self.bins[above - 1], self.bins[above]
        share = ((wanted - low) / (high - low)).clamp(0.0, 1.0)
        both = log_probs.gather(-1, torch.stack([above - 1, above], dim=-1))
        return -torch.lerp(both[..., 0], both[..., 1], share)


class QuantileHead(DistributionHead):
    """Values at evenly spaced quantiles of the return."""

    levels: Tensor

    def __init__(self, n_quantiles: int):
        super().__init__()
        self.n_outputs = n_quantiles
        levels = (torch.arange(n_quantiles) + 0.5) / n_quantiles
        self.register_buffer("levels", levels, persistent=False)

    def value(self, outputs: Tensor) -> Tensor:
        return outputs.mean(-1)

    def moved(self, outputs: Tensor, reward: Tensor, discount: Tensor) -> Tensor:
        return reward.unsqueeze(-1) + discount.unsqueeze(-1) * outputs

    def known(self, returns: Tensor) -> Tensor:
        return returns.unsqueeze(-1)

    def loss(self, outputs: Tensor, wanted: Tensor) -> tuple[Tensor, Tensor]:
        """The quantile Huber loss, summed over quantiles, and the error of the mean."""
        error = wanted.unsqueeze(-2) - outputs.unsqueeze(-1)  # [..., K, J]
        side = (self.levels.unsqueeze(-1) - (error.detach() < 0).to(error.dtype)).abs()
        loss = (side * huber(error)).mean(-1).sum(-1)
        return loss, (wanted.mean(-1) - outputs.mean(-1)).abs()


CriticHead = ScalarHead | CategoricalHead | QuantileHead


def critic_head(
    kind: HeadKind,
    *,
    n_atoms: int = 51,
    v_min: float = 0.0,
    v_max: float = 0.0,
    loss: Literal["mse", "huber"] = "mse",
) -> CriticHead:
    """The head of this kind. `loss`: of a scalar head; `n_atoms`: of the others."""
    if kind == "scalar":
        return ScalarHead(loss)
    if kind == "symlog":
        return SymlogHead(loss)
    if kind == "quantile":
        return QuantileHead(n_atoms)
    return CategoricalHead(n_atoms, v_min, v_max, kind)


# ------------------------------------------------------------------------------------------
# Normalised value targets (PopArt, van Hasselt et al. 2016).
#
# The critic's head predicts (return - mean) / deviation; `forward` gives values in the units of the
# return. When the statistics change, the head's weights are rescaled so that every value stays
# exactly what it was.


SMALLEST_STD = 1e-2
LEAST_WEIGHT = 0.05  # of the newest rollout in the running moments


class ValueScale(nn.Module):
    mean: Tensor
    std: Tensor
    moments: Tensor
    count: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(()))
        self.register_buffer("std", torch.ones(()))
        # Running mean and variance of the returns. Single precision, or the mean of squares, would
        # lose a deviation that is small compared with the mean.
        self.register_buffer("moments", torch.tensor([0.0, 1.0], dtype=torch.float64))
        self.register_buffer("count", torch.zeros(()))  # rollouts seen

    def forward(self, output: Tensor) -> Tensor:
        return output * self.std + self.mean

    @torch.no_grad()
    def update(self, returns: Tensor, head: nn.Linear) -> None:
        """Take the returns of a rollout into the moments, and rescale the head."""
        weight = (1.0 / (self.count + 1.0)).clamp(min=LEAST_WEIGHT).double()
        exact = returns.double()
        mean, variance = self.moments
        step = exact.mean() - mean
        variance = torch.lerp(variance, exact.var(correction=0), weight)
        variance = variance + weight * (1.0 - weight) * step.square()
        mean = mean + weight * step
        std = variance.sqrt().clamp(min=SMALLEST_STD)
        old_mean, old_std = self.mean.clone(), self.std.clone()
        self.mean.copy_(mean)
        self.std.copy_(std)
        head.weight.mul_(old_std / self.std)
        head.bias.copy_((old_std * head.bias + old_mean - self.mean) / self.std)
        self.moments.copy_(torch.stack([mean, variance]))
        self.count.add_(1.0)

    def _load_from_state_dict(self, state: dict[str, Any], prefix: str, *args: Any) -> None:
        """Also read a checkpoint of version 0.1, which has the mean of squares."""
        if state.pop(f"{prefix}square", None) is not None:
            mean, std = state[f"{prefix}mean"].double(), state[f"{prefix}std"].double()
            state[f"{prefix}moments"] = torch.stack([mean, std.square()])
        super()._load_from_state_dict(state, prefix, *args)
