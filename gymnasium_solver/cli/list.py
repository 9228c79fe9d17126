"""`gsolve list [filter]`: list all configs, shipped and your own."""

import textwrap
from collections.abc import Sequence
from itertools import groupby
from typing import TYPE_CHECKING

from gymnasium_solver.cli.flags import Parser

if TYPE_CHECKING:
    from rich.console import Console

    from gymnasium_solver.config.find import ConfigEntry

NARROW = 100  # columns: below, descriptions have lines of their own


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
    from gymnasium_solver.cli.tables import make_console, print_json
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
    (_print_stacked if console.width < NARROW else _print_columns)(console, entries)
    console.print(f"\ngsolve train {_example(entries).name}", style="bright_black")
    return 0


def _example(entries: "list[ConfigEntry]") -> "ConfigEntry":
    """What a reader would try first: PPO of a config that is not part of an ablation."""
    tuned = [entry for entry in entries if entry.suite != "ablations"] or entries
    return next((entry for entry in tuned if entry.variant == "ppo"), tuned[0])


def _print_columns(console: "Console", entries: "list[ConfigEntry]") -> None:
    from rich.text import Text

    from gymnasium_solver.cli.tables import plain_table, print_table

    table = plain_table(("config", {"no_wrap": True}), "algorithm", "description")
    for i, (suite, group) in enumerate(groupby(entries, key=lambda entry: entry.suite)):
        if i:
            table.add_row()
        table.add_row(Text(suite or "your own", style="bold"))
        for entry in group:
            table.add_row(Text(f"  {entry.name}"), entry.algo_id, Text(entry.description))
    print_table(console, table)


def _print_stacked(console: "Console", entries: "list[ConfigEntry]") -> None:
    """Each description once, below the configs that share it."""
    from rich.text import Text

    for i, (suite, group) in enumerate(groupby(entries, key=lambda entry: entry.suite)):
        console.print(Text(("\n" if i else "") + (suite or "your own"), style="bold"))
        for description, alike in groupby(group, key=lambda entry: entry.description):
            for entry in alike:
                own = f"  ({entry.algo_id})" if not _tells_algo(entry) else ""
                console.print(Text(f"  {entry.name}{own}"), soft_wrap=True)
            for line in textwrap.wrap(description, console.width - 6):
                console.print(Text(f"      {line}", style="bright_black"))


def _tells_algo(entry: "ConfigEntry") -> bool:
    """Whether the name of the variant begins with the algorithm."""
    return entry.variant is not None and entry.variant.startswith(entry.algo_id)
