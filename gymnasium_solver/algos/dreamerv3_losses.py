"""The loss of DreamerV3 (Hafner et al. 2023), as a pure function of networks and a batch.

A batch has B sequences of L rows, time first. A row is an observation, the action before it, the
reward that came with it, and whether it ended its episode. All parts have one loss:

    model        prior and posterior towards each other, reconstruction, reward, continuation
    actor        -(log pi * advantage / scale + entropy) of imagined steps, from all L * B states
    critic       cross-entropy to imagined returns and to the slow critic, and (0.3) to returns of
                 the replay, which alone sends a gradient into the model

What is imagined has no gradient: the actor's is that of REINFORCE.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from gymnasium_solver.algos.configs.dreamerv3 import DreamerV3Config
from gymnasium_solver.algos.units import percentiles
from gymnasium_solver.nets.rssm import DreamerNet, Seen
from gymnasium_solver.nets.rssm_scan import Weights
from gymnasium_solver.spaces.actions import ActionKind
from gymnasium_solver.tree import map_tree

RANGE_PERCENTILES = (0.05, 0.95)
RANGE_RATE = 0.01  # by which the range of returns follows
LEAST_SCALE = 1.0  # small returns are not made larger
BARLOW_OTHERS = 5e-4  # weight of correlations with other tokens
SLOW_WEIGHT = 1.0  # of the cross-entropy to the slow critic


class DreamBatch(NamedTuple):
    """Arrays on the host, tensors for the loss."""

    obs: Any  # tree of [L, B, ...]
    actions: Any  # before each observation [L, B], or [L, B, A]
    reward: Any  # with it [L, B]
    terminal: Any  # 1 where it terminated the episode [L, B]
    last: Any  # 1 where it is the last of its episode [L, B]
    is_first: Any  # [L, B]
    core: Any  # the acting policy's carry before the first row [B, W]
    latent_noise: Any = None  # uniform [L, B, latents]
    dream_noise: Any = None  # the same of H imagined steps [H, L * B, latents]
    action_noise: Any = None  # of their actions, as `ActionKind.from_noise` takes it [H, L * B, A]


class Dream(NamedTuple):
    states: Tensor  # [H + 1, N, W]
    actions: Tensor  # between them [H, N], or [H, N, A]


def kl_losses(post: Tensor, prior: Tensor, free_nats: float) -> tuple[Tensor, Tensor]:
    """Kullback-Leibler divergences [...] of latents [..., S, C], summed over the latents, then at
    least `free_nats`: the prior towards the posterior, and the posterior towards the prior."""

    def divergence(p: Tensor, q: Tensor) -> Tensor:
        return (p * (p.log() - q.log())).sum((-2, -1)).clamp(min=free_nats)

    return divergence(post.detach(), prior), divergence(post, prior.detach())


def reconstruction_loss(net: DreamerNet, found: Seen, seen: Seen) -> Tensor:
    """[N]: squared errors of squashed numbers and of pixels, cross-entropies of one-hot parts."""
    total = torch.zeros((), device=net.device)
    if found.numbers is not None and seen.numbers is not None:
        n = net.n_plain
        total = total + (found.numbers[:, :n] - seen.numbers[:, :n]).square().sum(1)
        for size in net.choices:
            columns = slice(n, n + size)
            log_probs = torch.log_softmax(found.numbers[:, columns], dim=1)
            total = total - (seen.numbers[:, columns] * log_probs).sum(1)
            n += size
    if found.image is not None and seen.image is not None:
        total = total + (found.image - seen.image).square().sum((1, 2, 3))
    return total


def barlow_loss(found: Tensor, tokens: Tensor) -> Tensor:
    """In place of a reconstruction (R2-Dreamer, Morihira et al. 2026): each number [N, E] projected
    from a state correlates with its token over the rows, and little with the other tokens."""
    a, b = ((x - x.mean(0)) / (x.std(0) + 1e-8) for x in (found, tokens))
    correlations = a.t() @ b / len(found)
    own = correlations.diagonal()
    others = correlations.square().sum() - own.square().sum()
    return (own - 1.0).square().sum() + BARLOW_OTHERS * others


def continuation_loss(logits: Tensor, terminal: Tensor, gamma: Tensor) -> Tensor:
    """Cross-entropy to a label of gamma, or 0 at a termination: the discount is learnt with it."""
    wanted = gamma * (1.0 - terminal)
    return functional.softplus(logits) - wanted * logits


@torch.no_grad()
def imagine(net: DreamerNet, kind: ActionKind, start: Tensor, batch: DreamBatch) -> Dream:
    """The actor's steps from states [N, W]."""
    weights = net.rssm.weights()

    def dream(inputs: Sequence[Tensor]) -> list[Tensor]:
        """One step."""
        state, noise, latents, *w = inputs
        actions = kind.from_noise(net.actor(state), None, noise)
        later = net.rssm.imagine(state, net.action_input(actions), latents, Weights(*w))
        return [later, actions]

    found = [[start]]
    for noise in zip(batch.action_noise, batch.dream_noise, strict=True):
        found.append(net.rssm.rows(dream, found[-1][0], *noise, *weights))
    states, actions = zip(*found[1:], strict=True)
    return Dream(torch.stack([start, *states]), torch.stack(actions))


def lambda_returns(reward: Tensor, goes_on: Tensor, share: Tensor, value: Tensor) -> Tensor:
    """Returns [T - 1, N] of T rows: what follows row t is worth r + c ((1 - s) v + s R), all of
    row t + 1. `share` s of the later return R, 0 at the last row of an episode; `goes_on` c: the
    discount, 0 at a termination. From the last row on it is worth `value`."""
    found, later = [value[-1]], goes_on * share
    known = reward + (goes_on - later) * value
    for t in range(len(reward) - 1, 0, -1):
        found.append(torch.addcmul(known[t], later[t], found[-1]))
    return torch.stack(found[:0:-1])


