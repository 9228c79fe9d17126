"""Steps of Gymnasium's CartPoleVectorEnv and CartPoleEnv in C (cartpole.c), or those of several
batches as one: the same bits as their own `step`.

    step = compiled_cartpole(env)           # None: another env, or no C compiler
    obs, reward, terminated, truncated, info = step(actions)
    compile_single(env)                     # from now on env.step is compiled, if it is a CartPole
    lanes = Lanes({"env step": ArraySteps(), ...})                       # lanes.py
    obs, reward, terminated, truncated, info = ArrayStep(env)(actions)

A step of 8 poles in NumPy is forty calls, a quarter of the time of a PPO training; the arithmetic
is a microsecond, and 80 poles take hardly longer. Sine and cosine stay with NumPy, and random
numbers with the generator of each batch.
"""

import ctypes
import logging
from collections.abc import Callable, Hashable, Sequence
from ctypes import c_double, c_int64, c_void_p
from functools import cache
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
from gymnasium.envs.classic_control.cartpole import CartPoleEnv, CartPoleVectorEnv

from gymnasium_solver.errors import Unsupported
from gymnasium_solver.fast.native.build import is_preferred, load_file
from gymnasium_solver.lanes import lane_for

log = logging.getLogger(__name__)
NUMBERS = {
    "force_mag": "force_mag", "polemass_length": "polemass_length", "total_mass": "total_mass",
    "gravity": "gravity", "length": "length", "masspole": "masspole", "tau": "tau",
    "x_threshold": "x_threshold", "theta_threshold": "theta_threshold_radians",
}  # fmt: skip
POINTERS = (
    "actions", "sine", "cosine", "fresh", "state", "steps", "prev_done", "terminated", "truncated",
    "obs", "reward",
)  # fmt: skip


class Poles(ctypes.Structure):
    """As in cartpole.c."""

    _fields_ = [
        *(
            (name, c_int64)
            for name in ("n", "max_steps", "semi_implicit", "sutton_barto", "n_done")
        ),
        *((name, c_double) for name in NUMBERS),
        *((name, c_void_p) for name in POINTERS),
    ]


class _Stepper:
    """The arrays that the C function steps n poles in."""

    def __init__(self, n: int, function: Callable[[int], int]):
        self.function = function
        self._state, self._steps = np.zeros((4, n)), np.zeros(n, np.int32)
        self._prev_done, self._terminated, self._truncated = np.zeros((3, n), np.bool_)
        self._theta, self._actions = self._state[2], np.zeros(n, np.int64)
        self._sine, self._cosine = np.zeros(n), np.zeros(n)
        self._fresh = np.zeros((4, 0))
        self._obs, self._reward = np.zeros((n, 4), np.float32), np.zeros(n, np.float32)
        self._places = {name: getattr(self, f"_{name}").ctypes.data for name in POINTERS}
        self.arguments = Poles(n=n, **self._places)
        self._address = ctypes.addressof(self.arguments)

    def _set_constants(self, env: Any) -> None:
        for name, source in NUMBERS.items():
            setattr(self.arguments, name, getattr(env, source))
        self.arguments.semi_implicit = env.kinematics_integrator != "euler"

    def _turn(self) -> None:
        """Sine and cosine, which come from NumPy."""
        np.sin(self._theta, out=self._sine)
        np.cos(self._theta, out=self._cosine)


