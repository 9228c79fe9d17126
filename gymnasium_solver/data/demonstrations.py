"""Demonstrations: episodes that somebody else played, as arrays to learn from.

    demos = load_demonstrations("data/cartpole-v0", observation_space, actions, env_id)
    demos.split(0.1, rng)
    demos.obs, demos.actions                 # [n, ...]; rows of whole episodes, one after another
    demos.train, demos.held_out              # row numbers

A dataset is a folder that `gsolve record` or Minari wrote, the id of a Minari dataset on this
machine, or .npz files of `gsolve play` (one, or a folder of them). Actions are converted to the
policy's units. Whatever does not fit the environment is a ConfigError of one line.
"""

import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from gymnasium_solver.data.episode_file import Episode, read_episodes
from gymnasium_solver.data.memory_check import available_memory_bytes, check_fits
from gymnasium_solver.errors import ConfigError, EnvError, RunError, needing, told_as
from gymnasium_solver.paths import user_path
from gymnasium_solver.spaces.actions import ActionKind
from gymnasium_solver.spaces.observations import (
    Obs,
    Space,
    allocate_obs,
    flatten_space,
    obs_arrays,
    part_spaces,
    put_rows,
    take_rows,
)
from gymnasium_solver.spaces.space_types import (
    action_shape,
    from_native_batch,
    is_box,
    is_product,
    parts_of,
    shown,
    whole_range,
)

HOW = "`gsolve record RUN --out PATH` writes one, `gsolve play ENV --mode user --record F.npz` too"
ENV_ID = "env_id"  # in the metadata of a dataset that `gsolve record` wrote


@dataclass
class Source:
    """A dataset before it is loaded."""

    name: str
    episodes: Iterator[Episode]
    n_steps: int
    env_id: str | None = None
    observation_space: Space | None = None  # as the dataset tells it; None: not told
    action_space: Space | None = None
    """As the dataset tells it; its actions are then as `step` takes them. None: not told, and the
    actions are rows of numbers."""


@dataclass
class Demonstrations:
    name: str
    obs: Obs  # [n, ...], each part
    actions: np.ndarray  # [n, ...] in the policy's units
    reward: np.ndarray  # [n] float32
    terminated: np.ndarray  # [n] bool
    truncated: np.ndarray  # [n] bool
    starts: np.ndarray  # [episodes + 1]: first row of each episode, and the number of rows
    env_id: str | None = None
    train: np.ndarray = field(default_factory=lambda: np.zeros(0, np.int64))
    held_out: np.ndarray = field(default_factory=lambda: np.zeros(0, np.int64))

    def __post_init__(self) -> None:
        self.train = np.arange(len(self))

    def __len__(self) -> int:
        return len(self.reward)

    @property
    def n_episodes(self) -> int:
        return len(self.starts) - 1

    @property
    def returns(self) -> np.ndarray:
        return np.add.reduceat(self.reward.astype(np.float64), self.starts[:-1])

    @property
    def digest(self) -> str:
        """Changes with the data: a resume must learn from the same."""
        crc = 0
        for array in (self.actions, *(part for _, part in obs_arrays(self.obs))):
            crc = zlib.crc32(np.ascontiguousarray(array).data, crc)
        return f"{crc:08x}"

    def split(self, held_out: float, rng: np.random.Generator, top: float | None = None) -> None:
        """Choose the episodes to learn from: of the best share `top` by return, all but the share
        `held_out`. Of a single episode its last steps are held out."""
        episodes = np.arange(self.n_episodes)
        if top is not None:
            n_best = max(1, round(top * len(episodes)))
            episodes = np.sort(np.argsort(-self.returns, kind="stable")[:n_best])
        rows = [np.arange(self.starts[i], self.starts[i + 1]) for i in episodes]
        if len(rows) == 1:
            n_out = min(len(rows[0]) - 1, round(held_out * len(rows[0])))
            cut = len(rows[0]) - n_out
            self.train, self.held_out = rows[0][:cut], rows[0][cut:]
            return
        n_out = min(len(rows) - 1, max(1, round(held_out * len(rows)))) if held_out else 0
        out = set(rng.permutation(len(rows))[:n_out].tolist())
        none = np.zeros(0, np.int64)
        self.train = np.concatenate([r for i, r in enumerate(rows) if i not in out])
        self.held_out = np.concatenate([none, *(r for i, r in enumerate(rows) if i in out)])

    def summary(self) -> str:
        text = (
            f"demonstrations: {self.name}, {self.n_episodes:,} episodes of {len(self):,} steps, "
            f"mean return {self.returns.mean():.6g}; learns from {len(self.train):,} steps"
        )
        return text + (f", {len(self.held_out):,} held out" if len(self.held_out) else "")


