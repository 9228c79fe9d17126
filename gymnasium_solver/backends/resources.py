"""Which backend a user means, and what a training needs of a machine there, estimated from its
config; every figure can be overridden.
"""

import math
import os
import re
import shutil
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from gymnasium_solver.errors import ConfigError, missing_training
from gymnasium_solver.suggest import check_known

if TYPE_CHECKING:
    from gymnasium_solver.config.schema import Config

BACKENDS = ("local", "ray", "slurm", "dstack", "modal")
BASE_GB = 1.0  # Python, torch and the environments themselves
COLLECTOR_GB = 0.5  # a process with torch and environments
GPU_GB = 4.0  # what CUDA takes of the host
MARGIN = 3.0  # on the time; a job that is cut off is resumed, but waits in the queue again
LEAST_HOURS = 0.25
NAMES = {"cpus": "cpus", "memory": "memory_gb", "gpus": "gpus", "hours": "hours"}
"""Names in --resources -> fields of Resources."""
# Env steps per second of one slow core; the real figure is mostly higher.
SPEED = {"mlp": 5_000.0, "mlp_replay": 150.0, "cnn": 300.0, "cnn_replay": 60.0}


@dataclass(frozen=True)
class Resources:
    cpus: int
    memory_gb: float
    gpus: float  # less than 1: several runs share a card, here and with Ray
    hours: float

    def __str__(self) -> str:
        gpus = f", {self.gpus:g} GPU{'s' * (self.gpus > 1)}" if self.gpus else ", no GPU"
        cpus = f"{self.cpus} CPU{'s' * (self.cpus > 1)}"
        return f"{cpus}, {self.memory_gb:g} GB of memory{gpus}, {self.hours:g} h"

    @property
    def time_text(self) -> str:
        """The time limit as Slurm writes it: hours:minutes:seconds."""
        minutes = math.ceil(self.hours * 60)
        return f"{minutes // 60:02d}:{minutes % 60:02d}:00"

    @classmethod
    def given(cls, text: str | None) -> Self:
        """The figures of the user, who must give all where nothing can be estimated."""
        if text is None or not all(re.search(rf"\b{name}=", text) for name in NAMES):
            raise ConfigError(
                "without the extra train the needs of a run cannot be estimated. Give them all: "
                '--resources "cpus=2 memory=4 gpus=0 hours=2"'
            )
        return cls(1, 1.0, 0, 1.0).override(text)

    @classmethod
    def largest(cls, each: Sequence["Resources"]) -> Self:
        """The largest figures of several runs."""
        return cls(*(max(getattr(one, f.name) for one in each) for f in fields(cls)))

    def override(self, text: str) -> Self:
        """Replace figures: "cpus=4 memory=8 gpus=1 hours=2", separated by blanks or commas."""
        changes: dict[str, Any] = {}
        for part in re.split(r"[\s,]+", text.strip()):
            key, _, value = part.partition("=")
            check_known(ConfigError, key, NAMES, f"--resources {part}: unknown")
            match = re.fullmatch(r"(\d+(?:\.\d+)?)(?:[gG][bB]?|h)?", value)
            number = float(match[1]) if match else math.nan
            is_part = not number.is_integer() and (key == "cpus" or (key == "gpus" and number > 1))
            if match is None or is_part or (key != "gpus" and not number):
                number_of = {"gpus": "a whole number, or a share such as gpus=0.25"}
                expected = number_of.get(key, f"a number, such as {key}=2")
                raise ConfigError(f"--resources {part}: expected {expected}")
            changes[NAMES[key]] = int(number) if number.is_integer() and key != "hours" else number
        return replace(self, **changes)


