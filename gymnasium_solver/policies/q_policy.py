"""Policies on Q-values: the best legal action, and four exploration strategies."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from gymnasium_solver.config.types import Exploration
from gymnasium_solver.fast.forward import CompiledForward, Inference
from gymnasium_solver.nets.q_network import QNetwork
from gymnasium_solver.policies.policy import Acted, ActObs, Carry, Mask, Outlook, Policy
from gymnasium_solver.spaces.actions import DiscreteActions
from gymnasium_solver.spaces.observations import Space, obs_len


class QPolicy(Policy):
    """`epsilon` and `temperature` are set by the learner from their schedules."""

    is_stochastic = False

    def __init__(
        self,
        net: QNetwork,
        observation_space: Space,
        actions: DiscreteActions,
        rng: np.random.Generator,
        exploration: Exploration,
        *,
        record: bool,
        compile: bool = False,
    ):
        """`compile`: act with a compiled program, where there is one."""
        super().__init__(observation_space, actions, rng)
        self.net, self.exploration = net, exploration
        self.epsilon, self.temperature = 0.0, 1.0
        function = net.q_values if net.q.core is None else net.step
        self._infer = Inference(function, net, record=record)
        self._infer_noisy = Inference(function, net, record=record)
        is_plain = not net.q.noisy_layers
        self.explorer = CompiledForward(function, net, wanted=compile and record and is_plain)

    def state(self) -> dict[str, float]:
        return {"epsilon": self.epsilon, "temperature": self.temperature}

    def load_state(self, state: dict[str, float]) -> None:
        self.epsilon, self.temperature = state["epsilon"], state["temperature"]

    def greedy(self, obs: ActObs, carry: Carry, is_first: np.ndarray, mask: Mask = None) -> Acted:
        # In C once exploration is: an agent that never explores compiles nothing.
        q, carry = self._values(obs, carry, is_first, compiled=self.explorer.mode == "compiled")
        return Acted(legal(q, mask).argmax(axis=1), carry)

    def _draw(self, obs: ActObs, carry: Carry, is_first: np.ndarray, mask: Mask) -> Acted:
        if self.exploration == "noisy":
            noise = self.net.q.row_noise(obs_len(obs), self.rng)
            q, carry = self._values(obs, carry, is_first, noise)
            return Acted(legal(q, mask).argmax(axis=1), carry)
        q, carry = self._values(obs, carry, is_first, compiled=True)
        return Acted(self._explore(legal(q, mask), mask), carry)

    def _values(
        self, obs: ActObs, carry: Carry, is_first: np.ndarray, *noise: Any, compiled: bool = False
    ) -> tuple[np.ndarray, Carry]:
        """Values [N, A] and the new carry; `compiled`: in C, if possible."""
        given = [obs, carry["core"], is_first] if self.has_memory else [obs]
        found = self.explorer(*given) if compiled else None
        if found is None:
            if not noise:
                self.net.q.resample(None)  # remove the noise that an update left in noisy layers
            outputs = (self._infer_noisy if noise else self._infer)(*given, *noise)
            found = outputs if self.has_memory else [outputs]
        q, *core = found
        return q, {"core": core[0]} if core else carry

    def initial_carry(self, n: int) -> Carry:
        core = self.net.q.core
        return {} if core is None else {"core": np.zeros((n, core.carry_width), np.float32)}

    @property
    def has_memory(self) -> bool:
        return self.net.q.core is not None

    def _remember(self, obs: ActObs, carry: Carry, is_first: np.ndarray) -> Carry:
        return self._values(obs, carry, is_first)[1]

    def outlook(self, obs: ActObs, carry: Carry, is_first: np.ndarray, mask: Mask) -> Outlook:
        q, _ = self._values(obs, carry, is_first)
        return Outlook(q_values=q, value=legal(q, mask).max(axis=1))

    # -- on a device

    @property
    def chooses_tensors(self) -> bool:
        return self.exploration == "epsilon_greedy" and not self.has_memory

    @property
    def choice_numbers(self) -> Sequence[float]:
        return (1.0 if self.is_random else self.epsilon,)

    def ready_noise(self, shape: tuple[int, ...], rng: torch.Generator) -> Tensor:
        return torch.rand((*shape, 2), generator=rng, device=rng.device)

    def choose(
        self, obs: Tensor, noise: Tensor, numbers: Sequence[Any] = ()
    ) -> tuple[Tensor, Tensor]:
        (epsilon,) = numbers
        q = self.net.q_values(obs)
        other = (noise[:, 1] * q.shape[1]).long()
        return torch.where(noise[:, 0] < epsilon, other, q.argmax(1)), q

    def chosen_log_prob(self, outputs: Tensor, actions: Tensor) -> Tensor:
        return torch.zeros(len(actions), device=actions.device)  # Q-learning reads none

    def _explore(self, q: np.ndarray, mask: Mask) -> np.ndarray:
        """Actions from the values of the legal actions."""
        if self.exploration == "boltzmann":
            # Shift before the division: an illegal action keeps its infinite distance.
            logits = (q - q.max(axis=1, keepdims=True)) / np.float32(self.temperature)
            return self.actions.sample(logits, None, self.rng)
        best = q.argmax(axis=1)
        if self.exploration == "greedy":
            return best
        # Each env draws independently; with one draw for all, they would explore in lockstep.
        explores = self.rng.random(len(best)) < self.epsilon
        if not explores.any():
            return best
        return np.where(explores, self.actions.uniform(len(best), self.rng, mask), best)


def legal(q: np.ndarray, mask: Mask) -> np.ndarray:
    """The values, with minus infinity for illegal actions."""
    return q if mask is None else np.where(mask, q, -np.inf)
