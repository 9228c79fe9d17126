"""Environments of envs/device.py under the contract of envs/vector.py: NumPy arrays and NEXT_STEP.

    make_vector_env("Torch/CartPole-v1", 64)           # of suites/torch_classics.py
    make_vector_env("Torch/my_module:MyEnv", 64)       # a TorchEnv of the user's
    make_vector_env("Torch/my_module:make_one", 64)    # another simulator (simulators.py)

This is how everything sees them that is not made for tensors: evaluations, videos, the inspector,
wrappers, and algorithms that collect on the host. They are stepped on the CPU here. A training that
can stay on its device takes `on(...)` instead (training/device_collect.py).
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from gymnasium_solver.config.code import import_code
from gymnasium_solver.envs.device import (
    GENERATOR,
    STATE,
    DeviceEnvs,
    State,
    TensorEngine,
    TorchEnv,
    chosen,
    saved_part,
)
from gymnasium_solver.envs.engines.simulators import Simulator, check_kwargs
from gymnasium_solver.envs.env_bugs import explained
from gymnasium_solver.envs.spec import EnvRequest, EnvSpec
from gymnasium_solver.envs.suites.torch_classics import CLASSICS
from gymnasium_solver.envs.vector import Info, RawStep
from gymnasium_solver.errors import EnvError
from gymnasium_solver.spaces.observations import Obs
from gymnasium_solver.suggest import did_you_mean

PREFIX = "Torch/"
TENSORS = "all envs are tensors"


class DeviceEngine(TensorEngine):
    def __init__(self, request: EnvRequest, kind: type[TorchEnv]):
        self._kind, self._kwargs = kind, request.env_kwargs
        self._env = self._made(torch.device("cpu"), request.env_id)
        limit = request.max_episode_steps or self._env.max_episode_steps
        spec = EnvSpec(
            request.env_id, "torch", TENSORS, limit, self._env.reward_threshold,
            suite="classic_control" if kind in CLASSICS.values() else "other",
        )  # fmt: skip
        for name in ("observation_space", "action_space"):
            if not hasattr(self._env, name):
                raise EnvError(f"{request.env_id}: {kind.__name__} has no {name}.")
        super().__init__(request.n_envs, self._env.observation_space, self._env.action_space, spec)
        self._rng = torch.Generator()
        self._state: State = {}

    def _made(self, device: torch.device, env_id: str) -> TorchEnv:
        with explained(f"{env_id}: {self._kind.__name__}(...) raised"):
            return self._kind(device, **self._kwargs)

    def on(self, device: torch.device, seed: int) -> DeviceEnvs:
        env = self._made(device, self.spec.env_id)
        return DeviceEnvs(env, self.n_envs, seed, self.spec.max_episode_steps)

    def _reset(self, seed: int) -> tuple[Obs, Info]:
        self._rng.manual_seed(int(np.random.SeedSequence(seed).generate_state(1)[0]))
        self._state = self._env.reset(self.n_envs, self._rng)
        return self._observed(), {}

    def _step(self, actions: np.ndarray, is_reset: np.ndarray, n_reset: int) -> RawStep:
        given = torch.from_numpy(np.ascontiguousarray(actions))
        state, reward, terminated = self._env.step(self._state, given, self._rng)
        opened = torch.from_numpy(is_reset)
        if n_reset:
            state = chosen(opened, self._env.reset(self.n_envs, self._rng), state)
            reward, terminated = reward.masked_fill(opened, 0.0), terminated & ~opened
        self._state = state
        limit = self.spec.max_episode_steps
        truncated = np.zeros(self.n_envs, np.bool_)
        if limit is not None:
            truncated = (self._length + 1 >= limit) & ~is_reset
        return self._observed(), reward.numpy(), terminated.numpy(), truncated, {}

    def _observed(self) -> Any:
        return self._env.observe(self._state).numpy().copy()

    def saved(self) -> dict[str, np.ndarray]:
        done = np.zeros(self.n_envs, np.bool_) if self._done is None else self._done
        states = {f"{STATE}{name}": part.numpy().copy() for name, part in self._state.items()}
        return {**states, GENERATOR: self._rng.get_state().numpy(), "done": done}

    def _restored(self, saved: dict[str, np.ndarray]) -> tuple[Obs, Info]:
        own = self._env.reset(self.n_envs, self._rng)
        self._state = {
            name: saved_part(saved, f"{STATE}{name}", part.shape).clone()
            for name, part in own.items()
        }
        self._rng.set_state(torch.from_numpy(saved[GENERATOR]))
        return self._observed(), {}


def make_torch(request: EnvRequest) -> TensorEngine:
    """A classic, a class of the user's, or a simulator that a function of the user's makes."""
    made_by = named(request)
    if isinstance(made_by, type) and issubclass(made_by, TorchEnv):
        check_kwargs(request, made_by, ["device"])
        return DeviceEngine(request, made_by)
    return Simulator(request, made_by)


def named(request: EnvRequest) -> Callable[..., Any]:
    """The class or function that an id names."""
    env_id = request.env_id
    name = env_id.removeprefix(PREFIX)
    module, _, attribute = name.partition(":")
    kind: Any = CLASSICS.get(name)
    if attribute:
        with explained(f"{env_id}: cannot import {module!r}:"):
            kind = getattr(import_code(module), attribute, None)
    if kind is None:
        known = [f"{PREFIX}{known}" for known in CLASSICS]
        near = did_you_mean(env_id, known) or ""
        what = f"{module} has no {attribute}." if attribute else near
        raise EnvError(
            f"Unknown environment {env_id!r}. {what} There are {', '.join(known)}, and "
            "Torch/module:Class for a TorchEnv of your own (docs/device_environments.md)."
        )
    if not callable(kind):
        raise EnvError(
            f"{env_id}: {attribute} is not a TorchEnv, nor a function that makes a simulator "
            "(docs/device_environments.md)."
        )
    return kind
