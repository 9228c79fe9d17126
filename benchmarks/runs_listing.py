"""How long a listing of many runs takes.

    .venv/bin/python -m benchmarks.runs_listing                  # 2,000 and 10,000; 3 minutes

Makes folders of runs as training leaves them (meta.json, config.yaml, metrics, two checkpoints with
pointers), then measures the first listing, which reads everything, and the next ones, which use the
index. Median CPU time, which a busy machine changes little, and wall time. Raw figures go to
results/runs_listing.json, the table to results/runs_listing.md.
"""

import argparse
import dataclasses
import json
import os
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from gymnasium_solver.bench.harness import ROOT, describe, header, table, write
from gymnasium_solver.runs import query
from gymnasium_solver.runs.checkpoint import save_checkpoint
from gymnasium_solver.runs.run import Run
from gymnasium_solver.runs.store import SETTLED_NS

NAME = "runs_listing"
REPEATS = 7


def make_runs(root: Path, n: int) -> None:
    """One run made by the code, the others copies of it with another id, seed and scores."""
    config = "".join(f"field_{i}: {i}\n" for i in range(90))
    identity = {"env_id": "CartPole-v1", "algo_id": "ppo", "variant": "ppo", "seed": 0}
    with Run.create(config, identity, root / "template") as run:
        for epoch in range(1, 21):
            row = {f"train/opt/metric_{i}": 0.1 * epoch for i in range(40)}
            run.log_metrics(
                {"env_steps": 1000 * epoch, "epoch": epoch, "wall_s": 0.5 * epoch, **row}
            )
        for env_steps in (10_000, 20_000):
            save_checkpoint(run.checkpoints_dir, env_steps, {}, {}, {"score": 1.0}, best=True)
        best = {"score": 480.5, "env_steps": 10_000, "epoch": 10}
        test = {"mean": 478.25, "stderr": 2.5, "episodes": 100, "greedy": True}
        run.update_meta(
            status="finished", stop_reason="solved", solved=True, threshold=475.0, test=test,
            best=best, last_eval=best, env_steps=20_000, epoch=20, episodes=200, wall_s=10.0,
        )  # fmt: skip
    meta = run.meta()
    past = time.time_ns() - 10 * SETTLED_NS
    for number in range(n):
        day, second = 1 + number // 86_400, number % 86_400
        clock = f"{second // 3600:02}{second // 60 % 60:02}{second % 60:02}"
        path = root / f"CartPole-v1-ppo-202601{day:02}-{clock}-{number % 65536:04x}"
        shutil.copytree(run.path, path, symlinks=True)
        created = f"2026-01-{day:02}T{clock[:2]}:{clock[2:4]}:{clock[4:]}.{number % 1000:03}+00:00"
        changed = {"id": path.name, "seed": number, "created_at": created}
        (path / "meta.json").write_text(json.dumps(meta | changed, indent=2))
        for changed_path in (path / "meta.json", path / "checkpoints", path):
            os.utime(changed_path, ns=(past, past))
    shutil.rmtree(root / "template")


def median_s(call: Callable[[], object], repeats: int = REPEATS) -> dict[str, float]:
    cpu, wall = [], []
    for _ in range(repeats):
        began, started = time.perf_counter(), time.process_time()
        call()
        cpu.append(time.process_time() - started)
        wall.append(time.perf_counter() - began)
    return {"cpu": statistics.median(cpu), "wall": statistics.median(wall)}


def measure(n: int) -> dict[str, Any]:
    """Seconds of a listing: without an index, the first time, later, and after one change."""
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        make_runs(root, n)
        plain = median_s(lambda: [query.get_run(Run(p)) for p in root.iterdir()], 1)
        first = median_s(lambda: query.list_runs(root), 1)
        later = median_s(lambda: query.list_runs(root))
        runs = query.list_runs(root)
        assert [run.seed for run in runs] == list(range(n))[::-1]
        fresh = query.get_run(Run(Path(runs[0].path)))
        assert dataclasses.asdict(fresh) == dataclasses.asdict(runs[0])
        Run(Path(runs[-1].path)).update_meta(episodes=1)
        changed = median_s(lambda: query.list_runs(root))
        assert query.list_runs(root)[-1].episodes == 1
        size = (root / ".index.json").stat().st_size if (root / ".index.json").exists() else 0
    return {
        "runs": n,
        "every file read": plain,
        "first listing": first,
        "later": later,
        "one run changed": changed,
        "index MB": size / 1e6,
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--runs", type=int, nargs="+", default=[2_000, 10_000])
    parser.add_argument("--out", type=Path, default=ROOT / "benchmarks/results")
    args = parser.parse_args()
    words = " ".join(map(str, args.runs))
    result = header(f"python -m benchmarks.runs_listing --runs {words}")
    result |= {"benchmark": NAME, "listings": [measure(n) for n in args.runs]}
    write(args.out, NAME, result, markdown(result))
    print(markdown(result))
    return 0


def markdown(result: dict[str, Any]) -> str:
    names = [name for name, value in result["listings"][0].items() if isinstance(value, dict)]
    rows = [
        [f"{row['runs']:,}", *(_cell(row[name]) for name in names), f"{row['index MB']:.1f}"]
        for row in result["listings"]
    ]
    about = "Seconds, wall time and in brackets CPU time."
    heads = ["runs", *names, "index, MB"]
    return "\n\n".join(["# Listings of many runs", describe(result), about, table(heads, rows)])


def _cell(times: dict[str, float]) -> str:
    return f"{times['wall']:.3f} ({times['cpu']:.3f})"


if __name__ == "__main__":
    sys.exit(main())
