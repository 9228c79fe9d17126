"""Verbs that record what a trained agent does: `video`, `record`, `explain` and `inspect`."""

import dataclasses
import sys
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gymnasium_solver.cli import output as out
from gymnasium_solver.cli.flags import Args, UsageError, verb
from gymnasium_solver.errors import RunError, WriteError
from gymnasium_solver.paths import user_path
from gymnasium_solver.runs.episode_tables import first_difference, notable, write_csv
from gymnasium_solver.runs.episodes import Episode, get_episode, list_episodes, worst_first
from gymnasium_solver.runs.files import picked
from gymnasium_solver.runs.resolve import resolve_checkpoint, resolve_run

if TYPE_CHECKING:
    from gymnasium_solver.training.targets import Found

SHOWN = 15  # notable steps
FACTS = "run env_id env_steps seed greedy created_at parent note why"


def found_agent(args: Args) -> "Found":
    """The checkpoint that is named, in the environment that --env-kwargs change."""
    from gymnasium_solver.training.targets import ENV_FIELDS, find_run, with_fields

    changes = args.env_overrides()
    return with_fields(
        find_run(args.checkpoint, args.root(), trust=args.trust), changes, ENV_FIELDS
    )


@verb("""
video: Record episodes of a trained agent as MP4, GIF or WebP, by the suffix of --out.

RUN[/CHECKPOINT]
--episodes N       episodes (default: 1, or one per tile)
--grid RxC         rows x columns of episodes played at once, up to 16 tiles
-o, --out FILE     name.mp4, .gif or .webp (default: <env_steps>.mp4 in the run's videos/)
--max-steps
--no-overlay       frames without a caption
--open-loop        the agent's image, as a world model reconstructs it, and as it imagines it
--checkpoint-folder DIR     internal: a copy of a checkpoint, for the recorder of a training run
--seed --fps --deterministic --sampled --env-kwargs --trust --runs-dir --json

examples:
  gsolve video @last
  gsolve video a1b2/@best --grid 4x4 --out grid.mp4
  gsolve video @last --open-loop
  gsolve video a1b2/50000 --episodes 3 --sampled --out play.gif
""")
def video(args: Args) -> None:
    rows, columns = args.grid_size()
    episodes = args.episodes or max(1, rows * columns)
    if rows and episodes > rows * columns:
        raise UsageError(f"--episodes {episodes}: a grid of {args.grid} holds {rows * columns}")
    if rows and args.open_loop:
        raise UsageError("--open-loop: shows one episode after another, remove --grid")

    from gymnasium_solver.media.record import Shots, record_run

    found = found_agent(args)
    if args.checkpoint_folder:
        found = dataclasses.replace(found, checkpoint=Path(args.checkpoint_folder))
    result = record_run(
        found,
        Shots(
            episodes, rows, columns, args.max_steps, not args.no_overlay, open_loop=args.open_loop
        ),
        out=Path(args.out) if args.out else None,
        seed=args.wanted_seed(),
        fps=args.fps,
        greedy=args.wants_greedy(),
    )
    if out.told_json(args, result):
        return
    size = Path(result.path).stat().st_size / 1e6
    out.show(
        f"{result.path}: {result.n_frames} frames of {result.width} x {result.height}, "
        f"{result.n_frames / result.fps:.1f} s at {result.fps:g} a second, {size:.2f} MB"
    )
    shown = ", ".join(out.number(value, 2) for value in result.returns)
    out.show(f"return{'s' * (len(result.returns) > 1)} {shown} (seed {result.seed})")
    if result.cut:
        longest = max(result.lengths)
        text = f"{len(result.cut)} cut after {longest:,} steps: --max-steps N shows more"
        out.show(text, style=out.GREY)
    if result.note:
        out.show(result.note, style=out.GREY)


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

    written = write_dataset(
        resolve_checkpoint(args.checkpoint, args.root()),
        user_path(args.out),
        args.episodes,
        greedy=False if args.sampled else None,
        seed=args.seed,
        trust=args.trust,
    )
    data = picked(written, "path dataset=dataset_id episodes steps mean_return")
    counts = f"{written.episodes} episodes, {written.steps:,} steps"
    out.tell(args, data, f"{written.path}: {counts}, mean return {written.mean_return:.4g}")


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
        seed=args.wanted_seed(),
        greedy=args.wants_greedy(),
        most_steps=args.max_steps,
    )
    result = explain_run(found_agent(args), question, Path(args.out) if args.out else None)
    if out.told_json(args, result):
        return
    out.show(f"{result.page}: {len(result.files)} pictures")
    for step in result.steps:
        value = "" if step["value"] is None else f", value {step['value']:.4g}"
        line = f"step {step['step']}: {step['action']}{value}; "
        line += f"{step['explained']} {step['number']:.4g}"
        ranked = sorted(step["contributions"].items(), key=lambda item: -abs(item[1]))[:3]
        if ranked:
            line += f" ({', '.join(f'{name} {part:+.3g}' for name, part in ranked)})"
        out.show(line)
    out.show(*result.notes, style=out.GREY)


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
    if not (args.list or args.episode or args.remove):
        return _show(args, _record(args, branch))
    try:
        run = resolve_run(args.checkpoint, args.root())
    except RunError:
        run = resolve_checkpoint(args.checkpoint, args.root()).run
    if args.remove:
        episode = get_episode(run, args.remove)
        episode.delete()
        print(f"{episode.id} deleted")
        return None
    if args.episode:
        return _show(args, [get_episode(run, args.episode)])
    episodes = worst_first(list_episodes(run))
    if not out.told_json(args, [brief(episode) for episode in episodes]):
        nothing = f"{run.id} has no recorded episodes; gsolve inspect {run.id} records one"
        _print_list(episodes) if episodes else print(nothing)
    return None


