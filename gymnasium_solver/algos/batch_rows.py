"""The rows of a batch as networks see them: transitions, or sequences.

    rows = rows_of(net, batch, burn_in)
    rows.now(net.critic), rows.later(target)   # what the layers of a network take at s and s'
    rows.batch.reward                          # [N]: the columns, one entry for each row
    rows.mean(values)                          # over the rows that are learnt from

So a loss is written once, for networks with and without memory. A sequence starts with the carry
that the acting policy had there. Its first `burn_in` rows only bring the carry up to date with the
present weights, without a gradient. A reset row has a weight of 0. The priority of a sequence is
0.9 max + 0.1 mean of its absolute TD errors (R2D2, Kapturowski et al. 2019).
"""

from typing import Any

import torch
from torch import Tensor

from gymnasium_solver.data.replay import ReplayBatch
from gymnasium_solver.data.sequences import SequenceBatch
from gymnasium_solver.nets.actor_critics import ActorCritics, Branch
from gymnasium_solver.nets.encoder import Encoded, ObsEncoder
from gymnasium_solver.tree import map_tree

MAX_SHARE = 0.9  # of the largest error in a priority


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


def priorities(size: Tensor, n: Tensor) -> Tensor:
    """Of sequences [B], from absolute errors [B, L], 0 at rows that are not learnt from. `n` [B]:
    rows that are."""
    return MAX_SHARE * size.amax(1) + (1 - MAX_SHARE) * size.sum(1) / n


class Transitions:
    """Rows that were drawn one by one."""

    def __init__(self, net: ActorCritics, batch: Any):
        self.net, self.batch = net, batch
        self._encoded: dict[tuple[str, int], Encoded] = {}

    def now(self, part: Branch) -> Tensor:
        """What the layers of the actor, of critics or of a target network take at s [N, width]."""
        return part.features(self._at("obs", part))

    def later(self, part: Branch) -> Tensor:
        """The same at s', which is bootstrapped from."""
        return part.features(self._at("next_obs", part))

    def mean(self, values: Tensor) -> Tensor:
        """Over the rows that are learnt from, of [N]."""
        return values.mean()

    def priorities(self, errors: Tensor) -> Tensor:
        """By sample of the replay, from errors [N]."""
        return errors

    def _at(self, name: str, part: Branch) -> Encoded:
        encoder = self.net.encoder_of(part)
        key = (name, id(encoder))
        if key not in self._encoded:
            self._encoded[key] = encoder(getattr(self.batch, name))
        return self._encoded[key]


class SequenceRows:
    """The rows of sequences after burn-in, one sequence after the other."""

    def __init__(self, net: ActorCritics, sequences: SequenceBatch, burn_in: int):
        self.net, self.sequences, self.burn_in = net, sequences, burn_in
        valid = sequences.valid
        # Each sequence counts the same, however many of its rows are valid.
        self._share = valid * (valid.shape[1] / valid.sum(1, keepdim=True).clamp(min=1.0))
        given, mask = sequences, sequences.mask
        self.batch = ReplayBatch(
            obs=None,
            actions=given.actions.flatten(0, 1),
            reward=given.reward.flatten(),
            discount=given.discount.flatten(),
            next_obs=None,
            weight=(given.weight.unsqueeze(1) * self._share).flatten(),
            next_mask=None if mask is None else self._following(mask),
            noise=None if given.noise is None else given.noise.flatten(0, 1),
            mask=None if mask is None else mask[:, :-1].flatten(0, 1),
        )

    def now(self, part: Branch) -> Tensor:
        return self._seen(part, slice(self.burn_in, -1))

    def later(self, part: Branch) -> Tensor:
        y = self._seen(part, slice(self.burn_in, None))
        return self._following(y.unflatten(0, (len(self.sequences.weight), -1)))

    def mean(self, values: Tensor) -> Tensor:
        return (values * self._share.flatten()).mean()

    def priorities(self, errors: Tensor) -> Tensor:
        valid = self.sequences.valid
        return priorities(errors.view_as(valid) * valid, valid.sum(1).clamp(min=1.0))

    def _following(self, columns: Tensor) -> Tensor:
        """The rows [B, L + 1, W] that are bootstrapped from, as [B * L, W]."""
        place = self.sequences.place.unsqueeze(2).expand(-1, -1, columns.shape[2])
        return columns.gather(1, place).flatten(0, 1)

    def _seen(self, part: Branch, rows: slice) -> Tensor:
        encoder = self.net.encoder_of(part)
        return after_burn_in(encoder, part, part.carry_name, self.sequences, rows)


Rows = Transitions | SequenceRows


def rows_of(net: ActorCritics, batch: Any, burn_in: int = 0) -> Rows:
    if isinstance(batch, SequenceBatch):
        return SequenceRows(net, batch, burn_in)
    return Transitions(net, batch)
