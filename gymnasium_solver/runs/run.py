"""A run is one folder, `runs/<id>/`. This module creates it and writes to it.

    run = Run.create(config_yaml, {"env_id": ..., "algo_id": ..., "variant": ..., "seed": ...},
                     runs_root(), command=sys.argv)
    run.log_metrics({"env_steps": 1024, "epoch": 1, "wall_s": 0.4, "train/roll/ep_rew/mean": 21.0})
    run.log_event("eval", env_steps=1024, epoch=1, mean=23.1)
    run.update_meta(status="finished", stop_reason="solved")

Readers use `runs/query.py`; references such as `@last` are resolved in `runs/resolve.py`. Only one
process may write a run at a time.
"""

import json
import os
import re
import secrets
from collections.abc import Mapping
from datetime import UTC, datetime
from io import BufferedRandom
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from gymnasium_solver.errors import RunError
from gymnasium_solver.runs import machine
from gymnasium_solver.runs.checkpoint import rewind
from gymnasium_solver.runs.files import (
    dump_json,
    jsonable,
    read_json,
    write_atomic,
    write_pointer,
)
from gymnasium_solver.runs.metrics import read_jsonl
from gymnasium_solver.runs.results import RunResults

LAST_RUN = "@last"
STATUSES = ("created", "running", "finished", "interrupted", "failed")
_ANSI = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)")


def runs_root(cli_value: str | Path | None = None) -> Path:
    """The folder of all runs: the command line's value, then $GSOLVE_RUNS, then ./runs."""
    return Path(cli_value or os.environ.get("GSOLVE_RUNS") or "runs")


def utc_now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")


class Run(RunResults):
    """One run folder. Opening it reads nothing; each write leaves the folder consistent.

    What it came to (`best`, `test`, `agent()`, ...) is in runs/results.py."""

    def __init__(self, path: Path):
        self.path = path
        self.id = path.name
        self._appenders: dict[Path, BufferedRandom] = {}

    @property
    def config_path(self) -> Path:
        return self.path / "config.yaml"

    @property
    def meta_path(self) -> Path:
        return self.path / "meta.json"

    @property
    def metrics_path(self) -> Path:
        return self.path / "metrics.jsonl"

    @property
    def events_path(self) -> Path:
        return self.path / "events.jsonl"

    @property
    def log_path(self) -> Path:
        return self.path / "run.log"

    @property
    def report_path(self) -> Path:
        return self.path / "report.md"

    @property
    def page_path(self) -> Path:
        return self.path / "report.html"

    @property
    def checkpoints_dir(self) -> Path:
        return self.path / "checkpoints"

    @property
    def videos_dir(self) -> Path:
        return self.path / "videos"

    @classmethod
    def create(
        cls,
        config_yaml: str,
        config: Mapping[str, Any],
        root: Path,
        command: list[str] | None = None,
    ) -> Self:
        """Create a new run folder under `root` and point `@last` at it.

        `config` gives the identity: env_id, algo_id and, if known, variant, seed, reward_threshold,
        max_env_steps, changed (fields that differ from the shipped config).
        """
        git, diff = machine.git_state(Path.cwd())
        run = cls(_make_folder(root, config))
        run.checkpoints_dir.mkdir()
        run.videos_dir.mkdir()
        for path in (run.metrics_path, run.events_path, run.log_path):
            path.touch()
        write_atomic(run.config_path, config_yaml.encode())
        if diff:
            write_atomic(run.path / "git.diff", diff)
        write_atomic(run.meta_path, dump_json(_first_meta(run.id, config, command or [], git)))
        write_pointer(root / LAST_RUN, run.id)
        return run

    def meta(self) -> dict[str, Any]:
        return read_json(self.meta_path, "It is written at creation; is this a run folder?")

    def update_meta(self, **fields: Any) -> None:
        """Set fields of meta.json atomically. Costs one fsync, so do not call it every epoch."""
        status = fields.get("status", "running")
        if status not in STATUSES:
            raise ValueError(f"status {status!r}; expected one of {', '.join(STATUSES)}")
        meta = self.meta() | fields | {"updated_at": utc_now()}
        write_atomic(self.meta_path, dump_json(meta))

    def log_metrics(self, row: Mapping[str, Any]) -> None:
        """Append one row; `env_steps` is its clock. Non-finite values become null."""
        if "env_steps" not in row:
            raise ValueError(f"a metrics row needs env_steps; got {sorted(row)}")
        self._append_json(self.metrics_path, row)

    def log_event(self, kind: str, **fields: Any) -> None:
        """Append an event (evaluation, checkpoint, ...) with a timestamp."""
        self._append_json(self.events_path, {"kind": kind, "at": utc_now()} | fields)

    def log_text(self, text: str) -> None:
        """Append console output to run.log, without colours."""
        self._append(self.log_path, (_ANSI.sub("", text).rstrip("\n") + "\n").encode())

    def begin_resume(self, env_steps: int, command: list[str] | None = None) -> None:
        """Go back to a checkpoint and record that this process continues training from it.

        Later checkpoints are removed before later rows: if the process is killed in between, the
        next resume repairs it. In the other order `last` would be ahead of its metrics.
        """
        meta = self.meta()
        if is_alive_here(meta) and meta["pid"] != os.getpid():
            raise RunError(
                f"{self.id} is still {meta['status']} in process {meta['pid']}. "
                "Stop it before resuming, or start a new run with `gsolve train`."
            )
        for leftover in self.path.glob(".*.tmp-*"):
            leftover.unlink()
        rewind(self.checkpoints_dir, env_steps)
        self.truncate_after(env_steps)
        entry = {
            "at": utc_now(),
            "from_env_steps": env_steps,
            "command": command or [],
            "versions": machine.versions(),
        }
        resumed = [*meta.get("resumed", []), entry]
        solved = None if meta.get("threshold") is None else False  # until it is tested again
        verdict: dict[str, Any] = {"test": None, "solved": solved}
        verdict |= {"stop_reason": None, "stop_detail": None}
        fields = {"env_steps": env_steps, "resumed": resumed} | _process()
        self.update_meta(status="running", **verdict, **fields)

    def truncate_after(self, env_steps: int) -> None:
        """Drop rows and events after a checkpoint, the final test, and an incomplete last line.

        A row at exactly `env_steps` is kept: log it before saving the checkpoint.
        """
        self.close()
        for path in (self.metrics_path, self.events_path):
            kept = [
                row
                for row in read_jsonl(path)
                if (row.get("env_steps") or 0) <= env_steps and row.get("stage") != "test"
            ]
            write_atomic(path, b"".join(_json_line(row) for row in kept))

    def close(self) -> None:
        """Close the append handles; a later append reopens them."""
        for file in self._appenders.values():
            file.close()
        self._appenders.clear()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _append_json(self, path: Path, row: Mapping[str, Any]) -> None:
        self._append(path, _json_line(row))

    def _append(self, path: Path, line: bytes) -> None:
        file = self._appenders.get(path)
        if file is None:
            file = self._appenders[path] = _open_for_append(path)
        file.write(line)
        file.flush()


