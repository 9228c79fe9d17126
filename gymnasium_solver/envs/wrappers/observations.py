"""Wrappers that change observations."""

import gymnasium
import numpy as np

from gymnasium_solver.envs.vector import Step, VectorEnv, VectorWrapper
from gymnasium_solver.errors import EnvError

ENCODINGS = ("array", "binary", "onehot")


class DiscreteEncoder(VectorWrapper):
    """Turns a Discrete observation into a float32 vector, so that an MLP can read it.

    `array`: the number itself, shape (1,); `binary`: its bits, highest first; `onehot`: one place
    for each value.
    """

    def __init__(self, env: VectorEnv, encoding: str = "onehot") -> None:
        super().__init__(env)
        space = env.observation_space
        if not isinstance(space, gymnasium.spaces.Discrete):
            raise EnvError(
                f"Wrapper DiscreteEncoder needs Discrete observations; {env.spec.env_id} has "
                f"{space}."
            )
        if encoding not in ENCODINGS:
            raise EnvError(
                f"Wrapper DiscreteEncoder: encoding must be one of {', '.join(ENCODINGS)}, "
                f"got {encoding!r}."
            )
        self._start = int(space.start)
        self._table = _table(int(space.n), self._start, encoding)
        low, high = self._table.min(axis=0), self._table.max(axis=0)
        self.observation_space = gymnasium.spaces.Box(low, high, dtype=np.float32)

    def reset(self, seed: int) -> np.ndarray:
        return self._encode(self.env.reset(seed))

    def step(self, actions: np.ndarray) -> Step:
        step = self.env.step(actions)
        return step._replace(obs=self._encode(step.obs))

    def _encode(self, obs: np.ndarray) -> np.ndarray:
        encoded: np.ndarray = self._table[obs - self._start]
        return encoded


def _table(n: int, start: int, encoding: str) -> np.ndarray:
    """Row i is the encoding of the i-th value."""
    values = np.arange(n)
    if encoding == "onehot":
        return np.eye(n, dtype=np.float32)
    if encoding == "array":
        return (values + start)[:, None].astype(np.float32)
    bits = max(1, int(n - 1).bit_length())
    return ((values[:, None] >> np.arange(bits)[::-1]) & 1).astype(np.float32)
