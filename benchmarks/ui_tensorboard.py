"""`gsolve ui` beside TensorBoard and Trackio on the same runs.

    make peers-ui && .venv/bin/python -m benchmarks.ui_tensorboard        # about 8 minutes
    .venv/bin/python -m benchmarks.ui_tensorboard --quick                 # 50 runs, about 2 minutes

All show the same 500 runs: their rows are also written as TensorBoard event files and into
Trackio's database. Measured: from the start of the process to the first answer, to the answer that
has all runs, and in Chromium to a page that shows the first run; the memory of the process tree
then; and how long a new point takes until the API has it (the median of several). The tools take
turns in every repeat. TensorBoard comes from this environment, Trackio from .venv-peers-ui, since
it needs another Pillow; one that is missing is reported in the result.

Raw figures go to results/ui_tensorboard.json, the table to results/ui_tensorboard.md.
"""

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from benchmarks.runs_listing import make_runs
from benchmarks.ui_server import (
    Server,
    chromium,
    drawn_s,
    free_port,
    get,
    median_of,
    serving,
    tree_mib,
    wait,
)
from gymnasium_solver.bench.harness import ROOT, describe, header, say, table, write
from gymnasium_solver.runs.query import get_rows
from gymnasium_solver.runs.run import Run

NAME = "ui_tensorboard"
TAG = "train/opt/metric_0"
PEERS_PYTHON = ROOT / ".venv-peers-ui/bin/python"
SHOWN = "text=/20260101-0/"  # in the id of every run
FIRST_STEP, PAUSE_S = 99_000, 1.7


@dataclass
class Tool:
    name: str
    command: Callable[[int], Sequence[str]]
    """Of a port."""
    n_runs: Callable[[str], int]
    """How many runs the server at this address lists."""
    add: Callable[[int], None]
    """Write a point at this step."""
    has_point: Callable[[str, int], bool]
    page: str = "/"
    environment: Mapping[str, str] = field(default_factory=dict)


def measure(tool: Tool, n: int, points: int, first_step: int, browser: Any) -> dict[str, Any]:
    def launched() -> Any:
        port = free_port()
        return serving(tool.command(port), port, env=os.environ | dict(tool.environment))

    with launched() as server:
        wait(lambda: get(server.url) is not None, server)
        first = time.monotonic() - server.started
        wait(lambda: tool.n_runs(server.url) >= n, server)
        whole = time.monotonic() - server.started
        memory = tree_mib(server.process.pid)
        delays = [_new_point(tool, server, first_step + i) for i in range(points)]
    with launched() as server:
        wait(lambda: get(server.url) is not None, server)
        drawn = drawn_s(browser, server, tool.page, SHOWN, since=server.started)
    return {
        "first answer, s": first,
        "all runs listed, s": whole,
        "first page drawn, s": drawn,
        "memory then, MiB": memory,
        "new point, s": statistics.median(delays),
        "slowest new point, s": max(delays),
    }


def _new_point(tool: Tool, server: Server, step: int) -> float:
    time.sleep(PAUSE_S)
    tool.add(step)
    return wait(lambda: tool.has_point(server.url, step), server)


def ours(runs: Path) -> Tool:
    run = Run(_first(runs))
    series = f"/api/series?runs={run.id}&metrics={TAG}"

    def add(step: int) -> None:
        run.log_metrics({"env_steps": step, "epoch": 99, "wall_s": 99.0, TAG: 7.0})

    return Tool(
        "gsolve ui",
        lambda port: [
            *(sys.executable, "-m", "gymnasium_solver", "ui"),
            *("--runs-dir", str(runs), "--port", str(port)),
        ],
        lambda url: len((get(f"{url}/api/runs") or {"rows": []})["rows"]),
        add,
        lambda url, step: step in (get(url + series) or {"series": [{"x": []}]})["series"][0]["x"],
    )


def _first(runs: Path) -> Path:
    return sorted(path for path in runs.iterdir() if path.name.startswith("CartPole"))[0]


# --- TensorBoard


def tensorboard(runs: Path, logs: Path) -> Tool:
    _write_events(runs, logs)
    run = _first(logs)
    series = f"/data/plugin/scalars/scalars?run={run.name}&tag={TAG}"
    main = (sys.executable, "-m", "tensorboard.main", "--logdir", str(logs))
    return Tool(
        "TensorBoard",
        lambda port: [*main, "--port", str(port)],
        lambda url: len(get(f"{url}/data/plugin/scalars/tags") or {}),
        lambda step: _add_event(run, [(step, {TAG: 7.0})]),
        lambda url, step: any(row[1] == step for row in get(url + series) or []),
        page="/#timeseries",
    )


def _write_events(runs: Path, logs: Path) -> None:
    for path in sorted(runs.iterdir()):
        if path.name.startswith("CartPole"):
            rows = get_rows(Run(path))
            floats = ({k: v for k, v in row.items() if isinstance(v, float)} for row in rows)
            steps = (row["env_steps"] for row in rows)
            _add_event(logs / path.name, list(zip(steps, floats, strict=True)))


def _add_event(folder: Path, rows: Sequence[tuple[int, Mapping[str, float]]]) -> None:
    from tensorboard.compat.proto.event_pb2 import Event
    from tensorboard.compat.proto.summary_pb2 import Summary
    from tensorboard.summary.writer.event_file_writer import EventFileWriter

    writer = EventFileWriter(str(folder))
    for step, values in rows:
        every = [Summary.Value(tag=name, simple_value=value) for name, value in values.items()]
        writer.add_event(Event(step=step, summary=Summary(value=every)))
    writer.close()


