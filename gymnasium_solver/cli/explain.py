"""`gsolve explain RUN[/CHECKPOINT]`: look into the network of a trained agent."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from gymnasium_solver.cli import watch_flags as flags
from gymnasium_solver.cli.flags import Parser, UsageError

if TYPE_CHECKING:
    from gymnasium_solver.media.explain import Explained


def main(argv: Sequence[str]) -> int:
    args = _parser().read(argv)
    steps = tuple(_step_of(text) for text in args.step)
    env_kwargs = flags.env_kwargs_of(args.env_kwargs)
    most_steps, layer = (
        flags.count("--max-steps", args.max_steps),
        flags.count("--layer", args.layer),
    )

    from gymnasium_solver.media.explain_step import methods_of, target_of

    methods, target = methods_of(args.method), target_of(args.target)

    from gymnasium_solver.media.explain import MOST_STEPS, Question, explain_run
    from gymnasium_solver.runs.run import runs_root
    from gymnasium_solver.training.targets import ENV_FIELDS, find_run, with_fields

    found = find_run(args.checkpoint, runs_root(args.runs_dir), trust=args.trust)
    found = with_fields(found, env_kwargs, ENV_FIELDS)
    question = Question(
        steps=steps,
        methods=methods,
        target=target,
        layer=layer,
        seed=flags.seed_of(args.seed),
        greedy=flags.greedy_of(args),
        most_steps=most_steps or MOST_STEPS,
    )
    result = explain_run(found, question, Path(args.out) if args.out else None)
    if args.json:
        from gymnasium_solver.cli.tables import print_json

        print_json(result.to_dict())
    else:
        _print(result)
    return 0


def _step_of(text: str) -> int:
    if not text.isdecimal():
        raise UsageError(f"--step {text}: expected a whole number of at least 0")
    return int(text)


def _parser() -> Parser:
    parser = Parser(
        "explain",
        "Look into the network of a trained agent: filters, activations, causes of a decision.",
        "examples:\n  gsolve explain @last\n"
        "  gsolve explain a1b2/@best --step 0 40 --method gradcam\n"
        "  gsolve explain @last --target value --out inside",
    )
    parser.add_argument(
        "checkpoint",
        metavar="RUN[/CHECKPOINT]",
        help="@last, an id or a part of one; then /@best, /@last or /<env_steps> (default: @best)",
    )
    parser.add_argument(
        "--episode-seed",
        "--seed",
        dest="seed",
        default="test",
        metavar="test|val|train|INT",
        help="seed of the episode (default: test)",
    )
    parser.add_argument(
        "--step",
        nargs="+",
        action="extend",
        default=[],
        metavar="N",
        help="steps of the episode to explain, from 0 (default: the first, a middle and the last)",
    )
    parser.add_argument(
        "--method",
        nargs="+",
        action="extend",
        default=[],
        metavar="NAME",
        help="gradient, occlusion, gradcam, gradcam++, xgradcam, layercam, hirescam, scorecam, "
        "eigencam or all (default: all)",
    )
    parser.add_argument(
        "--target",
        default="action",
        metavar="action|value",
        help="what is explained: the chosen action, or the value (default: action)",
    )
    parser.add_argument(
        "--layer",
        metavar="N",
        help="convolution of the activation maps, from 1 (default: the last)",
    )
    parser.add_argument(
        "-o",
        "--out",
        metavar="DIR",
        help="folder (default: <env_steps>-seed<seed> in the run's explain/)",
    )
    parser.add_argument(
        "--max-steps", metavar="N", help="steps of the episode to play (default: 200)"
    )
    flags.add_acting(parser)
    parser.add_json()
    return parser


def _print(result: "Explained") -> None:
    from gymnasium_solver.cli.tables import make_console

    console = make_console()
    console.print(f"{result.page}: {len(result.files)} pictures", soft_wrap=True, highlight=False)
    for step in result.steps:
        value = "" if step["value"] is None else f", value {step['value']:.4g}"
        number = f"{step['explained']} {step['number']:.4g}"
        line = f"step {step['step']}: {step['action']}{value}; {number}"
        ranked = sorted(step["contributions"].items(), key=lambda item: -abs(item[1]))[:3]
        if ranked:
            line += f" ({', '.join(f'{name} {part:+.3g}' for name, part in ranked)})"
        console.print(line, soft_wrap=True, highlight=False, markup=False)
    for note in result.notes:
        console.print(note, style="bright_black", soft_wrap=True, markup=False)
