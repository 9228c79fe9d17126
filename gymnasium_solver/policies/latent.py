"""Acts from the state of a learnt world model (DreamerV3).

The carry `core` has, for each env, the state of the RSSM after the last observation and the last
action. An observation is first taken into the state; the actor acts on that. Samples draw the
latents of the state, greedy actions take the most likely ones.
"""

from typing import Any

import numpy as np
import torch
from torch import Tensor

from gymnasium_solver.fast.cuda_graph import on_device
from gymnasium_solver.fast.forward import Inference
from gymnasium_solver.nets.rssm import DreamerNet
from gymnasium_solver.policies.policy import Acted, ActObs, Carry, Mask, Outlook, Policy
from gymnasium_solver.spaces.actions import ActionKind, mask_outputs
from gymnasium_solver.spaces.observations import Space, obs_len
from gymnasium_solver.tree import map_tree

STORED = np.float16  # memory is between -1 and 1, latents are 0 or 1


class LatentPolicy(Policy):
    def __init__(
        self, net: DreamerNet, observation_space: Space, actions: ActionKind,
        rng: np.random.Generator, *, record: bool,
    ):  # fmt: skip
        """`record`: act with a recorded program, where there is one."""
        super().__init__(observation_space, actions, rng)
        self.net = net
        self._draws = Inference(self._sampled, net, record=record)
        self._chooses = Inference(self._likeliest, net, record=record)

    def _sampled(self, obs: Any, core: Tensor, is_first: Tensor, noise: Tensor) -> list[Tensor]:
        state = self.net.advance(obs, core, is_first, noise)
        return [self.net.actor(state), state]

    def _likeliest(self, obs: Any, core: Tensor, is_first: Tensor) -> list[Tensor]:
        state = self.net.advance(obs, core, is_first, None)
        return [self.net.actor(state), state]

    def sample(self, obs: ActObs, carry: Carry, is_first: np.ndarray, mask: Mask = None) -> Acted:
        """Random actions become part of the carry, too."""
        return self._draw(obs, carry, is_first, mask)

    def _draw(self, obs: ActObs, carry: Carry, is_first: np.ndarray, mask: Mask) -> Acted:
        n, rng = obs_len(obs), self.rng
        noise = rng.random((n, self.net.size.n_latents), dtype=np.float32)
        outputs, state = self._draws(obs, carry["core"], is_first, noise)
        if self.is_random:
            actions = self.actions.uniform(n, rng, mask)
        else:
            actions = self.actions.sample(mask_outputs(outputs, mask), None, rng)
        return Acted(actions, _carry(state, actions))

    def greedy(self, obs: ActObs, carry: Carry, is_first: np.ndarray, mask: Mask = None) -> Acted:
        outputs, state = self._chooses(obs, carry["core"], is_first)
        actions = self.actions.mode(mask_outputs(outputs, mask))
        return Acted(actions, _carry(state, actions))

    @torch.no_grad()
    def outlook(self, obs: ActObs, carry: Carry, is_first: np.ndarray, mask: Mask) -> Outlook:
        given = map_tree(
            lambda part: on_device(part, self.net.device), (obs, carry["core"], is_first)
        )
        outputs, state = self._likeliest(*given)
        scores = mask_outputs(outputs.cpu().numpy(), mask)
        value = self.net.values(state).cpu().numpy()
        moments = self.actions.moments(scores, None)
        if moments is None:
            return Outlook(probabilities=self.actions.probabilities(scores), value=value)
        return Outlook(mean=moments[0], std=moments[1], value=value)

    def initial_carry(self, n: int) -> Carry:
        return {"core": np.zeros((n, self.net.core_width), np.float32)}

    def recorded_carry(self, carry: Carry) -> Carry:
        return {"core": carry["core"].astype(STORED)}

    @property
    def has_memory(self) -> bool:
        return True


def _carry(state: np.ndarray, actions: np.ndarray) -> Carry:
    last = actions.reshape(len(actions), -1).astype(np.float32)
    return {"core": np.concatenate([state, last], axis=1)}
