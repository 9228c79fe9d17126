"""Bandit-v0 and Bandit/<name>: multi-armed bandits, the smallest tasks, in NumPy.

Each step pulls one arm (`Discrete(n_arms)`); the reward is a normal draw with that arm's mean and
standard deviation; the observation is a constant 0, shape (1,). The episode terminates after
`episode_length` pulls. Means do not depend on the seed, so a policy stays valid in every episode.

env_kwargs: `n_arms` (10), `means` (one for each arm; evenly spaced from 0 to 1), `stds` (a number,
or one for each arm; 0.1), `episode_length` (10). Solved: halfway between the returns of always
pulling the best and always pulling the second best arm. `SETS` has the arms of `Bandit/<name>`,
which env_kwargs may change.
"""

from dataclasses import replace
from typing import Any

import gymnasium
import numpy as np

from gymnasium_solver.envs.spec import EnvRequest
from gymnasium_solver.envs.suites.own import Outcome, OwnEnv, refuse_unknown, whole_option
from gymnasium_solver.envs.vector import VectorEnv
from gymnasium_solver.errors import EnvError

SETS: dict[str, dict[str, Any]] = {
    "TwoArms": {"means": [0.2, 0.8]},
    "TenArms": {"n_arms": 10},
    "HundredArms": {"n_arms": 100},
    "Close": {"means": [0.45, 0.5, 0.55], "stds": 0.05, "episode_length": 100},
    "Noisy": {"n_arms": 10, "stds": 1.0, "episode_length": 100},
    "Deceptive": {"means": [0.5, 0.6, 0.0], "stds": [0.01, 0.1, 2.0], "episode_length": 50},
}
"""Deceptive: the worst arm sometimes pays the most."""


class Bandit(OwnEnv):
    """N bandits with the same arms."""

    def __init__(
        self, request: EnvRequest, means: np.ndarray, stds: np.ndarray, episode_length: int
    ) -> None:
        second_best, best = np.sort(means)[-2:]
        super().__init__(
            request,
            gymnasium.spaces.Box(0.0, 1.0, (1,), np.float32),
            gymnasium.spaces.Discrete(len(means)),
            threshold=float(episode_length * (best + second_best) / 2),
        )
        self._means, self._stds, self._episode_length = means, stds, episode_length

    def _begin(self, rows: np.ndarray) -> None:
        pass  # a bandit has no state besides the pulls made, which the contract counts

    def _advance(self, actions: np.ndarray) -> Outcome:
        noise = self._rng.standard_normal(self.n_envs)
        reward = (self._means[actions] + self._stds[actions] * noise).astype(np.float32)
        terminated = self._length + 1 >= self._episode_length
        return reward, terminated, np.zeros(self.n_envs, np.bool_)

    def _observe(self) -> np.ndarray:
        return np.zeros((self.n_envs, 1), np.float32)


def make_bandit(request: EnvRequest) -> VectorEnv:
    """Build Bandit-v0 or Bandit/<name>; env_kwargs go before what the name stands for."""
    env_id, given = request.env_id, request.env_kwargs
    name = env_id.removeprefix("Bandit/").removesuffix("-v0")
    if env_id != "Bandit-v0" and name not in SETS:
        known = ", ".join(f"Bandit/{name}" for name in SETS)
        raise EnvError(f"Unknown environment {env_id!r}. Did you mean Bandit-v0, or {known}?")
    refuse_unknown(request, ("n_arms", "means", "stds", "episode_length"))
    arms = {} if "means" in given or "n_arms" in given else SETS.get(name, {})
    request = replace(request, env_kwargs={**arms, **given})
    means = _numbers(request, "means", [])
    n_arms = whole_option(request, "n_arms", len(means) or 10, least=2)
    if "means" not in request.env_kwargs:
        means = np.linspace(0.0, 1.0, n_arms)
    stds = _numbers(request, "stds", 0.1)
    if len(stds) == 1:
        stds = np.repeat(stds, n_arms)
    for name, values in (("means", means), ("stds", stds)):
        if values.shape != (n_arms,) or not np.isfinite(values).all():
            raise EnvError(
                f"{env_id}: {name} must be {n_arms} finite numbers, one for each arm, "
                f"got {values.tolist()}."
            )
    if (stds < 0).any():
        raise EnvError(f"{env_id}: stds must not be negative, got {stds.tolist()}.")
    return Bandit(request, means, stds, whole_option(request, "episode_length", 10))


def _numbers(request: EnvRequest, name: str, default: Any) -> np.ndarray:
    value = request.env_kwargs.get(name, default)
    try:
        return np.atleast_1d(np.asarray(value, np.float64))
    except (TypeError, ValueError) as error:
        raise EnvError(f"{request.env_id}: {name} must be numbers, got {value!r}.") from error
