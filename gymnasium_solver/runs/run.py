"""A run is one folder, `runs/<id>/`. This module creates it and writes to it.

    run = Run.create(config_yaml, {"env_id": ..., "algo_id": ..., "variant": ..., "seed": ...},
                     runs_root(), command=sys.argv)
    run.log_metrics({"env_steps": 1024, "epoch": 1, "wall_s": 0.4, "train/roll/ep_rew/mean": 21.0})
    run.log_event("eval", env_steps=1024, epoch=1, mean=23.1)
    run.update_meta(status="finished", stop_reason="solved")
    run.solved, run.test.mean, run.best.score
    run.agent().act(obs)
    pandas.DataFrame(run.metrics())

Readers use `runs/query.py`; references such as `@last` are resolved in `runs/resolve.py`. Only one
process may write a run at a time: `with run.lock(): ...`.
"""

import os
import re
import secrets
import shutil
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib import import_module
from io import FileIO
from pathlib import Path
from typing import Any, Self

from gymnasium_solver.errors import RunError, WriteError
from gymnasium_solver.paths import is_file, regular_handle, user_path
from gymnasium_solver.runs import files, machine
from gymnasium_solver.runs.checkpoint import CheckpointInfo, list_checkpoints, rewind
from gymnasium_solver.runs.jsonl import Appender, json_line, read_jsonl
from gymnasium_solver.runs.machine import signature
from gymnasium_solver.runs.summary import Fields, check_evaluation, summary_of, test_score

LAST_RUN = "@last"
STATUSES = ("created", "running", "finished", "interrupted", "failed")
# A backend puts these into the folder of a run before the run is created.
JOB_FILES = ("job.json", "job.lock", "job.log", "job.seen")
_ANSI = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)")


def runs_root(cli_value: str | Path | None = None) -> Path:
    """The folder of all runs: the command line's value, then $GSOLVE_RUNS, then ./runs."""
    root = user_path(cli_value or os.environ.get("GSOLVE_RUNS") or "runs")
    if is_file(root):
        raise RunError(f"the folder of the runs, {root}, is a file: give a folder (--runs-dir).")
    return root


def utc_now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")


@dataclass(frozen=True)
class HeldOutTest:
    """The held-out test of the selected checkpoint."""

    mean: float
    stderr: float | None  # standard error of the mean; None with one episode
    episodes: int
    greedy: bool
    success: float | None = None
    """Share of the episodes with a success at any step, where the env reports it."""


