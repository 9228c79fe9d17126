"""`gsolve envs show ID`: describe one environment, with a frame. Works without a config too."""

import sys
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from gymnasium_solver.cli import format as fmt
from gymnasium_solver.cli.flags import Parser
from gymnasium_solver.paths import output_file

if TYPE_CHECKING:
    from rich.console import Console

    from gymnasium_solver.config.spec import ActionSpec, ObservationView, Spec
    from gymnasium_solver.envs.catalogue import EnvEntry

MOST_COMPONENTS = 40
HUGE = 1e30  # larger bounds count as unbounded
PICTURE_COLUMNS, PICTURE_ROWS = 72, 20
NO_FRAME = "not requested"


def show(argv: Sequence[str]) -> int:
    parser = Parser(
        "envs show",
        "Describe one environment: task, actions and observations by name, rewards, engine, what\n"
        "random actions score, its configs, and a frame.",
        "examples:\n  gsolve envs show LunarLander-v3\n"
        "  gsolve envs show Ant-v5 --frame ant.png\n  gsolve envs show my_module:MyEnv-v0 --json",
    )
    parser.add_argument("env_id", metavar="ID", help="CartPole-v1, ALE/Pong-v5, my_module:MyEnv-v0")
    parser.add_argument("--frame", metavar="FILE", help="save a frame as PNG")
    parser.add_argument("--no-frame", action="store_true", help="render no frame, which is quicker")
    parser.add_json()
    args = parser.read(argv)

    from gymnasium_solver.cli.frames import render_frame, save_png
    from gymnasium_solver.cli.tables import make_console, print_json
    from gymnasium_solver.envs.catalogue import find_environment
    from gymnasium_solver.plugins import see_working_folder

    see_working_folder()
    entry = find_environment(args.env_id)
    facts = _facts(args.env_id, entry)
    frame, drawn = None, NO_FRAME
    console = make_console()
    if args.frame or not (args.no_frame or args.json or not console.is_terminal):
        frame, drawn = render_frame(args.env_id)
    if args.frame and frame is not None:
        save_png(frame, output_file(args.frame, "the frame", create_folder=True))
    if args.json:
        facts.pop("from_spaces", None)
        print_json(facts | {"frame": args.frame if frame is not None else None})
    else:
        _print_sheet(console, args.env_id, entry, facts)
        _print_frame(console, frame, drawn, args.frame)
    if args.frame and frame is None:
        print(f"gsolve envs show: no frame: {drawn}", file=sys.stderr)
        return 1
    return 0


def _spec_of_spaces(env: Any) -> "Spec":
    """A description from the spaces alone: bounds, generic names."""
    from gymnasium_solver.config.spec import Spec

    blocks = {}
    for name, space in (("observation", env.observation_space), ("action", env.action_space)):
        bounds = getattr(space, "low", None)
        if bounds is None or len(space.shape) != 1:
            continue
        pairs = [
            [float(end) if abs(end) < HUGE else None for end in ends]
            for ends in zip(space.low, space.high, strict=True)
        ]
        names = [f"{name}_{i}" for i in range(len(pairs))]
        if name == "action":
            blocks["action_space"] = {"labels": names, "range": pairs}
        else:
            parts = [{"name": n, "range": pair} for n, pair in zip(names, pairs, strict=True)]
            blocks["observation_space"] = {"components": parts}
    return Spec.model_validate(blocks)


