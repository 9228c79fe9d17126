"""`query`: SQL over copies of the runs, which reaches nothing else."""

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.serve.mcp_client import GSOLVE, Caller, served, tiny_run

pytest.importorskip("mcp", reason="the extra mcp is not installed")
pytest.importorskip("duckdb", reason="the extra mcp is not installed")

REFUSED = (
    "SELECT * FROM read_text('{file}')", "SELECT * FROM read_csv('{file}', header=false)",
    "SELECT * FROM read_json('{file}')", "SELECT * FROM read_blob('{file}')",
    "SELECT * FROM '{file}'", "SELECT * FROM glob('/etc/*')", "SELECT * FROM sniff_csv('{file}')",
    "SELECT * FROM query('SELECT * FROM read_text(''{file}'')')", "COPY runs TO '{out}'",
    "EXPORT DATABASE '{out}'", "ATTACH '{out}' AS x", "INSTALL httpfs", "LOAD '{file}'",
    "SET enable_external_access = true", "RESET ALL", "PRAGMA database_list",
    "CALL pragma_version()", "DELETE FROM runs", "CREATE TABLE x AS SELECT 1",
    "SELECT 1; SELECT 2", "SELECT 1; COPY runs TO '{out}'", "", ";", "SELEC 1",
    "SELECT * FROM loading", "SELECT * FROM rows", "SELECT * FROM table_of_python",
)  # fmt: skip


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("sql") / "runs"
    first = tiny_run(root, seed=1)
    copy = root / "copy"
    shutil.copytree(first.path, copy, symlinks=True)
    return root


@served()
async def test_metrics_runs_and_events_are_tables(call: Caller) -> None:
    counted = await call.data(
        "query", sql="SELECT run, count(*) AS n, max(env_steps) AS m FROM metrics GROUP BY run"
    )
    assert {row["m"] for row in counted["rows"]} == {128}
    assert len(counted["rows"]) == 2
    related = await call.data(
        "query",
        sql='SELECT corr("train/opt/ppo/approx_kl", "train/opt/loss/policy") AS r FROM metrics',
    )
    assert -1 <= related["rows"][0]["r"] <= 1
    joined = await call.data(
        "query",
        sql="SELECT r.env, e.kind, count(*) AS n FROM runs r JOIN events e USING (run) "
        "WHERE e.kind = 'eval' GROUP BY ALL",
        filter="id=copy",
    )
    assert joined["rows"][0]["env"] == "CartPole-v1"
    assert joined["rows"][0]["n"] >= 4
    config = await call.data("query", sql="SELECT config->>'seed' AS s FROM runs LIMIT 1")
    assert config["rows"][0]["s"] == "1"


@served()
async def test_a_filter_takes_a_part_of_an_id_and_says_if_nothing_matches(call: Caller) -> None:
    sql = "SELECT count(*) AS n FROM metrics"
    assert (await call.data("query", sql=sql, filter="id=cop"))["rows"][0]["n"] > 1
    assert "no run matches 'id=nothing'" in await call.error("query", sql=sql, filter="id=nothing")


@pytest.mark.slow
def test_a_server_says_nothing_at_its_end(root: Path) -> None:
    """DuckDB's module would list all that it has if the interpreter could not clear it."""
    hello = {"protocolVersion": "2025-06-18", "capabilities": {}}
    hello["clientInfo"] = {"name": "test", "version": "1"}
    call = {"name": "query", "arguments": {"sql": "SELECT 1 AS x"}}
    lines = [
        {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": hello},
        {"jsonrpc": "2.0", "method": "notifications/initialized"},
        {"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": call},
    ]
    words = [*GSOLVE, "mcp", "--runs-dir", str(root)]
    pipes: dict[str, Any] = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    with subprocess.Popen(words, text=True, **pipes) as server:
        assert server.stdin is not None
        assert server.stdout is not None
        for line in lines:
            server.stdin.write(json.dumps(line) + "\n")
            server.stdin.flush()
        answers = [server.stdout.readline() for _ in range(2)]
        assert "x" in answers[1]
        _, errors = server.communicate(timeout=60)
    assert errors == ""


@served()
async def test_results_are_limited_and_say_so(call: Caller) -> None:
    found = await call.data("query", sql="SELECT * FROM range(100000)", limit=3)
    assert len(found["rows"]) == 3
    assert found["more_rows"] is True


@served()
async def test_nothing_but_the_copies_is_reached(call: Caller, tmp_path: Path) -> None:
    table_of_python = {"secret": [1]}
    secret, out = tmp_path / "secret.txt", tmp_path / "out"
    secret.write_text("swordfish\n")
    for sql in REFUSED:
        text = await call.error("query", sql=sql.format(file=secret, out=out))
        assert "swordfish" not in text, sql
        assert not out.exists(), sql
    assert table_of_python


@served()
async def test_a_query_that_takes_too_long_is_stopped(
    call: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gymnasium_solver.serve.mcp.metric_tools.TIMEOUT_S", 0.5)
    slow = (
        "SELECT count(*) FROM range(100000000) a, range(100000) b "
        "WHERE (a.range * 7 + b.range) % 11 = 3"
    )
    assert "longer than" in await call.error("query", sql=slow)
