"""Gymnasium's classic control tasks in torch, for envs/device.py: `Torch/CartPole-v1` and others.

The equations, limits and rewards are Gymnasium's; tests compare steps from equal states. Numbers
are float32, in which Gymnasium computes some of them in float64, so that trajectories part after a
while. Few operations matter more here than short ones: on a GPU each costs the same few
microseconds for any number of copies.
"""

import math

import numpy as np
import torch
from gymnasium.spaces import Box, Discrete
from torch import Tensor

from gymnasium_solver.envs.device import Outcome, State, TorchEnv
from gymnasium_solver.spaces.space_types import Space

X = "x"  # the only part of the state: one row of numbers


class CartPole(TorchEnv):
    observation_space = Box(
        np.array([-4.8, -np.inf, -0.41887903, -np.inf], np.float32),
        np.array([4.8, np.inf, 0.41887903, np.inf], np.float32),
    )
    action_space = Discrete(2)
    max_episode_steps = 500
    reward_threshold = 475.0

    gravity, cart, pole, half_length, force, tau = 9.8, 1.0, 0.1, 0.5, 10.0, 0.02

    def __init__(self, device: torch.device):
        super().__init__(device)
        self._limits = torch.tensor([2.4, 12 * 2 * math.pi / 360], device=device)
        self._constant = torch.tensor(self.half_length * 4 / 3, device=device)
        mass = self.cart + self.pole
        self._moment = self.pole * self.half_length / mass
        self._left = torch.tensor(-self.force / mass, device=device)
        self._between = 2 * self.force / mass  # right minus left
        self._reward = torch.ones((), device=device)

    def reset(self, n: int, rng: torch.Generator) -> State:
        return {X: self.uniform(n, -0.05, 0.05, rng, width=4)}

    def step(self, state: State, actions: Tensor, rng: torch.Generator) -> Outcome:
        x, moment = state[X], self._moment
        _, speed, angle, spin = x.unbind(1)
        cos, sin = angle.cos(), angle.sin()
        push = torch.add(self._left, actions, alpha=self._between)
        pull = torch.addcmul(push, spin.square(), sin, value=moment)
        inertia = torch.addcmul(self._constant, cos, cos, value=-moment)
        turn = torch.addcmul(self.gravity * sin, cos, pull, value=-1) / inertia
        rush = torch.addcmul(pull, turn, cos, value=-moment)
        x = torch.add(x, torch.stack([speed, rush, spin, turn], 1), alpha=self.tau)
        terminated = (x[:, ::2].abs() > self._limits).any(1)
        return {X: x}, self._reward.expand(len(x)), terminated

    def observe(self, state: State) -> Tensor:
        return state[X]


class Acrobot(TorchEnv):
    observation_space = Box(
        np.array([-1, -1, -1, -1, -4 * np.pi, -9 * np.pi], np.float32),
        np.array([1, 1, 1, 1, 4 * np.pi, 9 * np.pi], np.float32),
    )
    action_space = Discrete(3)
    max_episode_steps = 500
    reward_threshold = -100.0

    dt = 0.2

    def __init__(self, device: torch.device):
        super().__init__(device)
        self._fastest = torch.tensor([4 * math.pi, 9 * math.pi], device=device)

    def reset(self, n: int, rng: torch.Generator) -> State:
        return {X: self.uniform(n, -0.1, 0.1, rng, width=4)}

    def step(self, state: State, actions: Tensor, rng: torch.Generator) -> Outcome:
        x, dt = state[X], self.dt
        torque = actions.to(x.dtype) - 1
        k1 = self._change(x, torque)
        k2 = self._change(x + dt / 2 * k1, torque)
        k3 = self._change(x + dt / 2 * k2, torque)
        k4 = self._change(x + dt * k3, torque)
        x = x + dt / 6 * (k1 + 2 * k2 + 2 * k3 + k4)
        angles = torch.remainder(x[:, :2] + math.pi, 2 * math.pi) - math.pi
        speeds = torch.minimum(torch.maximum(x[:, 2:], -self._fastest), self._fastest)
        first, second = angles.unbind(1)
        terminated = -first.cos() - (first + second).cos() > 1.0
        return {X: torch.cat([angles, speeds], 1)}, terminated.to(x.dtype) - 1, terminated

    def _change(self, x: Tensor, torque: Tensor) -> Tensor:
        """The derivative of the state: masses, lengths and inertias are 1, centres of mass 0.5."""
        angle1, angle2, spin1, spin2 = x.unbind(1)
        g = 9.8
        cos2, sin2 = angle2.cos(), angle2.sin()
        d1 = 0.25 + (1 + 0.25 + cos2) + 2
        d2 = 0.25 + 0.5 * cos2 + 1
        phi2 = 0.5 * g * (angle1 + angle2 - math.pi / 2).cos()
        phi1 = (
            -0.5 * spin2.square() * sin2
            - spin2 * spin1 * sin2
            + 1.5 * g * (angle1 - math.pi / 2).cos()
            + phi2
        )
        turn2 = (torque + d2 / d1 * phi1 - 0.5 * spin1.square() * sin2 - phi2) / (
            1.25 - d2.square() / d1
        )
        turn1 = -(d2 * turn2 + phi1) / d1
        return torch.stack([spin1, spin2, turn1, turn2], 1)

    def observe(self, state: State) -> Tensor:
        angles, speeds = state[X].split(2, 1)
        cos, sin = angles.cos(), angles.sin()
        return torch.cat([torch.stack([cos, sin], 2).flatten(1), speeds], 1)


