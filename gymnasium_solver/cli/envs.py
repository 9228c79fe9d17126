"""Verbs about environments: `envs`, `envs show`, `baselines` and `roms`."""

import sys
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.text import Text

from gymnasium_solver.cli import format as fmt
from gymnasium_solver.cli.flags import Args, UsageError, verb
from gymnasium_solver.cli.tables import (
    GREY,
    ORANGE,
    make_console,
    plain_table,
    print_json,
    print_pairs,
    print_table,
    tell,
)
from gymnasium_solver.config.find import find_configs
from gymnasium_solver.envs.baselines import Baseline, all_baselines, random_baseline
from gymnasium_solver.envs.catalogue import (
    EnvEntry,
    find_environment,
    list_environments,
    observation_text,
)
from gymnasium_solver.paths import output_file, user_path

if TYPE_CHECKING:
    from gymnasium_solver.config.spec import ActionSpec, ObservationView, Spec

WIDE = 104  # terminal columns that the full table needs
MOST_COMPONENTS, MOST_CONFIGS = 40, 12
PICTURE_COLUMNS, PICTURE_ROWS = 72, 20
NO_FRAME = "not requested"
MOST_CHARACTERS = 36  # of the settings of a baseline; --json has all
MEASURE = "gymnasium_solver.experiments.measure_baselines:measure"


@verb("""
envs: List the environments that have configs; any other id of Gymnasium or EnvPool works too.
`gsolve envs show ID` describes one.

[FILTER]     only environments whose id, suite or description contains this
--json

examples:
  gsolve envs
  gsolve envs mujoco
  gsolve envs --json
  gsolve envs show LunarLander-v3
  gsolve envs show CliffWalking-v1 --frame cliff.png
""")
def envs(args: Args) -> int:
    found = list_environments(args.filter)
    if found or args.json:
        data = [env.to_dict() for env in found]
        tell(args, data, lambda: print_environments(make_console(), found))
    else:
        make_console(stderr=True).print(f"no environment matches '{args.filter}'", markup=False)
    return 0 if found else 1


def print_environments(console: Console, found: list[EnvEntry]) -> None:
    is_wide = console.width >= WIDE
    random = [">random"] * is_wide
    columns = ("=environment", "=observes", "=acts", *random, ">solved", "=engine", "algorithms")
    table = plain_table(*columns)
    for i, (suite, group) in enumerate(groupby(found, key=lambda env: env.suite)):
        entries = list(group)
        if i:
            table.add_row()
        title = Text(suite or "your own", style="bold")
        if entries[0].extra:
            title.append(f"  needs [{entries[0].extra}]", ORANGE)
        table.add_row(title)
        for env in entries:
            spaces = (env.observations, env.actions)
            mean = "-" if env.random is None else f"{env.random:,.4g}"
            # Its configs are found without the module's name too.
            env_id = env.env_id if is_wide else env.env_id.rpartition(":")[2]
            table.add_row(
                Text(f"  {env_id}"),
                *(spaces if is_wide else map(_shorter, spaces)),
                *([mean] if is_wide else []),
                "-" if env.threshold is None else f"{env.threshold:,g}",
                env.engine or "-",
                Text(" ".join(env.algos)),
            )
    print_table(console, table)
    for extra in dict.fromkeys(env.extra for env in found if env.extra):
        command = f'pip install "gymnasium-solver[{extra}]"'
        console.print(Text(f"\n[{extra}] is not installed: {command}", style=ORANGE))
    console.print(f"\ngsolve envs show {found[0].env_id}", style=GREY)


def _shorter(space: str) -> str:
    return space.replace("Discrete", "Disc").removeprefix("uint8 ")


# --- one environment


