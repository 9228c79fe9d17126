"""The list of runs, from the index on disk and in memory: always equal to what the files say."""

import dataclasses
import json
import os
import shutil
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from gymnasium_solver.errors import RunError
from gymnasium_solver.runs import query, store
from gymnasium_solver.runs.checkpoint import prune, save_checkpoint
from gymnasium_solver.runs.manage import change_tags
from gymnasium_solver.runs.run import Run
from gymnasium_solver.runs.store import RunStore
from tests.runs.processes import dead_pid

N = 6


def make(root: Path, number: int, **meta: Any) -> Run:
    identity = {"env_id": "CartPole-v1", "algo_id": "ppo", "variant": "ppo", "seed": number}
    with Run.create(f"env_id: CartPole-v1\npolicy_lr: {number}\n", identity, root) as run:
        run.log_metrics({"env_steps": 10, "epoch": 1, "wall_s": 1.0})
        save_checkpoint(run.checkpoints_dir, 10, {}, {}, {"score": 1.5}, best=True)
        run.update_meta(**{"status": "finished", "env_steps": 10, "threshold": 5.0} | meta)
    return run


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "FEWEST", N)
    monkeypatch.setattr("gymnasium_solver.runs.machine.git_state", lambda folder: (None, b""))


@pytest.fixture
def settled(monkeypatch: pytest.MonkeyPatch) -> None:
    """Files count as settled at once."""
    monkeypatch.setattr(store, "SETTLED_NS", -1)


@pytest.fixture
def root(tmp_path: Path, settled: None) -> Path:
    for number in range(N):
        make(tmp_path, number)
    return tmp_path


def plain(root: Path) -> dict[str, Any]:
    """What the files say, without an index."""
    folders = [path for path in root.iterdir() if path.name[0] not in "@."]
    return {path.name: store.summary_or_broken(Run(path)) for path in folders}


def check(root: Path) -> None:
    listed = query.list_runs(root)
    assert {run.id: run for run in listed} == plain(root)
    created = [run.created_at for run in listed if run.created_at]
    assert created == sorted(created, reverse=True)


