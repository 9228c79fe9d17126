"""`gsolve sweep show|best|list`: what sweeps came to."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from gymnasium_solver.cli.flags import Parser

if TYPE_CHECKING:
    from rich.console import Console

    from gymnasium_solver.experiments.search.folder import Sweep
    from gymnasium_solver.experiments.search.plan import Plan

SHOWN = 15


def main(verb: str, argv: Sequence[str]) -> int:
    return {"show": show, "best": best, "list": list_sweeps}[verb](argv)


def show(argv: Sequence[str]) -> int:
    parser = Parser("sweep show", "Show a sweep: its trials, best first, and its result.")
    parser.add_argument("sweep", nargs="?", default="@last", help="@last, an id or a part of one")
    parser.add_argument("--all", action="store_true", help="all trials, by number")
    parser.add_json()
    parser.add_runs_dir()
    args = parser.read(argv)
    from gymnasium_solver.cli.tables import make_console, print_json
    from gymnasium_solver.experiments.search.view import view

    found = view(args.sweep, args.runs_dir)
    if args.json:
        print_json(found.to_dict())
        return 0
    console = make_console()
    console.print(f"{found.sweep.id}  {found.status}", style="bold", markup=False)
    console.print(str(found.sweep.path), style="bright_black", markup=False)
    print_trials(console, found.plan, found.rows(), everything=args.all)
    shares = found.importances()
    if shares:
        text = ", ".join(f"{name} {share:.0%}" for name, share in shares.items() if share >= 0.005)
        console.print(f"importance: {text}", markup=False)
    if found.result:
        print_result(console, found.sweep, found.plan, found.result)
    return 0


def print_trials(
    console: "Console", plan: "Plan", rows: Sequence[Mapping[str, Any]], *, everything: bool
) -> None:
    from gymnasium_solver.cli.tables import plain_table, print_table
    from gymnasium_solver.experiments.search.sweep_report import number_text, value_text

    ordered = sorted(rows, key=lambda row: row["number"]) if everything else rows[:SHOWN]
    right = {"justify": "right", "no_wrap": True}
    table = plain_table(
        "trial", (plan.metric.name, right), ("env steps", right), "state", *plan.params
    )
    for row in ordered:
        steps = row["env_steps"]
        table.add_row(
            f"{row['number']}{' own' if row['own'] else ''}{' *' if row['on_front'] else ''}",
            number_text(row["value"]),
            f"{steps:,.0f}" if steps else "",
            row["state"],
            *(value_text(row["params"].get(name)) for name in plan.params),
        )
    print_table(console, table)
    if len(rows) > len(ordered):
        console.print(f"{len(rows) - len(ordered)} more: --all", style="bright_black")


def print_result(
    console: "Console", sweep: "Sweep", plan: "Plan", result: Mapping[str, Any]
) -> None:
    from gymnasium_solver.cli.tables import plain_table, print_table
    from gymnasium_solver.experiments.search.sweep_report import (
        choice_text,
        final_cells,
        fresh_text,
        values_text,
    )

    if result["winner"] is None:
        console.print("no trial has a value: gsolve sweep show --all tells why", markup=False)
        return
    right = {"justify": "right", "no_wrap": True}
    if result["final"]:
        table = plain_table(
            "final", (plan.metric.name, right), ("test score", right), ("95 % interval", right),
            ("solved", right), ("env steps", right),
        )  # fmt: skip
        for row in result["final"]:
            name, *cells = final_cells(row)
            table.add_row(f"trial {name}", *cells)
        print_table(console, table)
        if result.get("choice"):
            console.print(choice_text(result), markup=False)
    what = "the config's own values" if result["is_own"] else values_text(result["params"])
    console.print(f"winner: trial {result['winner']}: {what}", markup=False)
    if result.get("verdict"):
        console.print(f"verdict: {result['verdict']}", markup=False)
    if fresh := result.get("fresh"):
        console.print(fresh_text(fresh, result["run"]), markup=False)
    elif not result["final"]:
        console.print("no final: the score of a search is too good to be quoted", markup=False)
    console.print(f"{sweep.report_path}", markup=False)
    if not result["is_own"]:
        console.print(
            f"keep it: gsolve sweep best {sweep.id} --write FILE.yaml:NAME",
            style="bright_black", markup=False,
        )  # fmt: skip


def best(argv: Sequence[str]) -> int:
    parser = Parser(
        "sweep best",
        "Print the config of the winner, or write it as a variant of a config file.",
        "examples:\n  gsolve sweep best @last\n"
        "  gsolve sweep best @last --write configs/CartPole-v1.yaml:ppo_tuned\n"
        "  gsolve train configs/CartPole-v1.yaml:ppo_tuned",
    )
    parser.add_argument("sweep", nargs="?", default="@last", help="@last, an id or a part of one")
    parser.add_argument("--trial", type=int, metavar="N", help="this trial instead of the winner")
    parser.add_argument("--write", metavar="FILE.yaml:NAME", help="add it to a file as a variant")
    parser.add_json()
    parser.add_runs_dir()
    args = parser.read(argv)
    from gymnasium_solver.experiments.search.view import view
    from gymnasium_solver.experiments.search.write import best_lines, write_variant

    found = view(args.sweep, args.runs_dir)
    number = found.winner if args.trial is None else args.trial
    lines, provenance = best_lines(found, number)
    if args.write:
        path, name = write_variant(args.write, found, lines, provenance)
        print(f"wrote {path}:{name}; gsolve train {path}:{name} trains it")
        return 0
    if args.json:
        from gymnasium_solver.cli.tables import print_json

        print_json({"trial": number, "fields": lines, "provenance": provenance})
        return 0
    from gymnasium_solver.config.yaml_file import dump_yaml

    for text in provenance:
        print(f"# {text}")
    print(dump_yaml(lines), end="")
    return 0


def list_sweeps(argv: Sequence[str]) -> int:
    parser = Parser("sweep list", "List the sweeps, newest first.")
    parser.add_json()
    parser.add_runs_dir()
    args = parser.read(argv)
    from gymnasium_solver.cli.tables import make_console, plain_table, print_json, print_table
    from gymnasium_solver.experiments.search.sweep_report import number_text
    from gymnasium_solver.experiments.search.view import views

    found = views(args.runs_dir)
    if args.json:
        print_json([one.summary() for one in found])
        return 0
    console = make_console()
    if not found:
        console.print("no sweeps; gsolve sweep CONFIG starts one")
        return 0
    right = {"justify": "right", "no_wrap": True}
    table = plain_table("sweep", "config", "status", ("trials", right), "metric", ("best", right))
    for one in found:
        row = one.summary()
        table.add_row(
            row["id"], row["config"], row["status"], f"{row['done']}/{row['trials']}",
            row["metric"], number_text(row["best"]),
        )  # fmt: skip
    print_table(console, table)
    return 0
