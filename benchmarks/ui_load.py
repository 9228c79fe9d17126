"""The web app under load, and how soon it shows its first page.

    .venv/bin/python -m benchmarks.ui_load                # about 6 minutes
    .venv/bin/python -m benchmarks.ui_load --quick        # about 1 minute, to see that it works

1. Start: `gsolve ui` on 2,000 runs; from the start of the process to the first byte, to the whole
   list, and to the table drawn in Chromium; and a comparison of 200 runs, from its request.
2. Load: 50 streams follow the list and a run that keeps writing rows, while the API is asked 200
   times a second for two minutes: latency by call, from a new row to its event, memory, errors.
3. Kills: the helper processes are killed with SIGKILL at random moments while they check configs
   and play episodes. Every question must be answered, the server must serve on, and in the end both
   helpers must work.

Raw figures go to results/ui_load.json, the tables to results/ui_load.md.
"""

import argparse
import asyncio
import contextlib
import json
import random
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import psutil

from benchmarks.runs_listing import make_runs
from benchmarks.ui_server import (
    Client,
    Server,
    chromium,
    clicked_s,
    drawn_s,
    get,
    gsolve_ui,
    median_of,
    percentiles,
    wait,
)
from gymnasium_solver.bench.harness import ROOT, describe, header, say, table, write
from gymnasium_solver.runs.run import Run

NAME = "ui_load"
REWARD = "train/opt/metric_0"
ROW_S, LAST_S = 0.5, 3.0
COMPARED = 200
TRAINING: dict[str, Any] = {"max_env_steps": 3000, "test_episodes": 1, "seed": 1, "quiet": True}


def started(root: Path, n: int, browser: Any) -> dict[str, float | None]:
    """Seconds from the start of the process; the index of an earlier listing is there."""
    with gsolve_ui(root) as server:
        wait(lambda: get(server.url) is not None, server)
        first_byte = time.monotonic() - server.started
        wait(lambda: len((get(f"{server.url}/api/runs") or {"rows": []})["rows"]) >= n, server)
        whole = time.monotonic() - server.started
    with gsolve_ui(root) as server:
        wait(lambda: get(f"{server.url}/static/app.js") is not None, server)
        row = "table.runs tbody tr[aria-rowindex]"
        shown = drawn_s(browser, server, "/", row, since=server.started)
        again = drawn_s(browser, server, "/", row)
        ids = sorted(path.parent.name for path in root.glob("*/meta.json"))[:COMPARED]
        many = f"/compare?runs={','.join(ids)}&metric={REWARD}"
        chart = ".compare-page .chart canvas"
        curves = drawn_s(browser, server, many, chart)
        clicked = clicked_s(browser, server, many, chart, row)
    return {
        "first byte": first_byte,
        "whole list": whole,
        "first page drawn": shown,
        "page of a running server drawn, from its request": again,
        f"curves of {COMPARED} runs drawn, from the request in a new tab": curves,
        f"curves of {COMPARED} runs drawn, from a click in the list": clicked,
    }


# --- load


def calls(ids: list[str]) -> list[tuple[str, str]]:
    """(name, path) of one call of each kind."""
    some = random.sample(ids, 4)
    return [
        ("list, changes", "/api/runs?cursor={cursor}"),
        ("filter", "/api/select?q=seed%3C500&sort=test"),
        ("run", f"/api/runs/{some[0]}"),
        ("series", f"/api/series?runs={some[0]},{some[1]}&metrics={REWARD}&smooth=0.6"),
        ("log", f"/api/runs/{some[2]}/log"),
        ("page", f"/runs/{some[3]}"),
    ]


async def ask(port: int, ids: list[str], rate: float, stop: asyncio.Event) -> dict[str, Any]:
    """Ask at a fixed rate, whatever the answers take, until `stop`; latencies by call in s."""
    latencies: dict[str, list[float]] = {}
    errors: list[str] = []
    clients: asyncio.Queue[Client] = asyncio.Queue()
    for _ in range(32):
        clients.put_nowait(Client(port))
    cursor = json.loads(await Client(port).get("/api/runs"))["cursor"]

    async def one(name: str, path: str, due: float) -> None:
        client = await clients.get()
        try:
            await client.get(path.format(cursor=cursor))
            latencies.setdefault(name, []).append(time.monotonic() - due)
        except Exception as error:
            errors.append(f"{name}: {type(error).__name__}: {error}"[:200])
            client = Client(port)
        clients.put_nowait(client)

    begun, tasks, n = time.monotonic(), set(), 0
    while not stop.is_set():
        due = begun + n / rate
        await asyncio.sleep(max(0.0, due - time.monotonic()))
        name, path = random.choice(calls(ids))
        task = asyncio.create_task(one(name, path, time.monotonic()))
        tasks.add(task)
        task.add_done_callback(tasks.discard)
        n += 1
    await asyncio.gather(*tasks)
    return {"latencies": latencies, "errors": errors, "n": n, "s": time.monotonic() - begun}