class Run:
    """One run folder. Opening it reads nothing; each write leaves the folder consistent. Results
    (`solved`, `test`, `best`, ...) are those of the folder as it is now."""

    def __init__(self, path: Path):
        self.path = path
        self.id = path.name
        self.config_path = path / "config.yaml"
        self.meta_path = path / "meta.json"
        self.metrics_path = path / "metrics.jsonl"
        self.events_path = path / "events.jsonl"
        self.log_path = path / "run.log"
        self.report_path = path / "report.md"
        self.page_path = path / "report.html"
        self.labels_path = path / "labels.json"
        self.activity_path = path / "activity.json"
        self.evaluations_path = path / "evaluations.jsonl"
        self.checkpoints_dir = path / "checkpoints"
        self.videos_dir = path / "videos"
        self.episodes_dir = path / "episodes"
        self.edits_path = path / "edits.jsonl"
        self.requests_dir = path / "requests"
        self.pause_path = path / "pause"  # while it exists, the training waits between epochs
        self._appenders: dict[Path, Appender] = {}

    @classmethod
    def create(
        cls,
        config_yaml: str,
        config: Mapping[str, Any],
        root: Path,
        command: list[str] | None = None,
        name: str | None = None,
        code: Sequence[str] = (),
    ) -> Self:
        """Create a new run folder under `root`, called `name` if given, and point `@last` at it.

        `config` gives the identity: env_id, algo_id and, if known, variant, seed, reward_threshold,
        max_env_steps, changed (fields that differ from the shipped config). `code`: the modules
        that the config makes the program import."""
        git, diff = machine.git_state(Path.cwd())
        run = cls(_make_folder(root, config, name))
        try:
            run.checkpoints_dir.mkdir()
            run.videos_dir.mkdir()
            for path in (run.metrics_path, run.events_path, run.log_path):
                path.touch()
            files.write_atomic(run.config_path, config_yaml.encode())
            if diff:
                files.write_atomic(run.path / "git.diff", diff)
            meta = _first_meta(run.id, config, command or [], git)
            files.write_atomic(
                run.meta_path, files.dump_json(meta | {"signature": signature(run.id, code)})
            )
            files.write_pointer(root / LAST_RUN, run.id)
        except OSError as error:
            shutil.rmtree(run.path, ignore_errors=True)
            raise files.cannot_write("a new run", root, error) from error
        return run

    def lock(self) -> AbstractContextManager[None]:
        """Keep other processes from writing this run; held while it trains."""
        return files.locked(self.path)

    def meta(self) -> dict[str, Any]:
        return files.read_json(self.meta_path, "It is written at creation; is this a run folder?")

    def update_meta(self, **fields: Any) -> None:
        """Set fields of meta.json atomically. Costs one fsync, so do not call it every epoch."""
        status = fields.get("status", "running")
        if status not in STATUSES:
            raise ValueError(f"status {status!r}; expected one of {', '.join(STATUSES)}")
        with files.writing("the status", self.meta_path):
            if not self.meta_path.exists():
                raise FileNotFoundError
            meta = self.meta() | fields | {"updated_at": utc_now()}
            files.write_atomic(self.meta_path, files.dump_json(meta))

    def write_config(self, config_yaml: str) -> None:
        """Replace config.yaml, at a resume with changed fields."""
        with files.writing("the config", self.config_path):
            files.write_atomic(self.config_path, config_yaml.encode())

    def log_metrics(self, row: Mapping[str, Any]) -> None:
        """Append one row; `env_steps` is its clock. Non-finite values become null."""
        if "env_steps" not in row:
            raise ValueError(f"a metrics row needs env_steps; got {sorted(row)}")
        self._append(self.metrics_path, json_line(row))

    def log_event(self, kind: str, **fields: Any) -> None:
        """Append an event (evaluation, checkpoint, ...) with a timestamp."""
        self._append(self.events_path, json_line({"kind": kind, "at": utc_now()} | fields))

    def log_text(self, text: str) -> None:
        """Append console output to run.log, without colours. Nothing else depends on this file, so
        a failed write is ignored: the metrics report a full disk."""
        with suppress(WriteError):
            line = _ANSI.sub("", text).rstrip("\n") + "\n"
            self._append(self.log_path, line.encode(errors="replace"))

    def tell_activity(self, phase: str = "", done: int = 0, total: int = 0) -> None:
        """Say how far a long evaluation is, for whoever watches; without a phase it is over.
        Nothing depends on this file, so a failed write is ignored."""
        with suppress(OSError):
            if not phase:
                self.activity_path.unlink(missing_ok=True)
                return
            temp = self.activity_path.with_name(f".{self.activity_path.name}.tmp-{os.getpid()}")
            temp.write_bytes(files.json_bytes({"phase": phase, "done": done, "of": total}))
            os.replace(temp, self.activity_path)

    def record_evaluation(self, **fields: Any) -> bool:
        """Keep the result of an evaluation after training in a file of its own: a training process
        may be writing the events. False if it cannot be written."""
        line = json_line({"kind": "eval", "stage": "eval", "at": utc_now()} | fields)
        how = os.O_WRONLY | os.O_CREAT | os.O_APPEND
        try:
            with FileIO(regular_handle(self.evaluations_path, how), "ab") as file:
                file.write(line)  # one write, whole
        except OSError:
            return False
        return True

    def begin_resume(
        self, env_steps: int, command: list[str] | None = None, code: Sequence[str] = ()
    ) -> None:
        """Go back to a checkpoint and record that this process continues training from it.

        Rows and events after the checkpoint, the final test, and an incomplete last line are
        dropped. A row at exactly `env_steps` is kept: log it before saving the checkpoint. Later
        checkpoints are removed before later rows: the next resume repairs a kill in between."""
        meta = self.meta()
        if is_alive_here(meta) and meta["pid"] != os.getpid():
            raise RunError(
                f"{self.id} is still {meta['status']} in process {meta['pid']}. "
                "Stop it before resuming, or start a new run with `gsolve train`."
            )
        self.close()
        summary_of(self.path, meta, [])  # RunError if a field is damaged: before files change
        paths = (self.metrics_path, self.events_path)
        kept = {path: _rows_until(path, env_steps) for path in paths}
        # From here on files change; everything that is needed was read.
        with files.writing("the run to resume", self.path):
            for leftover in (*self.path.glob(".*.tmp-*"), self.activity_path):
                leftover.unlink(missing_ok=True)
            rewind(self.checkpoints_dir, env_steps)
            for path, data in kept.items():
                files.write_atomic(path, data)
        entry = {"at": utc_now(), "from_env_steps": env_steps}
        entry |= {"command": command or [], "versions": machine.versions()}
        earlier = meta.get("resumed")
        resumed = [*(earlier if isinstance(earlier, list) else []), entry]
        solved = None if meta.get("threshold") is None else False  # until it is tested again
        verdict = {"test": None, "solved": solved, "stop_reason": None, "stop_detail": None}
        fields = {"env_steps": env_steps, "resumed": resumed} | machine.process()
        fields["signature"] = signature(str(meta.get("id")), code)
        self.update_meta(status="running", **verdict, **fields)

    def close(self) -> None:
        """Close the append handles; a later append reopens them."""
        for appender in self._appenders.values():
            appender.close()
        self._appenders.clear()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        try:
            return f"Run({str(self.path)!r}, {self._state()})"
        except (RunError, OSError, KeyError):  # a damaged folder
            return f"Run({str(self.path)!r})"

    def _state(self) -> str:
        test, best, solved = self.test, self.best, self.solved
        parts = [self.status, f"{self._fields().count('env_steps') or 0:,} env steps"]
        if solved is not None:
            parts.append("solved" if solved else "not solved")
        if test is not None:
            stderr = "" if test.stderr is None else f" ± {test.stderr:.3g}"
            parts.append(f"test {test.mean:.4g}{stderr}")
        elif best is not None and best.score is not None:
            parts.append(f"best val {best.score:.4g}")
        return ", ".join(parts)

    def _fields(self) -> Fields:
        return Fields(self.meta(), self.meta_path)

    @property
    def status(self) -> str:
        """One of created, running, finished, interrupted and failed."""
        return self._fields().text("status") or ""

    @property
    def solved(self) -> bool | None:
        """Whether the test reached the threshold; None if the environment has none."""
        return self._fields().flag("solved")

    @property
    def test(self) -> HeldOutTest | None:
        """The held-out test of the best checkpoint; None until the run has been tested."""
        test = self._fields().mapping("test")
        return None if test is None else HeldOutTest(**test_score(test.values))

    @property
    def best(self) -> CheckpointInfo | None:
        """The checkpoint with the best validation score; None if nothing was evaluated."""
        return next((c for c in list_checkpoints(self.checkpoints_dir) if c.is_best), None)

    @property
    def last(self) -> CheckpointInfo | None:
        """The newest checkpoint."""
        return next((c for c in list_checkpoints(self.checkpoints_dir) if c.is_last), None)

    def agent(self, checkpoint: str = "@best", device: str = "cpu", *, trust: bool = False) -> Any:
        """The trained agent: of @best (the last one if nothing was evaluated), @last or
        <env_steps>. `trust`: also import code that the config of a run made elsewhere names."""
        if checkpoint == "@best" and self.best is None:
            checkpoint = "@last"
        # By name, as the package offers it: `runs` is below `training`.
        load = import_module("gymnasium_solver").load
        return load(f"{self.path.resolve()}/{checkpoint}", device=device, trust=trust)

    def metrics(self) -> dict[str, list[Any]]:
        """Metrics in columns of the same length, one entry per epoch: {"env_steps": [...], ...}.
        None where an epoch has no value. `pandas.DataFrame(run.metrics())` takes them."""
        rows = read_jsonl(self.metrics_path)
        names = dict.fromkeys(["env_steps", *(name for row in rows for name in row)])
        return {name: [row.get(name) for row in rows] for name in names}

    def _append(self, path: Path, line: bytes) -> None:
        with files.writing("a line", path):
            appender = self._appenders.get(path)
            if appender is None:
                appender = self._appenders[path] = Appender(path)
            appender.write(line)