@verb("""
envs show: Describe one environment: task, actions and observations by name, rewards, engine, what
random actions score, its configs, and a frame.

ID               CartPole-v1, ALE/Pong-v5, my_module:MyEnv-v0
--frame FILE     save a frame as PNG
--no-frame       render no frame, which is quicker
--json

examples:
  gsolve envs show LunarLander-v3
  gsolve envs show Ant-v5 --frame ant.png
  gsolve envs show my_module:MyEnv-v0 --json
""")
def show(args: Args) -> int:
    from gymnasium_solver.envs.sheet import env_facts, render_frame, save_png
    from gymnasium_solver.plugins import see_working_folder

    see_working_folder()
    console, entry = make_console(), find_environment(args.id)
    facts, spec = env_facts(args.id, entry)
    frame, drawn = None, NO_FRAME
    if args.frame or not (args.no_frame or args.json or not console.is_terminal):
        frame, drawn = render_frame(args.id)
    if args.frame and frame is not None:
        save_png(frame, output_file(args.frame, "the frame", create_folder=True))
    if args.json:
        print_json(facts | {"frame": args.frame if frame is not None else None})
    else:
        _print_sheet(console, entry, facts, spec)
        _print_frame(console, frame, drawn, args.frame)
    if args.frame and frame is None:
        print(f"gsolve envs show: no frame: {drawn}", file=sys.stderr)
        return 1
    return 0


def _print_sheet(
    console: Console, entry: EnvEntry | None, facts: dict[str, Any], spec: "Spec"
) -> None:
    env_id, configs = facts["env_id"], facts["configs"]
    console.print(Text.assemble((env_id, "bold"), "  ", (facts.get("suite") or "other", GREY)))
    if entry and entry.description:
        console.print(Text(entry.description))
    if "problem" in facts:
        console.print(Text(facts["problem"], style=ORANGE))
    console.print()
    print_pairs(console, [(label, text) for label, text in _pairs(entry, facts) if text])
    _print_actions(console, spec.action_space)
    observed = spec.observation_space
    if observed.components:
        _print_components(console, "", observed)
    for name, view in observed.variants.items():
        _print_components(console, f"{name}{' (default)' * (name == observed.default)}", view)
    _print_events(console, spec)
    if configs:
        more = len(configs) - MOST_CONFIGS
        tail = f" and {more} more: gsolve list {env_id}" if more > 0 else ""
        console.print()
        print_pairs(console, [("configs", ", ".join(configs[:MOST_CONFIGS]) + tail)])
    target = configs[0] if configs else f"{env_id} --algo-id ppo"
    console.print(Text(f"\ngsolve train {target}", style=GREY))


def _pairs(entry: EnvEntry | None, facts: dict[str, Any]) -> Iterator[tuple[str, str | None]]:
    """(label, text) of the lines below the title; a line without a text is left out."""
    spec = entry.spec if entry else None
    if spec:
        yield "what", spec.description
        yield "goal", spec.goal
    yield "observes", facts.get("observations")
    yield "acts", facts.get("actions")
    limit = facts.get("max_episode_steps")
    ends = f"{limit:,} steps at most" if limit else "no time limit"
    yield "episode", (spec.episode if spec and spec.episode else ends)
    if spec:
        yield "reward", spec.reward_text
        yield "", spec.rewards.note
    yield "return", _returns(entry, facts)
    if "engine_reason" in facts:
        yield "engine", f"{facts['engine']} ({facts['engine_reason']})"
    if spec:
        yield "frames", f"{spec.render_fps:g} a second" if spec.render_fps else None
        for i, (name, text) in enumerate(spec.options.items()):
            yield "" if i else "options", f"{name}: {text}"
        for label, choice in (("modes", spec.modes), ("difficulties", spec.difficulties)):
            yield label, ", ".join(map(str, choice.values)) or None
        yield "note", spec.note
        yield "more", spec.source
        for name, address in spec.links.items():
            yield "", f"{name}: {address}"


def _returns(entry: EnvEntry | None, facts: dict[str, Any]) -> str:
    stated = entry.spec.returns if entry else None
    parts = ["no threshold"]
    if facts.get("threshold") is not None:
        parts = [f"solved at {facts['threshold']:,g}"]
    elif stated and stated.reference is not None:
        source = f" ({stated.reference_source})" if stated.reference_source else ""
        parts = [f"reference {stated.reference:,g}{source}"]
    if baseline := random_baseline(facts["env_id"]):
        spread = f"{fmt.number(baseline.mean)} ± {fmt.number(baseline.std)}"
        parts.append(f"random actions {spread} over {baseline.n} episodes")
    if stated and stated.range:
        low, high = stated.range
        parts.append(f"between {_end(low, '-∞')} and {_end(high, '∞')}")
    return ", ".join(parts)