def next_range(old: Tensor, returns: Tensor) -> Tensor:
    """The running 5th and 95th percentile [2] of returns."""
    new = torch.stack(percentiles(returns.flatten(), RANGE_PERCENTILES))
    return old + RANGE_RATE * (new - old)


def return_scale(bounds: Tensor) -> Tensor:
    return (bounds[1] - bounds[0]).clamp(min=LEAST_SCALE)


def critic_loss(
    net: DreamerNet, slow: nn.Module, states: Tensor, outputs: Tensor, wanted: Tensor
) -> Tensor:
    """Cross-entropies to returns, and to the value of the slow critic, which holds it back."""
    with torch.no_grad():
        held = net.head.value(slow(states))
    log_probs, loss = torch.log_softmax(outputs, dim=-1), net.head.cross_entropy
    return loss(log_probs, wanted) + SLOW_WEIGHT * loss(log_probs, held)


def behaviour_losses(
    net: DreamerNet, slow: nn.Module, kind: ActionKind, dream: Dream, c: Mapping[str, Tensor],
    td_lambda: float,
) -> tuple[dict[str, Tensor], dict[str, Tensor], Tensor]:  # fmt: skip
    """Losses of actor and critic on a dream, statistics, and the returns [H, N] of its states."""
    states, (n_steps, n) = dream.states, dream.states[1:].shape[:2]
    outputs = net.critic(states[:-1])
    with torch.no_grad():
        value = torch.cat([net.head.value(outputs), net.values(states[-1:])])
        goes_on = net.continues(states)
        share = torch.full_like(value, td_lambda)
        returns = lambda_returns(net.rewards(states), goes_on, share, value)
        # The chance that a state is reached: the first one may be the end of its episode.
        weight = goes_on.cumprod(0)[:-1]
        bounds = next_range(net.return_range, returns)
        advantage = (returns - value[:-1]) / return_scale(bounds)
    log_prob, entropy = kind.log_prob_entropy(
        net.actor(states[:-1].flatten(0, 1)), None, dream.actions.flatten(0, 1)
    )
    log_prob, entropy = log_prob.view(n_steps, n), entropy.view(n_steps, n)
    gain = log_prob * advantage + c["ent_coef"] * entropy
    fitted = critic_loss(net, slow, states[:-1], outputs, returns)
    losses = {"policy": -(weight * gain).mean(), "critic": (weight * fitted).mean()}
    found = {
        "opt/policy/entropy": entropy.detach().mean(),
        "opt/imagined/value": value.mean(),
        "opt/imagined/scale": return_scale(bounds),
        "bounds": bounds,
    }
    return losses, found, returns


def replay_critic_loss(
    net: DreamerNet, slow: nn.Module, states: Tensor, batch: DreamBatch, after: Tensor,
    gamma: Tensor, td_lambda: float,
) -> Tensor:  # fmt: skip
    """Of the critic on the states [L, B, W] of the sequences, by returns of the rewards that were
    got; they end in imagined ones, `after` [L, B]."""
    goes_on, share = gamma * (1.0 - batch.terminal), td_lambda * (1.0 - batch.last)
    returns = lambda_returns(batch.reward, goes_on, share, after)
    fitted = critic_loss(net, slow, states[:-1].detach(), net.critic(states[:-1]), returns)
    return ((1.0 - batch.last[:-1]) * fitted).mean()


def dreamer_loss(
    net: DreamerNet, slow: nn.Module, kind: ActionKind, batch: DreamBatch, c: Mapping[str, Tensor],
    cfg: DreamerV3Config,
) -> tuple[Tensor, dict[str, Tensor]]:  # fmt: skip
    shape, gamma = batch.reward.shape, c["gamma"]
    seen = net.seen(map_tree(lambda part: part.flatten(0, 1), batch.obs))
    tokens = net.tokens(seen).unflatten(0, shape)
    actions, before = net.action_input(batch.actions), batch.core[:, : net.state_width]
    states, post = net.rssm.observe(tokens, actions, batch.is_first, before, batch.latent_noise)
    dynamics, representation = kl_losses(post, net.rssm.prior(states), cfg.free_nats)
    rows = states.flatten(0, 1)
    reward, _ = net.head.loss(net.model.reward(states), batch.reward)
    ends = continuation_loss(net.model.continuation(states).squeeze(-1), batch.terminal, gamma)
    dream = imagine(net, kind, rows.detach(), batch)
    learnt, found, returns = behaviour_losses(net, slow, kind, dream, c, cfg.td_lambda)
    if net.model.project is None:
        again = reconstruction_loss(net, net.reconstructed(rows), seen).mean()
    else:
        again = barlow_loss(net.model.project(rows), tokens.flatten(0, 1).detach())
    losses = {
        "dynamics": dynamics.mean(),
        "representation": representation.mean(),
        "reconstruction": again,
        "reward": reward.mean(),
        "termination": ends.mean(),
        "replay_critic": replay_critic_loss(
            net, slow, states, batch, returns[0].view(shape), gamma, cfg.td_lambda
        ),
        **learnt,
    }
    total = cfg.dyn_coef * losses["dynamics"]
    total = total + cfg.rep_coef * losses["representation"]
    total = total + (cfg.barlow_coef if cfg.decoder_free else 1.0) * losses["reconstruction"]
    total = total + losses["reward"] + losses["termination"]
    total = total + cfg.replay_critic_coef * losses["replay_critic"]
    total = total + losses["policy"] + losses["critic"]
    named = {f"opt/loss/{name}": loss for name, loss in losses.items()}
    return total, {**named, **found, "opt/loss/model": total}
