"""Does `gsolve sweep` find configs as good as the shipped ones, from wide ranges?

    python -m benchmarks.sweep_classics                    # about 12 minutes on one core
    python -m benchmarks.sweep_classics --full --jobs 2    # hours
    python -m benchmarks.sweep_classics --envs CartPole-v1 --trials 6 --max-env-steps 8000  # a try

For CartPole and Acrobot (PPO): a sweep with the default sampler and one with random search, with
the same trials, budgets and seeds, from ranges that span two to three orders of magnitude. The
shipped values are trained for comparison, but suggestions do not see them (own_first: false). The
best found configs are trained on fresh seeds beside the shipped one. Written to
benchmarks/results/sweep_classics.json and .md. An interrupted benchmark resumes its sweeps.

By default 12 trials of a short budget each (SHORT), and a final of the best one on five seeds; with
`--full` 40 trials of the shipped budget, and a final of the best three on ten seeds.
"""

import argparse
import json
from pathlib import Path
from statistics import fmean
from typing import Any

from gymnasium_solver.experiments.search.coordinator import Coordinator
from gymnasium_solver.experiments.search.folder import Sweep
from gymnasium_solver.experiments.search.plan import read_plan
from gymnasium_solver.experiments.search.prepare import prepare
from gymnasium_solver.runs import machine

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
SHORT = {"CartPole-v1": 25_000, "Acrobot-v1": 40_000}  # env steps of a trial
SIZES = {"trials": (12, 40), "top": (1, 3), "final_seeds": (5, 10)}  # short, full
RESULTS = Path(__file__).parent / "results"


def sweep_of(env_id: str, sampler: str, args: argparse.Namespace) -> Sweep:
    """The sweep of an earlier, interrupted benchmark with the same settings, or a new one."""
    budget = args.max_env_steps or (None if args.full else SHORT.get(env_id))
    fields = {} if budget is None else {"max_env_steps": budget}
    data = {
        "config": f"{env_id}:ppo", "params": PARAMS, "sampler": sampler, "trials": args.trials,
        "jobs": args.jobs, "seed": args.seed, "set": fields, "own_first": False,
        "name": f"{env_id}-{sampler}-{args.trials}-{args.seed}",
        "final": {"top": args.top, "seeds": args.final_seeds},
    }  # fmt: skip
    prepared = prepare(read_plan(data, "benchmark"))
    known = sorted((args.runs_dir / "sweeps").glob(f"{data['name']}-*"))
    same = [s for s in map(Sweep, known) if s.plan() == prepared.plan]
    return same[0] if same else prepared.create(args.runs_dir)


def measured(env_id: str, sampler: str, args: argparse.Namespace) -> dict[str, Any]:
    sweep = sweep_of(env_id, sampler, args)

    def show_progress(coordinator: Coordinator) -> None:
        over = sum(trial.is_over for trial in coordinator.trials)
        print(f"{env_id} {sampler}: {coordinator.phase}, {over} trials", flush=True)

    result = Coordinator(sweep, jobs=args.jobs, on_change=show_progress).run()
    rows = result["final"]
    found = next((row for row in rows if not row["own"]), None)
    own = next(row for row in rows if row["own"])
    return {
        "env_id": env_id,
        "sampler": sweep.plan().sampler,
        "trials": result["trials"],
        "env_steps": result["env_steps"],
        "metric": result["metric"],
        "params": sweep.plan().space().decode(sweep.trials()[found["trial"]].latents)
        if found
        else {},
        "found": found,
        "shipped": own,
        "mean_of_search": fmean(t.value for t in sweep.trials() if t.value is not None),
    }


def markdown(rows: list[dict[str, Any]], args: argparse.Namespace) -> str:
    lines = [
        "# Sweeps on the classics",
        "",
        f"`python -m benchmarks.sweep_classics{' --full' * args.full}`, {args.trials} trials: the",
        f"best config found and the shipped one on {args.final_seeds} fresh seeds. AUC is the mean",
        "validation score over the budget, the metric of the search.",
        "",
        "| environment | sampler | AUC found | AUC shipped | test found | test shipped "
        "| solved found | solved shipped | env steps found | env steps shipped |",
        "|" + " --- |" * 10,
    ]
    for row in rows:
        found, own = row["found"] or {}, row["shipped"]
        cells = [
            row["env_id"], row["sampler"],
            *(f"{one.get(key, float('nan')):.1f}" for key in ("value", "score")
              for one in (found, own)),
            *(f"{one.get('solved')}/{one.get('seeds')}" for one in (found, own)),
            *(f"{one.get('env_steps', float('nan')):,.0f}" for one in (found, own)),
        ]  # fmt: skip
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--envs", nargs="+", default=list(ENVS))
    parser.add_argument("--samplers", nargs="+", default=list(SAMPLERS))
    parser.add_argument("--full", action="store_true", help="hours instead of minutes")
    parser.add_argument("--jobs", type=int, default=1)
    for name, (short, full) in SIZES.items():
        text = f"default: {short}, with --full {full}"
        parser.add_argument(f"--{name.replace('_', '-')}", type=int, help=text)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--max-env-steps", type=int)
    parser.add_argument("--runs-dir", type=Path, default=Path("runs/sweep_classics"))
    parser.add_argument("-o", "--output", type=Path, default=RESULTS / "sweep_classics.json")
    args = parser.parse_args()
    for name, sizes in SIZES.items():
        if getattr(args, name) is None:
            setattr(args, name, sizes[args.full])
    rows = [measured(env, sampler, args) for env in args.envs for sampler in args.samplers]
    settings = {"trials": args.trials, "final_seeds": args.final_seeds, "params": PARAMS}
    content = {"settings": settings, "machine": machine.machine(), "rows": rows}
    args.output.write_text(json.dumps(content, indent=2) + "\n")
    args.output.with_suffix(".md").write_text(markdown(rows, args))
    print(markdown(rows, args))


if __name__ == "__main__":
    main()