def _print_actions(console: Console, spec: "ActionSpec") -> None:
    labels = spec.label_list()
    if not labels:
        return
    ranges, unit = ">range" if spec.range else ">", "unit" if spec.unit else ""
    table = plain_table(">  ", "action", ranges, unit, "")
    for i, label in enumerate(labels):
        is_out = spec.valid is not None and i not in spec.valid and label not in spec.valid
        text = f"{spec.description_of(i)}{' (not allowed)' if is_out else ''}"
        span = spec.range[i] if isinstance(spec.range, list) else spec.range
        name = Text(label, style=GREY if is_out else "none")
        table.add_row(f"  {i}", name, _range(span), spec.unit or "", Text(text))
    console.print()
    print_table(console, table)
    if spec.note:
        console.print(Text(f"  {spec.note}", style=GREY))


def _print_components(console: Console, name: str, view: "ObservationView") -> None:
    console.print()
    if not view.components:
        text = view.description or view.note or ""
        console.print(Text(f"  {name}: {observation_text(view)}  {text}".rstrip()))
        return
    table = plain_table(">  ", "observation" + f": {name}" * bool(name), ">range", "unit", "")
    index = 0
    for part in view.components[:MOST_COMPONENTS]:
        places = f"{index}" if part.size == 1 else f"{index}–{index + part.size - 1}"
        span = _range(part.range) or (f"{part.values} values" if part.values else "")
        about = Text(part.description or "")
        table.add_row(f"  {places}", Text(part.name), span, part.unit or "", about)
        index += part.size
    print_table(console, table)
    if (more := len(view.components) - MOST_COMPONENTS) > 0:
        console.print(f"  and {more} more: --json has all", style=GREY)


def _print_events(console: Console, spec: "Spec") -> None:
    table = plain_table("  event", "pays", "")
    for name, value in spec.rewards.events.items():
        table.add_row(Text(f"  {name}"), Text(_end(value, "")), "")
    for part in spec.rewards.components:
        pays = part.sign or "" if part.value is None else _end(part.value, "")
        table.add_row(Text(f"  {part.name}"), Text(pays), Text(part.description or part.note or ""))
    if table.row_count:
        console.print()
        print_table(console, table)


def _print_frame(console: Console, frame: Any, drawn: str, path: str | None) -> None:
    if frame is None:
        if drawn != NO_FRAME:
            console.print(Text(f"no frame: {drawn}", style=GREY))
        return
    if console.is_terminal:
        from gymnasium_solver.media.drawing import HalfBlocks

        console.print()
        console.print(HalfBlocks(frame, min(PICTURE_COLUMNS, console.width), PICTURE_ROWS), end="")
    height, width = frame.shape[:2]
    saved = f", saved as {path}" if path else ""
    console.print(Text(f"{width} × {height} pixels, rendered by {drawn}{saved}", style=GREY))


def _range(value: Any) -> str:
    if value is None:
        return ""
    low, high = value
    if low is None and high is None:
        return "unbounded"
    return f"{_end(low, '-∞')} … {_end(high, '∞')}"


def _end(value: Any, unbounded: str) -> str:
    return unbounded if value is None else value if isinstance(value, str) else f"{value:g}"


# --- what random actions score


@verb("""
baselines: What uniformly random actions score in each environment that has a config. Normalised
scores start there: 0 is random, 1 is solved. --measure plays the episodes again.

[PATTERN]            only environments whose id or suite contains this
--filter PATTERN     the same
--measure            play the episodes now
--episodes N=200     episodes
--seconds S=30       time for each environment, in rounds of 20 episodes
-j, --jobs N=1       processes at once
--seed INT=1         seed of environments and actions
--out FILE           write the measured baselines to this file
--json

examples:
  gsolve baselines
  gsolve baselines mujoco --json
  gsolve baselines cartpole --measure --episodes 200 --out random.json
""")
def baselines(args: Args) -> int:
    if args.out and not args.measure:
        raise UsageError("--out needs --measure")
    pattern, failed = args.pattern or args.filter, 0
    if args.measure:
        records, failed = _measure(args, pattern)
    else:
        wanted = {entry.env_id for entry in find_configs(pattern)}
        records = [b for b in all_baselines() if pattern is None or b.env_id in wanted]
    if records or args.json:
        tell(args, [record.to_dict() for record in records], lambda: _print_baselines(records))
    else:
        make_console(stderr=True).print(f"no baseline matches '{pattern}'", markup=False)
    return 1 if failed or not records else 0