def load_demonstrations(
    dataset: str, observation_space: Space, actions: ActionKind, env_id: str
) -> Demonstrations:
    """Read a dataset for an environment with these spaces, whole, into memory."""
    source = _open(dataset)
    where = f"dataset {dataset}"
    if source.observation_space is not None:
        _check_observations(source.observation_space, observation_space, where, env_id)
    if source.action_space is not None and not _same_leaf(source.action_space, actions.space):
        raise ConfigError(
            f"{where} has the actions {shown(source.action_space)}, but {env_id} has "
            f"{shown(actions.space)}"
        )
    n = source.n_steps
    if n == 0:
        raise ConfigError(f"{where} is empty: it has no step to learn from. {HOW}.")
    row = allocate_obs(observation_space, (1,))
    row_bytes = sum(part.nbytes for _, part in obs_arrays(row)) + actions.store((1,)).nbytes + 6
    advice = "Use a dataset with fewer episodes."
    check_fits(n * row_bytes, available_memory_bytes(), f"{where}, {n:,} steps,", advice)
    rows = allocate_obs(observation_space, (n,)), actions.store((n,))
    columns = np.zeros(n, np.float32), np.zeros(n, bool), np.zeros(n, bool)
    found = Demonstrations(source.name, *rows, *columns, np.zeros(1, np.int64), source.env_id)
    starts = [0]
    for episode in source.episodes:
        if source.action_space is not None:  # in the order of the environment's own space
            episode.actions = from_native_batch(actions.space, episode.actions)
        if len(episode.rewards):
            starts.append(starts[-1] + len(episode.rewards))
            place = slice(*starts[-2:])
            _put(found, place, episode, observation_space, actions, f"{where} and {env_id}")
    found.starts = np.array(starts)
    return found


def _put(
    found: Demonstrations, rows: slice, episode: Episode, space: Space, actions: ActionKind,
    where: str,
) -> None:  # fmt: skip
    n, number = len(episode.rewards), len(found.starts) - 1
    try:
        obs = take_rows(flatten_space(space)(episode.observations), slice(n))
    except KeyError as error:
        raise ConfigError(
            f"{where} do not fit: the dataset has no observations {error.args[0]!r}, which the "
            "environment has"
        ) from None
    for (name, part), (_, given) in zip(part_spaces(space).items(), obs_arrays(obs), strict=True):
        if given.shape[1:] != (part.shape or ()) or len(given) < n:
            label = f" {name!r}" if name else ""
            raise ConfigError(
                f"{where} do not fit: observations{label} have shape {given.shape[1:]} in the "
                f"dataset and {part.shape} in the environment"
            )
        if given.dtype.kind == "f" and not np.isfinite(given).all():
            raise ConfigError(f"{where}: episode {number} has observations that are not finite")
    put_rows(found.obs, rows, obs)
    given = np.asarray(episode.actions)
    if given.shape != (n, *action_shape(actions.space)) or not _are_legal(actions.space, given):
        raise ConfigError(
            f"{where} do not fit: the dataset has actions of shape {given.shape[1:]} from "
            f"{given.min():g} to {given.max():g}, the environment takes {shown(actions.space)}"
        )
    found.actions[rows] = actions.from_env(given)
    found.reward[rows] = episode.rewards
    found.terminated[rows] = episode.terminations
    found.truncated[rows] = episode.truncations


def _are_legal(space: Space, actions: np.ndarray) -> bool:
    """Whether all are finite numbers and, if the space is of choices, choices of it."""
    if actions.dtype.kind not in "iufb" or not np.isfinite(actions).all():
        return False
    if is_box(space) or is_product(space):
        return True
    low, high = whole_range(space)
    return bool(((actions >= low) & (actions <= high)).all())


