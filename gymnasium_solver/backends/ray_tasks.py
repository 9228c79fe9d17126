"""Ray: every run is a task on a cluster, existing or local.

A task runs `gsolve train` as a child that dies with its worker, and returns the exit code. If a
node is lost, the pool starts the run again, elsewhere, and it continues from its folder. Ray itself
retries nothing. A worker that does not see the folder of the run says so, and the run is started
again as a carried one: its folder and config go to the worker, and what changes comes back every
few seconds by way of an actor beside the coordinator (carried.py).
"""

import os
import secrets
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from gymnasium_solver.backends import local
from gymnasium_solver.backends.carried import Changes, apply
from gymnasium_solver.backends.local import LAUNCH, BackendError, CountedStarts, with_this_python
from gymnasium_solver.errors import told_as

SEEN = "job.seen"  # written by the coordinator, looked for by the worker
NOT_SEEN = -1000  # in place of an exit code
CARRY_S = 5.0  # between two looks at what has changed


def run_argv(
    argv: list[str],
    folder: str,
    env: dict[str, str],
    token: str | None = None,
    on_poll: Callable[[], bool] | None = None,
) -> int:
    """What a worker does: run the argv, pass a cancellation on as SIGTERM, return the exit code;
    NOT_SEEN if the folder lacks what the coordinator wrote. `on_poll` is called ten times a second
    and says whether to stop."""
    if token is not None and not _is_seen(Path(folder), token):
        return NOT_SEEN
    os.makedirs(folder, exist_ok=True)
    tied = [*LAUNCH, "tied", *with_this_python(argv)]
    with (Path(folder) / local.LOG).open("ab") as output:
        child = subprocess.Popen(
            tied, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT,
            env={**os.environ, **env},
        )  # fmt: skip
        is_stopped = False
        try:
            # Not `wait`: ray.cancel sets a KeyboardInterrupt, which does not end a system call.
            while (code := child.poll()) is None:
                time.sleep(0.1)
                if on_poll is not None and on_poll() and not is_stopped:
                    is_stopped = True
                    child.terminate()
            return code
        except BaseException:
            child.terminate()
            return child.wait()


def run_carried(
    argv: list[str],
    folder: str,
    env: dict[str, str],
    cargo: "Cargo",
    exchange: Callable[[list[bytes]], bool],
) -> int:
    """The same for a worker that does not see the folder. `exchange(parts)` sends what has changed
    and says whether to stop."""
    scratch = Path(tempfile.mkdtemp(prefix="gsolve-ray-"))
    try:
        own = scratch / "run"
        own.mkdir()
        for part in cargo.parts:
            apply(part, own)
        there = {folder: str(own)}
        for i, (word, data) in enumerate(cargo.configs.items()):
            copy = scratch / str(i) / Path(word).name
            copy.parent.mkdir()
            copy.write_bytes(data)
            there[word] = str(copy)
        changes, looked_s = Changes(own, known=True), time.monotonic()

        def on_poll() -> bool:
            nonlocal looked_s
            if time.monotonic() - looked_s < CARRY_S:
                return False
            is_stopped = exchange(list(changes.parts()))
            looked_s = time.monotonic()
            return bool(is_stopped)

        code = run_argv([there.get(w, w) for w in argv], str(own), env, None, on_poll)
        exchange(list(changes.parts()))
        return code
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


class Cargo(NamedTuple):
    """What a carried run needs at its worker."""

    parts: list[bytes]  # of its folder, as the coordinator has it
    configs: dict[str, bytes]  # the files that its command line names, by the word that does

    @classmethod
    def of(cls, argv: Sequence[str], folder: Path) -> "Cargo":
        words = [word for word in argv if word.endswith((".yaml", ".yml", ".json"))]
        configs = {word: Path(word).read_bytes() for word in words if Path(word).is_file()}
        return cls(list(Changes(folder).parts()), configs)


class Mailbox:
    """An actor beside the coordinator: what workers have sent, and which runs are to stop."""

    def __init__(self) -> None:
        self.parts: dict[str, list[bytes]] = {}
        self.stopping: set[str] = set()

    def put(self, folder: str, parts: list[bytes]) -> bool:
        self.parts.setdefault(folder, []).extend(parts)
        return folder in self.stopping

    def take(self, folder: str) -> list[bytes]:
        return self.parts.pop(folder, [])

    def ask_to_stop(self, folder: str, is_asked: bool = True) -> None:
        (self.stopping.add if is_asked else self.stopping.discard)(folder)


