"""`gsolve inspect RUN[/CHECKPOINT]`: record episodes step by step, and look at what stands out."""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gymnasium_solver.cli import watch_flags as flags
from gymnasium_solver.cli.flags import Parser, UsageError

if TYPE_CHECKING:
    from gymnasium_solver.media.inspect import Ask, Branch
    from gymnasium_solver.runs.episodes import Episode
    from gymnasium_solver.runs.run import Run

SHOWN = 15  # notable steps


def main(argv: Sequence[str]) -> int:
    args = _parser().read(argv)
    count = flags.count("--episodes", args.episodes) or 1
    most_steps = flags.count("--max-steps", args.max_steps)
    branch = None if args.branch is None else branch_of(args.branch)
    if branch is not None and (count > 1 or args.compare):
        raise UsageError("--branch records one episode: leave out --episodes and --compare")
    if args.list or args.episode or args.remove:
        return _stored(args)
    from gymnasium_solver.media.inspect import Branch

    wanted = None if branch is None else Branch(*branch)
    episodes = _record(args, count, most_steps, wanted)
    return _show(args, episodes)


def branch_of(text: str) -> tuple[str, int, Any]:
    """EPISODE:STEP[:ACTION]"""
    episode, colon, rest = text.partition(":")
    step, _, action = rest.partition(":")
    if not colon or not episode or not step.isdecimal():
        raise UsageError(
            f"--branch {text}: expected EPISODE:STEP:ACTION, or EPISODE:STEP (the agent acts)"
        )
    return episode, int(step), _action(action) if action else None


def _action(text: str) -> Any:
    """Numbers as JSON has them; a label as it is."""
    from gymnasium_solver.config.yaml_file import parse_value

    value = parse_value(text)
    return value if isinstance(value, int | float | list) else text


def _record(
    args: argparse.Namespace, count: int, most_steps: int | None, branch: "Branch | None"
) -> "list[Episode]":
    from gymnasium_solver.media.inspect import MOST_STEPS, Ask, Studio
    from gymnasium_solver.runs.run import runs_root

    ask = Ask(
        args.checkpoint,
        seed=flags.seed_of(args.seed),
        greedy=flags.greedy_of(args),
        most_steps=most_steps or MOST_STEPS,
        branch=branch,
        env_kwargs=flags.env_kwargs_of(args.env_kwargs),
        trust=args.trust,
    )
    studio = Studio(runs_root(args.runs_dir))
    try:
        return [studio.play(one) for one in _asks(studio, ask, count, args.compare)]
    finally:
        studio.close()


def _asks(studio: Any, ask: "Ask", count: int, compare: str | None) -> "list[Ask]":
    """One for each episode: seeds in a row, and with --compare each seed by both checkpoints."""
    from dataclasses import replace

    from gymnasium_solver.training.score import pick_seed

    if count == 1 and not compare:
        return [ask]
    scene = studio.scene(ask)
    seed = pick_seed(scene.found.config, scene.run, scene.env_steps, ask.seed)
    asks = []
    for i in range(count):
        one = replace(ask, seed=seed + i)
        asks.append(one)
        if compare:
            asks.append(replace(one, run=f"{scene.run.path}/{compare.removeprefix('/')}"))
    return asks


def _parser() -> Parser:
    parser = Parser(
        "inspect",
        "Record episodes of a trained agent with everything about each step: frames,\n"
        "probabilities, values, rewards, advantages, observations. They are kept in the run;\n"
        "gsolve ui shows them frame by frame.",
        "examples:\n  gsolve inspect @last\n  gsolve inspect a1b2/@best --episodes 10 --sampled\n"
        "  gsolve inspect @last --list\n"
        "  gsolve inspect @last --branch 3fa2:40:left       another action at step 40\n"
        "  gsolve inspect @last/@best --compare @last       the same seed, two checkpoints\n"
        "  gsolve inspect @last --episode 3fa2 --csv steps.csv",
    )
    parser.add_argument(
        "checkpoint",
        metavar="RUN[/CHECKPOINT]",
        help="@last, an id or a part of one; then /@best, /@last or /<env_steps> (default: @best)",
    )
    parser.add_argument(
        "--seed",
        default="test",
        metavar="test|val|train|INT",
        help="seed of the first episode (default: test)",
    )
    parser.add_argument("--episodes", metavar="N", help="episodes, seeds in a row (default: 1)")
    parser.add_argument(
        "--max-steps", "--steps", dest="max_steps", metavar="N",
        help="cut an episode after N steps (default: 1000)",
    )  # fmt: skip
    parser.add_argument(
        "--branch",
        metavar="EPISODE:STEP[:ACTION]",
        help="repeat an episode up to a step, then take this action, or let the agent continue",
    )
    parser.add_argument(
        "--compare", metavar="CHECKPOINT", help="also play each seed with this checkpoint"
    )
    parser.add_argument("--list", action="store_true", help="list the recorded episodes")
    parser.add_argument("--episode", metavar="ID", help="show a recorded episode; a part of its id")
    parser.add_argument("--remove", metavar="ID", help="delete a recorded episode")
    parser.add_argument(
        "--csv", metavar="FILE", help="write the steps of the episode as CSV; - is stdout"
    )
    parser.add_argument("--html", metavar="FILE", help="write it as one page that plays from disk")
    parser.add_argument("--ui", action="store_true", help="show it in the browser")
    flags.add_acting(parser)
    parser.add_json()
    return parser


# -- recorded ones ----------------------------------------------------------------------------


