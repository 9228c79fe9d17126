"""Recurrent cells over sequences, with the gradient through time written out.

    y, cell = SCANS["gru"](gates, hidden, cell, keep, weight, bias)     # sequences
    hidden, cell = step("gru", gates, hidden, cell, weight, bias)       # one row

`gates` [L, B, G * H] are the inputs' share of the gates, `hidden` and `cell` [B, H] the state
before the first row (`cell` is empty except for an LSTM), `keep` [L, B, 1] is 0 where an episode
starts and 1 elsewhere. The results are the outputs [L, B, H] and the last cell state. Time comes
first, so that the values of one step are contiguous.

The equations are those of torch's GRU, LSTM and RNN. Autograd would record every small operation of
every step; here the backward pass keeps only what depends on the next step in its loop, and
computes everything else for all rows at once. All of it is plain torch, so it can be recorded
(fast/recorded.py) and captured as a CUDA graph. Differentiable once, in everything but the last
cell state and `keep`.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

Scan = Callable[[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor], tuple[Tensor, Tensor]]


def step(
    kind: str, gates: Tensor, hidden: Tensor, cell: Tensor, weight: Tensor, bias: Tensor
) -> tuple[Tensor, Tensor]:
    """One row [B, ...]: the new hidden and cell state, with gradients by autograd."""
    transposed = weight.t()
    if kind == "rnn":
        return _rnn_step(gates, hidden, transposed, bias), cell
    if kind == "gru":
        return _gru_step(gates, hidden, transposed, bias)[-1], cell
    *_, cell, _, hidden = _lstm_step(gates, hidden, cell, transposed, bias)
    return hidden, cell


def _rnn_step(own: Tensor, hidden: Tensor, weight_t: Tensor, bias: Tensor) -> Tensor:
    """h' = tanh(x + W h + b)."""
    return torch.tanh(own + torch.addmm(bias, hidden, weight_t))


def _gru_step(own: Tensor, hidden: Tensor, weight_t: Tensor, bias: Tensor) -> tuple[Tensor, ...]:
    """r, z = sigmoid(x + W h + b); n = tanh(x_n + r * (W_n h + b_n)); h' = n + z * (h - n).

    Returns W h + b, [r, z], n and h'."""
    dim = hidden.shape[1]
    more = torch.addmm(bias, hidden, weight_t)
    switch = torch.sigmoid(own[:, : 2 * dim] + more[:, : 2 * dim])
    new = torch.tanh(own[:, 2 * dim :] + switch[:, :dim] * more[:, 2 * dim :])
    return more, switch, new, new + switch[:, dim:] * (hidden - new)


def _lstm_step(
    own: Tensor, hidden: Tensor, cell: Tensor, weight_t: Tensor, bias: Tensor
) -> tuple[Tensor, ...]:
    """i, f, o = sigmoid(x + W h + b); g = tanh(...); c' = f * c + i * g; h' = o * tanh(c').

    Returns [i, f], g, o, c', tanh(c') and h'."""
    dim = hidden.shape[1]
    total = own + torch.addmm(bias, hidden, weight_t)
    switch, out = torch.sigmoid(total[:, : 2 * dim]), torch.sigmoid(total[:, 3 * dim :])
    new = torch.tanh(total[:, 2 * dim : 3 * dim])
    cell = switch[:, dim:] * cell + switch[:, :dim] * new
    shown = torch.tanh(cell)
    return switch, new, out, cell, shown, out * shown


def _weight_grads(d_own: Tensor, before: Tensor) -> tuple[Tensor, Tensor]:
    """Gradients of the recurrent weights and bias, from those of h @ W^T + b in all rows."""
    flat = d_own.flatten(0, 1)
    return flat.t() @ before.flatten(0, 1), flat.sum(0)


class _Rnn(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, *inputs: Tensor) -> tuple[Tensor, Tensor]:
        gates, hidden, cell, keep, weight, bias = inputs
        before, outputs, transposed = [], [], weight.t()
        for own, kept in zip(gates.unbind(0), keep.unbind(0), strict=True):
            hidden = hidden * kept
            before.append(hidden)
            hidden = _rnn_step(own, hidden, transposed, bias)
            outputs.append(hidden)
        y = torch.stack(outputs)
        ctx.save_for_backward(torch.stack(before), y, keep, weight)
        ctx.mark_non_differentiable(cell)
        return y, cell

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, d_outputs: Tensor, d_cell: Tensor) -> tuple[Tensor | None, ...]:
        before, y, keep, weight = ctx.saved_tensors
        slopes, keeps, direct = (1.0 - y * y).unbind(0), keep.unbind(0), d_outputs.unbind(0)
        d_own: list[Tensor] = []
        d_hidden = torch.zeros_like(before[0])
        for t in range(len(slopes) - 1, -1, -1):
            d_own.append((d_hidden + direct[t]) * slopes[t])
            d_hidden = d_own[-1] @ weight * keeps[t]
        d_gates = torch.stack(d_own[::-1])
        return d_gates, d_hidden, None, None, *_weight_grads(d_gates, before)


