"""The steps of an RSSM over sequences, with the gradient through time written out.

    rows = Rows(latents)                                                    # kept
    states, probs = scan(weights, rows, given, seen, state, keep, noise)    # sequences
    state, probs = step(weights, latents, state, given, seen, noise)        # one row
    deter = memory_step(weights, state, given)                              # not observed

`given` [L, B, H] are the features of the action before each row, `seen` [L, B, H] the observation's
share of the posterior's first layer, `state` [B, D + Z] is the state before the first row, `keep`
[L, B, 1] is 0 where an episode starts and 1 elsewhere, `noise` [L, B, S] draws the latents.

A GPU spends most of the time of a step with starting kernels, so a step has few operations: about
30, and 25 backwards, where autograd would record 50 and take a gradient of every weight in every
step. The loop of the backward pass has only what depends on the next step; gradients of weights are
computed for all rows at once. See scan.py, which does the same for other cores. Differentiable
once, in everything but `keep` and `noise`. `Rows` can fuse what is elementwise: a row is compiled
once, not a whole sequence.

Layers of blocks have the blocks first: [G, B, D / G].
"""

from collections.abc import Callable, Sequence
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
    own: Tensor  # [G, D / G, D / G], of a block of the memory to itself
    shared: Tensor  # [2 H, D], of both to all blocks
    given: Tensor  # [H, D], of the action to all blocks
    mix_bias: Tensor  # [D]
    mix_norm: Tensor  # [D]
    gates: Tensor  # [G, D / G, 3 D / G]
    gates_bias: Tensor  # [G, 3 D / G]
    seen: Tensor  # [H, D], the memory's share of the posterior's first layer
    seen_norm: Tensor  # [H]
    logits: Tensor  # [Z, H]
    logits_bias: Tensor


class Latents(NamedTuple):
    n: int
    n_classes: int
    unimix: float  # share of a uniform distribution

    def soft(self, logits: Tensor) -> Tensor:
        """[..., Z] -> [..., S, C], without the uniform share."""
        return torch.softmax(logits.unflatten(-1, (self.n, self.n_classes)), dim=-1)

    def mixed(self, soft: Tensor) -> Tensor:
        return (1.0 - self.unimix) * soft + self.unimix / self.n_classes

    def probs(self, logits: Tensor) -> Tensor:
        """[..., Z] -> [..., S, C]"""
        return self.mixed(self.soft(logits))

    def limits(self, noise: Tensor) -> Tensor:
        """For `sampled`, from uniform noise [..., S]: what the sums of `soft` are compared with, so
        that classes are drawn by `mixed`. The last class has none: a sum of 1 may be rounded down.
        """
        ends = torch.arange(1, self.n_classes + 1, device=noise.device) / self.n_classes
        limits = (noise.unsqueeze(-1) - self.unimix * ends) / (1.0 - self.unimix)
        limits[..., -1].fill_(-1.0)
        return limits


def sampled(soft: Tensor, limits: Tensor, classes: Tensor) -> Tensor:
    """One-hot samples of categorical variables [..., C]; `classes`: 0 to C - 1."""
    index = (soft.cumsum(-1) <= limits).sum(-1, keepdim=True)
    return (index == classes).to(soft.dtype)


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


# -- one row --------------------------------------------------------------------------------------


def _normed(x: Tensor, weight: Tensor | None) -> Tensor:
    return functional.rms_norm(x, x.shape[-1:], weight, NORM_EPS)


