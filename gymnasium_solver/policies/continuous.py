"""Policies on an ActorCritics: SAC samples from the actor, TD3 and DDPG add noise to it."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from gymnasium_solver.fast.cuda_graph import on_device
from gymnasium_solver.fast.forward import CompiledForward, Inference
from gymnasium_solver.nets.actor_critics import (
    LOG_STD_MAX,
    LOG_STD_MIN,
    TANH_MAX,
    TANH_MIN,
    Actor,
    ActorCritics,
    Critics,
    squash,
)
from gymnasium_solver.policies.noise import Noise, RepeatedNoise, StateNoise
from gymnasium_solver.policies.policy import Acted, ActObs, Carry, Mask, Outlook, Policy
from gymnasium_solver.spaces.actions import (
    ActionKind,
    BoxBase,
    DiscreteActions,
    gumbel_max,
    mask_outputs,
    softmax,
)
from gymnasium_solver.spaces.observations import Space
from gymnasium_solver.tree import map_tree

CORES = (Actor.carry_name, Critics.carry_name)
"""The recurrent cores whose state is in the carry. That of the critics is kept for learning, which
starts sequences with it."""


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
        outputs = net.step_both if net.has_memory else net.actor_outputs
        self._infer = Inference(outputs, net, record=record)
        self.explorer = CompiledForward(
            outputs, net, wanted=compile and record and net.actor.sde is None
        )
        self.state_noise: StateNoise | None = None
        if net.actor.sde is not None:
            self.state_noise = StateNoise(net.actor.sde, sde_sample_freq)
            self._infer_latent = Inference(net.actor_latent, net, record=record)

    def initial_carry(self, n: int) -> Carry:
        carry = (self.noise if self.state_noise is None else self.state_noise).initial(n)
        for name, part in self.net.initial_carry(n).items():
            carry[name] = part.cpu().numpy()
        return carry

    @property
    def has_memory(self) -> bool:
        return self.net.has_memory

    # -- on a device

    @property
    def chooses_tensors(self) -> bool:
        is_independent = type(self.noise) is Noise and not self.noise.keeps
        return is_independent and self.state_noise is None and not self.has_memory

    def ready_noise(self, shape: tuple[int, ...], rng: torch.Generator) -> Tensor:
        """Of each number of an action a normal and a uniform one, or Gumbels of choices."""
        if isinstance(self.actions, DiscreteActions):
            return self.actions.ready_noise(shape, rng)
        size = (*shape, self.noise.width)
        normal = torch.randn(size, generator=rng, device=rng.device)
        uniform = torch.rand(size, generator=rng, device=rng.device)
        return torch.cat([normal, 2.0 * uniform - 1.0], dim=-1)

    def chosen_log_prob(self, outputs: Tensor, actions: Tensor) -> Tensor:
        return torch.zeros(len(actions), device=actions.device)  # nothing reads it

    def recorded_carry(self, carry: Carry) -> Carry:
        return {name: carry[name] for name in CORES} if self.has_memory else {}

    def _remember(self, obs: ActObs, carry: Carry, is_first: np.ndarray) -> Carry:
        return self._outputs(obs, carry, is_first, explores=True)[1]

    def begin_rollout(self) -> None:
        if self.state_noise is not None:
            self.state_noise.begin_rollout()

    def _outputs(
        self, obs: ActObs, carry: Carry, is_first: np.ndarray, explores: bool
    ) -> tuple[np.ndarray, Carry]:
        """The actor's outputs and the new carry: in C, if possible; for greedy actions once
        exploration is."""
        given = [obs, *(carry[name] for name in CORES), is_first] if self.has_memory else [obs]
        in_c = explores or self.explorer.mode == "compiled"
        found = self.explorer(*given) if in_c else None
        if found is None:
            found = self._infer(*given)
            found = found if self.has_memory else [found]
        outputs, *cores = found
        return outputs, {**carry, **dict(zip(CORES, cores, strict=True))} if cores else carry

    @torch.no_grad()
    def _critic(
        self, obs: ActObs, carry: Carry, is_first: np.ndarray, actions: np.ndarray | None
    ) -> np.ndarray:
        """Values [N] of the lowest critic, or [N, A] of each discrete action."""
        net, device = self.net, next(self.net.parameters()).device
        x = net.encoder(map_tree(lambda part: on_device(part, device), obs))
        given = None if actions is None else on_device(actions, device)
        if net.has_memory:
            core = on_device(carry[net.critic.carry_name], device)
            y, _ = net.critic.remembered(x, core, on_device(is_first, device))
        else:
            y = net.critic.features(x)
        values = net.head.value(net.critic.values(y, given))
        lowest: np.ndarray = values.amin(dim=0).cpu().numpy()
        return lowest


class SoftPolicy(NoisyPolicy):
    """A squashed Gaussian or categorical policy: a sample, or the mode.

    Samples can be correlated between steps (`keeps`); each sample alone has the actor's
    distribution. So are the uniform actions of the warm-up, of a bounded Box."""

    def sample(self, obs: ActObs, carry: Carry, is_first: np.ndarray, mask: Mask = None) -> Acted:
        is_box = isinstance(self.actions, BoxBase) and self.actions.is_bounded
        if not (self.is_random and self.noise.keeps and is_box):
            return super().sample(obs, carry, is_first, mask)
        carry = self._remember(obs, carry, is_first) if self.has_memory else carry
        noise, carry = self.noise.normal(carry, is_first, self._spread, 1.0, self.rng)
        uniform = torch.erf(torch.from_numpy(noise) / math.sqrt(2.0)).numpy()
        return Acted(uniform, carry)

    @property
    def _spread(self) -> float:
        """Of what is added to the noise that is kept, whose deviation stays 1."""
        return math.sqrt(1.0 - float(self.noise.keeps) ** 2)

    def _draw(self, obs: ActObs, carry: Carry, is_first: np.ndarray, mask: Mask) -> Acted:
        if self.state_noise is not None:
            outputs, latent = self._infer_latent(obs)
            noise, carry = self.state_noise(latent, carry, self.rng)
            return Acted(np.tanh(outputs[:, : noise.shape[1]] + noise), carry)
        outputs, carry = self._outputs(obs, carry, is_first, explores=True)
        outputs = mask_outputs(outputs, mask)
        if isinstance(self.actions, DiscreteActions):
            noise, carry = self.noise.exponential(carry, is_first, self.rng)
            return Acted(gumbel_max(outputs, noise), carry)
        mean, std = self._mean_and_std(outputs)
        noise, carry = self.noise.normal(carry, is_first, self._spread, 1.0, self.rng)
        return Acted(np.tanh(mean + std * noise), carry)

    @property
    def choice_numbers(self) -> Sequence[float]:
        return (float(self.is_random),)

    def choose(
        self, obs: Tensor, noise: Tensor, numbers: Sequence[Any] = ()
    ) -> tuple[Tensor, Tensor]:
        (is_random,) = numbers
        outputs = self.net.actor_outputs(obs)
        if isinstance(self.actions, DiscreteActions):
            return ((1.0 - is_random) * outputs + noise).argmax(1), outputs
        normal, uniform = noise.chunk(2, dim=-1)
        sample, _ = squash(outputs, normal, self.net.actor.log_std_bound)
        return torch.lerp(sample, uniform, is_random), outputs

    def greedy(self, obs: ActObs, carry: Carry, is_first: np.ndarray, mask: Mask = None) -> Acted:
        outputs, carry = self._outputs(obs, carry, is_first, explores=False)
        outputs = mask_outputs(outputs, mask)
        if isinstance(self.actions, DiscreteActions):
            return Acted(outputs.argmax(axis=1), carry)
        return Acted(np.tanh(outputs[:, : outputs.shape[1] // 2]), carry)

    def outlook(self, obs: ActObs, carry: Carry, is_first: np.ndarray, mask: Mask) -> Outlook:
        outputs, _ = self._outputs(obs, carry, is_first, explores=False)
        outputs = mask_outputs(outputs, mask)
        if isinstance(self.actions, DiscreteActions):
            chances, q = softmax(outputs), self._critic(obs, carry, is_first, None)
            return Outlook(probabilities=chances, q_values=q, value=(chances * q).sum(axis=1))
        mean, std = self._mean_and_std(outputs)
        best = np.tanh(mean)
        return Outlook(mean=best, std=std, value=self._critic(obs, carry, is_first, best))

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

    "ou" noise (Ornstein-Uhlenbeck) is correlated: it keeps most of its last value."""

    is_stochastic = False
    noise_std = 0.0  # set by the learner from its schedule

    def state(self) -> dict[str, Any]:
        return {"noise_std": self.noise_std}

    def load_state(self, state: dict[str, Any]) -> None:
        self.noise_std = state["noise_std"]

    @property
    def choice_numbers(self) -> Sequence[float]:
        return (float(self.is_random), float(self.noise_std))

    def choose(
        self, obs: Tensor, noise: Tensor, numbers: Sequence[Any] = ()
    ) -> tuple[Tensor, Tensor]:
        is_random, std = numbers
        normal, uniform = noise.chunk(2, dim=-1)
        outputs = self.net.actor_outputs(obs)
        explored = (outputs.tanh() + std * normal).clamp(-1.0, 1.0)
        return torch.lerp(explored, uniform, is_random), outputs

    def greedy(self, obs: ActObs, carry: Carry, is_first: np.ndarray, mask: Mask = None) -> Acted:
        outputs, carry = self._outputs(obs, carry, is_first, explores=False)
        return Acted(np.tanh(outputs), carry)

    def _draw(self, obs: ActObs, carry: Carry, is_first: np.ndarray, mask: Mask) -> Acted:
        noise, carry = self.noise.normal(carry, is_first, self.noise_std, self.noise_std, self.rng)
        outputs, carry = self._outputs(obs, carry, is_first, explores=True)
        return Acted(np.clip(np.tanh(outputs) + noise, -1.0, 1.0), carry)

    def outlook(self, obs: ActObs, carry: Carry, is_first: np.ndarray, mask: Mask) -> Outlook:
        best = np.tanh(self._outputs(obs, carry, is_first, explores=False)[0])
        std = np.full_like(best, self.noise_std)
        return Outlook(mean=best, std=std, value=self._critic(obs, carry, is_first, best))
