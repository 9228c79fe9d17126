"""The run folder: creation, meta.json, rows and events as they are written and read, resumes."""

import json
import math
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from gymnasium_solver.errors import RunError
from gymnasium_solver.runs import machine, query
from gymnasium_solver.runs.checkpoint import list_checkpoints, save_checkpoint
from gymnasium_solver.runs.jsonl import follow_jsonl, read_jsonl
from gymnasium_solver.runs.run import Run, live_status, runs_root
from tests.runs.processes import dead_pid

IDENTITY = {"env_id": "Probe/Counting-v0", "algo_id": "ppo", "variant": "ppo_fast", "seed": 3}


def create(root: Path, **identity: Any) -> Run:
    return Run.create("env_id: x\n", IDENTITY | identity, root, ["gsolve", "train", "x:ppo"])


def test_runs_root(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("GSOLVE_RUNS", raising=False)
    assert runs_root() == Path("runs")
    monkeypatch.setenv("GSOLVE_RUNS", "/data/runs")
    assert runs_root() == Path("/data/runs")
    assert runs_root("here") == Path("here")


def test_a_new_run_stands_alone(tmp_path: Path) -> None:
    run = create(tmp_path / "deep" / "runs")
    names = {path.name for path in run.path.iterdir()}
    files = {"config.yaml", "meta.json", "metrics.jsonl", "events.jsonl", "run.log"}
    assert names - {"git.diff"} == files | {"checkpoints", "videos"}
    assert run.id.startswith("Probe-Counting-v0-ppo_fast-2")
    assert run.config_path.read_text() == "env_id: x\n"
    meta = run.meta()
    assert meta["id"] == run.id
    assert {key: meta[key] for key in IDENTITY} == IDENTITY
    assert meta["command"] == ["gsolve", "train", "x:ppo"]
    assert (meta["status"], meta["stop_reason"], meta["best"]) == ("created", None, None)
    assert (meta["pid"], meta["resumed"]) == (os.getpid(), [])
    assert meta["created_at"].endswith("+00:00")
    wanted = {"python", "gymnasium_solver", "torch", "numpy", "gymnasium", "envpool"}
    assert set(meta["versions"]) - {"gymnasium_solver_commit"} == wanted
    assert meta["versions"]["numpy"] == np.__version__
    assert {"platform", "cpu", "cpu_count", "hostname"} == set(meta["machine"])
    assert os.readlink(run.path.parent / "@last") == run.id


def test_git_commit_and_diff_of_the_working_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def git(*arguments: str) -> str:
        identity = ["-c", "user.name=t", "-c", "user.email=t@example.org"]
        command = ["git", *identity, *arguments]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()

    monkeypatch.chdir(tmp_path)
    assert machine.git_state(tmp_path) == (None, b"")
    git("init", "-q")
    (tmp_path / "code.py").write_text("a = 1\n")
    git("add", "code.py")
    git("commit", "-q", "-m", "one")
    clean = create(tmp_path / "runs")
    assert clean.meta()["git"] == {"commit": git("rev-parse", "HEAD"), "dirty": False}
    assert not (clean.path / "git.diff").exists()
    (tmp_path / "code.py").write_text("a = 2\n")
    dirty = create(tmp_path / "runs")
    assert dirty.meta()["git"]["dirty"] is True
    assert "+a = 2" in (dirty.path / "git.diff").read_text()
    monkeypatch.setattr(machine, "_MAX_DIFF_BYTES", 10)
    large = create(tmp_path / "runs")
    assert large.meta()["git"]["dirty"] is True
    assert "too large" in large.meta()["git"]["diff"]
    assert not (large.path / "git.diff").exists()


@pytest.mark.parametrize("origin", ["checkout", "repository", "wheel"])
def test_the_commit_of_the_package_is_recorded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, origin: str
) -> None:
    """Of a checkout git says it, of a package installed from a repository its metadata."""
    from importlib import metadata

    calls = {"rev-parse": b"c0ffee\n", "status": b" M a.py\n"}
    monkeypatch.setattr(machine, "_git", lambda place, verb, *_: calls[verb])
    monkeypatch.setattr(machine, "__file__", str(tmp_path / "gymnasium_solver/runs/machine.py"))
    if origin == "checkout":
        (tmp_path / ".git").mkdir()
    content = '{"url": "x", "vcs_info": {"commit_id": "beef"}}' if origin == "repository" else None
    monkeypatch.setattr(metadata.Distribution, "read_text", lambda *_: content, raising=False)
    monkeypatch.setattr(metadata.PathDistribution, "read_text", lambda *_: content)
    expected = {"checkout": "c0ffee+", "repository": "beef", "wheel": None}
    assert machine.package_commit.__wrapped__() == expected[origin]