def is_run(path: Path) -> bool:
    return is_file(path / "meta.json")


def is_unfinished(path: Path) -> bool:
    """Whether a folder holds no run, only what a backend prepared or a creation that was killed
    left behind: nothing in it can be continued."""
    if is_run(path) or not path.is_dir():
        return False
    made = {"checkpoints", "videos", "metrics.jsonl", "events.jsonl", "run.log", "config.yaml"}
    made |= {"git.diff", ".lock", *JOB_FILES}
    names = [entry.name for entry in path.iterdir()]
    is_ours = any(name in JOB_FILES for name in names) or "checkpoints" in names
    return is_ours and all(name in made or ".tmp-" in name for name in names)


def clear_run(path: Path) -> None:
    """Remove a run that has no checkpoint, but not the files of its job; meta.json goes first, so
    that a kill in between leaves a folder that `is_unfinished`."""
    for entry in sorted(path.iterdir(), key=lambda entry: entry.name != "meta.json"):
        if entry.name in JOB_FILES:
            continue
        if entry.is_dir() and not entry.is_symlink():
            shutil.rmtree(entry)
        else:
            entry.unlink()


def is_alive_here(meta: Mapping[str, Any]) -> bool:
    """Whether the process that writes the run is alive on this machine and has not finished it."""
    pid = meta.get("pid")
    if meta.get("status") not in ("created", "running") or type(pid) is not int:
        return False
    return _is_here(meta) and 0 < pid < 2**31 and machine.is_alive(pid, meta.get("pid_started"))


