"""`gsolve report RUN...`: rebuild the report of a run, or write one page about several runs."""

from collections.abc import Sequence
from pathlib import Path

from gymnasium_solver.cli.flags import Parser, UsageError
from gymnasium_solver.paths import cannot_write_file, output_file, user_path
from gymnasium_solver.printable import printable


def main(argv: Sequence[str]) -> int:
    parser = Parser(
        "report",
        "Write report.md and report.html: verdict, curves, alerts with advice, config,\n"
        "evaluations, videos, machine, how to reproduce. For several runs: one page that compares\n"
        "them.",
        "examples:\n  gsolve report @last\n  gsolve report @last -o share.html\n"
        "  gsolve report a1b2 c3d4 -o compare.html",
    )
    parser.add_argument(
        "runs", nargs="+", metavar="RUN", help="@last, an id, a part of one, a path"
    )
    parser.add_argument(
        "-o",
        "--output",
        metavar="FILE",
        help="page to write, .html or .md (default: report.html and report.md in the run's folder; "
        "report.html here for several runs)",
    )
    parser.add_json()
    parser.add_runs_dir()
    args = parser.read(argv)
    output = None if args.output is None else user_path(args.output)
    if output is not None and output.suffix.lower() not in (".html", ".md"):
        raise UsageError(f"a report is an .html or .md file, not {output}")

    from gymnasium_solver.runs.resolve import resolve_run
    from gymnasium_solver.runs.run import runs_root

    root = runs_root(args.runs_dir)
    runs = [resolve_run(ref, root) for ref in args.runs]
    if len(runs) == 1 and output is None:
        from gymnasium_solver.runs.report import write_report

        write_report(runs[0].path)
        paths = [runs[0].page_path, runs[0].report_path]
    else:
        paths = [output_file(output or "report.html", "the report", create_folder=True)]
        _write(paths[0], [run.path for run in runs])
    if args.json:
        from gymnasium_solver.cli.tables import print_json

        print_json({"paths": [str(path) for path in paths], "runs": [run.id for run in runs]})
    else:
        print("\n".join(printable(path) for path in paths))
    return 0


def _write(path: Path, folders: Sequence[Path]) -> None:
    from gymnasium_solver.runs.files import write_atomic
    from gymnasium_solver.runs.query import get_details
    from gymnasium_solver.runs.report import markdown, run_page, runs_page
    from gymnasium_solver.runs.run import Run

    facts = [get_details(Run(folder)) for folder in folders]
    if path.suffix.lower() == ".md":
        text = "\n\n".join(markdown(one) for one in facts)
    else:
        parents = {folder.parent for folder in folders}
        if len(facts) == 1:
            text = run_page(facts[0])
        elif len(parents) == 1:
            from gymnasium_solver.experiments.comparison_report import comparison_page

            text = comparison_page(facts, parents.pop())
        else:
            text = runs_page(facts)
    try:
        write_atomic(path, text.encode(errors="replace"))
    except OSError as error:
        raise cannot_write_file("the report", path, error) from None
