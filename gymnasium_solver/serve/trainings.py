"""Trainings that a page or an agent starts, resumes and stops, as processes of their own.

    job = start(root, "CartPole-v1:ppo", "", {"policy_lr": "1e-3"})      # its folder is known
    resume(run, {"max_env_steps": "20000"})
    stop(run)                                                            # it saves and ends

They outlive the server (backends/local.py). Configs and runs are given by name, never by a path.
"""

import os
import re
import secrets
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from gymnasium_solver.backends import local
from gymnasium_solver.config.env_ids import split_target
from gymnasium_solver.config.yaml_file import read_file
from gymnasium_solver.errors import ConfigError, RunError
from gymnasium_solver.runs import machine
from gymnasium_solver.runs.files import lock_holder
from gymnasium_solver.runs.resolve import resolve_run
from gymnasium_solver.runs.run import Run, check_run_name, is_alive_here, is_run, live_status
from gymnasium_solver.serve.questions import BadRequest, plain_name

ENDING_S = 20.0
_FIELD = re.compile(r"[A-Za-z_][\w.]*")
_CONFIG = re.compile(r"(?:c:)?[A-Za-z0-9][\w-]*([./][\w-]+)*(:[A-Za-z_]\w*)?")
_BUDGET = re.compile(r"\d{1,12}|\d{1,6}(\.\d+)?(s|min|h)")
_VARIANT = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,60}")
_FILES = (".yaml", ".yml", ".json", ".c")
_DATED = re.compile(r"-\d{8}-\d{6}-[0-9a-f]{4}$")  # the name of a run that is repeated

Argv = Callable[..., list[str]]  # from the words of a gsolve command to what is run


def start(
    root: Path,
    config: str,
    name: str,
    fields: Mapping[str, str],
    *flags: str,
    argv: Argv | None = None,
    trust: bool = False,
) -> local.Job:
    """Start a training. The folder of the run is known at once; the run appears in it soon.
    `trust`: also import code that the config of a run made elsewhere names."""
    target, changes = config_named(config, root), as_flags(fields)
    flags = (*flags, *trust_flags(target, trust))
    folder = root.absolute() / new_name(config, name)
    if folder.exists():
        raise BadRequest(f"{folder.name} exists already; choose another name, or resume it")
    words = ["train", target, "--run-dir", str(folder), "--no-keys", *flags, *changes]
    return local.start((argv or local.gsolve)(*words), folder)


def many_words(
    root: Path,
    targets: Sequence[str],
    name: str,
    seeds: int = 1,
    search: Mapping[str, str] | None = None,
    trials: int = 20,
) -> list[str]:
    """The words of a gsolve command that trains many runs: configs, as `config_named` returns them,
    over seeds, or with `search` (fields to ranges) trials of one."""
    for key, value in (search or {}).items():
        if not _FIELD.fullmatch(key) or len(value) > 300 or "/" in value:
            raise BadRequest(f"search: {key[:40]}={value[:40]!r} is not a range of a field")
    if search is None:
        words = ["train", *targets, "--seeds", str(seeds), "--experiment", name]
    else:
        given = [f"{key}={value}" if value else key for key, value in search.items()]
        params = [word for text in given for word in ("--param", text)]
        words = ["sweep", *targets, *params, "--trials", str(trials), "--name", name]
    return [*words, "--runs-dir", str(root.absolute())]


def solve_words(root: Path, env_id: str, name: str, budget: str = "") -> list[str]:
    """The words of a gsolve command that solves an environment without a config, as `config_named`
    returns it. `budget`: a time (20min) or env steps; "": the command's own."""
    words = ["solve", env_id, "--name", name, "--runs-dir", str(root.absolute())]
    if budget and not _BUDGET.fullmatch(budget):
        raise BadRequest(f"budget: {budget[:40]!r} is no time or number of steps: 20min, 300000")
    if not budget:
        return words
    return [*words, "--max-env-steps" if budget.isdecimal() else "--budget", budget]


def keep_words(sweep: Path, base: Path, variant: str, trial: int = -1) -> tuple[str, list[str]]:
    """The winner of a search, or a trial, as a variant in the user's config files: its name, and
    the words of the command that writes it. `base`: the config that was searched."""
    from gymnasium_solver.config.find import config_folders  # slow to import

    if not _VARIANT.fullmatch(variant):
        raise BadRequest(f"{variant[:40]!r} is not a variant's name, such as ppo_tuned")
    env_id = str(read_file(base)[0]["env_id"])
    path = config_folders()[0].absolute() / f"{re.sub(r'[^A-Za-z0-9.-]+', '-', env_id)}.yaml"
    words = ["sweep", "best", str(sweep), "--write", f"{path}:{variant}", "--json"]
    words += ["--trial", str(trial)] if trial >= 0 else []
    return f"{env_id}:{variant}", words