def estimate(config: "Config") -> Resources:
    """Resources for one run of a config. The environment is built once, for its spaces."""
    from gymnasium_solver.config.schema import LearnerConfig
    from gymnasium_solver.data.replay import Replay
    from gymnasium_solver.data.rollout import Rollout
    from gymnasium_solver.envs.make import env_from_config
    from gymnasium_solver.nets.network import is_cnn
    from gymnasium_solver.spaces.actions import action_kind

    with closing(env_from_config(config, 1)) as env:
        space, actions = env.observation_space, action_kind(env.action_space)
    has_cnn = isinstance(config, LearnerConfig) and is_cnn(config, space)
    data = 2 * Rollout.estimate_bytes(config.rollout_rows, config.n_envs, space, actions)
    buffer_size = getattr(config, "buffer_size", None)
    if buffer_size and getattr(config, "replay_dir", None) is None:
        replay = Replay.estimate_bytes(buffer_size, config.n_envs, space, actions)
        shape = tuple(getattr(space, "shape", None) or ())
        is_stack = len(shape) == 3 and str(getattr(space, "dtype", "")) == "uint8" and shape[0] <= 8
        data += replay // shape[0] if is_stack else replay  # a stack of frames is stored once
    device = str(config.device)
    gpus = 1 if device.startswith("cuda") or (device == "auto" and has_cnn) else 0
    memory = BASE_GB + 1.2 * data / 1e9 + GPU_GB * gpus
    kind = ("cnn" if has_cnn else "mlp") + ("_replay" if buffer_size else "")
    seconds = (config.max_env_steps or 1_000_000) / SPEED[kind] * MARGIN
    hours = max(LEAST_HOURS, math.ceil(4 * seconds / 3600) / 4)
    cpus = min(8, max(1, config.n_envs // 4)) if has_cnn else 1
    if config.collectors is not None and not os.environ.get("RAY_ADDRESS"):  # Ray starts here
        cpus += config.collectors.n
        memory += COLLECTOR_GB * config.collectors.n
    return Resources(cpus, math.ceil(memory * 2) / 2, gpus, hours)


# -- the choice of the user ------------------------------------------------------------------


def check_backend(name: str | None, *, sbatch: str | None, resources: str | None) -> str:
    """The name of the backend, local without one; ConfigError if it cannot be meant."""
    name = name or "local"
    check_known(ConfigError, name, BACKENDS, f"--backend {name}: unknown")
    if name == "slurm" and shutil.which("sbatch") is None:
        raise ConfigError(
            "--backend slurm: sbatch is not on the PATH; use a login node of a cluster"
        )
    if sbatch is not None and name != "slurm":
        raise ConfigError("--sbatch is for --backend slurm")
    if resources is not None and name == "local" and not re.fullmatch(r"gpus=[^\s,]+", resources):
        raise ConfigError(
            "--resources on this machine is gpus=N, or gpus=0.25 for four runs on a card; "
            "the rest is for clusters. Use --jobs"
        )
    share = re.search(r"\bgpus=(0?\.\d*[1-9]\d*)", resources or "")
    if share is not None and name in ("slurm", "dstack", "modal"):
        raise ConfigError(f"--resources gpus={share[1]}: {name} gives whole GPUs only")
    return name


def local_gpus(resources: str | None) -> float | None:
    """How many GPUs of this machine each run gets; None if the user did not say."""
    return None if resources is None else Resources(1, 1.0, 0, 1.0).override(resources).gpus


def needs_of(configs: Sequence[Path], given: str | None) -> tuple[Resources, str]:
    """The largest needs of any of these configs, with what the user has overridden, and what is to
    be said about them."""
    from gymnasium_solver.training.prepare import load_config

    try:
        largest = Resources.largest([estimate(load_config(str(path))) for path in configs])
    except ModuleNotFoundError as error:
        if missing_training(error) is None:
            raise
        chosen = Resources.given(given)
        return chosen, f"each run gets {chosen}"
    chosen = largest if given is None else largest.override(given)
    note = f"estimated: {largest}" if chosen != largest else "estimated; change --resources"
    return chosen, f"each run gets {chosen} ({note})"
