"""`gsolve smoke [filter]`: try every config briefly and report which work."""

import textwrap
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from gymnasium_solver.cli import format as fmt
from gymnasium_solver.cli.flags import Parser, UsageError

if TYPE_CHECKING:
    from rich.console import Console

TASK = "gymnasium_solver.training.smoke:smoke"
MARKS = {"pass": "✓", "skip": "-", "fail": "✗"}


def main(argv: Sequence[str]) -> int:
    parser = Parser(
        "smoke",
        "Try configs briefly: random actions in the environment, then two tiny epochs of\n"
        "training, each in a process of its own. Exits with 1 if one fails; configs whose package\n"
        "is not installed are skipped.",
        "examples:\n  gsolve smoke\n  gsolve smoke cartpole\n  gsolve smoke mujoco --jobs 4 --json",
    )
    parser.add_argument(
        "filter", nargs="?", help="only configs whose name, suite or description contains this"
    )
    parser.add_argument("--filter", dest="filter_flag", metavar="FILTER", help="the same")
    parser.add_argument("--limit", type=int, metavar="N", help="only the first N")
    parser.add_argument(
        "--jobs", "-j", type=int, default=1, metavar="N", help="processes at once (1)"
    )
    parser.add_argument(
        "--steps", type=int, default=100, metavar="N", help="random steps of each environment (100)"
    )
    parser.add_argument(
        "--timeout", type=float, default=120.0, metavar="S", help="seconds for each config (120)"
    )
    parser.add_json()
    args = parser.read(argv)
    for name in ("limit", "jobs", "steps", "timeout"):
        value = getattr(args, name)
        if value is not None and value < 1:
            raise UsageError(f"--{name} must be 1 or more, got {value:g}")

    from gymnasium_solver.cli.tables import make_console, print_json
    from gymnasium_solver.config.find import find_configs

    pattern = args.filter or args.filter_flag
    names = [e.name for e in find_configs(pattern) if "<" not in e.env_id][: args.limit]
    console = make_console(stderr=args.json)
    if not names:
        make_console(stderr=True).print(f"no config matches '{pattern}'", markup=False)
        return 1
    results = run(names, args.steps, args.jobs, args.timeout, console, quiet=args.json)
    counts = Counter(result["status"] for result in results)
    if args.json:
        print_json({"counts": {name: counts[name] for name in MARKS}, "results": results})
    else:
        _print_end(console, results, counts)
    return 1 if counts["fail"] else 0


def run(
    names: Sequence[str],
    steps: int,
    jobs: int,
    timeout_s: float,
    console: "Console",
    *,
    quiet: bool = False,
) -> list[dict[str, Any]]:
    """Try all of them and print each result as it ends; results are in the order of `names`."""
    from gymnasium_solver.cli.workers import run_isolated

    width = max(map(len, names))
    results: dict[str, dict[str, Any]] = {}
    items = [{"name": name, "steps": steps} for name in names]
    for outcome in run_isolated(TASK, items, jobs=jobs, timeout_s=timeout_s):
        name = outcome.item["name"]
        result = outcome.value or {"name": name, "status": "fail", "reason": outcome.error}
        results[name] = result
        if not quiet:
            _print_line(console, result, width)
    return [results[name] for name in names]


def _print_line(console: "Console", result: dict[str, Any], width: int) -> None:
    from rich.text import Text

    from gymnasium_solver.cli.colours import GREEN, ORANGE

    status = result["status"]
    colour = {"pass": GREEN, "skip": ORANGE}.get(status, "red")
    line = Text.assemble((f"{MARKS[status]} {status} ", colour), f"{result['name']:<{width}}")
    if "wall_s" in result:
        line.append(f" {fmt.duration(result['wall_s']):>6}", "bright_black")
    if "engine" in result:
        speed = fmt.steps_per_second(result["env_steps_per_s"])
        line.append(f"  {result['engine']:<8}{speed:>16}", "bright_black")
    console.print(line, soft_wrap=True)
    if result["reason"]:
        indent = " " * 7
        folded = textwrap.fill(result["reason"], console.width, initial_indent=indent,
                               subsequent_indent=indent)  # fmt: skip
        console.print(Text(folded, style=colour), soft_wrap=True)


def _print_end(console: "Console", results: list[dict[str, Any]], counts: "Counter[str]") -> None:
    from rich.text import Text

    from gymnasium_solver.cli.colours import GREEN

    failed = [result["name"] for result in results if result["status"] == "fail"]
    text = f"{counts['pass']} passed, {counts['skip']} skipped, {counts['fail']} failed"
    console.print()
    console.print(Text(text, style="red" if failed else GREEN))
    if failed:
        console.print(f"retry: gsolve smoke '{failed[0]}'", markup=False, style="bright_black")
