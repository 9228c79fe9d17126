"""Episodes of an agent as a Minari dataset, in a folder of the user's choice.

    written = write_dataset(found, Path("data/cartpole-v0"), episodes=100)

Observations are those that the policy saw (after the run's wrappers, before normalisation), actions
those that the environment got. The folder's name is the dataset's id, and its parent is Minari's
root: `MINARI_DATASETS_PATH=data` lets Minari find it by name.
"""

import os
import re
import warnings
from collections.abc import Iterator
from contextlib import closing, contextmanager
from copy import deepcopy
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
from gymnasium.envs.registration import EnvSpec

from gymnasium_solver.config.schema import Config
from gymnasium_solver.data.demonstrations import ENV_ID
from gymnasium_solver.errors import RunError, needing
from gymnasium_solver.media.player import Player, PolicyActor
from gymnasium_solver.media.stage import plain_stage
from gymnasium_solver.runs.query import acts_greedily
from gymnasium_solver.runs.resolve import ResolvedCheckpoint
from gymnasium_solver.training.agents import load_agent
from gymnasium_solver.training.evaluate import eval_seed
from gymnasium_solver.training.prepare import load_config
from gymnasium_solver.tree import map_tree
from gymnasium_solver.version import __version__

_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*-v\d+")


@dataclass(frozen=True)
class Written:
    path: Path
    dataset_id: str
    episodes: int
    steps: int
    mean_return: float


def write_dataset(
    found: ResolvedCheckpoint,
    out: Path,
    episodes: int,
    *,
    greedy: bool | None = None,
    seed: int | None = None,
    trust: bool = False,
) -> Written:
    """Play and write; RunError if `out` exists or cannot name a dataset."""
    greedy = acts_greedily(found.run) if greedy is None else greedy
    with needing("Minari is not installed: pip install 'gymnasium-solver[minari]'"):
        import minari
        from minari.data_collector import EpisodeBuffer
    if not _ID.fullmatch(out.name):
        raise RunError(f"{out.name!r} cannot name a dataset: its name must end in -v0, -v1, ...")
    if out.exists():
        raise RunError(f"{out} exists; choose another name, or delete it")
    config = load_config(str(found.run.config_path), trust=trust)
    agent = load_agent(str(found.path), trust=trust)
    seed = eval_seed(config, "test", 0) if seed is None else seed
    stage, buffers = plain_stage(config), []
    with closing(stage):
        player = Player(stage, PolicyActor(agent, greedy=greedy), seed)
        for number in range(episodes):
            moments = [replace(m, obs=map_tree(np.array, m.obs)) for m in player.episode()]
            decisions = [moment.decision for moment in moments if moment.decision is not None]
            buffers.append(
                EpisodeBuffer(
                    id=number,
                    seed=seed if number == 0 else None,
                    observations=_stacked([moment.obs for moment in moments]),
                    actions=_stacked([agent.policy.actions.to_native(d.action) for d in decisions]),
                    rewards=[moment.learner_reward for moment in moments[1:]],
                    terminations=[moment.terminated for moment in moments[1:]],
                    truncations=[m.is_over and not m.terminated for m in moments[1:]],
                )
            )
    with _root(out.parent):
        dataset = minari.create_dataset_from_buffers(
            out.name,
            buffers,
            observation_space=agent.observation_space,
            action_space=agent.action_space,
            algorithm_name=config.algo_id,
            author="gymnasium-solver",
            code_permalink=f"gymnasium-solver {__version__}",
            description=(
                f"{episodes} episodes of {found.run.id}/{found.label} in {config.env_id}, "
                f"{'greedy' if greedy else 'sampled'}, seed {seed}"
            ),
            jpeg_encoding=False,  # images as the policy saw them
        )
        # Given to Minari, the id would be made there; some of ours are not registered.
        facts = {ENV_ID: config.env_id}
        if (spec := _spec_of(config)) is not None:
            facts["env_spec"] = spec.to_json()
        dataset.storage.update_metadata(facts)
    returns = [sum(buffer.rewards) for buffer in buffers]
    steps = sum(len(buffer.rewards) for buffer in buffers)
    return Written(out, out.name, episodes, steps, float(np.mean(returns)))


def _spec_of(config: Config) -> EnvSpec | None:
    """What `recover_environment()` makes, without the run's wrappers; None if it is not known."""
    try:
        spec = deepcopy(gymnasium.spec(config.env_id))
        spec.kwargs |= config.env_kwargs
        spec.max_episode_steps = config.max_episode_steps or spec.max_episode_steps
        EnvSpec.from_json(spec.to_json())
    except (gymnasium.error.Error, ImportError, ValueError, TypeError):
        return None
    return spec


def _stacked(rows: list[Any]) -> Any:
    """A list of dicts as a dict of lists; tuples alike."""
    if isinstance(rows[0], dict):
        return {name: _stacked([row[name] for row in rows]) for name in rows[0]}
    if isinstance(rows[0], tuple):
        return tuple(_stacked([row[i] for row in rows]) for i in range(len(rows[0])))
    return list(rows)


@contextmanager
def _root(folder: Path) -> Iterator[None]:
    """Minari writes below MINARI_DATASETS_PATH, which must be absolute. It warns of every fact that
    it is not given, such as an e-mail address."""
    before = os.environ.get("MINARI_DATASETS_PATH")
    os.environ["MINARI_DATASETS_PATH"] = str(folder.absolute())
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)
            yield
    finally:
        if before is None:
            del os.environ["MINARI_DATASETS_PATH"]
        else:
            os.environ["MINARI_DATASETS_PATH"] = before
