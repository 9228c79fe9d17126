"""Verbs that write what a trained agent does to files: `video`, `record` and `explain`."""

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING

from gymnasium_solver.cli.flags import (
    Args,
    UsageError,
    env_kwargs_of,
    greedy_of,
    grid_of,
    root_of,
    seed_of,
    verb,
)
from gymnasium_solver.cli.format import number
from gymnasium_solver.cli.tables import GREY, make_console, tell

if TYPE_CHECKING:
    from gymnasium_solver.media.explain import Explained
    from gymnasium_solver.media.record import Recorded
    from gymnasium_solver.training.targets import Found


def found_agent(args: Args) -> "Found":
    """The checkpoint that is named, in the environment that --env-kwargs change."""
    from gymnasium_solver.training.targets import ENV_FIELDS, find_run, with_fields

    changes = env_kwargs_of(args)
    return with_fields(
        find_run(args.checkpoint, root_of(args), trust=args.trust), changes, ENV_FIELDS
    )


@verb("""
video: Record episodes of a trained agent as MP4, GIF or WebP, by the suffix of --out.

RUN[/CHECKPOINT]
--episodes N       episodes (default: 1, or one per tile)
--grid RxC         rows x columns of episodes played at once, up to 16 tiles
-o, --out FILE     name.mp4, .gif or .webp (default: <env_steps>.mp4 in the run's videos/)
--max-steps
--no-overlay       frames without a caption
--checkpoint-folder DIR     internal: a copy of a checkpoint, for the recorder of a training run
--seed --fps --deterministic --sampled --env-kwargs --trust --runs-dir --json

examples:
  gsolve video @last
  gsolve video a1b2/@best --grid 4x4 --out grid.mp4
  gsolve video a1b2/50000 --episodes 3 --sampled --out play.gif
""")
def video(args: Args) -> None:
    rows, columns = grid_of(args)
    episodes = args.episodes or max(1, rows * columns)
    if rows and episodes > rows * columns:
        raise UsageError(f"--episodes {episodes}: a grid of {args.grid} holds {rows * columns}")

    from gymnasium_solver.media.record import Shots, record_run

    found = found_agent(args)
    if args.checkpoint_folder:
        found = dataclasses.replace(found, checkpoint=Path(args.checkpoint_folder))
    result = record_run(
        found,
        Shots(episodes, rows, columns, args.max_steps, overlay=not args.no_overlay),
        out=Path(args.out) if args.out else None,
        seed=seed_of(args),
        fps=args.fps,
        greedy=greedy_of(args),
    )
    tell(args, result.to_dict(), lambda: _print_video(result))


def _print_video(result: "Recorded") -> None:
    console = make_console()
    size = Path(result.path).stat().st_size / 1e6
    console.say(
        f"{result.path}: {result.n_frames} frames of {result.width} x {result.height}, "
        f"{result.n_frames / result.fps:.1f} s at {result.fps:g} a second, {size:.2f} MB"
    )
    shown = ", ".join(number(value, 2) for value in result.returns)
    console.print(f"return{'s' * (len(result.returns) > 1)} {shown} (seed {result.seed})")
    if result.cut:
        longest = max(result.lengths)
        text = f"{len(result.cut)} cut after {longest:,} steps: --max-steps N shows more"
        console.print(text, style=GREY)
    if result.note:
        console.say(result.note, GREY)


@verb("""
record: Write whole episodes of a trained agent as a Minari dataset, in a local folder.
Needs the extra minari.

RUN[/CHECKPOINT]
--episodes N=100   episodes
--out PATH         folder of the dataset; its name ends in -v0; required
--sampled          sample actions instead of the best
--seed INT         seed of the environments (default: that of the run's test)
--trust --json --runs-dir

examples:
  gsolve record @last --episodes 100 --out data/cartpole-v0
  gsolve record a1b2/@best --episodes 20 --sampled --out data/explore-v0
""")
def record(args: Args) -> None:
    from gymnasium_solver.media.minari_writer import write_dataset
    from gymnasium_solver.paths import user_path
    from gymnasium_solver.runs.resolve import resolve_checkpoint

    written = write_dataset(
        resolve_checkpoint(args.checkpoint, root_of(args)),
        user_path(args.out),
        args.episodes,
        greedy=not args.sampled,
        seed=args.seed,
        trust=args.trust,
    )
    data = {
        "path": str(written.path),
        "dataset": written.dataset_id,
        "episodes": written.episodes,
        "steps": written.steps,
        "mean_return": written.mean_return,
    }
    counts = f"{written.episodes} episodes, {written.steps:,} steps"
    tell(args, data, f"{written.path}: {counts}, mean return {written.mean_return:.4g}")


@verb("""
explain: Look into the network of a trained agent: filters, activations, causes of a decision.

RUN[/CHECKPOINT]
--seed, --episode-seed test|val|train|INT=test     seed of the episode
--step INT...                steps of the episode to explain, from 0 (default: the first, a middle
                             and the last)
--method NAME...             gradient, occlusion, gradcam, gradcam++, xgradcam, layercam, hirescam,
                             scorecam, eigencam or all (default: all)
--target action|value=action     what is explained: the chosen action, or the value
--layer N                    convolution of the activation maps, from 1 (default: the last)
-o, --out DIR                folder (default: <env_steps>-seed<seed> in the run's explain/)
--max-steps N=200            steps of the episode to play
--deterministic --sampled --env-kwargs --trust --runs-dir --json

examples:
  gsolve explain @last
  gsolve explain a1b2/@best --step 0 40 --method gradcam
  gsolve explain @last --target value --out inside
""")
def explain(args: Args) -> None:
    from gymnasium_solver.media.explain_step import methods_of, target_of

    methods, target = methods_of(args.method), target_of(args.target)

    from gymnasium_solver.media.explain import Question, explain_run

    question = Question(
        steps=tuple(args.step),
        methods=methods,
        target=target,
        layer=args.layer,
        seed=seed_of(args),
        greedy=greedy_of(args),
        most_steps=args.max_steps,
    )
    result = explain_run(found_agent(args), question, Path(args.out) if args.out else None)
    tell(args, result.to_dict(), lambda: _print_explained(result))


def _print_explained(result: "Explained") -> None:
    console = make_console()
    console.say(f"{result.page}: {len(result.files)} pictures")
    for step in result.steps:
        value = "" if step["value"] is None else f", value {step['value']:.4g}"
        line = f"step {step['step']}: {step['action']}{value}; "
        line += f"{step['explained']} {step['number']:.4g}"
        ranked = sorted(step["contributions"].items(), key=lambda item: -abs(item[1]))[:3]
        if ranked:
            line += f" ({', '.join(f'{name} {part:+.3g}' for name, part in ranked)})"
        console.say(line)
    for note in result.notes:
        console.say(note, GREY)
