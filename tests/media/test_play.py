"""`gsolve play`: a sitting, its window with simulated keys, the terminal view, what is kept."""

import io
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import gymnasium
import numpy as np
import pytest
from rich.console import Console

import gymnasium_solver as gs
from gymnasium_solver.cli import play
from gymnasium_solver.cli.keys import key_names
from gymnasium_solver.cli.main import main
from gymnasium_solver.data.episode_file import read_episodes, write_episodes
from gymnasium_solver.errors import RunError
from gymnasium_solver.media.keys import key_map
from gymnasium_solver.media.panels import PANELS, Layout, layout_file
from gymnasium_solver.media.player import (
    Player,
    PolicyActor,
    RandomActor,
    open_scene,
    trained_agent,
)
from gymnasium_solver.media.session import SPEEDS, Options, Session, episode_of
from gymnasium_solver.media.stage import open_stage
from gymnasium_solver.media.terminal import TerminalView
from gymnasium_solver.runs.run import Run
from gymnasium_solver.training.prepare import build_config, load_config
from gymnasium_solver.training.targets import Found, find_run
from tests.cli.terminal import Terminal
from tests.media.counting import SMALL, SPEC, Counting, counting_config, read_video

pygame = pytest.importorskip("pygame", reason="pygame (the extra `play`) is not installed")

from gymnasium_solver.media.window import Window  # noqa: E402

MakeSession = Callable[..., Session]


@pytest.fixture
def sitting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[MakeSession]:
    """sitting(config_fields={}, space, **options): a session on the counting environment."""
    made = []

    def make(
        fields: dict[str, Any] | None = None, space: Any = Counting.action_space, **options: Any
    ) -> Session:
        monkeypatch.setattr(Counting, "action_space", space)
        stage = open_stage(Found(counting_config(**(fields or {"env_kwargs": {"length": 4}}))))
        made.append(stage)
        actor = RandomActor(stage.env.action_space)
        given = Options(**{"fps": 10, "title": "counting", "folder": tmp_path / "kept", **options})
        return Session(Player(stage, actor, 1), given, 1)

    yield make
    for stage in made:
        stage.close()


@pytest.fixture
def watched(shared_run: Run) -> Iterator[Session]:
    """A trained agent in a session."""
    found = find_run(str(shared_run.path), shared_run.path.parent)
    agent, _ = trained_agent(found)
    stage = open_stage(found, agent=agent)
    player = Player(stage, PolicyActor(agent, greedy=True, explains=True), 1)
    yield Session(player, Options(fps=10, title="counting"), 1)
    stage.close()


# -- a sitting ----------------------------------------------------------------------------------


def test_steps_are_taken_when_they_are_due(sitting: MakeSession) -> None:
    session = sitting(episodes=2)
    assert session.is_due(0.0)
    session.advance(now_s=5.0)
    assert not session.is_due(5.05)
    assert session.is_due(5.11)
    session.control("+")
    session.advance(now_s=6.0)
    assert session.is_due(6.051)
    session.control("p")
    assert not session.is_due(99.0)
    session.is_paused = True
    session.advance()
    assert session.moment.t == 3
    assert session.is_paused


def test_a_sitting_ends_after_its_episodes(sitting: MakeSession) -> None:
    session = sitting(episodes=2)
    while not session.is_over:
        session.advance()
    assert session.returns == [10.0, 10.0]


def test_restart_begins_the_episode_again(sitting: MakeSession) -> None:
    session = sitting({})
    first = session.moment.obs.tolist()
    session.advance()
    session.restart()
    assert session.moment.t == 0
    assert session.moment.obs.tolist() == first
    assert session.track.returns == [0.0]


def test_speed_has_ends(sitting: MakeSession) -> None:
    session = sitting()
    for _ in range(20):
        session.control("+")
    assert session.speed == SPEEDS[-1]
    session.advance(now_s=1.0)
    assert session.is_due(1.0)
    for _ in range(20):
        session.control("-")
    assert session.speed == SPEEDS[0]


# -- what is kept -------------------------------------------------------------------------------


