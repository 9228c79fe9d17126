"""`gsolve list [filter]`: list all configs, shipped and your own."""

from collections.abc import Sequence
from itertools import groupby

from gymnasium_solver.cli.flags import Parser


def main(argv: Sequence[str]) -> int:
    parser = Parser(
        "list",
        "List all configs: the shipped ones, those under ./configs and those in $GSOLVE_CONFIGS.",
        "examples:\n  gsolve list\n  gsolve list cartpole\n  gsolve list ppo --json",
    )
    parser.add_argument("filter", nargs="?", help="part of a name or description")
    parser.add_json()
    args = parser.read(argv)
    return print_configs(args.filter, as_json=args.json)


def print_configs(pattern: str | None, *, as_json: bool = False) -> int:
    """Print the matching configs; return 1 if there are none."""
    from rich.text import Text

    from gymnasium_solver.cli.tables import make_console, plain_table, print_json, print_table
    from gymnasium_solver.config.find import find_configs

    entries = find_configs(pattern)
    if as_json:
        names = ("name", "env_id", "variant", "algo_id", "suite", "description")
        print_json([{n: getattr(e, n) for n in names} | {"path": str(e.path)} for e in entries])
        return 0 if entries else 1
    console = make_console()
    if not entries:
        what = f"no config matches '{pattern}'" if pattern else "there are no configs"
        make_console(stderr=True).print(f"{what}. gsolve list shows all", markup=False)
        return 1
    table = plain_table(("config", {"no_wrap": True}), "algorithm", "description")
    for i, (suite, group) in enumerate(groupby(entries, key=lambda entry: entry.suite)):
        if i:
            table.add_row()
        table.add_row(Text(suite or "your own", style="bold"))
        for entry in group:
            table.add_row(Text(f"  {entry.name}"), entry.algo_id, Text(entry.description))
    print_table(console, table)
    console.print(f"\ngsolve train {entries[0].name}", style="bright_black")
    return 0
