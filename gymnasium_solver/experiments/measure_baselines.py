"""Measures random baselines: whole episodes with uniformly random actions, in rounds.

In a round each of N envs plays one whole episode, so that short episodes are not over-represented.
The number of rounds follows from the requested episodes and the time limit (at least one).
"""

import json
import time
from collections.abc import Iterable, Mapping
from contextlib import closing
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from gymnasium_solver.config.find import ConfigEntry, read_config_file
from gymnasium_solver.config.load import apply_overrides, config_dict
from gymnasium_solver.config.spec import read_spec
from gymnasium_solver.envs.baselines import Baseline, game_settings
from gymnasium_solver.envs.make import env_from_config
from gymnasium_solver.envs.random_steps import random_episodes
from gymnasium_solver.runs.files import write_atomic
from gymnasium_solver.runs.machine import versions
from gymnasium_solver.training.prepare import build_config, load_config

PROTOCOL = (
    "Uniformly random actions (from the legal ones where the environment has masks), raw returns "
    "of whole episodes up to the environment's own time limit. n episodes in rounds: in each, "
    "every env plays one to its end."
)
N_ENVS, N_SLOW_ENVS = 20, 10


def games(
    entries: Iterable[ConfigEntry], overrides: Mapping[str, Any] | None = None
) -> dict[str, str]:
    """The distinct games among configs: an identifying text -> the name of a config."""
    found: dict[str, str] = {}
    for entry in entries:
        if "<" in entry.env_id:  # a template for any environment
            continue
        section = read_config_file(entry.path).section(entry.variant)
        config = build_config(apply_overrides(section, overrides or {}))
        settings = game_settings(config_dict(config))
        found.setdefault(f"{entry.env_id} {json.dumps(settings, sort_keys=True)}", entry.name)
    return found


def measure(job: Mapping[str, Any]) -> dict[str, Any]:
    """Measure the game of one config; `job` has name, episodes, seconds, seed and perhaps overrides
    of the config."""
    config = load_config(job["name"], overrides=job.get("overrides"))
    probe = env_from_config(config, 1)
    is_slow = len(probe.observation_space.shape or ()) > 1
    probe.close()
    n_envs = min(N_SLOW_ENVS if is_slow else N_ENVS, job["episodes"])
    with closing(env_from_config(config, n_envs)) as env:
        returns: list[float] = []
        lengths: list[int] = []
        begun_s = time.perf_counter()
        while len(returns) < job["episodes"]:
            spent_s = time.perf_counter() - begun_s
            if returns and spent_s * (1 + n_envs / len(returns)) > job["seconds"]:
                break
            words = np.random.SeedSequence([job["seed"], len(returns)]).generate_state(1)
            more_returns, more_lengths = random_episodes(env, int(words[0] >> 1))
            returns += more_returns
            lengths += more_lengths
    facts, spec = env.spec, read_spec(config.spec)
    thresholds = (config.reward_threshold, facts.reward_threshold, spec.threshold)
    references = (spec.returns.reference, spec.returns.human)
    threshold = next((value for value in thresholds if value is not None), None)
    target = next((value for value in (threshold, *references) if value is not None), None)
    kind = "threshold" if threshold is not None else "reference" if target is not None else None
    found = Baseline(
        env_id=config.env_id,
        mean=round(float(np.mean(returns)), 4),
        std=round(float(np.std(returns)), 4),
        n=len(returns),
        length_mean=round(float(np.mean(lengths)), 2),
        seed=job["seed"],
        engine=facts.engine,
        settings=game_settings(config_dict(config)),
        target=target,
        target_kind=kind,
    )
    return asdict(found)


def write_records(path: Path, new: Iterable[Mapping[str, Any]]) -> int:
    """Write records into a file, replacing those of the same game; return the number of records."""
    content: dict[str, Any] = {}
    if path.is_file():
        content = json.loads(path.read_text(encoding="utf-8"))
    rows = [*content.get("baselines", []), *new]
    by_game = {(row["env_id"], json.dumps(row["settings"], sort_keys=True)): row for row in rows}
    ordered = [by_game[key] for key in sorted(by_game)]
    known = {name: version for name, version in versions().items() if version}
    packages = {name: known[name] for name in ("gymnasium", "envpool", "mujoco") if name in known}
    text = {"protocol": PROTOCOL, "versions": packages, "baselines": ordered}
    write_atomic(path, (json.dumps(text, indent=1, ensure_ascii=False) + "\n").encode())
    return len(ordered)
