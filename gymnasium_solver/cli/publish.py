"""`gsolve publish RUN`: a run with its model card on the Hugging Face Hub."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from gymnasium_solver.cli.flags import Parser, UsageError

if TYPE_CHECKING:
    from gymnasium_solver.share.hub.publish import Publication


def main(argv: Sequence[str]) -> int:
    args = _parser().read(argv)
    if args.public and args.private:
        raise UsageError("--public and --private exclude each other; without both it is private")
    from gymnasium_solver.runs.run import runs_root
    from gymnasium_solver.share.hub.publish import Options, plan_publication, send

    options = Options(
        checkpoints=args.checkpoints,
        allow_diff=args.allow_diff,
        video=not args.no_video,
        onnx=args.onnx,
        licence=args.license,
    )
    plan = plan_publication(args.run, runs_root(args.runs_dir), args.repo, options)
    address = None if args.dry_run else send(plan, private=not args.public)
    if args.json:
        from gymnasium_solver.cli.tables import print_json

        print_json(as_json(plan, address, not args.public))
    else:
        print_plan(plan, address, not args.public)
    return 0


def _parser() -> Parser:
    parser = Parser(
        "publish",
        "Put a run on the Hugging Face Hub, in one commit: model card with the verdict, config,\n"
        "curves, video, metrics and the best checkpoint. Private unless --public is given. Host\n"
        "and user names, paths and secrets are removed; --dry-run lists all that would leave.",
        "examples:\n  gsolve publish @last --dry-run\n"
        "  gsolve publish a1b2 --repo ann/my-agent --public",
    )
    parser.add_argument("run", metavar="RUN", help="@last, an id or a part of one")
    parser.add_argument(
        "--repo", metavar="USER/NAME", help="default: your account and <algo>-<env>"
    )
    parser.add_argument("--private", action="store_true", help="only you can see it (default)")
    parser.add_argument("--public", action="store_true", help="everyone can see it")
    parser.add_argument(
        "--dry-run", action="store_true", help="send nothing; list every file that would be sent"
    )
    parser.add_argument(
        "--checkpoints",
        choices=["best", "last", "all"],
        default="best",
        help="best (default), last (best and last) or all",
    )
    parser.add_argument(
        "--allow-diff", action="store_true", help="also send the diff of the working directory"
    )
    parser.add_argument("--no-video", action="store_true", help="do not send replay.mp4")
    parser.add_argument("--onnx", action="store_true", help="also export and send policy.onnx")
    parser.add_argument(
        "--license", default="mit", metavar="ID", help="licence of the weights (default: mit)"
    )
    parser.add_runs_dir()
    parser.add_json()
    return parser


def as_json(plan: "Publication", address: str | None, private: bool) -> dict[str, object]:
    return {
        "run": plan.run.id,
        "repo": plan.repo_id,
        "private": private,
        "url": address,
        "files": {name: len(data) for name, data in sorted(plan.package.files.items())},
        "changed": plan.package.changed,
        "notes": plan.notes,
        "results": plan.results.to_dict(),
    }


def print_plan(plan: "Publication", address: str | None, private: bool) -> None:
    from gymnasium_solver.cli.tables import make_console

    console = make_console()

    def line(text: str, style: str = "") -> None:
        console.print(text, style=style, soft_wrap=True, highlight=False, markup=False)

    files = sorted(plan.package.files.items())
    if address is None:
        for name, data in files:
            why = plan.package.changed.get(name)
            line(f"  {len(data):>11,}  {name}" + (f"  ({why})" if why else ""))
    for note in plan.notes:
        line(note, "yellow")
    kind = "private" if private else "public"
    what = f"{len(files)} files, {plan.package.size / 1e6:.2f} MB, {kind}"
    if address is None:
        line(f"dry run: nothing was sent. It would be {plan.repo_id}: {what}")
    else:
        line(f"{address}: {what}; {plan.results.text}")
        line(f"gsolve pull {plan.repo_id}", "bright_black")