def test_everything_played_is_recorded(sitting: MakeSession, tmp_path: Path) -> None:
    files = (tmp_path / "demo.npz", tmp_path / "demo.gif")
    session = sitting(episodes=2, record=files, mode="user")
    while not session.is_over:
        session.advance(np.array(0 if session.moment.t == 2 else 1))
    assert session.close() == [files[1], files[0]]
    episodes = list(read_episodes(files[0]))
    assert len(episodes) == 2
    one = episodes[0]
    assert one.observations[:, 0].tolist() == [0, 1, 2, 3, 4]
    assert one.actions.tolist() == [1, 1, 0, 1]
    assert one.rewards.tolist() == [1, 2, 3, 4]
    assert one.terminations.tolist() == [False, False, False, True]
    assert not one.truncations.any()
    assert one.meta["mode"] == "user"
    assert one.meta["total_steps"] == 8
    assert files[1].stat().st_size > 1000
    with np.load(files[0], allow_pickle=False) as raw:  # anyone can read it
        assert raw["episode_1/rewards"].tolist() == [1, 2, 3, 4]
    session = sitting(record=files[:1])  # an unfinished episode is kept as far as it went
    session.advance()
    session.advance()
    session.quit()
    session.close()
    [one] = read_episodes(files[0])
    assert one.rewards.tolist() == [1, 2]
    assert not one.terminations.any()


def test_the_running_episode_is_saved_on_request(sitting: MakeSession) -> None:
    session = sitting()
    assert session.save() == []
    assert session.message == "no step yet"
    for _ in range(3):
        session.advance()
    data, film = session.save()
    [one] = read_episodes(data)
    assert one.rewards.tolist() == [1, 2, 3]
    assert film.stat().st_size > 500
    if film.suffix == ".mp4":
        assert len(read_video(film)[1]) == 4
    session.advance()
    [one] = read_episodes(session.save()[0])
    assert one.terminations.tolist() == [False, False, False, True]
    assert session.message.startswith("saved GsolveMedia-Counting-v0-trained-seed1-")


def test_observations_in_parts_and_values_are_columns(tmp_path: Path) -> None:
    from gymnasium_solver.media.player import Decision, Moment

    steps = []
    for t in range(3):
        obs = {"a": np.full(2, t), "b": np.int64(t)}
        decision = Decision(np.zeros(1), value=float(t))
        last = t == 2
        moment = Moment(0, t, None, obs, obs, None, reward=t, decision=decision, truncated=last)
        steps.append((moment, None if last else np.array([0.5, t])))
    write_episodes(tmp_path / "d.npz", [episode_of(steps)], {"env_id": "x"})
    [one] = read_episodes(tmp_path / "d.npz")
    assert one.observations["a"].tolist() == [[0, 0], [1, 1], [2, 2]]
    assert one.observations["b"].tolist() == [0, 1, 2]
    assert one.actions.tolist() == [[0.5, 0], [0.5, 1]]
    assert one.truncations.tolist() == [False, True]
    assert one.values is not None
    assert one.values.tolist() == [0, 1]


def test_other_files_are_refused(tmp_path: Path) -> None:
    (tmp_path / "a.npz").write_bytes(b"nothing of the kind")
    with pytest.raises(RunError, match=r"a\.npz is not a file of episodes"):
        list(read_episodes(tmp_path / "a.npz"))
    with pytest.raises(RunError, match="no step was played"):
        write_episodes(tmp_path / "b.npz", [], {})


# -- the window ---------------------------------------------------------------------------------


def user_window(session: Session) -> Window:
    return Window(session, key_map(session.stage, session.names))


def press(*names: str, up: bool = True) -> None:
    """A person's key presses."""
    for name in names:
        code = pygame.key.key_code(name)
        pygame.event.post(pygame.event.Event(pygame.KEYDOWN, key=code))
        if up:
            pygame.event.post(pygame.event.Event(pygame.KEYUP, key=code))


def test_keys_control_what_is_watched(sitting: MakeSession, tmp_path: Path) -> None:
    session = sitting()
    window = Window(session)

    def after(now_s: float, *keys: str) -> tuple[int, bool, float]:
        press(*keys)
        window.tick(now_s)
        return session.moment.t, session.is_paused, session.speed

    assert after(0.0) == (1, False, 1.0)
    assert after(1.0, "p") == (1, True, 1.0)
    assert after(1.1, "n", "n") == (3, True, 1.0)
    assert after(1.2, "=") == (3, True, 2.0)
    after(1.3, "s")
    assert len(list((tmp_path / "kept").iterdir())) == 2
    assert after(1.4, "r") == (0, True, 2.0)
    assert after(1.5, "space") == (1, False, 2.0)
    after(1.6, "escape")
    assert session.is_over


