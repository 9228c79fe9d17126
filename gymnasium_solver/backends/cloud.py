"""dstack and Modal: files for a cloud service, which is called if its command is installed.

Tried up to the door of the services: dstack's own package validates the files, Modal's imports the
app and calls its function here; applying them needs an account. Both keep the run folders on a
volume, so that a run that was interrupted continues where it stopped.
"""

import hashlib
import json
import re
import shlex
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from gymnasium_solver.backends.resources import Resources
from gymnasium_solver.config.yaml_file import dump_yaml

RUNS = "/runs"
MODAL_FILE = "modal_app.py"
# Modal preempts with SIGTERM and starts the function again with the same input, which resumes.
MODAL_APP = Path(__file__).with_name("modal_app.txt")


class CloudRun(NamedTuple):
    name: str
    config: str  # the text of the file, which travels with the run
    seed: int


def write(
    service: str, folder: Path, title: str, runs: Sequence[CloudRun], resources: Resources
) -> Path:
    """Write what the service needs; returns the file of Modal's app, or the folder of dstack's."""
    folder.mkdir(parents=True, exist_ok=True)
    if service == "dstack":
        for run in runs:
            (folder / f"{run.name}.dstack.yml").write_text(dump_yaml(dstack_task(run, resources)))
        return folder
    tasks = [{"name": run.name, "seed": str(run.seed), "config": run.config} for run in runs]
    (folder / "tasks.json").write_text(json.dumps(tasks, indent=1) + "\n")
    text = MODAL_APP.read_text(encoding="utf-8").format(
        file=MODAL_FILE,
        app="".join(c if c.isalnum() or c in "-_." else "-" for c in title)[:60],
        cpus=float(resources.cpus),
        memory_mb=round(1000 * resources.memory_gb),
        gpu=repr("any") if resources.gpus else "None",
        timeout_s=min(86_400, round(3600 * max(1.0, resources.hours))),
    )
    (folder / MODAL_FILE).write_text(text)
    return folder / MODAL_FILE


def dstack_task(run: CloudRun, resources: Resources) -> dict[str, Any]:
    """The configuration of one task, as in dstack's reference."""
    needs: dict[str, Any] = {"cpu": f"{resources.cpus}..", "memory": f"{resources.memory_gb:g}GB.."}
    if resources.gpus:
        needs["gpu"] = resources.gpus
    here = f"cat > config.yaml <<'END_OF_CONFIG'\n{run.config.rstrip()}\nEND_OF_CONFIG"
    argv = ["gsolve", "train", "config.yaml", "--seed", str(run.seed), "--run-dir",
            f"{RUNS}/{run.name}", "--if-exists", "resume", "--quiet"]  # fmt: skip
    # 75: preempted and saved. dstack retries tasks that fail, and the run continues.
    return {
        "type": "task",
        "name": dstack_name(run.name),
        "python": "3.11",
        "env": [f"GSOLVE_RUNS={RUNS}"],
        "volumes": [{"instance_path": RUNS, "path": RUNS}],
        "commands": ["pip install gymnasium-solver", here, shlex.join(argv)],
        "resources": needs,
        "max_duration": f"{max(1, round(resources.hours))}h",
        "retry": {"on_events": ["no-capacity", "interruption", "error"], "duration": "1d"},
    }


def dstack_name(name: str) -> str:
    """dstack's names: lower case, at most 41 characters, from a letter on."""
    slug = re.sub(r"[^a-z0-9-]+", "-", name.lower()).strip("-")
    if len(slug) <= 41:
        return slug
    return f"{slug[:32].strip('-')}-{hashlib.sha256(name.encode()).hexdigest()[:8]}"


def command(service: str, made: Path) -> list[str]:
    """What starts it; `made` is the file of one run or of the app."""
    how = "modal run --detach" if service == "modal" else "dstack apply -d -y -f"
    return [*how.split(), str(made)]


def submit(service: str, made: Path) -> int:
    """Start all runs; the exit code of the first command that fails."""
    for file in sorted(made.glob("*.dstack.yml")) if made.is_dir() else [made]:
        done = subprocess.run(command(service, file))
        if done.returncode:
            return done.returncode
    return 0
