"""Steps of an environment that is written in NumPy: several batches as one larger one, or in C.

    lanes = Lanes({"env step": ArraySteps(), ...})                       # lanes.py
    obs, reward, terminated, truncated, info = ArrayStep(env)(actions)

A step of 80 CartPoles takes hardly longer than one of 8: the time is that of the NumPy calls. The
arithmetic is elementwise, and random numbers come from the generator of each batch, so the results
are those of separate steps, bit for bit.
"""

from collections.abc import Hashable, Sequence
from typing import Any

import numpy as np
from gymnasium.envs.classic_control.cartpole import CartPoleVectorEnv

from gymnasium_solver.envs.engines.compiled_cartpole import CompiledCartPole, compiled_cartpole
from gymnasium_solver.fast.native.build import is_preferred
from gymnasium_solver.lanes import lane_for

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
