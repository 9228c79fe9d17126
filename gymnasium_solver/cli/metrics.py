"""`gsolve metrics [filter]`: the metrics that runs log, with their meaning."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from gymnasium_solver.cli.flags import Parser

if TYPE_CHECKING:
    from gymnasium_solver.runs.metrics import Metric

ARROWS = {"up": "higher", "down": "lower", None: ""}


def main(argv: Sequence[str]) -> int:
    parser = Parser(
        "metrics",
        "List the metrics that runs log: meaning, unit and which direction is better.\n"
        "<...> stands for any name; details are not in every row.",
        "examples:\n  gsolve metrics\n  gsolve metrics kl\n  gsolve metrics rollout/ep_rew_mean\n"
        "  gsolve metrics loss --json",
    )
    parser.add_argument(
        "filter", nargs="*", help="words of a name or meaning, or a name in another library"
    )
    parser.add_json()
    args = parser.read(argv)
    found = search(" ".join(args.filter))
    if args.json:
        from gymnasium_solver.cli.tables import print_json

        print_json([to_json(metric) for metric in found])
    elif found:
        print_metrics(found)
    else:
        from gymnasium_solver.cli.tables import make_console

        text = f"no metric matches '{' '.join(args.filter)}'. gsolve metrics lists all"
        make_console(stderr=True).print(text, markup=False)
    return 0 if found else 1


def search(text: str) -> "list[Metric]":
    from gymnasium_solver.runs.metric_aliases import canonical
    from gymnasium_solver.runs.metrics import METRICS, find_metrics

    found = find_metrics(text)
    alias = canonical(text, METRICS) if text else None
    if alias is not None and METRICS[alias] not in found:
        found.insert(0, METRICS[alias])
    return found


def to_json(metric: "Metric") -> dict[str, Any]:
    from dataclasses import asdict

    from gymnasium_solver.runs.alerts.judge import RULES
    from gymnasium_solver.runs.metric_aliases import aliases_of

    alerts = [rule.name for rule in RULES.values() if rule.metric == metric.name]
    return asdict(metric) | {"alerts": alerts, "aliases": aliases_of(metric.name)}


def print_metrics(metrics: "list[Metric]") -> None:
    from rich.text import Text

    from gymnasium_solver.cli.tables import make_console, plain_table, print_table

    table = plain_table(("metric", {"no_wrap": True}), "unit", "better", "meaning")
    by_group: dict[str, list[Metric]] = {}
    for metric in metrics:
        by_group.setdefault(metric.group, []).append(metric)
    for i, group in enumerate(by_group.values()):
        if i:
            table.add_row()
        for metric in group:
            late = " (details)" if metric.is_detail else ""
            table.add_row(
                Text(metric.name), metric.unit, ARROWS[metric.better], metric.description + late
            )
    print_table(make_console(), table)
