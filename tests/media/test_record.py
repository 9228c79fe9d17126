"""Videos of episodes: every step is a frame, captions stand below, finished tiles are dim."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from gymnasium_solver.cli.main import main
from gymnasium_solver.media import record as recording
from gymnasium_solver.media.drawing import GAP, caption_height, scale_for
from gymnasium_solver.media.labels import action_names, action_text, features, numbers
from gymnasium_solver.media.player import Player
from gymnasium_solver.media.record import TEXT, TILE_TEXT, Shots, record
from gymnasium_solver.media.stage import Stage, open_stage
from gymnasium_solver.media.video import VideoError
from gymnasium_solver.runs.run import Run
from gymnasium_solver.training.prepare import build_config
from gymnasium_solver.training.targets import Found
from tests.media.counting import count_in, needs_ffmpeg, read_video

MakeStage = Callable[..., Stage]
SCALE = 8  # 45 pixels become 360


def frames_of(path: Path) -> list[np.ndarray]:
    with Image.open(path) as image:
        frames = []
        for index in range(image.n_frames):  # type: ignore[attr-defined]
            image.seek(index)
            frames.append(np.asarray(image.convert("RGB")))
    return frames


def test_every_step_is_a_frame_with_a_caption_below(
    counting_stage: MakeStage, chance: Any, tmp_path: Path
) -> None:
    stage = counting_stage(env_kwargs={"length": 4})
    shots = Shots(episodes=2, title="counting")
    result = record(Player(stage, chance(stage), 1), tmp_path / "a.gif", shots)
    frames = frames_of(tmp_path / "a.gif")
    hold = 10  # half a second at 20 frames a second
    assert result.n_frames == 2 * (4 + hold)
    assert result.returns == [10.0, 10.0]
    assert result.lengths == [4, 4]
    assert result.cut == []
    counts = [count_in(frame, SCALE) for frame in frames]
    assert counts[:5] == [0, 1, 2, 3, 4]  # of the held frames Pillow keeps one
    assert frames[0].shape == (45 * SCALE + caption_height(2, TEXT), 67 * SCALE, 3)
    assert (result.height, result.width) == frames[0].shape[:2]
    captions = [frame[45 * SCALE :].astype(int) for frame in frames[:3]]
    assert captions[0].max() > 200  # there is text
    assert np.abs(captions[0] - captions[1]).max() > 100  # the step is counted


def test_without_overlay_there_is_nothing_but_the_frame(
    counting_stage: MakeStage, chance: Any, tmp_path: Path
) -> None:
    stage = counting_stage()
    shots = Shots(overlay=False, most_steps=2, title="counting")
    result = record(Player(stage, chance(stage), 1), tmp_path / "a.gif", shots, fps=2)
    assert (result.height, result.width) == (45 * SCALE, 67 * SCALE)
    assert (result.n_frames, result.lengths, result.cut) == (3, [2], [0])
    stage = counting_stage(env_kwargs={"length": 9})
    shots = Shots(episodes=3, most_steps=2)  # a cut episode is followed by another one
    result = record(Player(stage, chance(stage), 1), tmp_path / "a.gif", shots, fps=2)
    assert (result.lengths, result.cut) == ([2, 2, 2], [0, 1, 2])


@needs_ffmpeg
def test_a_grid_dims_what_has_finished(
    counting_stage: MakeStage, chance: Any, tmp_path: Path
) -> None:
    stage = counting_stage(n_envs=4)
    shots = Shots(episodes=4, rows=2, columns=2, title="counting")
    result = record(Player(stage, chance(stage), 3), tmp_path / "a.mp4", shots)
    _, frames = read_video(tmp_path / "a.mp4")
    assert len(frames) == result.n_frames
    assert len(set(result.lengths)) > 1, "a seed with episodes of several lengths"
    scale = int(scale_for((45, 67), 640, 480 - caption_height(1, TILE_TEXT)))
    high = 45 * scale + caption_height(1, TILE_TEXT)
    for t, frame in enumerate(frames[: max(result.lengths) + 1]):
        for tile, length in enumerate(result.lengths):
            top = GAP + tile // 2 * (high + GAP)
            left = GAP + tile % 2 * (67 * scale + GAP)
            assert count_in(frame, scale, top, left) == min(t, length)
            ground = frame[top + 10 * scale : top + 40 * scale, left : left + 60 * scale].mean()
            assert ground == pytest.approx(60 if t < length else 21, abs=4)
    assert result.returns == [length * (length + 1) / 2 for length in result.lengths]


def test_a_grid_has_room_for_so_many(counting_stage: MakeStage, chance: Any) -> None:
    stage = counting_stage(n_envs=5)
    with pytest.raises(VideoError, match="a grid of 2 x 2 holds up to 4 episodes, got 5"):
        record(Player(stage, chance(stage), 1), Path("a.gif"), Shots(episodes=5, rows=2, columns=2))


# -- names --------------------------------------------------------------------------------------


def test_names_come_from_the_spec(counting_stage: MakeStage) -> None:
    stage = counting_stage()
    assert action_names(stage) == ["go_left", "go_right"]
    assert action_text(stage, action_names(stage), np.int64(1)) == "go_right"
    assert [(f.name, f.low, f.high) for f in features(stage)] == [
        ("count", 0, 10),
        ("luck", None, None),
    ]
    stage = counting_stage(spec={"action_space": {"labels": ["one"]}})
    assert action_names(stage) == ["action 0", "action 1"]
    assert [f.name for f in features(stage)] == ["obs[0]", "obs[1]"]


@pytest.mark.parametrize(
    ("env_id", "names"),
    [
        ("MiniGrid-Empty-5x5-v0", ["left", "right", "forward", "pickup", "drop", "toggle", "done"]),
        ("Taxi-v3", [f"action {i}" for i in range(6)]),
        ("Pendulum-v1", ["component 0"]),
    ],
)
def test_names_without_a_spec(env_id: str, names: list[str]) -> None:
    stage = open_stage(Found(build_config({"env_id": env_id, "algo_id": "ppo"})), must_draw=False)
    assert action_names(stage) == names
    raw = stage.tap.reset(1)
    named = features(stage)
    assert not named or len(named) == len(numbers(raw[0] if not isinstance(raw, dict) else raw))


# -- gsolve video -------------------------------------------------------------------------------


def video(run: Run, *flags: str) -> int:
    return main(["video", "@last", "--runs-dir", str(run.path.parent), *flags])


def test_the_verb_writes_into_the_run(
    shared_run: Run, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(recording, "ffmpeg_exe", lambda: None)  # also where the extra is installed
    steps = shared_run.meta()["best"]["env_steps"]
    assert video(shared_run, "--max-steps", "2", "--fps", "5") == 0
    assert (shared_run.videos_dir / f"{steps}.webp").is_file()
    said = capsys.readouterr().out
    assert "frames of 536 x" in said
    assert "at 5 a second" in said
    assert "1 cut after 2 steps" in said
    assert video(shared_run, "--grid", "1x2", "--sampled", "--json", "--max-steps", "2") == 0
    assert (shared_run.videos_dir / f"{steps}-grid1x2-sampled.webp").is_file()


def test_the_episodes_of_a_grid_are_those_of_the_test(
    shared_run: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    video(shared_run, "--json", "-o", "a.gif", "--grid", "3x1", "--no-overlay", "--fps", "2")
    shown = json.loads(capsys.readouterr().out)
    main(["eval", "@last", "--json", "--greedy", "--runs-dir", str(shared_run.path.parent)])
    tested = json.loads(capsys.readouterr().out)
    assert sorted(shown["returns"]) == sorted(tested["scores"]["greedy"]["returns"])
    assert shown["seed"] == tested["seed"]


def test_an_environment_can_be_changed(shared_run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    assert video(shared_run, "-o", "a.gif", "--env-kwargs", "length=2", "--fps", "2") == 0
    assert "return 3.00" in capsys.readouterr().out
