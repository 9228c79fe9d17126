"""Q-learning from replayed sequences with a recurrent network (R2D2, Kapturowski et al. 2019).

Used by DQN with `recurrent`. A sampled sequence starts with the carry that the acting policy had
there (stored state). Its first `burn_in` rows only bring the carry up to date with the present
weights, without a gradient; the others are learnt from, with n-step targets inside the sequence.
The priority of a sequence is 0.9 max + 0.1 mean of its absolute TD errors.

Difference from the paper: every step of the replay can be the first of a sequence, instead of every
40th; new ones have the highest priority.
"""

from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from gymnasium_solver.algos import ops
from gymnasium_solver.data.memory import Memory
from gymnasium_solver.nets.q_network import QHead, QNetwork
from gymnasium_solver.tree import map_tree

RESCALE_EPS = 1e-3
MAX_SHARE = 0.9  # of the largest error in a priority
N_TRIES = 8


class SequenceBatch(NamedTuple):
    """B sequences: R = burn_in + L + 1 rows of observations, L rows to learn from."""

    obs: Any  # tree of tensors [B, R, ...]
    is_first: Tensor  # [B, R]
    carry: Tensor  # before the first row [B, ...]
    actions: Tensor  # [B, L]
    reward: Tensor  # discounted n-step rewards [B, L]
    discount: Tensor  # of the bootstrapped value, 0 after a termination [B, L]
    place: Tensor  # row that is bootstrapped from, 1 to L after burn-in [B, L]
    valid: Tensor  # rows to learn from, as numbers [B, L]
    weight: Tensor  # importance weight [B]
    mask: Tensor | None = None  # legal actions after burn-in [B, L + 1, A]


class SequenceSample(NamedTuple):
    """The columns of a SequenceBatch as arrays, and where the sequences start."""

    columns: dict[str, Any]
    index: np.ndarray  # type: ignore[assignment]


def sequence_starts(memory: Memory, n: int, length: int, beta: float) -> tuple[Any, Any]:
    """Start indices [n] of sequences of `length` rows, and their importance weights."""
    replay, priorities, rng = memory.replay, memory.priorities, memory.rng
    if priorities is None:
        return replay.sample_sequences(n, length, rng), np.ones(n, np.float32)
    found = np.empty(0, np.int64)
    for _ in range(N_TRIES):  # the newest rows are too close to the end
        index = priorities.sample(2 * n, rng)
        is_whole = replay.row_of(index) + length <= replay.n_added
        found = np.concatenate([found, index[is_whole]])[:n]
        if len(found) == n:
            break
    if len(found) < n:
        found = np.concatenate([found, replay.sample_sequences(n - len(found), length, rng)])
    return found, priorities.weights(found, replay.n_valid, beta)


def n_step_targets(
    reward: np.ndarray,
    terminated: np.ndarray,
    truncated: np.ndarray,
    valid: np.ndarray,
    n_step: int,
    gamma: float,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """For each row [L, B]: the discounted reward of up to n steps of its episode within the
    sequence, the discount of the value after them (0 after a termination), and its row."""
    n_rows = len(reward)
    total = np.zeros(reward.shape, np.float32)
    discount = np.zeros(reward.shape, np.float32)
    place = np.ones(reward.shape, np.int64)
    for t in range(n_rows):
        goes_on, factor = valid[t].copy(), np.ones(reward.shape[1], np.float32)
        last = np.full(reward.shape[1], t + 1)
        for k in range(t, min(t + n_step, n_rows)):
            goes_on = goes_on & valid[k]
            total[t] += np.where(goes_on, factor * reward[k], 0.0)
            factor = np.where(goes_on, factor * np.float32(gamma), factor)
            factor = np.where(goes_on & terminated[k], 0.0, factor)
            last = np.where(goes_on, k + 1, last)
            goes_on = goes_on & ~terminated[k] & ~truncated[k]
        discount[t], place[t] = factor, last
    return total, discount, place


def sample_batch(
    memory: Memory, n: int, burn_in: int, length: int, beta: float, scale: float, clip: float | None
) -> SequenceSample:
    """n sequences of burn_in + length rows; rewards are scaled, then clipped."""
    index, weight = sequence_starts(memory, n, burn_in + length, beta)
    rows = memory.replay.sequences(index, burn_in + length)
    reward = rows.reward[burn_in:] * np.float32(scale)
    if clip is not None:
        reward = np.clip(reward, -clip, clip)
    ends = (rows.terminated[burn_in:], rows.truncated[burn_in:], rows.valid[burn_in:])
    targets = n_step_targets(reward, *ends, memory.n_step, memory.gamma)

    def first(array: np.ndarray) -> np.ndarray:  # the batch first
        return np.ascontiguousarray(np.swapaxes(array, 0, 1))

    columns: dict[str, Any] = {
        "obs": map_tree(first, rows.obs),
        "is_first": first(rows.is_first),
        "carry": rows.carry["core"],
        "actions": first(rows.actions[burn_in:]),
        "reward": first(targets[0]),
        "discount": first(targets[1]),
        "place": first(targets[2]),
        "valid": first(rows.valid[burn_in:]).astype(np.float32),
        "weight": weight.astype(np.float32),
        "mask": None if rows.mask is None else first(rows.mask[burn_in:]),
    }
    return SequenceSample(columns, index)


def rescaled(x: Tensor) -> Tensor:
    """h(x) = sign(x) (sqrt(|x| + 1) - 1) + eps x: large values are compressed."""
    return x.sign() * ((x.abs() + 1.0).sqrt() - 1.0) + RESCALE_EPS * x


def unscaled(y: Tensor) -> Tensor:
    """The inverse of `rescaled`."""
    eps = RESCALE_EPS
    root = (1.0 + 4.0 * eps * (y.abs() + 1.0 + eps)).sqrt()
    return y.sign() * (((root - 1.0) / (2.0 * eps)).square() - 1.0)


def sequence_values(net: QNetwork, head: QHead, batch: SequenceBatch, burn_in: int) -> Tensor:
    """Values of the rows after burn-in [B, L + 1, A] by a head, online or target."""
    carry, is_early, is_late = batch.carry, slice(None, burn_in), slice(burn_in, None)

    def encoded(rows: slice) -> Any:
        return net.encoder(map_tree(lambda part: part[:, rows].flatten(0, 1), batch.obs))

    if burn_in:
        with torch.no_grad():
            carry = head.carry_after(encoded(is_early), carry, batch.is_first[:, is_early])
    q = head.sequence(encoded(is_late), carry, batch.is_first[:, is_late])
    return q.view(len(carry), -1, q.shape[1])


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
    loss = ops.huber(errors) if is_huber else errors.square()
    n = batch.valid.sum(1).clamp(min=1.0)
    size = errors.detach().abs()
    priority = MAX_SHARE * size.amax(1) + (1 - MAX_SHARE) * size.sum(1) / n
    return (batch.weight * loss.sum(1) / n).mean(), priority
