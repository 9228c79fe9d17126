"""Modal: one function that runs a training, forwards SIGTERM and continues from a Volume.

Tried up to the door of the service: the file is imported by Modal's own package and its function
called locally; running it needs an account. Modal preempts with SIGTERM and starts the function
again with the same input, which then resumes.
"""

import json
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from gymnasium_solver.backends.resources import Resources

FILE = "modal_app.py"
TEMPLATE = '''\
"""Runs an experiment on Modal: modal run --detach {file}"""

import json
import pathlib
import signal
import subprocess

import modal

TASKS = json.loads(pathlib.Path(__file__).with_name("tasks.json").read_text()) if modal.is_local() \
else []
image = modal.Image.debian_slim(python_version="3.11").pip_install("gymnasium-solver")
volume = modal.Volume.from_name("gymnasium-solver-runs", create_if_missing=True)
app = modal.App("{app}", image=image)


@app.function(cpu={cpus}, memory={memory_mb}, gpu={gpu}, timeout={timeout_s},
              volumes={{"/runs": volume}}, retries=modal.Retries(max_retries=8, initial_delay=0.0))
def train(task: dict, runs: str = "/runs") -> int:
    """One run: the argv in its folder, which a restart finds again."""
    config = pathlib.Path(runs) / "configs" / (task["name"] + ".yaml")
    config.parent.mkdir(parents=True, exist_ok=True)
    config.write_text(task["config"])
    argv = ["gsolve", "train", str(config), "--seed", task["seed"], "--run-dir",
            runs + "/" + task["name"], "--if-exists", "resume", "--quiet"]
    child = subprocess.Popen(argv)
    try:
        signal.signal(signal.SIGTERM, lambda *_: child.terminate())
    except ValueError:
        pass  # not in the main thread
    code = child.wait()
    if runs == "/runs":
        volume.commit()
    if code == 75:
        raise RuntimeError("preempted; the retry resumes it")
    return code


@app.local_entrypoint()
def main() -> None:
    for task, code in zip(TASKS, train.map(TASKS)):
        print(task["name"], "finished" if code == 0 else "exit code " + str(code))
'''


def write(
    folder: Path,
    title: str,
    names: Sequence[str],
    words: Sequence[Sequence[str]],
    experiment: Path,
    resources: Resources,
) -> Path:
    """Write the app and its tasks; returns the file of the app."""
    folder.mkdir(parents=True, exist_ok=True)
    tasks = [
        {"name": name, "seed": own[list(own).index("--seed") + 1],
         "config": Path(own[0]).read_text()}
        for name, own in zip(names, words, strict=True)
    ]  # fmt: skip
    (folder / "tasks.json").write_text(json.dumps(tasks, indent=1) + "\n")
    text = TEMPLATE.format(
        file=FILE,
        app="".join(c if c.isalnum() or c in "-_." else "-" for c in title)[:60],
        cpus=float(resources.cpus),
        memory_mb=round(1000 * resources.memory_gb),
        gpu=repr("any") if resources.gpus else "None",
        timeout_s=min(86_400, round(3600 * max(1.0, resources.hours))),
    )
    path = folder / FILE
    path.write_text(text)
    return path


def command(path: Path) -> list[str]:
    return ["modal", "run", "--detach", str(path)]


def is_installed() -> bool:
    return shutil.which("modal") is not None


def submit(path: Path) -> int:
    return subprocess.run(command(path)).returncode
