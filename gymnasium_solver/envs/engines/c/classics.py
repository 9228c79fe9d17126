"""Gymnasium's classic control, stepped by the shipped files in C: the same bits as its own `step`.

    copies = compiled_vector(env)           # of a CartPoleVectorEnv; None: it steps by itself
    copies = compiled_singles(envs)         # of single envs, a step of all of them in one call
    obs, reward, terminated, truncated, info = copies(actions)

A step of 8 poles in NumPy is forty calls, a quarter of the time of a PPO training, and one of a
single Pendulum is as many; in C they take a microsecond. New episodes begin in Gymnasium's code,
with the env's own generator. So results are the same with and without a compiler.
"""

import logging
import math
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, NamedTuple

import gymnasium
import numpy as np
from gymnasium.envs.classic_control import (
    AcrobotEnv,
    CartPoleEnv,
    Continuous_MountainCarEnv,
    MountainCarEnv,
    PendulumEnv,
)
from gymnasium.envs.classic_control.cartpole import CartPoleVectorEnv
from gymnasium.envs.registration import load_env_creator
from gymnasium.wrappers import OrderEnforcing, PassiveEnvChecker, TimeLimit

from gymnasium_solver.envs.engines.c.engine import Copies, Program, load_program
from gymnasium_solver.errors import GsolveError
from gymnasium_solver.fast.native.build import can_compile

log = logging.getLogger(__name__)
NEVER = 2**62
N_COMPARED = 60  # states that are stepped by both before a program is used
HILL = {"min_position": -1.2, "max_position": 0.6, "max_speed": 0.07, "goal_velocity": 0}

HILL_STATE: np.dtype[Any] = np.dtype(
    [("position", float), ("velocity", np.float32), ("has_moved", bool)], align=True
)


class Classic(NamedTuple):
    """An environment of Gymnasium that is also shipped in C."""

    name: str
    constants: dict[str, Any]  # what the file has as constants: an env with others steps by itself
    wide: dict[str, float]
    """Options of `reset` for states from which episodes soon end and limits are reached."""
    state: np.dtype[Any] = np.dtype(float)  # of the file: one number after another, or a struct


CLASSICS: dict[type[gymnasium.Env[Any, Any]], Classic] = {
    CartPoleEnv: Classic("cartpole", {
        "gravity": 9.8, "masspole": 0.1, "total_mass": 1.1, "length": 0.5, "polemass_length": 0.05,
        "force_mag": 10.0, "tau": 0.02, "kinematics_integrator": "euler", "x_threshold": 2.4,
        "theta_threshold_radians": 12 * 2 * np.pi / 360, "_sutton_barto_reward": False,
    }, {"low": -0.5, "high": 0.5}),
    AcrobotEnv: Classic("acrobot", {
        "dt": 0.2, "LINK_LENGTH_1": 1.0, "LINK_LENGTH_2": 1.0, "LINK_MASS_1": 1.0,
        "LINK_MASS_2": 1.0, "LINK_COM_POS_1": 0.5, "LINK_COM_POS_2": 0.5, "LINK_MOI": 1.0,
        "MAX_VEL_1": 4 * np.pi, "MAX_VEL_2": 9 * np.pi, "AVAIL_TORQUE": [-1.0, 0.0, 1],
        "torque_noise_max": 0.0, "book_or_nips": "book",
    }, {"low": -3.0, "high": 3.0}),
    MountainCarEnv: Classic("mountain_car", {
        **HILL, "goal_position": 0.5, "force": 0.001, "gravity": 0.0025,
    }, {"low": -1.2, "high": 0.5}),
    Continuous_MountainCarEnv: Classic("mountain_car_continuous", {
        **HILL, "goal_position": 0.45, "power": 0.0015, "min_action": -1.0, "max_action": 1.0,
    }, {"low": -1.2, "high": 0.45}, HILL_STATE),
    PendulumEnv: Classic("pendulum", {
        "g": 10.0, "m": 1.0, "l": 1.0, "dt": 0.05, "max_speed": 8, "max_torque": 2.0,
    }, {"x_init": np.pi, "y_init": 8.0}),
}  # fmt: skip


def is_compiled(env_id: str) -> bool:
    """Whether this env can be stepped in C here; the first time on a machine takes a second."""
    point: Any = gymnasium.registry[env_id].entry_point
    return _program(load_env_creator(point)) is not None  # type: ignore[arg-type]


def _has_constants(env: Any, classic: Classic) -> bool:
    return all(getattr(env, name) == value for name, value in classic.constants.items())


class CompiledEnv(Copies):
    """Steps environments of Gymnasium, whose code begins new episodes; returns new arrays."""

    needs_python = True

    def __call__(self, actions: np.ndarray) -> tuple[Any, ...]:
        self.prepare()
        self.step(actions)
        return *self.copied("obs", "reward", "terminated", "truncated"), {}


class CompiledVector(CompiledEnv):
    """Steps a CartPoleVectorEnv, whose attributes (`state`, `steps`, `prev_done`) stay current."""

    def __init__(self, env: CartPoleVectorEnv, program: Program) -> None:
        super().__init__(program, env.num_envs, env.max_episode_steps)
        self._env: Any = env
        self._columns = self.state.view(np.float64).T  # [4, n]

    def prepare(self) -> None:
        """The states of new episodes, which come from the env's generator."""
        env = self._env
        if env.state is not self._columns:  # after a reset
            self._columns[...], self.length[...] = env.state, env.steps
            self.done[...] = env.prev_done
            env.state, env.steps, env.prev_done = self._columns, self.length, self.done
        if n_done := np.count_nonzero(self.done):
            fresh = env.np_random.uniform(low=env.low, high=env.high, size=(4, n_done))
            self._fresh = np.ascontiguousarray(fresh.T)
            self.arguments.fresh = self._fresh.ctypes.data


