"""`gsolve show <target> [flags]`: the config that `train` would run, resolved."""

import sys
from collections.abc import Sequence
from typing import Any

from gymnasium_solver.cli.flags import (
    MANY,
    NONE,
    ONE,
    FieldArgs,
    changes_of,
    load_target,
    parse_fields,
    target_of,
)
from gymnasium_solver.printable import printable, printable_lines

OPTIONS = {
    "help": NONE,
    "json": NONE,
    "set": ONE,
    "overlay": MANY,
    "env_kwargs": MANY,
    "override": ONE,
    "config_id": ONE,
    "trust": NONE,
}

HELP = """\
usage: gsolve show <env>[:<variant>] [flags]
       gsolve show path/to/config.yaml[:variant] [flags]

The config that gsolve train would run with the same arguments: every field, resolved, as YAML that
can be loaded again.

flags:
  --FIELD VALUE...         set a field, as for gsolve train
  --env-kwargs KEY=VALUE   arguments of the environment
  -s, --set KEY=VALUE      fill ${KEY} in the config, or set a field
  --trust                  import the code (plugins) that the config names, to check and resolve
                           its fields; otherwise they are shown as written
  --json                   JSON instead of YAML

examples:
  gsolve show CartPole-v1:ppo
  gsolve show CartPole-v1:ppo --policy-lr lin_0.001 > mine.yaml
  gsolve show CartPole-v1:ppo --json"""


def main(argv: Sequence[str]) -> int:
    args = parse_fields(argv, OPTIONS)
    if args.has("help"):
        print(HELP)
        return 0
    target = target_of(args)
    if target is None:
        print(f"{HELP}\n\ngsolve show: no target given", file=sys.stderr)
        return 2
    fields, notices = read(args, target)
    for notice in notices:
        print(f"gsolve show: {printable(notice)}", file=sys.stderr)
    if args.has("json"):
        from gymnasium_solver.cli.tables import print_json

        print_json(fields)
        return 0

    from gymnasium_solver.config.yaml_file import dump_yaml

    text = dump_yaml(fields)
    if sys.stdout.isatty():
        from rich.syntax import Syntax

        from gymnasium_solver.cli.tables import make_console

        colours = Syntax(text, "yaml", theme="ansi_dark", background_color="default")
        make_console().print(colours)
    else:
        print(printable_lines(text), end="")
    return 0


def read(args: FieldArgs, target: str) -> tuple[dict[str, Any], list[str]]:
    """The fields of the config and notices about it. A config that names code is not resolved,
    unless --trust is given: showing a file never runs code of somebody else."""
    from gymnasium_solver.config.code import code_named
    from gymnasium_solver.config.load import config_dict
    from gymnasium_solver.training.prepare import lines_with_code

    lines = None if args.has("trust") else lines_with_code(target, *changes_of(args))
    if lines is None:
        config = load_target(args, target, OPTIONS)
        return config_dict(config), config.notices()
    names = ", ".join(code_named(lines))
    text = f"the config names code, {names}, which is not imported: its lines are not resolved or"
    return lines, [f"{text} checked. With --trust they are."]
