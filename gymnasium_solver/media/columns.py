"""Collects what is played as episodes, and writes them as one .npz file (data/episode_file.py).

log = EpisodeLog(env_id=env_id, seed=seed)
log.add(moment, action)              # action None at the end of an episode
log.save(Path("demo.npz"))
"""

from pathlib import Path
from typing import Any

import numpy as np

from gymnasium_solver.data.episode_file import Episode, write_episodes
from gymnasium_solver.media.episodes import Moment
from gymnasium_solver.spaces.observations import obs_arrays


class EpisodeLog:
    """Collects the moments of episodes, one after another."""

    def __init__(self, **meta: Any) -> None:
        """`meta`: what the file says about itself, as JSON."""
        self.meta = meta
        self.episodes: list[Episode] = []
        self._moments: list[tuple[Moment, np.ndarray | None]] = []

    def add(self, moment: Moment, action: np.ndarray | None) -> None:
        self._moments.append((moment, action))
        if action is None:
            self.episodes.append(_episode(self._moments))
            self._moments = []

    def drop(self) -> None:
        """Forget the running episode."""
        self._moments = []

    def save(self, path: Path, now: Moment | None = None) -> None:
        """Write all episodes. `now`: the state that the running one has reached; without it, only
        whole ones are written."""
        running = []
        if now is not None and self._moments:
            running = [_episode([*self._moments, (now, None)])]
        write_episodes(path, [*self.episodes, *running], self.meta)


def _episode(moments: list[tuple[Moment, np.ndarray | None]]) -> Episode:
    states = [moment for moment, _ in moments]
    parts = {
        name: np.stack([dict(obs_arrays(state.obs))[name] for state in states])
        for name, _ in obs_arrays(states[0].obs)
    }
    after = states[1:]
    decisions = [state.decision for state in states[:-1]]
    values = [np.nan if d is None or d.value is None else d.value for d in decisions]
    return Episode(
        observations=parts if isinstance(states[0].obs, dict) else parts[""],
        actions=np.stack([np.asarray(action) for _, action in moments[:-1]]),
        rewards=np.array([state.reward for state in after]),
        terminations=np.array([state.terminated for state in after]),
        truncations=np.array([state.truncated for state in after]),
        values=np.array(values) if np.isfinite(values).any() else None,
    )
