"""Verbs that put runs next to each other: `compare`, `plot` and `report`."""

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from gymnasium_solver.cli import output as out
from gymnasium_solver.cli.flags import Args, UsageError, verb
from gymnasium_solver.errors import RunError
from gymnasium_solver.experiments import comparison_report as reports
from gymnasium_solver.experiments.compare import Comparison, compare
from gymnasium_solver.experiments.experiment import FOLDER, find, load
from gymnasium_solver.experiments.groups import VAL, experiment_groups, group_runs
from gymnasium_solver.experiments.statistics import moving_average
from gymnasium_solver.paths import output_file, user_path, writing_file
from gymnasium_solver.printable import printable
from gymnasium_solver.runs import plots
from gymnasium_solver.runs.curves import choose_name, logged_names
from gymnasium_solver.runs.files import write_atomic
from gymnasium_solver.runs.query import get_rows, get_run
from gymnasium_solver.runs.report import Page, write_report
from gymnasium_solver.runs.resolve import resolve_run
from gymnasium_solver.runs.run import Run, is_run

TEXTS: dict[str, Callable[[Comparison], str]] = {
    ".csv": reports.csv_text,
    ".md": reports.markdown,
    ".json": lambda found: json.dumps(found.to_dict(), indent=2, ensure_ascii=False) + "\n",
}
FORMATS = (".png", ".svg", ".pdf", *TEXTS)
MOST_FIELDS = 8


@verb("""
compare: Compare runs. Runs whose configs differ only by the seed form a group; the first is the
baseline. A group is called better only if its seeds show it.

RUN...                     @last, an id, a part of one, a path; an experiment; RUN/@last or
                           RUN/<env_steps> for one checkpoint; label=RUN,RUN groups runs by hand
-o, --output FILE...       also write files: .png, .svg or .pdf curves with bands, .csv, .md, .json
--x env_steps|wall_s=env_steps    x axis of the curves
--margin SIZE=1%           the smallest difference that matters: a score, or a share of the range
                           from random actions to the threshold (else of the scores)
--json --runs-dir

examples:
  gsolve compare a1b2 c3d4 e5f6
  gsolve compare old=a1b2,c3d4,e5f6 new=0a1b,2c3d,4e5f -o compare.png
""")
def compare_runs(args: Args) -> None:
    outputs = [Path(name) for name in args.output]
    for path in outputs:
        if path.suffix.lower() not in FORMATS:
            raise UsageError(f"cannot write {path}; expected one of {', '.join(FORMATS)}")

    groups = group_runs(args.runs, args.root())
    comparison = compare(groups, args.margin)
    for path in outputs:
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            if (text_of := TEXTS.get(path.suffix.lower())) is not None:
                path.write_text(text_of(comparison))
            else:
                reports.draw(groups, path, args.x, over=comparison.over_environments)
        except OSError as error:
            raise UsageError(f"cannot write {path}: {error.strerror or error}") from None
    data = comparison.to_dict() | {"files": [str(path) for path in outputs]}
    if not out.told_json(args, data):
        print_comparison(comparison, outputs)


def print_comparison(comparison: Comparison, outputs: Sequence[Path] = ()) -> None:
    console = out.make_console()
    heads = [reports.HEADS[0], *(f">{head}" for head in reports.HEADS[1:])]
    console.print(out.table(*heads, rows=reports.rows(comparison.groups)))
    for line in reports.notes(comparison):
        console.print(line)
    if comparison.differences:
        fields = ", ".join(list(comparison.differences)[:MOST_FIELDS])
        more = len(comparison.differences) - MOST_FIELDS
        tail = f" and {more} more" if more > 0 else ""
        console.print(f"fields that differ: {fields}{tail}", style=out.GREY)
    for path in outputs:
        console.print(str(path))


@verb("""
plot: Plot learning curves: training and validation return over env steps, with the threshold;
for a single run also losses, entropy and the like.

RUN...
-o, --output FILE     image file to write, .png, .svg or .pdf (default: curves.png in the run's
                      folder, compare.png here for several runs)
--metric NAME...      plot these metrics instead, one panel each; a unique part of a name is enough,
                      and so is the name in another library, such as rollout/ep_rew_mean
--bands               one line per config: IQM over its seeds with a 95 % interval, thin lines for
                      the seeds; always so for experiments
--smooth N=1          moving average over N points
--x env_steps|wall_s=env_steps     x axis
--title TEXT          title (default: the configs, and the run)
--width N             pixels of the picture (default: 1300)
--height N            the same (default: as the panels need)
--json --runs-dir

examples:
  gsolve plot @last
  gsolve plot a1b2 c3d4 -o compare.png
  gsolve plot @last --metric entropy approx_kl
  gsolve plot EXPERIMENT -o bands.png --smooth 5 --x wall_s
""")
def plot(args: Args) -> None:
    root = args.root()
    named = [ref for ref in args.runs if not ref.startswith("@") and not is_run(root / ref)]
    is_experiment = (root / FOLDER).is_dir() and any(find(ref, root) for ref in named)
    if args.bands or is_experiment:
        _plot_bands(args, root)
        return
    curves = [plots.read_curves(ref, root, args.x) for ref in args.runs]
    if args.smooth > 1:  # without the spread of evaluations
        for i, run in enumerate(curves):
            averages = {
                name: moving_average([y for _, y in points], args.smooth)
                for name, points in run.series.items()
                if name != plots.SPREAD
            }
            places = {name: [x for x, _ in run.series[name]] for name in averages}
            series = {n: list(zip(places[n], averages[n], strict=True)) for n in averages}
            curves[i] = replace(run, series=series)
    panels = plots.choose_panels(curves, args.metric)
    folder = Path(get_run(args.runs[0], root).path)
    default = folder / "curves.png" if len(curves) == 1 else Path("compare.png")
    output = output_file(args.output or default, "the image", create_folder=True)
    size = (args.width or 0, args.height or 0)
    plots.draw(curves, panels, output, plots.X_LABELS[args.x], title=args.title or "", size=size)
    data = {"path": str(output), "runs": [curve.id for curve in curves], "panels": panels}
    out.tell(args, data, printable(output))


