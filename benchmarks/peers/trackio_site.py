"""Trackio's dashboard on the runs of benchmarks/ui_tensorboard.py, for the Python that has it.

python trackio_site.py fill RUNS     every row of every metrics.jsonl, into TRACKIO_DIR
python trackio_site.py serve PORT    the dashboard
python trackio_site.py write         "RUN STEP" lines on the input become points
"""

import json
import sys
from pathlib import Path

PROJECT, TAG = "bench", "train/opt/metric_0"


def fill(runs: Path) -> None:
    from trackio.sqlite_storage import SQLiteStorage

    for path in sorted(runs.glob("*/metrics.jsonl")):
        rows = [json.loads(line) for line in path.read_text().splitlines()]
        steps = [row["env_steps"] for row in rows]
        numbers = [{k: v for k, v in row.items() if isinstance(v, float)} for row in rows]
        SQLiteStorage.bulk_log(PROJECT, path.parent.name, numbers, steps)


def serve(port: int) -> None:
    import trackio

    trackio.show(PROJECT, open_browser=False, server_port=port, block_thread=True)


def write() -> None:
    from trackio.sqlite_storage import SQLiteStorage

    print("ready", flush=True)
    for line in sys.stdin:
        run, step = line.split()
        SQLiteStorage.bulk_log(PROJECT, run, [{TAG: 7.0}], [int(step)])
        print("written", flush=True)


if __name__ == "__main__":
    verb, *words = sys.argv[1:]
    if verb == "fill":
        fill(Path(words[0]))
    elif verb == "serve":
        serve(int(words[0]))
    else:
        write()