def _stored(args: argparse.Namespace) -> int:
    """--list, --episode and --remove import neither torch nor an environment."""
    from gymnasium_solver.runs.episodes import get_episode, list_episodes, worst_first

    run = run_of(args.checkpoint, args.runs_dir)
    if args.remove:
        episode = get_episode(run, args.remove)
        episode.delete()
        print(f"{episode.id} deleted")
        return 0
    if args.episode:
        return _show(args, [get_episode(run, args.episode)])
    episodes = worst_first(list_episodes(run))
    if args.json:
        from gymnasium_solver.cli.tables import print_json

        print_json([brief(episode) for episode in episodes])
        return 0
    if not episodes:
        print(f"{run.id} has no recorded episodes; gsolve inspect {run.id} records one")
    _print_list(episodes)
    return 0


def run_of(ref: str, runs_dir: str | None) -> "Run":
    """The run of RUN or RUN/CHECKPOINT."""
    from gymnasium_solver.errors import RunError
    from gymnasium_solver.runs.resolve import resolve_checkpoint, resolve_run
    from gymnasium_solver.runs.run import runs_root

    try:
        return resolve_run(ref, runs_root(runs_dir))
    except RunError:
        return resolve_checkpoint(ref, runs_root(runs_dir)).run


def brief(episode: "Episode") -> dict[str, Any]:
    names = ("run", "env_id", "env_steps", "seed", "greedy", "created_at", "parent", "note", "why")
    facts = {name: episode.facts.get(name) for name in names}
    return {"id": episode.id, "status": episode.status, **facts, **episode.result}


# -- output -----------------------------------------------------------------------------------


def _show(args: argparse.Namespace, episodes: "list[Episode]") -> int:
    from gymnasium_solver.runs.episode_tables import first_difference, notable
    from gymnasium_solver.runs.episodes import worst_first

    worst = worst_first(episodes)[0]
    if args.ui:
        return _open(worst, episodes[-1] if args.compare else None)
    _write_files(args, worst)
    if args.csv == "-":
        return 0
    is_pair = bool(args.compare) and len(episodes) == 2
    if args.json:
        from gymnasium_solver.cli.tables import print_json

        told = [{**brief(one), "path": str(one.path), "notable": notable(one)} for one in episodes]
        more = {"difference": first_difference(*episodes)} if is_pair else {}
        print_json({"episodes": told, **more})
        return 0
    _print_list(episodes)
    if is_pair:
        _print_difference(first_difference(*episodes))
    _print_notable(worst, notable(worst), len(episodes) > 1)
    return 0


def _open(episode: "Episode", other: "Episode | None") -> int:
    """The page of an episode, beside another one."""
    from gymnasium_solver.cli.ui import require_web, serve

    require_web()
    from gymnasium_solver.serve.web.security import Settings

    run = episode.path.parents[1]
    beside = "" if other is None or other.id == episode.id else f"&with={other.id}"
    page = f"inspect/{run.name}?episode={episode.id}{beside}"
    return serve(Settings(root=run.parent.absolute()), page=page, opens=True)


def _write_files(args: argparse.Namespace, episode: "Episode") -> None:
    from gymnasium_solver.errors import WriteError

    try:
        if args.csv:
            from gymnasium_solver.runs.episode_tables import write_csv

            if args.csv == "-":
                write_csv(episode, sys.stdout)
            else:
                with Path(args.csv).open("w", newline="", encoding="utf-8") as file:
                    write_csv(episode, file)
        if args.html:
            from gymnasium_solver.serve.web.episode_file import episode_page

            Path(args.html).write_text(episode_page(episode), encoding="utf-8")
    except OSError as error:
        raise WriteError(
            f"{error.filename} cannot be written: {error.strerror or error}"
        ) from error


def _print_list(episodes: "list[Episode]") -> None:
    from gymnasium_solver.cli.format import number
    from gymnasium_solver.cli.tables import make_console

    console = make_console()
    for episode in episodes:
        result, facts = episode.result, episode.facts
        text = f"{episode.id}: {episode.status}"
        if result:
            text = (
                f"{episode.id}: return {number(result.get('return'), 2)} in "
                f"{result.get('steps')} steps, {result.get('ended')}"
            )
        if parent := facts.get("parent"):
            text += f"; branch of {parent.get('episode')} at step {parent.get('step')}"
        console.print(text, soft_wrap=True, highlight=False, markup=False)
    for note in dict.fromkeys(
        one.facts.get(key) for one in episodes for key in ("note", "no_frames")
    ):
        if note:
            console.print(str(note), style="bright_black", soft_wrap=True, markup=False)


def _print_difference(found: dict[str, Any]) -> None:
    step = found["step"]
    if step is None:
        print("no difference as far as both go")
    else:
        print(f"first difference at step {step}: another {found['what']}")


def _print_notable(episode: "Episode", steps: list[dict[str, Any]], is_worst: bool) -> None:
    from gymnasium_solver.cli.tables import make_console

    console = make_console()
    if steps:
        of = f" of the worst, {episode.id}" if is_worst else ""
        console.print(f"notable steps{of}:", highlight=False, markup=False)
    info = episode.info()
    for entry in steps[:SHOWN]:
        t = entry["step"]
        action = info[t].get("action") if t < len(info) else None
        text = f"  step {t:>5}  {action or '':<14} {', '.join(entry['why'])}"
        console.print(text.rstrip(), soft_wrap=True, highlight=False, markup=False)
    if len(steps) > SHOWN:
        console.print(f"  and {len(steps) - SHOWN} more", style="bright_black")
    console.print(f"{episode.path}", style="bright_black", soft_wrap=True, highlight=False)
