"""random: uniformly random legal actions, as a run like any other.

    gsolve train CartPole-v1 --algo-id random

The baseline of every comparison, with the folder, evaluations, verdict and report of a training.
There is nothing to learn: `update` only counts. Evaluations draw as well; a random policy has no
better action.
"""

from collections.abc import Callable, Collection, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from gymnasium_solver.algos.agent import Snapshot, Tensors
from gymnasium_solver.algos.configs.random import RandomConfig
from gymnasium_solver.data.demonstrations import Demonstrations
from gymnasium_solver.data.memory import Memory
from gymnasium_solver.data.rollout import Rollout
from gymnasium_solver.errors import RunError
from gymnasium_solver.policies.policy import Acted, ActObs, Carry, Mask, Policy
from gymnasium_solver.spaces.actions import action_kind
from gymnasium_solver.spaces.observations import GoalFunctions, Space, obs_len
from gymnasium_solver.spaces.space_types import space_to_json
from gymnasium_solver.timing import OFF, Timer


class UniformPolicy(Policy):
    """Uniform over the legal actions, sampled or greedy."""

    is_stochastic = False

    def _draw(self, obs: ActObs, carry: Carry, is_first: np.ndarray, mask: Mask) -> Acted:
        return Acted(self.actions.uniform(obs_len(obs), self.rng, mask), carry)

    def greedy(self, obs: ActObs, carry: Carry, is_first: np.ndarray, mask: Mask = None) -> Acted:
        return self._draw(obs, carry, is_first, mask)


class Random:
    Config = RandomConfig
    has_replay = False
    saves_replay = False
    memory: Memory | None = None
    demonstrations: Demonstrations | None = None
    update_mode = "nothing to learn"

    def __init__(
        self,
        config: RandomConfig,
        observation_space: Space,
        action_space: Space,
        seed: int,
        device: str = "cpu",
    ):
        self.config = config
        self.observation_space, self.action_space = observation_space, action_space
        self.device = torch.device("cpu")
        self.timer: Timer = OFF
        self.n_updates = 0
        self.notes: list[str] = []
        self.wants_details = False
        self.net = nn.Module()
        self.policy: Policy = UniformPolicy(
            observation_space, action_kind(action_space), np.random.default_rng(seed)
        )

    # -- learning: none ---------------------------------------------------------------------

    def use_goals(self, goals: Callable[[], GoalFunctions]) -> None:
        """Needs none."""

    def start_training(self) -> None:
        """Nothing to validate."""

    def set_clock(self, env_steps: int, total_steps: int) -> None:
        """No schedules."""

    def before_rollout(self, env_steps: int, total_steps: int) -> None:
        """No exploration to set."""

    def update(self, rollout: Rollout, env_steps: int, total_steps: int) -> dict[str, float]:
        self.n_updates += 1
        return {}

    def side_metrics(self, rollout: Rollout) -> dict[str, float]:
        return {}

    # -- state: the random stream -----------------------------------------------------------

    def state(self) -> tuple[Tensors, dict[str, Any]]:
        extra = {
            "observation_space": space_to_json(self.observation_space),
            "action_space": space_to_json(self.action_space),
            "policy": self.policy.state(),
            "act_rng": self.policy.rng.bit_generator.state,
            "n_updates": self.n_updates,
        }
        return {"model": {}, "optimizer": {}}, extra

    def load_state(self, tensors: dict[str, dict[str, Any]], extra: dict[str, Any]) -> None:
        self.policy.rng.bit_generator.state = extra["act_rng"]
        self.n_updates = extra["n_updates"]

    def load_weights(self, model: dict[str, Any]) -> None:
        if model:
            raise RunError("a random agent has no weights to load.")

    def load_matching_weights(self, model: dict[str, Any]) -> list[str]:
        return sorted(model)

    def load_matching_moments(
        self, moments: Mapping[str, Any], loaded: Collection[str]
    ) -> tuple[list[str], list[str]]:
        return [], []

    def export_flat(self) -> dict[str, np.ndarray]:
        return {"version": np.array(self.n_updates)}

    def import_flat(self, arrays: Mapping[str, np.ndarray]) -> None:
        self.n_updates = int(arrays["version"])

    def snapshot(self) -> Snapshot:
        return None

    def restore(self, snapshot: Snapshot) -> None:
        """Nothing was changed."""

    def learnt_weights(self) -> list[Tensor]:
        return []

    def open_memory(self, has_masks: bool) -> Memory:
        raise RunError("random has no replay buffer to load.")

    def adopt_memory(self, memory: Memory) -> None:
        """Has none."""

    # -- acting -----------------------------------------------------------------------------

    def act(
        self,
        obs: Any,
        greedy: bool | None = None,
        mask: Any = None,
        is_first: Any = None,
        as_trained: bool = False,
    ) -> Any:
        """A random legal action, for one observation or a batch."""
        return self.policy.act(obs, greedy, mask, is_first, as_trained)

    def reset(self) -> None:
        self.policy.reset()