# -- spaces -----------------------------------------------------------------------------------


def _check_observations(given: Space, own: Space, where: str, env_id: str) -> None:
    """ConfigError unless the dataset has every part of the environment's observations."""
    with told_as(ConfigError, where, EnvError):
        parts = part_spaces(flatten_space(given).space)
    for name, part in part_spaces(own).items():
        if name not in parts or not _same_leaf(parts[name], part):
            raise ConfigError(
                f"{where} has the observations {shown(given)}, but {env_id} has {shown(own)}. "
                "Train with the env_kwargs and env_wrappers that it was recorded with."
            )


def _same_leaf(given: Space, own: Space) -> bool:
    """Whether values of one space are values of the other; bounds of a Box may differ."""
    if is_box(own):
        is_alike = is_box(given) and given.shape == own.shape
        return is_alike and (given.dtype == np.uint8) == (own.dtype == np.uint8)
    if is_product(own):
        parts = parts_of(given) if type(given) is type(own) else {}
        ours = parts_of(own)
        return parts.keys() == ours.keys() and all(_same_leaf(parts[n], ours[n]) for n in ours)
    return bool(given == own)


# -- files ------------------------------------------------------------------------------------


def _open(dataset: str) -> Source:
    path = user_path(dataset)
    try:
        if path.is_file():
            return _open_files([path], dataset)
        files = sorted(path.glob("*.npz")) if path.is_dir() else []
    except (OSError, ValueError):  # a name that no file can have
        files = []
    if files:
        return _open_files(files, dataset)
    return _open_minari(path, dataset)


def _open_files(files: list[Path], dataset: str) -> Source:
    try:
        episodes = [episode for file in files for episode in read_episodes(file)]
    except RunError as error:
        raise ConfigError(f"dataset {error}") from None
    ids = {str(episode.meta.get(ENV_ID)) for episode in episodes if episode.meta.get(ENV_ID)}
    n_steps = sum(len(episode.rewards) for episode in episodes)
    return Source(Path(dataset).name, iter(episodes), n_steps, ", ".join(sorted(ids)) or None)


def _open_minari(path: Path, dataset: str) -> Source:
    with needing("Minari is not installed: pip install 'gymnasium-solver[minari]'"):
        import minari
        from minari.dataset.minari_storage import MinariStorage
        from minari.storage.datasets_root_dir import get_dataset_path
    try:
        root = path if path.is_dir() else Path(get_dataset_path(dataset))
        folder = root / "data" if (root / "data").is_dir() else root
        if not (folder / "metadata.json").is_file():
            raise ConfigError(
                f"there is no dataset {dataset}, neither a folder nor an id in "
                f"{get_dataset_path('')}. {HOW}; `minari download {dataset}` fetches a public one."
            )
        facts = MinariStorage.read_raw_metadata(folder)
        if not {"observation_space", "action_space"} <= facts.keys():
            # Minari would make the environment that the file names, and import its code.
            raise ConfigError(f"dataset {dataset} does not tell its spaces; record it again")
        data = minari.MinariDataset(folder)
    except (OSError, ValueError, AssertionError) as error:
        text = str(error).partition("\n")[0] or type(error).__name__
        raise ConfigError(f"dataset {dataset} cannot be read: {text}") from None
    env_id = str(facts[ENV_ID]) if facts.get(ENV_ID) else getattr(data.spec.env_spec, "id", None)
    episodes = (
        Episode(
            _with_arrays(one.observations),
            one.actions,
            np.asarray(one.rewards),
            np.asarray(one.terminations),
            np.asarray(one.truncations),
        )
        for one in data.iterate_episodes()
    )
    spaces_told = (data.observation_space, data.action_space)
    return Source(str(data.id), episodes, int(data.total_steps), env_id, *spaces_told)


def _with_arrays(observations: Any) -> Any:
    """Nested dicts and tuples of arrays, as they are; lists of text become arrays."""
    if isinstance(observations, Mapping):
        return {name: _with_arrays(part) for name, part in observations.items()}
    if isinstance(observations, tuple):
        return tuple(_with_arrays(part) for part in observations)
    return np.asarray(observations)