def _facts(env_id: str, entry: "EnvEntry | None") -> dict[str, Any]:
    """Facts from the environment itself, on top of those in its config."""
    from gymnasium_solver.envs.catalogue import space_text
    from gymnasium_solver.envs.make import make_vector_env
    from gymnasium_solver.errors import EnvError

    facts = entry.to_dict() if entry else {"env_id": env_id, "configs": [], "spec": {}}
    try:
        env = make_vector_env(env_id, 2)  # a single env may have another engine
    except EnvError as error:
        if entry is None:
            raise
        return facts | {"problem": str(error)}
    try:
        spec = env.spec
        threshold = facts.get("threshold")
        return facts | {
            "suite": facts.get("suite") or spec.suite,
            "observation_space": str(env.observation_space),
            "action_space": str(env.action_space),
            "observations": space_text(env.observation_space),
            "actions": space_text(env.action_space),
            "threshold": spec.reward_threshold if threshold is None else threshold,
            "max_episode_steps": spec.max_episode_steps,
            "engine": spec.engine,
            "engine_reason": spec.engine_reason,
            "from_spaces": _spec_of_spaces(env),
        }
    finally:
        env.close()


def _print_sheet(
    console: "Console", env_id: str, entry: "EnvEntry | None", facts: dict[str, Any]
) -> None:
    from rich.text import Text

    from gymnasium_solver.cli.colours import ORANGE
    from gymnasium_solver.cli.tables import print_pairs

    suite = facts.get("suite") or "other"
    console.print(Text.assemble((env_id, "bold"), "  ", (suite, "bright_black")))
    if entry and entry.description:
        console.print(Text(entry.description))
    if "problem" in facts:
        console.print(Text(facts["problem"], style=ORANGE))
    console.print()
    print_pairs(console, [(label, text) for label, text in _rows(env_id, entry, facts) if text])
    spec = entry.spec if entry else facts["from_spaces"]
    _print_actions(console, spec.action_space)
    for name, view in _views(spec):
        _print_components(console, name, view)
    _print_events(console, spec)
    if facts["configs"]:
        configs = facts["configs"]
        more = f" and {len(configs) - 12} more: gsolve list {env_id}" if len(configs) > 12 else ""
        console.print()
        print_pairs(console, [("configs", ", ".join(configs[:12]) + more)])
    target = facts["configs"][0] if facts["configs"] else f"{env_id} --algo-id ppo"
    console.print(Text(f"\ngsolve train {target}", style="bright_black"))


def _rows(
    env_id: str, entry: "EnvEntry | None", facts: dict[str, Any]
) -> Iterator[tuple[str, str | None]]:
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
    yield "return", _returns_text(env_id, entry, facts)
    if "engine_reason" in facts:
        yield "engine", f"{facts['engine']} ({facts['engine_reason']})"
    if spec:
        fps = spec.render_fps
        yield "frames", f"{fps:g} a second" if fps else None
        for name, text in spec.options.items():
            yield f"{'options' if name == next(iter(spec.options)) else ''}", f"{name}: {text}"
        for label, choice in (("modes", spec.modes), ("difficulties", spec.difficulties)):
            yield label, ", ".join(map(str, choice.values)) or None
        yield "note", spec.note
        yield "more", spec.source
        for name, address in spec.links.items():
            yield "", f"{name}: {address}"


def _returns_text(env_id: str, entry: "EnvEntry | None", facts: dict[str, Any]) -> str | None:
    from gymnasium_solver.envs.baselines import random_baseline

    parts = []
    if facts.get("threshold") is not None:
        parts.append(f"solved at {facts['threshold']:,g}")
    elif entry and entry.spec.returns.reference is not None:
        source = entry.spec.returns.reference_source
        parts.append(
            f"reference {entry.spec.returns.reference:,g}" + (f" ({source})" if source else "")
        )
    else:
        parts.append("no threshold")
    if baseline := random_baseline(env_id):
        spread = f"{fmt.number(baseline.mean)} ± {fmt.number(baseline.std)}"
        parts.append(f"random actions {spread} over {baseline.n} episodes")
    if entry and entry.spec.returns.range:
        low, high = entry.spec.returns.range
        parts.append(f"between {_end(low, '-∞')} and {_end(high, '∞')}")
    return ", ".join(parts)


