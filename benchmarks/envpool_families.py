"""Every family of EnvPool: one short training of each of some ids, and what became of it.

    .venv/bin/python -m benchmarks.envpool_families                  # 7 ids of each family
    .venv/bin/python -m benchmarks.envpool_families --per-family 2 --only pgx playground
    .venv/bin/python -m benchmarks.envpool_families --all --jobs 4   # all 1,651
    .venv/bin/python -m benchmarks.envpool_families --resume         # only what is missing

An id is trained by PPO with the fields that `gsolve train ID` takes for it, cut to two short
epochs, with an evaluation and a test. It is `trained`, `refused` (a line says why), `missing`
(a library of the system or a package; the line says which), or `crashed` (anything else: a bug).
The ids of a family are evenly spaced over its list. Figures go to results/envpool_families.json,
the table to results/envpool_families.md, rewritten after each id; `--resume` keeps what is there
from the same commit. The exit code is 1 if one crashed.
"""

import argparse
import re
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

from gymnasium_solver.backends.isolated import run_isolated
from gymnasium_solver.bench.harness import ROOT, describe, earlier, header, say, table, write

NAME = "envpool_families"
TASK = f"benchmarks.{NAME}:try_id"
PER_FAMILY = 7
KINDS = ("trained", "refused", "missing", "crashed")


def main() -> int:
    args = parse_args()
    ids = chosen_ids(None if args.all else args.per_family, args.only)
    result = header(f"python -m benchmarks.{NAME}{' --all' if args.all else ''}")
    result |= {"algo_id": args.algo, "n_ids": len(ids), "tried": []}
    before = earlier(args.out, NAME, result) if args.resume else None
    found = {row["env_id"]: row for row in before["tried"]} if before else {}
    result["tried"] = [found[env_id] for env_id in ids if env_id in found]
    items = [{"env_id": env_id, "algo_id": args.algo} for env_id in ids if env_id not in found]
    for outcome in run_isolated(TASK, items, jobs=args.jobs, timeout_s=args.timeout):
        env_id = outcome.item["env_id"]
        tried = outcome.value or {"status": "crashed", "reason": outcome.error}
        found[env_id] = {"env_id": env_id, "family": ids[env_id], **tried}
        say(f"{len(found)} of {len(ids)}: {env_id} {tried['status']} {tried['reason']}")
        result["tried"] = [found[env_id] for env_id in ids if env_id in found]
        write(args.out, NAME, result, markdown(result))
    print(markdown(result))
    return 1 if any(tried["status"] == "crashed" for tried in result["tried"]) else 0


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--per-family", type=int, default=PER_FAMILY, metavar="N")
    parser.add_argument("--all", action="store_true", help="every id")
    parser.add_argument("--only", nargs="+", default=[], metavar="FAMILY")
    parser.add_argument("--algo", default="ppo")
    parser.add_argument("--jobs", type=int, default=1, help="processes at once (1)")
    parser.add_argument("--timeout", type=float, default=180.0, help="seconds for each id (180)")
    parser.add_argument("--resume", action="store_true", help="try only ids without a result")
    parser.add_argument("--out", type=Path, default=ROOT / "benchmarks/results")
    return parser.parse_args()


def chosen_ids(per_family: int | None, only: list[str]) -> dict[str, str]:
    """{id: family}, evenly spaced over the list of each family; None: all ids."""
    import envpool

    families: dict[str, list[str]] = {}
    for env_id, (path, *_) in envpool.registration.registry.specs.items():
        families.setdefault(path.rpartition(".")[2].replace("gym", "mujoco"), []).append(env_id)
    unknown = set(only) - families.keys()
    if unknown:
        sys.exit(f"unknown family {', '.join(sorted(unknown))}; there are {', '.join(families)}")
    chosen: dict[str, str] = {}
    for family, ids in families.items():
        if only and family not in only:
            continue
        n = len(ids) if per_family is None else min(per_family, len(ids))
        chosen |= {ids[i * len(ids) // n]: family for i in range(n)}
    return chosen


def try_id(job: dict[str, Any]) -> dict[str, Any]:
    """Train one id for two short epochs; runs in a process of its own."""
    from gymnasium_solver.errors import GsolveError, MissingError
    from gymnasium_solver.training.config_tests import short_training

    begun_s = time.perf_counter()
    try:
        with tempfile.TemporaryDirectory() as folder:
            run = short_training(f"{job['env_id']}:{job['algo_id']}", Path(folder))
            meta = run.meta()
        status = "trained" if meta["status"] == "finished" else "crashed"
        result = {"status": status, "reason": "", "engine": meta["engine"]}
    except MissingError as error:
        result = {"status": "missing", "reason": one_line(error)}
    except GsolveError as error:
        is_one_line = len(str(error).strip().splitlines()) == 1
        result = {"status": "refused" if is_one_line else "crashed", "reason": one_line(error)}
    except Exception as error:  # a bug: the table names it
        result = {"status": "crashed", "reason": f"{type(error).__name__}: {one_line(error)}"}
    return result | {"wall_s": round(time.perf_counter() - begun_s, 2)}


def one_line(error: Exception) -> str:
    text = re.sub(r"/\S+/site-packages/", "", str(error))  # where it is installed is no result
    return " ".join(text.split())


def markdown(result: dict[str, Any]) -> str:
    tried, n_left = result["tried"], result["n_ids"] - len(result["tried"])
    families = list(dict.fromkeys(row["family"] for row in tried))
    counts = {f: Counter(r["status"] for r in tried if r["family"] == f) for f in families}
    total = Counter(row["status"] for row in tried)
    rows = [[family, *(count[kind] or "" for kind in KINDS)] for family, count in counts.items()]
    rows.append(["all", *(total[kind] for kind in KINDS)])
    others = [
        [f"`{row['env_id']}`", row["status"], row["reason"].replace("|", "\\|")]
        for row in tried
        if row["status"] != "trained"
    ]
    parts = [
        "# EnvPool's families",
        f"One short training by {result['algo_id']} of {len(tried)} ids, {len(families)} families"
        + (f"; {n_left} are to come." if n_left else "."),
        describe(result),
        table(["family", *KINDS], rows),
    ]
    if others:
        parts += ["### Not trained", table(["id", "", "what it says"], others)]
    names = ", ".join(f"`{row['env_id']}`" for row in tried if row["status"] == "trained")
    return "\n\n".join([*parts, f"Trained: {names}."])


if __name__ == "__main__":
    sys.exit(main())
