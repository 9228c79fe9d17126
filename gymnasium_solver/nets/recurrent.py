"""Recurrent cores (GRU, LSTM) over sequences of features.

    core = RecurrentCore("gru", n_in, 64, generator)
    y, carry = core(x, carry, is_first)         # x [L, B, n_in], carry [B, core.carry_width]

The carry is reset to zero where `is_first` marks the first observation of an episode, also inside a
sequence. The sequence is split at these rows, and each piece runs as one fused call.
"""

from collections.abc import Callable
from typing import Literal

import torch
from torch import Tensor, nn

CoreKind = Literal["gru", "lstm", "rnn"]
_MODULES: dict[str, Callable[[int, int], nn.RNNBase]] = {
    "gru": nn.GRU,
    "lstm": nn.LSTM,
    "rnn": nn.RNN,
}


class RecurrentCore(nn.Module):
    def __init__(self, kind: CoreKind, n_in: int, dim: int, generator: torch.Generator):
        super().__init__()
        self.rnn = _MODULES[kind](n_in, dim)
        self.is_lstm = kind == "lstm"
        self.carry_width = 2 * dim if self.is_lstm else dim
        """The carry of an LSTM is its output and its cell state, concatenated."""
        for name, parameter in self.rnn.named_parameters():
            if "bias" in name:
                nn.init.zeros_(parameter)
            else:
                nn.init.orthogonal_(parameter, generator=generator)
        if self.is_lstm:  # the forget gate starts open (Jozefowicz et al. 2015)
            with torch.no_grad():
                self.rnn.get_parameter("bias_ih_l0")[dim : 2 * dim].fill_(1.0)

    def forward(self, x: Tensor, carry: Tensor, is_first: Tensor) -> tuple[Tensor, Tensor]:
        """Outputs [L, B, dim] and the carry after the last row."""
        n_rows = len(x)
        cuts = [t for t in range(1, n_rows) if bool(is_first[t].any())]
        pieces = []
        for start, stop in zip([0, *cuts], [*cuts, n_rows], strict=True):
            carry = carry * (~is_first[start]).unsqueeze(1).to(carry.dtype)
            y, carry = self._run(x[start:stop], carry)
            pieces.append(y)
        return (pieces[0] if len(pieces) == 1 else torch.cat(pieces)), carry

    def _run(self, x: Tensor, carry: Tensor) -> tuple[Tensor, Tensor]:
        if not self.is_lstm:
            y, hidden = self.rnn(x, carry.unsqueeze(0).contiguous())
            return y, hidden[0]
        hidden, cell = (half.unsqueeze(0).contiguous() for half in carry.chunk(2, dim=1))
        y, (hidden, cell) = self.rnn(x, (hidden, cell))
        return y, torch.cat([hidden[0], cell[0]], dim=1)
