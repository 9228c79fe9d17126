"""The newest policy of a run that still trains.

newest = NewestPolicy(found)
newest.refresh()          # loads the newest checkpoint, if there is a newer one
newest.agent, newest.env_steps
"""

import dataclasses

from gymnasium_solver.algos.agent import Agent
from gymnasium_solver.errors import GsolveError, RunError
from gymnasium_solver.media.agents import title_of, trained_agent
from gymnasium_solver.runs.checkpoint import LAST
from gymnasium_solver.runs.resolve import resolve_checkpoint
from gymnasium_solver.runs.run import live_status
from gymnasium_solver.training.targets import Found


class NewestPolicy:
    def __init__(self, found: Found) -> None:
        if found.run is None:
            raise RunError(f"{found.config.env_id}: only a run can be followed, such as @last.")
        self._found, self._run = found, found.run
        self.agent: Agent
        self.agent, self.env_steps = trained_agent(found)

    def refresh(self) -> bool:
        """Whether a newer policy was loaded."""
        try:
            path = resolve_checkpoint(self._run, self._run.path.parent, default=LAST).path.resolve()
            if path.name == str(self.env_steps):
                return False
            found = dataclasses.replace(self._found, checkpoint=path, agent=None)
            self.agent, self.env_steps = trained_agent(found)
        except (GsolveError, OSError):  # pruned while it was read; a newer one is on its way
            return False
        return True

    @property
    def is_training(self) -> bool:
        return live_status(self._run.meta()) == "running"

    @property
    def title(self) -> str:
        return title_of(self._found, self.env_steps)