def _memory(w: Weights, state: Tensor, added: Tensor) -> tuple[Tensor, ...]:
    """The memory [B, D] after a state, and what the backward pass needs. `added` [B, D]: to the
    layer that mixes, by the action."""
    deter, latent = state.split([w.deter.shape[1], w.latent.shape[1]], dim=1)
    both = torch.stack(
        [
            functional.linear(deter, w.deter, w.deter_bias),
            functional.linear(latent, w.latent, w.latent_bias),
        ],
        dim=1,
    ).to(state.dtype)  # from bf16
    features = functional.silu(_normed(both, None) * w.norms).flatten(1)
    own = deter.unflatten(1, (len(w.own), -1))
    by_block = torch.bmm(own.transpose(0, 1), w.own).transpose(0, 1)
    mixed = (added.view_as(own) + by_block).flatten(1).addmm_(features, w.shared)
    hidden = functional.silu(_normed(mixed, w.mix_norm)).view_as(own)
    gates = torch.bmm(hidden.transpose(0, 1), w.gates) + w.gates_bias.unsqueeze(1)
    _, update, new = _gru(gates)
    change = (new - own.transpose(0, 1)).transpose(0, 1)
    after = torch.addcmul(own, change, update.transpose(0, 1)).flatten(1)
    return after, both, mixed, gates


