"""A copy of the replay buffer on the GPU, from which gradient steps take their batches.

    copy = DeviceReplay(replay, observation_space, frame_stacks, n_step, n_new, device)
    arrays = copy.request(index, weight, gamma)              # on the host
    batch = copy.taken(map_tree(to_device, arrays))          # on the GPU, also in a CUDA graph

The buffer in host memory stays: rows are added there, indices are drawn from it, and checkpoints
save it. For a gradient step only the newest rows and the indices are transferred; observations,
n-step rewards and discounts are taken on the GPU. They are the same bits as those of
`Replay.transitions`, so it makes no difference to the results where a batch is taken.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from gymnasium_solver.data.columns import COUNT, ZERO_PADDED, column_name
from gymnasium_solver.data.replay import Replay, ReplayBatch
from gymnasium_solver.spaces.observations import Space, obs_of, part_spaces
from gymnasium_solver.tree import map_tree

PIECE_BYTES = 64 * 2**20  # transferred at a time, when all rows are
UNUSED = ("truncated", "is_first")
NUMPY_ONLY = ("uint16", "uint32", "uint64")  # torch cannot index arrays of these


class Request(NamedTuple):
    """What is transferred for one batch: arrays on the host, tensors on the GPU."""

    slots: Any  # int64[n + 1], of the newest rows and the head
    rows: dict[str, Any]  # columns [n, envs, ...], those of observations [n + 1, envs, ...]
    index: Any  # int64[B]
    weight: Any  # float32[B]
    powers: Any  # float32[n_step + 1], of gamma
    shaping: Any  # float32[2]: factor and bound of rewards


class DeviceReplay:
    def __init__(
        self,
        replay: Replay,
        observation_space: Space,
        frame_stacks: Mapping[str, int],
        n_step: int,
        n_new: int,
        device: torch.device,
    ) -> None:
        """`n_new`: rows that a request has, of those added last. If more were added since the
        last request, the older ones are copied by a transfer of their own."""
        self.replay, self.n_step, self.device = replay, n_step, device
        self._n_new = n_new
        self._parts = part_spaces(observation_space)
        self._stacks = {name: n for name, n in frame_stacks.items() if n > 1}
        self._columns = {
            name: torch.zeros(
                shape, dtype=torch.from_numpy(np.empty(0, dtype)).dtype, device=device
            )
            for name, (shape, dtype) in replay.forms().items()
            if name not in UNUSED
        }
        self._flat = {name: column.flatten(0, 1) for name, column in self._columns.items()}
        self._n_leaves = replay.n_rows * replay.n_envs
        self._n_copied = 0  # rows, as `replay.n_added` counts them; the head is not among them
        self._steps = (torch.arange(n_step, device=device) * replay.n_envs).unsqueeze(1)

    @property
    def nbytes(self) -> int:
        return sum(column.nbytes for column in self._columns.values())

    # -- on the host ------------------------------------------------------------------------

    def request(
        self,
        index: np.ndarray,
        weight: np.ndarray,
        gamma: float,
        reward_scale: float = 1.0,
        reward_clip: float | None = None,
    ) -> Request:
        """The arrays to transfer for the batch at valid indices."""
        replay = self.replay
        start = max(replay.oldest_row, replay.n_added - self._n_new)
        self._catch_up(start)
        slots, rows = self._rows(start, replay.n_added)
        self._n_copied = replay.n_added
        powers = (gamma ** np.arange(self.n_step + 1)).astype(np.float32)
        bound = np.inf if reward_clip is None else reward_clip
        shaping = np.array([reward_scale, bound], np.float32)
        return Request(slots, rows, index, weight, powers, shaping)

    def _catch_up(self, stop: int) -> None:
        """Copy the rows before `stop` that are not here yet."""
        replay = self.replay
        if replay.n_added < self._n_copied:  # rows of a checkpoint were put into it
            self._n_copied = 0
        at = max(self._n_copied, replay.oldest_row)
        step = max(1, PIECE_BYTES // max(1, self.nbytes // replay.n_rows))
        while at < stop:
            end = min(at + step, stop)
            moved = map_tree(lambda a: torch.from_numpy(a).to(self.device), self._rows(at, end))
            self._put(*moved)
            at = end

    def _rows(self, start: int, stop: int) -> tuple[np.ndarray, dict[str, np.ndarray]]:
        """The slots and the columns of some rows, and of the head after them."""
        rows = self.replay.rows(start, stop)
        slots = np.arange(start, stop + 1) % self.replay.n_rows
        return slots, {name: rows[name] for name in self._columns}

    # -- on the GPU -------------------------------------------------------------------------

    def taken(self, request: Request) -> ReplayBatch:
        """The batch of a request. Asking twice for the same one changes nothing."""
        self._put(request.slots, request.rows)
        index, n_envs = request.index, self.replay.n_envs
        reward, discount, last = self._returns(index, request.powers, request.shaping)
        following = last + n_envs
        actions, has_masks = self._at("actions", index), "mask" in self._flat
        return ReplayBatch(
            self._observations(index),
            actions if actions.is_floating_point() else actions.long(),
            reward,
            discount,
            self._observations(following),
            request.weight,
            self._at("mask", following) if has_masks else None,
            mask=self._at("mask", index) if has_masks else None,
        )

    def _put(self, slots: Tensor, rows: dict[str, Tensor]) -> None:
        for name, values in rows.items():
            self._columns[name].index_copy_(0, slots[: len(values)], values)
        self._columns["valid"].index_fill_(0, slots[-1:], 0)  # the head

    def _at(self, name: str, index: Tensor) -> Tensor:
        """Entries of a column at indices of any shape, which may exceed the end."""
        column = self._flat[name]
        found = column.index_select(0, (index % self._n_leaves).reshape(-1))
        return found.view(*index.shape, *column.shape[1:])

    def _returns(
        self, index: Tensor, powers: Tensor, shaping: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Reward, discount and last step of each transition; as `Replay.transitions`."""
        chain = index + self._steps  # [n, B]
        scale, bound = shaping.unbind()
        reward = (self._at("reward", chain) * scale).clamp(-bound, bound)
        if "bonus" in self._flat:
            reward = reward + self._at("bonus", chain)
        terminated = self._at("terminated", chain)
        if self.n_step == 1:
            return reward[0], terminated[0].logical_not() * powers[1], index
        goes_on = self._at("valid", chain)
        alive = goes_on[0]
        total, ended = reward[0] * powers[0], terminated[0]
        n_steps = torch.ones_like(index)
        for i in range(1, self.n_step):  # in the order of the host, for the same bits
            alive = alive & goes_on[i] & ~terminated[i - 1]
            total = torch.where(alive, total + reward[i] * powers[i], total)
            ended = ended | (terminated[i] & alive)
            n_steps = n_steps + alive
        discount = powers[n_steps] * ended.logical_not()
        return total, discount, index + (n_steps - 1) * self.replay.n_envs

    def _observations(self, index: Tensor) -> Any:
        return obs_of({name: self._part(name, index) for name in self._parts})

    def _part(self, name: str, index: Tensor) -> Tensor:
        n_frames = self._stacks.get(name, 1)
        if n_frames == 1:
            return self._at(column_name("obs", name), index)
        code = self._at(column_name("older", name), index).long().unsqueeze(1)
        count = code & COUNT
        back = torch.arange(n_frames - 1, -1, -1, device=self.device)
        source = index.unsqueeze(1) - torch.minimum(back, count) * self.replay.n_envs
        frames = self._at(column_name("obs", name), source)  # [B, k, *frame]
        is_zero = (back > count) & (code >= ZERO_PADDED)
        frames = frames.masked_fill(is_zero.view(*is_zero.shape, 1, 1, 1), 0)
        return frames.view(len(index), *(self._parts[name].shape or ()))


def can_copy(replay: Replay) -> bool:
    """Whether torch has the types of the columns, and a GPU has what batches are made of."""
    forms = replay.forms()
    is_plain = replay.episodes is None and not any(name.startswith("carry") for name in forms)
    return is_plain and all(np.dtype(dtype).name not in NUMPY_ONLY for _, dtype in forms.values())