class CompiledCartPole(_Stepper):
    """Steps one env. Returned arrays are overwritten by the next step; the env's own attributes
    (`state`, `steps`, `prev_done`) stay current."""

    def __init__(self, env: CartPoleVectorEnv, function: Callable[[int], int]):
        super().__init__(env.num_envs, function)
        self._env = env

    def __call__(self, actions: np.ndarray) -> tuple[Any, ...]:
        self._actions[...] = actions
        self.prepare()
        self.function(self._address)
        return self._obs, self._reward, self._terminated, self._truncated, {}

    needs_python = True

    def begin(self, units: Any) -> None:
        """Nothing: its actions are whole numbers."""

    def prepare(self) -> None:
        """Sine, cosine and the states of new episodes, which come from NumPy."""
        env = self._env
        if env.state is not self._state:  # after a reset
            self._take_over()
        self._turn()
        if n_done := self.arguments.n_done:
            self._fresh = env.np_random.uniform(low=env.low, high=env.high, size=(4, n_done))
            self.arguments.fresh = self._fresh.ctypes.data

    def release(self) -> None:
        """Step into arrays of its own again."""
        for name, place in self._places.items():
            setattr(self.arguments, name, place)

    def _take_over(self) -> None:
        """Continue from the state of the env, with its settings."""
        env, poles = self._env, self.arguments
        for name in ("state", "steps", "prev_done"):
            own = getattr(self, f"_{name}")
            own[...] = getattr(env, name)
            setattr(env, name, own)
        poles.n_done = int(np.count_nonzero(self._prev_done))
        self._set_constants(env)
        poles.max_steps = env.max_episode_steps
        poles.sutton_barto = bool(env._sutton_barto_reward)


class CompiledPole(_Stepper):
    """`step` of a single CartPole whose actions are checked already. The env's `state` stays
    current."""

    def __init__(self, env: CartPoleEnv, function: Callable[[int], int]):
        super().__init__(1, function)
        self._env: Any = env  # Gymnasium declares some of its attributes as None
        self._own_state = self._state[:, 0]
        self.arguments.max_steps = np.iinfo(np.int64).max

    def __call__(self, action: Any) -> tuple[Any, ...]:
        env = self._env
        if (
            env.state is None
            or env.steps_beyond_terminated is not None
            or env.render_mode == "human"
        ):
            return type(env).step(env, action)  # it warns, or draws
        if env.state is not self._own_state:  # after a reset
            self._own_state[...] = env.state
            env.state = self._own_state
            self._set_constants(env)
        self._actions[0] = action
        self._turn()
        terminated = bool(self.function(self._address))
        reward = 0.0 if env._sutton_barto_reward else 1.0
        if terminated:
            self._prev_done[0], env.steps_beyond_terminated = False, 0
            reward = -1.0 if env._sutton_barto_reward else 1.0
        return self._obs[0].copy(), reward, terminated, False, {}


def compiled_cartpole(env: Any) -> CompiledCartPole | None:
    """A compiled step for this env, if it is Gymnasium's class itself and there is a compiler."""
    if type(env) is not CartPoleVectorEnv or (function := _function()) is None:
        return None
    return CompiledCartPole(env, function)


def compile_single(env: gymnasium.Env[Any, Any]) -> bool:
    """Let an env step in C, if it is Gymnasium's CartPole itself, with any wrappers, and there is a
    compiler. Returns whether nothing else has a part in its steps."""
    inner = env.unwrapped
    if type(inner) is not CartPoleEnv or (function := _function()) is None:
        return False
    inner.step = CompiledPole(inner, function)  # type: ignore[method-assign]
    while env is not inner and type(env).__module__.startswith("gymnasium."):
        env = env.env  # type: ignore[attr-defined]
    return env is inner


@cache
def _function() -> Callable[[int], int] | None:
    try:
        file = Path(__file__).with_name("cartpole.c")
        return _step_of(load_file(file, ["-O2", "-ffp-contract=off"], _agrees))
    except Unsupported as error:
        log.info("CartPole is stepped in NumPy: %s", error)
        return None


def _step_of(library: ctypes.CDLL) -> Callable[[int], int]:
    function = library.step_poles
    function.argtypes, function.restype = [c_void_p], c_int64
    found: Callable[[int], int] = function
    return found


