"""Episodes as columns in one .npz file, laid out as Minari lays out its datasets.

    write_episodes(Path("demo.npz"), episodes, {"env_id": "CartPole-v1"})
    for episode in read_episodes(Path("demo.npz")):
        episode.observations, episode.actions, episode.rewards

The keys are `episode_<i>/<column>`; observations in parts have a key for each part,
`episode_<i>/observations/<part>`. Observations are those that an agent gets, after the config's
wrappers; rewards are those before reward wrappers. Nothing is pickled.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from gymnasium_solver.errors import RunError, told_as
from gymnasium_solver.spaces.observations import obs_arrays

FORMAT = 1
META = "meta"


@dataclass
class Episode:
    observations: Any  # [T + 1, ...], or such arrays by part
    actions: np.ndarray  # [T, ...], as the environment's `step` takes them
    rewards: np.ndarray
    terminations: np.ndarray
    truncations: np.ndarray
    values: np.ndarray | None = None
    """What the agent expected at each action; NaN where it does not say."""
    meta: dict[str, Any] = field(default_factory=dict)


def write_episodes(path: Path, episodes: list[Episode], meta: dict[str, Any]) -> None:
    """Write the file; RunError if there is nothing to write, or no place for it."""
    if not episodes:
        raise RunError(f"{path}: no step was played, so there is nothing to save.")
    arrays: dict[str, np.ndarray] = {}
    for i, episode in enumerate(episodes):
        for name, part in obs_arrays(episode.observations):
            arrays[f"episode_{i}/observations{f'/{name}' if name else ''}"] = part
        for column in ("actions", "rewards", "terminations", "truncations", "values"):
            if (array := getattr(episode, column)) is not None:
                arrays[f"episode_{i}/{column}"] = array
    facts = {
        "format": FORMAT,
        "total_episodes": len(episodes),
        "total_steps": sum(len(episode.rewards) for episode in episodes),
        **meta,
    }
    arrays[META] = np.array(json.dumps(facts))
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        part = path.with_name(f".{path.name}.part")
        with part.open("wb") as file:
            np.savez_compressed(file, allow_pickle=False, **arrays)
        part.replace(path)
    except OSError as error:
        raise RunError(f"{path} cannot be written: {error.strerror or error}.") from error


def read_episodes(path: Path) -> Iterator[Episode]:
    """The episodes of a file; RunError if it is another one."""
    with told_as(RunError, f"{path} is not a file of episodes", OSError, ValueError, KeyError):
        with np.load(path, allow_pickle=False) as file:
            arrays = {name: file[name] for name in file.files}
        meta = json.loads(str(arrays.pop(META)))
    for i in range(meta["total_episodes"]):
        yield _read(arrays, f"episode_{i}/", meta)


def _read(arrays: dict[str, np.ndarray], prefix: str, meta: dict[str, Any]) -> Episode:
    columns = {
        name.removeprefix(prefix): array
        for name, array in arrays.items()
        if name.startswith(prefix)
    }
    parts = {
        name.removeprefix("observations/"): columns.pop(name)
        for name in list(columns)
        if name.startswith("observations/")
    }
    observations = parts or columns.pop("observations")
    return Episode(observations, meta=meta, **columns)