def count_reads(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    read: list[str] = []
    original = store.summary_or_broken

    def counted(run: Run) -> query.RunSummary:
        read.append(run.id)
        return original(run)

    monkeypatch.setattr(store, "summary_or_broken", counted)
    return read


def test_a_listing_reads_only_what_changed(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    check(root)
    before = query.list_runs(root)
    read = count_reads(monkeypatch)
    assert query.list_runs(root) == before
    assert read == []
    changed, labelled, saved, pruned = (Run(Path(run.path)) for run in before[:4])
    changed.update_meta(episodes=7)
    change_tags(labelled, ["paper"])
    save_checkpoint(saved.checkpoints_dir, 20, {}, {}, {"score": 2.5})
    for env_steps in (20, 30):
        save_checkpoint(pruned.checkpoints_dir, env_steps, {}, {}, {})
    prune(pruned.checkpoints_dir, keep=0)
    check(root)
    after = {run.id: run for run in query.list_runs(root)}
    assert set(read) >= {changed.id, labelled.id, saved.id, pruned.id}
    assert (after[changed.id].episodes, after[labelled.id].tags) == (7, ["paper"])
    assert [c["env_steps"] for c in after[saved.id].checkpoints] == [10, 20]
    shutil.rmtree(changed.path)
    make(root, 99)
    check(root)


def test_running_killed_and_broken_runs(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    running = make(root, 30, status="running")
    killed = make(root, 31, status="running", pid=dead_pid())
    broken = make(root, 32)
    broken.meta_path.write_text("[")
    check(root)
    statuses = {run.id: run.status for run in query.list_runs(root)}
    wanted = {running.id: "running", killed.id: "killed", broken.id: "broken"}
    assert wanted.items() <= statuses.items()
    read = count_reads(monkeypatch)
    query.list_runs(root)
    assert set(read) == {running.id, broken.id}
    with killed as run:  # a copy of the folder went on elsewhere, say
        run.log_metrics({"env_steps": 20, "epoch": 2, "wall_s": 2.0})
    running.update_meta(pid=dead_pid())
    check(root)
    found = {run.id: run for run in query.list_runs(root)}
    assert (found[running.id].status, found[killed.id].env_steps) == ("killed", 20)
    monkeypatch.setattr("gymnasium_solver.runs.machine.hostname", lambda: "another-machine")
    assert {run.id: run.status for run in query.list_runs(root)}[killed.id] == "running"


@pytest.mark.parametrize(
    "damage",
    [
        lambda path: path.write_bytes(path.read_bytes()[:-100]),
        lambda path: path.write_bytes(path.read_bytes().replace(b"finished", b"finishes", 1)),
        lambda path: path.write_bytes(b""),
        lambda path: path.write_bytes(b"[" * 100_000),
        lambda path: path.write_bytes(b"\xff\n\xff"),
        lambda path: path.write_bytes(b"3\n3"),
        lambda path: (path.unlink(), path.mkdir()),
        lambda path: path.unlink(),
    ],
)
def test_a_damaged_index_is_ignored(root: Path, damage: Callable[[Path], Any]) -> None:
    check(root)
    damage(root / store.INDEX)
    check(root)
    check(root)


def test_an_index_of_another_version_is_ignored(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    check(root)
    monkeypatch.setattr(store, "__version__", "9.9")
    read = count_reads(monkeypatch)
    query.list_runs(root)
    assert len(read) == N


def test_few_runs_and_folders_that_cannot_be_written(
    tmp_path: Path, settled: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(3):
        make(tmp_path / "few", number)
    check(tmp_path / "few")
    assert not (tmp_path / "few" / store.INDEX).exists()
    for number in range(N):
        make(tmp_path / "many", number)

    def refuse(*_: object) -> None:
        raise PermissionError

    monkeypatch.setattr(Path, "write_bytes", refuse)
    check(tmp_path / "many")
    assert not list((tmp_path / "many").glob(".*"))


def test_files_that_were_just_written_are_not_kept(tmp_path: Path) -> None:
    """A second write within the resolution of the clock would not be noticed."""
    for number in range(N):
        make(tmp_path, number)
    query.list_runs(tmp_path)
    assert not (tmp_path / store.INDEX).exists()
    past = time.time_ns() - 10 * store.SETTLED_NS
    for path in tmp_path.rglob("*"):
        os.utime(path, ns=(past, past), follow_symlinks=False)
    query.list_runs(tmp_path)
    assert (tmp_path / store.INDEX).exists()


def test_many_readers_at_once(root: Path) -> None:
    run = Run(Path(query.list_runs(root)[0].path))

    def read(_: int) -> int:
        return len(query.list_runs(root))

    with ThreadPoolExecutor(4) as pool:
        sizes = pool.map(read, range(24))
        for episodes in range(10):
            run.update_meta(episodes=episodes)
        assert set(sizes) == {N}
    check(root)
    assert sorted(p.name for p in root.glob(".*")) == [store.INDEX]


def test_filters_on_the_config_use_an_index_too(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert [run.seed for run in query.list_runs(root, "policy_lr>3")] == [5, 4]
    monkeypatch.setattr(store, "read_config", lambda run: pytest.fail("read again"))
    assert [run.seed for run in query.list_runs(root, sort_by="-policy_lr")] == list(range(N))


def test_a_summary_from_the_index_is_a_whole_one(root: Path) -> None:
    query.list_runs(root)
    run = query.list_runs(root)[0]
    assert dataclasses.replace(run, note="x").note == "x"
    assert list(run.to_dict()) == [field.name for field in dataclasses.fields(query.RunSummary)]
    assert run == query.get_run(run.id, root)


# -- in memory -------------------------------------------------------------------------------------


def named(root: Path, name: str, **meta: object) -> Run:
    run = Run.create("seed: 1\n", {"env_id": "E", "algo_id": "ppo", "seed": 1}, root, name=name)
    run.update_meta(**({"status": "finished"} | meta))
    return run


def settle(run: Run) -> None:
    """As if its files had been written a while ago."""
    past = time.time_ns() - 60 * 10**9
    for path in (run.meta_path, run.checkpoints_dir, run.path):
        os.utime(path, ns=(past, past))


def test_a_server_reads_only_what_changed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    runs = [named(tmp_path, f"run{i}") for i in range(5)]
    for run in runs:
        settle(run)
    found = RunStore(tmp_path)
    first = found.since(None)
    assert len(first.runs) == 5
    assert first.is_reset
    read = count_reads(monkeypatch)
    assert found.since(first.cursor).runs == []
    assert read == []
    runs[2].update_meta(episodes=7)
    later = found.since(first.cursor)
    assert [run.episodes for _, run in later.runs] == [7]
    assert read == ["run2"]
    shutil.rmtree(runs[0].path)
    last = found.since(later.cursor)
    assert last.removed == [n for n, run in first.runs if run.id == "run0"]
    assert found.since(first.cursor).cursor == last.cursor


def test_a_run_whose_process_ends_is_noticed_without_a_write(tmp_path: Path) -> None:
    run = named(tmp_path, "live", status="running", pid=os.getpid(), pid_started=None)
    settle(run)
    found = RunStore(tmp_path)
    first = found.since(None)
    assert first.runs[0][1].status == "running"
    meta = json.loads(run.meta_path.read_text()) | {"pid": 2**30}
    run.meta_path.write_text(json.dumps(meta))
    settle(run)
    assert found.since(first.cursor).runs[0][1].status == "killed"


def test_two_writes_within_the_resolution_of_the_clock_are_both_seen(tmp_path: Path) -> None:
    run = named(tmp_path, "fast")
    found = RunStore(tmp_path)
    first = found.since(None)
    before = run.meta_path.stat()
    text = run.meta_path.read_text().replace('"seed": 1', '"seed": 2')
    with run.meta_path.open("r+") as file:  # the same inode, size and times
        file.write(text)
    os.utime(run.meta_path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert [r.seed for _, r in found.since(first.cursor).runs] == [2]


def test_a_schedule_is_compared_by_its_start_and_an_unknown_field_is_named(tmp_path: Path) -> None:
    values = ("0.003", "{start: 0.003, end: 0.0}", "lin_0.003", "0.1",
              "{schedule: piecewise, points: [[0, 0.003], [1, 0]]}", "null")  # fmt: skip
    for i, value in enumerate(values):
        named(tmp_path, f"r{i}").write_config(f"policy_lr: {value}\nspec: {{goal: 3}}\n")
    found = RunStore(tmp_path)
    assert {r.id for r in found.select(["policy_lr<0.01"])} == {"r0", "r1", "r2", "r4"}
    assert {r.id for r in found.select(["policy_lr=0.003"])} == {"r0", "r1", "r2", "r4"}
    assert [r.id for r in found.select(["policy_lr=null"])] == ["r5"]
    assert len(found.select(["spec.goal=3"])) == len(values)
    assert [r.id for r in found.select(["-policy_lr<0.01", "-r3"])] == ["r5"]
    assert {r.id for r in found.select(["r0", "or", "r1", "-r1", "or", "r5"])} == {"r0", "r5"}
    assert {r.id for r in found.select(["r0 or r5"])} == {"r0", "r5"}
    assert len(found.select(["or"])) == len(values)
    with pytest.raises(RunError, match="no run has 'polcy_lr'"):
        found.select(["-polcy_lr<1"])
    with pytest.raises(RunError, match=r"no run has 'polcy_lr'\. Did you mean .*policy_lr"):
        found.select(["polcy_lr<1"])
    with pytest.raises(RunError, match=r"no run has 'spec\.gaol'"):
        found.select(["spec.gaol=3"])


def test_what_a_run_belongs_to_differs_in_and_is_doing(tmp_path: Path) -> None:
    run = named(tmp_path, "one")
    command = [
        "gsolve",
        "train",
        f"{tmp_path}/experiments/lr-test/configs/00-a.yaml",
        "--seed",
        "1",
    ]
    run.update_meta(status="running", pid=os.getpid(), pid_started=None, command=command)
    run.update_meta(changed={"policy_lr": [0.003, 0.1], "broken": 3})
    found = RunStore(tmp_path)
    (now,) = found.runs()
    assert (now.experiment, now.changed) == ("lr-test", {"policy_lr": 0.1})
    assert now.activity is not None
    assert "phase" not in now.activity
    assert now.activity["row_at"] == pytest.approx(time.time(), abs=60)
    assert [r.id for r in found.select(["experiment=lr-test"])] == ["one"]
    run.tell_activity("testing", 12, 30)
    (now,) = found.runs()
    assert now.activity is not None
    assert (now.activity["phase"], now.activity["done"], now.activity["of"]) == ("testing", 12, 30)
    run.activity_path.write_text('{"phase": "<b>", "done": "x"}')
    (now,) = found.runs()
    assert now.activity is not None
    assert "phase" not in now.activity
    run.tell_activity()
    assert not run.activity_path.exists()
    run.update_meta(status="finished")
    assert found.runs()[0].activity is None


def test_configs_are_read_again_after_a_change(tmp_path: Path) -> None:
    run = named(tmp_path, "one")
    found = RunStore(tmp_path)
    assert [r.id for r in found.select(["seed=1"])] == ["one"]
    with pytest.raises(RunError, match="no run has 'policy_lr'"):
        found.select(["policy_lr=2"])
    run.write_config("seed: 1\npolicy_lr: 2\n")
    run.update_meta(epoch=3)
    assert [r.id for r in found.select(["policy_lr=2"])] == ["one"]
