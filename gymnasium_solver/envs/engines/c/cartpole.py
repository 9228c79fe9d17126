"""Gymnasium's CartPole, stepped by the shipped cartpole.c: the same bits as its own `step`.

    step = compiled_batch(env)              # of a CartPoleVectorEnv; None: it steps by itself
    obs, reward, terminated, truncated, info = step(actions)
    compile_single(env)                     # from now on env.step is compiled, if it is a CartPole

A step of 8 poles in NumPy is forty calls, a quarter of the time of a PPO training; in C it is a
microsecond. States of new episodes come from the env's own generator.
"""

import logging
from functools import cache
from typing import Any

import gymnasium
import numpy as np
from gymnasium.envs.classic_control.cartpole import CartPoleEnv, CartPoleVectorEnv

from gymnasium_solver.envs.engines.c.engine import Copies, Program, load_program
from gymnasium_solver.errors import GsolveError
from gymnasium_solver.fast.native.build import can_compile

log = logging.getLogger(__name__)
# What cartpole.c has as constants: an env with others steps by itself.
CONSTANTS = {
    "gravity": 9.8, "masspole": 0.1, "total_mass": 1.1, "length": 0.5, "polemass_length": 0.05,
    "force_mag": 10.0, "tau": 0.02, "kinematics_integrator": "euler", "x_threshold": 2.4,
    "theta_threshold_radians": 12 * 2 * np.pi / 360, "_sutton_barto_reward": False,
}  # fmt: skip
NEVER = 2**62


def _has_constants(env: Any) -> bool:
    return all(getattr(env, name) == value for name, value in CONSTANTS.items())


class CompiledBatch(Copies):
    """Steps a CartPoleVectorEnv. Returned arrays are overwritten by the next step; the env's own
    attributes (`state`, `steps`, `prev_done`) stay current."""

    needs_python = True

    def __init__(self, env: CartPoleVectorEnv, program: Program) -> None:
        super().__init__(program, env.num_envs, env.max_episode_steps)
        self._env: Any = env
        self._columns = self.state.view(np.float64).T  # [4, n]

    def __call__(self, actions: np.ndarray) -> tuple[Any, ...]:
        self.prepare()
        self.step(actions)
        rows = self.rows
        return rows["obs"], rows["reward"], rows["terminated"], rows["truncated"], {}

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


class CompiledSingle(Copies):
    """`step` of a CartPoleEnv whose actions are checked already. The env's `state` stays
    current."""

    def __init__(self, env: CartPoleEnv, program: Program) -> None:
        super().__init__(program, 1, NEVER)
        self._env: Any = env  # Gymnasium declares some of its attributes as None
        self._own = self.state.view(np.float64)[0]
        self._action, self._obs = self.rows["actions"], self.rows["obs"][0]
        self._terminated = self.rows["terminated"]

    def __call__(self, action: Any) -> tuple[Any, ...]:
        env = self._env
        if env.state is not self._own:
            if env.state is None or env.render_mode == "human" or not _has_constants(env):
                return type(env).step(env, action)  # it warns, draws or is another one
            self._own[...] = env.state  # after a reset
            env.state, self.done[0] = self._own, False
        elif env.steps_beyond_terminated is not None:
            return type(env).step(env, action)  # it warns
        self._action[0] = action
        terminated = bool(self.function(self._at))
        if terminated:
            env.steps_beyond_terminated = 0
        return self._obs.copy(), 1.0, terminated, False, {}


def compiled_batch(env: Any) -> CompiledBatch | None:
    """A compiled step for this env, if it is Gymnasium's class itself and there is a compiler."""
    if type(env) is not CartPoleVectorEnv or not _has_constants(env):
        return None
    program = _program()
    return None if program is None else CompiledBatch(env, program)


def compile_single(env: gymnasium.Env[Any, Any]) -> bool:
    """Let an env step in C, if it is Gymnasium's CartPole itself, with any wrappers, and there is a
    compiler. Returns whether nothing else has a part in its steps."""
    inner = env.unwrapped
    if type(inner) is not CartPoleEnv or (program := _program()) is None:
        return False
    inner.step = CompiledSingle(inner, program)  # type: ignore[method-assign]
    while env is not inner and type(env).__module__.startswith("gymnasium."):
        env = env.env  # type: ignore[attr-defined]
    return env is inner


@cache
def _program() -> Program | None:
    if not can_compile():
        return None
    try:
        program = load_program("c:cartpole")
    except GsolveError as error:
        log.info("CartPole is stepped in NumPy: %s", error)
        return None
    return program if _agrees(program) else None


def _agrees(program: Program) -> bool:
    """Whether it steps as Gymnasium does, with ends and starts of episodes: NumPy's sine is that of
    the C library, unless NumPy was built otherwise."""
    envs = [CartPoleVectorEnv(500, max_episode_steps=2) for _ in range(2)]
    for env in envs:
        env.reset(seed=0, options={"low": -0.2, "high": 0.2})
    steps: list[Any] = [CompiledBatch(envs[0], program), envs[1].step]
    actions = np.arange(500) % 2
    return all(all(map(np.array_equal, *(step(actions)[:4] for step in steps))) for _ in range(4))
