"""Updates from a rollout that is on the learner's device: on a GPU the host waits for nothing.

    update = PPODeviceUpdate(ppo, ppo.descent)
    metrics = update(rollout, hp)           # tensors; hp: the scheduled values

The same network, loss and descent as from a rollout of arrays, and the same targets and
minibatches. Targets, all passes and the metrics are one CUDA graph (fast/cuda_graph.py), which
reads the numbers that change, such as the learning rate. Permutations are drawn on the GPU. On a
CPU the same lines run one after the other, with the descent in its fastest form.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Mapping, Sequence
from itertools import pairwise
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor

from gymnasium_solver import processes
from gymnasium_solver.algos import ops
from gymnasium_solver.algos.learner import Learner, hp_metrics
from gymnasium_solver.data.device_rollout import DeviceRollout
from gymnasium_solver.fast.cuda_graph import Recurring
from gymnasium_solver.fast.descent import Descent, Steps
from gymnasium_solver.nets.normalizer import DeviceRewardNormalizer
from gymnasium_solver.tree import leaves_of, map_tree

NARROW = 32  # numbers of a row
MEASURED_ROWS = 16_384  # of a rollout, for metrics that cost time
STREAM = 3  # of the learner's seed; the first three are those of algos/learner.py
BatchT = TypeVar("BatchT")


class DeviceUpdate(ABC):
    def __init__(self, learner: Learner, descent: Descent):
        self.learner, self.descent = learner, descent
        device, seed = learner.device, np.random.SeedSequence(learner.seed, spawn_key=(STREAM,))
        self.generator: torch.Generator | None = None  # on a CPU the learner's own stream
        if device.type == "cuda":
            self.generator = torch.Generator(device).manual_seed(int(seed.generate_state(1)[0]))
            learner.generators["device_generator"] = self.generator
        generators = [] if self.generator is None else [self.generator]
        # Untried: whether NCCL's sums could be part of a graph.
        captures = processes.count() == 1
        self.recurring = Recurring(device, generators, [descent.optimizer], captures)
        self.names: tuple[str, ...] = ()
        self.is_used = False
        self.reward_scale: DeviceRewardNormalizer | None = None
        if learner.config.scales_reward:
            self.reward_scale = DeviceRewardNormalizer(learner.reward_normalizer, device)

    @property
    def needs_host(self) -> str | None:
        """What about the learner needs rollouts as arrays; None: nothing."""
        return next((reason for reason, holds in self.reasons().items() if holds), None)

    def reasons(self) -> dict[str, bool]:
        """Settings by what the user calls them, and whether they need rollouts as arrays."""
        learner = self.learner
        return {
            "recurrent": learner.config.recurrent is not None,
            "its extensions": bool(learner.extensions),
            "the action space": not learner.policy.chooses_tensors,
            "the observation space": not learner.encoder.is_vector or learner.encoder.is_dict,
        }

    @abstractmethod
    def settings(self) -> Hashable:
        """What an update depends on besides the scheduled values; it may change in a run."""

    @abstractmethod
    def learn(self, rollout: DeviceRollout, hp: Mapping[str, Any]) -> dict[str, Tensor]:
        """Targets, passes and metrics, without reading the device."""

    @abstractmethod
    def details(self, hp: Mapping[str, float]) -> dict[str, float]:
        """Metrics that cost time, of the newest update; this waits for the device."""

    def __call__(self, rollout: DeviceRollout, hp: dict[str, float]) -> dict[Any, Any]:
        """Learn from a rollout. The metrics are one tensor, under the tuple of their names."""
        learner = self.learner
        encoder, self.is_used = learner.encoder, True
        is_first = encoder.learns_moments and not learner.n_updates and not encoder.has_moments
        if is_first:
            encoder.observe_on_device(rollout.obs.flatten(0, 1))
        if rollout.is_restart and self.reward_scale is not None:
            self.reward_scale.running_return.zero_()

        def learn(numbers: Sequence[Any]) -> list[Tensor]:
            found = self.learn(rollout, dict(zip(hp, numbers, strict=True)))
            self.names = tuple(found)
            values = torch.stack([value.float().to(learner.device) for value in found.values()])
            return [processes.mean_(values)]

        key = (rollout.obs.data_ptr(), rollout.n_rows, self.settings())
        (found,) = self.recurring(key, learn, list(hp.values()))
        if not is_first:
            encoder.observe_on_device(rollout.obs.flatten(0, 1))
        learner.n_updates += 1
        more = self.details(hp) if learner.take_details() else {}
        return {self.names: found, **hp_metrics(hp), **more}

    @torch.no_grad()
    def advantages(
        self, rollout: DeviceRollout, values: Callable[[Tensor], Tensor], gae_lambda: float
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Observations, advantages and values of all rows [T * N], from the values of observations
        and the rewards, which are scaled if the config says so."""
        obs, reward = rollout.obs.flatten(0, 1), rollout.reward
        value, next_value = (
            values(part).view(reward.shape) for part in (obs, rollout.final_obs.flatten(0, 1))
        )
        ends = (rollout.terminated, rollout.truncated)
        if self.reward_scale is not None:
            reward = self.reward_scale(reward, ends[0] | ends[1])
        gamma = self.learner.config.gamma
        advantage = ops.gae_of_tensors(reward, value, next_value, *ends, gamma, gae_lambda)
        return obs, advantage.flatten(), value.flatten()

    def passes(
        self, batch: BatchT, numbers: Mapping[str, Any], lr: Any,
        prepared: Callable[[BatchT, list[slice]], BatchT] = lambda batch, parts: batch,
    ) -> list[Steps]:  # fmt: skip
        """All passes over a batch. `prepared`: what to do with it before each of them."""
        found = []
        for _ in range(self.learner.config.n_epochs):
            shuffled, parts = self.minibatches(batch)
            found.append(self.descent(prepared(shuffled, parts), numbers, lr, parts))
        return found

    @torch.no_grad()
    def minibatches(self, batch: BatchT) -> tuple[BatchT, list[slice]]:
        """The shuffled batch, and the minibatches of a pass as parts of it of nearly equal size."""
        n = len(leaves_of(batch)[0])
        n_parts = -(-n // self.learner.config.batch_size)
        if n_parts > 1:
            order = self._permutation(n)
            batch = map_tree(lambda column: taken(column, order), batch)
        ends = [n * i // n_parts for i in range(n_parts + 1)]
        return batch, [slice(*bounds) for bounds in pairwise(ends)]

    def _permutation(self, n: int) -> Tensor:
        if self.generator is None:
            return torch.from_numpy(self.learner.rng.permutation(n))
        keys = torch.rand(n, generator=self.generator, device=self.generator.device)
        return keys.argsort()

    # -- state ------------------------------------------------------------------------------

    def pull(self) -> None:
        """Bring what is on the device to where the learner saves it from; `push`: the reverse."""
        if self.reward_scale is not None and self.is_used:
            self.reward_scale.pull()

    def push(self) -> None:
        if self.reward_scale is not None:
            self.reward_scale.push()


def taken(column: Tensor, order: Tensor) -> Tensor:
    """column[order]."""
    is_narrow = column.ndim > 1 and column[0].numel() <= NARROW
    return by_number(column, order) if is_narrow and order.is_cuda else column[order]


def by_number(column: Tensor, order: Tensor) -> Tensor:
    """The same, taken number by number. Else torch starts 32 threads for each row, of which rows
    of four numbers use one: 80 microseconds for 131,072 of them."""
    width = column[0].numel()
    within = torch.arange(width, device=order.device)
    places = torch.add(within, order.unsqueeze(1), alpha=width)
    return column.reshape(-1)[places].view(len(order), *column.shape[1:])
