"""Generalised state-dependent exploration (gSDE, Raffin et al. 2021): the output layer of an actor.

The noise on an action is features @ E, with a matrix E that is drawn from N(0, exp(log_std)^2) and
kept for many steps (policies/state_noise.py). In similar states it is similar, so exploration is
smooth. In one state, over all E, it is normal with the variance features^2 @ exp(log_std)^2, which
is what log-probabilities are computed with. All of it is as in SB3, with its epsilon of 1e-6 added
to the variance.
"""

import torch
from torch import Tensor, nn

EPSILON = 1e-6
CLIP_MEAN = 2.0  # of SAC's means before the tanh, as in SB3


class SdeHead(nn.Module):
    """Features -> means and log standard deviations [B, 2 A]."""

    draw: Tensor

    def __init__(
        self,
        mean: nn.Module,
        n_features: int,
        n_actions: int,
        log_std_init: float,
        *,
        learns_features: bool = False,
        clip_mean: float | None = None,
    ):
        """`mean`: the layer of the means. `learns_features`: the features get the gradient of the
        deviation, too (SAC), and a draw of E for the loss is kept in `draw`."""
        super().__init__()
        self.mean, self.clip_mean = mean, clip_mean
        self.learns_features = learns_features
        self.log_std = nn.Parameter(torch.full((n_features, n_actions), float(log_std_init)))
        if learns_features:
            self.register_buffer("draw", torch.zeros(n_features, n_actions), persistent=False)

    def forward(self, features: Tensor) -> Tensor:
        mean = self.mean(features)
        if self.clip_mean is not None:
            mean = mean.clamp(-self.clip_mean, self.clip_mean)
        seen = features if self.learns_features else features.detach()
        variance = seen.square() @ (2.0 * self.log_std).exp()
        return torch.cat([mean, 0.5 * (variance + EPSILON).log()], dim=1)

    def noise(self, features: Tensor) -> Tensor:
        """Noise [B, A] of the matrix E whose standard normal numbers are in `draw`."""
        return features @ (self.log_std.exp() * self.draw)
