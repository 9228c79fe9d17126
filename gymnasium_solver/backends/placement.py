"""Where runs train: which backend a user means, and what each run gets there."""

import os
import shlex
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from gymnasium_solver.backends.resources import Resources, estimate
from gymnasium_solver.errors import ConfigError, missing_training
from gymnasium_solver.suggest import did_you_mean

if TYPE_CHECKING:
    from gymnasium_solver.backends.ray_tasks import RayBackend
    from gymnasium_solver.backends.slurm import SlurmBackend

BACKENDS = ("local", "ray", "slurm", "dstack", "modal")


def check_backend(name: str | None, *, sbatch: str | None, resources: str | None) -> str:
    """The name of the backend, local without one; ConfigError if it cannot be meant."""
    name = name or "local"
    if name not in BACKENDS:
        hint = did_you_mean(name, BACKENDS) or f"Expected {', '.join(BACKENDS)}."
        raise ConfigError(f"--backend {name}: unknown. {hint}")
    if name == "slurm" and shutil.which("sbatch") is None:
        raise ConfigError(
            "--backend slurm: sbatch is not on the PATH; use a login node of a cluster"
        )
    if sbatch is not None and name != "slurm":
        raise ConfigError("--sbatch is for --backend slurm")
    if resources is not None and name == "local":
        raise ConfigError("--resources is for clusters; on this machine use --jobs")
    return name


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


def pool_backend(name: str, needs: Resources, sbatch: str | None) -> "SlurmBackend | RayBackend":
    """What a coordinator here starts runs on. Its runs are not all known at the start, so that it
    must see each of their folders."""
    if name == "slurm":
        from gymnasium_solver.backends.slurm import SlurmBackend

        return SlurmBackend(needs, sbatch_options(sbatch))
    from gymnasium_solver.backends.ray_tasks import RayBackend

    address = os.environ.get("RAY_ADDRESS")
    return RayBackend(address, cpus=needs.cpus, gpus=needs.gpus, memory_gb=needs.memory_gb)


def sbatch_options(text: str | None) -> list[str]:
    return [f"--{word.lstrip('-')}" for word in shlex.split(text or "")]
