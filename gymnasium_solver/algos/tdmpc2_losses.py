"""The losses of TD-MPC2 (Hansen et al. 2024), as pure functions of networks and a batch.

A batch has B subsequences of H steps. Steps after the end of an episode are not `valid` and count
nothing. A step t of the latent rollout has the weight rho^t.

    model     20 consistency + 0.1 reward + 0.1 value + termination      trains all but the policy
    policy    -(Q / scale + 1e-4 entropy) on the latent states of the rollout, which are given
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from gymnasium_solver.algos.configs.tdmpc2 import TDMPC2Config
from gymnasium_solver.algos.units import percentiles
from gymnasium_solver.nets.world_model import (
    CriticEnsemble,
    WorldModel,
    lowest_of_picked,
    mean_of_picked,
)
from gymnasium_solver.spaces.actions import LOG_SQRT_2PI
from gymnasium_solver.tree import map_tree

SCALE_PERCENTILES = (0.05, 0.95)
LEAST_SCALE = 1.0


class ModelBatch(NamedTuple):
    obs: Any  # tree of [B, H + 1, ...]
    actions: Tensor  # [B, H, A]
    reward: Tensor  # [B, H]
    goes_on: Tensor  # 0 for a step that terminated [B, H]
    valid: Tensor  # [B, H]
    noise: Tensor  # of the target's actions, standard normal [B, H, A]
    pick: Tensor  # ones for two target critics [B, n]
    keep: Tensor | None = None  # dropout of the critics [B, H, n, width]
    shift: Tensor | None = None  # of images [B, H + 1, 2]


class PolicyBatch(NamedTuple):
    z: Tensor  # latent states of the rollout [B, H + 1, L]
    valid: Tensor  # [B, H + 1]
    noise: Tensor  # [B, H + 1, A]
    pick: Tensor  # [B, n]
    keep: Tensor | None = None  # [B, H + 1, n, width]


def step_weights(valid: Tensor, rho: float) -> Tensor:
    """[B, H]: rho^t / H for the valid steps t."""
    n_steps = valid.shape[1]
    powers = [rho**t / n_steps for t in range(n_steps)]
    return torch.stack([valid[:, t] * power for t, power in enumerate(powers)], dim=1)


def _rows(part: Tensor) -> Tensor:
    return part.flatten(0, 1)


def _by_critic(part: Tensor, n_steps: int) -> Tensor:
    """[B, n] for all steps of a subsequence: [n, B * H]."""
    return part.t().repeat_interleave(n_steps, dim=1)


def _kept(keep: Tensor | None) -> Tensor | None:
    """[B, H, n, width] -> [n, B * H, width]."""
    return None if keep is None else keep.permute(2, 0, 1, 3).flatten(1, 2)


@torch.no_grad()
def td_targets(
    net: WorldModel, target: CriticEnsemble, next_z: Tensor, batch: ModelBatch, gamma: Tensor
) -> Tensor:
    """[B, H]: r + gamma (1 - terminated) min of two target critics at the policy's action."""
    n, n_steps = batch.reward.shape
    q = net.head.value(target(next_z, net.prior_action(next_z, _rows(batch.noise))))
    lowest = lowest_of_picked(q, _by_critic(batch.pick, n_steps)).view(n, n_steps)
    return batch.reward + gamma * batch.goes_on * lowest


