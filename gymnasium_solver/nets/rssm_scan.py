"""The steps of an RSSM over sequences, with the gradient through time written out.

    states, probs = scan(weights, latents, given, seen, state, keep, noise)     # sequences
    state, probs = step(weights, latents, state, given, seen, noise)            # one row
    deter, *_ = memory_step(weights, state, given)              # without an observation

`given` [L, B, H] are the features of the action before each row, `seen` [L, B, H] the observation's
share of the posterior's first layer, `state` [B, D + Z] is the state before the first row, `keep`
[L, B, 1] is 0 where an episode starts and 1 elsewhere, `noise` [L, B, S] draws the latents.

Autograd would record about 40 small operations of every step, and take a gradient of every weight
in every step. Here the backward pass keeps in its loop only what depends on the next step, about 30
operations, and computes the gradients of weights for all rows at once. See scan.py, which does
the same for other cores. Differentiable once, in everything but `keep` and `noise`.
"""

from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional

NORM_EPS = 1e-4
UPDATE_BIAS = -1.0  # of the GRU: it starts by keeping most of its memory


class Weights(NamedTuple):
    """Of the layers of a step; G blocks, memory D, hidden width H, latents Z = S * C."""

    deter: Tensor  # [H, D]
    deter_bias: Tensor
    latent: Tensor  # [H, Z]
    latent_bias: Tensor
    norms: Tensor  # [2, H], of both
    mix: Tensor  # [G, D / G + 3 H, D / G]
    mix_bias: Tensor  # [G, D / G]
    mix_norm: Tensor  # [D]
    gates: Tensor  # [G, D / G, 3 D / G]
    gates_bias: Tensor  # [G, 3 D / G]
    seen: Tensor  # [H, D], the memory's share of the posterior's first layer
    seen_norm: Tensor  # [H]
    logits: Tensor  # [Z, H]
    logits_bias: Tensor


def drawn(probs: Tensor, noise: Tensor | None) -> Tensor:
    """One-hot samples of categorical variables [..., C], with the gradient of the probabilities
    (straight-through). `noise` [...]: uniform in [0, 1); None: the most likely class."""
    n = probs.shape[-1]
    if noise is None:
        index = probs.argmax(-1, keepdim=True)
    else:
        below = probs.detach().cumsum(-1) <= noise.unsqueeze(-1)
        index = below.sum(-1, keepdim=True).clamp(max=n - 1)  # a sum of 1 may be rounded down
    hot = (index == torch.arange(n, device=probs.device)).to(probs.dtype)
    return hot + (probs - probs.detach()) if probs.requires_grad else hot


def _normed(x: Tensor) -> tuple[Tensor, Tensor]:
    """x divided by its root mean square, and the factor."""
    factor = (x.square().mean(-1, keepdim=True) + NORM_EPS).rsqrt()
    return x * factor, factor