def is_run(path: Path) -> bool:
    return (path / "meta.json").is_file()


def is_alive_here(meta: Mapping[str, Any]) -> bool:
    """Whether the process that writes the run is alive on this machine and has not finished the
    run."""
    if meta.get("status") not in ("created", "running") or not isinstance(meta.get("pid"), int):
        return False
    return _is_here(meta) and machine.is_alive(meta["pid"], meta.get("pid_started"))


def live_status(meta: Mapping[str, Any]) -> str:
    """The status in meta.json; "killed" if the recorded process is gone from this machine."""
    status = str(meta.get("status"))
    if status in ("created", "running") and _is_here(meta) and not is_alive_here(meta):
        return "killed"
    return status


def _is_here(meta: Mapping[str, Any]) -> bool:
    return (meta.get("machine") or {}).get("hostname") == machine.hostname()


def _make_folder(root: Path, config: Mapping[str, Any]) -> Path:
    """Create a folder owned by this process: mkdir is the lock, the hex digits avoid collisions."""
    name = f"{config['env_id']}-{config.get('variant') or config['algo_id']}"
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", name).strip("-.")
    try:
        root.mkdir(parents=True, exist_ok=True)
        while True:
            now = datetime.now(UTC).strftime("%Y%m%d-%H%M%S")
            path = root / f"{name}-{now}-{secrets.token_hex(2)}"
            try:
                path.mkdir()
            except FileExistsError:
                continue
            return path
    except OSError as error:
        raise RunError(
            f"cannot create a run folder in {root}: {error}. Choose another folder with "
            "--runs-dir or GSOLVE_RUNS."
        ) from error


def _process() -> dict[str, Any]:
    """The process that writes the run; replaced on resume, possibly on another machine."""
    pid = os.getpid()
    return {
        "pid": pid,
        "pid_started": machine.process_start(pid),
        "machine": machine.machine(),
    }


def _first_meta(
    run_id: str, config: Mapping[str, Any], command: list[str], git: dict[str, Any] | None
) -> dict[str, Any]:
    now = utc_now()
    return {
        "id": run_id,
        "env_id": config["env_id"],
        "algo_id": config["algo_id"],
        "variant": config.get("variant"),
        "seed": config.get("seed"),
        "threshold": config.get("reward_threshold"),
        "max_env_steps": config.get("max_env_steps"),
        "changed": config.get("changed"),
        "created_at": now,
        "updated_at": now,
        "command": command,
        "versions": machine.versions(),
        "git": git,
        **_process(),
        "status": "created",
        "stop_reason": None,
        "solved": None,
        "test": None,
        "env_steps": 0,
        "epoch": 0,
        "episodes": 0,
        "wall_s": 0.0,
        "best": None,
        "last_eval": None,
        "resumed": [],
    }


def _json_line(row: Mapping[str, Any]) -> bytes:
    text = json.dumps(jsonable(row, where="row"), ensure_ascii=False, allow_nan=False)
    return (text + "\n").encode()


def _open_for_append(path: Path) -> BufferedRandom:
    """Open at the end of the last complete line; an incomplete one is cut off first."""
    path.touch()
    file = path.open("r+b")
    end = file.seek(0, os.SEEK_END)
    while end > 0:
        start = max(0, end - 4096)
        file.seek(start)
        newline = file.read(end - start).rfind(b"\n")
        if newline >= 0:
            end = start + newline + 1
            break
        end = start
    file.truncate(end)
    file.seek(end)
    return file
