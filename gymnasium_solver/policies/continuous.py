"""Policies on an ActorCritics: SAC samples from the actor, TD3 and DDPG add noise to it."""

import math
from typing import Any

import numpy as np
import torch

from gymnasium_solver.fast.cuda_graph import on_device
from gymnasium_solver.fast.forward import CompiledForward, Inference
from gymnasium_solver.nets.actor_critics import (
    LOG_STD_MAX,
    LOG_STD_MIN,
    TANH_MAX,
    TANH_MIN,
    ActorCritics,
)
from gymnasium_solver.policies.noise import Noise, RepeatedNoise, StateNoise
from gymnasium_solver.policies.policy import Acted, ActObs, Carry, Mask, Outlook, Policy
from gymnasium_solver.spaces.actions import (
    ActionKind,
    DiscreteActions,
    gumbel_max,
    mask_outputs,
    softmax,
)
from gymnasium_solver.spaces.observations import Space
from gymnasium_solver.tree import map_tree


class NoisyPolicy(Policy):
    """A policy on an ActorCritics with exploration noise that can be correlated over time."""

    def __init__(
        self,
        net: ActorCritics,
        observation_space: Space,
        actions: ActionKind,
        rng: np.random.Generator,
        keeps: float,
        *,
        record: bool,
        compile: bool = False,
        sde_sample_freq: int = -1,
        noise_repeat: int = 1,
    ):
        """`compile`: act with a compiled program, where there is one. `sde_sample_freq`: see
        StateNoise, for a network with state-dependent exploration. `noise_repeat`: see
        RepeatedNoise."""
        super().__init__(observation_space, actions, rng)
        self.net = net
        width = actions.n if isinstance(actions, DiscreteActions) else actions.shape[0]
        self.noise = (
            Noise(width, keeps) if noise_repeat == 1 else RepeatedNoise(width, noise_repeat)
        )
        self._infer = Inference(net.actor_outputs, net, record=record)
        self.explorer = CompiledForward(
            net.actor_outputs, net, wanted=compile and record and net.actor.sde is None
        )
        self.state_noise: StateNoise | None = None
        if net.actor.sde is not None:
            self.state_noise = StateNoise(net.actor.sde, sde_sample_freq)
            self._infer_latent = Inference(net.actor_latent, net, record=record)

    def initial_carry(self, n: int) -> Carry:
        return (self.noise if self.state_noise is None else self.state_noise).initial(n)

    def begin_rollout(self) -> None:
        if self.state_noise is not None:
            self.state_noise.begin_rollout()

    def _outputs(self, obs: ActObs, explores: bool) -> np.ndarray:
        """The actor's outputs: in C, if possible; for greedy actions once exploration is."""
        in_c = explores or self.explorer.mode == "compiled"
        found = self.explorer(obs) if in_c else None
        outputs: np.ndarray = self._infer(obs) if found is None else found[0]
        return outputs

    @torch.no_grad()
    def _critic(self, obs: ActObs, actions: np.ndarray | None) -> np.ndarray:
        """Values [N] of the lowest critic, or [N, A] of each discrete action."""
        device = next(self.net.parameters()).device
        x = self.net.encoder(map_tree(lambda part: on_device(part, device), obs))
        given = None if actions is None else on_device(actions, device)
        values = self.net.head.value(self.net.critic(x, given))
        lowest: np.ndarray = values.amin(dim=0).cpu().numpy()
        return lowest


class SoftPolicy(NoisyPolicy):
    """A squashed Gaussian or categorical policy: a sample, or the mode.

    Samples can be correlated between steps (`keeps`); each sample alone has the actor's
    distribution.
    """

    def _draw(self, obs: ActObs, carry: Carry, is_first: np.ndarray, mask: Mask) -> Acted:
        if self.state_noise is not None:
            outputs, latent = self._infer_latent(obs)
            noise, carry = self.state_noise(latent, carry, self.rng)
            return Acted(np.tanh(outputs[:, : noise.shape[1]] + noise), carry)
        outputs = mask_outputs(self._outputs(obs, explores=True), mask)
        if isinstance(self.actions, DiscreteActions):
            noise, carry = self.noise.exponential(carry, is_first, self.rng)
            return Acted(gumbel_max(outputs, noise), carry)
        mean, std = self._mean_and_std(outputs)
        spread = math.sqrt(1.0 - float(self.noise.keeps) ** 2)
        noise, carry = self.noise.normal(carry, is_first, spread, 1.0, self.rng)
        return Acted(np.tanh(mean + std * noise), carry)

    def greedy(self, obs: ActObs, carry: Carry, is_first: np.ndarray, mask: Mask = None) -> Acted:
        outputs = mask_outputs(self._outputs(obs, explores=False), mask)
        if isinstance(self.actions, DiscreteActions):
            return Acted(outputs.argmax(axis=1), carry)
        return Acted(np.tanh(outputs[:, : outputs.shape[1] // 2]), carry)

    def outlook(self, obs: ActObs, carry: Carry, is_first: np.ndarray, mask: Mask) -> Outlook:
        outputs = mask_outputs(self._infer(obs), mask)
        if isinstance(self.actions, DiscreteActions):
            chances, q = softmax(outputs), self._critic(obs, None)
            return Outlook(probabilities=chances, q_values=q, value=(chances * q).sum(axis=1))
        mean, std = self._mean_and_std(outputs)
        best = np.tanh(mean)
        return Outlook(mean=best, std=std, value=self._critic(obs, best))

    def _mean_and_std(self, outputs: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Split the actor's outputs [N, 2 A], which are means and logarithms of deviations."""
        width = outputs.shape[1] // 2  # np.split takes 7 us, as long as a small network
        raw = outputs[:, width:]
        if self.net.actor.log_std_bound == "tanh":
            half = np.float32(0.5 * (TANH_MAX - TANH_MIN))
            log_std = np.float32(TANH_MIN) + half * (np.float32(1.0) + np.tanh(raw))
        else:
            log_std = np.clip(raw, LOG_STD_MIN, LOG_STD_MAX)
        return outputs[:, :width], np.exp(log_std)


class DeterministicPolicy(NoisyPolicy):
    """Acts with tanh of the actor's outputs; explores with additive noise of scale `noise_std`.

    "ou" noise (Ornstein-Uhlenbeck) is correlated: it keeps most of its last value.
    """

    is_stochastic = False
    noise_std = 0.0  # set by the learner from its schedule

    def state(self) -> dict[str, Any]:
        return {"noise_std": self.noise_std}

    def load_state(self, state: dict[str, Any]) -> None:
        self.noise_std = state["noise_std"]

    def greedy(self, obs: ActObs, carry: Carry, is_first: np.ndarray, mask: Mask = None) -> Acted:
        return Acted(np.tanh(self._outputs(obs, explores=False)), carry)

    def _draw(self, obs: ActObs, carry: Carry, is_first: np.ndarray, mask: Mask) -> Acted:
        noise, carry = self.noise.normal(carry, is_first, self.noise_std, self.noise_std, self.rng)
        best = np.tanh(self._outputs(obs, explores=True))
        return Acted(np.clip(best + noise, -1.0, 1.0), carry)

    def outlook(self, obs: ActObs, carry: Carry, is_first: np.ndarray, mask: Mask) -> Outlook:
        best = np.tanh(self._infer(obs))
        std = np.full_like(best, self.noise_std)
        return Outlook(mean=best, std=std, value=self._critic(obs, best))