def model_loss(
    net: WorldModel, target: CriticEnsemble, batch: ModelBatch, gamma: Tensor, cfg: TDMPC2Config
) -> tuple[Tensor, dict[str, Tensor]]:
    """The loss of encoder, dynamics, rewards, terminations and critics. The targets come first:
    the latent states of the observations that follow, and their values, without a gradient."""
    n, n_steps = batch.reward.shape
    head, weight = net.head, step_weights(batch.valid, cfg.step_weight)

    def encode(start: int, stop: int) -> Tensor:
        obs = map_tree(lambda part: part[:, start:stop].flatten(0, 1), batch.obs)
        shift = None if batch.shift is None else batch.shift[:, start:stop].flatten(0, 1)
        return net.encode(obs, shift, cfg.image_shift)

    def mean(loss: Tensor) -> Tensor:  # [B, H]
        return (weight * loss).sum(1).mean()

    with torch.no_grad():
        next_z = encode(1, n_steps + 1)
        wanted = td_targets(net, target, next_z, batch, gamma)
        seen = next_z.view(n, n_steps, -1)
    states, errors = [encode(0, 1)], []
    for t in range(n_steps):
        states.append(net.next(states[-1], batch.actions[:, t]))
        errors.append((states[-1] - seen[:, t]).square().mean(1))
    z = torch.stack(states, dim=1)  # [B, H + 1, L]
    before, actions = _rows(z[:, :-1]), _rows(batch.actions)
    known = head.known(_rows(batch.reward))
    reward_loss, _ = head.loss(net.reward_outputs(before, actions), known)
    outputs = net.critic(before, actions, _kept(batch.keep))
    value_loss, _ = head.loss(outputs, head.known(_rows(wanted)))
    losses = {
        "consistency": mean(torch.stack(errors, dim=1)),
        "reward": mean(reward_loss.view(n, n_steps)),
        "critic": mean(value_loss.mean(0).view(n, n_steps)),
    }
    total = cfg.consistency_coef * losses["consistency"] + cfg.reward_coef * losses["reward"]
    total = total + cfg.critic_coef * losses["critic"]
    ends = net.end_logits(_rows(z[:, 1:]))
    if ends is not None:
        losses["termination"] = termination_loss(ends.view(n, n_steps), batch.goes_on, batch.valid)
        total = total + cfg.termination_coef * losses["termination"]
    q = head.value(outputs.detach()).mean()
    found = {f"opt/loss/{name}": loss for name, loss in losses.items()}
    return total, {**found, "opt/loss/model": total, "opt/q/mean": q, "z": z.detach()}


def termination_loss(logits: Tensor, goes_on: Tensor, valid: Tensor) -> Tensor:
    """Binary cross-entropy [B, H], the mean over steps; all steps count alike."""
    loss = functional.softplus(logits) - (1.0 - goes_on) * logits
    return (valid * loss).mean()


@torch.no_grad()
def next_scale(net: WorldModel, batch: PolicyBatch, tau: float) -> Tensor:
    """The running spread of values between their 5th and 95th percentile, at least 1: of the first
    latent states only, before the policy's step."""
    scale, keep = net.q_scale, batch.keep
    first = PolicyBatch(
        batch.z[:, :1], batch.valid[:, :1], batch.noise[:, :1], batch.pick,
        None if keep is None else keep[:, :1],
    )  # fmt: skip
    q, _ = policy_values(net, first)
    low, high = percentiles(q[:, 0], SCALE_PERCENTILES)
    return scale + tau * ((high - low).clamp(min=LEAST_SCALE) - scale)


def policy_values(net: WorldModel, batch: PolicyBatch) -> tuple[Tensor, Tensor]:
    """Values of the policy's actions, the mean of two critics, and the log-probabilities of these
    actions before tanh; both [B, H + 1]."""
    n, n_steps = batch.valid.shape
    z, noise = _rows(batch.z), _rows(batch.noise)
    mean, log_std = net.prior_moments(z)
    actions = torch.tanh(mean + log_std.exp() * noise)
    log_prob = (-0.5 * noise.square() - log_std - LOG_SQRT_2PI).sum(1)
    q = net.head.value(net.critic(z, actions, _kept(batch.keep)))
    q = mean_of_picked(q, _by_critic(batch.pick, n_steps))
    return q.view(n, n_steps), log_prob.view(n, n_steps)


def policy_loss(
    net: WorldModel, batch: PolicyBatch, c: Mapping[str, Tensor], rho: float
) -> tuple[Tensor, dict[str, Tensor]]:
    """Minus the value of the policy's actions divided by `scale`, and `entropy` times their entropy
    before tanh and the number of components."""
    q, log_prob = policy_values(net, batch)
    gain = q / c["scale"] - c["entropy"] * net.n_actions * log_prob
    loss = -(step_weights(batch.valid, rho) * gain).sum(1).mean()
    return loss, {"opt/loss/policy": loss, "opt/policy/entropy": -log_prob.detach().mean()}
