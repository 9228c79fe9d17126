"""Does `gsolve sweep` find configs as good as the shipped ones, from wide ranges?

    python -m benchmarks.sweep_classics                    # about 20 minutes on one core
    python -m benchmarks.sweep_classics --full --jobs 2    # hours
    python -m benchmarks.sweep_classics --envs CartPole-v1 --trials 6 --max-env-steps 8000  # a try

For CartPole and Acrobot (PPO): a sweep with the default sampler and one with random search, with
the same trials, budgets and seeds, from ranges that span two to three orders of magnitude. The
shipped values are trained for comparison, but suggestions do not see them (own_first: false). The
best found configs are trained on fresh seeds beside the shipped one. Written to
benchmarks/results/sweep_classics.json and .md. An interrupted benchmark resumes its sweeps.

By default trials of a short budget (SHORT), and a final on five seeds; with `--full` 40 trials of
the shipped budget, and a final of the best three on ten seeds.
"""

import argparse
import json
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

from gymnasium_solver.bench import harness
from gymnasium_solver.experiments.search.plan import prepare, read_plan
from gymnasium_solver.experiments.search.run import search_of
from gymnasium_solver.experiments.search.search import Search
from gymnasium_solver.experiments.search.sweep_folder import Sweep, create_sweep

NAME = "sweep_classics"
ENVS = ("CartPole-v1", "Acrobot-v1")
PARAMS = {
    "policy_lr": "log:1e-5..3e-2",
    "n_steps": "pow2:16..2048",
    "batch_size": "pow2:16..1024",
    "n_epochs": "int:1..20",
    "gamma": "logit:0.8..0.9995",
    "gae_lambda": "logit:0.5..0.995",
    "clip_range": "0.05..0.5",
    "ent_coef": "log:1e-6..0.3",
}
SAMPLERS = ("auto", "random")


class Size(NamedTuple):
    env_steps: int | None
    """Of a trial; None: as shipped."""
    trials: int
    top: int
    """Configs in the final."""
    final_seeds: int


SHORT = {"CartPole-v1": Size(25_000, 36, 3, 5), "Acrobot-v1": Size(40_000, 12, 1, 5)}
FULL = Size(None, 40, 3, 10)
RESULTS = Path(__file__).parent / "results"


def size_of(env_id: str, args: argparse.Namespace) -> Size:
    given = {"env_steps": args.max_env_steps, "trials": args.trials}
    size = FULL if args.full else SHORT.get(env_id, FULL)
    return size._replace(**{name: value for name, value in given.items() if value is not None})


def sweep_of(env_id: str, sampler: str, args: argparse.Namespace) -> Sweep:
    """The sweep of an earlier, interrupted benchmark with the same settings, or a new one."""
    size = size_of(env_id, args)
    fields = {} if size.env_steps is None else {"max_env_steps": size.env_steps}
    data = {
        "config": f"{env_id}:ppo", "params": PARAMS, "sampler": sampler, "trials": size.trials,
        "jobs": args.jobs, "seed": args.seed, "set": fields, "own_first": False,
        "name": f"{env_id}-{sampler}-{size.trials}-{args.seed}",
        "final": {"top": size.top, "seeds": size.final_seeds},
    }  # fmt: skip
    prepared = prepare(read_plan(data, "benchmark"))
    known = sorted((args.runs_dir / "sweeps").glob(f"{data['name']}-*"))
    same = [s for s in map(Sweep, known) if s.plan() == prepared.plan]
    return same[0] if same else create_sweep(prepared, args.runs_dir)


def measured(env_id: str, sampler: str, args: argparse.Namespace) -> dict[str, Any]:
    sweep = sweep_of(env_id, sampler, args)

    def show_progress(search: Search) -> None:
        over = sum(trial.is_over for trial in search.trials)
        print(f"{env_id} {sampler}: {search.phase}, {over} trials", flush=True)

    result = search_of(sweep, jobs=args.jobs, on_change=show_progress).run()
    rows = result["final"]
    found = next((row for row in rows if not row["own"]), None)
    own = next(row for row in rows if row["own"])
    return {
        "env_id": env_id,
        "sampler": sweep.plan().sampler,
        "trials": result["trials"],
        "size": size_of(env_id, args)._asdict(),
        "env_steps": result["env_steps"],
        "metric": result["metric"],
        "params": sweep.plan().space().decode(sweep.trials()[found["trial"]].latents)
        if found
        else {},
        "found": found,
        "shipped": own,
        "mean_of_search": fmean(t.value for t in sweep.trials() if t.value is not None),
    }


def markdown(content: dict[str, Any]) -> str:
    """The page of results/sweep_classics.json."""
    lines = [
        "# Sweeps on the classics",
        "",
        f"`{content['command']}`, commit {content['versions']['commit']}: the best found from wide",
        "ranges and the shipped one, on fresh seeds. AUC is the mean validation score over the",
        "budget, the metric of the search.",
        "",
        "| environment | sampler | trials | env steps of one | seeds | AUC found | AUC shipped "
        "| test found | test shipped | solved found | solved shipped |",
        "|" + " --- |" * 11,
    ]
    for row in content["rows"]:
        found, own, size = row["found"] or {}, row["shipped"], row["size"]
        steps = "as shipped" if size["env_steps"] is None else f"{size['env_steps']:,}"
        cells = [
            row["env_id"], row["sampler"], str(row["trials"]), steps, str(size["final_seeds"]),
            *(f"{one.get(key, float('nan')):.1f}" for key in ("value", "score")
              for one in (found, own)),
            *(f"{one.get('solved')} of {one.get('seeds')}" for one in (found, own)),
        ]  # fmt: skip
        lines.append("| " + " | ".join(cells) + " |")
    lines += [
        "",
        "Searched: " + ", ".join(f"{k} `{v}`" for k, v in content["params"].items()) + ".",
    ]
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--envs", nargs="+", default=list(ENVS))
    parser.add_argument("--samplers", nargs="+", default=list(SAMPLERS))
    parser.add_argument("--full", action="store_true", help="hours instead of minutes")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--trials", type=int, help="default: see SHORT and FULL")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--max-env-steps", type=int)
    parser.add_argument("--runs-dir", type=Path, default=Path("runs/sweep_classics"))
    parser.add_argument("-o", "--output", type=Path, default=RESULTS / "sweep_classics.json")
    args = parser.parse_args()
    rows = [measured(env, sampler, args) for env in args.envs for sampler in args.samplers]
    command = f"python -m benchmarks.sweep_classics{' --full' * args.full}"
    content = {"benchmark": NAME, **harness.header(command), "params": PARAMS, "rows": rows}
    args.output.write_text(json.dumps(content, indent=2) + "\n")
    args.output.with_suffix(".md").write_text(markdown(content))
    print(markdown(content))


if __name__ == "__main__":
    main()
