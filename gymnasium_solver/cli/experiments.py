"""`gsolve experiments [EXPERIMENT]`: all experiments, or the runs of one."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from gymnasium_solver.cli.flags import Parser

if TYPE_CHECKING:
    from rich.table import Table

    from gymnasium_solver.experiments.experiment import Experiment


def main(argv: Sequence[str]) -> int:
    parser = Parser(
        "experiments",
        "List the experiments, newest first, or the runs of one.",
        "examples:\n  gsolve experiments\n  gsolve experiments @last --watch\n"
        "  gsolve train --resume EXPERIMENT\n  gsolve compare EXPERIMENT",
    )
    parser.add_argument(
        "experiment", nargs="?", metavar="EXPERIMENT", help="@last, an id, a part of one, a path"
    )
    parser.add_argument(
        "--watch", action="store_true", help="show the table again every two seconds until Ctrl-C"
    )
    parser.add_json()
    parser.add_runs_dir()
    args = parser.read(argv)

    from gymnasium_solver.cli.tables import make_console, print_json, print_table
    from gymnasium_solver.experiments.experiment import (
        FOLDER,
        Progress,
        counts,
        experiment_ids,
        load,
        open_experiment,
    )
    from gymnasium_solver.runs.run import runs_root

    root = runs_root(args.runs_dir)
    console = make_console()
    if args.experiment is None:
        found = [load(root / FOLDER / name) for name in experiment_ids(root)]
        if args.json:
            print_json([_facts(experiment) for experiment in found])
        elif found:
            print_table(console, _listing(found))
        else:
            print(f"no experiments in {root}; start one with gsolve train CONFIG --seeds 5")
        return 0
    experiment = open_experiment(args.experiment, root)
    progress = Progress(experiment)
    if args.json:
        rows = [row.to_dict() for row in progress.rows()]
        print_json(_facts(experiment) | {"runs": rows})
        return 0
    from gymnasium_solver.cli.many_table import runs_table

    if args.watch:
        from gymnasium_solver.cli.runs import watch

        watch(console, lambda: runs_table(progress.rows()))
        return 0
    print_table(console, runs_table(progress.rows()))
    console.print(f"{experiment.id}: {counts(progress.rows())}", markup=False, soft_wrap=True)
    return 0


def _facts(experiment: "Experiment") -> dict[str, object]:
    from gymnasium_solver.experiments.experiment import Progress, status_of

    rows = Progress(experiment).rows()
    return {
        "id": experiment.id,
        "path": str(experiment.path),
        "created_at": experiment.created_at,
        "status": status_of(rows),
        "groups": list(dict.fromkeys(row.member.group for row in rows)),
        "n_runs": len(rows),
        "n_finished": sum(row.status == "finished" for row in rows),
        "command": experiment.command,
    }


def _listing(found: "list[Experiment]") -> "Table":
    from gymnasium_solver.cli.tables import plain_table
    from gymnasium_solver.experiments.experiment import Progress, counts, status_of

    table = plain_table(
        ("experiment", {"overflow": "fold"}), "created", "status", "runs", "configs"
    )
    for experiment in found:
        rows = Progress(experiment).rows()
        groups = list(dict.fromkeys(row.member.group for row in rows))
        names = ", ".join(groups[:3]) + (f" and {len(groups) - 3} more" if len(groups) > 3 else "")
        created = experiment.created_at[:16].replace("T", " ")
        table.add_row(experiment.id, created, status_of(rows), counts(rows), names)
    return table
