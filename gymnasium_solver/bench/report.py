"""Runs the parts of `gsolve bench` and writes the results: JSON, tables, pictures.

A part is a module with `measure(options) -> data`, `sections(data) -> paragraphs of Markdown` and
optionally `draw(data, path)` and TASKS, names of which `--tasks` chooses some. Each part is stored
with its machine, versions and command, so that parts measured one by one share one file.
"""

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from gymnasium_solver.bench import harness
from gymnasium_solver.bench.harness import IN_CHECKOUT, ROOT, Options
from gymnasium_solver.errors import GsolveError

# What is in benchmarks/ needs a source checkout.
PARTS = {
    "training": "benchmarks.training",
    "solve": "benchmarks.solve",
    "engines": "gymnasium_solver.bench.engines",
    "scaling": "gymnasium_solver.bench.scaling",
    "startup": "gymnasium_solver.bench.startup",
    "video": "gymnasium_solver.bench.video",
    "trackers": "benchmarks.trackers",
    "logging": "benchmarks.logging_cost",
}
OWN_PARTS = [name for name, module in PARTS.items() if module.startswith("gymnasium_solver.")]
QUIET_CORES = 0.15  # cores that other processes may use during a measurement for publishing


def part_module(part: str) -> Any:
    """The module of a part; GsolveError if only a source checkout has it."""
    if part not in OWN_PARTS:
        if not IN_CHECKOUT:
            raise GsolveError(
                f"the part {part} needs a source checkout: clone the repository and run make bench "
                f"there. Here: gsolve bench --only {' '.join(OWN_PARTS)}"
            )
        if str(ROOT) not in sys.path:
            sys.path.insert(0, str(ROOT))
    return import_module(PARTS[part])


def run(
    parts: Sequence[str], options: Options, out: Path, name: str, images: Path, command: str
) -> dict[str, Any]:
    """Measure the parts and write after each one: a later failure loses nothing."""
    modules = {part: part_module(part) for part in parts}
    check_tasks(options.tasks, modules)
    result = read(out / f"{name}.json", options.quick)
    for part, module in modules.items():
        record: dict[str, Any] = harness.header(command)
        meter = harness.Meter()
        record["data"] = module.measure(options)
        record["seconds"], record["others_cores"] = meter.read()
        record["peers"] = peers_of(record["data"], options)
        result["parts"] = {
            known: record if known == part else result["parts"].get(known)
            for known in PARTS
            if known == part or known in result["parts"]
        }
        harness.write(out, name, result, markdown(result))
        if hasattr(module, "draw"):
            images.mkdir(parents=True, exist_ok=True)
            module.draw(record["data"], images / f"{name}-{part}.png")
        harness.say(
            f"bench: {part} took {record['seconds'] / 60:.1f} min, in {name}.json and {name}.md"
        )
    return result


def check_tasks(tasks: Sequence[str], modules: Mapping[str, Any]) -> None:
    """Every task must be one of a part that is measured, and every part must have one."""
    if not tasks:
        return
    known = {part: list(getattr(module, "TASKS", ())) for part, module in modules.items()}
    for part, names in known.items():
        if not set(tasks) & set(names):
            expected = f"expected {', '.join(names)}" if names else "it has no tasks to choose from"
            raise GsolveError(f"--tasks {' '.join(tasks)}: none is a task of {part}; {expected}")
    everything = [name for names in known.values() for name in names]
    for task in tasks:
        if task not in everything:
            raise GsolveError(f"--tasks {task}: unknown; expected {', '.join(everything)}")


def read(path: Path, quick: bool) -> dict[str, Any]:
    """The results already in the file, if they are of the same kind."""
    if path.exists():
        found: dict[str, Any] = json.loads(path.read_text())
        if found.get("quick") == quick and "parts" in found:
            return found
    return {"quick": quick, "parts": {}}


def peers_of(data: Any, options: Options) -> list[dict[str, Any]]:
    """Versions of the libraries that were measured, and why others were not."""
    names = dict.fromkeys(row["who"] for row in _rows(data) if "who" in row)
    if not names:
        return []
    libraries = import_module("benchmarks.libraries")
    return [libraries.find(n, options).describe() for n in names if n != libraries.OURS]


def markdown(result: dict[str, Any]) -> str:
    """All parts as one page."""
    title = "# Benchmark" + (" (quick pass: not for publishing)" if result["quick"] else "")
    return f"{title}\n\n{body(result)}"


def body(result: dict[str, Any], pictures: str | None = None) -> str:
    """The page without its title. `pictures`: the prefix of picture paths, None for no pictures."""
    lines = ["Medians, with the range over the repeats in brackets."]
    for part, record in result["parts"].items():
        module = part_module(part)
        heading, *rest = module.sections(record["data"])
        if pictures is not None and hasattr(module, "draw"):
            heading += f"\n\n![{heading.lstrip('# ')}]({pictures}-{part}.png)"
        lines += [heading, *rest, *busy(record), measured(record)]
    return "\n\n".join(lines)


def measured(record: dict[str, Any]) -> str:
    """Date, machine and versions of a part."""
    lines = [harness.describe(record) + f"\n- it took {record['seconds'] / 60:.1f} minutes"]
    for peer in record["peers"]:
        used = ", ".join(f"{name} {v}" for name, v in peer["versions"].items())
        lines.append(f"- {peer['name']}: {peer['missing'] or used}")
    return "\n".join(lines)


def busy(record: dict[str, Any]) -> list[str]:
    """A warning if other processes used the machine meanwhile."""
    rows = [row.get("others_cores") for row in _rows(record["data"])]
    known = [cores for cores in (record["others_cores"], *rows) if cores is not None]
    if max(known, default=0.0) <= QUIET_CORES:
        return []
    return [
        f"**Not for publishing: the machine was busy.** Others used up to {max(known):.1f} cores "
        "during a measurement."
    ]


def _rows(data: Any) -> Iterator[dict[str, Any]]:
    rows = data["rows"] if isinstance(data, dict) else data
    yield from (row for row in rows if isinstance(row, dict))
