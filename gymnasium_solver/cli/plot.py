"""`gsolve plot RUN...`: learning curves over env steps as a PNG; several runs share the axes."""

from collections.abc import Sequence
from pathlib import Path

from gymnasium_solver.cli.flags import Parser
from gymnasium_solver.paths import output_file
from gymnasium_solver.printable import printable


def main(argv: Sequence[str]) -> int:
    parser = Parser(
        "plot",
        "Plot learning curves: training and validation return over env steps, with the threshold;\n"
        "for a single run also losses, entropy and the like.",
        "examples:\n  gsolve plot @last\n  gsolve plot a1b2 c3d4 -o compare.png\n"
        "  gsolve plot @last --metric entropy approx_kl",
    )
    parser.add_argument(
        "runs", nargs="+", metavar="RUN", help="@last, an id, a part of one, a path"
    )
    parser.add_argument(
        "-o",
        "--output",
        metavar="FILE",
        help="image file to write, .png, .svg or .pdf (default: curves.png in the run's folder, "
        "compare.png here for several runs)",
    )
    parser.add_argument(
        "--metric",
        nargs="+",
        action="extend",
        metavar="NAME",
        help="plot these metrics instead, one panel each; a unique part of a name is enough, and "
        "so is the name in another library, such as rollout/ep_rew_mean",
    )
    parser.add_json()
    parser.add_runs_dir()
    args = parser.read(argv)

    from gymnasium_solver.runs.plots import choose_panels, draw, read_curves
    from gymnasium_solver.runs.query import get_run
    from gymnasium_solver.runs.run import runs_root

    root = runs_root(args.runs_dir)
    curves = [read_curves(ref, root) for ref in args.runs]
    panels = choose_panels(curves, args.metric)
    folder = Path(get_run(args.runs[0], root).path)
    default = folder / "curves.png" if len(curves) == 1 else Path("compare.png")
    output = output_file(args.output or default, "the image", create_folder=True)
    draw(curves, panels, output)
    if args.json:
        from gymnasium_solver.cli.tables import print_json

        print_json({"path": str(output), "runs": [c.id for c in curves], "panels": panels})
    else:
        print(printable(output))
    return 0
