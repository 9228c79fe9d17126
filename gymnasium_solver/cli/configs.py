"""Verbs about configs: `list`, `show`, `net`, `schema`, and the help of every field."""

import json
import math
import sys
import textwrap
from collections.abc import Mapping
from contextlib import closing
from itertools import groupby
from pathlib import Path
from typing import Any

from rich.padding import Padding
from rich.text import Text

from gymnasium_solver.cli import output as out
from gymnasium_solver.cli.flags import Args, UsageError, as_flag, verb
from gymnasium_solver.config.code import code_named
from gymnasium_solver.config.field_groups import field_groups
from gymnasium_solver.config.find import find_configs
from gymnasium_solver.config.load import config_dict
from gymnasium_solver.config.schedule import Schedule
from gymnasium_solver.config.schema import Config
from gymnasium_solver.config.yaml_file import dump_yaml
from gymnasium_solver.paths import write_output
from gymnasium_solver.printable import printable, printable_lines
from gymnasium_solver.runs.files import picked

NARROW = 100  # columns: below, descriptions have lines of their own
LONGEST_VALUE, FLAG_WIDTH = 24, 33
SIDE_BY_SIDE = 110  # columns that a flag, its value and its documentation need
FACTS = "name env_id variant algo_id suite description path"


@verb("""
list: List all configs: the shipped ones, those under ./configs and those in $GSOLVE_CONFIGS.

[FILTER]     part of a name or description
--json

examples:
  gsolve list
  gsolve list cartpole
""")
def list_configs(args: Args) -> int:
    """Exit code 1 if none matches."""
    entries = find_configs(args.filter)
    if out.told_json(args, [picked(entry, FACTS) for entry in entries]):
        return 0 if entries else 1
    if not entries:
        what = f"no config matches '{args.filter}'" if args.filter else "there are no configs"
        out.complain(f"{what}. gsolve list shows all")
        return 1
    console = out.make_console()
    table = out.table("=config", "algorithm", "description")
    for i, (suite, group) in enumerate(groupby(entries, key=lambda entry: entry.suite)):
        title = suite or "your own"
        if console.width >= NARROW:
            if i:
                table.add_row()
            table.add_row(Text(title, style="bold"))
            for entry in group:
                table.add_row(Text(f"  {entry.name}"), entry.algo_id, Text(entry.description))
            continue
        console.print("\n" * bool(i) + title, style="bold")
        for description, alike in groupby(group, key=lambda entry: entry.description):
            for entry in alike:
                tells_algo = (entry.variant or "").startswith(entry.algo_id)
                console.say(f"  {entry.name}" + ("" if tells_algo else f"  ({entry.algo_id})"))
            for line in textwrap.wrap(description, console.width - 6):  # once for all of them
                console.print(f"      {line}", style=out.GREY)
    if table.row_count:
        console.print(table)
    # What a reader would try first: PPO of a config that is not part of an ablation.
    tuned = [entry for entry in entries if entry.suite != "ablations"] or entries
    example = next((entry for entry in tuned if entry.variant == "ppo"), tuned[0])
    console.print(f"\ngsolve train {example.name}", style=out.GREY)
    return 0


@verb("""
usage: gsolve show <env>[:<variant>] [flags]
       gsolve show path/to/config.yaml[:variant] [flags]

The config that gsolve train would run with the same arguments: every field, resolved, as YAML that
can be loaded again.

--FIELD VALUE...         set a field, as for gsolve train
--trust                  import the code (plugins) that the config names, to check and resolve
                         its fields; otherwise they are shown as written
--config-id NAME         internal; repeatable
--env-kwargs --set --overlay --json

examples:
  gsolve show CartPole-v1:ppo
  gsolve show CartPole-v1:ppo --policy-lr lin_0.001 > mine.yaml
""")
def show(args: Args) -> None:
    """A config that names code is not resolved, unless --trust is given: showing a file never runs
    code of somebody else."""
    from gymnasium_solver.training.prepare import lines_with_code

    target = args.needed_config()
    fields = None if args.trust else lines_with_code(target, *args.changes())
    if fields is None:
        config = args.load_config(target)
        fields, notices = config_dict(config), config.notices()
    else:
        names = ", ".join(code_named(fields))
        notices = [
            f"the config names code, {names}, which is not imported: its lines are not resolved or "
            "checked. With --trust they are."
        ]
    for notice in notices:
        print(f"gsolve show: {printable(notice)}", file=sys.stderr)
    if out.told_json(args, fields):
        return
    text = dump_yaml(fields)
    if sys.stdout.isatty():
        from rich.syntax import Syntax

        colours = Syntax(text, "yaml", theme="ansi_dark", background_color="default")
        out.make_console().print(colours)
    else:
        print(printable_lines(text), end="")


