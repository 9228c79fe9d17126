"""How long a listing of many runs takes: `python -m benchmarks.runs_listing --runs 2000 10000`.

Makes folders of runs as training leaves them (meta.json, config.yaml, metrics, two checkpoints with
pointers), then measures the first listing, which reads everything, and the next ones, which use the
index. Prints the median CPU time, which a busy machine does not change.
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

from gymnasium_solver.runs import query
from gymnasium_solver.runs.checkpoint import save_checkpoint
from gymnasium_solver.runs.index import SETTLED_NS
from gymnasium_solver.runs.run import Run

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


def median_s(call: Callable[[], object], repeats: int = REPEATS) -> float:
    times = []
    for _ in range(repeats):
        started = time.process_time()
        call()
        times.append(time.process_time() - started)
    return statistics.median(times)


def measure(n: int) -> dict[str, float]:
    """CPU seconds of a listing: without an index, the first time, later, and after one change."""
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
    args = parser.parse_args()
    rows = [measure(n) for n in args.runs]
    print("  ".join(f"{name:>15}" for name in rows[0]))
    for row in rows:
        print("  ".join(f"{value:>15.3f}" if isinstance(value, float) else f"{value:>15,}"
                        for value in row.values()))  # fmt: skip
    return 0


if __name__ == "__main__":
    sys.exit(main())
