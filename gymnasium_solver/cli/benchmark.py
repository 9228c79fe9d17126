"""`gsolve benchmark FILE.yaml`: run or resume a declared benchmark, and write its table."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from gymnasium_solver.cli.flags import FieldArgs, Parser, UsageError

if TYPE_CHECKING:
    from argparse import Namespace

    from gymnasium_solver.experiments.benchmark import Declared
    from gymnasium_solver.experiments.experiment import Experiment


def main(argv: Sequence[str]) -> int:
    from gymnasium_solver.training.signals import PREEMPTED, Terminated, sigterm_raises

    with sigterm_raises():
        try:
            return run_command(argv)
        except Terminated:
            return PREEMPTED


def run_command(argv: Sequence[str]) -> int:
    parser = Parser(
        "benchmark",
        "Run or resume a benchmark: configs x seeds, declared in a file. Writes the table as\n"
        "Markdown, CSV and JSON with curves, from run folders only.",
        "examples:\n  gsolve benchmark benchmarks/classics.yaml --jobs 2\n"
        "  gsolve benchmark benchmarks/classics.yaml --table -o benchmarks/results",
    )
    parser.add_argument("file", metavar="FILE", help="the YAML file that declares it")
    parser.add_argument("--jobs", metavar="N", help="runs at a time (default: one per CPU)")
    parser.add_argument(
        "--table", action="store_true", help="train nothing, write the table of what there is"
    )
    parser.add_argument("--list", action="store_true", help="show what would be run, and stop")
    parser.add_argument(
        "-o", "--output", metavar="DIR", help="folder of the table (default: the experiment's)"
    )
    parser.add_argument("--backend", metavar="NAME", help="local, ray, slurm, dstack or modal")
    parser.add_argument("--resources", metavar="TEXT", help='such as "cpus=4 memory=8 hours=2"')
    parser.add_argument("--sbatch", metavar="TEXT", help='such as "partition=gpu account=x"')
    parser.add_argument("--detach", action="store_true", help="run in the background")
    parser.add_argument("-q", "--quiet", action="store_true", help="print only the table")
    parser.add_trust()
    parser.add_json()
    parser.add_runs_dir()
    args = parser.read(argv)

    from gymnasium_solver.cli.many import run_placed
    from gymnasium_solver.experiments.benchmark import read_benchmark, write_tables
    from gymnasium_solver.runs.run import runs_root

    declared = read_benchmark(Path(args.file))
    root = runs_root(args.runs_dir)
    if args.list:
        for entry in declared.entries:
            print(f"{entry.label}: {len(declared.seeds)} seeds")
        print(f"{len(declared.entries) * len(declared.seeds)} runs")
        return 0
    experiment = take_up(declared, root, args.trust, is_new_allowed=not args.table)
    code = 0
    if not args.table:
        code = run_placed(experiment, _options(args), lambda: None)
        if args.detach:
            return code
    files = write_tables(declared, experiment, Path(args.output or experiment.path))
    if args.json:
        print(files[2].read_text())
    else:
        _print(declared, experiment, files)
    return code


def take_up(
    declared: "Declared", root: Path, trust: bool = False, is_new_allowed: bool = True
) -> "Experiment":
    """The experiment of a benchmark, created at the first call."""
    from gymnasium_solver.config.load import dump_config
    from gymnasium_solver.experiments import experiment as experiments
    from gymnasium_solver.training.prepare import load_config

    path = root / experiments.FOLDER / declared.experiment_name
    exists = (path / experiments.FILE).is_file()
    if not exists and not is_new_allowed:
        raise UsageError(f"{declared.name} has not been run in {root}; leave out --table")
    configs = [
        (entry.label, load_config(entry.config, overrides=entry.changes, trust=trust))
        for entry in declared.entries
    ]
    if not exists:
        command = ["gsolve", "benchmark", declared.name]
        name = declared.experiment_name
        return experiments.create(configs, declared.seeds, root, name=name, command=command)
    found = experiments.load(path)
    kept = {m.group: (path / experiments.CONFIGS / m.config).read_text() for m in found.members}
    wanted = {label: dump_config(config.replace(seed=None)) for label, config in configs}
    seeds = list(dict.fromkeys(member.seed for member in found.members))
    other = [label for label in {**kept, **wanted} if kept.get(label) != wanted.get(label)]
    if (other or seeds != declared.seeds) and is_new_allowed:
        what = f"other settings of {', '.join(other[:5])}" if other else f"seeds {seeds}"
        raise UsageError(
            f"{path} was begun with {what}. Give the benchmark another name in its file, or write "
            "the table of what there is with --table"
        )
    return found


def _options(args: "Namespace") -> FieldArgs:
    """The flags about where and how to run, as those of `gsolve train`."""
    options: dict[str, list[str]] = {}
    for name in ("jobs", "backend", "resources", "sbatch"):
        if (value := getattr(args, name)) is not None:
            options[name] = [value]
    flags = {"quiet": args.quiet or args.json, "trust": args.trust, "detach": args.detach}
    return FieldArgs(options=options | {name: [] for name, is_set in flags.items() if is_set})


def _print(declared: "Declared", experiment: "Experiment", files: Sequence[Path]) -> None:
    from gymnasium_solver.cli.tables import make_console, plain_table, print_table
    from gymnasium_solver.experiments.benchmark import HEADS, cells, rows_of

    console = make_console()
    right = {"justify": "right", "no_wrap": True}
    table = plain_table(HEADS[0], HEADS[1], *((head, right) for head in HEADS[2:]))
    for row in rows_of(declared, experiment):
        table.add_row(*cells(row))
    print_table(console, table)
    for path in files:
        console.print(str(path), markup=False, soft_wrap=True)
