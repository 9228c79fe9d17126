"""The first moment of a process that becomes another program, and keeps its process id.

    python -m gymnasium_solver.backends.launch claim FOLDER CPUS ARGV...

records itself as the job of a folder (local.py) and becomes ARGV;

    python -m gymnasium_solver.backends.launch tied ARGV...

becomes ARGV, and dies with its parent: Linux sends SIGKILL when the parent ends, so that a training
does not outlive the Ray worker or the node that was lost, while another one continues the same run.
Elsewhere the lock of the run keeps two from writing it;

    python -m gymnasium_solver.backends.launch task FOLDER INDEX

becomes one of the argvs in FOLDER/tasks.json, a job array of Slurm.
"""

import json
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

TASKS = "tasks.json"
PR_SET_PDEATHSIG = 1


def write_tasks(folder: Path, argvs: Sequence[Sequence[str]]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / TASKS).write_text(json.dumps([list(argv) for argv in argvs], indent=1) + "\n")


def with_this_python(argv: list[str]) -> list[str]:
    """The argv with the Python of this machine: another one may have it in another place."""
    is_ours = argv[1:3] == ["-m", "gymnasium_solver"]
    return [sys.executable, *argv[1:]] if is_ours else argv


def main(words: Sequence[str]) -> int:
    how, *rest = words
    argv = rest
    if how == "claim":
        from gymnasium_solver.backends.local import claim

        argv = rest[2:]
        if (refusal := claim(Path(rest[0]), int(rest[1]), argv)) is not None:
            return refusal
    elif how == "task":
        argv = with_this_python(json.loads((Path(rest[0]) / TASKS).read_text())[int(rest[1])])
    elif not die_with_parent():
        return 1
    try:
        os.execvp(argv[0], argv)
    except OSError as error:
        print(f"cannot run {argv[0]}: {error.strerror}", file=sys.stderr)
        return 127


def die_with_parent() -> bool:
    """Be killed when the parent ends; False if it has ended before."""
    parent = os.getppid()
    if sys.platform == "linux":
        import ctypes

        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    return os.getppid() == parent


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