def _gru(gates: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """How much of the candidate counts, how much of the memory is renewed, and by what."""
    reset, _, update = torch.sigmoid(gates).chunk(3, dim=-1)
    candidate = gates.chunk(3, dim=-1)[1]
    return reset, update, torch.tanh(reset * candidate)


def _posterior(w: Weights, deter: Tensor, seen: Tensor) -> tuple[Tensor, Tensor]:
    """Logits [B, Z] of the latents after a memory and an observation; and what the backward pass
    needs."""
    x = torch.addmm(seen, deter, w.seen.t()).to(deter.dtype)
    hidden = functional.silu(_normed(x, w.seen_norm))
    return functional.linear(hidden, w.logits, w.logits_bias).to(deter.dtype), x


def _added(w: Weights, given: Tensor) -> Tensor:
    return given @ w.given + w.mix_bias


def memory_step(w: Weights, state: Tensor, given: Tensor) -> Tensor:
    """The memory [B, D] after a state."""
    return _memory(w, state, _added(w, given))[0]


def step(
    w: Weights, shape: Latents, state: Tensor, given: Tensor, seen: Tensor, noise: Tensor | None
) -> tuple[Tensor, Tensor]:
    """One row: the state [B, D + Z] after it and the probabilities of its latents."""
    deter = memory_step(w, state, given)
    probs = shape.probs(_posterior(w, deter, seen)[0])
    return torch.cat([deter, drawn(probs, noise).flatten(1)], dim=1), probs


# -- sequences ------------------------------------------------------------------------------------


class _Normed(NamedTuple):
    """silu(weight * x / root mean square of x) of all rows, and what gives its gradient."""

    out: Tensor
    by_weight: Tensor  # the derivative of the outputs by the weights
    a: Tensor
    b: Tensor
    c: Tensor

    @property
    def abc(self) -> tuple[Tensor, Tensor, Tensor]:
        """The gradient of x is d * a - c * sum(d * b)."""
        return self.a, self.b, self.c


def _norms(x: Tensor, weight: Tensor) -> _Normed:
    factor = (x.square().mean(-1, keepdim=True) + NORM_EPS).rsqrt()
    normed = x * factor
    y = normed * weight
    gate = torch.sigmoid(y)
    slope = gate * (1.0 + y * (1.0 - gate))
    by_x = slope * weight
    return _Normed(
        y * gate, slope * normed, by_x * factor, by_x * normed / x.shape[-1], normed * factor
    )


def _through(abc: Sequence[Tensor], d: Tensor, dim: tuple[int, ...] = (-1,)) -> Tensor:
    """The gradient of the inputs of a row by `_Normed`; the axes `dim` are normed."""
    a, b, c = abc
    return torch.addcmul(d * a, c, (d * b).sum(dim, keepdim=True), value=-1.0)


Row = Callable[[Sequence[Tensor]], list[Tensor]]
Fuse = Callable[[Row, Sequence[Tensor]], Row | None]
"""Gives a function with fewer kernels for inputs of these shapes, or None (fast/fused.py)."""


class Rows:
    """The functions of one row of a scan, forwards and backwards, fused if `fuse` is given."""

    def __init__(self, shape: Latents, fuse: Fuse | None = None):
        self.shape, self.fuse = shape, fuse
        self._fused: dict[Any, Row] = {}

    def __call__(self, row: Row, *inputs: Tensor) -> list[Tensor]:
        if self.fuse is None:
            return row(inputs)
        key = row.__name__, *((part.shape, part.stride()) for part in inputs)
        if key not in self._fused:
            self._fused[key] = self.fuse(row, inputs) or row
        return self._fused[key](inputs)

    def __deepcopy__(self, memo: Any) -> "Rows":
        return Rows(self.shape, self.fuse)  # fused functions read the weights of this network

    def forward(self, inputs: Sequence[Tensor]) -> list[Tensor]:
        """The state after a row, and what the backward pass needs of it."""
        state, keep, added, seen, limits, classes, *rest = inputs
        w = Weights(*rest)
        deter, *memory = _memory(w, state * keep, added)
        logits, x = _posterior(w, deter, seen)
        soft = self.shape.soft(logits)
        state = torch.cat([deter, sampled(soft, limits, classes).flatten(1)], dim=1)
        return [state, soft, *memory, x]

    def backward(self, inputs: Sequence[Tensor]) -> list[Tensor]:
        """The gradient of the state before a row, from that of the state after it; and what gives
        the gradients of the weights."""
        (
            d_deter, d_latent, keep, d_deter_here, d_latent_here, soft, by_gates, stays, *rest
        ) = inputs  # fmt: skip
        hidden, mix, features = (rest[i : i + 3] for i in (0, 3, 6))
        logits, seen, gates_t, mix_t, deter, latent = rest[9:]
        n_blocks, _, n_own = stays.shape
        d_soft = torch.addcmul(d_latent_here, d_latent, keep).view_as(soft)
        d_logits = torch.ops.aten._softmax_backward_data(d_soft, soft, -1, soft.dtype).flatten(1)
        d_hidden = d_logits @ logits
        d_seen = _through(hidden, d_hidden)
        d_own = torch.addcmul(d_deter_here, d_deter, keep).addmm_(d_seen, seen)
        blocks = d_own.unflatten(1, (n_blocks, n_own))
        d_gates = (blocks.transpose(0, 1).unsqueeze(2) * by_gates).flatten(2)
        d_y = torch.bmm(d_gates, gates_t)
        d_mixed = _through(mix, d_y, (0, 2))
        d_x = torch.bmm(d_mixed, mix_t)
        blocks.mul_(stays.transpose(0, 1)).add_(d_x[..., :n_own].transpose(0, 1))
        d_out = d_x[..., n_own:].sum(0).view_as(features[0])
        d_both = _through(features, d_out)
        d_deter, d_latent = d_own.addmm_(d_both[:, 0], deter), d_both[:, 1] @ latent
        return [
            d_deter, d_latent, d_logits, d_hidden, d_seen, d_gates, d_y, d_mixed, d_out, d_both
        ]  # fmt: skip


def scan(
    w: Weights, rows: Rows, given: Tensor, seen: Tensor, state: Tensor, keep: Tensor,
    noise: Tensor,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """States [L, B, D + Z] and probabilities [L, B, S, C] of sequences."""
    found: tuple[Tensor, Tensor]
    found = _Scan.apply(rows, _added(w, given), seen, state.contiguous(), keep, noise, *w)
    return found


def _weights(d: Tensor, inputs: Tensor) -> Tensor:
    """The gradient [out, in] of a dense layer, from those of its outputs in all rows."""
    return d.flatten(0, 1).t() @ inputs.flatten(0, 1)


def _block_weights(d: Tensor, inputs: Tensor) -> Tensor:
    """The gradient [G, in, out] of a block layer, from [L, G, B, out] and [L, G, B, in]."""
    return torch.bmm(inputs.permute(1, 3, 0, 2).flatten(2), d.transpose(0, 1).flatten(1, 2))


def _gru_slopes(gates: Tensor, own: Tensor) -> tuple[Tensor, Tensor]:
    """The derivatives of the new memory by the three gates [..., 3, D / G], and by the memory."""
    reset, update, new = _gru(gates)
    candidate = gates.chunk(3, dim=-1)[1]
    by_new = update * (1.0 - new.square())
    by_reset = by_new * candidate * reset * (1.0 - reset)
    by_update = (new - own) * update * (1.0 - update)
    return torch.stack([by_reset, by_new * reset, by_update], dim=-2), 1.0 - update


class _Scan(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, rows: Rows, *inputs: Tensor) -> tuple[Tensor, Tensor]:
        added, seen, first, keep, noise, *w = inputs
        limits, found = rows.shape.limits(noise), [[first]]
        classes = torch.arange(rows.shape.n_classes, device=first.device)
        for row in zip(keep, added, seen, limits, strict=True):
            found.append(rows(rows.forward, found[-1][0], *row, classes, *w))
        states, soft, *columns = (torch.stack(c) for c in zip(*found[1:]))  # noqa: B905
        ctx.save_for_backward(first, keep, states, soft, *columns, *w)
        ctx.rows = rows
        return states, rows.shape.mixed(soft)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, d_states: Tensor, d_probs: Tensor) -> tuple[Tensor | None, ...]:
        first, keep, states, soft, both, mixed, gates, x, *rest = ctx.saved_tensors
        w, rows = Weights(*rest), ctx.rows
        (n_blocks, n_own, _), n_deter, share = (
            w.own.shape,
            w.deter.shape[1],
            1.0 - rows.shape.unimix,
        )
        # What does not depend on the next row, for all rows at once.
        before = torch.cat([first.unsqueeze(0), states[:-1]]) * keep
        own = before[..., :n_deter].unflatten(-1, (n_blocks, n_own)).transpose(1, 2)
        features, hidden = _norms(both, w.norms), _norms(x, w.seen_norm)
        mix = _Normed(
            *(
                part.unflatten(-1, (n_blocks, n_own)).transpose(1, 2)
                for part in _norms(mixed, w.mix_norm)
            )
        )
        by_row = (
            keep.roll(-1, 0),  # into the next row
            d_states[..., :n_deter],
            d_states[..., n_deter:] + d_probs.flatten(2),
            soft,
            *_gru_slopes(gates, own),
            *hidden.abc,
            *mix.abc,
            *features.abc,
        )
        shared = w.shared.unflatten(1, (n_blocks, n_own)).permute(1, 2, 0)
        mix_t = torch.cat([w.own.mT, shared], dim=2)
        weights = (share * w.logits, w.seen, w.gates.mT, mix_t, w.deter, w.latent)
        d_last = torch.zeros_like(before[0, :, :n_deter]), torch.zeros_like(before[0, :, n_deter:])
        found = [list(d_last)]
        for row in reversed(list(zip(*by_row))):  # noqa: B905
            found.append(rows(rows.backward, *found[-1][:2], *row, *weights))
        d_first = torch.cat(found[-1][:2], dim=1) * keep[0]
        columns = [torch.stack(c) for c in zip(*(row[2:] for row in found[:0:-1]))]  # noqa: B905
        d_logits, d_hidden, d_seen, d_gates, d_y, d_mixed, d_out, d_both = columns
        d_added = d_mixed.transpose(1, 2).flatten(2)
        by_deter, by_latent = d_both.unbind(2)
        d_weights = {
            "deter": _weights(by_deter, before[..., :n_deter]),
            "deter_bias": by_deter.sum((0, 1)),
            "latent": _weights(by_latent, before[..., n_deter:]),
            "latent_bias": by_latent.sum((0, 1)),
            "norms": (d_out * features.by_weight).sum((0, 1)),
            "own": _block_weights(d_mixed, own),
            "shared": _weights(features.out.flatten(2), d_added),
            "mix_norm": (d_y * mix.by_weight).sum((0, 2)).flatten(),
            "gates": _block_weights(d_gates, mix.out),
            "gates_bias": d_gates.sum((0, 2)),
            "seen": _weights(d_seen, states[..., :n_deter]),
            "seen_norm": (d_hidden * hidden.by_weight).sum((0, 1)),
            "logits": _weights(d_logits, hidden.out) * share,
            "logits_bias": d_logits.sum((0, 1)) * share,
        }
        wanted = (d_weights.get(name) for name in Weights._fields)
        return None, d_added, d_seen, d_first, None, None, *wanted
