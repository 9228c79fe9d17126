"""Acts from the state of a learnt world model (DreamerV3).

The carry `core` has, for each env, the state of the RSSM after the last observation and the last
action. An observation is first taken into the state; the actor acts on that. The latents of the
state are drawn, for greedy actions too, as in learning: with the most likely ones in their place, a
policy that kept CartPole up for 500 steps fell after about 230.
"""

from typing import Any

import numpy as np
import torch
from torch import Tensor

from gymnasium_solver.fast.cuda_graph import on_device
from gymnasium_solver.fast.forward import Inference
from gymnasium_solver.nets.rssm import DreamerNet
from gymnasium_solver.policies.policy import (
    Acted,
    ActObs,
    Carry,
    Mask,
    OpenLoop,
    Outlook,
    Pictured,
    Policy,
)
from gymnasium_solver.spaces.actions import ActionKind, mask_outputs
from gymnasium_solver.spaces.observations import Space, obs_len
from gymnasium_solver.tree import map_tree

IMAGINED = 50  # steps that a viewer sees imagined before the model sees an observation again
STORED = np.float16  # memory is between -1 and 1, latents are 0 or 1


class LatentPolicy(Policy):
    def __init__(
        self, net: DreamerNet, observation_space: Space, actions: ActionKind,
        rng: np.random.Generator, *, record: bool,
    ):  # fmt: skip
        """`record`: act with a recorded program, where there is one."""
        super().__init__(observation_space, actions, rng)
        self.net = net
        self._infer = Inference(self._outputs, net, record=record)

    def _outputs(self, obs: Any, core: Tensor, is_first: Tensor, noise: Tensor) -> list[Tensor]:
        state = self.net.advance(obs, core, is_first, noise)
        return [self.net.actor(state), state]

    def _noise(self, n: int, rng: np.random.Generator) -> np.ndarray:
        return rng.random((n, self.net.size.n_latents), dtype=np.float32)

    def sample(self, obs: ActObs, carry: Carry, is_first: np.ndarray, mask: Mask = None) -> Acted:
        """Random actions become part of the carry, too."""
        return self._draw(obs, carry, is_first, mask)

    def _draw(self, obs: ActObs, carry: Carry, is_first: np.ndarray, mask: Mask) -> Acted:
        n, rng = obs_len(obs), self.rng
        outputs, state = self._infer(obs, carry["core"], is_first, self._noise(n, rng))
        if self.is_random:
            actions = self.actions.uniform(n, rng, mask)
        else:
            actions = self.actions.sample(mask_outputs(outputs, mask), None, rng)
        return Acted(actions, _carry(state, actions))

    def greedy(self, obs: ActObs, carry: Carry, is_first: np.ndarray, mask: Mask = None) -> Acted:
        noise = self._noise(obs_len(obs), self.rng)
        outputs, state = self._infer(obs, carry["core"], is_first, noise)
        actions = self.actions.mode(mask_outputs(outputs, mask))
        return Acted(actions, _carry(state, actions))

    @torch.no_grad()
    def outlook(self, obs: ActObs, carry: Carry, is_first: np.ndarray, mask: Mask) -> Outlook:
        noise = self._noise(obs_len(obs), np.random.default_rng(0))  # those of acting stay theirs
        given = (obs, carry["core"], is_first, noise)
        tensors = map_tree(lambda part: on_device(part, self.net.device), given)
        outputs, state = self._outputs(*tensors)
        scores = mask_outputs(outputs.cpu().numpy(), mask)
        return self._outlook_of(scores, None, self.net.values(state).cpu().numpy())

    def initial_carry(self, n: int) -> Carry:
        return {"core": np.zeros((n, self.net.core_width), np.float32)}

    def recorded_carry(self, carry: Carry) -> Carry:
        return {"core": carry["core"].astype(STORED)}

    @property
    def has_memory(self) -> bool:
        return True

    def took(self, carry: Carry, actions: np.ndarray) -> Carry:
        return _carry(carry["core"][:, : self.net.state_width], self.actions.from_env(actions))

    def open_loop(self, n: int) -> OpenLoop:
        return Imagination(self.net, n)


class Imagination:
    """What the model reconstructs from each state of an episode, and what it imagines: from every
    IMAGINED-th state it goes on with the actions alone."""

    def __init__(self, net: DreamerNet, n: int):
        self.net, self.rng = net, np.random.default_rng(0)
        self.state = torch.zeros(n, net.state_width, device=net.device)
        self.age = torch.zeros(n, dtype=torch.long, device=net.device)

    @torch.no_grad()
    def __call__(self, before: Carry, after: Carry, is_first: np.ndarray) -> Pictured:
        net = self.net
        last, now, first = (
            on_device(part, net.device) for part in (before["core"], after["core"], is_first)
        )
        noise = self.rng.random((len(last), net.size.n_latents), dtype=np.float32)
        state = now[:, : net.state_width]
        later = net.rssm.imagine(self.state, net.last_action(last), on_device(noise, net.device))
        self.age = torch.where(first | (self.age + 1 >= IMAGINED), 0, self.age + 1)
        self.state = torch.where(self.age[:, None] == 0, state, later)
        found = (net.shown(states) for states in (state, self.state))
        return Pictured(*({k: part.cpu().numpy() for k, part in one.items()} for one in found))


def _carry(state: np.ndarray, actions: np.ndarray) -> Carry:
    last = actions.reshape(len(actions), -1).astype(np.float32)
    return {"core": np.concatenate([state, last], axis=1)}
