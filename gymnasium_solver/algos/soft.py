"""Shared parts of SAC and CrossQ: settings of a soft actor-critic, and its temperature.

The temperature alpha weights entropy against reward. It is learnt (`ent_coef: auto`) so that the
policy's entropy stays at `target_entropy`, or it is a number or a schedule. The gradient is taken
with respect to log alpha, as in most implementations; the paper uses alpha, which only changes the
step size.
"""

import re
from typing import Annotated, Literal

import torch
from pydantic import AfterValidator, Field, WithJsonSchema
from torch import Tensor

from gymnasium_solver.algos.off_policy_config import OffPolicyConfig
from gymnasium_solver.config.schedule import (
    EXPECTED,
    NonNegativeSchedule,
    PositiveSchedule,
    Scheduled,
)
from gymnasium_solver.config.schema import Count, CriticFields, Float
from gymnasium_solver.fast.optimizer import Optimizer
from gymnasium_solver.nets.actor_critics import Temperature

# Where a learnt temperature starts. The entropy of discrete actions is positive, so each step earns
# up to alpha * log(n): with an alpha of 1 that exceeds most rewards, and the policy avoids goals
# that end an episode until alpha has fallen. Normalised rewards are small, as returns have a size
# of 1.
FIRST_ALPHA, LOW_FIRST_ALPHA = 1.0, 0.01

_AUTO = re.compile(r"auto(?:_([0-9]+\.?[0-9]*(?:[eE][-+]?[0-9]+)?|\.[0-9]+))?")
_AUTO_EXPECTED = "auto, auto_NUMBER (initial value, > 0)"


def _check_auto(text: str) -> str:
    match = _AUTO.fullmatch(text)
    if match is None or (match[1] and float(match[1]) <= 0):
        raise ValueError(f"expected {_AUTO_EXPECTED} or {EXPECTED} with values >= 0")
    return text


Auto = Annotated[
    str,
    AfterValidator(_check_auto),
    WithJsonSchema(
        {"type": "string", "pattern": f"^{_AUTO.pattern}$", "x-expected": _AUTO_EXPECTED}
    ),
]


class SoftConfig(OffPolicyConfig, CriticFields):
    buffer_size: Count = 1_000_000
    """Capacity of the replay buffer in transitions, over all environments. More: more varied, older
    data."""
    max_grad_norm: Annotated[Float, Field(gt=0)] | None = None
    """Clip the gradient norm to this value. null: no clipping."""
    n_critics: Count = 2
    """Number of critics; the lowest value is used. More: less overestimation, slower."""
    noise_correlation: Annotated[Float, Field(ge=0, lt=1)] = 0.0
    """Correlation of the exploration noise between steps; for discrete actions the probability to
    keep the noise. Higher: keeps a direction for longer, which finds rewards that independent noise
    does not."""

    # --- entropy
    ent_coef: Auto | NonNegativeSchedule = "auto"
    """Weight of the entropy (alpha). auto: learned, starting at 1, or at 0.01 for discrete actions
    and for normalised rewards; auto_0.1: learned, starting there; or a number or schedule. Higher:
    explores more, converges later."""
    target_entropy: Literal["auto"] | Scheduled = "auto"
    """Target entropy of a learned weight, in nats. auto: minus the number of action components; for
    discrete actions target_entropy_ratio of the maximum. Higher: explores more."""
    alpha_lr: PositiveSchedule | None = None
    """Learning rate of alpha. null: same as policy_lr."""
    log_alpha_min: Float | None = None
    """Lower bound of the log of a learned alpha. null: no bound."""
    log_alpha_max: Float | None = None
    """Upper bound of the log of a learned alpha. null: no bound. Set it if values explode."""

    def first_alpha(self, *, is_discrete: bool) -> float | None:
        """Initial value of a learnt temperature; None if it is not learnt."""
        if not isinstance(self.ent_coef, str):
            return None
        match = _AUTO.fullmatch(self.ent_coef)
        if match and match[1]:
            return float(match[1])
        return LOW_FIRST_ALPHA if is_discrete or self.scales_reward else FIRST_ALPHA


def learn_alpha(
    temperature: Temperature,
    optimizer: Optimizer,
    entropy_gap: Tensor,
    lr: float,
    bounds: tuple[float | None, float | None],
) -> Tensor:
    """One gradient step on log alpha * (entropy - target); too little entropy raises alpha. Returns
    the loss. `entropy_gap` may be overwritten."""
    log_alpha = temperature.log_alpha.detach()
    loss = log_alpha.squeeze(0) * entropy_gap
    optimizer.step(entropy_gap.reshape(1), lr)
    if bounds != (None, None):
        torch.clamp(log_alpha, *bounds, out=log_alpha)
    return loss
