"""Shared by all measurements: timed subprocesses, the description of the machine, statistics over
repeats and seeds, tables, and result files.

Results name neither the host nor paths of the machine that measured.
"""

import json
import os
import platform
import re
import resource
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import psutil

from gymnasium_solver.runs.machine import cpu_name, installed

ROOT = Path(__file__).resolve().parents[2]
IN_CHECKOUT = (ROOT / "benchmarks/training.py").exists()  # not in an installed wheel
GSOLVE = str(Path(sys.executable).with_name("gsolve"))
PACKAGES = ("gymnasium-solver", "torch", "numpy", "gymnasium", "envpool", "mujoco")
NO_BYTECODE = "PYTHONDONTWRITEBYTECODE"
THREAD_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")


@dataclass(frozen=True)
class Options:
    """What to measure and how thoroughly, and which Python has the peers."""

    repeats: int
    quick: bool = False  # a short pass, to check that it works
    tasks: tuple[str, ...] = ()  # of the parts that have some; empty: all of them
    peers_python: Path = ROOT / ".venv-peers/bin/python"
    peers_jax_python: Path = ROOT / ".venv-peers-jax/bin/python"

    def chosen(self, tasks: Iterable[str]) -> list[str]:
        """Those of a part's tasks that are asked for."""
        return [task for task in tasks if task in self.tasks or not self.tasks]


class Timed(NamedTuple):
    """A process from its start to its exit."""

    wall_s: float
    others_cores: float  # cores that other processes used meanwhile
    stdout: str


class FailedProcess(RuntimeError):
    """A measured process failed; the message has the end of its output."""


def timed(
    command: Sequence[str],
    *,
    core: int | None = None,
    n_threads: int | None = None,
    environment: Mapping[str, str] | None = None,
) -> Timed:
    """Run a process to its end; FailedProcess if it fails.

    `core` pins the process to one core (Linux only). `n_threads` sets the variables that numeric
    libraries read; None removes them, so that each library takes its default."""
    env = own_environment(without=THREAD_VARIABLES)
    if n_threads is not None:
        env |= dict.fromkeys(THREAD_VARIABLES, str(n_threads))
    pin = None
    if core is not None and hasattr(os, "sched_setaffinity"):
        pin = lambda: os.sched_setaffinity(0, {core})  # noqa: E731
    meter = Meter()
    done = subprocess.run(
        command,
        cwd=ROOT if IN_CHECKOUT else None,
        env=env | dict(environment or {}),
        preexec_fn=pin,
        capture_output=True,
        text=True,
    )
    wall_s, others_cores = meter.read()
    if done.returncode != 0:
        last = (done.stderr or done.stdout).strip().splitlines()[-5:]
        text = f"exit code {done.returncode} from {' '.join(command)}: {' | '.join(last)}"
        # File names without their folders: messages end up in result files.
        raise FailedProcess(re.sub(r"(?<![\w.])/(?:[^/\s\"':]+/)+", "", text))
    return Timed(wall_s, others_cores, done.stdout)


def own_environment(without: Sequence[str] = ()) -> dict[str, str]:
    """Environment variables for a measured process.

    Bytecode is kept, as after any installation. Many images switch that off, and then modules that
    were not compiled before are compiled at every start."""
    return {k: v for k, v in os.environ.items() if k not in (NO_BYTECODE, *without)}


class Meter:
    """Wall seconds since it was made, and how many cores other processes used meanwhile.

    Another process on one of two cores can slow a two-threaded learner tenfold, because its
    threads wait for each other at every operation: do not compare figures from a busy machine."""

    def __init__(self) -> None:
        self._start, self._busy, self._own = time.perf_counter(), _busy_s(), _own_s()

    def read(self) -> tuple[float, float]:
        wall_s = time.perf_counter() - self._start
        others_s = _busy_s() - self._busy - (_own_s() - self._own)
        return wall_s, max(0.0, others_s) / wall_s


def _busy_s() -> float:
    """CPU seconds used on this machine since it started, over all cores."""
    times = psutil.cpu_times()
    kinds = ("user", "nice", "system", "irq", "softirq", "steal")  # not all systems have all
    return sum(getattr(times, kind, 0.0) for kind in kinds)


