"""`gsolve play TARGET`: watch an agent, watch random actions, or play yourself.

In a window where there is a display, in the terminal otherwise; without a terminal it prints a line
for each episode.
"""

import re
import sys
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from gymnasium_solver.cli.flags import Args, UsageError, verb
from gymnasium_solver.suggest import did_you_mean

if TYPE_CHECKING:
    from gymnasium_solver.media.keys import KeyMap
    from gymnasium_solver.media.session import Session
    from gymnasium_solver.training.targets import Found

DATA = ".npz"
PANEL_NAMES = (
    "actions", "plots", "network", "observations", "cam", "activations", "filters", "toolbar"
)  # fmt: skip
TURN_BASED = ("toy_text", "minigrid", "bandit", "probe")
"""Suites in which nothing happens until a person has decided."""
PLAIN_EPISODES = 10  # where nobody can quit


@verb("""
play: Watch an agent, watch random actions, or play yourself: in a window, or in the terminal.

[TARGET]         a run (@last, an id), a checkpoint (RUN/@best, RUN/<env_steps>), a config or an
                 environment id
--mode trained|random|user     who acts (default: trained for a run, otherwise user)
--episodes N     stop after N episodes
--grid RxC       a window with rows x columns of episodes, up to 16 tiles
--follow         a run that still trains: play each episode with its newest policy, until it ends
--step-by-step   one step for each press of N, or of a key
--text           in the terminal, without a window
--record FILE    keep what is played: .npz as data (demonstrations), .mp4, .gif or .webp as a video;
                 repeatable
--show PANEL...  panels of the window to switch on: cam, activations and filters look into a network
                 with convolutions; actions, plots, network (what it sees), observations, toolbar
--hide PANEL...  panels to switch off
--plot-window-size N     plot the last N steps (default: the whole episode)
--seed --fps --deterministic --sampled --env-kwargs --trust --runs-dir

examples:
  gsolve play @last
  gsolve play @last --show cam activations filters --hide plots
  gsolve play a1b2/50000 --step-by-step
  gsolve play ALE/Breakout-v5 --mode user --record demo.npz
  gsolve play CartPole-v1:ppo --mode random --text
  gsolve play @last --follow --grid 3x3

Keys: P pause, N step, + and - speed, R restart, S save the episode, Q quit. In the window, F1 to F7
and F10 switch panels, F8 changes colours, F9 keeps the layout.
""")
def play(args: Args) -> None:
    if args.target is None:
        raise UsageError("no target is given: a run, a config or an environment, such as @last")
    panels = _panels(args)
    grid = args.grid_size()
    record = tuple(Path(name) for name in args.record)
    for path in record:
        if path.suffix not in (DATA, ".mp4", ".gif", ".webp"):
            raise UsageError(f"--record {path}: expected a name in {DATA}, .mp4, .gif or .webp")

    from gymnasium_solver.media.stage import has_display
    from gymnasium_solver.training.targets import ENV_FIELDS, with_fields

    changes = args.env_overrides()
    found = with_fields(find(args.target, args.root(), trust=args.trust), changes, ENV_FIELDS)
    place = "terminal" if sys.stdin.isatty() and sys.stdout.isatty() else "plain"
    if not args.text and has_display():
        place = "window"
    if args.follow and (args.mode not in (None, "trained") or found.run is None):
        raise UsageError("--follow shows the newest policy of a run: give a run, such as @last")
    if grid[0]:
        _show_grid(args, found, place, grid)
        return
    mode = args.mode or (
        "trained" if found.checkpoint else "random" if place == "plain" else "user"
    )
    if mode == "user" and place == "plain":
        raise UsageError("--mode user needs a window or a terminal: the input is neither")
    if args.episodes is None and place == "plain":
        args.episodes = PLAIN_EPISODES
    session, keys = _open(args, found, mode, place, record)
    with closing(session.player.stage):
        _show(session, keys, place, (panels, args.plot_window_size))
    written, returns = session.close(), session.returns
    if returns and (place != "plain" or len(returns) > 1):
        mean = sum(returns) / len(returns)
        print(f"{len(returns)} episode{'s' * (len(returns) > 1)}, mean return {mean:.6g}")
    for path in written:
        print(f"recorded {path}")
    if session.stage.note:
        print(session.stage.note)


def _panels(args: Args) -> dict[str, bool]:
    """Panels to switch on or off, by name."""
    asked = {}
    for names, is_on in ((args.show, True), (args.hide, False)):
        for name in names:
            if name not in PANEL_NAMES:
                hint = did_you_mean(name, PANEL_NAMES) or f"Expected {', '.join(PANEL_NAMES)}."
                raise UsageError(f"--{'show' if is_on else 'hide'} {name}: no such panel. {hint}")
            asked[name] = is_on
    return asked


def find(target: str, root: Path, *, trust: bool = False) -> "Found":
    """A run or checkpoint; a config; or an environment id, with the default config for it."""
    from gymnasium_solver.training.prepare import load_config
    from gymnasium_solver.training.targets import Found, find_target

    if re.search(r"-v\d+$", target) and not target.startswith(("@", "/", ".")):
        return Found(load_config(target))
    return find_target(target, root, trust=trust)