def _run_with_mailbox(
    argv: list[str], folder: str, env: dict[str, str], cargo: Cargo, mailbox: Any
) -> int:
    """`run_carried` as a task of Ray."""
    import ray

    return run_carried(
        argv, folder, env, cargo, lambda parts: bool(ray.get(mailbox.put.remote(folder, parts)))
    )


def _is_seen(folder: Path, token: str) -> bool:
    try:
        return (folder / SEEN).read_text() == token
    except OSError:
        return False


class RayBackend(CountedStarts):
    """Starts runs as Ray tasks. `address`: of an existing cluster; None: one on this machine.
    `carries`: send the folders of runs to and fro, as when a worker does not see them."""

    def __init__(
        self,
        address: str | None = None,
        *,
        cpus: int = 1,
        gpus: float = 0,
        memory_gb: float = 0.0,
        carries: bool = False,
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
            with told_as(BackendError, f"no Ray cluster at {address or 'this machine'}", Exception):
                ray.init(address=address, log_to_driver=False, configure_logging=False)
        options: dict[str, Any] = {"num_cpus": cpus, "num_gpus": gpus, "max_retries": 0}
        if memory_gb:
            options["memory"] = int(memory_gb * 1e9)
        self._task = ray.remote(**options)(run_argv)
        self._carried_task = ray.remote(**options)(_run_with_mailbox)
        self.carries = carries
        self._carried: set[Path] = set()
        self._mailbox: Any = None
        self._refs: dict[Path, Any] = {}
        self._codes: dict[Path, int | None] = {}
        self._starts: dict[Path, tuple[list[str], dict[str, str]]] = {}

    def start(self, argv: Sequence[str], folder: Path, *, cpus: int | None = None) -> object:
        self.note_start(folder)
        env = {} if cpus is None else {"GSOLVE_CPUS": str(cpus)}
        env["PYTHONPATH"] = os.environ.get("PYTHONPATH", "")
        self._codes.pop(folder, None)
        self._starts[folder] = list(argv), env
        return self._submit(folder)

    def _submit(self, folder: Path) -> object:
        argv, env = self._starts[folder]
        place = str(folder.absolute())
        self._carried.discard(folder)
        if self.carries:
            # The folder as the command line has it, which is what the worker replaces.
            argv = [place if word == str(folder) else word for word in argv]
            if place not in argv or "--run-dir" not in argv:
                raise BackendError(
                    f"{folder} is not seen by the workers of Ray, and only a single run can be "
                    "carried to them: train without --stack, or put the runs on a disk that all "
                    "nodes see (--runs-dir)"
                )
            self._ray.get(self._mail().ask_to_stop.remote(place, False))
            cargo = self._ray.put(Cargo.of(argv, folder))
            self._carried.add(folder)
            self._refs[folder] = self._carried_task.remote(argv, place, env, cargo, self._mail())
        else:
            token = secrets.token_hex(8)
            (folder / SEEN).write_text(token)
            self._refs[folder] = self._task.remote(argv, place, env, token)
        return self._refs[folder]

    def _mail(self) -> Any:
        if self._mailbox is None:
            from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

            here = self._ray.get_runtime_context().get_node_id()
            where = NodeAffinitySchedulingStrategy(here, soft=True)
            kind = self._ray.remote(num_cpus=0, scheduling_strategy=where)(Mailbox)
            self._mailbox = kind.remote()
        return self._mailbox

    def is_running(self, folder: Path) -> bool:
        ref = self._refs.get(folder)
        if ref is None:
            return False
        ready, _ = self._ray.wait([ref], timeout=0)
        self._fetch(folder)  # after `wait`: what a run sent before its end is there
        if not ready:
            return True
        try:
            code = self._ray.get(ref)
        except Exception:  # the worker or its node is gone
            code = None
        if code == NOT_SEEN:
            self.carries = True
            self._submit(folder)
            return True
        self._codes[folder] = code
        del self._refs[folder]
        return False

    def _fetch(self, folder: Path) -> None:
        """Put what a carried run has sent into its folder."""
        if folder in self._carried:
            for part in self._ray.get(self._mail().take.remote(str(folder.absolute()))):
                apply(part, folder)

    def exit_code(self, folder: Path) -> int | None:
        return self._codes.get(folder)

    def stop(self, folder: Path) -> object:
        if (ref := self._refs.get(folder)) is None:
            return None
        if folder in self._carried:  # a task that was cancelled could not send what it saves
            return self._ray.get(self._mail().ask_to_stop.remote(str(folder.absolute())))
        return self._ray.cancel(ref, force=False)

    tail = staticmethod(local.tail)
