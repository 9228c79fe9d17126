"""dstack: one task per run, in the cloud that your dstack server offers.

Tried up to the door of the service: the files are validated by dstack's own package; applying them
needs a server and an account. A volume keeps the run folders, so that an interrupted task continues
where it stopped.
"""

import hashlib
import re
import shlex
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from gymnasium_solver.backends.resources import Resources
from gymnasium_solver.config.yaml_file import dump_yaml

RUNS = "/runs"


def spec(name: str, argv: Sequence[str], config: str, resources: Resources) -> dict[str, Any]:
    """The configuration of one task, as in dstack's reference. `config`: its text, which travels
    with the task."""
    needs: dict[str, Any] = {"cpu": f"{resources.cpus}..", "memory": f"{resources.memory_gb:g}GB.."}
    if resources.gpus:
        needs["gpu"] = resources.gpus
    here = f"cat > config.yaml <<'END_OF_CONFIG'\n{config.rstrip()}\nEND_OF_CONFIG"
    # 75: preempted and saved. dstack retries tasks that fail, and the run continues.
    return {
        "type": "task",
        "name": name,
        "python": "3.11",
        "env": [f"GSOLVE_RUNS={RUNS}"],
        "volumes": [{"instance_path": RUNS, "path": RUNS}],
        "commands": ["pip install gymnasium-solver", here, shlex.join(argv)],
        "resources": needs,
        "max_duration": f"{max(1, round(resources.hours))}h",
        "retry": {"on_events": ["no-capacity", "interruption", "error"], "duration": "1d"},
    }


def write(
    folder: Path,
    title: str,
    names: Sequence[str],
    words: Sequence[Sequence[str]],
    experiment: Path,
    resources: Resources,
) -> Path:
    """Write one file per run and return the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, own in zip(names, words, strict=True):
        config, seed = Path(own[0]).read_text(), own[list(own).index("--seed") + 1]
        argv = ["gsolve", "train", "config.yaml", "--seed", seed, "--run-dir", f"{RUNS}/{name}"]
        argv += ["--if-exists", "resume", "--quiet"]
        text = dump_yaml(spec(task_name(name), argv, config, resources))
        (folder / f"{name}.dstack.yml").write_text(text)
    return folder


def task_name(name: str) -> str:
    """dstack's names: lower case, at most 41 characters, from a letter on."""
    slug = re.sub(r"[^a-z0-9-]+", "-", name.lower()).strip("-")
    if len(slug) <= 41:
        return slug
    return f"{slug[:32].strip('-')}-{hashlib.sha256(name.encode()).hexdigest()[:8]}"


def command(folder: Path) -> list[str]:
    return ["dstack", "apply", "-d", "-y", "-f", str(folder / "RUN.dstack.yml")]


def is_installed() -> bool:
    return shutil.which("dstack") is not None


def submit(folder: Path) -> int:
    """Apply every file; the exit code of the first that fails."""
    for file in sorted(folder.glob("*.dstack.yml")):
        done = subprocess.run(["dstack", "apply", "-d", "-y", "-f", str(file)])
        if done.returncode:
            return done.returncode
    return 0
