"""Watching a run that still trains: `gsolve play --follow`, its grid, `gsolve train --render`."""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import gymnasium_solver as gs
from gymnasium_solver.cli.main import main
from gymnasium_solver.errors import ConfigError
from gymnasium_solver.media.player import Scene, open_scene
from gymnasium_solver.media.record import Shots
from gymnasium_solver.runs.checkpoint import list_checkpoints
from gymnasium_solver.training import videos
from gymnasium_solver.training.observer import Control
from gymnasium_solver.training.targets import Found, find_run
from gymnasium_solver.training.videos import LiveWindow, check_render, grid_for
from tests.media.counting import counting_config

pygame = pytest.importorskip("pygame", reason="pygame (the extra `play`) is not installed")

from gymnasium_solver.media.window import GridWindow, rounds  # noqa: E402

MakeRun = Callable[..., gs.Run]
TILES = Shots(2, 1, 2, title="counting")


def at_first(run: gs.Run) -> Found:
    """The run with its oldest checkpoint chosen."""
    first = min(c.env_steps for c in list_checkpoints(run.checkpoints_dir))
    return find_run(f"{run.path}/{first}", run.path.parent)


def set_status(run: gs.Run, status: str) -> None:
    meta = json.loads(run.meta_path.read_text())
    run.meta_path.write_text(json.dumps(meta | {"status": status, "pid": os.getpid()}))


def test_the_newest_checkpoint_is_loaded_once(counting_run: MakeRun) -> None:
    run = counting_run(checkpoint_freq_epochs=1, keep_checkpoints=5)
    with open_scene(at_first(run)) as scene:
        before = scene.env_steps
        assert scene.refresh()
        assert scene.env_steps > before
        assert f"{scene.env_steps:,} env steps" in scene.title
        assert not scene.refresh()


def test_a_config_cannot_be_followed() -> None:
    assert main(["play", "CartPole-v1:ppo", "--follow"]) == 2


def test_a_checkpoint_that_cannot_be_read_keeps_the_policy(
    counting_run: MakeRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    def gone(found: Found) -> Any:
        raise FileNotFoundError(found.checkpoint)

    run = counting_run(checkpoint_freq_epochs=1, keep_checkpoints=5)
    with open_scene(at_first(run)) as scene:
        before = scene.agent
        monkeypatch.setattr("gymnasium_solver.media.player.trained_agent", gone)
        assert not scene.refresh()
        assert scene.agent is before


def test_rounds_take_the_newest_policy_and_end_after_the_run(counting_run: MakeRun) -> None:
    run = counting_run(checkpoint_freq_epochs=1, keep_checkpoints=5)
    set_status(run, "running")
    n_rounds = 0
    with open_scene(at_first(run), 2) as scene:
        first = scene.agent
        for _, is_last in rounds(scene, 1, TILES, follows=True):
            n_rounds += is_last
            if is_last and n_rounds == 2:
                assert scene.agent is not first, "the newer checkpoint"
                set_status(run, "finished")
    assert n_rounds == 3, "one more after the end, with the policy it ended with"


def test_the_grid_window_shows_pauses_and_closes() -> None:
    found = Found(counting_config(env_kwargs={"length": 4}))
    scene = Scene.open(found, 2, is_random=True)
    window = GridWindow(rounds(scene, 1, TILES), 10, "counting")
    window.tick(0.0)
    first = window.picture
    window.tick(0.05)
    assert window.picture is first, "not due before a tenth of a second"
    window.tick(0.11)
    assert np.any(window.picture != first)
    window.pace.control("space")
    paused = window.picture
    window.tick(9.0)
    assert window.picture is paused
    window.pace.control("p")
    window.pace.control("+")
    assert window.pace.speed == 2.0
    pygame.event.post(pygame.event.Event(pygame.KEYDOWN, key=pygame.K_q))
    window.tick(10.0)
    assert window.pace.is_over
    pygame.quit()
    scene.stage.close()


def test_a_grid_plays_its_episodes(
    shared_run: gs.Run, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("DISPLAY", ":0")
    words = ["play", str(shared_run.path), "--grid", "1x2", "--episodes", "2", "--fps", "1000"]
    assert main(words) == 0
    monkeypatch.delenv("DISPLAY")
    monkeypatch.delenv("WAYLAND_DISPLAY", raising=False)
    assert main(words) == 2
    assert "--grid needs a display" in capsys.readouterr().err


def test_follow_in_the_terminal_ends_with_the_run(
    shared_run: gs.Run, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["play", str(shared_run.path), "--text", "--follow"]) == 0
    assert capsys.readouterr().out.startswith("episode 1: return")


# -- gsolve train --render ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("n_envs", "tiles"), [(1, (1, 1)), (2, (1, 2)), (8, (2, 4)), (16, (4, 4)), (1024, (4, 4))]
)
def test_each_training_env_has_a_tile(n_envs: int, tiles: tuple[int, int]) -> None:
    assert grid_for(n_envs) == tiles
    for n in range(1, 40):
        rows, columns = grid_for(n)
        assert min(n, 15) <= rows * columns <= 16


class FakeProcess:
    def __init__(self) -> None:
        self.code: int | None = None

    def poll(self) -> int | None:
        return self.code

    def wait(self, timeout: float | None = None) -> int:
        return 0

    def kill(self) -> None:
        self.code = -9


def test_the_window_opens_with_the_first_checkpoint_and_gets_fresh_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[list[str]] = []
    process = FakeProcess()

    def launch(words: list[str], folder: Path) -> FakeProcess:
        started.append(words)
        return process

    monkeypatch.setattr(videos, "FRESH_S", 0.0)
    seen = LiveWindow(launch)
    asked = []
    checkpoint = Control.checkpoint

    def counted(self: Control) -> None:
        asked.append(1)
        checkpoint(self)

    monkeypatch.setattr(Control, "checkpoint", counted)
    run = gs.train(counting_config(max_env_steps=128), runs_dir=tmp_path / "r", observers=[seen])
    assert len(started) == 1
    assert str(run.path.resolve()) in started[0]
    assert {"--follow", "--grid"} <= set(started[0])
    assert len(asked) >= 2
    assert process.code == -9, "closed with the training"


def test_a_window_that_was_closed_is_not_opened_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(videos, "FRESH_S", 0.0)
    started: list[FakeProcess] = []

    def launch(words: list[str], folder: Path) -> FakeProcess:
        started.append(FakeProcess())
        started[-1].code = 0
        return started[-1]

    gs.train(
        counting_config(max_env_steps=256),
        runs_dir=tmp_path / "r",
        observers=[LiveWindow(launch)],
    )
    assert len(started) == 1


def test_rendering_changes_nothing_that_is_learnt(tmp_path: Path) -> None:
    def weights(name: str, **options: Any) -> bytes:
        run = gs.train(counting_config(), runs_dir=tmp_path / name, **options)
        return (run.checkpoints_dir / "last").resolve().joinpath("model.safetensors").read_bytes()

    launch: Any = lambda words, folder: FakeProcess()  # noqa: E731
    assert weights("with", observers=[LiveWindow(launch)]) == weights("without")


def test_where_no_window_can_be_opened_it_says_what_to_do() -> None:
    with pytest.raises(ConfigError, match="--follow --text"):
        check_render(counting_config(), has_display=False)


def test_it_is_for_a_single_run(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", "CartPole-v1:ppo", "--seeds", "2", "--render"]) == 2
    assert "--render shows a single run" in capsys.readouterr().err
