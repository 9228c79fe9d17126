"""`gsolve bench`: the speed of gymnasium-solver on this machine, and beside other libraries."""

from collections.abc import Sequence
from pathlib import Path

from gymnasium_solver.cli.flags import Parser, UsageError

DESCRIPTION = """\
Measure speed on this machine. Parts:
  training   steps/s against SB3, sbx, rejax and CleanRL, same hyper-parameters and networks
  solve      seconds from the shell to solved, each library with its own best published config
  engines    env-only steps/s by engine and number of envs
  scaling    steps/s against n_envs (1 to 4,096), batch size and hidden size
  startup    seconds before a command does anything
  video      training with and without videos of its evaluations
  trackers   training with and without each tracker that follows it
  logging    CPU time of metrics, details and alerts

training, solve, trackers and logging need a source checkout, where make bench installs the other
libraries first; the others run anywhere. All sides take turns in each repeat; results are medians
and ranges. Keep the machine idle meanwhile: the result says if other processes used it."""

EXAMPLES = """\
examples:
  gsolve bench --only engines scaling startup
  gsolve bench --only training --tasks sac
  gsolve bench --quick
  make bench"""


def main(argv: Sequence[str]) -> int:
    parser = Parser("bench", DESCRIPTION, EXAMPLES)
    parser.add_argument("--only", nargs="+", metavar="PART", help="these parts (default: all)")
    parser.add_argument(
        "--tasks",
        nargs="+",
        default=[],
        metavar="TASK",
        help="only these tasks: of training ppo, dqn or sac, of solve an env id",
    )
    parser.add_argument("--quick", action="store_true", help="a short pass, to check that it works")
    parser.add_argument("--repeats", type=int, metavar="N", help="repeats (3; quick: 1)")
    parser.add_argument(
        "--name", metavar="NAME", help="name of the result files (speed or quick, and the tasks)"
    )
    parser.add_argument(
        "--out",
        metavar="DIR",
        help="folder of the result files (in a checkout benchmarks/results, elsewhere bench; "
        "quick: build/bench)",
    )
    parser.add_argument(
        "--peers-python", metavar="FILE", help="Python with SB3 and sbx (.venv-peers/bin/python)"
    )
    parser.add_argument(
        "--peers-jax-python", metavar="FILE", help="Python with rejax (.venv-peers-jax/bin/python)"
    )
    parser.add_json()
    args = parser.read(argv)

    from gymnasium_solver.bench import report
    from gymnasium_solver.bench.harness import IN_CHECKOUT, ROOT, Options

    default = list(report.PARTS) if IN_CHECKOUT else report.OWN_PARTS
    parts = args.only or default
    if unknown := [part for part in parts if part not in report.PARTS]:
        raise UsageError(f"--only {unknown[0]}: unknown part; expected {', '.join(report.PARTS)}")
    repeats = args.repeats if args.repeats is not None else (1 if args.quick else 3)
    if repeats < 1:
        raise UsageError(f"--repeats {repeats}: at least 1 is needed")
    pythons = {
        name: Path(given).absolute()  # links of a venv must stay
        for name in ("peers_python", "peers_jax_python")
        if (given := getattr(args, name))
    }
    options = Options(repeats=repeats, quick=args.quick, tasks=tuple(args.tasks), **pythons)
    home = ROOT if IN_CHECKOUT else Path()
    folder = "build/bench" if args.quick else "benchmarks/results" if IN_CHECKOUT else "bench"
    out = Path(args.out) if args.out else home / folder
    published = IN_CHECKOUT and not args.quick and not args.out
    result = report.run(
        parts,
        options,
        out,
        args.name or "_".join(["quick" if args.quick else "speed", *args.tasks]),
        images=ROOT / "docs/images" if published else out,
        command=shown_command(args.only, args.tasks, args.quick, repeats),
    )
    if args.json:
        from gymnasium_solver.cli.tables import print_json

        print_json(result)
    else:
        print(report.markdown(result))
    return 0


def shown_command(only: list[str] | None, tasks: list[str], quick: bool, repeats: int) -> str:
    """The command that repeats this measurement, without this machine's paths."""
    words = ["gsolve bench", *(["--quick"] if quick else [])]
    words += ["--only", *only] if only else []
    words += ["--tasks", *tasks] if tasks else []
    return " ".join([*words, f"--repeats {repeats}"])
