"""Scores of random actions, stored as data, and scores normalised by them.

    normalized_score("CartPole-v1", 475)       # 1.0: solved; 0.0 is the score of random actions

`baselines.json` has one record for each environment of this package and each of its setups,
measured by `gsolve baselines --measure` (experiments/measure_baselines.py). Light to import.
"""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

PATH = Path(__file__).with_name("baselines.json")
# Config fields that change the attainable score of an episode; the others only change what the
# agent observes or how it learns.
GAME_FIELDS = ("env_kwargs", "max_episode_steps", "frame_skip")
# The same for env_kwargs: scores are raw and of whole games, whatever the learner receives.
VIEW_KWARGS = (
    *("obs_type", "frame_stack", "grayscale_obs", "resize_obs", "max_pool"),
    *("reward_clip", "episodic_life"),
)


# A target that is closer to the random score than this fraction of its size or spread is not
# informative.
NEAR = 0.02


@dataclass(frozen=True)
class Baseline:
    """Score of uniformly random actions in one environment."""

    env_id: str
    mean: float  # mean raw return of an episode
    std: float  # standard deviation over episodes
    n: int  # episodes played
    length_mean: float
    seed: int
    engine: str  # the engine that stepped it, which is the one `auto` selects
    settings: dict[str, Any] = field(default_factory=dict)
    """Non-default settings: env_kwargs, max_episode_steps, frame_skip."""
    target: float | None = None
    """Return that counts as 1: the solved threshold, otherwise the reference of the spec."""
    target_kind: str | None = None  # threshold or reference

    def normalize(self, score: float, target: float | None = None) -> float | None:
        """0 for random actions, 1 for the target; None if no target is clearly above random."""
        goal = self.target if self.target is not None else target
        if goal is None or not math.isfinite(score):
            return None
        if goal - self.mean <= NEAR * max(self.std, abs(self.mean), 1e-6):
            return None
        return (score - self.mean) / (goal - self.mean)


def game_settings(config: Mapping[str, Any]) -> dict[str, Any]:
    """The config fields that a baseline depends on, if they are set."""
    settings = {name: config[name] for name in GAME_FIELDS if config.get(name)}
    kwargs = settings.pop("env_kwargs", {})
    kept = {k: v for k, v in kwargs.items() if v is not None and k not in VIEW_KWARGS}
    return {"env_kwargs": kept, **settings} if kept else settings


def random_baseline(env_id: str, settings: Mapping[str, Any] | None = None) -> Baseline | None:
    """The record for an environment with these settings or, without `settings`, with those of its
    first config; None if it was not measured."""
    if settings is not None:
        return _records().get(_key(env_id, settings))
    first = (record for record in _records().values() if record.env_id == env_id)
    return _records().get(_key(env_id, {})) or next(first, None)


def all_baselines() -> list[Baseline]:
    return list(_records().values())


def normalized_score(
    env_id: str,
    score: float,
    settings: Mapping[str, Any] | None = None,
    target: float | None = None,
) -> float | None:
    """(score - random) / (threshold or reference - random); None if nothing was measured. `target`
    is used if the record has none, e.g. the threshold of a run."""
    baseline = random_baseline(env_id, settings)
    return None if baseline is None else baseline.normalize(score, target)


def _key(env_id: str, settings: Mapping[str, Any]) -> str:
    return f"{env_id} {json.dumps(settings, sort_keys=True)}"


@cache
def _records() -> dict[str, Baseline]:
    if not PATH.is_file():
        return {}
    rows = json.loads(PATH.read_text(encoding="utf-8"))["baselines"]
    return {_key(row["env_id"], row.get("settings", {})): Baseline(**row) for row in rows}