# --- Trackio


@contextmanager
def trackio(python: Path, runs: Path, folder: Path) -> Iterator[Tool]:
    script = [str(python), str(ROOT / "benchmarks/peers/trackio_site.py")]
    environment = {"TRACKIO_DIR": str(folder), "HF_HUB_OFFLINE": "1"}
    whole = os.environ | environment
    subprocess.run([*script, "fill", str(runs)], env=whole, check=True, stdout=subprocess.DEVNULL)
    run = _first(runs).name
    with subprocess.Popen(
        [*script, "write"], env=whole, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as writer:
        assert writer.stdin is not None
        assert writer.stdout is not None
        stdin, stdout = writer.stdin, writer.stdout
        stdout.readline()

        def add(step: int) -> None:
            stdin.write(f"{run} {step}\n")
            stdin.flush()
            stdout.readline()

        def has_point(url: str, step: int) -> bool:
            asked = {"project": "bench", "run": run, "metric_name": TAG}
            answer = get(f"{url}/api/get_metric_values", asked) or {"data": []}
            return any(row["step"] == step for row in answer["data"])

        yield Tool(
            "Trackio",
            lambda port: [*script, "serve", str(port)],
            lambda url: len(
                (get(f"{url}/api/get_runs_for_project", {"project": "bench"}) or {"data": []})[
                    "data"
                ]
            ),
            add,
            has_point,
            page="/?project=bench",
            environment=environment,
        )
        stdin.close()


def why_no_trackio(python: Path) -> str | None:
    """None if this Python has it."""
    if not python.exists():
        return f"there is no {python.parent.parent.name}: make peers-ui installs it"
    done = subprocess.run([python, "-c", "import trackio"], capture_output=True, text=True)
    return None if done.returncode == 0 else done.stderr.strip().splitlines()[-1]


def version_of(python: Path, package: str) -> str:
    code = f"from importlib.metadata import version; print(version({package!r}))"
    return subprocess.run([python, "-c", code], capture_output=True, text=True).stdout.strip()


# --- report


def markdown(result: dict[str, Any]) -> str:
    tools = result["median"]
    names = list(next(iter(tools.values())))
    rows = [
        [name, *("–" if row.get(name) is None else f"{row[name]:,.2f}" for row in tools.values())]
        for name in names
    ]
    titles = [f"{tool} {result['tools'].get(tool, '')}".strip() for tool in tools]
    about = result["args"]
    missing = [f"{tool} is missing: {why}." for tool, why in result["missing"].items()]
    return "\n\n".join([
        "# The web app beside TensorBoard and Trackio",
        describe(result),
        f"The same {about['runs']:,} runs with 20 rows of 40 metrics each; medians of "
        f"{about['repeats']} starts, {about['points']} new points each.",
        table(["", *titles], rows),
        *missing,
    ])  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="ui_tensorboard.py",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--runs", type=int, default=500)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--points", type=int, default=5, help="new points of each start")
    parser.add_argument("--peers-python", type=Path, default=PEERS_PYTHON)
    parser.add_argument("--quick", action="store_true", help="a short pass: 50 runs, once")
    parser.add_argument("--out", type=Path, help="folder of the result files")
    args = parser.parse_args()
    if args.quick:
        args.runs, args.repeats, args.points = 50, 1, 2
    found = header("python -m benchmarks.ui_tensorboard" + (" --quick" if args.quick else ""))
    missing: dict[str, str] = {}
    rows: dict[str, list[dict[str, Any]]] = {}
    with tempfile.TemporaryDirectory() as folder, chromium() as browser:
        runs = Path(folder) / "runs"
        runs.mkdir()
        say(f"making {args.runs:,} runs")
        make_runs(runs, args.runs)
        with _tools(runs, Path(folder), args.peers_python, missing) as tools:
            for repeat in range(args.repeats):
                for tool in tools:
                    step = FIRST_STEP + repeat * args.points
                    row = measure(tool, args.runs, args.points, step, browser)
                    rows.setdefault(tool.name, []).append(row)
                    say(f"{tool.name}: {row}")
    kept = ("runs", "repeats", "points")
    found |= {"args": {name: getattr(args, name) for name in kept}, "missing": missing}
    found["benchmark"] = NAME
    found |= {"rows": rows, "median": {tool: median_of(each) for tool, each in rows.items()}}
    found["tools"] = {
        "TensorBoard": version_of(Path(sys.executable), "tensorboard"),
        "Trackio": version_of(args.peers_python, "trackio") if "Trackio" not in missing else "",
    }
    out = args.out or ROOT / ("build/bench" if args.quick else "benchmarks/results")
    write(out, NAME, found, markdown(found))
    print(markdown(found))
    return 0


@contextmanager
def _tools(runs: Path, folder: Path, python: Path, missing: dict[str, str]) -> Iterator[list[Tool]]:
    tools = [ours(runs)]
    if find_spec("tensorboard") is None:
        missing["TensorBoard"] = "pip install tensorboard"
    else:
        tools.append(tensorboard(runs, folder / "logs"))
    if why := why_no_trackio(python):
        missing["Trackio"] = why
        yield tools
        return
    with trackio(python, runs, folder / "trackio") as tool:
        yield [*tools, tool]


if __name__ == "__main__":
    sys.exit(main())