def _own_s() -> float:
    """CPU seconds of this process and of its children that have ended."""
    both = [resource.getrusage(w) for w in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(used.ru_utime + used.ru_stime for used in both)


def cores() -> list[int]:
    if hasattr(os, "sched_getaffinity"):
        return sorted(os.sched_getaffinity(0))
    return list(range(os.cpu_count() or 1))


def machine() -> dict[str, Any]:
    load = os.getloadavg() if hasattr(os, "getloadavg") else None
    return {
        "system": platform.system(),
        "architecture": platform.machine(),
        "cpu": cpu_name(),
        "cores": len(cores()),
        "load_at_start": [round(x, 2) for x in load] if load else None,
    }


def versions() -> dict[str, str | None]:
    packages = {name: installed(name) for name in PACKAGES}
    return {"python": platform.python_version()} | packages | {"commit": _commit()}


def _commit() -> str | None:
    if not IN_CHECKOUT:
        return None
    git = ["git", "-C", str(ROOT)]
    head = subprocess.run([*git, "rev-parse", "--short", "HEAD"], capture_output=True, text=True)
    if head.returncode != 0:  # a copy of a checkout without git, as on a rented machine
        return os.environ.get("BENCH_COMMIT")
    # Not the results: those of one part are written before the next part begins.
    code = ["--", ".", ":(exclude)benchmarks/results"]
    changed = subprocess.run([*git, "diff", "--quiet", "HEAD", *code]).returncode != 0
    return head.stdout.strip() + ("+changes" if changed else "")


def spread(values: Sequence[float], digits: int = 0) -> str:
    """Median and range over repeats: `1,600 (1,580–1,640)`."""
    low, high = min(values), max(values)
    text = f"{np.median(values):,.{digits}f}"
    return text if len(values) == 1 else f"{text} ({low:,.{digits}f}–{high:,.{digits}f})"


def table(header: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join("| " + " | ".join(str(cell) for cell in line) + " |" for line in lines)


def describe(result: Mapping[str, Any]) -> str:
    """The lines under a table's title: date, command, machine, versions, and what is wrong with
    publishing it."""
    box, used = result["machine"], result["versions"]
    packages = ", ".join(f"{name} {v}" for name, v in used.items() if v and name != "commit")
    lines = [
        f"- measured {result['date']} by `{result['command']}`"
        + (f", commit {used['commit']}" if used["commit"] else ""),
        f"- {box['cpu']}, {box['cores']} cores, {box['system']} {box['architecture']}, "
        f"load before the start {(box['load_at_start'] or ['unknown'])[0]}",
        f"- {packages}",
    ]
    if reasons := unpublishable(result):
        lines.append(f"- **not for publishing**: {', '.join(reasons)}")
    return "\n".join(lines)


def unpublishable(result: Mapping[str, Any]) -> list[str]:
    """Why a result must not be quoted elsewhere (CONTRIBUTING.md, "Publishing a number")."""
    commit = result["versions"]["commit"]
    reasons = ["a --quick pass"] if "--quick" in result["command"] else []
    if commit is None:
        reasons.append("the commit is unknown")
    elif commit.endswith("+changes"):
        reasons.append("uncommitted changes")
    return reasons


def header(command: str) -> dict[str, Any]:
    return {
        "command": command,
        "date": datetime.now(UTC).date().isoformat(),
        "machine": machine(),
        "versions": versions(),
    }


def write(folder: Path, name: str, result: Mapping[str, Any], markdown: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{name}.json").write_text(json.dumps(result, indent=1) + "\n")
    (folder / f"{name}.md").write_text(markdown.rstrip() + "\n")


def earlier(folder: Path, name: str, result: Mapping[str, Any]) -> dict[str, Any] | None:
    """The result file of a pass that was broken off; None without one of this command and commit,
    or if there are uncommitted changes."""
    path = folder / f"{name}.json"
    if unpublishable(result) or not path.exists():
        return None
    found: dict[str, Any] = json.loads(path.read_text())
    commits = found["versions"]["commit"], result["versions"]["commit"]
    is_same = found["command"] == result["command"] and commits[0] == commits[1]
    return found if is_same else None


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