class CompiledSingles(CompiledEnv):
    """Steps single envs, which are only asked for new episodes. Their own state and the counter of
    their time limit stay behind."""

    def __init__(
        self, envs: Sequence[gymnasium.Env[Any, Any]], program: Program, state: np.dtype[Any]
    ) -> None:
        super().__init__(program, len(envs), _time_limit(envs[0])[0])
        own = self.state.view(state)
        self._envs, self._own = envs, own if state.names is None else own[:, 0]
        self._inner: list[Any] = [env.unwrapped for env in envs]

    def take(self, is_over: Sequence[bool]) -> None:
        """Continue from the envs as they are; `is_over`: a reset row comes next."""
        for i, env in enumerate(self._envs):
            self._own[i], self.length[i] = _state_of(self._inner[i], self._own), _time_limit(env)[1]
        self.done[...] = is_over

    def prepare(self) -> None:
        """States and observations of new episodes."""
        if not (n_done := np.count_nonzero(self.done)):
            return
        self._fresh = np.empty((n_done, *self._own.shape[1:]), self._own.dtype)
        self._seen = np.empty((n_done, *self.rows["obs"].shape[1:]), np.float32)
        for k, i in enumerate(np.flatnonzero(self.done).tolist()):
            self._seen[k], _ = self._envs[i].reset()
            self._fresh[k] = _state_of(self._inner[i], self._own)
        self.arguments.fresh = self._fresh.ctypes.data
        self.arguments.fresh_obs = self._seen.ctypes.data


def _state_of(env: Any, own: np.ndarray) -> Any:
    """The state of an env as the file in C has it."""
    if own.dtype.names is None:
        return env.state
    # After its first step MountainCarContinuous computes in single precision.
    return (*env.state, env.state.dtype == np.float32)


def _time_limit(env: gymnasium.Env[Any, Any]) -> tuple[int, int]:
    """The limit of an episode and its steps so far; the lowest limit, if one given as code has its
    own."""
    found = NEVER, 0
    while isinstance(env, gymnasium.Wrapper):
        if isinstance(env, TimeLimit):
            found = min(found, (env._max_episode_steps, env._elapsed_steps or 0))
        env = env.env
    return found


def compiled_vector(env: Any) -> CompiledVector | None:
    """A compiled step for this env, if it is Gymnasium's class itself and there is a compiler."""
    classic = CLASSICS[CartPoleEnv]
    if type(env) is not CartPoleVectorEnv or not _has_constants(env, classic):
        return None
    program = _program(CartPoleEnv)
    return None if program is None else CompiledVector(env, program)


def compiled_singles(envs: Sequence[gymnasium.Env[Any, Any]]) -> CompiledSingles | None:
    """A compiled step for these envs, if all are Gymnasium's own of one kind, without wrappers but
    for Gymnasium's own checks and time limit, and there is a compiler."""
    kind: Any = type(envs[0].unwrapped)
    classic = CLASSICS.get(kind)
    if classic is None or not all(_is_plain(env, kind, classic) for env in envs):
        return None
    program = _program(kind)
    return None if program is None else CompiledSingles(envs, program, classic.state)


def _is_plain(env: gymnasium.Env[Any, Any], kind: type, classic: Classic) -> bool:
    while isinstance(env, TimeLimit | OrderEnforcing | PassiveEnvChecker):
        env = env.env
    return type(env) is kind and env.render_mode is None and _has_constants(env, classic)


@cache
def _program(kind: Any) -> Program | None:
    if not can_compile():
        return None
    classic = CLASSICS[kind]
    try:
        program = load_program(f"c:{classic.name}")
    except GsolveError as error:
        log.info("%s is stepped in Python: %s", kind.__name__, error)
        return None
    return program if _has_our_sine() and _agrees(kind, program, classic) else None


def _has_our_sine() -> bool:
    """Whether NumPy's sine and cosine are those of the C library, unless it was built otherwise."""
    x = np.linspace(-12.0, 12.0, 2000)
    pairs: list[tuple[Any, Callable[[float], float]]] = [(np.sin, math.sin), (np.cos, math.cos)]
    return all(f(x).tolist() == [g(number) for number in x] for f, g in pairs)


def _agrees(kind: type[gymnasium.Env[Any, Any]], program: Program, classic: Classic) -> bool:
    """Whether it steps as Gymnasium does: from new episodes on, and from states of all kinds."""
    envs: list[Any] = [kind() for _ in range(N_COMPARED)]
    copies = CompiledSingles(envs, program, classic.state)
    for options, n_steps in ((None, 4), (classic.wide, 1)):
        for i, env in enumerate(envs):
            env.reset(seed=i, options=options)
        copies.take([False] * len(envs))
        if not all(_is_same_step(envs, copies) for _ in range(n_steps)):
            return False
    return True


def _is_same_step(envs: Sequence[Any], copies: CompiledSingles) -> bool:
    actions = np.stack([env.action_space.sample() for env in envs])
    answers = [env.step(action)[:3] for env, action in zip(envs, actions, strict=True)]
    pairs = zip(copies(actions)[:3], zip(*answers, strict=True), strict=True)
    return all(np.array_equal(own, np.array(wanted, own.dtype)) for own, wanted in pairs)