def _open(
    args: Args, found: "Found", mode: str, place: str, record: tuple[Path, ...]
) -> "tuple[Session, KeyMap | None]":
    from gymnasium_solver.media.keys import key_map
    from gymnasium_solver.media.labels import action_names
    from gymnasium_solver.media.player import PolicyActor, Scene
    from gymnasium_solver.media.session import Options, Session

    has_agent = mode == "trained" or (mode == "user" and found.checkpoint)
    films = any(path.suffix != DATA for path in record)
    as_text = place == "terminal" and not films
    scene = Scene.open(found, is_random=not has_agent, must_draw=films, as_text=as_text)
    stage = scene.stage
    try:
        player = scene.player(args.wanted_seed(), args.wants_greedy(), explains=place != "plain")
        keys = key_map(stage, action_names(stage)) if mode == "user" else None
        if mode == "user" and keys is None:
            raise UsageError(
                f"--mode user: {found.config.env_id} has the actions {stage.env.action_space}, "
                "which keys cannot give; expected Discrete, MultiBinary or Box"
            )
        where = Path("episodes") if found.run is None else found.run.path / "episodes"
        options = Options(
            fps=args.fps or stage.fps,
            mode=mode,  # type: ignore[arg-type]
            episodes=args.episodes,
            step_by_step=args.step_by_step,
            waits_for_key=args.step_by_step or stage.env.spec.suite in TURN_BASED,
            title=scene.title if mode == "trained" else found.config.env_id,
            folder=where,
            record=record,
        )
        session = Session(player, options, player.seed)
        actor = player.actor
        if args.follow and isinstance(actor, PolicyActor):

            def take_newest(session: "Session") -> None:
                """Before each episode; the session ends after the run has."""
                is_training = scene.is_training
                if scene.refresh() and scene.agent is not None:
                    actor.take_over(scene.agent)
                    session.options = replace(session.options, title=scene.title)
                elif not is_training:
                    session.quit()

            session.before_episode = take_newest
        return session, keys
    except BaseException:
        stage.close()
        raise


def _show_grid(args: Args, found: "Found", place: str, grid: tuple[int, int]) -> None:
    from gymnasium_solver.media.player import Scene
    from gymnasium_solver.media.record import Shots
    from gymnasium_solver.media.window import GridWindow, rounds

    unfit = [flag for flag in ("record", "step_by_step", "text") if getattr(args, flag)]
    if unfit or args.mode == "user":
        flag = unfit[0].replace("_", "-") if unfit else "mode user"
        raise UsageError(f"--grid is a window of several episodes: remove --{flag}")
    if place != "window":
        raise UsageError("--grid needs a display; gsolve video --grid RxC writes a file instead")
    n_tiles = grid[0] * grid[1]
    scene = Scene.open(found, n_tiles, is_random=args.mode == "random" or not found.checkpoint)
    try:
        shots = Shots(n_tiles, *grid, title=scene.title)
        n_rounds = None if args.episodes is None else -(-args.episodes // n_tiles)
        pictures = rounds(
            scene, scene.seed(args.wanted_seed()), shots,
            greedy=args.wants_greedy(), follows=args.follow, n_rounds=n_rounds,
        )  # fmt: skip
        GridWindow(pictures, args.fps or scene.stage.fps, scene.title).run()
    except KeyboardInterrupt:  # as good as Q
        pass
    finally:
        scene.stage.close()


def _show(
    session: "Session", keys: "KeyMap | None", place: str, asked: tuple[dict[str, bool], int | None]
) -> None:
    """`asked`: panels to switch on or off, and the steps in plots."""
    try:
        if place == "window":
            from gymnasium_solver.media.panels import Layout
            from gymnasium_solver.media.window import Window

            layout = Layout.saved()
            panels, layout.plot_steps = asked
            layout.shown |= {name for name, is_on in panels.items() if is_on}
            layout.shown -= {name for name, is_on in panels.items() if not is_on}
            Window(session, keys, layout).run()
        elif place == "terminal":
            from gymnasium_solver.cli.keys import terminal_keys
            from gymnasium_solver.cli.output import make_console
            from gymnasium_solver.media.terminal import TerminalView

            pressed = terminal_keys()
            if pressed is None:
                raise UsageError("the terminal's keys cannot be read here; use a window, or a pipe")
            with closing(pressed):
                TerminalView(session, make_console(), pressed.names, keys).run()
        else:  # one line for each episode, at full speed
            session.on_episode = _print_episode
            session.is_paused = False
            while not session.is_over:
                session.advance()
    except KeyboardInterrupt:  # as good as Q: what was played is kept
        session.quit()


def _print_episode(session: "Session") -> None:
    moment = session.moment
    why = "terminated" if moment.terminated else "time limit"
    text = f"return {moment.episode_return:.6g} in {moment.t:,} steps, {why}"
    print(f"episode {len(session.returns)}: {text}", flush=True)
