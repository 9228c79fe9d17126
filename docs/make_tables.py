"""Writes the generated tables of the documentation from the code they describe.

    .venv/bin/python docs/make_tables.py

A page marks the place of a table, and what stands between the two marks is replaced:

    <!-- generated: fields (docs/make_tables.py) -->
    <!-- end of generated -->

tests/docs fails when a page is stale.
"""

import json
import re
import textwrap
from collections.abc import Callable, Iterable, Iterator
from dataclasses import fields
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import Any

from gymnasium_solver.algos import ALGOS, algo_class
from gymnasium_solver.cli.fieldhelp import GROUPS
from gymnasium_solver.config.explain import FOREIGN, describe
from gymnasium_solver.config.find import SHIPPED, find_configs
from gymnasium_solver.config.schedule import EXPECTED, Schedule
from gymnasium_solver.config.schema import ALIASES, Config
from gymnasium_solver.config.yaml_file import parse_value
from gymnasium_solver.runs.metrics import METRICS
from gymnasium_solver.runs.query import RunSummary
from gymnasium_solver.training.observer import EvalResult

WIDTH = 100
ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
PLACE = re.compile(
    r"(<!-- generated: (?P<name>\w+) \(docs/make_tables\.py\) -->\n).*?(<!-- end of generated -->)",
    re.DOTALL,
)
SCHEDULES = (
    "0.001",
    "lin_0.001",
    "{start: 0.001, end: 0.0001}",
    "{start: 0.001, end: 0.0001, schedule: cosine}",
    "{start: 0.001, end: 0.0001, schedule: exponential}",
    "{start: 0.001, end: 0.0001, from: 0.25, to: 0.75}",
    "{start: 0.001, end: 0.0, warmup: 0.25}",
    "{start: 0.001, end: 0.0001, schedule: rate, rate: 0.5, every: 0.25}",
    "{start: 0.001, end: 0.0, schedule: periodic, cycles: 2}",
    "{points: [[0, 0.001], [0.25, 0.0004], [1.0, 0.0]]}",
)


def main() -> None:
    for page in PAGES:
        old = page.read_text(encoding="utf-8")
        new = rendered(old)
        if new != old:
            page.write_text(new, encoding="utf-8")
            print(page.relative_to(ROOT))


def rendered(text: str) -> str:
    """The page with all its tables made anew."""
    return PLACE.sub(lambda m: f"{m[1]}{TABLES[m['name']]()}\n{m[3]}", text)


def table(heads: list[str], rows: Iterable[list[str]]) -> str:
    lines = [heads, ["---"] * len(heads), *rows]
    escaped = ([cell.replace("|", r"\|") for cell in line] for line in lines)
    return "\n".join(f"| {' | '.join(line)} |" for line in escaped)


def code(text: object) -> str:
    return f"`{text}`"


def one_line(text: str) -> str:
    return " ".join(text.split())


# -- config ---------------------------------------------------------------------------------


def field_rows(cls: type[Config], names: list[str]) -> Iterator[list[str]]:
    schema = cls.model_json_schema()["properties"]
    for name in names:
        yield [
            code(name),
            default(cls, name),
            takes(schema[name]),
            one_line(schema[name]["description"]),
        ]


def takes(schema: dict[str, Any]) -> str:
    """The values a field takes, in words; how a schedule is written has a section of its own."""
    words = describe(schema).replace(str(2**31), "2^31")
    return words.replace(EXPECTED, "a [schedule](config.md#schedules)")


def default(cls: type[Config], name: str) -> str:
    field = cls.model_fields[name]
    if field.is_required():
        return "required"
    value: Any = field.get_default(call_default_factory=True)
    if isinstance(value, Schedule):
        value = value.dump()
    return code(value if isinstance(value, str) and value else json.dumps(value))


FIELD_HEADS = ["field", "default", "takes", "what it does"]


def common_fields() -> str:
    parts, group = [], ""
    by_group: dict[str, list[str]] = {}
    for name in Config.model_fields:
        group = GROUPS.get(name, group)
        by_group.setdefault(group, []).append(name)
    for title, names in by_group.items():
        parts += [f"**{title.capitalize()}**", table(FIELD_HEADS, field_rows(Config, names))]
    return "\n" + "\n\n".join(parts) + "\n"


def algorithm_fields(algo_id: str) -> str:
    """The fields an algorithm adds, and those of all whose default it changes."""
    cls = algo_class(algo_id).Config
    names = [
        name
        for name in cls.model_fields
        if name not in Config.model_fields or default(cls, name) != default(Config, name)
    ]
    own = [name for name in names if name not in Config.model_fields]
    return table(FIELD_HEADS, field_rows(cls, [*own, *(n for n in names if n not in own)]))


def aliases() -> str:
    return table(["also read as", "field"], [[code(k), code(v)] for k, v in ALIASES.items()])


def foreign_names() -> str:
    names: dict[str, list[str]] = {}
    for theirs, ours in FOREIGN.items():
        names.setdefault(ours, []).append(code(theirs))
    rows = [[code(ours), ", ".join(theirs)] for ours, theirs in names.items()]
    return table(["field", "names elsewhere"], rows)


def schedule_values() -> str:
    places = (0, 12_500, 25_000, 50_000, 75_000, 100_000)
    rows = []
    for written in SCHEDULES:
        schedule = Schedule.parse(parse_value(written))
        values = [f"{round(schedule.at(place, 100_000), 6):g}" for place in places]
        rows.append([code(written), *values])
    return table(["written", *(f"at {place / 1000:g}%" for place in places)], rows)


def shipped_configs() -> str:
    entries = [entry for entry in find_configs() if entry.path.is_relative_to(SHIPPED)]
    rows = []
    for suite, of_suite in groupby(entries, key=lambda entry: entry.suite):
        names = []
        for env, of_env in groupby(of_suite, key=lambda entry: entry.name.rpartition(":")[0]):
            names.append(f"{env} ({', '.join(code(entry.variant) for entry in of_env)})")
        rows.append([suite, ", ".join(names)])
    return table(["suite", "environments (variants)"], rows)


# -- runs -----------------------------------------------------------------------------------


def metrics() -> str:
    rows = [[code(metric.name), metric.description] for metric in METRICS.values()]
    return table(["metric", "meaning"], rows)


def field_names(cls: type) -> str:
    names = ", ".join(code(field.name) for field in fields(cls))
    return textwrap.fill(f"{names}.", WIDTH)


TABLES: dict[str, Callable[[], str]] = {
    "fields": common_fields,
    **{f"fields_{algo_id}": partial(algorithm_fields, algo_id) for algo_id in ALGOS},
    "aliases": aliases,
    "foreign_names": foreign_names,
    "schedules": schedule_values,
    "configs": shipped_configs,
    "metrics": metrics,
    "run_summary": lambda: field_names(RunSummary),
    "eval_result": lambda: field_names(EvalResult),
}


if __name__ == "__main__":
    main()
