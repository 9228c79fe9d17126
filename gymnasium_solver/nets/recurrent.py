"""Recurrent cores (GRU, LSTM, plain RNN) over sequences of features.

    core = RecurrentCore(Recurrence("gru", 64), n_in, generator)
    y, carry = core(x, carry, is_first)             # x [B, L, n_in], is_first [B, L]
    y, carry = core.by_time(x, carry, is_first)     # the same with time first: x [L, B, n_in]
    y, carry = core.step(x, carry, is_first)        # one row: x [B, n_in], is_first [B]

The carry [B, core.carry_width] is reset to zero where `is_first` marks the first observation of an
episode, also inside a sequence. Weights and equations are torch's (`nn.GRU`, ...).
"""

from collections.abc import Callable
from typing import Literal, NamedTuple

import torch
from torch import Tensor, nn

from gymnasium_solver.nets.scan import SCANS, step

CoreKind = Literal["gru", "lstm", "rnn"]
_MODULES: dict[str, Callable[..., nn.RNNBase]] = {"gru": nn.GRU, "lstm": nn.LSTM, "rnn": nn.RNN}


class Recurrence(NamedTuple):
    """The recurrent core that a config asks for."""

    kind: CoreKind
    dim: int


class RecurrentCore(nn.Module):
    def __init__(self, recurrence: Recurrence, n_in: int, generator: torch.Generator):
        super().__init__()
        kind, dim = recurrence
        self.rnn = _MODULES[kind](n_in, dim)
        self.kind, self.dim = kind, dim
        self.carry_width = 2 * dim if kind == "lstm" else dim
        """The carry of an LSTM is its output and its cell state, concatenated."""
        for name, parameter in self.rnn.named_parameters():
            if "bias" in name:
                nn.init.zeros_(parameter)
            else:
                nn.init.orthogonal_(parameter, generator=generator)
        if kind == "lstm":  # the forget gate starts open (Jozefowicz et al. 2015)
            with torch.no_grad():
                self.rnn.get_parameter("bias_ih_l0")[dim : 2 * dim].fill_(1.0)

    def forward(self, x: Tensor, carry: Tensor, is_first: Tensor) -> tuple[Tensor, Tensor]:
        """Sequences: outputs [B, L, dim] and the carry after the last row, without gradients
        through its cell state."""
        y, carry = self.by_time(x.transpose(0, 1), carry, is_first.t())
        return y.transpose(0, 1), carry

    def by_time(self, x: Tensor, carry: Tensor, is_first: Tensor) -> tuple[Tensor, Tensor]:
        """The same for sequences [L, B, ...], which are computed without copies."""
        gates, weight, bias = self._gates(x)
        keep = is_first.logical_not().to(carry.dtype).unsqueeze(2)
        y, cell = SCANS[self.kind](gates, *self._halves(carry), keep, weight, bias)
        return y, self._joined(y[-1], cell)

    def rows(self, x: Tensor, carry: Tensor, is_first: Tensor) -> tuple[Tensor, Tensor]:
        """The same for rows by time, [L * B, n_in], as `by_time` below gives them."""
        by_step = x.view(-1, len(is_first), x.shape[1])
        y, carry = self.by_time(by_step, carry, is_first.t())
        return y.flatten(0, 1), carry

    def step(self, x: Tensor, carry: Tensor, is_first: Tensor) -> tuple[Tensor, Tensor]:
        """One row: outputs [B, dim] and the new carry."""
        gates, weight, bias = self._gates(x)
        carry = carry * is_first.logical_not().to(carry.dtype).unsqueeze(1)
        y, cell = step(self.kind, gates, *self._halves(carry), weight, bias)
        return y, self._joined(y, cell)

    def _gates(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The inputs' share of the gates [B, ...], and the recurrent weights and bias."""
        w_in, w_own, b_in, b_own = (self.rnn.get_parameter(name) for name in _NAMES)
        return nn.functional.linear(x, w_in, b_in), w_own, b_own

    def _halves(self, carry: Tensor) -> tuple[Tensor, Tensor]:
        if self.kind != "lstm":
            return carry, carry[:, :0]
        hidden, cell = carry.split(self.dim, dim=1)
        return hidden, cell

    def _joined(self, hidden: Tensor, cell: Tensor) -> Tensor:
        return torch.cat([hidden, cell], dim=1) if self.kind == "lstm" else hidden


_NAMES = ("weight_ih_l0", "weight_hh_l0", "bias_ih_l0", "bias_hh_l0")


def by_time(rows: Tensor, n: int) -> Tensor:
    """Rows of n sequences, one sequence after the other, [n * L, ...], as [L * n, ...]: one step of
    all sequences after the other. With n = L it turns them back."""
    return rows.unflatten(0, (n, -1)).transpose(0, 1).flatten(0, 1)
