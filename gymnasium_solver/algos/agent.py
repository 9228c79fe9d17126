"""The contract between an algorithm and the rest of the program.

The training loop, evaluations and checkpoints know an agent by `Agent` alone, and an algorithm's
class by `AlgorithmClass`. `Learner` (learner.py) and `OffPolicyLearner` (off_policy.py) provide all
of it except the update.
"""

from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor, nn

from gymnasium_solver.config.schema import Config
from gymnasium_solver.data.memory import Memory
from gymnasium_solver.data.rollout import Rollout
from gymnasium_solver.policies.policy import Policy
from gymnasium_solver.spaces.observations import Space
from gymnasium_solver.timing import Timer

Metrics = Mapping[str, float | Tensor]
Tensors = dict[str, dict[str, Tensor]]
"""Tensors of a checkpoint, by file: "model", "optimizer", "target"."""
Snapshot = Any
"""Opaque: give it back to `restore`."""


class Agent(Protocol):
    """Something that acts, and learns from rollouts."""

    config: Any
    observation_space: Space
    action_space: Space
    device: torch.device
    timer: Timer
    """Times the sections of an update; set by the training loop."""
    n_updates: int
    """Version of the policy: updates so far."""
    notes: list[str]
    """What the user should know before the first step."""

    @property
    def net(self) -> nn.Module:
        """What is trained and saved as the model."""

    @property
    def policy(self) -> Policy: ...

    @property
    def update_mode(self) -> str:
        """How gradients are computed, in a few words for the user."""

    # -- learning ---------------------------------------------------------------------------

    def start_training(self) -> None:
        """Validate the setup before training and collect notes for the user."""

    def before_rollout(self, env_steps: int, total_steps: int) -> None:
        """Set what exploration depends on (a rate, a warm-up); called before each rollout."""

    def update(self, rollout: Rollout, env_steps: int, total_steps: int) -> Metrics:
        """Learn from a rollout; the metrics of it. `env_steps` is the clock before the rollout."""

    # -- state ------------------------------------------------------------------------------

    def state(self) -> tuple[Tensors, dict[str, Any]]:
        """Tensors by file, and the rest as JSON: everything that decides what is learnt next."""

    def load_state(self, tensors: dict[str, dict[str, Any]], extra: dict[str, Any]) -> None: ...

    def load_weights(self, model: dict[str, Any]) -> None:
        """All weights and statistics of a network of exactly these shapes, in place."""

    def load_matching_weights(self, model: dict[str, Any]) -> list[str]:
        """What fits by name and shape; the names, ours or theirs, that did not."""

    def export_flat(self) -> dict[str, np.ndarray]:
        """What another process needs to act as this agent does: flat weights and statistics."""

    def import_flat(self, arrays: Mapping[str, np.ndarray]) -> None:
        """Act by what `export_flat` of an agent with the same config gave."""

    def snapshot(self) -> Snapshot:
        """A copy of weights, moments and statistics, to return to if an update meets a NaN."""

    def restore(self, snapshot: Snapshot) -> None: ...

    def learnt_weights(self) -> list[Tensor]:
        """Everything the optimisers change, as flat vectors."""

    # -- replay -----------------------------------------------------------------------------

    @property
    def has_replay(self) -> bool: ...

    @property
    def saves_replay(self) -> bool:
        """Is the replay kept in checkpoints?"""

    @property
    def memory(self) -> Memory | None: ...

    def open_memory(self, has_masks: bool) -> Memory:
        """Allocate the replay; an agent that only acts has none."""

    # -- acting -----------------------------------------------------------------------------

    def act(self, obs: Any, greedy: bool = True, mask: Any = None, is_first: Any = None) -> Any:
        """The environment's action for one observation or a batch: the best, or a draw."""

    def reset(self) -> None:
        """Forget the episode; only an agent with memory needs it."""


class AlgorithmClass(Protocol):
    """An algorithm: its config class, and a constructor of agents."""

    @property
    def Config(self) -> type[Config]: ...

    def __call__(
        self,
        config: Any,
        observation_space: Space,
        action_space: Space,
        seed: int,
        device: str = "cpu",
    ) -> Agent: ...
