"""`gsolve track RUN --to wandb`: send a run to a tracker, now or while it trains."""

import argparse
import os
from collections.abc import Sequence
from pathlib import Path

from gymnasium_solver.cli.flags import Parser, UsageError

PLACES = ("dashboard", "fetch")


def main(argv: Sequence[str]) -> int:
    words = list(argv)
    if words and words[0] == "dashboard":
        return dashboard(words[1:])
    if words and words[0] == "fetch":
        return fetch(words[1:])
    args = _parser().read(argv)

    from gymnasium_solver.runs.resolve import resolve_run
    from gymnasium_solver.runs.run import runs_root
    from gymnasium_solver.share.trackers.sink import read_names

    names = read_names(args.to)
    if not names:
        raise UsageError("--to needs a tracker: csv, tensorboard, wandb or trackio")
    run = resolve_run(args.run, runs_root(args.runs_dir))
    done = {}
    if args.follow and len(names) > 1:
        return _follow_all(str(run.path), names, argv)
    for name in names:
        done[name] = _send(run, name, args)
        if not args.json:
            print(f"{name}: {done[name]}", flush=True)
    if args.json:
        from gymnasium_solver.cli.tables import print_json

        print_json({"run": run.id, "sent": done})
    return 0


def _parser() -> Parser:
    parser = Parser(
        "track",
        "Send the metrics, events, videos and checkpoints of a run to a tracker. Each row is sent\n"
        "once, even if this process is killed and started again, and after a resume.",
        "examples:\n  gsolve track @last --to tensorboard\n"
        "  gsolve track @last --to wandb --follow\n"
        "  gsolve track a1b2 --to csv --out metrics.csv\n"
        "  gsolve track dashboard --project CartPole-v1 --dry-run\n  gsolve track fetch RUN_ID\n\n"
        "gsolve train ... --track wandb,tensorboard follows a new run from its start.",
    )
    parser.add_argument("run", metavar="RUN", help="@last, an id or a unique part of one, a path")
    parser.add_argument(
        "--to", required=True, metavar="NAME", help="csv, tensorboard, wandb, trackio; or several"
    )
    parser.add_argument("--follow", action="store_true", help="continue until the run has ended")
    parser.add_argument(
        "--out", metavar="PATH", help="the CSV file, or the folder of TensorBoard's runs"
    )
    parser.add_argument("--project", metavar="NAME", help="project at the tracker")
    parser.add_argument("--entity", metavar="NAME", help="W&B user or team")
    parser.add_argument(
        "--mode", choices=("online", "offline"), help="W&B (default: online with an account)"
    )
    parser.add_argument(
        "--no-checkpoints", action="store_true", help="W&B: do not store checkpoints"
    )
    parser.add_json()
    parser.add_runs_dir()
    return parser


def _send(run: "object", name: str, args: argparse.Namespace) -> str:
    from gymnasium_solver.paths import user_path
    from gymnasium_solver.runs.run import Run
    from gymnasium_solver.share.trackers.follow import Follower
    from gymnasium_solver.share.trackers.sink import Options

    assert isinstance(run, Run)
    options = Options(
        out=None if args.out is None else user_path(args.out).absolute(),
        project=args.project,
        entity=args.entity,
        mode=args.mode,
        checkpoints=not args.no_checkpoints,
    )
    follower = Follower(run, name, options)
    if args.follow and hasattr(os, "nice"):
        os.nice(10)  # training comes first
    return follower.follow() if args.follow else follower.send()


def _follow_all(run: str, names: list[str], argv: Sequence[str]) -> int:
    """One process per tracker: a slow one does not hold up the others."""
    import subprocess
    import sys

    rest = _without_to(list(argv))
    rest[rest.index(next(word for word in rest if not word.startswith("-")))] = run
    words = [[sys.executable, "-m", "gymnasium_solver", "track", *rest, "--to", n] for n in names]
    return max(process.wait() for process in [subprocess.Popen(one) for one in words])


def _without_to(words: list[str]) -> list[str]:
    rest, skip = [], False
    for word in words:
        if skip:
            skip = False
        elif word == "--to":
            skip = True
        elif not word.startswith("--to="):
            rest.append(word)
    return rest


def dashboard(argv: Sequence[str]) -> int:
    parser = Parser(
        "track dashboard",
        "Create a W&B workspace for the runs of a project: panels over env steps.",
        "examples:\n  gsolve track dashboard --project CartPole-v1 --dry-run\n"
        "  gsolve track dashboard --entity me --project CartPole-v1",
    )
    parser.add_argument("--project", metavar="NAME", help="default: $WANDB_PROJECT")
    parser.add_argument("--entity", metavar="NAME", help="default: $WANDB_ENTITY")
    parser.add_argument("--dry-run", action="store_true", help="print it, send nothing")
    parser.add_json()
    args = parser.read(argv)
    from gymnasium_solver.cli.tables import print_json
    from gymnasium_solver.share.trackers.wandb_run import DEFAULT_PROJECT, as_json, save, workspace

    entity = args.entity or os.environ.get("WANDB_ENTITY")
    project = args.project or os.environ.get("WANDB_PROJECT") or DEFAULT_PROJECT
    if entity is None and not args.dry_run:
        raise UsageError("--entity NAME or $WANDB_ENTITY is needed: your W&B user or team")
    made = workspace(entity or "entity", project)
    if not args.dry_run:
        print(save(made))
    elif args.json:
        print_json(as_json(made))
    else:
        print(f"workspace {made.name} in {entity or 'your entity'}/{project}, x axis env_steps")
        for section in made.sections:
            print(f"  {section.name}: {len(section.panels)} panels")
            for panel in section.panels:
                print(f"    {getattr(panel, 'title', None) or type(panel).__name__}")
        print("nothing was sent; --json prints all of it")
    return 0


def fetch(argv: Sequence[str]) -> int:
    parser = Parser(
        "track fetch",
        "Download a run that gsolve track sent to W&B: config, metrics, events, checkpoints.",
        "examples:\n"
        "  gsolve track fetch CartPole-v1-ppo-20260101-120000-a1b2 --project CartPole-v1",
    )
    parser.add_argument("run", metavar="RUN_ID", help="the whole id of the run")
    parser.add_argument("--project", metavar="NAME", help="default: $WANDB_PROJECT")
    parser.add_argument("--entity", metavar="NAME", help="default: $WANDB_ENTITY, or your own")
    parser.add_json()
    parser.add_runs_dir()
    args = parser.read(argv)
    from gymnasium_solver.runs.run import runs_root
    from gymnasium_solver.share.trackers.wandb_run import fetch as fetch_run

    project = args.project or os.environ.get("WANDB_PROJECT")
    if project is None:
        raise UsageError("--project NAME or $WANDB_PROJECT is needed: where the run was sent")
    root: Path = runs_root(args.runs_dir)
    run = fetch_run(args.run, root, project, args.entity or os.environ.get("WANDB_ENTITY"))
    if args.json:
        from gymnasium_solver.cli.tables import print_json

        print_json({"run": run.id, "path": str(run.path)})
    else:
        print(run.path)
    return 0
