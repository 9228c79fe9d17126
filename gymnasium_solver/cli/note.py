"""`gsolve note RUN [TEXT...]`: write, show or remove the note of a run."""

from collections.abc import Sequence

from gymnasium_solver.cli.flags import Parser, UsageError


def main(argv: Sequence[str]) -> int:
    parser = Parser(
        "note",
        "Write a note to a run; it replaces an earlier one. Without a text the note is shown.",
        'examples:\n  gsolve note @last "wider net, stable after 2M steps"\n  gsolve note a1b2\n'
        "  gsolve note a1b2 --remove",
    )
    parser.add_argument("run", metavar="RUN", help="@last, an id or a unique part of one, a path")
    parser.add_argument("text", nargs="*", metavar="TEXT", help="the note")
    parser.add_argument("--remove", action="store_true", help="remove the note")
    parser.add_json()
    parser.add_runs_dir()
    args = parser.read(argv)
    if args.text and args.remove:
        raise UsageError("give a text or --remove, not both")

    from gymnasium_solver.printable import printable
    from gymnasium_solver.runs.manage import read_labels, set_note
    from gymnasium_solver.runs.resolve import resolve_run
    from gymnasium_solver.runs.run import runs_root

    run = resolve_run(args.run, runs_root(args.runs_dir))
    if args.text or args.remove:
        labels = set_note(run, " ".join(args.text))
    else:
        labels = read_labels(run)
    if args.json:
        from gymnasium_solver.cli.tables import print_json

        print_json({"run": run.id, "tags": list(labels.tags), "note": labels.note})
    else:
        print(f"{run.id}: {printable(labels.note) or 'no note'}")
    return 0