def stop_coordinator(folder: Path) -> None:
    """Stop what coordinates an experiment or a sweep, whoever started it; it stops its trainings,
    which save."""
    pid = lock_holder(folder)
    if pid is None:
        raise RunError(f"{folder.name} is not running")
    started = machine.process_start(pid)
    # The lock may be held by a process of another machine, with the number of a process here.
    if started is None or not is_gsolve(pid):
        raise RunError(f"{folder.name} is not run by a process of this machine: stop it there")
    try:
        os.kill(pid, signal.SIGTERM)
    except ProcessLookupError:
        pass
    except PermissionError:
        raise RunError(f"{folder.name} belongs to another user (process {pid})") from None


def is_gsolve(pid: int) -> bool:
    """Whether a process runs gsolve, as far as its command line tells."""
    import psutil

    try:
        words = psutil.Process(pid).cmdline()
    except psutil.Error:
        return False
    return any("gymnasium_solver" in word or Path(word).name == "gsolve" for word in words)


def resume(
    run: Run, fields: Mapping[str, str], *flags: str, argv: Argv | None = None, trust: bool = False
) -> local.Job:
    """Continue a run exactly where its last checkpoint is. `trust`: as for `start`."""
    flags = (*flags, *trust_flags(str(run.config_path), trust))
    if is_alive_here(meta := run.meta()):
        raise RunError(f"{run.id} is still running in process {meta['pid']}; stop it first")
    if not local.wait(run.path, ENDING_S):  # it has saved, but its process has not ended yet
        raise RunError(f"{run.id} is still ending; try again in a moment")
    root = str(run.path.parent.absolute())
    words = ["train", "--resume", run.id, "--runs-dir", root, "--no-keys", *flags]
    return local.start((argv or local.gsolve)(*words, *as_flags(fields)), run.path)


def stop(run: Run, *, force: bool = False, wait_s: float = 0.0) -> str:
    """Make a training save and end, whoever started it; with `force` kill it. Its status then, or
    after `wait_s`."""
    meta = run.meta()
    if not is_alive_here(meta):
        if local.stop(run.path):  # it is only just starting
            return live_status(meta)
        status = live_status(meta)
        where = (meta.get("machine") or {}).get("hostname")
        if status in ("created", "running") and where != machine.hostname():
            raise RunError(f"{run.id} is {status} on {where}: stop it there")
        raise RunError(f"{run.id} is not running: {status}")
    pid = int(meta["pid"])
    try:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL if force else signal.SIGTERM)
    except PermissionError:
        raise RunError(f"{run.id} belongs to another user (process {pid})") from None
    deadline = time.monotonic() + wait_s
    while machine.is_alive(pid, meta.get("pid_started")) and time.monotonic() < deadline:
        time.sleep(0.05)
    return live_status(run.meta())


def config_named(name: str, root: Path) -> str:
    """What `gsolve train` takes for a config that was named: <env>:<variant>, the id of an
    environment, or a run to be repeated, which may be written run:ID."""
    name = plain_name(name, "config")
    run = name.removeprefix("run:")
    if name.startswith(("@", "run:")) or is_run(root / name.replace("/", "-")):
        return str(resolve_run(run, root, allow_paths=False).config_path.absolute())
    if not _CONFIG.fullmatch(name) or split_target(name)[0].lower().endswith(_FILES):
        raise ConfigError(
            f"{name!r}: paths are not accepted; give <env>:<variant>, as configs are listed "
            "(CartPole-v1:ppo), or a run"
        )
    return name


def trust_flags(target: str, trust: bool) -> list[str]:
    """Flags of a command about a config. TrustError if it is that of a run made elsewhere that
    names code, and the user has not agreed to import it: told now, not in the console of a job."""
    if trust:
        return ["--trust"]
    from gymnasium_solver.training.prepare import check_target  # slow to import

    check_target(target)
    return []


def new_name(config: str, name: str = "") -> str:
    """The folder of a new run or experiment: the name given, checked, or one from config, time and
    four digits."""
    if name:
        try:
            check_run_name(name)
        except RunError as error:
            raise BadRequest(str(error)) from None
    base = _DATED.sub("", config.removeprefix("run:"))
    base = re.sub(r"[^A-Za-z0-9._-]+", "-", base).strip("-.")[:80] or "run"
    return name or f"{base}-{datetime.now(UTC):%Y%m%d-%H%M%S}-{secrets.token_hex(2)}"


def as_flags(fields: Mapping[str, Any]) -> list[str]:
    """Fields as flags. The text of a value means what it means in a YAML file."""
    for name, text in fields.items():
        if not _FIELD.fullmatch(name) or not isinstance(text, str):
            raise BadRequest(f"{name[:60]!r} is not a field with a text")
    return [f"--set={name}={text}" for name, text in fields.items()]
