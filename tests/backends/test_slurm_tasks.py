"""Runs as single Slurm jobs, with stand-ins for Slurm's commands."""

import os
import stat
from pathlib import Path

import pytest

from gymnasium_solver.backends import slurm
from gymnasium_solver.backends.resources import Resources
from gymnasium_solver.backends.slurm import SlurmBackend
from tests.experiments.real_runs import wait_for

TOOLS = {
    # A job is a process of its own; its id is the job's.
    "sbatch": """#!/bin/bash
script="${@: -1}"; log=$(sed -n 's/^#SBATCH --output=//p' "$script" | sed 's/%a/0/')
SLURM_ARRAY_TASK_ID=0 setsid bash "$script" >> "$log" 2>&1 < /dev/null &
echo $!
""",
    "squeue": """#!/bin/bash
while [ $# -gt 0 ]; do [ "$1" = -j ] && id=$2; shift; done
kill -0 $id 2>/dev/null && echo "0 RUNNING"
exit 0
""",
    "scancel": """#!/bin/bash
[ "$1" = "--state=PENDING" ] && exit 0
kill -TERM "${@: -1}"
""",
}


@pytest.fixture
def backend(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SlurmBackend:
    tools = tmp_path / "tools"
    tools.mkdir()
    for name, text in TOOLS.items():
        (tools / name).write_text(text)
        (tools / name).chmod(stat.S_IRWXU)
    monkeypatch.setenv("PATH", f"{tools}:{os.environ['PATH']}")
    monkeypatch.setattr(slurm, "ASK_EVERY_S", 0.0)
    return SlurmBackend(Resources(1, 1.0, 0, 1.0), ["--partition=small"])


def test_a_run_is_a_job(backend: SlurmBackend, tmp_path: Path) -> None:
    folder = tmp_path / "runs" / "a"
    assert not backend.is_running(folder)
    backend.start(["bash", "-c", "echo here; sleep 0.5"], folder)
    assert backend.is_running(folder)
    assert "#SBATCH --partition=small" in (folder / "slurm" / "job.sbatch").read_text()
    wait_for(lambda: not backend.is_running(folder), 20)
    assert backend.tail(folder) == ["here"]
    assert backend.stuck(folder) == 1  # it left no checkpoint
    backend.start(["bash", "-c", "true"], folder)
    assert backend.stuck(folder) == 2
    wait_for(lambda: not backend.is_running(folder), 20)


def test_another_coordinator_finds_the_job_and_stops_it(
    backend: SlurmBackend, tmp_path: Path
) -> None:
    folder = tmp_path / "runs" / "a"
    backend.start(["sleep", "60"], folder)
    other = SlurmBackend(backend.resources)
    assert other.is_running(folder)
    other.stop(folder)
    wait_for(lambda: not other.is_running(folder), 20)
    assert (folder / "slurm" / "cancelled").exists()
