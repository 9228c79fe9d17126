"""The helper process and the streams: what happens when something dies."""

import asyncio
import os
import signal
import time
from pathlib import Path

import pytest

pytest.importorskip("starlette")

from gymnasium_solver.runs.catalogue import Catalogue
from gymnasium_solver.runs.run import Run
from gymnasium_solver.serve.web.live import Live, Wanted
from gymnasium_solver.serve.web.text_tail import follow_text
from gymnasium_solver.serve.web.workers import LineWorker, WorkerError

MODULE = "gymnasium_solver.serve.web.config_worker"


def test_the_config_worker_answers_and_is_replaced_when_killed() -> None:
    async def story() -> None:
        worker = LineWorker(MODULE)
        fine = await worker.ask({"target": "CartPole-v1:ppo", "fields": {"policy_lr": "lin_1e-3"}})
        assert fine["ok"], fine
        assert fine["values"]["policy_lr"] == {"start": 0.001, "end": 0.0}
        fields = {f["name"]: f for group in fine["groups"] for f in group["fields"]}
        assert fields["gamma"]["doc"].startswith("Discount factor")
        wrong = await worker.ask({"target": "CartPole-v1:ppo", "fields": {"gamma": "2"}})
        assert "gamma: got 2" in wrong["error"]
        assert worker.pid is not None
        os.kill(worker.pid, signal.SIGKILL)
        again = await worker.ask({"target": "no-such-env", "fields": {}})
        assert not again["ok"]
        await worker.close()
        assert worker.pid is None

    asyncio.run(story())


def test_a_worker_that_cannot_start_is_an_error() -> None:
    async def story() -> None:
        with pytest.raises(WorkerError, match="ended"):
            await LineWorker("gymnasium_solver.no_such_module").ask({})

    asyncio.run(story())


def test_an_idle_worker_ends() -> None:
    async def story() -> None:
        worker = LineWorker(MODULE, idle_s=0.1)
        await worker._running()
        assert worker.pid is not None
        worker._stay()
        await asyncio.sleep(0.5)
        assert worker.pid is None

    asyncio.run(story())


def test_a_stream_tells_of_rows_events_and_text(runs: Path) -> None:
    run = Run(runs / "cart-0.001-0")

    async def story() -> list[bytes]:
        live = Live(Catalogue(runs))
        wanted = Wanted(cursor="none")
        wanted.files[run.metrics_path] = ("metrics", {"run": run.id})
        wanted.texts[run.log_path] = ("log", {"run": run.id}, None)
        told = []
        deadline = time.monotonic() + 10
        async for part in live.follow(wanted):
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


def test_nobody_watches_and_nothing_is_looked_at(runs: Path) -> None:
    async def story() -> None:
        live = Live(Catalogue(runs))
        stream = live.follow(Wanted(cursor="none"))
        await anext(stream)
        await anext(stream)
        assert live.n_followers == 1
        await stream.aclose()  # type: ignore[attr-defined]
        assert live.n_followers == 0
        await asyncio.sleep(0.5)
        assert live._task is not None
        assert live._task.done()

    asyncio.run(story())


def test_text_is_followed_by_whole_lines(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes("é one\n50 %\r100 %\n\x1b[31mred\x1b[0m\nhalf".encode())
    first = follow_text(path)
    assert first.text == "é one\n100 %\nred\n"
    with path.open("ab") as file:
        file.write(b" a line\n")
    second = follow_text(path, first.cursor)
    assert (second.text, second.is_reset) == ("half a line\n", False)
    path.write_bytes(b"new\n")
    third = follow_text(path, second.cursor)
    assert (third.text, third.is_reset) == ("new\n", True)
    path.unlink()
    assert follow_text(path, third.cursor).is_reset
    path.write_bytes(b"x" * 50 + b"\n" + b"end\n")
    assert follow_text(path, None, most=20).text == "end\n"
