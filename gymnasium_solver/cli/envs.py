"""Verbs about environments: `envs`, `envs show`, `baselines` and `roms`."""

import sys
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console, RenderableType
from rich.text import Text

from gymnasium_solver.cli import output as out
from gymnasium_solver.cli.flags import Args, UsageError, verb
from gymnasium_solver.config.env_ids import C_ENV, as_env_id
from gymnasium_solver.config.find import ConfigEntry, find_configs
from gymnasium_solver.envs import catalogue
from gymnasium_solver.envs.baselines import Baseline, all_baselines, random_baseline
from gymnasium_solver.envs.catalogue import EnvEntry
from gymnasium_solver.paths import output_file, user_path

if TYPE_CHECKING:
    from gymnasium_solver.config.spec import ObservationView, Spec

WIDE = 104  # terminal columns that the full table needs
MOST_COMPONENTS, MOST_CONFIGS = 40, 12
PICTURE_COLUMNS, PICTURE_ROWS = 72, 20
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
  gsolve envs show LunarLander-v3
  gsolve envs show CliffWalking-v1 --frame cliff.png
""")
def envs(args: Args) -> int:
    found = catalogue.list_environments(args.filter)
    if not found and not args.json:
        out.complain(f"no environment matches '{args.filter}'")
    elif not out.told_json(args, lambda: [env.to_dict() for env in found]):
        print_environments(out.make_console(), found)
    return 0 if found else 1


def print_environments(console: Console, found: list[EnvEntry]) -> None:
    is_wide = console.width >= WIDE
    random = [">random"] * is_wide
    heads = ("=environment", "=observes", "=acts", *random, ">solved", "=engine", "algorithms")
    table = out.table(*heads)
    for i, (suite, group) in enumerate(groupby(found, key=lambda env: env.suite)):
        entries = list(group)
        if i:
            table.add_row()
        title = Text(suite or "your own", style="bold")
        if entries[0].extra:
            title.append(f"  needs [{entries[0].extra}]", out.ORANGE)
        table.add_row(title)
        for env in entries:
            env_id, spaces = env.env_id, [env.observations, env.actions]
            mean = ["-" if env.random is None else f"{env.random:,.4g}"] * is_wide
            if not is_wide:  # its configs are found without the module's name too
                env_id = env_id if env_id.startswith(C_ENV) else env_id.rpartition(":")[2]
                spaces = [s.replace("Discrete", "Disc").removeprefix("uint8 ") for s in spaces]
            solved = "-" if env.threshold is None else f"{env.threshold:,g}"
            if not is_wide and env.threshold is not None and env.threshold >= 100_000:
                solved = f"{env.threshold / 1000:,.0f}k"
            algos = Text(" ".join(env.algos))
            table.add_row(Text(f"  {env_id}"), *spaces, *mean, solved, env.engine or "-", algos)
    console.print(table)
    for extra in dict.fromkeys(env.extra for env in found if env.extra):
        command = f'pip install "gymnasium-solver[{extra}]"'
        console.print(Text(f"\n[{extra}] is not installed: {command}", style=out.ORANGE))
    console.print(f"\ngsolve envs show {found[0].env_id}", style=out.GREY)


@verb("""
envs show: Describe one environment: task, actions and observations by name, rewards, engine, what
random actions score, its configs, and a frame.

ID               CartPole-v1, ALE/Pong-v5, my_module:MyEnv-v0, my_env.c
--frame FILE     save a frame as PNG
--no-frame       render no frame, which is quicker
--json

examples:
  gsolve envs show LunarLander-v3
  gsolve envs show my_module:MyEnv-v0 --frame mine.png
