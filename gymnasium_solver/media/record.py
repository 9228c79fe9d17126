"""Records episodes as a video: one after another, or up to 16 at once in a grid.

    result = record_run(find_run("@last/@best", root), Shots(episodes=4, rows=2, columns=2))
    result = record(player, Path("best.mp4"), Shots(episodes=3))

In a grid, each tile is one episode; a finished tile is dimmed until all have finished.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from gymnasium_solver.media.drawing import (
    DIM,
    caption_height,
    fit,
    grid,
    resized,
    scale_for,
    with_caption,
)
from gymnasium_solver.media.inspect import MODEL_LABELS, model_picture
from gymnasium_solver.media.labels import action_names, action_text
from gymnasium_solver.media.player import Decision, Moment, Player, PolicyActor, open_scene
from gymnasium_solver.media.stage import Stage
from gymnasium_solver.media.video import VideoError, ffmpeg_exe, open_video
from gymnasium_solver.training.targets import Found

MOST_TILES = 16
MOST_STEPS = 1000
WIDTH, HEIGHT = 1280, 960  # a video is at most this large
LEAST_HEIGHT = 320  # of a frame: smaller ones are enlarged by a whole number
HOLD_S = 0.5  # the last frame of an episode stays this long
TILE_TEXT, TEXT = 12, 14  # pixels
OPEN_LOOP = " | ".join(MODEL_LABELS)


@dataclass(frozen=True)
class Shots:
    """What to record."""

    episodes: int = 1
    rows: int = 0  # rows of a grid; 0: no grid, one episode after another
    columns: int = 0
    most_steps: int = MOST_STEPS  # steps after which an episode is cut
    overlay: bool = True
    title: str = ""  # first line of the caption
    open_loop: bool = False
    """The agent's image as it is, as its model reconstructs it, and as the model imagines it."""

    @property
    def is_grid(self) -> bool:
        return self.rows > 0

    @property
    def n_envs(self) -> int:
        return self.episodes if self.is_grid else 1


@dataclass
class Recorded:
    path: str
    n_frames: int
    fps: float
    width: int
    height: int
    seed: int
    returns: list[float] = field(default_factory=list)
    """The return of each episode, up to where it was cut."""
    lengths: list[int] = field(default_factory=list)
    cut: list[int] = field(default_factory=list)
    """Numbers of the episodes that had not ended, from 0."""
    engine: str = ""
    note: str | None = None


def record(player: Player, path: Path, shots: Shots, fps: float | None = None) -> Recorded:
    """`player` has `shots.n_envs` environments. `fps`: unless given, the natural speed."""
    stage = player.stage
    most = min(MOST_TILES, shots.rows * shots.columns)
    if shots.is_grid and not 1 <= shots.episodes <= most:
        raise VideoError(
            f"a grid of {shots.rows} x {shots.columns} holds up to {most} episodes, "
            f"got {shots.episodes}."
        )
    assert stage.env.n_envs == shots.n_envs
    fps = fps or stage.fps
    engine, note = stage.env.spec.engine, stage.note
    done = Recorded(str(path), 0, fps, 0, 0, player.seed, engine=engine, note=note)
    frames = grid_frames(player, shots, done) if shots.is_grid else _in_turn(player, shots, done)
    n_hold = max(1, round(HOLD_S * fps))
    with open_video(path, fps) as video:
        for frame, is_last in frames:
            for _ in range(n_hold if is_last else 1):
                video.add(frame)
    assert video.shape is not None
    done.n_frames, done.height, done.width = video.n_frames, video.shape[0], video.shape[1]
    return done


def _note_end(done: Recorded, moment: Moment, episode: int) -> None:
    done.returns.append(moment.episode_return)
    done.lengths.append(moment.t)
    if not moment.is_over:
        done.cut.append(episode)


# -- one after another ------------------------------------------------------------------------


def _in_turn(player: Player, shots: Shots, done: Recorded) -> Iterator[tuple[np.ndarray, bool]]:
    stage, names = player.stage, action_names(player.stage)
    for episode in range(shots.episodes):
        if episode and not player.is_over[0]:  # the one before was cut
            player.restart(done.seed + episode)
        which = f"   episode {episode + 1}/{shots.episodes}" if shots.episodes > 1 else ""
        for moment in player.episode(shots.most_steps):
            is_last = moment.is_over or moment.t >= shots.most_steps
            if is_last:
                _note_end(done, moment, episode)
            if not shots.open_loop:
                picture = enlarged(_frame(moment))
            elif moment.decision is not None:  # the end of an episode has none
                picture = enlarged(_panels(player, moment.decision))
            if shots.overlay:
                lines = [shots.title + which, status_line(stage, names, moment)]
                lines += [OPEN_LOOP] if shots.open_loop else []
                picture = with_caption(picture, lines, TEXT)
            yield picture, is_last


