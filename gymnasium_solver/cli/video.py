"""`gsolve video RUN[/CHECKPOINT]`: record episodes of a trained agent."""

import argparse
import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from gymnasium_solver.cli import watch_flags as flags
from gymnasium_solver.cli.flags import Parser, UsageError

if TYPE_CHECKING:
    from gymnasium_solver.media.record import Recorded


def main(argv: Sequence[str]) -> int:
    args = _parser().read(argv)
    rows, columns = flags.grid_of(args.grid)
    episodes = flags.count("--episodes", args.episodes) or max(1, rows * columns)
    if rows and episodes > rows * columns:
        raise UsageError(f"--episodes {episodes}: a grid of {args.grid} holds {rows * columns}")
    env_kwargs = flags.env_kwargs_of(args.env_kwargs)
    fps, most_steps = flags.fps_of(args.fps), flags.count("--max-steps", args.max_steps)

    from gymnasium_solver.media.record import MOST_STEPS, Shots, record_run
    from gymnasium_solver.runs.run import runs_root
    from gymnasium_solver.training.targets import ENV_FIELDS, find_run, with_fields

    found = find_run(args.checkpoint, runs_root(args.runs_dir), trust=args.trust)
    if args.checkpoint_folder:
        found = dataclasses.replace(found, checkpoint=Path(args.checkpoint_folder))
    found = with_fields(found, env_kwargs, ENV_FIELDS)
    result = record_run(
        found,
        Shots(episodes, rows, columns, most_steps or MOST_STEPS, overlay=not args.no_overlay),
        out=Path(args.out) if args.out else None,
        seed=flags.seed_of(args.seed),
        fps=fps,
        greedy=flags.greedy_of(args),
    )
    if args.json:
        from gymnasium_solver.cli.tables import print_json

        print_json(result.to_dict())
    else:
        print_result(result)
    return 0


def _parser() -> Parser:
    parser = Parser(
        "video",
        "Record episodes of a trained agent as MP4, GIF or WebP, by the suffix of --out.",
        "examples:\n  gsolve video @last\n  gsolve video a1b2/@best --grid 4x4 --out grid.mp4\n"
        "  gsolve video a1b2/50000 --episodes 3 --sampled --out play.gif",
    )
    parser.add_argument(
        "checkpoint",
        metavar="RUN[/CHECKPOINT]",
        help="@last, an id or a part of one; then /@best, /@last or /<env_steps> (default: @best)",
    )
    parser.add_argument("--episodes", metavar="N", help="episodes (default: 1, or one per tile)")
    parser.add_argument(
        "--grid", metavar="RxC", help="rows x columns of episodes played at once, up to 16 tiles"
    )
    parser.add_argument(
        "-o",
        "--out",
        metavar="FILE",
        help="name.mp4, .gif or .webp (default: <env_steps>.mp4 in the run's videos/)",
    )
    parser.add_argument(
        "--max-steps", metavar="N", help="cut an episode after N steps (default: 1000)"
    )
    parser.add_argument("--no-overlay", action="store_true", help="frames without a caption")
    # A copy of a checkpoint that may be pruned, for the recorder of a training run.
    parser.add_argument("--checkpoint-folder", help=argparse.SUPPRESS)
    flags.add_shared(parser)
    parser.add_json()
    return parser


def print_result(result: "Recorded") -> None:
    from gymnasium_solver.cli.format import number
    from gymnasium_solver.cli.tables import make_console

    console = make_console()
    size = Path(result.path).stat().st_size / 1e6
    console.print(
        f"{result.path}: {result.n_frames} frames of {result.width} x {result.height}, "
        f"{result.n_frames / result.fps:.1f} s at {result.fps:g} a second, {size:.2f} MB",
        soft_wrap=True,
        highlight=False,
    )
    shown = ", ".join(number(value, 2) for value in result.returns)
    plural = "s" if len(result.returns) > 1 else ""
    console.print(f"return{plural} {shown} (seed {result.seed})", highlight=False)
    if result.cut:
        console.print(
            f"{len(result.cut)} cut after {max(result.lengths):,} steps: --max-steps N shows more",
            style="bright_black",
        )
    if result.note:
        console.print(result.note, style="bright_black", soft_wrap=True)