""")
def show(args: Args) -> int:
    from gymnasium_solver.envs.sheet import env_facts, render_frame, save_png
    from gymnasium_solver.plugins import see_working_folder

    see_working_folder()
    env_id = as_env_id(args.id)
    console, entry = out.make_console(), catalogue.find_environment(env_id)
    facts, spec = env_facts(env_id, entry)
    frame, drawn = None, ""
    if args.frame or not (args.no_frame or args.json or not console.is_terminal):
        frame, drawn = render_frame(env_id)
    if args.frame and frame is not None:
        save_png(frame, output_file(args.frame, "the frame", create_folder=True))
    if not out.told_json(args, facts | {"frame": args.frame if frame is not None else None}):
        for thing in sheet(entry, facts, spec):
            console.print(thing)
        if frame is not None:
            _print_frame(console, frame, drawn, args.frame)
        elif drawn:
            console.print(f"no frame: {drawn}", style=out.GREY)
    if args.frame and frame is None:
        print(f"gsolve envs show: no frame: {drawn}", file=sys.stderr)
        return 1
    return 0


def sheet(entry: EnvEntry | None, facts: dict[str, Any], spec: "Spec") -> Iterator[RenderableType]:
    """What is printed about an environment."""
    env_id, configs = facts["env_id"], facts["configs"]
    yield Text.assemble((env_id, "bold"), "  ", (facts.get("suite") or "other", out.GREY))
    if entry and entry.description:
        yield Text(entry.description)
    if "problem" in facts:
        yield Text(facts["problem"], style=out.ORANGE)
    yield ""
    yield out.pairs((label, text) for label, text in _about(entry, facts) if text)
    yield from _actions(spec)
    yield from _observations(spec)
    events = [(name, _end(value, ""), "") for name, value in spec.rewards.events.items()]
    for part in spec.rewards.components:
        pays = part.sign or "" if part.value is None else _end(part.value, "")
        events.append((part.name, pays, part.description or part.note or ""))
    if events:
        yield ""
        rows = [(Text(f"  {name}"), Text(pays), Text(text)) for name, pays, text in events]
        yield out.table("  event", "pays", "", rows=rows)
    if configs:
        more = len(configs) - MOST_CONFIGS
        tail = f" and {more} more: gsolve list {env_id}" if more > 0 else ""
        yield ""
        yield out.pairs([("configs", ", ".join(configs[:MOST_CONFIGS]) + tail)])
    target = configs[0] if configs else f"{env_id} --algo-id ppo"
    yield Text(f"\ngsolve train {target}", style=out.GREY)


def _about(entry: EnvEntry | None, facts: dict[str, Any]) -> Iterator[tuple[str, str | None]]:
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
    stated, returns = spec.returns if spec else None, ["no threshold"]
    if facts.get("threshold") is not None:
        returns = [f"solved at {facts['threshold']:,g}"]
    elif stated and stated.reference is not None:
        source = f" ({stated.reference_source})" if stated.reference_source else ""
        returns = [f"reference {stated.reference:,g}{source}"]
    if baseline := random_baseline(facts["env_id"]):
        spread = f"{out.number(baseline.mean)} ± {out.number(baseline.std)}"
        returns.append(f"random actions {spread} over {baseline.n} episodes")
    if stated and stated.range:
        low, high = stated.range
        returns.append(f"between {_end(low, '-∞')} and {_end(high, '∞')}")
    yield "return", ", ".join(returns)
    if "engine_reason" in facts:
        yield "engine", f"{facts['engine']} ({facts['engine_reason']})"
    if spec:
        yield "frames", f"{spec.render_fps:g} a second" if spec.render_fps else None
        for i, (name, text) in enumerate(spec.options.items()):
            yield "" if i else "options", f"{name}: {text}"
        yield "modes", ", ".join(map(str, spec.modes.values))
        yield "difficulties", ", ".join(map(str, spec.difficulties.values))
        yield "note", spec.note
        yield "more", spec.source
        for name, address in spec.links.items():
            yield "", f"{name}: {address}"


def _actions(spec: "Spec") -> Iterator[RenderableType]:
    acts = spec.action_space
    if not (labels := acts.label_list()):
        return
    table = out.table(
        ">  ", "action", ">range" if acts.range else ">", "unit" if acts.unit else "", ""
    )
    for i, label in enumerate(labels):
        is_out = acts.valid is not None and i not in acts.valid and label not in acts.valid
        text = f"{acts.description_of(i)}{' (not allowed)' if is_out else ''}"
        span = acts.range[i] if isinstance(acts.range, list) else acts.range
        name = Text(label, style=out.GREY if is_out else "none")
        table.add_row(f"  {i}", name, _range(span), acts.unit or "", Text(text))
    yield from ("", table)
    if acts.note:
        yield Text(f"  {acts.note}", style=out.GREY)


def _observations(spec: "Spec") -> Iterator[RenderableType]:
    observed = spec.observation_space
    views: dict[str, ObservationView] = {"": observed} if observed.components else {}
    for name, view in observed.variants.items():
        views[f"{name}{' (default)' * (name == observed.default)}"] = view
    for name, view in views.items():
        yield ""
        if not view.components:
            text = f"{catalogue.observation_text(view)}  {view.description or view.note or ''}"
            yield Text(f"  {name}: {text}".rstrip())
            continue
        table = out.table(">  ", "observation" + f": {name}" * bool(name), ">range", "unit", "")
        index = 0
        for part in view.components[:MOST_COMPONENTS]:
            places = f"{index}" if part.size == 1 else f"{index}–{index + part.size - 1}"
            span = _range(part.range) or (f"{part.values} values" if part.values else "")
            about = Text(part.description or "")
            table.add_row(f"  {places}", Text(part.name), span, part.unit or "", about)
            index += part.size
        yield table
        if (more := len(view.components) - MOST_COMPONENTS) > 0:
            yield Text(f"  and {more} more: --json has all", style=out.GREY)


def _print_frame(console: Console, frame: Any, drawn: str, path: str | None) -> None:
    if console.is_terminal:
        from gymnasium_solver.media.drawing import HalfBlocks

        console.print()
        console.print(HalfBlocks(frame, min(PICTURE_COLUMNS, console.width), PICTURE_ROWS), end="")
    height, width = frame.shape[:2]
    saved = f", saved as {path}" if path else ""
    console.print(f"{width} × {height} pixels, rendered by {drawn}{saved}", style=out.GREY)


def _range(value: Any) -> str:
    if value is None:
        return ""
    low, high = value
    if low is None and high is None:
        return "unbounded"
    return f"{_end(low, '-∞')} … {_end(high, '∞')}"


def _end(value: Any, unbounded: str) -> str:
    return unbounded if value is None else value if isinstance(value, str) else f"{value:g}"


@verb("""
baselines: What uniformly random actions score in each environment that has a config. Normalised
scores start there: 0 is random, 1 is solved. --measure plays the episodes again. Those of an
environment without a config, or with --env-kwargs, are played now.

