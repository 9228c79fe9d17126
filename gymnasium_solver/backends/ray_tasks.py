"""Ray: every run is a task on a cluster, existing or local.

    backend = RayBackend(cpus=2)
    Pool(jobs=8, backend=backend)

A task runs `gsolve train` as a child that dies with its worker, and returns the exit code. If a
node is lost, the pool starts the run again, elsewhere, and it continues from its folder: that must
be on a disk that all nodes see. Ray itself retries nothing.
"""

import os
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from gymnasium_solver.backends import local
from gymnasium_solver.backends.local import LAUNCH, BackendError, CountedStarts, with_this_python


def run_argv(argv: list[str], folder: str, env: dict[str, str]) -> int:
    """What a worker does: run the argv, pass a cancellation on as SIGTERM, return the exit code."""
    os.makedirs(folder, exist_ok=True)
    tied = [*LAUNCH, "tied", *with_this_python(argv)]
    with (Path(folder) / local.LOG).open("ab") as output:
        child = subprocess.Popen(
            tied, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT,
            env={**os.environ, **env},
        )  # fmt: skip
        try:
            # Not `wait`: ray.cancel sets a KeyboardInterrupt, which does not end a system call.
            while (code := child.poll()) is None:
                time.sleep(0.1)
            return code
        except BaseException:
            child.terminate()
            return child.wait()


class RayBackend(CountedStarts):
    """Starts runs as Ray tasks. `address`: of an existing cluster; None: one on this machine."""

    def __init__(
        self, address: str | None = None, *, cpus: int = 1, gpus: float = 0, memory_gb: float = 0.0
    ) -> None:
        try:
            import ray
        except ImportError:
            raise BackendError(
                "Ray is not installed: pip install 'gymnasium-solver[ray]', or use --backend local"
            ) from None
        super().__init__()
        self._ray: Any = ray
        if not ray.is_initialized():
            try:
                ray.init(address=address, log_to_driver=False, configure_logging=False)
            except Exception as error:
                where = address or "this machine"
                raise BackendError(f"no Ray cluster at {where}: {error}") from None
        options: dict[str, Any] = {"num_cpus": cpus, "num_gpus": gpus, "max_retries": 0}
        if memory_gb:
            options["memory"] = int(memory_gb * 1e9)
        self._task = ray.remote(**options)(run_argv)
        self._refs: dict[Path, Any] = {}
        self._codes: dict[Path, int | None] = {}

    def start(self, argv: Sequence[str], folder: Path, *, cpus: int | None = None) -> object:
        self.note_start(folder)
        env = {} if cpus is None else {"GSOLVE_CPUS": str(cpus)}
        env["PYTHONPATH"] = os.environ.get("PYTHONPATH", "")
        self._codes.pop(folder, None)
        self._refs[folder] = self._task.remote(list(argv), str(folder.absolute()), env)
        return self._refs[folder]

    def is_running(self, folder: Path) -> bool:
        ref = self._refs.get(folder)
        if ref is None:
            return False
        ready, _ = self._ray.wait([ref], timeout=0)
        if not ready:
            return True
        try:
            self._codes[folder] = self._ray.get(ref)
        except Exception:  # the worker or its node is gone
            self._codes[folder] = None
        del self._refs[folder]
        return False

    def exit_code(self, folder: Path) -> int | None:
        return self._codes.get(folder)

    def stop(self, folder: Path) -> object:
        ref = self._refs.get(folder)
        return None if ref is None else self._ray.cancel(ref, force=False)

    def tail(self, folder: Path, lines: int = 20) -> list[str]:
        return local.tail(folder, lines)
