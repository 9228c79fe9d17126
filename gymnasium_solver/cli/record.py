"""`gsolve record RUN --episodes N --out PATH`: write episodes of an agent as a Minari dataset."""

from collections.abc import Sequence

from gymnasium_solver.cli.flags import Parser, UsageError


def main(argv: Sequence[str]) -> int:
    parser = Parser(
        "record",
        "Write whole episodes of a trained agent as a Minari dataset, in a local folder.\n"
        "Needs the extra minari.",
        "examples:\n  gsolve record @last --episodes 100 --out data/cartpole-v0\n"
        "  gsolve record a1b2/@best --episodes 20 --sampled --out data/explore-v0",
    )
    parser.add_argument("run", metavar="RUN", help="@last, an id; RUN/@best, RUN/@last, RUN/STEPS")
    parser.add_argument("--episodes", type=int, default=100, metavar="N", help="episodes (100)")
    parser.add_argument(
        "--out", required=True, metavar="PATH", help="folder of the dataset; its name ends in -v0"
    )
    parser.add_argument("--sampled", action="store_true", help="sample actions instead of the best")
    parser.add_argument(
        "--seed",
        type=int,
        metavar="SEED",
        help="seed of the environments (default: that of the run's test)",
    )
    parser.add_trust()
    parser.add_json()
    parser.add_runs_dir()
    args = parser.read(argv)
    if args.episodes < 1:
        raise UsageError(f"--episodes {args.episodes}: expected a whole number >= 1")

    from gymnasium_solver.media.minari_writer import write_dataset
    from gymnasium_solver.paths import user_path
    from gymnasium_solver.runs.resolve import resolve_checkpoint
    from gymnasium_solver.runs.run import runs_root

    found = resolve_checkpoint(args.run, runs_root(args.runs_dir))
    written = write_dataset(
        found,
        user_path(args.out),
        args.episodes,
        greedy=not args.sampled,
        seed=args.seed,
        trust=args.trust,
    )
    if args.json:
        from gymnasium_solver.cli.tables import print_json

        print_json(
            {
                "path": str(written.path),
                "dataset": written.dataset_id,
                "episodes": written.episodes,
                "steps": written.steps,
                "mean_return": written.mean_return,
            }
        )
    else:
        print(
            f"{written.path}: {written.episodes} episodes, {written.steps:,} steps, "
            f"mean return {written.mean_return:.4g}"
        )
    return 0