async def stream(port: int, path: str, seen: list[float], stop: asyncio.Event) -> int:
    """Follow events until `stop`; note when each arrived. Returns the bytes read."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n".encode())
    size = 0
    while not stop.is_set():
        try:
            line = await asyncio.wait_for(reader.readline(), 0.5)
        except TimeoutError:
            continue
        if not line:
            raise RuntimeError("the stream ended")
        size += len(line)
        if line.startswith(b"event: metrics"):
            seen.append(time.monotonic())
    writer.close()
    return size


async def write_rows(run: Run, written: list[float], stop: asyncio.Event) -> None:
    """A run in training: a row every half second."""
    epoch = 1_000
    while not stop.is_set():
        await asyncio.sleep(ROW_S)
        epoch += 1
        run.log_metrics({"env_steps": 1000 * epoch, "epoch": epoch, "wall_s": 1.0, REWARD: 1.0})
        written.append(time.monotonic())


async def watch_memory(pid: int, found: list[float], stop: asyncio.Event) -> None:
    process = psutil.Process(pid)
    while not stop.is_set():
        found.append(process.memory_info().rss / 2**20)
        await asyncio.sleep(1.0)


def delays(written: list[float], seen: list[float], most: float = 10.0) -> list[float]:
    """From the writing of a row to the first event after it; `most` if there is none."""
    return [min((s - at for s in seen if s >= at), default=most) for at in written]


async def load(server: Server, root: Path, args: argparse.Namespace) -> dict[str, Any]:
    ids = sorted(path.name for path in root.iterdir() if path.name.startswith("CartPole"))
    stop, left, run = asyncio.Event(), asyncio.Event(), Run(root / ids[0])
    port = server.port
    written: list[float] = []
    memory: list[float] = []
    seen: list[list[float]] = [[] for _ in range(args.streams)]
    cursor = json.loads(await Client(port).get("/api/runs"))["cursor"]
    path = f"/api/stream?cursor={cursor}&watch={run.id}"
    process = psutil.Process(server.process.pid)
    cpu = sum(process.cpu_times()[:2])
    streams = [asyncio.create_task(stream(port, path, one, left)) for one in seen]
    others = [
        asyncio.create_task(write_rows(run, written, stop)),
        asyncio.create_task(watch_memory(process.pid, memory, stop)),
    ]
    asked = asyncio.create_task(ask(port, ids, args.rate, stop))
    await asyncio.sleep(args.seconds)
    stop.set()
    result = await asked
    await asyncio.gather(*others)
    await asyncio.sleep(LAST_S)  # for the events of the last rows
    left.set()
    ended = await asyncio.gather(*streams, return_exceptions=True)
    broken = [f"stream: {one}" for one in ended if isinstance(one, BaseException)]
    cpu = sum(process.cpu_times()[:2]) - cpu
    late = [d for one in seen for d in delays(written, one)]
    return {
        "requests": result["n"],
        "requests_per_s": round(result["n"] / result["s"], 1),
        "rows_written": len(written),
        "latency_ms": {k: percentiles(v)._asdict() for k, v in sorted(result["latencies"].items())},
        "row_to_event_ms": percentiles(late)._asdict() if late else None,
        "errors": [*result["errors"], *broken],
        "cpu_s": round(cpu, 2),
        "memory_mib": {
            "max": round(max(memory), 1),
            "quarters": [round(memory[i * (len(memory) - 1) // 4], 1) for i in range(5)],
        },
    }


# --- kills


async def kills(server: Server, root: Path, run_id: str, n: int) -> dict[str, Any]:
    """Kill the helpers at random moments of their work; every question must get an answer."""
    token = get(f"{server.url}/api/session")["token"]
    ids = sorted(path.name for path in root.iterdir() if path.name.startswith("CartPole"))
    rng, stop = random.Random(1), asyncio.Event()
    serving = asyncio.create_task(ask(server.port, ids, 20.0, stop))

    async def question(kind: str) -> tuple[int, Any]:
        client = Client(server.port)
        if kind == "config":
            body: dict[str, Any] = {"config": "CartPole-v1:ppo", "fields": {"gamma": "0.9"}}
            return await asyncio.wait_for(client.post("/api/config", body, token), 120)
        body = {"seed": rng.randrange(1000), "max_steps": 500}
        path = f"/api/runs/{run_id}/episodes"
        return await asyncio.wait_for(client.post(path, body, token), 120)

    answered: dict[str, int] = {}
    killed = 0
    for number in range(n):
        asked = asyncio.create_task(question(("config", "episode")[number % 2]))
        await asyncio.sleep(rng.uniform(0.0, 4.0))
        for child in psutil.Process(server.process.pid).children(recursive=True):
            with contextlib.suppress(psutil.NoSuchProcess):
                child.kill()
                killed += 1
        try:
            status, answer = await asked
            kind = "error" if "error" in answer and not answer.get("ok") else "answer"
            answered[f"{kind} {status}"] = answered.get(f"{kind} {status}", 0) + 1
        except Exception as error:
            name = f"no answer: {type(error).__name__}"
            answered[name] = answered.get(name, 0) + 1
    last = {kind: (await question(kind))[0] for kind in ("config", "episode")}
    stop.set()
    beside = await serving
    return {
        "questions": n,
        "killed": killed,
        "answered": answered,
        "afterwards": last,
        "requests_beside": beside["n"],
        "errors": beside["errors"]
        + [name for name in answered if name.startswith("no answer")]
        + [f"{kind} afterwards: {status}" for kind, status in last.items() if status >= 400],
        "server_lives": server.process.poll() is None,
    }


# --- report


def markdown(result: dict[str, Any]) -> str:
    about, under, killed = result["args"], result["load"], result["kills"]
    start = [[name, "–" if v is None else f"{v:.2f}"] for name, v in result["start_s"].items()]
    rows = [[k, *v.values()] for k, v in under["latency_ms"].items()]
    if under["row_to_event_ms"]:
        rows.append(["**new row to event**", *under["row_to_event_ms"].values()])
    memory = under["memory_mib"]
    answers = ", ".join(f"{name}: {n}" for name, n in sorted(killed["answered"].items()))
    return "\n\n".join([
        "# The web app under load",
        describe(result),
        f"{about['runs']:,} runs. From the start of the process, median of {about['repeats']}:",
        table(["", "s"], start),
        f"{about['streams']} streams for {about['seconds']:g} s, {under['requests']:,} requests "
        f"({under['requests_per_s']:g} a second), {under['rows_written']} rows written meanwhile. "
        f"**Errors: {len(under['errors'])}**. Memory of the server after each quarter "
        f"{', '.join(f'{m:.0f}' for m in memory['quarters'])} MiB, at most {memory['max']:.0f}; "
        f"its CPU time {under['cpu_s']:.0f} s.",
        table(["ms", "n", "50 %", "95 %", "99 %", "max"], rows),
        f"Helpers killed at random moments: {killed['killed']} processes during "
        f"{killed['questions']} questions, all the while {killed['requests_beside']:,} other "
        f"requests. Answers: {answers}. Errors: {len(killed['errors'])}; the server "
        f"{'serves on' if killed['server_lives'] else '**died**'}.",
    ])  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="ui_load.py",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--runs", type=int, default=2_000)
    parser.add_argument("--streams", type=int, default=50)
    parser.add_argument("--rate", type=float, default=200.0, help="requests per second")
    parser.add_argument("--seconds", type=float, default=120.0)
    parser.add_argument("--kills", type=int, default=30)
    parser.add_argument("--repeats", type=int, default=5, help="starts of the server")
    parser.add_argument("--quick", action="store_true", help="a short pass: 200 runs, 10 s")
    parser.add_argument("--out", type=Path, help="folder of the result files")
    args = parser.parse_args()
    if args.quick:
        args.runs, args.seconds, args.kills, args.repeats = 200, 10.0, 4, 1
    import gymnasium_solver as gs

    found = header("python -m benchmarks.ui_load" + (" --quick" if args.quick else ""))
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder) / "runs"
        root.mkdir()
        say(f"making {args.runs:,} runs, and training one")
        make_runs(root, args.runs)
        played = gs.train("CartPole-v1:ppo", **TRAINING, runs_dir=root).id
        with chromium() as browser:
            say("starting the server")
            n = args.runs + 1
            starts = [started(root, n, browser) for _ in range(args.repeats)]
        with gsolve_ui(root) as server:
            wait(lambda: get(server.url) is not None, server)
            say(f"{args.streams} streams and {args.rate:g} requests a second")
            under = asyncio.run(load(server, root, args))
            say("killing the helpers")
            killed = asyncio.run(kills(server, root, played, args.kills))
    kept = ("runs", "streams", "rate", "seconds", "kills", "repeats")
    found |= {"args": {name: getattr(args, name) for name in kept}, "starts": starts}
    found |= {"benchmark": NAME, "start_s": median_of(starts), "load": under, "kills": killed}
    out = args.out or ROOT / ("build/bench" if args.quick else "benchmarks/results")
    write(out, NAME, found, markdown(found))
    print(markdown(found))
    return 1 if under["errors"] or killed["errors"] or not killed["server_lives"] else 0


if __name__ == "__main__":
    sys.exit(main())