def _plot_bands(args: Args, root: Path) -> None:
    """Groups of seeds with bands, one panel per environment."""
    if len(args.metric) > 1:
        raise UsageError("--bands draws one metric; give one --metric")
    groups = group_runs(args.runs, root)
    if not groups:
        raise UsageError("nothing to plot: no run of the experiment has started")
    members = [member for group in groups for member in group.members]
    metric = VAL
    if args.metric:
        rows = [row for m in members for row in get_rows(Run(Path(m.summary.path)))]
        metric = choose_name(args.metric[0], sorted(logged_names(rows)))
    output = output_file(args.output or "compare.png", "the image", create_folder=True)
    with writing_file("the image", output):
        reports.draw(groups, output, args.x, metric, args.smooth)
    ids, labels = [m.summary.id for m in members], [group.label for group in groups]
    data = {"path": str(output), "runs": ids, "groups": labels, "panels": [metric]}
    repeats = [name for group in groups for name in group.repeats]
    told = [f"one run per seed counts; not counted: {', '.join(repeats)}"] if repeats else []
    out.tell(args, data | {"repeats": repeats}, printable(output), *told)


@verb("""
report: Write report.md and report.html: verdict, curves, alerts with advice, config,
evaluations, videos, machine, how to reproduce. For several runs: one page that compares
them. For an experiment or a sweep: one page with every seed, verdicts, failures and how
it was made, which can be sent as a file.

RUN...                or an experiment, a sweep
-o, --output FILE     page to write, .html or .md (default: report.html and report.md in the run's
                      folder; report.html here for several runs)
--json --runs-dir

examples:
  gsolve report @last
  gsolve report @last -o share.html
  gsolve report a1b2 c3d4 -o compare.html
  gsolve report EXPERIMENT -o study.html
""")
def report(args: Args) -> None:
    output = None if args.output is None else user_path(args.output)
    if output is not None and output.suffix.lower() not in (".html", ".md"):
        raise UsageError(f"a report is an .html or .md file, not {output}")
    root = args.root()
    if len(args.runs) == 1 and (pages := _group_pages(args.runs[0], root, output)):
        out.tell(args, {"paths": [str(path) for path in pages], "runs": []}, *pages)
        return
    runs = [resolve_run(ref, root) for ref in args.runs]
    if len(runs) == 1 and output is None:
        write_report(runs[0].path)
        paths = [runs[0].page_path, runs[0].report_path]
    else:
        paths = [output_file(output or "report.html", "the report", create_folder=True)]
        reports.write_page(paths[0], runs)
    data = {"paths": [str(path) for path in paths], "runs": [run.id for run in runs]}
    out.tell(args, data, *paths)


def _group_pages(ref: str, root: Path, output: Path | None) -> list[Path]:
    """Write the page of the experiment or sweep that this names; nothing if it names a run."""
    from gymnasium_solver.experiments.best import group_folder  # with Optuna: slow to import

    name = ref.rstrip("/")
    if name.startswith("@") or is_run(root / name) or is_run(user_path(name)):
        return []
    folder = group_folder(name, root)
    if folder is None:
        try:
            resolve_run(name, root)
            return []
        except RunError:
            folder = group_folder(name, root, is_part=True)
    if folder is None or folder.parent.name in ("trials", "final"):
        return []
    page = _group_page(folder)
    if output is None:
        return page.write(folder)
    path = output_file(output, "the report", create_folder=True)
    text = page.markdown() if path.suffix.lower() == ".md" else page.html()
    with writing_file("the report", path):
        write_atomic(path, text.encode(errors="replace"))
    return [path]


def _group_page(folder: Path) -> Page:
    from gymnasium_solver.experiments.search.sweep_folder import is_sweep, view
    from gymnasium_solver.experiments.search.sweep_report import sweep_page

    if is_sweep(folder):
        return sweep_page(view(str(folder)))
    experiment = load(folder)
    groups = experiment_groups(experiment)
    scored = [group for group in groups if group.scores]
    if scored:
        reports.draw(scored, folder / reports.PICTURE)
    return reports.experiment_page(experiment, compare(scored) if scored else None, groups)