def status_line(stage: Stage, names: list[str], moment: Moment) -> str:
    """Step, return and action in words."""
    line = f"step {moment.t}   return {moment.episode_return:.6g}"
    if moment.is_over:
        return f"{line}   {'terminated' if moment.terminated else 'time limit'}"
    if moment.decision is None:
        return line
    return f"{line}   {action_text(stage, names, moment.decision.action)}"


def enlarged(frame: np.ndarray) -> np.ndarray:
    """A small frame enlarged by a whole number, a huge one shrunk."""
    height, width = frame.shape[:2]
    if height > HEIGHT or width > WIDTH:
        return resized(frame, min(HEIGHT / height, WIDTH / width))
    factor = min(-(-LEAST_HEIGHT // height), WIDTH // width, HEIGHT // height)
    return resized(frame, float(max(1, factor)))


def _panels(player: Player, decision: Decision) -> np.ndarray:
    assert isinstance(player.actor, PolicyActor)
    agent = player.actor.agent
    found = model_picture(agent, decision)
    if found is None:
        raise VideoError(
            "--open-loop needs a model that reconstructs images (dreamerv3 with image "
            f"observations), but {agent.config.algo_id} on {agent.config.env_id} has none."
        )
    return found[0]


def _frame(moment: Moment) -> np.ndarray:
    assert moment.frame is not None, "the stage draws"
    return moment.frame


# -- in a grid --------------------------------------------------------------------------------


def grid_frames(
    player: Player, shots: Shots, done: Recorded | None = None
) -> Iterator[tuple[np.ndarray, bool]]:
    """Pictures of all episodes, each with whether it is the last; `done` takes the results."""
    first = player.stage.frame()
    assert first is not None, "the stage draws"
    size = _tile_size(first.shape, shots)
    last: dict[int, Moment] = {}
    tiles = [np.zeros(0)] * player.n_envs
    ended = [False] * player.n_envs
    while True:
        for row in range(player.n_envs):
            if ended[row]:
                continue
            moment = last[row] = player.moment(row)
            ended[row] = moment.is_over or moment.t >= shots.most_steps
            tiles[row] = _tile(moment, size, shots, is_over=ended[row])
        picture = grid(tiles, shots.rows, shots.columns)
        if shots.overlay and shots.title:
            picture = with_caption(picture, [shots.title], TEXT)
        yield picture, all(ended)
        if all(ended):
            break
        player.step()
    if done is not None:
        for row, moment in last.items():
            _note_end(done, moment, row)


def _tile_size(shape: tuple[int, ...], shots: Shots) -> tuple[int, int]:
    """Width and height of the picture in a tile."""
    text = caption_height(1, TILE_TEXT) if shots.overlay else 0
    width, height = WIDTH / shots.columns, HEIGHT / shots.rows - text
    scale = scale_for(shape, width, height)
    return max(1, math.ceil(shape[1] * scale)), max(1, math.ceil(shape[0] * scale))


def _tile(moment: Moment, size: tuple[int, int], shots: Shots, is_over: bool) -> np.ndarray:
    picture = fit(_frame(moment), *size)
    if is_over:
        picture = (picture * DIM).astype(np.uint8)
    if not shots.overlay:
        return picture
    line = f"{moment.row + 1}   step {moment.t}   return {moment.episode_return:.6g}"
    return with_caption(picture, [line], TILE_TEXT)


# -- a run's checkpoint ------------------------------------------------------------------------


def record_run(
    found: Found,
    shots: Shots,
    *,
    out: Path | None = None,
    seed: int | str = "test",
    fps: float | None = None,
    greedy: bool | None = None,
) -> Recorded:
    """Record a run's checkpoint. `out`: by default a file in the run's videos/. `greedy`: by
    default as in the run's evaluations. `seed`: a number or a stage, as in an evaluation."""
    with open_scene(found, shots.n_envs, must_draw=not shots.open_loop) as scene:
        if out is None:
            assert found.run is not None, "an agent without a run needs a file name"
            name = default_name(scene.env_steps, shots, scene.found.is_greedy(greedy))
            out = found.run.videos_dir / name
        shots = replace(shots, title=scene.title)
        player = scene.player(seed, greedy, explains=shots.open_loop)
        return record(player, out, shots, fps)


def default_name(env_steps: int, shots: Shots, greedy: bool) -> str:
    """The name of a video of a run: WebP where there is no ffmpeg for MP4."""
    grid = f"-grid{shots.rows}x{shots.columns}" if shots.is_grid else ""
    grid += "-open-loop" if shots.open_loop else ""
    sampled = "" if greedy else "-sampled"
    return f"{env_steps}{grid}{sampled}{'.mp4' if ffmpeg_exe() else '.webp'}"
