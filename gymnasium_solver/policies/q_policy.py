"""Acting by action values: the best legal action, and four ways to explore around it."""

from typing import Literal

import numpy as np
from gymnasium import spaces

from gymnasium_solver.nets.q_network import QNetwork
from gymnasium_solver.policies.policy import Mask, Obs, Policy
from gymnasium_solver.spaces.distributions import Categorical

Exploration = Literal["epsilon_greedy", "boltzmann", "greedy", "noisy"]


class QPolicy(Policy):
    """`epsilon` and `temperature` are set from outside as a run goes on."""

    def __init__(
        self,
        net: QNetwork,
        observation_space: spaces.Space,
        action_space: spaces.Space,
        rng: np.random.Generator,
        exploration: Exploration,
    ):
        super().__init__(observation_space, action_space, rng)
        self.net, self.exploration = net, exploration
        self.epsilon, self.temperature = 0.0, 1.0

    def state(self) -> dict[str, float]:
        return {"epsilon": self.epsilon, "temperature": self.temperature}

    def load_state(self, state: dict[str, float]) -> None:
        self.epsilon, self.temperature = state["epsilon"], state["temperature"]

    def _best(self, obs: Obs, mask: Mask) -> np.ndarray:
        return legal(self.net.q_values(obs), mask).argmax(axis=1)

    def _draw(self, obs: Obs, mask: Mask) -> np.ndarray:
        if self.exploration == "noisy":
            return legal(self.net.q_values(obs, self.rng), mask).argmax(axis=1)
        q = legal(self.net.q_values(obs), mask)
        if self.exploration == "boltzmann":
            # Shifted before the division: a forbidden action stays infinitely far away.
            logits = (q - q.max(axis=1, keepdims=True)) / np.float32(self.temperature)
            return Categorical().sample(logits, None, self.rng)
        best = q.argmax(axis=1)
        if self.exploration == "greedy":
            return best
        # Each env draws for itself: one draw for all would make them explore in step.
        explores = self.rng.random(len(best)) < self.epsilon
        return np.where(explores, self.uniform(len(best), mask), best) if explores.any() else best


def legal(q: np.ndarray, mask: Mask) -> np.ndarray:
    """Values with minus infinity where an action is forbidden."""
    return q if mask is None else np.where(mask, q, -np.inf)
