"""Q-learning from replayed sequences with a recurrent network (R2D2, Kapturowski et al. 2019).

Used by DQN with `recurrent`. A sampled sequence starts with the carry that the acting policy had
there (stored state). Its first `burn_in` rows only bring the carry up to date with the present
weights, without a gradient; the others are learnt from, with n-step targets inside the sequence.
The priority of a sequence is 0.9 max + 0.1 mean of its absolute TD errors.

Difference from the paper: every step of the replay can be the first of a sequence, instead of every
40th; new ones have the highest priority.
"""

from typing import Any

import torch
from torch import Tensor

from gymnasium_solver.data.sequences import SequenceBatch
from gymnasium_solver.nets.encoder import ObsEncoder
from gymnasium_solver.nets.heads import huber
from gymnasium_solver.nets.q_network import QHead, QNetwork
from gymnasium_solver.tree import map_tree

RESCALE_EPS = 1e-3
MAX_SHARE = 0.9  # of the largest error in a priority


def rescaled(x: Tensor) -> Tensor:
    """h(x) = sign(x) (sqrt(|x| + 1) - 1) + eps x: large values are compressed."""
    return x.sign() * ((x.abs() + 1.0).sqrt() - 1.0) + RESCALE_EPS * x


def unscaled(y: Tensor) -> Tensor:
    """The inverse of `rescaled`."""
    eps = RESCALE_EPS
    root = (1.0 + 4.0 * eps * (y.abs() + 1.0 + eps)).sqrt()
    return y.sign() * (((root - 1.0) / (2.0 * eps)).square() - 1.0)


def after_burn_in(
    encoder: ObsEncoder, part: Any, name: str, batch: SequenceBatch, rows: slice
) -> Tensor:
    """What a part of a network with a core says about these rows of sequences, [B * L, ...]; those
    before bring its carry, of this name, up to date."""
    carry = batch.carry[name]

    def encoded(rows: slice) -> Any:
        return encoder(map_tree(lambda column: column[:, rows].flatten(0, 1), batch.obs))

    if rows.start:
        early = slice(None, rows.start)
        with torch.no_grad():
            carry = part.carry_after(encoded(early), carry, batch.is_first[:, early])
    found: Tensor = part.sequence(encoded(rows), carry, batch.is_first[:, rows])
    return found


def sequence_values(net: QNetwork, head: QHead, batch: SequenceBatch, burn_in: int) -> Tensor:
    """Values of the rows after burn-in [B, L + 1, A] by a head, online or target."""
    q = after_burn_in(net.encoder, head, "core", batch, slice(burn_in, None))
    return q.view(len(batch.weight), -1, q.shape[1])


def sequence_errors(
    net: QNetwork, target: QHead, batch: SequenceBatch, burn_in: int, double: bool, rescale: bool
) -> tuple[Tensor, Tensor]:
    """Q(s, a) and the TD errors, both [B, L]; 0 at rows that are not learnt from."""
    q = sequence_values(net, net.q, batch, burn_in)
    with torch.no_grad():
        later = sequence_values(net, target, batch, burn_in)
        choosing = q.detach() if double else later
        if batch.mask is not None:
            choosing = choosing.masked_fill(~batch.mask, -torch.inf)
        values = later.gather(2, choosing.argmax(2, keepdim=True)).squeeze(2)
        value = values.gather(1, batch.place)
        value = unscaled(value) if rescale else value
        wanted = batch.reward + batch.discount * value
        wanted = rescaled(wanted) if rescale else wanted
    taken = q[:, :-1].gather(2, batch.actions.unsqueeze(2)).squeeze(2)
    return taken * batch.valid, (taken - wanted) * batch.valid


def sequence_loss(errors: Tensor, batch: SequenceBatch, is_huber: bool) -> tuple[Tensor, Tensor]:
    """The weighted mean over sequences, and their priorities [B]."""
    loss = huber(errors) if is_huber else errors.square()
    n = batch.valid.sum(1).clamp(min=1.0)
    return (batch.weight * loss.sum(1) / n).mean(), priorities(errors.detach().abs(), n)


def priorities(size: Tensor, n: Tensor) -> Tensor:
    """Of sequences [B], from absolute errors [B, L], 0 at rows that are not learnt from. `n` [B]:
    rows that are."""
    return MAX_SHARE * size.amax(1) + (1 - MAX_SHARE) * size.sum(1) / n