def test_a_person_plays_with_several_keys_at_once(sitting: MakeSession) -> None:
    labels = ["noop", "fire", "right", "right_fire"]
    fields = {"env_kwargs": {"length": 9}, "spec": {**SPEC, "action_space": {"labels": labels}}}
    four = gymnasium.spaces.Discrete(4)
    session = sitting(fields, space=four, mode="user")
    window = user_window(session)
    taken = []

    def tick(now_s: float) -> None:
        window.tick(now_s)
        taken.append(labels[int(session.last_action)] if session.last_action is not None else None)

    tick(0.0)
    press("right", up=False)
    tick(1.0)
    press("space", up=False)
    tick(2.0)
    pygame.event.post(pygame.event.Event(pygame.KEYUP, key=pygame.K_RIGHT))
    tick(3.0)
    pygame.event.post(pygame.event.Event(pygame.KEYUP, key=pygame.K_SPACE))
    tick(4.0)
    press("right")  # tapped between two steps: it counts once
    tick(5.0)
    tick(6.0)
    assert taken == ["noop", "right", "right_fire", "fire", "noop", "right", "noop"]


def test_without_an_idle_action_the_game_waits_for_a_key(sitting: MakeSession) -> None:
    session = sitting(mode="user")
    window = user_window(session)
    window.tick(0.0)
    assert session.moment.t == 0
    press("right")
    window.tick(1.0)
    window.tick(2.0)
    assert session.moment.t == 2, "the last action goes on"
    session = sitting(mode="user", waits_for_key=True)
    window = user_window(session)
    press("left")
    for now_s in (0.0, 1.0, 2.0):
        window.tick(now_s)
    assert session.moment.t == 1


def gamepad(x: float = 0.0, y: float = 0.0) -> Any:
    return SimpleNamespace(
        get_numaxes=lambda: 2,
        get_axis=lambda i: (x, y)[i],
        get_numhats=lambda: 0,
        get_numbuttons=lambda: 3,
        get_button=lambda i: False,
    )


def test_a_gamepad_plays_too(sitting: MakeSession) -> None:
    session = sitting(mode="user")
    window = user_window(session)
    window._pads = [gamepad(x=0.9)]
    window.tick(0.0)
    assert session.last_action == 1
    box = gymnasium.spaces.Box(-2, 2, (2,), np.float32)
    session = sitting({"spec": {}}, space=box, mode="user")
    window = user_window(session)
    window._pads = [gamepad(x=0.5, y=-1.0)]  # up is -1
    window.tick(0.0)
    assert session.last_action is not None
    assert session.last_action.tolist() == [1.0, 2.0]


def test_the_window_shows_frame_bars_and_plots(watched: Session) -> None:
    window = Window(watched)
    window.draw()
    before = window.picture
    assert before.shape == (740, 1180, 3)
    watched.advance()
    watched.advance()
    window.draw()
    after = window.picture
    assert _differs(before, after, (20, 480, 20, 640)), "the frame"
    assert _differs(before, after, (560, 690, 20, 320)), "the rewards"
    assert _has(after, (230, 159, 0), (60, 200, 840, 1090)), "the bar of the chosen action"
    assert _has(after, (60, 190, 140), (150, 300, 700, 1090)), "the bars of the observation"
    pygame.event.post(pygame.event.Event(pygame.VIDEORESIZE, w=800, h=600, size=(800, 600)))
    window.tick(0.0)
    assert window.picture.shape == (600, 800, 3)


def click(window: Window, key: str) -> None:
    """A person's click on the word of the toolbar, or into the panel, that does what a key does."""
    (left, top, *_), _ = next(one for one in window.painter.buttons if one[1] == key)
    where = {"button": 1, "pos": (left + 2, top + 2)}
    pygame.event.post(pygame.event.Event(pygame.MOUSEBUTTONDOWN, **where))
    window.tick(0.0)