class _Gru(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, *inputs: Tensor) -> tuple[Tensor, Tensor]:
        gates, hidden, cell, keep, weight, bias = inputs
        before, rows, transposed = [], [], weight.t()
        for own, kept in zip(gates.unbind(0), keep.unbind(0), strict=True):
            before.append(hidden * kept)
            rows.append(_gru_step(own, before[-1], transposed, bias))
            hidden = rows[-1][-1]
        *saved, y = (torch.stack(part) for part in zip(*rows, strict=True))
        ctx.save_for_backward(torch.stack(before), *saved, keep, weight)
        ctx.mark_non_differentiable(cell)
        return y, cell

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, d_outputs: Tensor, d_cell: Tensor) -> tuple[Tensor | None, ...]:
        before, more, switch, new, keep, weight = ctx.saved_tensors
        n_rows, n, dim = before.shape
        reset, update, offer = switch[..., :dim], switch[..., dim:], more[..., 2 * dim :]
        # What the gradient of an output is multiplied with to reach each gate.
        to_new = (1.0 - update) * (1.0 - new * new)
        to_reset = to_new * offer * reset * (1.0 - reset)
        to_update = (before - new) * update * (1.0 - update)
        to_own = torch.stack([to_reset, to_update, to_new * reset], 2)  # [L, B, 3, H]
        rows, keeps, direct = to_own.unbind(0), keep.unbind(0), d_outputs.unbind(0)
        updates = update.unbind(0)
        d_ys: list[Tensor] = []
        d_owns: list[Tensor] = []
        d_hidden = torch.zeros_like(before[0])
        for t in range(n_rows - 1, -1, -1):
            d_ys.append(d_hidden + direct[t])
            d_owns.append((d_ys[-1].unsqueeze(1) * rows[t]).view(n, 3 * dim))
            d_hidden = (d_owns[-1] @ weight + d_ys[-1] * updates[t]) * keeps[t]
        d_own, d_y = torch.stack(d_owns[::-1]), torch.stack(d_ys[::-1])
        d_gates = torch.cat([d_own[..., : 2 * dim], d_y * to_new], 2)
        return d_gates, d_hidden, None, None, *_weight_grads(d_own, before)


class _Lstm(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, *inputs: Tensor) -> tuple[Tensor, Tensor]:
        gates, hidden, cell, keep, weight, bias = inputs
        before, cells_before, rows, transposed = [], [], [], weight.t()
        for own, kept in zip(gates.unbind(0), keep.unbind(0), strict=True):
            before.append(hidden * kept)
            cells_before.append(cell * kept)
            row = _lstm_step(own, before[-1], cells_before[-1], transposed, bias)
            rows.append(row)
            *_, cell, _, hidden = row
        switch, new, out, _, shown, y = (torch.stack(part) for part in zip(*rows, strict=True))
        both = torch.stack(before), torch.stack(cells_before)
        ctx.save_for_backward(*both, switch, new, out, shown, keep, weight)
        ctx.mark_non_differentiable(cell)
        return y, cell

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, d_outputs: Tensor, d_cell_after: Tensor) -> tuple[Tensor | None, ...]:
        before, cells_before, switch, new, out, shown, keep, weight = ctx.saved_tensors
        n_rows, _, dim = before.shape
        into, forget = switch[..., :dim], switch[..., dim:]
        to_cell = out * (1.0 - shown * shown)
        # What the gradient of the cell, and for the last gate of the output, is multiplied with.
        to_own = torch.cat(
            [
                new * into * (1.0 - into),
                cells_before * forget * (1.0 - forget),
                into * (1.0 - new * new),
                shown * out * (1.0 - out),
            ],
            2,
        )  # [L, B, 4 * H]
        rows, to_cells, forgets = to_own.unbind(0), to_cell.unbind(0), forget.unbind(0)
        keeps, direct = keep.unbind(0), d_outputs.unbind(0)
        d_owns: list[Tensor] = []
        d_hidden = d_cell = torch.zeros_like(before[0])
        for t in range(n_rows - 1, -1, -1):
            d_hidden = d_hidden + direct[t]
            d_cell = d_cell + d_hidden * to_cells[t]
            d_owns.append(torch.cat([d_cell, d_cell, d_cell, d_hidden], 1) * rows[t])
            d_hidden = d_owns[-1] @ weight * keeps[t]
            d_cell = d_cell * forgets[t] * keeps[t]
        d_gates = torch.stack(d_owns[::-1])
        return d_gates, d_hidden, d_cell, None, *_weight_grads(d_gates, before)


SCANS: dict[str, Scan] = {"rnn": _Rnn.apply, "gru": _Gru.apply, "lstm": _Lstm.apply}