def live_status(meta: Mapping[str, Any]) -> str:
    """The status in meta.json; "killed" if the recorded process is gone from this machine."""
    status = str(meta.get("status"))
    if status in ("created", "running") and _is_here(meta) and not is_alive_here(meta):
        return "killed"
    return status


def _is_here(meta: Mapping[str, Any]) -> bool:
    recorded = meta.get("machine")
    return isinstance(recorded, Mapping) and recorded.get("hostname") == machine.hostname()


def _make_folder(root: Path, config: Mapping[str, Any], given: str | None) -> Path:
    """Create a folder owned by this process: mkdir is the lock, the hex digits avoid collisions."""
    if given is not None:
        check_run_name(given)
    name = f"{config['env_id']}-{config.get('variant') or config['algo_id']}"
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", name).strip("-.")
    try:
        root.mkdir(parents=True, exist_ok=True)
        while True:
            now = datetime.now(UTC).strftime("%Y%m%d-%H%M%S")
            path = root / (given or f"{name}-{now}-{secrets.token_hex(2)}")
            try:
                path.mkdir()
            except FileExistsError:
                if given is None:
                    continue
                if not is_unfinished(path):
                    raise RunError(f"{path} exists already") from None
                clear_run(path)
            return path
    except OSError as error:
        raise RunError(
            f"cannot create a run folder in {root}: {error}. Choose another folder with "
            "--runs-dir or GSOLVE_RUNS."
        ) from error


def check_run_name(name: str) -> None:
    """RunError if a run cannot have this name."""
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._+=-]{0,127}", name):
        raise RunError(
            f"{name[:60]!r} cannot name a run: expected up to 128 letters, digits and . _ + = -, "
            "beginning with a letter or digit"
        )


def _first_meta(
    run_id: str, config: Mapping[str, Any], command: list[str], git: dict[str, Any] | None
) -> dict[str, Any]:
    identity = {name: config.get(name) for name in ("env_id", "algo_id", "variant", "seed")}
    return {
        "id": run_id,
        **identity,
        "threshold": config.get("reward_threshold"),
        **{name: config.get(name) for name in ("max_env_steps", "changed")},
        **dict.fromkeys(("created_at", "updated_at"), utc_now()),
        "command": command,
        "versions": machine.versions(),
        "git": git,
        **machine.process(),
        "status": "created",
        **dict.fromkeys(("stop_reason", "solved", "test")),
        **dict.fromkeys(("env_steps", "epoch", "episodes"), 0),
        "wall_s": 0.0,
        **dict.fromkeys(("best", "last_eval")),
        "resumed": [],
    }


def _rows_until(path: Path, env_steps: int) -> bytes:
    """The lines of a JSONL file up to a checkpoint, without the final test."""
    kept = []
    for row in read_jsonl(path):
        logged_at = row.get("logged_at") or row.get("env_steps") or 0
        if logged_at <= env_steps and row.get("stage") != "test":
            if row.get("kind") == "eval":
                check_evaluation(row, path)
            kept.append(json_line(row))
    return b"".join(kept)
