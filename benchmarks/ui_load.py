"""The web app under load: `python -m benchmarks.ui_load --runs 2000 --streams 50 --rate 200`.

Makes a folder of runs, starts `gsolve ui` on it, opens streams that follow the list while some runs
keep writing metrics, and asks the API at a fixed rate. Prints the percentiles of the latency by
call, the memory of the server, how long a new point takes to arrive, and the number of errors.
"""

import argparse
import asyncio
import json
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import psutil

from benchmarks.runs_listing import make_runs
from gymnasium_solver.runs.run import Run

REWARD = "train/opt/metric_0"


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


class Client:
    """A keep-alive HTTP client of one connection, small enough not to be what is measured."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.reader: asyncio.StreamReader | None = None
        self.writer: asyncio.StreamWriter | None = None

    async def get(self, path: str) -> bytes:
        if self.writer is None:
            self.reader, self.writer = await asyncio.open_connection("127.0.0.1", self.port)
        assert self.reader is not None
        self.writer.write(f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n".encode())
        head = await self.reader.readuntil(b"\r\n\r\n")
        status = int(head.split(b" ", 2)[1])
        lengths = [
            line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")
        ]
        body = await self.reader.readexactly(int(lengths[0].split(b":")[1]))
        if status != 200:
            raise RuntimeError(f"{path}: {status} {body[:200]!r}")
        return body


async def ask(port: int, ids: list[str], rate: float, seconds: float) -> dict[str, list[float]]:
    """Ask at a fixed rate, whatever the answers take, and return the latencies by call in s."""
    found: dict[str, list[float]] = {"errors": []}
    clients: asyncio.Queue[Client] = asyncio.Queue()
    for _ in range(32):
        clients.put_nowait(Client(port))
    cursor = json.loads(await (await clients.get()).get("/api/runs"))["cursor"]

    async def one(name: str, path: str, due: float) -> None:
        client = await clients.get()
        try:
            await client.get(path.format(cursor=cursor))
            found.setdefault(name, []).append(time.monotonic() - due)
        except Exception:
            found["errors"].append(1.0)
            client = Client(port)
        clients.put_nowait(client)

    begun, tasks = time.monotonic(), []
    for i in range(int(rate * seconds)):
        due = begun + i / rate
        await asyncio.sleep(max(0.0, due - time.monotonic()))
        name, path = random.choice(calls(ids))
        tasks.append(asyncio.create_task(one(name, path, time.monotonic())))
    await asyncio.gather(*tasks)
    return found


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


async def write(run: Run, written: list[float], stop: asyncio.Event) -> None:
    """A run in training: a row every half second."""
    epoch = 1_000
    while not stop.is_set():
        await asyncio.sleep(0.5)
        epoch += 1
        run.log_metrics({"env_steps": 1000 * epoch, "epoch": epoch, "wall_s": 1.0, REWARD: 1.0})
        written.append(time.monotonic())


def delays(written: list[float], seen: list[float]) -> list[float]:
    """From the writing of a row to the first event after it."""
    return [
        after for at in written if (after := min((s - at for s in seen if s >= at), default=9)) < 5
    ]


def percentiles(values: list[float]) -> str:
    ordered = sorted(values)
    picks = [ordered[min(len(ordered) - 1, int(q * len(ordered)))] for q in (0.5, 0.95, 0.99)]
    return "  ".join(f"{1000 * value:8.1f}" for value in (*picks, ordered[-1]))


async def load(port: int, root: Path, args: argparse.Namespace) -> dict[str, Any]:
    ids = sorted(path.name for path in root.iterdir() if path.name.startswith("CartPole"))
    stop = asyncio.Event()
    run = Run(root / ids[0])
    written: list[float] = []
    seen: list[list[float]] = [[] for _ in range(args.streams)]
    cursor = json.loads(await Client(port).get("/api/runs"))["cursor"]
    path = f"/api/stream?cursor={cursor}&watch={run.id}"
    streams = [asyncio.create_task(stream(port, path, one, stop)) for one in seen]
    writer = asyncio.create_task(write(run, written, stop))
    latencies = await ask(port, ids, args.rate, args.seconds)
    stop.set()
    await writer
    ended = await asyncio.gather(*streams, return_exceptions=True)
    latencies["errors"] += [1.0 for one in ended if isinstance(one, BaseException)]
    return {"latencies": latencies, "delays": [d for one in seen for d in delays(written, one)]}


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--runs", type=int, default=2_000)
    parser.add_argument("--streams", type=int, default=50)
    parser.add_argument("--rate", type=float, default=200.0, help="requests per second")
    parser.add_argument("--seconds", type=float, default=120.0)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder) / "runs"
        root.mkdir()
        make_runs(root, args.runs)
        command = [sys.executable, "-m", "gymnasium_solver", "ui", "--runs-dir", str(root)]
        with subprocess.Popen(
            [*command, "--port", "0"], stdout=subprocess.PIPE, text=True
        ) as server:
            assert server.stdout is not None
            url = next(line for line in server.stdout if line.startswith("http")).strip()
            port = int(url.rstrip("/").rpartition(":")[2])
            begun = time.monotonic()
            asyncio.run(Client(port).get("/api/runs"))
            first = time.monotonic() - begun
            process = psutil.Process(server.pid)
            before = sum(process.cpu_times()[:2])
            result = asyncio.run(load(port, root, args))
            result["cpu"] = sum(process.cpu_times()[:2]) - before
            memory = process.memory_info().rss / 2**20
            server.terminate()
    report(args, first, memory, result)
    return 1 if result["latencies"]["errors"] else 0


def report(args: argparse.Namespace, first: float, memory: float, result: dict[str, Any]) -> None:
    n = sum(len(values) for values in result["latencies"].values())
    print(f"{args.runs:,} runs, {args.streams} streams, {n:,} requests in {args.seconds:g} s")
    print(f"first list, from the files: {1000 * first:.0f} ms; memory at the end {memory:.0f} MiB")
    print(
        f"CPU of the server: {result['cpu']:.1f} s, {1000 * result['cpu'] / n:.1f} ms per request"
    )
    print(f"errors: {len(result['latencies']['errors'])}")
    print(f"{'ms':>24}  {'50 %':>8}  {'95 %':>8}  {'99 %':>8}  {'max':>8}")
    for name, values in sorted(result["latencies"].items()):
        if name == "errors":
            continue
        print(f"{name:>24}  {percentiles(values)}")
    if result["delays"]:
        print(f"{'new row to event':>24}  {percentiles(result['delays'])}")


if __name__ == "__main__":
    sys.exit(main())
