"""The metric tables that the web app keeps: their memory is bounded and counted."""

from pathlib import Path

import pytest

pytest.importorskip("starlette", reason="the extra ui is not installed")

from gymnasium_solver.runs.run import Run
from gymnasium_solver.serve.questions import Tables


def run_with_rows(root: Path, name: str, n_rows: int) -> Run:
    run = Run(root / name)
    run.path.mkdir(parents=True)
    add_rows(run, 0, n_rows)
    return run


def add_rows(run: Run, first: int, n_rows: int) -> None:
    for i in range(first, first + n_rows):
        run.log_metrics({"env_steps": i, "epoch": i, "wall_s": 0.1 * i, "a": 1.0, "b": 2.0})


def kept(tables: Tables) -> list[str]:
    return list(tables._tables)


def test_the_least_recently_used_tables_are_dropped(tmp_path: Path) -> None:
    runs = [run_with_rows(tmp_path, f"r{i}", 10) for i in range(4)]
    one = Tables().of(runs[0]).n_bytes
    assert one == 10 * (24 + 2 * 16)
    tables = Tables(most_bytes=2 * one)
    for run in (runs[0], runs[1], runs[0], runs[2]):
        tables.of(run)
    assert kept(tables) == ["r0", "r2"]
    tables.of(runs[3])
    assert kept(tables) == ["r2", "r3"]


def test_a_table_that_grows_counts_as_it_is(tmp_path: Path) -> None:
    small, growing = (run_with_rows(tmp_path, name, 10) for name in ("small", "growing"))
    one = Tables().of(small).n_bytes
    tables = Tables(most_bytes=3 * one)
    tables.of(small)
    tables.of(growing)
    add_rows(growing, 10, 20)
    assert tables.of(growing).n_rows == 30
    assert kept(tables) == ["growing"], "now three times as large"
    tables.of(small)
    assert kept(tables) == ["small"]


def test_a_table_that_was_rewritten_counts_anew(tmp_path: Path) -> None:
    first, other = (run_with_rows(tmp_path, name, 10) for name in ("first", "other"))
    one = Tables().of(first).n_bytes
    tables = Tables(most_bytes=2 * one)
    tables.of(first)
    lines = first.metrics_path.read_text().splitlines(keepends=True)
    first.metrics_path.write_text("".join(lines[:2]))
    tables.of(first)
    tables.of(other)
    assert kept(tables) == ["first", "other"]
    assert tables._n_bytes == 12 * one // 10