def _blocks(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """[B, G, n] @ [G, n, m] + [G, m]."""
    return torch.bmm(x.transpose(0, 1), weight).transpose(0, 1) + bias


def memory_step(w: Weights, state: Tensor, given: Tensor) -> tuple[Tensor, ...]:
    """The memory [B, D] after a state; and what the backward pass needs."""
    n_blocks = len(w.mix)
    deter, latent = state.split([w.deter.shape[1], w.latent.shape[1]], dim=1)
    both = torch.stack(
        [
            functional.linear(deter, w.deter, w.deter_bias),
            functional.linear(latent, w.latent, w.latent_bias),
        ],
        dim=1,
    )
    both, both_factor = _normed(both)
    x = torch.cat([functional.silu(both * w.norms).flatten(1), given], dim=1)
    own = deter.unflatten(1, (n_blocks, -1))
    x = torch.cat([own, x.unsqueeze(1).expand(-1, n_blocks, -1)], dim=2)
    mixed, mixed_factor = _normed(_blocks(x, w.mix, w.mix_bias).flatten(1))
    y = functional.silu(mixed * w.mix_norm).view_as(own)
    reset, candidate, update = _blocks(y, w.gates, w.gates_bias).chunk(3, dim=2)
    reset, update = torch.sigmoid(reset), torch.sigmoid(update + UPDATE_BIAS)
    new = torch.tanh(reset * candidate)
    after = torch.lerp(own, new, update).flatten(1)
    return after, both, both_factor, mixed, mixed_factor, reset, candidate, update, new


def latent_step(w: Weights, shape: "Latents", deter: Tensor, seen: Tensor) -> tuple[Tensor, ...]:
    """Probabilities [B, S, C] of the latents after a memory and an observation; and what the
    backward pass needs."""
    normed, factor = _normed(torch.addmm(seen, deter, w.seen.t()))
    hidden = functional.silu(normed * w.seen_norm)
    return shape.probs(functional.linear(hidden, w.logits, w.logits_bias)), normed, factor


class Latents(NamedTuple):
    n: int
    n_classes: int
    unimix: float
    """Share of a uniform distribution."""

    def probs(self, logits: Tensor) -> Tensor:
        """[..., Z] -> [..., S, C]"""
        probs = torch.softmax(logits.unflatten(-1, (self.n, self.n_classes)), dim=-1)
        return (1.0 - self.unimix) * probs + self.unimix / self.n_classes


def step(
    w: Weights, shape: Latents, state: Tensor, given: Tensor, seen: Tensor, noise: Tensor | None
) -> tuple[Tensor, Tensor]:
    """One row: the state [B, D + Z] after it and the probabilities of its latents."""
    deter, *_ = memory_step(w, state, given)
    probs, *_ = latent_step(w, shape, deter, seen)
    return torch.cat([deter, drawn(probs, noise).flatten(1)], dim=1), probs


def scan(
    w: Weights, shape: Latents, given: Tensor, seen: Tensor, state: Tensor, keep: Tensor,
    noise: Tensor,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """States [L, B, D + Z] and probabilities [L, B, S, C] of sequences."""
    found: tuple[Tensor, Tensor] = _Scan.apply(shape, given, seen, state, keep, noise, *w)
    return found


def _slope(normed: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
    """Of silu(normed * weight): its outputs, and its derivative by normed * weight."""
    x = normed * weight
    gate = torch.sigmoid(x)
    return x * gate, gate * (1.0 + x * (1.0 - gate))


def _through_norm(d: Tensor, slope: Tensor, normed: Tensor, factor: Tensor) -> Tensor:
    """The gradient of the inputs of RMS norm and silu; `slope`: by `normed`."""
    d = d * slope
    return torch.addcmul(d, normed, (d * normed).mean(-1, keepdim=True), value=-1.0) * factor


def _weights(d: Tensor, inputs: Tensor) -> Tensor:
    """The gradient [out, in] of a dense layer, from those of its outputs in all rows."""
    return d.flatten(0, 1).t() @ inputs.flatten(0, 1)


def _block_weights(d: Tensor, inputs: Tensor) -> Tensor:
    """The gradient [G, in, out] of a block layer, from [L, B, G, out] and [L, B, G, in]."""
    return torch.bmm(inputs.flatten(0, 1).permute(1, 2, 0), d.flatten(0, 1).transpose(0, 1))


class _Scan(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, shape: Latents, *inputs: Tensor) -> tuple[Tensor, Tensor]:
        given, seen, state, keep, noise, *rest = inputs
        w = Weights(*rest)
        kept, states, probs = [], [], []
        memories: list[tuple[Tensor, ...]] = []
        latents: list[tuple[Tensor, ...]] = []
        for t in range(len(given)):
            state = state * keep[t]
            kept.append(state)
            deter, *memory = memory_step(w, state, given[t])
            post, *latent = latent_step(w, shape, deter, seen[t])
            state = torch.cat([deter, drawn(post, noise[t]).flatten(1)], dim=1)
            states.append(state)
            probs.append(post)
            memories.append(tuple(memory))
            latents.append(tuple(latent))
        columns = [torch.stack(c) for c in (*zip(*memories), *zip(*latents))]  # noqa: B905
        before, after, post = torch.stack(kept), torch.stack(states), torch.stack(probs)
        ctx.save_for_backward(given, keep, before, after, post, *columns, *w)
        ctx.shape = shape
        return after, post

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, d_states: Tensor, d_probs: Tensor) -> tuple[Tensor | None, ...]:
        given, keep, before, after, probs, *rest = ctx.saved_tensors
        both, both_factor, mixed, mixed_factor, reset, candidate, update, new = rest[:8]
        normed, factor = rest[8:10]
        w, shape = Weights(*rest[10:]), ctx.shape
        n_deter, n_blocks = w.deter.shape[1], len(w.mix)
        n_own = n_deter // n_blocks
        # What does not depend on the next step, for all rows at once.
        both_out, both_slope = _slope(both, w.norms)
        mixed_out, mixed_slope = _slope(mixed, w.mix_norm)
        hidden, slope = _slope(normed, w.seen_norm)
        both_by, mixed_by, by = both_slope * w.norms, mixed_slope * w.mix_norm, slope * w.seen_norm
        own = before[..., :n_deter].unflatten(-1, (n_blocks, n_own))
        by_new = update * (1.0 - new.square())
        by_reset = by_new * candidate * reset * (1.0 - reset)
        by_update = (new - own) * update * (1.0 - update)
        by_gates = torch.stack([by_reset, by_new * reset, by_update], dim=3)  # [L, B, G, 3, D / G]
        stays = 1.0 - update
        soft = (probs - shape.unimix / shape.n_classes) / (1.0 - shape.unimix)
        mix_t, gates_t = w.mix.transpose(1, 2), w.gates.transpose(1, 2)
        found: list[tuple[Tensor, ...]] = []
        d_state = torch.zeros_like(before[0])
        for t in range(len(given) - 1, -1, -1):
            d_deter, d_latent = (d_state + d_states[t]).split([n_deter, w.latent.shape[1]], dim=1)
            d_soft = (d_probs[t] + d_latent.view_as(probs[t])) * (1.0 - shape.unimix)
            d_logits = soft[t] * (d_soft - (soft[t] * d_soft).sum(-1, keepdim=True))
            d_logits = d_logits.flatten(1)
            d_hidden = d_logits @ w.logits
            d_seen = _through_norm(d_hidden, by[t], normed[t], factor[t])
            d_own = torch.addmm(d_deter, d_seen, w.seen).view_as(own[t])
            d_gates = (d_own.unsqueeze(2) * by_gates[t]).flatten(2)
            d_y = torch.bmm(d_gates.transpose(0, 1), gates_t).transpose(0, 1).flatten(1)
            d_mixed = _through_norm(d_y, mixed_by[t], mixed[t], mixed_factor[t]).view_as(own[t])
            d_x = torch.bmm(d_mixed.transpose(0, 1), mix_t).transpose(0, 1)
            d_own = torch.addcmul(d_x[..., :n_own], d_own, stays[t]).flatten(1)
            d_three = d_x[..., n_own:].sum(1)
            d_out, d_given = d_three.split([both[t].numel() // len(d_three), given.shape[2]], dim=1)
            d_out = d_out.view_as(both[t])
            d_both = _through_norm(d_out, both_by[t], both[t], both_factor[t])
            d_own = torch.addmm(d_own, d_both[:, 0], w.deter)
            d_state = torch.cat([d_own, d_both[:, 1] @ w.latent], dim=1) * keep[t]
            found.append(
                (d_given, d_seen, d_logits, d_hidden, d_gates, d_y, d_mixed, d_out, d_both)
            )
        columns = (torch.stack(c[::-1]) for c in zip(*found))  # noqa: B905
        d_given, d_seen, d_logits, d_hidden, d_gates, d_y, d_mixed, d_out, d_both = columns
        first, second = d_both.unbind(2)
        three = torch.cat([both_out.flatten(2), given], dim=2)
        x = torch.cat([own, three.unsqueeze(2).expand(-1, -1, n_blocks, -1)], dim=3)
        d_weights = Weights(
            deter=_weights(first, before[..., :n_deter]),
            deter_bias=first.sum((0, 1)),
            latent=_weights(second, before[..., n_deter:]),
            latent_bias=second.sum((0, 1)),
            norms=(d_out * both_slope * both).sum((0, 1)),
            mix=_block_weights(d_mixed, x),
            mix_bias=d_mixed.sum((0, 1)),
            mix_norm=(d_y * mixed_slope * mixed).sum((0, 1)),
            gates=_block_weights(d_gates, mixed_out.view_as(own)),
            gates_bias=d_gates.sum((0, 1)),
            seen=_weights(d_seen, after[..., :n_deter]),
            seen_norm=(d_hidden * slope * normed).sum((0, 1)),
            logits=_weights(d_logits, hidden),
            logits_bias=d_logits.sum((0, 1)),
        )
        return None, d_given, d_seen, d_state, None, None, *d_weights