@verb("""
usage: gsolve net <env>[:<variant>] [flags]
       gsolve net path/to/config.yaml[:variant] [flags]

The layers of the network that gsolve train would build: output shape, parameters and multiply-adds
for one observation. Any field is a flag, as in gsolve train.

--FIELD VALUE...   set a field: --hidden-dims 256 256, --layers "[{linear: 64}, layer_norm, silu]"
--out FILE.svg     also draw the layers to a picture
--json --env-kwargs --set --overlay --trust

examples:
  gsolve net CartPole-v1:ppo
  gsolve net CartPole-v1:ppo --layers "[{linear: 64}, {residual: [{linear: 64}, relu]}]"
  gsolve net ALE/Pong-v5:ppo --model-id cnn_impala --out net.svg
""")
def net(args: Args) -> None:
    target = args.needed_config()
    if args.out is not None and Path(args.out).suffix != ".svg":
        raise UsageError(f"--out {args.out}: expected a name that ends in .svg")

    from gymnasium_solver.envs.make import env_from_config
    from gymnasium_solver.nets.describe import describe_network, picture
    from gymnasium_solver.training.agents import build_agent

    config = args.load_config(target).replace(device="cpu")
    with closing(env_from_config(config, 1)) as env:
        agent = build_agent(config, env.observation_space, env.action_space)
        shape = agent.policy.actions.shape
        rows = describe_network(agent.net, env.reset(0), math.prod(shape) if shape else 0)
    if args.out is not None:
        write_output(args.out, "the picture", picture(rows, target))
    sums = {"parameters": sum(row.parameters for row in rows)}
    sums["multiply_adds"] = sum(row.multiply_adds for row in rows)
    table = out.table("layer", "kind", "output", ">parameters", ">multiply-adds")
    for row in rows:
        size = " x ".join(map(str, row.output))
        table.add_row(row.name, row.kind, size, f"{row.parameters:,}", f"{row.multiply_adds:,}")
    table.add_row("total", "", "", *(f"{total:,}" for total in sums.values()))
    data = {"target": target, "layers": [row._asdict() for row in rows], **sums}
    out.tell(args, data, table, *([] if args.out is None else ["", args.out]))


@verb("""
schema: The JSON schema of config files: every field of every algorithm, with documentation.

-o, --output FILE    write it here instead of printing
--json

examples:
  gsolve schema -o gsolve.schema.json

Editors with a YAML language server use it if the first line of a config is:
  # yaml-language-server: $schema=gsolve.schema.json
""")
def schema(args: Args) -> None:
    from gymnasium_solver.algos.file_schema import json_schema

    text = json.dumps(json_schema(), indent=2, ensure_ascii=False) + "\n"
    if args.output is None:
        print(text, end="")
    else:
        print(write_output(args.output, "the schema", text))


# --- gsolve train <target> --help


def print_field_help(target: str, config: Config) -> None:
    """Every field of this config, its value and its documentation."""
    console = out.make_console()
    console.print(Text.assemble("usage: ", (f"gsolve train {target}", "bold"), " [flags]\n"))
    if config.description:
        console.print(Text(f"{config.description}\n"))
    mark = ("*", f"bold {out.ORANGE}")
    text = "Each field with its value in this config; "
    console.print(Text.assemble(text, mark, " if it is not the default."))
    properties = type(config).model_json_schema()["properties"]
    for title, names in field_groups(type(config)).items():
        console.print(Text(f"\n{title or config.algo_id}", style="bold"))
        rows = [_field(config, name, properties[name]) for name in names]
        if console.width < SIDE_BY_SIDE:  # the documentation below its flag
            for flag, value, doc in rows:
                console.print(Text.assemble(f"{flag:<{FLAG_WIDTH}}  ", value), soft_wrap=True)
                console.print(Padding(doc, (0, 0, 0, 6)))
            continue
        table = out.table("", "", "", rows=rows)
        table.show_header = False
        table.columns[0].width, table.columns[1].width = FLAG_WIDTH, LONGEST_VALUE + 2
        console.print(table)
    console.print("\ngsolve train --help shows the other flags", style=out.GREY)


def _field(config: Config, name: str, properties: Mapping[str, Any]) -> tuple[str, Text, Text]:
    """Flag, value and documentation of a field."""
    value = getattr(config, name)
    changed = value != type(config).model_fields[name].get_default(call_default_factory=True)
    doc = Text(" ".join(properties.get("description", "").split()))
    options = [properties, *properties.get("anyOf", [])]
    if choices := [shown(value) for option in options for value in option.get("enum", [])]:
        doc.append(f"  ({', '.join(choices)})", style=out.GREY)
    text = Text(f"* {shown(value)}" if changed else f"  {shown(value)}")
    text.stylize(f"bold {out.ORANGE}" if changed else "")
    return f"  {as_flag(name)}", text, doc


def shown(value: Any) -> str:
    """A value as it would be typed, cut to a readable length."""
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, tuple):
        return " ".join(map(str, value))
    if isinstance(value, dict | list) and not value:
        return "{}" if isinstance(value, dict) else "[]"
    text = str(value) if isinstance(value, Schedule | str | float | int) else repr(value)
    return text if len(text) <= LONGEST_VALUE else text[: LONGEST_VALUE - 1] + "…"
