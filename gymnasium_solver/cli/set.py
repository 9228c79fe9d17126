"""`gsolve set RUN FIELD=VALUE...`: change a run while it trains."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from gymnasium_solver.cli.flags import Parser, UsageError

if TYPE_CHECKING:
    from gymnasium_solver.runs.run import Run

WAIT_S = 10.0


def main(argv: Sequence[str]) -> int:
    """Exit code 1 if the training process refused the change."""
    parser = Parser(
        "set",
        "Change fields of a run while it trains. They are checked at once, take effect at the\n"
        "next epoch, and are recorded in the run. Saving its config.yaml in an editor does the\n"
        "same. Without FIELD=VALUE: list the changes of the run.",
        "examples:\n  gsolve set @last policy_lr=1e-4\n"
        '  gsolve set @last ent_coef=0 "clip_range={start: 0.2, end: 0.1}"\n'
        "  gsolve set a1b2 max_env_steps=2e6 --at 500_000\n  gsolve set @last",
    )
    parser.add_argument("run", metavar="RUN", help="@last, an id or a unique part of one, a path")
    parser.add_argument("fields", nargs="*", metavar="FIELD=VALUE", help="as in the config's YAML")
    parser.add_argument("--at", metavar="ENV_STEPS", help="not before this many env steps")
    parser.add_argument(
        "--wait",
        metavar="SECONDS",
        type=float,
        default=WAIT_S,
        help=f"how long to wait until it takes effect (default: {WAIT_S:g})",
    )
    parser.add_trust()
    parser.add_json()
    parser.add_runs_dir()
    args = parser.read(argv)

    from gymnasium_solver.runs.resolve import resolve_run
    from gymnasium_solver.runs.run import runs_root

    run = resolve_run(args.run, runs_root(args.runs_dir))
    if not args.fields:
        return show(run, args.json)
    at_env_steps = 0 if args.at is None else _count(args.at)
    changes = dict(_pair(text) for text in args.fields)

    from gymnasium_solver.config.yaml_file import value_text
    from gymnasium_solver.training.live import request_edit, wait_for

    request = request_edit(run, changes, at_env_steps=at_env_steps, trust=args.trust)
    answer = None if at_env_steps else wait_for(run, request, args.wait)
    result: dict[str, Any] = {"run": run.id, "id": request.id, "requested": changes}
    if answer is None:
        result |= {"applied": False}
        when = f"at {at_env_steps:,} env steps" if at_env_steps else "at the next epoch"
        text = f"{run.id}: requested; takes effect {when}"
    elif answer.refused is not None:
        result |= {"applied": False, "refused": answer.refused}
        text = f"{run.id}: refused: {answer.refused}"
    else:
        clock = {"env_steps": answer.env_steps, "epoch": answer.epoch}
        result |= {"applied": True, "changed": answer.changed, **clock}
        fields = ", ".join(f"{name} = {value_text(new)}" for name, new in answer.changed.items())
        text = f"{run.id}: {fields or 'nothing changed'} since env step {answer.env_steps:,}"
    _print(result, text, args.json)
    return 1 if answer is not None and answer.refused is not None else 0


def show(run: "Run", as_json: bool) -> int:
    """Print the changes made and those requested."""
    from gymnasium_solver.config.yaml_file import value_text
    from gymnasium_solver.runs.edits import pending_requests, read_edits

    made = [
        {"env_steps": edit.env_steps, "epoch": edit.epoch, "source": edit.source,
         "changed": edit.changed}
        for edit in read_edits(run)
    ]  # fmt: skip
    asked = [
        {"at_env_steps": request.at_env_steps, "source": request.source, "changes": request.changes}
        for request in pending_requests(run)
    ]
    lines = [
        f"env step {edit.env_steps:>12,}  {name}: {value_text(old)} → {value_text(new)}  "
        f"({edit.source})"
        for edit in read_edits(run)
        for name, (old, new) in edit.changed.items()
    ]
    lines += [
        f"requested at {request.at_env_steps:,} env steps  {name}: {value_text(value)}"
        for request in pending_requests(run)
        for name, value in request.changes.items()
    ]
    text = "\n".join(lines or [f"{run.id} was not changed while it trained"])
    _print({"run": run.id, "edits": made, "requests": asked}, text, as_json)
    return 0


def _print(result: dict[str, Any], text: str, as_json: bool) -> None:
    if as_json:
        from gymnasium_solver.cli.tables import print_json

        print_json(result)
    else:
        print(text)


def _pair(text: str) -> tuple[str, Any]:
    from gymnasium_solver.config.yaml_file import parse_value

    name, equals, value = text.partition("=")
    if not equals or not name.strip():
        raise UsageError(f"'{text}': expected FIELD=VALUE, such as policy_lr=1e-4")
    return name.strip().replace("-", "_"), parse_value(value.strip())


def _count(text: str) -> int:
    from gymnasium_solver.config.yaml_file import parse_value

    value = parse_value(text)
    if isinstance(value, bool) or not isinstance(value, int | float) or value < 0 or value % 1:
        raise UsageError(f"--at {text}: expected a number of env steps")
    return int(value)
