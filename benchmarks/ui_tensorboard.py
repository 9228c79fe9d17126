"""`gsolve ui` beside TensorBoard on the same runs.

    python -m benchmarks.ui_tensorboard --runs 500

Both show the same curves: the runs are also written as TensorBoard event files. Measured: from the
start of the process to the first answer and to the list of all runs, the memory then, and how long
a new point takes until the API has it (the longest of several). TensorBoard is asked until it lists
every run: it reads them one after the other. It must be installed (`pip install tensorboard`).
"""

import argparse
import json
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil

from benchmarks.runs_listing import make_runs
from gymnasium_solver.runs.query import get_rows
from gymnasium_solver.runs.run import Run

TAG = "train/opt/metric_0"
POLL_S, LONGEST_S, POINTS = 0.05, 600.0, 5


def write_events(runs: Path, logs: Path) -> None:
    """The same rows as TensorBoard event files."""
    from tensorboard.compat.proto.event_pb2 import Event
    from tensorboard.compat.proto.summary_pb2 import Summary
    from tensorboard.summary.writer.event_file_writer import EventFileWriter

    for path in sorted(runs.iterdir()):
        if not path.name.startswith("CartPole"):
            continue
        writer = EventFileWriter(str(logs / path.name))
        for row in get_rows(Run(path)):
            values = [
                Summary.Value(tag=name, simple_value=value)
                for name, value in row.items()
                if isinstance(value, float)
            ]
            writer.add_event(Event(step=row["env_steps"], summary=Summary(value=values)))
        writer.close()


def add_event(folder: Path, step: int) -> None:
    from tensorboard.compat.proto.event_pb2 import Event
    from tensorboard.compat.proto.summary_pb2 import Summary
    from tensorboard.summary.writer.event_file_writer import EventFileWriter

    writer = EventFileWriter(str(folder))
    writer.add_event(
        Event(step=step, summary=Summary(value=[Summary.Value(tag=TAG, simple_value=7)]))
    )
    writer.close()


def get(url: str) -> Any:
    try:
        with urllib.request.urlopen(url, timeout=60) as response:
            body = response.read()
    except (urllib.error.URLError, OSError):
        return None
    return json.loads(body) if body[:1] in (b"{", b"[") else body


def wait(ready: Callable[[], bool], poll_s: float = POLL_S) -> float:
    begun = time.monotonic()
    while not ready():
        if time.monotonic() - begun > LONGEST_S:
            raise TimeoutError
        time.sleep(poll_s)
    return time.monotonic() - begun


def free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


def tree_mib(pid: int) -> float:
    process = psutil.Process(pid)
    every = [process, *process.children(recursive=True)]
    return sum(one.memory_info().rss for one in every) / 2**20


def measure(
    command: list[str], first: Callable[[], bool], whole: Callable[[], bool],
    add: Callable[[int], None], has_point: Callable[[int], bool],
) -> dict[str, float]:  # fmt: skip
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as server:
        try:
            begun = time.monotonic()
            wait(first)
            first_s = time.monotonic() - begun
            wait(whole)
            whole_s = time.monotonic() - begun
            memory = tree_mib(server.pid)
            delays = []
            for step in range(99_000, 99_000 + POINTS):
                time.sleep(1.7)
                add(step)
                delays.append(wait(lambda step=step: has_point(step)))  # type: ignore[misc]
            return {
                "first answer, s": first_s,
                "all runs listed, s": whole_s,
                "memory then, MiB": memory,
                "new point, s": max(delays),
            }
        finally:
            server.terminate()


def ours(runs: Path, n: int) -> dict[str, float]:
    port = free_port()
    base = f"http://127.0.0.1:{port}"
    run = Run(sorted(p for p in runs.iterdir() if p.name.startswith("CartPole"))[0])
    series = f"{base}/api/series?runs={run.id}&metrics={TAG}"

    def add(step: int) -> None:
        run.log_metrics({"env_steps": step, "epoch": 99, "wall_s": 99.0, TAG: 7.0})

    return measure(
        [
            sys.executable,
            "-m",
            "gymnasium_solver",
            "ui",
            "--runs-dir",
            str(runs),
            "--port",
            str(port),
        ],
        lambda: get(base) is not None,
        lambda: len((get(f"{base}/api/runs") or {"rows": []})["rows"]) >= n,
        add,
        lambda step: step in ((get(series) or {"series": [{"x": []}]})["series"][0]["x"]),
    )


def tensorboard(logs: Path, n: int) -> dict[str, float]:
    port = free_port()
    base = f"http://127.0.0.1:{port}"
    run = sorted(logs.iterdir())[0]
    tags = f"{base}/data/plugin/scalars/tags"
    series = f"{base}/data/plugin/scalars/scalars?run={run.name}&tag={TAG}"
    return measure(
        [sys.executable, "-m", "tensorboard.main", "--logdir", str(logs), "--port", str(port)],
        lambda: get(base) is not None,
        lambda: len(get(tags) or {}) >= n,
        lambda step: add_event(run, step),
        lambda step: any(row[1] == step for row in get(series) or []),
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--runs", type=int, default=500)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        runs, logs = Path(folder) / "runs", Path(folder) / "logs"
        runs.mkdir()
        make_runs(runs, args.runs)
        results = {"gsolve ui": ours(runs, args.runs)}
        try:
            import tensorboard as _  # noqa: F401
        except ImportError:
            print("tensorboard is not installed; only gsolve ui is measured", file=sys.stderr)
        else:
            write_events(runs, logs)
            results["TensorBoard"] = tensorboard(logs, args.runs)
            shutil.rmtree(logs)
    print(f"{args.runs:,} runs")
    for name in next(iter(results.values())):
        print(
            f"{name:>20}  " + "  ".join(f"{tool} {row[name]:8.2f}" for tool, row in results.items())
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
