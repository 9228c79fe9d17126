"""`gsolve hub push | pull | list`: datasets of runs on the Hugging Face Hub."""

import os
from collections.abc import Sequence
from typing import Any

from gymnasium_solver.cli.flags import Parser, UsageError

ENV = "GSOLVE_HUB_DATASET"
ACTIONS = ("push", "pull", "list")


def main(argv: Sequence[str]) -> int:
    args = _parser().read(argv)
    repo = args.repo or os.environ.get(ENV)
    if not repo:
        raise UsageError(f"which dataset? Give --repo USER/NAME, or set {ENV}")
    call = {"push": _push, "pull": _pull, "list": _list}[args.action]
    return call(args, repo)


def _parser() -> Parser:
    parser = Parser(
        "hub",
        "Keep many runs in one dataset of the Hugging Face Hub, for a study or a team.",
        "examples:\n  gsolve hub push @last a1b2 --repo ann/cartpole-study\n"
        "  gsolve hub list --repo ann/cartpole-study --scores\n"
        "  gsolve hub pull 'CartPole*' --repo ann/cartpole-study",
    )
    parser.add_argument("action", choices=ACTIONS, help="push runs, pull or list matching ones")
    parser.add_argument(
        "names", nargs="*", metavar="RUN|PATTERN", help="runs to push, or a pattern of ids"
    )
    parser.add_argument("--repo", metavar="USER/NAME", help=f"the dataset (default: ${ENV})")
    parser.add_argument("--public", action="store_true", help="make a new dataset public")
    parser.add_argument("--dry-run", action="store_true", help="push: list what would be sent")
    parser.add_argument("--scores", action="store_true", help="list: show the scores")
    parser.add_argument(
        "--checkpoints",
        choices=["best", "last", "all"],
        default="best",
        help="push: which checkpoints (default: best)",
    )
    parser.add_runs_dir()
    parser.add_json()
    return parser


def _push(args: Any, repo: str) -> int:
    from gymnasium_solver.runs.run import runs_root
    from gymnasium_solver.share.hub.datasets import plan_push, push_runs

    if not args.names:
        raise UsageError("no run given. Usage: gsolve hub push RUN... --repo USER/NAME")
    packages = plan_push(args.names, runs_root(args.runs_dir), checkpoints=args.checkpoints)
    url = None if args.dry_run else push_runs(packages, repo, private=not args.public)
    runs = {p.run.id: {name: len(data) for name, data in p.files.items()} for p in packages}
    if args.json:
        return _json({"repo": repo, "url": url, "runs": runs})
    for run_id, files in runs.items():
        print(f"{run_id}: {len(files)} files, {sum(files.values()) / 1e6:.2f} MB")
        if args.dry_run:
            print("\n".join(f"  {size:>11,}  {name}" for name, size in sorted(files.items())))
    print(f"dry run: nothing was sent to {repo}" if url is None else url)
    return 0


def _pull(args: Any, repo: str) -> int:
    from gymnasium_solver.runs.run import runs_root
    from gymnasium_solver.share.hub.datasets import pull_runs

    pulled, there = pull_runs(repo, _pattern(args.names), runs_root(args.runs_dir))
    if args.json:
        return _json({"pulled": [str(run.path) for run in pulled], "there": there})
    for run in pulled:
        print(run.path)
    if there:
        print(f"already here: {', '.join(there)}")
    return 0


def _list(args: Any, repo: str) -> int:
    from gymnasium_solver.share.hub.datasets import list_remote

    runs = list_remote(repo, _pattern(args.names), scores=args.scores)
    if args.json:
        return _json([{"id": r.id, "files": r.n_files, "results": r.results} for r in runs])
    for run in runs:
        score = (run.results or {}).get("mean_reward")
        print(f"{run.id}" + (f"  {score:.2f}" if isinstance(score, int | float) else ""))
    if not runs:
        print(f"{repo} has no matching runs")
    return 0


def _pattern(names: list[str]) -> str:
    if len(names) > 1:
        raise UsageError(f"expected one pattern, got {', '.join(names)}")
    return names[0] if names else ""


def _json(value: Any) -> int:
    from gymnasium_solver.cli.tables import print_json

    print_json(value)
    return 0
