"""How a loaded agent reads the observations that a user gives to `act`.

An observation may be of the environment that the user made, or of `gs.make_env(run)`. The wrappers
of the run that are functions of the observation alone are applied here. If the run has others, only
observations of `gs.make_env(run)` are accepted: an agent that reads unscaled numbers, or whose
action 1 means another action there, would play badly without any error (envs/treatment.py).
"""

from typing import Any, NamedTuple

import numpy as np

from gymnasium_solver.envs.as_gymnasium import is_observed_now
from gymnasium_solver.envs.treatment import Applied, Treatment
from gymnasium_solver.errors import EnvError
from gymnasium_solver.spaces.observations import Obs, Space, as_batch


class Read(NamedTuple):
    batch: Obs
    is_single: bool
    mask: np.ndarray | None = None
    """The legal actions, where the run restricts them: [1, A]."""


class ObsReader:
    def __init__(self, treatment: Treatment, action_space: Space, run_id: str) -> None:
        self._treatment, self._run_id = treatment, run_id
        self._apply = Applied(treatment, action_space)

    def __call__(self, native: Any) -> Read:
        own = self._treatment.own_env
        if own and not is_observed_now(native, self._treatment):
            raise EnvError(
                f"act() cannot apply {', '.join(own)} of this run to another environment: take "
                f"observations from gs.make_env({self._run_id!r}), or pass as_trained=True if your "
                "environment does the same."
            )
        try:
            batch, is_single = as_batch(self._treatment.space, native)
        except EnvError as error:
            raise EnvError(
                f"{error} gs.make_env({self._run_id!r}) makes the environment of this run."
            ) from None
        obs, mask = self._apply(batch)
        return Read(obs, is_single, mask)