def branch_of(text: str) -> tuple[str, int, Any]:
    """EPISODE:STEP[:ACTION]; numbers of an action as JSON has them, a label as it is."""
    from gymnasium_solver.config.yaml_file import parse_value

    episode, _, rest = text.partition(":")
    step, _, action = rest.partition(":")
    if not episode or not step.isdecimal():
        raise UsageError(
            f"--branch {text}: expected EPISODE:STEP:ACTION, or EPISODE:STEP (the agent acts)"
        )
    value = parse_value(action) if action else None
    return episode, int(step), value if isinstance(value, int | float | list) else action or None


def _record(args: Args, branch: tuple[str, int, Any] | None) -> list[Episode]:
    """One for each episode: seeds in a row, and with --compare each seed by both checkpoints."""
    from gymnasium_solver.media.inspect import Ask, Branch, Studio
    from gymnasium_solver.training.score import pick_seed

    ask = Ask(
        args.checkpoint,
        seed=args.wanted_seed(),
        greedy=args.wants_greedy(),
        most_steps=args.max_steps,
        branch=None if branch is None else Branch(*branch),
        env_kwargs=args.env_overrides(),
        trust=args.trust,
    )
    studio, asks = Studio(args.root()), [ask]
    with closing(studio):
        if args.episodes > 1 or args.compare:
            scene = studio.scene(ask)
            seed = pick_seed(scene.found.config, scene.run, scene.env_steps, ask.seed)
            asks = [replace(ask, seed=seed + i) for i in range(args.episodes)]
            if args.compare:
                other = f"{scene.run.path}/{args.compare.removeprefix('/')}"
                asks = [each for one in asks for each in (one, replace(one, run=other))]
        return [studio.play(one) for one in asks]


def brief(episode: Episode) -> dict[str, Any]:
    return picked(episode, "id status") | picked(episode.facts, FACTS) | episode.result


def _show(args: Args, episodes: list[Episode]) -> int | None:
    worst = worst_first(episodes)[0]
    if args.ui:
        return _open(worst, episodes[-1] if args.compare else None)
    _write_files(args, worst)
    if args.csv == "-":
        return None
    is_pair = bool(args.compare) and len(episodes) == 2
    found = first_difference(*episodes) if is_pair else None
    if args.json:
        told = [{**brief(one), "path": str(one.path), "notable": notable(one)} for one in episodes]
        out.print_json({"episodes": told, **({"difference": found} if is_pair else {})})
        return None
    _print_list(episodes)
    if found is not None:
        at = f"first difference at step {found['step']}: another {found['what']}"
        print("no difference as far as both go" if found["step"] is None else at)
    steps = notable(worst)
    if steps:
        out.show(f"notable steps{f' of the worst, {worst.id}' * (len(episodes) > 1)}:")
    info = worst.info()
    for entry in steps[:SHOWN]:
        t = entry["step"]
        action = info[t].get("action") if t < len(info) else None
        out.show(f"  step {t:>5}  {action or '':<14} {', '.join(entry['why'])}".rstrip())
    if len(steps) > SHOWN:
        out.show(f"  and {len(steps) - SHOWN} more", style=out.GREY)
    out.show(worst.path, style=out.GREY)
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
    for episode in episodes:
        result, parent = episode.result, episode.facts.get("parent")
        text = f"{episode.id}: {episode.status}"
        if result:
            text = f"{episode.id}: return {out.number(result.get('return'), 2)} in "
            text += f"{result.get('steps')} steps, {result.get('ended')}"
        if parent:
            text += f"; branch of {parent.get('episode')} at step {parent.get('step')}"
        out.show(text)
    notes = [one.facts.get(key) for one in episodes for key in ("note", "no_frames")]
    out.show(*dict.fromkeys(filter(None, notes)), style=out.GREY)