[PATTERN]            only environments whose id or suite contains this, or any other id:
                     CartPole-v0, my_module:MyEnv-v0, my_env.c
--env-kwargs KEY=VALUE...     arguments of the environment, if the pattern is its id
--plugins MODULE...  modules that register environments
--measure            play the episodes now
--episodes N=200     episodes
--seconds S=30       time for each environment, in rounds of 20 episodes
-j, --jobs N=1       processes at once
--seed INT=1         seed of environments and actions
--out FILE           write the measured baselines to this file
--json

examples:
  gsolve baselines
  gsolve baselines cartpole --measure --episodes 200 --out random.json
  gsolve baselines MiniGrid-Unlock-v0
  gsolve baselines FrozenLake-v1 --env-kwargs is_slippery=false map_name=8x8
  gsolve baselines MyEnv-v0 --plugins my_module
""")
def baselines(args: Args) -> int:
    pattern, failed = args.pattern, 0
    changes = args.env_overrides() | ({"plugins": args.plugins} if args.plugins else {})
    if changes and pattern is None:
        raise UsageError("--env-kwargs and --plugins need the id of an environment")
    if args.out and not args.measure:
        raise UsageError("--out needs --measure")
    records, found = [], _configs(pattern, exactly=bool(changes))
    if not (args.measure or changes):
        wanted = {entry.env_id for entry in found}
        records = [b for b in all_baselines() if pattern is None or b.env_id in wanted]
        unknown = sorted(wanted - {b.env_id for b in records})
        if records and unknown and pattern is not None:
            out.complain(f"not measured yet: {', '.join(unknown)}; --measure plays them")
    if not records and (pattern is not None or args.measure):
        records, failed = _measure(args, pattern, found, changes)
    code = 1 if failed or not records else 0
    if not records and not args.json:
        return code  # why was said
    if out.told_json(args, records):
        return code
    heads = (">random", ">std", ">episodes", ">length", ">solved at", "=engine")
    table = out.table("~environment", *heads)
    for record in records:
        name = Text(record.env_id)
        if record.settings:
            name.append(f" {_settings_text(record.settings)}", out.GREY)
        goal = "-" if record.target is None else f"{record.target:,g}"
        goal += "*" if record.target_kind == "reference" else ""
        scores = (out.number(record.mean), out.number(record.std), str(record.n))
        table.add_row(name, *scores, out.number(record.length_mean, 1), goal, record.engine)
    out.show(table)
    if any(record.target_kind == "reference" for record in records):
        out.show("* a reference, where no threshold is defined", style=out.GREY)
    return code


def _configs(pattern: str | None, *, exactly: bool) -> list[ConfigEntry]:
    """The configs of an environment, or of all that match. `exactly`: only those of this id."""
    same = [entry for entry in find_configs() if entry.env_id == pattern]
    matches = [] if exactly else find_configs(pattern)
    return matches or same


def _measure(
    args: Args, pattern: str | None, found: list[ConfigEntry], changes: dict[str, Any]
) -> tuple[list[Baseline], int]:
    """Play, print each result as it ends, write --out; return the records and the failures."""
    from gymnasium_solver.backends.isolated import run_isolated
    from gymnasium_solver.experiments.measure_baselines import games, write_records
    from gymnasium_solver.plugins import see_working_folder

    see_working_folder()
    if args.out:
        output_file(args.out, "the baselines", create_folder=True)  # before minutes of work
    said = out.make_console(stderr=True)
    names = list(games(found, changes).values())
    if not names and pattern is not None:
        names = [f"{pattern}:random"]  # any id
    if not names:
        raise UsageError("there are no configs, see gsolve envs")
    job = {"episodes": args.episodes, "seconds": args.seconds, "seed": args.seed}
    job["overrides"] = changes
    rows, failed, n_stored = [], 0, 0
    timeout_s = 20 * args.seconds + 120  # one round is always played to its end
    items = [{"name": name, **job} for name in names]
    for outcome in run_isolated(MEASURE, items, jobs=args.jobs, timeout_s=timeout_s):
        name = outcome.item["name"]
        if outcome.error:
            failed += not outcome.error.startswith("MissingError")
            said.print(f"{name}: {outcome.error}")
            continue
        rows.append(outcome.value)
        mean, n = out.number(outcome.value["mean"]), outcome.value["n"]
        said.print(f"{name}: {mean} over {n} episodes", style=out.GREY)
        if args.out:  # after each one: all of them take minutes
            n_stored = write_records(Path(args.out), rows)
    if args.out and rows:
        said.print(f"{args.out} has {n_stored} records")
    records = [Baseline(**row) for row in rows]
    return sorted(records, key=lambda record: record.env_id), failed


def _settings_text(settings: dict[str, Any]) -> str:
    """Settings that differ from the environment's defaults, abbreviated."""
    parts = []
    for name, value in settings.items():
        inner = value if isinstance(value, dict) else {name: value}
        for key, one in inner.items():
            parts.append(f"{key}={f'({len(one)})' if isinstance(one, list | dict) else one}")
    text = ", ".join(parts)
    return text if len(text) <= MOST_CHARACTERS else text[: MOST_CHARACTERS - 1] + "…"


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

    if args.action == "import":
        if args.dir is None:
            raise UsageError("import needs a folder; as in: gsolve roms import ~/roms")
        new = import_roms(user_path(args.dir))
        nothing = "no new ROM of a game that stable-retro knows"
        out.tell(args, new, "\n".join(f"imported {game}" for game in new) or nothing)
        return
    pattern = args.dir or ""
    found = {
        game: is_here
        for game, is_here in list_games().items()
        if pattern.lower() in game.removeprefix("Retro/").lower() and (is_here or args.all)
    }
    more = "" if args.all else "; --all includes games whose ROM is missing"
    lines = [f"{game}{'' if is_here else '   (no ROM)'}" for game, is_here in found.items()]
    text = "\n".join(lines) or f"no game has {pattern!r} in its name{more}"
    out.tell(args, [{"env_id": game, "has_rom": is_here} for game, is_here in found.items()], text)
