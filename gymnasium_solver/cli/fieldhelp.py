"""`gsolve train <target> --help`: every field of this config, its value and its documentation."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from rich.padding import Padding
from rich.text import Text

from gymnasium_solver.cli.colours import ORANGE
from gymnasium_solver.cli.flags import as_flag
from gymnasium_solver.cli.tables import make_console, plain_table, print_table
from gymnasium_solver.config.field_groups import field_groups
from gymnasium_solver.config.schedule import Schedule
from gymnasium_solver.config.schema import Config

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

LONGEST_VALUE = 24
FLAG = 33
SIDE_BY_SIDE = 110  # columns
Row = tuple[str, Text, Text]


def print_field_help(target: str, config: Config) -> None:
    console = make_console()
    console.print(Text.assemble("usage: ", (f"gsolve train {target}", "bold"), " [flags]\n"))
    if config.description:
        console.print(Text(f"{config.description}\n"))
    console.print(
        Text.assemble(
            "Each field with its value in this config; ",
            ("*", f"bold {ORANGE}"),
            " if it is not the default.",
        )
    )
    schema = type(config).model_json_schema()["properties"]
    for title, names in field_groups(type(config)).items():
        console.print(Text(f"\n{title or config.algo_id}", style="bold"))
        rows = [_field(config, name, schema[name]) for name in names]
        if console.width < SIDE_BY_SIDE:
            _print_stacked(console, rows)
        else:
            print_table(console, _group_table(rows))
    console.print("\ngsolve train --help shows the other flags", style="bright_black")


def _field(config: Config, name: str, schema: Mapping[str, Any]) -> Row:
    """Flag, value and documentation of a field."""
    value = getattr(config, name)
    changed = value != type(config).model_fields[name].get_default(call_default_factory=True)
    doc = Text(" ".join(schema.get("description", "").split()))
    if choices := _choices(schema):
        doc.append(f"  ({', '.join(choices)})", style="bright_black")
    text = Text(f"* {shown(value)}" if changed else f"  {shown(value)}")
    text.stylize(f"bold {ORANGE}" if changed else "")
    return f"  {as_flag(name)}", text, doc


def _group_table(rows: list[Row]) -> "Table":
    table = plain_table(("", {"width": FLAG}), ("", {"width": LONGEST_VALUE + 2}), "")
    table.show_header = False
    for row in rows:
        table.add_row(*row)
    return table


def _print_stacked(console: "Console", rows: list[Row]) -> None:
    """Print the documentation below its flag, for narrow terminals."""
    for flag, value, doc in rows:
        console.print(Text.assemble(f"{flag:<{FLAG}}  ", value), soft_wrap=True)
        console.print(Padding(doc, (0, 0, 0, 6)))


def _choices(schema: Mapping[str, Any]) -> list[str]:
    """The allowed values of a field with a fixed choice."""
    options = [schema, *schema.get("anyOf", [])]
    return [shown(value) for option in options for value in option.get("enum", [])]


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
