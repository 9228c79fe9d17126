"""`gsolve plot RUN...`: learning curves over env steps as a PNG; several runs share the axes."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from gymnasium_solver.cli.flags import Parser, UsageError
from gymnasium_solver.paths import cannot_write_file, output_file
from gymnasium_solver.printable import printable

if TYPE_CHECKING:
    from argparse import Namespace

    from gymnasium_solver.runs.plots import Curves

X_LABELS = {"env_steps": "env steps", "wall_s": "seconds of training"}


def main(argv: Sequence[str]) -> int:
    parser = Parser(
        "plot",
        "Plot learning curves: training and validation return over env steps, with the threshold;\n"
        "for a single run also losses, entropy and the like.",
        "examples:\n  gsolve plot @last\n  gsolve plot a1b2 c3d4 -o compare.png\n"
        "  gsolve plot @last --metric entropy approx_kl\n"
        "  gsolve plot EXPERIMENT -o bands.png --smooth 5 --x wall_s",
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
    parser.add_argument(
        "--bands",
        action="store_true",
        help="one line per config: IQM over its seeds with a 95 %% interval, thin lines for the "
        "seeds; always so for experiments",
    )
    parser.add_argument(
        "--smooth", type=int, default=1, metavar="N", help="moving average over N points"
    )
    parser.add_argument("--x", choices=("env_steps", "wall_s"), default="env_steps", help="x axis")
    parser.add_json()
    parser.add_runs_dir()
    args = parser.read(argv)
    if args.smooth < 1:
        raise UsageError(f"--smooth {args.smooth}: expected a whole number >= 1")

    from gymnasium_solver.runs.plots import choose_panels, draw, read_curves
    from gymnasium_solver.runs.query import get_run
    from gymnasium_solver.runs.run import runs_root

    root = runs_root(args.runs_dir)
    if args.bands or _names_experiment(args.runs, root):
        return plot_bands(args, root)
    curves = [smoothed(read_curves(ref, root, args.x), args.smooth) for ref in args.runs]
    panels = choose_panels(curves, args.metric)
    folder = Path(get_run(args.runs[0], root).path)
    default = folder / "curves.png" if len(curves) == 1 else Path("compare.png")
    output = output_file(args.output or default, "the image", create_folder=True)
    draw(curves, panels, output, X_LABELS[args.x])
    if args.json:
        from gymnasium_solver.cli.tables import print_json

        print_json({"path": str(output), "runs": [c.id for c in curves], "panels": panels})
    else:
        print(printable(output))
    return 0


def _names_experiment(refs: Sequence[str], root: Path) -> bool:
    from gymnasium_solver.experiments.experiment import FOLDER, find
    from gymnasium_solver.runs.run import is_run

    if not (root / FOLDER).is_dir():
        return False
    return any(
        not ref.startswith("@") and not is_run(root / ref) and find(ref, root) for ref in refs
    )


def plot_bands(args: "Namespace", root: Path) -> int:
    """Groups of seeds with bands, one panel per environment."""
    from gymnasium_solver.experiments.curve_pictures import draw
    from gymnasium_solver.experiments.groups import VAL, group_runs
    from gymnasium_solver.runs.curves import logged_names
    from gymnasium_solver.runs.plots import match_metric
    from gymnasium_solver.runs.query import get_rows
    from gymnasium_solver.runs.run import Run

    if args.metric and len(args.metric) > 1:
        raise UsageError("--bands draws one metric; give one --metric")
    groups = group_runs(args.runs, root)
    if not groups:
        raise UsageError("nothing to plot: no run of the experiment has started")
    members = [member for group in groups for member in group.members]
    metric = VAL
    if args.metric:
        rows = [row for m in members for row in get_rows(Run(Path(m.summary.path)))]
        metric = match_metric(args.metric[0], sorted(logged_names(rows)))
    output = output_file(args.output or Path("compare.png"), "the image", create_folder=True)
    try:
        draw(groups, output, args.x, metric, args.smooth)
    except (OSError, ValueError) as error:
        raise cannot_write_file("the image", output, error) from error
    if args.json:
        from gymnasium_solver.cli.tables import print_json

        runs, labels = [m.summary.id for m in members], [group.label for group in groups]
        print_json({"path": str(output), "runs": runs, "groups": labels, "panels": [metric]})
    else:
        print(printable(output))
    return 0


def smoothed(run: "Curves", window: int) -> "Curves":
    """Curves as moving averages over `window` points, without the spread of evaluations."""
    if window == 1:
        return run
    from gymnasium_solver.experiments.statistics import moving_average
    from gymnasium_solver.runs.plots import SPREAD

    series = {}
    for name, points in run.series.items():
        if name != SPREAD:
            values = moving_average([y for _, y in points], window)
            series[name] = list(zip([x for x, _ in points], values, strict=True))
    return replace(run, series=series)