class MountainCar(TorchEnv):
    observation_space = Box(np.array([-1.2, -0.07], np.float32), np.array([0.6, 0.07], np.float32))
    action_space: Space = Discrete(3)
    max_episode_steps = 200
    reward_threshold = -110.0

    power, goal, fastest = 0.001, 0.5, 0.07

    def reset(self, n: int, rng: torch.Generator) -> State:
        position = self.uniform(n, -0.6, -0.4, rng)
        return {X: torch.stack([position, torch.zeros_like(position)], 1)}

    def step(self, state: State, actions: Tensor, rng: torch.Generator) -> Outcome:
        position, speed = state[X].unbind(1)
        force = (actions.to(position.dtype) - 1) * self.power
        speed = speed + force - 0.0025 * (3 * position).cos()
        speed = speed.clamp(-self.fastest, self.fastest)
        position = (position + speed).clamp(-1.2, 0.6)
        speed = torch.where((position <= -1.2) & (speed < 0), 0.0, speed)
        terminated = (position >= self.goal) & (speed >= 0)
        return {X: torch.stack([position, speed], 1)}, self._reward(actions, terminated), terminated

    def _reward(self, actions: Tensor, terminated: Tensor) -> Tensor:
        return torch.full(terminated.shape, -1.0, device=terminated.device)

    def observe(self, state: State) -> Tensor:
        return state[X]


class MountainCarContinuous(MountainCar):
    action_space = Box(-1.0, 1.0, (1,), np.float32)
    max_episode_steps = 999
    reward_threshold = 90.0

    power, goal = 0.0015, 0.45

    def step(self, state: State, actions: Tensor, rng: torch.Generator) -> Outcome:
        # The discrete one takes 0, 1 and 2 for a force of -1, 0 and 1.
        return super().step(state, actions[:, 0].clamp(-1.0, 1.0) + 1, rng)

    def _reward(self, actions: Tensor, terminated: Tensor) -> Tensor:
        return 100.0 * terminated - 0.1 * (actions - 1).square()


class Pendulum(TorchEnv):
    observation_space = Box(np.array([-1, -1, -8], np.float32), np.array([1, 1, 8], np.float32))
    action_space = Box(-2.0, 2.0, (1,), np.float32)
    max_episode_steps = 200

    def __init__(self, device: torch.device):
        super().__init__(device)
        self._widest = torch.tensor([math.pi, 1.0], device=device)

    def reset(self, n: int, rng: torch.Generator) -> State:
        return {X: self.uniform(n, -self._widest, self._widest, rng, width=2)}

    def step(self, state: State, actions: Tensor, rng: torch.Generator) -> Outcome:
        angle, spin = state[X].unbind(1)
        torque = actions[:, 0].clamp(-2.0, 2.0)
        near = torch.remainder(angle + math.pi, 2 * math.pi) - math.pi
        cost = near.square() + 0.1 * spin.square() + 0.001 * torque.square()
        spin = spin + (15.0 * angle.sin() + 3.0 * torque) * 0.05
        spin = spin.clamp(-8.0, 8.0)
        x = torch.stack([angle + spin * 0.05, spin], 1)
        return {X: x}, -cost, torch.zeros_like(cost, dtype=torch.bool)

    def observe(self, state: State) -> Tensor:
        angle, spin = state[X].unbind(1)
        return torch.stack([angle.cos(), angle.sin(), spin], 1)


CLASSICS: dict[str, type[TorchEnv]] = {
    "CartPole-v1": CartPole,
    "Acrobot-v1": Acrobot,
    "MountainCar-v0": MountainCar,
    "MountainCarContinuous-v0": MountainCarContinuous,
    "Pendulum-v1": Pendulum,
}
