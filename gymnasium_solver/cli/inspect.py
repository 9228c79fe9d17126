"""`gsolve inspect RUN[/CHECKPOINT]`: record episodes step by step, and look at what stands out."""

import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gymnasium_solver.cli.flags import (
    Args,
    UsageError,
    env_kwargs_of,
    greedy_of,
    root_of,
    seed_of,
    verb,
)
from gymnasium_solver.cli.format import number
from gymnasium_solver.cli.tables import GREY, make_console, print_json, tell
from gymnasium_solver.errors import RunError, WriteError
from gymnasium_solver.runs.episode_tables import first_difference, notable, write_csv
from gymnasium_solver.runs.episodes import Episode, get_episode, list_episodes, worst_first
from gymnasium_solver.runs.resolve import resolve_checkpoint, resolve_run

if TYPE_CHECKING:
    from gymnasium_solver.media.inspect import Ask, Branch
    from gymnasium_solver.runs.run import Run

SHOWN = 15  # notable steps
FACTS = ("run", "env_id", "env_steps", "seed", "greedy", "created_at", "parent", "note", "why")


@verb("""
inspect: Record episodes of a trained agent with everything about each step: frames,
probabilities, values, rewards, advantages, observations. They are kept in the run;
gsolve ui shows them frame by frame.

RUN[/CHECKPOINT]
--seed test|val|train|INT=test     seed of the first episode
--episodes N=1             episodes, seeds in a row
--max-steps
--branch EPISODE:STEP[:ACTION]     repeat an episode up to a step, then take this action, or let the
                           agent continue
--compare CHECKPOINT       also play each seed with this checkpoint
--list                     list the recorded episodes
--episode ID               show a recorded episode; a part of its id
--remove ID                delete a recorded episode
--csv FILE                 write the steps of the episode as CSV; - is stdout
--html FILE                write it as one page that plays from disk
--ui                       show it in the browser
--deterministic --sampled --env-kwargs --trust --runs-dir --json

examples:
  gsolve inspect @last
  gsolve inspect a1b2/@best --episodes 10 --sampled
  gsolve inspect @last --list
  gsolve inspect @last --branch 3fa2:40:left       another action at step 40
  gsolve inspect @last/@best --compare @last       the same seed, two checkpoints
  gsolve inspect @last --episode 3fa2 --csv steps.csv
""")
def inspect(args: Args) -> int | None:
    branch = None if args.branch is None else branch_of(args.branch)
    if branch is not None and (args.episodes > 1 or args.compare):
        raise UsageError("--branch records one episode: leave out --episodes and --compare")
    if args.list or args.episode or args.remove:
        return _stored(args)
    from gymnasium_solver.media.inspect import Branch

    return _show(args, _record(args, None if branch is None else Branch(*branch)))


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


def _record(args: Args, branch: "Branch | None") -> list[Episode]:
    from gymnasium_solver.media.inspect import Ask, Studio

    ask = Ask(
        args.checkpoint,
        seed=seed_of(args),
        greedy=greedy_of(args),
        most_steps=args.max_steps,
        branch=branch,
        env_kwargs=env_kwargs_of(args),
        trust=args.trust,
    )
    studio = Studio(root_of(args))
    try:
        return [studio.play(one) for one in _asks(studio, ask, args.episodes, args.compare)]
    finally:
        studio.close()


def _asks(studio: Any, ask: "Ask", count: int, compare: str | None) -> "list[Ask]":
    """One for each episode: seeds in a row, and with --compare each seed by both checkpoints."""
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


# --- recorded ones


def _stored(args: Args) -> int | None:
    """--list, --episode and --remove import neither torch nor an environment."""
    run = run_of(args.checkpoint, args)
    if args.remove:
        episode = get_episode(run, args.remove)
        episode.delete()
        print(f"{episode.id} deleted")
        return None
    if args.episode:
        return _show(args, [get_episode(run, args.episode)])
    episodes = worst_first(list_episodes(run))
    nothing = f"{run.id} has no recorded episodes; gsolve inspect {run.id} records one"
    show = (lambda: _print_list(episodes)) if episodes else nothing
    tell(args, [brief(episode) for episode in episodes], show)
    return None