def _measure(args: Args, pattern: str | None) -> tuple[list[Baseline], int]:
    """Play, print each result as it ends, write --out; return the records and the failures."""
    from gymnasium_solver.backends.isolated import run_isolated
    from gymnasium_solver.experiments.measure_baselines import games, write_records

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
    for outcome in run_isolated(MEASURE, items, jobs=args.jobs, timeout_s=timeout_s):
        name = outcome.item["name"]
        if outcome.error:
            failed += not outcome.error.startswith("MissingError")
            said.print(f"{name}: {outcome.error}", markup=False)
            continue
        rows.append(outcome.value)
        mean, n = fmt.number(outcome.value["mean"]), outcome.value["n"]
        said.print(f"{name}: {mean} over {n} episodes", markup=False, style=GREY)
        if args.out:  # after each one: all of them take minutes
            n_stored = write_records(Path(args.out), rows)
    if args.out and rows:
        said.print(f"{args.out} has {n_stored} records", markup=False)
    records = [Baseline(**row) for row in rows]
    return sorted(records, key=lambda record: record.env_id), failed


def _print_baselines(records: list[Baseline]) -> None:
    console = make_console()
    heads = (">random", ">std", ">episodes", ">length", ">solved at", "=engine")
    table = plain_table("~environment", *heads)
    for record in records:
        name = Text(record.env_id)
        if record.settings:
            name.append(f" {_settings_text(record.settings)}", GREY)
        goal = "-" if record.target is None else f"{record.target:,g}"
        goal += "*" if record.target_kind == "reference" else ""
        length = fmt.number(record.length_mean, 1)
        scores = (fmt.number(record.mean), fmt.number(record.std), str(record.n), length)
        table.add_row(name, *scores, goal, record.engine)
    print_table(console, table)
    if any(record.target_kind == "reference" for record in records):
        console.print("* a reference, where no threshold is defined", style=GREY)


def _settings_text(settings: dict[str, Any]) -> str:
    """Settings that differ from the environment's defaults, abbreviated."""
    parts = []
    for name, value in settings.items():
        inner = value if isinstance(value, dict) else {name: value}
        for key, one in inner.items():
            parts.append(f"{key}={f'({len(one)})' if isinstance(one, list | dict) else one}")
    text = ", ".join(parts)
    return text if len(text) <= MOST_CHARACTERS else text[: MOST_CHARACTERS - 1] + "…"


# --- console games


@verb("""
roms: Console games (Retro/<Game>): list those that can be played, import ROMs that you own.

list|import      what to do
[FILTER|DIR]     part of a name; a folder
--all            list: include games whose ROM is missing
--json

examples:
  gsolve roms list
  gsolve roms list mario --all
  gsolve roms import ~/roms

A ROM is recognised by its content, not its name, also inside .zip archives.
Airstriker-Genesis is free and comes with the package.
""")
def roms(args: Args) -> None:
    from gymnasium_solver.envs.suites.retro import import_roms, list_games

    games = list_games()
    if args.action == "list":
        _list_games(args, games)
        return
    if args.dir is None:
        raise UsageError("import needs a folder; as in: gsolve roms import ~/roms")
    new = import_roms(user_path(args.dir))
    nothing = "no new ROM of a game that stable-retro knows"
    tell(args, new, "\n".join(f"imported {game}" for game in new) or nothing)


def _list_games(args: Args, games: dict[str, bool]) -> None:
    pattern = args.dir or ""
    found = {
        game: is_here
        for game, is_here in games.items()
        if pattern.lower() in game.removeprefix("Retro/").lower() and (is_here or args.all)
    }
    more = "" if args.all else "; --all includes games whose ROM is missing"
    lines = [f"{game}{'' if is_here else '   (no ROM)'}" for game, is_here in found.items()]
    text = "\n".join(lines) or f"no game has {pattern!r} in its name{more}"
    tell(args, [{"env_id": game, "has_rom": is_here} for game, is_here in found.items()], text)
