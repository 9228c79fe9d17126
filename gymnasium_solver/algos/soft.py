"""The temperature of a soft actor-critic, for SAC and CrossQ.

The temperature alpha weights entropy against reward. It is learnt (`ent_coef: auto`) so that the
policy's entropy stays at `target_entropy`, or it is a number or a schedule. The gradient is taken
with respect to log alpha, as in most implementations; the paper uses alpha, which only changes the
step size.
"""

import torch
from torch import Tensor

from gymnasium_solver.fast.optimizer import Optimizer
from gymnasium_solver.nets.actor_critics import Temperature


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
