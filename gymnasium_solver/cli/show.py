"""`gsolve show <target> [flags]`: the config that `train` would run, resolved."""

import sys
from collections.abc import Sequence

from gymnasium_solver.cli.flags import (
    MANY,
    NONE,
    ONE,
    load_target,
    parse_fields,
    target_of,
)

OPTIONS = {
    "help": NONE,
    "json": NONE,
    "set": ONE,
    "env_kwargs": MANY,
    "override": ONE,
    "config_id": ONE,
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
    config = load_target(args, target, OPTIONS)
    for notice in config.notices():
        print(f"gsolve show: {notice}", file=sys.stderr)

    from gymnasium_solver.config.load import config_dict, dump_config

    if args.has("json"):
        from gymnasium_solver.cli.tables import print_json

        print_json(config_dict(config))
    elif sys.stdout.isatty():
        from rich.syntax import Syntax

        from gymnasium_solver.cli.tables import make_console

        text = dump_config(config)
        colours = Syntax(text, "yaml", theme="ansi_dark", background_color="default")
        make_console().print(colours)
    else:
        print(dump_config(config), end="")
    return 0
