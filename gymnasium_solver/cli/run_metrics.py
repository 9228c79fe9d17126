"""The metrics of one run: `gsolve run RUN --metrics [NAME...]`, `gsolve run RUN --csv [FILE]`."""

import argparse
import io
from pathlib import Path
from typing import TYPE_CHECKING

from gymnasium_solver.cli import format as fmt
from gymnasium_solver.cli.flags import Parser, UsageError
from gymnasium_solver.paths import cannot_write_file, output_file
from gymnasium_solver.printable import printable_lines

if TYPE_CHECKING:
    from gymnasium_solver.runs.curves import Curve

SPARK = 30
STDOUT = "-"


def add_metric_flags(parser: Parser) -> None:
    parser.add_argument(
        "--metrics",
        nargs="*",
        metavar="NAME",
        help="show its metrics: the last, lowest, highest and mean value; NAME may have wildcards "
        "or be the name in another library (gsolve metrics lists all)",
    )
    parser.add_argument(
        "--csv",
        nargs="?",
        const=STDOUT,
        metavar="FILE",
        help="write its metrics, or those of --metrics, as CSV to FILE or to the screen",
    )


def show_metrics(ref: str, root: Path, args: argparse.Namespace) -> int:
    from gymnasium_solver.cli.tables import print_json
    from gymnasium_solver.runs.curves import curves
    from gymnasium_solver.runs.query import get_rows

    rows, names = get_rows(ref, root), args.metrics or None
    if not rows:
        raise UsageError(f"no metrics are logged yet in {ref}")
    if args.csv is not None:
        return _write_csv(rows, args.csv, names)
    found = curves(rows, names)
    if args.json:
        print_json(found)
    else:
        print_curves(found)
    return 0


def _write_csv(rows: "list[dict[str, object]]", target: str, names: list[str] | None) -> int:
    from gymnasium_solver.runs.curves import write_csv

    if target == STDOUT:
        text = io.StringIO()
        write_csv(rows, text, names)
        print(printable_lines(text.getvalue()), end="")
        return 0
    path = output_file(target, "the CSV file")
    try:
        with path.open("w", newline="", encoding="utf-8") as file:
            n_lines = write_csv(rows, file, names)
    except OSError as error:
        raise cannot_write_file("the CSV file", path, error) from error
    print(f"{path}: {n_lines:,} rows")
    return 0


def print_curves(found: "dict[str, Curve]") -> None:
    from rich.text import Text

    from gymnasium_solver.cli.tables import make_console, plain_table, print_table
    from gymnasium_solver.runs.metrics import describe

    right = {"justify": "right"}
    heads = ("last", "min", "max", "mean")
    table = plain_table(
        ("metric", {"no_wrap": True}), *((head, right) for head in heads), "", "unit"
    )
    for name, points in found.items():
        metric = describe(name)
        values = [float(y) for _, y in points if isinstance(y, int | float)]
        numbers = (
            [values[-1], min(values), max(values), sum(values) / len(values)] if values else []
        )
        shown = [fmt.number(x, metric.precision) for x in numbers] or ["-"] * len(heads)
        table.add_row(Text(name), *shown, fmt.sparkline(values, SPARK), metric.unit)
    print_table(make_console(), table)
