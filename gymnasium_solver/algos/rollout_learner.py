"""Base of PPO, A2C and REINFORCE: an actor and a critic that learn from rollouts.

It builds the network, the policy, the optimiser, the gradient and self-imitation. An algorithm adds
its loss and its update.
"""

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any

import numpy as np
from torch import Tensor

from gymnasium_solver.algos.agent import Tensors
from gymnasium_solver.algos.learner import Learner
from gymnasium_solver.algos.on_policy import (
    Batch,
    build_actor_critic,
    policy_gradient_loss,
    rollout_values,
)
from gymnasium_solver.algos.self_imitation import SelfImitation
from gymnasium_solver.config.schema import LearnerConfig
from gymnasium_solver.data.rollout import Rollout
from gymnasium_solver.fast.compiled import CompiledForward
from gymnasium_solver.nets.actor_critic import ActorCritic
from gymnasium_solver.policies.policy import ActorPolicy
from gymnasium_solver.spaces.observations import Space, map_obs


class RolloutLearner(Learner):
    net: ActorCritic
    policy: ActorPolicy

    def __init__(
        self,
        config: LearnerConfig,
        observation_space: Space,
        action_space: Space,
        seed: int,
        device: str = "cpu",
    ):
        super().__init__(config, observation_space, action_space, seed, device)
        self.net, self.policy, self.optimizer = build_actor_critic(self, critic=self.has_critic)
        scale = self.net.value_scale
        self.gradient = self.add_gradient(
            "policy",
            self._loss,
            self.optimizer,
            constants=() if scale is None else list(scale.buffers()),
            record=self.config.has_short_sequences,
        )
        value = self.net.value if self.net.core is None else self.net.step_value
        self.forwards["value"] = CompiledForward(
            value, self.net, wanted=self.compiles and self.has_critic
        )
        self._saw_new_scale = False
        self.imitation: SelfImitation | None = None
        if getattr(config, "sil", False):
            self.imitation = SelfImitation(self, self.net)

    @property
    def has_critic(self) -> bool:
        return True

    def _loss(self, batch: Batch, coefficients: Sequence[Tensor]) -> tuple[Tensor, list[Tensor]]:
        terms = policy_gradient_loss(self.net, self.actions, batch, *coefficients)
        return terms.total, list(terms)

    def values(self, rollout: Rollout, is_new: bool = True) -> np.ndarray:
        """Values [T + 1, N] of every observation of a rollout. With a recurrent core, each has the
        carry of the acting policy, also the final observation of a truncated episode. `is_new`: the
        network is still the one that acted."""
        acted, n_rows = rollout.value, len(rollout.valid)
        if acted is None or not is_new or rollout.version != self.n_updates or self._saw_new_scale:
            return self._computed_values(rollout, 0)
        return np.concatenate([acted, self._computed_values(rollout, n_rows)])

    def _computed_values(self, rollout: Rollout, first: int) -> np.ndarray:
        """Values of the observations from row `first` on."""
        given: list[Any] = [map_obs(lambda part: _rows(part[first:]), rollout.obs)]
        if self.net.core is not None:
            given += [_rows(rollout.carry["core"][first:]), _rows(rollout.is_first[first:])]
        found = self.forwards["value"](*given)
        if found is None:
            return rollout_values(self.net, rollout, self.device)[first:]
        return found[0].reshape(-1, rollout.is_first.shape[1])

    def update(self, rollout: Rollout, env_steps: int, total_steps: int) -> dict[str, float]:
        """Update from one rollout and return the metrics."""
        # Of the first rollout the normaliser learns before the update: see `observing`.
        encoder = self.encoder
        self._saw_new_scale = encoder.learns_moments and not encoder.has_moments
        with self.observing(rollout):
            return self._update(rollout, env_steps, total_steps)

    @abstractmethod
    def _update(self, rollout: Rollout, env_steps: int, total_steps: int) -> dict[str, float]:
        """The update itself; the statistics of observations are taken care of."""

    def state(self) -> tuple[Tensors, dict[str, Any]]:
        tensors, extra = super().state()
        if self.imitation is not None:
            tensors["sil"], extra["sil"] = self.imitation.state()
        return tensors, extra

    def load_state(self, tensors: dict[str, dict[str, Any]], extra: dict[str, Any]) -> None:
        super().load_state(tensors, extra)
        if self.imitation is not None and "sil" in extra:
            self.imitation.load_state(tensors["sil"], extra["sil"])


def _rows(part: np.ndarray) -> np.ndarray:
    """[T, N, ...] as [T * N, ...]."""
    return part.reshape(-1, *part.shape[2:])
