"""`gsolve export RUN[/CHECKPOINT]`: the policy as an ONNX file or a C header."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from gymnasium_solver.cli.flags import Parser

if TYPE_CHECKING:
    from gymnasium_solver.share.export.export_run import Exported


def main(argv: Sequence[str]) -> int:
    args = _parser().read(argv)
    from gymnasium_solver.runs.run import runs_root
    from gymnasium_solver.share.export.export_run import export_run

    exported = export_run(
        args.checkpoint,
        runs_root(args.runs_dir),
        args.format,
        Path(args.out) if args.out else None,
        trust=args.trust,
    )
    if args.json:
        from gymnasium_solver.cli.tables import print_json

        print_json(exported.to_dict())
    else:
        print_result(exported)
    return 0


def _parser() -> Parser:
    parser = Parser(
        "export",
        "Write the policy of a run as a file that needs neither torch nor gymnasium-solver:\n"
        "the raw observation in, the environment's action out. The file is compared with the\n"
        "run's policy on 1,000 observations of its environment, and not written if it differs.",
        "examples:\n  gsolve export @last --format onnx\n"
        "  gsolve export a1b2/@best --format c --out policy.h",
    )
    parser.add_argument(
        "checkpoint",
        metavar="RUN[/CHECKPOINT]",
        help="@last, an id or a part of one; then /@best, /@last or /<env_steps> (default: @best)",
    )
    parser.add_argument(
        "--format",
        default="onnx",
        choices=["onnx", "c"],
        help="onnx (default): every policy; c: one C header without dependencies, for small MLPs",
    )
    parser.add_argument(
        "-o", "--out", metavar="FILE", help="default: policy-<env_steps>.onnx or .h in the run"
    )
    parser.add_runs_dir()
    parser.add_trust()
    parser.add_json()
    return parser


def print_result(exported: "Exported") -> None:
    from gymnasium_solver.cli.tables import make_console

    console = make_console()

    def line(text: str, style: str = "") -> None:
        console.print(text, style=style, soft_wrap=True, highlight=False, markup=False)

    line(f"{exported.path}: {exported.size_bytes / 1e3:,.0f} kB")
    for kind, values in (("in", exported.inputs), ("out", exported.outputs)):
        for name, text in values.items():
            line(f"  {kind:<3} {name:<14} {text}")
    line(
        f"same actions as {exported.run}/{exported.checkpoint} on {exported.compared_on}; "
        f"largest difference {exported.largest_difference:.1e}"
    )
    if exported.env_wrappers:
        names = ", ".join(exported.env_wrappers)
        line(f"the environment must apply these wrappers of the run: {names}", "yellow")
