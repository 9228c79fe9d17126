"""Rows that are added to a file are read once each; a file that was rewritten is told."""

import os
from pathlib import Path

import pytest

from gymnasium_solver.errors import RunError
from gymnasium_solver.runs import query
from gymnasium_solver.runs.checkpoint import save_checkpoint
from gymnasium_solver.runs.jsonl import follow_jsonl
from gymnasium_solver.runs.run import Run


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return Run.create("a: 1\n", {"env_id": "x", "algo_id": "ppo"}, tmp_path)


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
