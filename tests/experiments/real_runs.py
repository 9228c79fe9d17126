"""Small real trainings of an experiment, to be killed and compared."""

import hashlib
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from gymnasium_solver.backends import local
from gymnasium_solver.config.yaml_file import dump_yaml
from gymnasium_solver.experiments.experiment import FOLDER, load

BUDGET = 1600
TINY = {"n_envs": 3, "n_steps": 16, "batch_size": 24, "n_epochs": 1, "hidden_dims": [8],
        "max_env_steps": BUDGET, "checkpoint_freq_epochs": 4, "eval_freq_epochs": 16,
        "eval_episodes": 2, "test_episodes": 4, "early_stop_on_eval_threshold": False}  # fmt: skip


def tiny(folder: Path, **changes: Any) -> str:
    """A file with a config that trains in a moment."""
    path = folder / "tiny.yaml"
    path.write_text(dump_yaml({"env_id": "CartPole-v1", "ppo": TINY | changes}))
    return str(path)


def command(root: Path, *more: str) -> list[str]:
    """Trains the config with some seeds, as the experiment `e` in `root`/runs."""
    words = ["train", tiny(root), *more, "--quiet", "--experiment", "e"]
    return local.gsolve(*words, "--runs-dir", str(root / "runs"))


def folder_of(root: Path) -> Path:
    return root / "runs" / FOLDER / "e"


def weights(root: Path) -> dict[int, str]:
    """The hash of the last weights of every seed."""
    experiment = load(folder_of(root))
    return {member.seed: digest(experiment.folder(member)) for member in experiment.members}


def digest(run: Path) -> str:
    file = (run / "checkpoints" / "last").resolve() / "model.safetensors"
    return hashlib.sha256(file.read_bytes()).hexdigest()


def wait_for(condition: Callable[[], object], timeout_s: float = 120) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)
