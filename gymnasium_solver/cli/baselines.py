"""`gsolve baselines [filter]`: what random actions score, stored or measured again."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gymnasium_solver.cli import format as fmt
from gymnasium_solver.cli.flags import Parser, UsageError

if TYPE_CHECKING:
    from rich.console import Console

    from gymnasium_solver.envs.baselines import Baseline

MOST_CHARACTERS = 36  # of the settings shown; --json has all
TASK = "gymnasium_solver.experiments.measure_baselines:measure"


def main(argv: Sequence[str]) -> int:
    parser = Parser(
        "baselines",
        "What uniformly random actions score in each environment that has a config. Normalised\n"
        "scores start there: 0 is random, 1 is solved. --measure plays the episodes again.",
        "examples:\n  gsolve baselines\n  gsolve baselines mujoco --json\n"
        "  gsolve baselines cartpole --measure --episodes 200 --out random.json",
    )
    parser.add_argument(
        "filter", nargs="?", help="only environments whose id or suite contains this"
    )
    parser.add_argument("--filter", dest="filter_flag", metavar="FILTER", help="the same")
    parser.add_argument("--measure", action="store_true", help="play the episodes now")
    parser.add_argument("--episodes", type=int, default=200, metavar="N", help="episodes (200)")
    parser.add_argument(
        "--seconds", type=float, default=30.0, metavar="S",
        help="time for each environment, in rounds of 20 episodes (30)",
    )  # fmt: skip
    parser.add_argument(
        "--jobs", "-j", type=int, default=1, metavar="N", help="processes at once (1)"
    )
    parser.add_argument("--seed", type=int, default=1, help="seed of environments and actions (1)")
    parser.add_argument("--out", metavar="FILE", help="write the measured baselines to this file")
    parser.add_json()
    args = parser.read(argv)
    for name in ("episodes", "jobs", "seconds"):
        if getattr(args, name) <= 0:
            raise UsageError(f"--{name} must be more than 0, got {getattr(args, name):g}")
    if args.out and not args.measure:
        raise UsageError("--out needs --measure")
    pattern = args.filter or args.filter_flag
    failed = 0
    if args.measure:
        records, failed = measure(pattern, args)
    else:
        records = stored(pattern)
    return 1 if failed or print_records(records, pattern, as_json=args.json) else 0


def stored(pattern: str | None) -> list["Baseline"]:
    from gymnasium_solver.config.find import find_configs
    from gymnasium_solver.envs.baselines import all_baselines

    wanted = {entry.env_id for entry in find_configs(pattern)}
    return [b for b in all_baselines() if pattern is None or b.env_id in wanted]


def measure(pattern: str | None, args: Any) -> tuple[list["Baseline"], int]:
    """Play, print each result as it ends, write --out; return the records and the failures."""
    from gymnasium_solver.cli.tables import make_console
    from gymnasium_solver.cli.workers import run_isolated
    from gymnasium_solver.config.find import find_configs
    from gymnasium_solver.envs.baselines import Baseline
    from gymnasium_solver.experiments.measure_baselines import games, write_records
    from gymnasium_solver.paths import output_file

    if args.out:
        output_file(args.out, "the baselines", create_folder=True)  # before minutes of work
    said = make_console(stderr=True)
    names = list(games(find_configs(pattern)).values())
    if not names:
        raise UsageError(f"no config matches '{pattern}', see gsolve envs")
    job = {"episodes": args.episodes, "seconds": args.seconds, "seed": args.seed}
    rows, failed, n_stored = [], 0, 0
    timeout_s = 20 * args.seconds + 120  # one round is always played to its end
    items = [{"name": name, **job} for name in names]
    for outcome in run_isolated(TASK, items, jobs=args.jobs, timeout_s=timeout_s):
        name = outcome.item["name"]
        if outcome.error:
            failed += not outcome.error.startswith("MissingError")
            said.print(f"{name}: {outcome.error}", markup=False)
            continue
        rows.append(outcome.value)
        mean, n = fmt.number(outcome.value["mean"]), outcome.value["n"]
        said.print(f"{name}: {mean} over {n} episodes", markup=False, style="bright_black")
        if args.out:  # after each one: all of them take minutes
            n_stored = write_records(Path(args.out), rows)
    if args.out and rows:
        said.print(f"{args.out} has {n_stored} records", markup=False)
    records = [Baseline(**row) for row in rows]
    return sorted(records, key=lambda record: record.env_id), failed


def print_records(records: list["Baseline"], pattern: str | None, *, as_json: bool) -> int:
    """Print the records; return 1 if there are none."""
    from gymnasium_solver.cli.tables import make_console, print_json

    if as_json:
        print_json([record.to_dict() for record in records])
    elif records:
        print_table_of(make_console(), records)
    else:
        make_console(stderr=True).print(f"no baseline matches '{pattern}'", markup=False)
    return 0 if records else 1


def print_table_of(console: "Console", records: list["Baseline"]) -> None:
    from rich.text import Text

    from gymnasium_solver.cli.tables import plain_table, print_table

    right = {"justify": "right", "no_wrap": True}
    table = plain_table(
        ("environment", {"overflow": "fold"}),
        ("random", right), ("std", right), ("episodes", right), ("length", right),
        ("solved at", right), ("engine", {"no_wrap": True}),
    )  # fmt: skip
    for record in records:
        name = Text(record.env_id)
        if record.settings:
            name.append(f" {settings_text(record.settings)}", "bright_black")
        goal = "-" if record.target is None else f"{record.target:,g}"
        goal += "*" if record.target_kind == "reference" else ""
        table.add_row(
            name, fmt.number(record.mean), fmt.number(record.std), str(record.n),
            fmt.number(record.length_mean, 1), goal, record.engine,
        )  # fmt: skip
    print_table(console, table)
    if any(record.target_kind == "reference" for record in records):
        console.print("* a reference, where no threshold is defined", style="bright_black")


def settings_text(settings: dict[str, Any]) -> str:
    """Settings that differ from the environment's defaults, abbreviated."""
    parts = []
    for name, value in settings.items():
        inner = value if isinstance(value, dict) else {name: value}
        parts += [f"{key}={_short(value)}" for key, value in inner.items()]
    text = ", ".join(parts)
    return text if len(text) <= MOST_CHARACTERS else text[: MOST_CHARACTERS - 1] + "…"


def _short(value: Any) -> str:
    return f"({len(value)})" if isinstance(value, list | dict) else str(value)
