"""`gsolve envs [filter]`: list the environments. `gsolve envs show ID`: describe one."""

from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Any

from gymnasium_solver.cli.flags import Parser

if TYPE_CHECKING:
    from rich.console import Console

    from gymnasium_solver.envs.catalogue import EnvEntry

WIDE = 104  # terminal columns that the full table needs
EXAMPLES = """examples:
  gsolve envs
  gsolve envs mujoco
  gsolve envs --json
  gsolve envs show LunarLander-v3
  gsolve envs show CliffWalking-v1 --frame cliff.png"""


def main(argv: Sequence[str]) -> int:
    if argv and argv[0] == "show":
        from gymnasium_solver.cli.env_sheet import show

        return show(argv[1:])
    parser = Parser(
        "envs",
        "List the environments that have configs; any other id of Gymnasium or EnvPool works too.\n"
        "`gsolve envs show ID` describes one.",
        EXAMPLES,
    )
    parser.add_argument(
        "filter", nargs="?", help="only environments whose id, suite or description contains this"
    )
    parser.add_json()
    args = parser.read(argv)

    from gymnasium_solver.cli.tables import make_console, print_json
    from gymnasium_solver.envs.catalogue import list_environments

    found = list_environments(args.filter)
    if args.json:
        print_json([env.to_dict() for env in found])
    elif found:
        print_environments(make_console(), found)
    else:
        make_console(stderr=True).print(f"no environment matches '{args.filter}'", markup=False)
    return 0 if found else 1


def print_environments(console: "Console", found: "list[EnvEntry]") -> None:
    from rich.text import Text

    from gymnasium_solver.cli.colours import ORANGE
    from gymnasium_solver.cli.tables import plain_table, print_table

    is_wide = console.width >= WIDE
    whole, right = {"no_wrap": True}, {"justify": "right", "no_wrap": True}
    columns: list[str | tuple[str, Mapping[str, Any]]] = [
        ("environment", whole),
        ("observes", whole),
        ("acts", whole),
        ("random", right),
        ("solved", right),
        ("engine", whole),
        "algorithms",
    ]
    if not is_wide:
        del columns[3]
    table = plain_table(*columns)
    for i, (suite, group) in enumerate(groupby(found, key=lambda env: env.suite)):
        envs = list(group)
        if i:
            table.add_row()
        title = Text(suite or "your own", style="bold")
        if envs[0].extra:
            title.append(f"  needs [{envs[0].extra}]", ORANGE)
        table.add_row(title)
        for env in envs:
            spaces = (env.observations, env.actions)
            mean = "-" if env.random is None else f"{env.random:,.4g}"
            # Its configs are found without the module's name too.
            env_id = env.env_id if is_wide else env.env_id.rpartition(":")[2]
            table.add_row(
                Text(f"  {env_id}"),
                *(spaces if is_wide else map(_shorter, spaces)),
                *([mean] if is_wide else []),
                "-" if env.threshold is None else f"{env.threshold:,g}",
                env.engine or "-",
                Text(" ".join(env.algos)),
            )
    print_table(console, table)
    for extra in dict.fromkeys(env.extra for env in found if env.extra):
        command = f'pip install "gymnasium-solver[{extra}]"'
        console.print(Text(f"\n[{extra}] is not installed: {command}", style=ORANGE))
    console.print(f"\ngsolve envs show {found[0].env_id}", style="bright_black")


def _shorter(space: str) -> str:
    return space.replace("Discrete", "Disc").removeprefix("uint8 ")