def _agrees(library: ctypes.CDLL) -> bool:
    """Whether a new library steps as Gymnasium does, with ends and starts of episodes."""
    for is_sparse in (False, True):
        envs = [CartPoleVectorEnv(3, 12, sutton_barto_reward=is_sparse) for _ in range(2)]
        for env in envs:
            env.reset(seed=0)
        steps: list[Any] = [CompiledCartPole(envs[0], _step_of(library)), envs[1].step]
        for t in range(40):
            actions = np.arange(t, t + 3) // 5 % 2 if t < 30 else np.ones(3, np.int64)
            ours, theirs = (step(actions)[:4] for step in steps)
            if not all(map(np.array_equal, ours, theirs)):
                return False
    return True


# -- several batches in one step ------------------------------------------------------------------


Item = tuple[CartPoleVectorEnv, np.ndarray]
# Attributes that hold the state of a batch, with the axis of the envs.
STATE = {"state": 1, "steps": 0, "prev_done": 0}
SETTINGS = ("max_episode_steps", "_sutton_barto_reward", "low", "high")


def can_step_together(env: Any) -> bool:
    return type(env) is CartPoleVectorEnv


class ArrayStep:
    """`env.step`: together with the other lanes if there are any, or compiled if the process
    compiles. The same bits in each way."""

    def __init__(self, env: Any) -> None:
        self._env, self._is_joint = env, can_step_together(env)
        self._alone: Any = env.step
        self._is_chosen = not self._is_joint

    def __call__(self, actions: np.ndarray) -> Any:
        lane = lane_for("env step") if self._is_joint else None
        if lane is not None:
            return lane.together("env step", (self._env, actions))
        if not self._is_chosen and is_preferred():
            self._is_chosen = True
            self._alone = compiled_cartpole(self._env) or self._env.step
        return self._alone(actions)

    @property
    def compiled(self) -> CompiledCartPole | None:
        """The compiled step, if the next one would be it."""
        is_alone = not self._is_joint or lane_for("env step") is None
        return self._alone if is_alone and isinstance(self._alone, CompiledCartPole) else None


class ArraySteps:
    """Joint work of lanes: a step of the batch of each of them."""

    def key(self, item: Item) -> Hashable:
        return tuple(getattr(item[0], name) for name in SETTINGS)

    def __call__(self, items: list[Item]) -> Sequence[Any]:
        if len(items) == 1:
            env, actions = items[0]
            return [env.step(actions)]
        envs = [env for env, _ in items]
        batch = object.__new__(type(envs[0]))
        vars(batch).update(vars(envs[0]))
        batch.action_space = _ANYTHING  # checked already
        for name, axis in STATE.items():
            setattr(batch, name, np.concatenate([getattr(env, name) for env in envs], axis))
        batch.np_random = _Generators(envs)  # type: ignore[assignment]
        columns = batch.step(np.concatenate([actions for _, actions in items]))[:4]
        ends = np.cumsum([env.num_envs for env in envs])
        results: list[Any] = []
        for env, end in zip(envs, ends.tolist(), strict=True):
            own = slice(end - env.num_envs, end)
            for name, axis in STATE.items():
                setattr(env, name, getattr(batch, name)[(slice(None),) * axis + (own,)])
            results.append((*(column[own] for column in columns), {}))
        return results


class _Anything:
    def contains(self, actions: np.ndarray) -> bool:
        return True


_ANYTHING: Any = _Anything()


class _Generators:
    """The random numbers of each batch from its own generator, for the envs that are reset."""

    def __init__(self, envs: Sequence[CartPoleVectorEnv]) -> None:
        self._resets = [
            (env.np_random, n) for env in envs if (n := int(np.count_nonzero(env.prev_done)))
        ]

    def uniform(self, low: float, high: float, size: tuple[int, int]) -> np.ndarray:
        rows = size[0]
        drawn = [rng.uniform(low, high, size=(rows, n)) for rng, n in self._resets]
        return np.concatenate(drawn, axis=1) if drawn else np.empty((rows, 0))