def run_of(ref: str, args: Args) -> "Run":
    """The run of RUN or RUN/CHECKPOINT."""
    try:
        return resolve_run(ref, root_of(args))
    except RunError:
        return resolve_checkpoint(ref, root_of(args)).run


def brief(episode: Episode) -> dict[str, Any]:
    facts = {name: episode.facts.get(name) for name in FACTS}
    return {"id": episode.id, "status": episode.status, **facts, **episode.result}


# --- output


def _show(args: Args, episodes: list[Episode]) -> int | None:
    worst = worst_first(episodes)[0]
    if args.ui:
        return _open(worst, episodes[-1] if args.compare else None)
    _write_files(args, worst)
    if args.csv == "-":
        return None
    is_pair = bool(args.compare) and len(episodes) == 2
    if args.json:
        told = [{**brief(one), "path": str(one.path), "notable": notable(one)} for one in episodes]
        more = {"difference": first_difference(*episodes)} if is_pair else {}
        print_json({"episodes": told, **more})
        return None
    _print_list(episodes)
    if is_pair:
        found = first_difference(*episodes)
        at = f"first difference at step {found['step']}: another {found['what']}"
        print("no difference as far as both go" if found["step"] is None else at)
    _print_notable(worst, notable(worst), len(episodes) > 1)
    return None


def _open(episode: Episode, other: Episode | None) -> int:
    """The page of an episode, next to another one."""
    from gymnasium_solver.cli.serve import require_web, serve

    require_web()
    from gymnasium_solver.serve.web.security import Settings

    run = episode.path.parents[1]
    beside = "" if other is None or other.id == episode.id else f"&with={other.id}"
    page = f"inspect/{run.name}?episode={episode.id}{beside}"
    return serve(Settings(root=run.parent.absolute()), page=page, opens=True)


def _write_files(args: Args, episode: Episode) -> None:
    try:
        if args.csv == "-":
            write_csv(episode, sys.stdout)
        elif args.csv:
            with Path(args.csv).open("w", newline="", encoding="utf-8") as file:
                write_csv(episode, file)
        if args.html:
            from gymnasium_solver.serve.web.episode_file import episode_page

            Path(args.html).write_text(episode_page(episode), encoding="utf-8")
    except OSError as error:
        raise WriteError(
            f"{error.filename} cannot be written: {error.strerror or error}"
        ) from error


def _print_list(episodes: list[Episode]) -> None:
    console = make_console()
    for episode in episodes:
        result, parent = episode.result, episode.facts.get("parent")
        text = f"{episode.id}: {episode.status}"
        if result:
            text = f"{episode.id}: return {number(result.get('return'), 2)} in "
            text += f"{result.get('steps')} steps, {result.get('ended')}"
        if parent:
            text += f"; branch of {parent.get('episode')} at step {parent.get('step')}"
        console.say(text)
    notes = [one.facts.get(key) for one in episodes for key in ("note", "no_frames")]
    for note in dict.fromkeys(filter(None, notes)):
        console.say(note, GREY)


def _print_notable(episode: Episode, steps: list[dict[str, Any]], is_worst: bool) -> None:
    console = make_console()
    if steps:
        console.say(f"notable steps{f' of the worst, {episode.id}' if is_worst else ''}:")
    info = episode.info()
    for entry in steps[:SHOWN]:
        t = entry["step"]
        action = info[t].get("action") if t < len(info) else None
        console.say(f"  step {t:>5}  {action or '':<14} {', '.join(entry['why'])}".rstrip())
    if len(steps) > SHOWN:
        console.print(f"  and {len(steps) - SHOWN} more", style=GREY)
    console.say(episode.path, GREY)