def test_panels_are_switched_and_the_layout_is_kept(
    watched: Session, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    watched.is_paused = True
    window = Window(watched)
    window.draw()
    green, bars = (60, 190, 140), (150, 300, 700, 1090)
    assert _has(window.picture, green, bars)
    press("f4")
    window.tick(0.0)
    assert not _has(window.picture, green, bars), "no observation"
    click(window, "f2")
    assert "plots" not in window.layout.shown
    click(window, "f9")
    again = Layout.saved()
    assert again.shown == window.layout.shown
    layout_file().write_text('{"shown": 3}')
    assert Layout.saved() == Layout(), "a damaged file counts for nothing"
    window.layout.shown = {"toolbar"}
    window.draw()
    assert window.picture.shape == (740, 1180, 3), "the frame alone"


def test_the_window_looks_into_convolutions(monkeypatch: pytest.MonkeyPatch) -> None:
    small = {**SMALL, "max_epochs": 1, "test_episodes": 1, "n_steps": 8, "batch_size": 8}
    small = {name: value for name, value in small.items() if name != "hidden_dims"}
    cnn = {"env_id": "Probe/Image-v0", "cnn_channels": [4, 4, 4], "cnn_hidden_dims": [8]}
    run = gs.train(build_config({"algo_id": "ppo", **small, **cnn}))
    with open_scene(find_run(run, run.path.parent), must_draw=False) as scene:
        session = Session(scene.player(1, explains=True), Options(30.0, step_by_step=True), 1)
        window = Window(session)
        window.layout.shown |= {"cam", "activations", "filters"}
        window.draw()
        pictures = window.painter.inside.pictures(window.layout)
        assert set(pictures) == {"cam", "activations", "filters"}
        before = window.picture
        click(window, "l")
        assert window.layout.layer == 1
        assert (window.picture != before).any(), "another layer"
        click(window, "m")
        assert window.layout.method == "gradcam++"
        click(window, "f8")
        assert window.layout.palette == "viridis"
    session.moment = replace(session.moment, decision=None)
    assert window.painter.inside.pictures(window.layout) == {}, "the end of an episode"


def _differs(a: np.ndarray, b: np.ndarray, box: tuple[int, int, int, int]) -> bool:
    top, bottom, left, right = box
    return bool((a[top:bottom, left:right] != b[top:bottom, left:right]).any())


def _has(a: np.ndarray, colour: tuple[int, int, int], box: tuple[int, int, int, int]) -> bool:
    top, bottom, left, right = box
    return bool((a[top:bottom, left:right] == colour).all(axis=-1).sum() > 20)


# -- the terminal -------------------------------------------------------------------------------


def screen_of(view: TerminalView) -> str:
    view.console.print(view.screen())
    assert isinstance(view.console.file, io.StringIO)
    return view.console.file.getvalue()


def terminal(width: int = 80, height: int = 24) -> Console:
    options: dict[str, Any] = {"force_terminal": True, "color_system": "truecolor"}
    return Console(file=io.StringIO(), width=width, height=height, _environ={}, **options)


def test_a_frame_in_half_blocks_with_bars_below(watched: Session) -> None:
    view = TerminalView(watched, terminal(), lambda timeout_s: [])
    text = screen_of(view)
    assert "▀" in text
    assert "38;2;250;250;250" not in text  # no bit is set yet
    assert "go_left" in text
    assert "value " in text
    assert len(text.splitlines()) <= 24
    watched.advance()
    assert "38;2;250;250;250" in screen_of(view)


def test_toy_text_is_text(sitting: MakeSession) -> None:
    stage = open_stage(Found(load_config("FrozenLake-v1:ppo")), must_draw=False, as_text=True)
    session = Session(
        Player(stage, RandomActor(stage.env.action_space), 1), Options(fps=4, mode="user"), 1
    )
    keys = key_map(stage, session.names)
    presses = [["right"], ["right"], ["p"], ["x"], ["q"]]
    view = TerminalView(session, terminal(), lambda timeout_s: presses.pop(0), keys)
    assert "FFFH" in screen_of(view)
    assert "right or 2" in screen_of(view)
    view.run()
    assert session.is_over
    assert session.is_paused
    assert session.last_action == 2
    stage.close()


def test_keys_of_a_terminal_have_names() -> None:
    assert key_names(b"a\x1b[C \x1b[A\x1bOD\rQ\x1b[15~") == [
        *("a", "right", "space", "up", "left", "return", "q")
    ]


def test_it_plays_in_a_real_terminal(tmp_path: Path) -> None:
    """Over SSH there is no display: frames, keys, and the terminal is given back."""
    argv = ["play", "Taxi-v3", "--mode", "user", "--text"]
    command = [sys.executable, "-m", "gymnasium_solver", *argv]
    shown = Terminal(command, tmp_path, (90, 30))
    try:
        shown.wait_for("step 0")
        shown.type("\x1b[A")  # the arrow up
        shown.wait_for("step 1   return -1   north")
        shown.type("s")
        shown.wait_for("saved Taxi-v3-user")
        shown.type("q")
        assert shown.end() == 0
        assert "+---------+" in shown.raw
        assert "pick_up" in shown.raw
    finally:
        shown.kill()
    [data] = (tmp_path / "episodes").iterdir()
    [episode] = read_episodes(data)
    assert episode.actions.tolist() == [1]


# -- the verb -----------------------------------------------------------------------------------


def run_play(run: Run, *flags: str) -> int:
    return main(["play", "@last", "--runs-dir", str(run.path.parent), *flags])


def test_without_a_terminal_there_is_a_line_for_each_episode(
    shared_run: Run, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("DISPLAY", raising=False)
    monkeypatch.delenv("WAYLAND_DISPLAY", raising=False)
    assert run_play(shared_run, "--episodes", "2", "--record", "a.npz") == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("episode 1: return ")
    assert lines[1].startswith("episode 2: return ")
    assert lines[2].startswith("2 episodes, mean return ")
    assert lines[3] == "recorded a.npz"
    assert len(list(read_episodes(Path("a.npz")))) == 2
    assert run_play(shared_run, "--mode", "random", "--episodes", "1", "--text") == 0


def test_flags_of_the_reference_choose_panels_and_target(
    shared_run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.setenv("DISPLAY", ":0")
    layouts: list[Layout] = []

    class Shown:
        def __init__(self, session: Session, keys: Any, layout: Layout) -> None:
            layouts.append(layout)
            self.run = session.quit

    monkeypatch.setattr("gymnasium_solver.media.window.Window", Shown)
    old = ["--show-actions", "--show-preprocessing", "--show-gradcam", "--show-cnn-filters"]
    old += ["--no-plot-metrics", "--no-show-obs", "--no-toolbar", "--plot-window-size", "100"]
    where = ["--runs-dir", str(shared_run.path.parent)]
    assert main(["play", "--run-id", "@last", *where, *old]) == 0
    assert layouts[0].shown == {"actions", "network", "cam", "filters"}
    assert layouts[0].plot_steps == 100
    assert main(["play", "@last", *where, "--show", "activations", "--hide", "plots"]) == 0
    assert layouts[1].shown == {"actions", "network", "observations", "activations", "toolbar"}
    assert main(["play", "@last", *where, "--show", "activation"]) == 2
    assert main(["play", "@last", *where, "--config-id", "CartPole-v1:ppo"]) == 2
    assert main(["play", *where]) == 2
    assert set(play.PANEL_NAMES) == set(PANELS)


def test_a_window_opens_where_there_is_a_display(
    shared_run: Run, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("DISPLAY", ":0")  # SDL's dummy driver needs none
    flags = ["--episodes", "1", "--fps", "1000", "--record", "a.gif"]
    monkeypatch.setattr("gymnasium_solver.media.session.REST_S", 0.0)
    assert run_play(shared_run, *flags) == 0
    assert "1 episode, mean return" in capsys.readouterr().out
    assert Path("a.gif").stat().st_size > 1000


def test_a_target_is_a_run_a_config_or_an_environment(shared_run: Run) -> None:
    root = shared_run.path.parent
    assert play.find("@last", root).run is not None
    assert play.find("CartPole-v1", root).config.env_id == "CartPole-v1"
    assert play.find("ALE/Pong-v5", root).config.env_id == "ALE/Pong-v5"
    assert play.find("CartPole-v1:dqn", root).config.algo_id == "dqn"
    assert play.find(f"{shared_run.path}/@best", root).checkpoint is not None