def test_concurrent_creation_gives_distinct_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Even where the random digits collide: only four of them, for twelve runs in one second."""
    digits = [f"{n:04x}" for n in range(16)]
    monkeypatch.setattr(
        "gymnasium_solver.runs.run.secrets.token_hex",
        lambda n: os.urandom(n).hex() if n > 2 else digits[os.urandom(1)[0] % 16],
    )
    with ThreadPoolExecutor(6) as pool:
        runs = list(pool.map(lambda _: create(tmp_path), range(12)))
    assert len({run.id for run in runs}) == 12
    assert all(run.meta()["id"] == run.id for run in runs)
    assert (tmp_path / os.readlink(tmp_path / "@last")).is_dir()
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []


def test_a_root_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(RunError, match="--runs-dir"):
        create(tmp_path / "file" / "runs")


def test_meta_is_replaced_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = create(tmp_path)
    run.update_meta(status="running", best={"score": np.float32(2.5), "env_steps": 10, "epoch": 1})
    assert run.meta()["best"] == {"score": 2.5, "env_steps": 10, "epoch": 1}
    run.update_meta(last_eval={"mean": math.nan})
    assert run.meta()["last_eval"] == {"mean": None}
    assert run.meta()["status"] == "running"
    before = run.meta_path.read_bytes()

    def fail(*_: object) -> None:
        raise OSError("killed here")

    monkeypatch.setattr("gymnasium_solver.runs.files.os.replace", fail)
    with pytest.raises(RunError, match="killed here"):
        run.update_meta(status="finished")
    assert run.meta_path.read_bytes() == before
    with pytest.raises(ValueError, match="status 'done'"):
        run.update_meta(status="done")


def test_rows_are_valid_json_and_flushed(tmp_path: Path) -> None:
    run = create(tmp_path)
    odd = {"nan": math.nan, "inf": np.float32(-np.inf), "tensor": torch.tensor(0.5)}
    run.log_metrics({"env_steps": np.int64(8), **odd, "flag": np.True_})
    text = run.metrics_path.read_text()
    assert text.endswith("}\n")
    row = json.loads(text, parse_constant=pytest.fail)
    assert row == {"env_steps": 8, "nan": None, "inf": None, "tensor": 0.5, "flag": True}
    with pytest.raises(ValueError, match="needs env_steps"):
        run.log_metrics({"epoch": 1})
    run.log_event("eval", env_steps=8, mean=math.nan)
    (event,) = read_jsonl(run.events_path)
    assert event.pop("at").endswith("+00:00")
    assert event == {"kind": "eval", "env_steps": 8, "mean": None}


def test_log_text_has_no_colours(tmp_path: Path) -> None:
    with create(tmp_path) as run:
        run.log_text("\x1b[1;32mSOLVED\x1b[0m in \x1b]8;;http://x\x1b\\link\x1b]8;;\x1b\\")
        run.log_text("two\nlines\n")
    assert run.log_path.read_text() == "SOLVED in link\ntwo\nlines\n"


@pytest.mark.parametrize("torn", ['{"env_steps": 3, "los', '{"env_steps": 3}', "x" * 10_000])
def test_a_torn_last_line_is_left_out_and_cut_off(tmp_path: Path, torn: str) -> None:
    run = create(tmp_path)
    whole = [{"env_steps": 1}, {"env_steps": 2}]
    lines = "".join(json.dumps(row) + "\n" for row in whole)
    run.metrics_path.write_text(lines + torn)
    assert read_jsonl(run.metrics_path) == whole
    run.log_metrics({"env_steps": 4})
    assert read_jsonl(run.metrics_path) == [*whole, {"env_steps": 4}]
    run.close()
    run.metrics_path.write_text(torn)
    run.log_metrics({"env_steps": 5})
    assert read_jsonl(run.metrics_path) == [{"env_steps": 5}]


def test_rows_after_the_checkpoint_are_dropped(tmp_path: Path) -> None:
    run = create(tmp_path)
    save_checkpoint(run.checkpoints_dir, 200, {}, {}, {})
    for env_steps in (100, 200, 300):
        run.log_metrics({"env_steps": env_steps})
        run.log_event("eval", env_steps=env_steps)
    run.log_event("message", text="has no clock", env_steps=None)
    with run.metrics_path.open("a") as file:
        file.write('{"env_steps": 150, "to')
    run.begin_resume(200)
    assert [row["env_steps"] for row in read_jsonl(run.metrics_path)] == [100, 200]
    events = read_jsonl(run.events_path)
    assert [event.get("env_steps") for event in events] == [100, 200, None]
    run.log_metrics({"env_steps": 300})
    assert [row["env_steps"] for row in read_jsonl(run.metrics_path)] == [100, 200, 300]


def test_begin_resume_takes_the_run_over(tmp_path: Path) -> None:
    run = create(tmp_path)
    for env_steps in (300, 400, 500):
        save_checkpoint(run.checkpoints_dir, env_steps, {}, {}, {}, best=env_steps == 300)
    run.log_metrics({"env_steps": 500})
    (run.path / ".meta.json.tmp-dead").write_text("{")
    run.update_meta(status="running", pid=dead_pid(), env_steps=500, stop_reason="error")
    run.begin_resume(400)
    meta = run.meta()
    assert (meta["status"], meta["stop_reason"], meta["env_steps"]) == ("running", None, 400)
    assert meta["pid"] == os.getpid()
    assert [entry["from_env_steps"] for entry in meta["resumed"]] == [400]
    assert read_jsonl(run.metrics_path) == []
    assert list(run.path.glob(".*")) == []
    seen = [(c.env_steps, c.is_best, c.is_last) for c in list_checkpoints(run.checkpoints_dir)]
    assert seen == [(300, True, False), (400, False, True)]
    run.begin_resume(400)
    assert len(run.meta()["resumed"]) == 2
    with pytest.raises(RunError, match="no checkpoint at 350"):
        run.begin_resume(350)


def test_a_run_that_is_still_training_is_not_resumed(tmp_path: Path) -> None:
    run = create(tmp_path)
    for env_steps in (400, 500):
        save_checkpoint(run.checkpoints_dir, env_steps, {}, {}, {})
    run.log_metrics({"env_steps": 500})
    other = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    try:
        run.update_meta(
            status="running", pid=other.pid, pid_started=machine.process_start(other.pid)
        )
        with pytest.raises(RunError, match=f"still running in process {other.pid}"):
            run.begin_resume(400)
    finally:
        other.communicate(b"\n")
    assert len(read_jsonl(run.metrics_path)) == 1
    assert len(list_checkpoints(run.checkpoints_dir)) == 2
    run.begin_resume(400)


def test_killed_is_told_by_the_dead_process(tmp_path: Path) -> None:
    run = create(tmp_path)
    run.update_meta(status="running")
    meta = run.meta()
    assert live_status(meta) == "running"
    gone = dead_pid()
    assert live_status(meta | {"pid": gone}) == "killed"
    assert live_status(meta | {"pid": gone, "status": "created"}) == "killed"
    assert live_status(meta | {"pid": gone, "status": "finished"}) == "finished"
    elsewhere = meta["machine"] | {"hostname": "elsewhere"}
    assert live_status(meta | {"pid": gone, "machine": elsewhere}) == "running"


@pytest.mark.skipif(not hasattr(os, "waitid"), reason="no zombies here")
def test_a_process_id_used_again_or_a_zombie_is_not_alive(tmp_path: Path) -> None:
    run = create(tmp_path)
    assert live_status(run.meta() | {"status": "running", "pid_started": 1.0}) == "killed"
    process = subprocess.Popen([sys.executable, "-c", ""], stdout=subprocess.PIPE)
    assert process.stdout is not None
    process.stdout.read()  # ends when the process does; it stays a zombie until waited for
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    assert not machine.is_alive(process.pid)
    process.wait()
    process.stdout.close()
    assert machine.is_alive(os.getpid(), machine.process_start(os.getpid()))
    assert machine.is_alive(1)
    assert not machine.is_alive(-1)
    assert machine.process_start(dead_pid()) is None


@pytest.mark.parametrize("large", [0, 10**9])
def test_rows_are_read_as_they_were_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, large: int
) -> None:
    """Also by the parser for large files."""
    monkeypatch.setattr("gymnasium_solver.runs.jsonl.LARGE", large)
    rng = np.random.default_rng(1)
    numbers = np.frombuffer(rng.bytes(8 * 500), np.float64)
    finite = [*numbers[np.isfinite(numbers)].tolist(), 0.0, -0.0, 5e-324, 1e16, 1e-7, 500.0]
    row: dict[str, Any] = {"env_steps": 1, "flag": True, "text": 'a "ü"\n', "none": None}
    row |= {"huge": 2**70} | {f"x/{i}": value for i, value in enumerate(finite)}
    with create(tmp_path) as run:
        run.log_metrics(row)
        run.log_metrics({"env_steps": 2, "text": "\ud800", "loss": math.inf})
    first, second = read_jsonl(run.metrics_path)
    assert list(first) == list(row), "in their order"
    assert all(type(first[k]) is type(row[k]) and first[k] == row[k] for k in row)
    assert math.copysign(1.0, first[f"x/{len(finite) - 5}"]) == -1.0
    assert second == {"env_steps": 2, "text": "\ud800", "loss": None}


# -- rows as they come -----------------------------------------------------------------------------


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return create(tmp_path)


def steps(tail: query.Tail) -> list[int]:
    return [row["env_steps"] for row in tail.rows]


def test_each_row_comes_once(run: Run) -> None:
    tail = query.follow_metrics(run)
    assert (tail.rows, tail.is_reset) == ([], False)
    seen = []
    for env_steps in range(1, 6):
        run.log_metrics({"env_steps": env_steps})
        if env_steps % 2:
            tail = query.follow_metrics(run, tail.cursor)
            seen.append(steps(tail))
            assert not tail.is_reset
    assert seen == [[1], [2, 3], [4, 5]]
    assert query.follow_metrics(run, tail.cursor).rows == []
    assert steps(query.follow_metrics(run)) == [1, 2, 3, 4, 5]


def test_an_incomplete_line_waits_for_its_end(run: Run) -> None:
    run.log_metrics({"env_steps": 1})
    tail = query.follow_metrics(run)
    with run.metrics_path.open("ab") as file:
        file.write(b'{"env_st')
        file.flush()
        tail = query.follow_metrics(run, tail.cursor)
        assert tail.rows == []
        file.write(b'eps": 2}\n')
    assert steps(query.follow_metrics(run, tail.cursor)) == [2]


def test_a_resume_rewrites_the_file(run: Run) -> None:
    for env_steps in (100, 200, 300):
        run.log_metrics({"env_steps": env_steps})
        save_checkpoint(run.checkpoints_dir, env_steps, {}, {}, {})
    tail = query.follow_metrics(run)
    run.begin_resume(200)
    tail = query.follow_metrics(run, tail.cursor)
    assert (steps(tail), tail.is_reset) == ([100, 200], True)
    run.log_metrics({"env_steps": 300})
    tail = query.follow_metrics(run, tail.cursor)
    assert (steps(tail), tail.is_reset) == ([300], False)


def test_another_file_with_the_same_inode_and_a_larger_size_is_noticed(tmp_path: Path) -> None:
    """A file system may give a new file the inode of a removed one."""
    path = tmp_path / "rows.jsonl"
    path.write_bytes(b'{"env_steps": 1}\n{"env_steps": 2}\n')
    tail = follow_jsonl(path)
    with path.open("r+b") as file:  # in place: the inode stays
        file.write(b'{"env_steps": 5}\n{"env_steps": 6}\n{"env_steps": 7}\n')
    tail = follow_jsonl(path, tail.cursor)
    assert (steps(tail), tail.is_reset) == ([5, 6, 7], True)
    inode = path.stat().st_ino
    path.unlink()
    tail = follow_jsonl(path, tail.cursor)
    assert (tail.rows, tail.is_reset) == ([], True)
    assert follow_jsonl(path, tail.cursor).is_reset is False
    path.write_bytes(b'{"env_steps": 8}\n')
    assert steps(follow_jsonl(path, f"{inode}-1000-5")) == [8]


@pytest.mark.parametrize("cursor", ["", "x", "1-2", "../../etc", "-1-2-3", "9" * 30 + "-1-1"])
def test_a_cursor_that_is_none_starts_at_the_beginning(run: Run, cursor: str) -> None:
    run.log_metrics({"env_steps": 1})
    assert steps(query.follow_metrics(run, cursor)) == [1]


def test_events_and_damage(run: Run) -> None:
    run.log_event("eval", env_steps=3, mean=1.0)
    tail = query.follow_events(run)
    assert [event["kind"] for event in tail.rows] == ["eval"]
    with run.events_path.open("ab") as file:
        file.write(b"[]\n")
    with pytest.raises(RunError, match="expected a mapping"):
        query.follow_events(run, tail.cursor)
    assert os.path.getsize(run.events_path) > 0
