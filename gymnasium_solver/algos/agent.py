"""The contract between an algorithm and the rest of the program.

The training loop, evaluation and checkpoints depend only on `Agent` and, for the class of an
algorithm, on `AlgorithmClass`. `Learner` (learner.py) and `ReplayLearner` (replay_learner.py)
derive from it and implement everything except the update.
"""

from collections.abc import Callable, Collection, Mapping
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from gymnasium_solver.config.schema import Config
from gymnasium_solver.data.demonstrations import Demonstrations
from gymnasium_solver.data.memory import Memory
from gymnasium_solver.errors import RunError
from gymnasium_solver.policies.policy import Policy
from gymnasium_solver.spaces.observations import GoalFunctions, Space
from gymnasium_solver.timing import Timer

Metrics = Mapping[str, float | Tensor]
Tensors = dict[str, dict[str, Tensor]]
"""Tensors of a checkpoint, by file: "model", "optimizer", "target"."""
Snapshot = Any  # opaque; pass it to `restore`


class Agent(Protocol):
    """A policy that acts, and learns from rollouts. What has a body here is right for an agent that
    has nothing to learn; an agent that derives from this class inherits it."""

    config: Any
    observation_space: Space
    action_space: Space
    device: torch.device
    net: Any  # the trained network, saved as the model
    policy: Policy
    timer: Timer  # times the sections of an update; set by the training loop
    n_updates: int = 0  # version of the policy: updates so far
    notes: list[str]  # notices to show to the user before training
    wants_details: bool = False
    """Whether the next update also reports metrics that cost time; set by the training loop."""
    demonstrations: Demonstrations | None = None
    """What it learns from in place of the environment, from `start_training` on; None: it learns
    from rollouts."""
    has_replay: bool = False
    memory: Memory | None = None

    @property
    def saves_replay(self) -> bool:
        """Whether checkpoints include the replay buffer."""
        return False

    @property
    def update_mode(self) -> str:
        """How gradients are computed, as a short text for the user."""
        return "nothing to learn"

    # -- learning ---------------------------------------------------------------------------

    def use_goals(self, goals: Callable[[], GoalFunctions]) -> None:
        """Take the env's goal functions, for hindsight replay; called before `start_training`. An
        agent that needs none does not call `goals`, which raises EnvError where the env has
        none."""
        return

    def start_training(self) -> None:
        """Validate the setup before training and collect notes for the user."""
        return

    def set_clock(self, env_steps: int, total_steps: int) -> None:
        """Read numbers that are given as schedules at this clock; called before each rollout."""
        return

    def before_rollout(self, env_steps: int, total_steps: int) -> None:
        """Set the exploration parameters (epsilon, warm-up); called before each rollout."""
        return

    def update(self, rollout: Any, env_steps: int, total_steps: int) -> Metrics:
        """Learn from a Rollout, or a DeviceRollout if it `needs_host` for nothing, and return
        metrics. `env_steps` is the count before the rollout."""
        ...

    def side_metrics(self, rollout: Any) -> Metrics:
        """Metrics of the last update, from this rollout, beside those it returned."""
        return {}

    # -- state ------------------------------------------------------------------------------

    def state(self) -> tuple[Tensors, dict[str, Any]]:
        """Return the complete training state: tensors by file, and the remaining state as JSON."""
        ...

    def load_state(self, tensors: dict[str, dict[str, Any]], extra: dict[str, Any]) -> None: ...

    def load_weights(self, model: dict[str, Any]) -> None:
        """Load all weights and statistics in place; names and shapes must match exactly."""

    def load_matching_weights(self, model: dict[str, Any]) -> list[str]:
        """Load the tensors that match by name and shape (transfer). Return the names, from either
        side, that did not match."""
        return sorted(model)

    def load_matching_moments(
        self, moments: Mapping[str, Any], loaded: Collection[str]
    ) -> tuple[list[str], list[str]]:
        """Load the saved state of the optimisers all of whose parameters are `loaded`. Return the
        names of those that have it now, and of those that do not."""
        return [], []

    def export_flat(self) -> dict[str, np.ndarray]:
        """Flat weights and statistics: what another process needs to act like this agent."""
        return {"version": np.array(self.n_updates)}

    def import_flat(self, arrays: Mapping[str, np.ndarray]) -> None:
        """Load what `export_flat` returned for an agent with the same config."""
        self.n_updates = int(arrays["version"])

    def snapshot(self) -> Snapshot:
        """Copy weights, optimiser moments and statistics, to restore after an update with NaNs."""
        return None

    def restore(self, snapshot: Snapshot) -> None:
        return

    def learnt_weights(self) -> list[Tensor]:
        """All trained parameters, as flat vectors."""
        return []

    # -- replay -----------------------------------------------------------------------------

    def open_memory(self, has_masks: bool) -> Memory:
        """Allocate the replay buffer. An agent that only acts has none."""
        raise RunError(f"{self.config.algo_id} has no replay buffer to load.")

    def adopt_memory(self, memory: Memory) -> None:
        """Continue with the replay buffer of an agent whose config differed."""
        return

    # -- acting -----------------------------------------------------------------------------

    def act(
        self,
        obs: Any,
        greedy: bool | None = None,
        mask: Any = None,
        is_first: Any = None,
        as_trained: bool = False,
    ) -> Any:
        """The env's action for one observation or a batch: the greedy one, or a sample; by default
        that by which the run of a loaded agent is judged.

        A loaded agent applies the run's observation wrappers; `as_trained`: `obs` is as the policy
        saw it in training, with the wrappers applied."""
        return self.policy.act(obs, greedy, mask, is_first, as_trained)

    def reset(self) -> None:
        """Clear the memory at the start of an episode; needed by recurrent agents only."""
        self.policy.reset()


class AlgorithmClass(Protocol):
    """The class of an algorithm: its config class and the constructor of its agents."""

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