def _print_actions(console: "Console", spec: "ActionSpec") -> None:
    from rich.text import Text

    from gymnasium_solver.cli.tables import plain_table, print_table

    labels = spec.label_list()
    if not labels:
        return
    right = {"justify": "right"}
    table = plain_table(("  ", right), "action", ("range" if spec.range else "", right), "unit", "")
    for i, label in enumerate(labels):
        is_out = spec.valid is not None and i not in spec.valid and label not in spec.valid
        text = f"{spec.description_of(i)}{' (not allowed)' if is_out else ''}"
        span = spec.range[i] if isinstance(spec.range, list) else spec.range
        name = Text(label, style="bright_black" if is_out else "none")
        table.add_row(f"  {i}", name, _range(span), spec.unit or "", Text(text))
    if not spec.unit:
        table.columns[3].header = ""
    console.print()
    print_table(console, table)
    if spec.note:
        console.print(Text(f"  {spec.note}", style="bright_black"))


def _views(spec: "Spec") -> Iterator[tuple[str, "ObservationView"]]:
    if spec.observation_space.components:
        yield "", spec.observation_space
    for name, view in spec.observation_space.variants.items():
        yield f"{name}{' (default)' if name == spec.observation_space.default else ''}", view


def _print_components(console: "Console", name: str, view: "ObservationView") -> None:
    from rich.text import Text

    from gymnasium_solver.cli.tables import plain_table, print_table
    from gymnasium_solver.envs.catalogue import observation_text

    console.print()
    if not view.components:
        about = view.description or view.note or ""
        console.print(Text(f"  {name}: {observation_text(view)}  {about}".rstrip()))
        return
    right = {"justify": "right"}
    heading = "observation" + (f": {name}" if name else "")
    table = plain_table(("  ", right), heading, ("range", right), "unit", "")
    index = 0
    for part in view.components[:MOST_COMPONENTS]:
        places = f"{index}" if part.size == 1 else f"{index}–{index + part.size - 1}"
        span = _range(part.range) or (f"{part.values} values" if part.values else "")
        table.add_row(
            f"  {places}", Text(part.name), span, part.unit or "", Text(part.description or "")
        )
        index += part.size
    print_table(console, table)
    if len(view.components) > MOST_COMPONENTS:
        more = len(view.components) - MOST_COMPONENTS
        console.print(f"  and {more} more: --json has all", style="bright_black")


def _print_events(console: "Console", spec: "Spec") -> None:
    from rich.text import Text

    from gymnasium_solver.cli.tables import plain_table, print_table

    rows = [(name, value, "") for name, value in spec.rewards.events.items()]
    rows += [
        (
            part.name,
            part.value if part.value is not None else part.sign or "",
            part.description or part.note or "",
        )
        for part in spec.rewards.components
    ]
    if not rows:
        return
    table = plain_table("  event", "pays", "")
    for name, value, about in rows:
        pays = value if isinstance(value, str) else f"{value:g}"
        table.add_row(Text(f"  {name}"), Text(str(pays)), Text(about))
    console.print()
    print_table(console, table)


def _print_frame(console: "Console", frame: Any, drawn: str, path: str | None) -> None:
    from rich.text import Text

    from gymnasium_solver.media.drawing import HalfBlocks

    if frame is None:
        if drawn != NO_FRAME:
            console.print(Text(f"no frame: {drawn}", style="bright_black"))
        return
    if console.is_terminal:
        console.print()
        console.print(HalfBlocks(frame, min(PICTURE_COLUMNS, console.width), PICTURE_ROWS), end="")
    height, width = frame.shape[:2]
    saved = f", saved as {path}" if path else ""
    console.print(
        Text(f"{width} × {height} pixels, rendered by {drawn}{saved}", style="bright_black")
    )


def _range(value: Any) -> str:
    if value is None:
        return ""
    low, high = value
    if low is None and high is None:
        return "unbounded"
    return f"{_end(low, '-∞')} … {_end(high, '∞')}"


def _end(value: Any, unbounded: str) -> str:
    return unbounded if value is None else value if isinstance(value, str) else f"{value:g}"
