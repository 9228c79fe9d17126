"""How fast the environments of a config step on this machine, by engine, number and threads.

Each case is measured in a process of its own (backends/isolated.py), so that one that hangs or
crashes affects no other. Actions are random and drawn beforehand; reset rows are not counted.
"""

import os
import time
from collections.abc import Sequence
from contextlib import closing
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from gymnasium_solver.errors import ConfigError

if TYPE_CHECKING:
    from gymnasium_solver.config.schema import Config

TASK = "gymnasium_solver.bench.tune:measure"
ENGINES = ("envpool", "vector", "sync", "async")


@dataclass(frozen=True)
class Case:
    engine: str
    n_envs: int
    threads: int  # CPUs for the threads of the engine; only EnvPool and Atari have threads


@dataclass(frozen=True)
class Speed:
    case: Case
    steps_per_s: float | None
    error: str = ""

    def to_dict(self) -> dict[str, Any]:
        return asdict(self.case) | {"steps_per_s": self.steps_per_s, "error": self.error or None}


def cases(
    n_envs: Sequence[int], engines: Sequence[str] = ENGINES, threads: Sequence[int] = (1,)
) -> list[Case]:
    """Every combination; engines without threads are measured once."""
    found = []
    for engine in engines:
        for n in n_envs:
            for k in threads if engine == "envpool" else threads[:1]:
                found.append(Case(engine, n, k))
    return found


def measure(item: dict[str, Any]) -> float:
    """Env steps per second of one case; called in a process of its own."""
    from gymnasium_solver.config.cpus import CPUS
    from gymnasium_solver.envs.make import env_from_config
    from gymnasium_solver.training.prepare import load_config

    os.environ[CPUS] = str(item["threads"])
    changes = {"vectorization_mode": item["engine"], "n_envs": item["n_envs"]}
    config = load_config(item["target"], overrides={**item["overrides"], **changes})
    with closing(env_from_config(config, item["n_envs"])) as env:
        return _rate(env, float(item["seconds"]))


def _rate(env: Any, seconds: float) -> float:
    import numpy as np

    from gymnasium_solver.envs.random_steps import RandomPolicy

    env.reset(0)
    policy = RandomPolicy(env.action_space, env.n_envs, seed=0)
    batches = [policy.act(env.action_mask) for _ in range(32)]
    speed = 0.0
    for span_s in (seconds / 4, seconds):  # the first steps build and allocate
        n_steps, began_s = 0, time.perf_counter()
        while (took_s := time.perf_counter() - began_s) < span_s:
            for actions in batches:
                step = env.step(actions)
                n_steps += env.n_envs - int(np.count_nonzero(step.is_reset))
                if time.perf_counter() - began_s >= span_s:
                    break
        speed = n_steps / took_s
    return speed


def best(speeds: Sequence[Speed], n_envs: int | None = None) -> Speed | None:
    """The fastest case, among those with `n_envs` environments if given."""
    known = [s for s in speeds if s.steps_per_s and n_envs in (None, s.case.n_envs)]
    return max(known, key=lambda speed: speed.steps_per_s or 0.0, default=None)


def tuned(config: "Config", speeds: Sequence[Speed]) -> dict[str, Any]:
    """The fields of the config with the fastest case, and a rollout of the same size."""
    from gymnasium_solver.config.load import config_dict

    rows = getattr(config, "n_steps", None)
    size = None if rows is None else rows * config.n_envs
    top = best([s for s in speeds if size is None or size % s.case.n_envs == 0])
    if top is None:
        raise ConfigError("nothing was measured, so nothing is written")
    data = config_dict(config)
    data |= {"vectorization_mode": top.case.engine, "n_envs": top.case.n_envs}
    if size is not None:
        data["n_steps"] = size // top.case.n_envs
    return data
