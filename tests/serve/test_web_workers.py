"""What the web server keeps going: helper processes, streams, tables in memory."""

import asyncio
import os
import signal
import time
from pathlib import Path

import pytest

pytest.importorskip("starlette")

from gymnasium_solver.runs.run import Run
from gymnasium_solver.runs.store import RunStore
from gymnasium_solver.serve.questions import Tables
from gymnasium_solver.serve.web.helper import Helper, HelperError
from gymnasium_solver.serve.web.stream import RunList, changes_of, follow_text, lines_of

MODULE = "gymnasium_solver.serve.web.config_worker"


def test_the_config_worker_answers_and_is_replaced_when_killed() -> None:
    async def story() -> None:
        worker = Helper(MODULE)
        fine = await worker.ask({"target": "CartPole-v1:ppo", "fields": {"policy_lr": "lin_1e-3"}})
        assert fine["ok"], fine
        assert fine["values"]["policy_lr"] == {"start": 0.001, "end": 0.0}
        fields = {f["name"]: f for group in fine["groups"] for f in group["fields"]}
        assert fields["gamma"]["doc"].startswith("Discount factor")
        wrong = await worker.ask({"target": "CartPole-v1:ppo", "fields": {"gamma": "2"}})
        assert "gamma: got 2" in wrong["error"]
        assert worker.process is not None
        os.kill(worker.process.pid, signal.SIGKILL)
        again = await worker.ask({"target": "no-such-env", "fields": {}})
        assert not again["ok"]
        await worker.close()
        assert not worker.is_alive

    asyncio.run(story())


def test_a_worker_that_cannot_start_is_an_error() -> None:
    async def story() -> None:
        with pytest.raises(HelperError, match="ended"):
            await Helper("gymnasium_solver.no_such_module").ask({})

    asyncio.run(story())


def test_an_idle_worker_ends() -> None:
    async def story() -> None:
        worker = Helper(MODULE, idle_s=0.1)
        await worker.ask({"target": "no-such-env"})
        process = worker.process
        assert process is not None
        assert await asyncio.wait_for(process.wait(), 20) == 0
        assert not worker.is_alive

    asyncio.run(story())


def test_a_stream_tells_of_rows_events_and_text(runs: Path) -> None:
    run = Run(runs / "cart-0.001-0")

    async def story() -> list[bytes]:
        looks = [
            changes_of(run.metrics_path, "metrics", {"run": run.id}),
            lines_of(run.log_path, "log", {"run": run.id}, None),
        ]
        told = []
        deadline = time.monotonic() + 10
        async for part in RunList(RunStore(runs)).follow("none", looks):
            told.append(part)
            text = b"".join(told)
            if text.count(b"event: runs") == 1 and b"event: log" in text and len(told) < 50:
                if b"event: metrics" in text and b"line three" in text:
                    break
                run.log_metrics({"env_steps": 99_000, "a": 1.0})
                run.log_text("line three")
            assert time.monotonic() < deadline
        return told

    text = b"".join(asyncio.run(story())).decode()
    assert "retry:" in text
    assert '"rows":[[' in text
    run.close()


def test_pages_share_one_look_at_the_list_and_without_a_page_nobody_looks(runs: Path) -> None:
    looks = 0

    class Counted(RunStore):
        def _scan(self) -> None:
            nonlocal looks
            looks += 1
            super()._scan()

    async def story() -> None:
        known = RunList(Counted(runs))
        streams = [known.follow("none", []) for _ in range(5)]
        for stream in streams:
            await anext(stream)
            assert b"event: runs" in await anext(stream)
        assert looks == 1
        for stream in streams:
            await stream.aclose()  # type: ignore[attr-defined]
        await asyncio.sleep(1.5)
        assert looks == 1

    asyncio.run(story())


def test_a_server_that_stops_ends_its_streams(runs: Path) -> None:
    async def story() -> list[bytes]:
        known = RunList(RunStore(runs))
        told = []
        async for part in known.follow("none", []):
            told.append(part)
            known.is_closed = True
        return told

    assert asyncio.run(asyncio.wait_for(story(), 10))


def test_text_is_followed_by_whole_lines(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes("é one\n50 %\r100 %\n\x1b[31mred\x1b[0m\nhalf".encode())
    first = follow_text(path)
    assert first["text"] == "é one\n100 %\nred\n"
    with path.open("ab") as file:
        file.write(b" a line\n")
    second = follow_text(path, first["cursor"])
    assert (second["text"], second["reset"]) == ("half a line\n", False)
    path.write_bytes(b"new\n")
    third = follow_text(path, second["cursor"])
    assert (third["text"], third["reset"]) == ("new\n", True)
    path.unlink()
    assert follow_text(path, third["cursor"])["reset"]
    path.write_bytes(b"x" * 50 + b"\n" + b"end\n")
    assert follow_text(path, None, most=20)["text"] == "end\n"


# --- metric tables: their memory is bounded and counted


def run_with_rows(root: Path, name: str, n_rows: int) -> Run:
    run = Run(root / name)
    run.path.mkdir(parents=True)
    add_rows(run, 0, n_rows)
    return run


def add_rows(run: Run, first: int, n_rows: int) -> None:
    for i in range(first, first + n_rows):
        run.log_metrics({"env_steps": i, "epoch": i, "wall_s": 0.1 * i, "a": 1.0, "b": 2.0})


def kept(tables: Tables) -> list[str]:
    return [Path(path).name for path in tables._tables]


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


def test_a_table_that_grows_or_is_rewritten_counts_as_it_is(tmp_path: Path) -> None:
    small, growing = (run_with_rows(tmp_path, name, 10) for name in ("small", "growing"))
    one = Tables().of(small).n_bytes
    tables = Tables(most_bytes=3 * one)
    tables.of(small)
    tables.of(growing)
    lines = growing.metrics_path.read_text().splitlines(keepends=True)
    add_rows(growing, 10, 20)
    assert tables.of(growing).n_rows == 30
    assert kept(tables) == ["growing"], "now three times as large"
    growing.metrics_path.write_text("".join(lines[:2]))
    tables.of(growing)
    tables.of(small)
    assert kept(tables) == ["growing", "small"]
    assert tables._n_bytes == 12 * one // 10
