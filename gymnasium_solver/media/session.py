"""One sitting of `gsolve play`: whose turn it is, how fast, and what is kept.

    session = Session(player, Options(fps=30, episodes=3))
    while not session.is_over:
        if session.is_due(now_s):
            session.advance()            # or session.advance(action) of a person
        show(session)

It knows neither a window nor a terminal; both show it and call its controls.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

import numpy as np

from gymnasium_solver.data.episode_file import Episode, write_episodes
from gymnasium_solver.media.drawing import with_caption
from gymnasium_solver.media.keys import KeyMap
from gymnasium_solver.media.labels import Feature, action_names, features
from gymnasium_solver.media.player import Moment, Player
from gymnasium_solver.media.record import enlarged, status_line
from gymnasium_solver.media.video import FrameTape, ffmpeg_exe, open_video
from gymnasium_solver.spaces.observations import obs_arrays, obs_of

Mode = Literal["trained", "random", "user"]
SPEEDS = (0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, float("inf"))
MOST_KEPT = 20_000  # steps of an episode that are kept for saving
REST_S = 1.0  # the end of an episode stays this long
TEXT = 14
SAME_KEYS = {
    "return": "n", "right": "n", "space": "p", "=": "+", "[+]": "+", "[-]": "-", "escape": "q"
}  # fmt: skip


@dataclass(frozen=True)
class Options:
    fps: float  # steps per second at speed 1
    mode: Mode = "trained"
    episodes: int | None = None  # None: until the user quits
    step_by_step: bool = False
    waits_for_key: bool = False  # a person plays, and nothing happens without a key
    title: str = ""
    folder: Path = Path("episodes")  # where saved episodes go
    record: tuple[Path, ...] = ()  # files that get everything that is played: .npz, or a video


@dataclass
class Track:
    """What is plotted of the running episode."""

    rewards: list[float] = field(default_factory=list)
    returns: list[float] = field(default_factory=lambda: [0.0])
    values: list[float | None] = field(default_factory=list)


class Pace:
    """Whether and how fast steps follow each other."""

    def __init__(self, fps: float) -> None:
        self._fps, self.speed = fps, 1.0
        self.is_paused = self.is_over = False
        self.message = ""
        self._next_s = 0.0

    def is_due(self, now_s: float) -> bool:
        """Whether the next step should be taken now."""
        return not self.is_paused and not self.is_over and now_s >= self._next_s

    def wait_s(self, now_s: float) -> float:
        """Seconds until the next step; a tenth while nothing is due."""
        return 0.1 if self.is_paused else min(max(0.0, self._next_s - now_s), 0.1)

    def rest(self, now_s: float, is_last: bool) -> None:
        """A step was taken; `is_last`: it ended an episode, which stays for a while."""
        pause_s = 1.0 / (self._fps * self.speed)
        if is_last:
            pause_s = max(pause_s, REST_S / max(1.0, self.speed))
        self._next_s = now_s + pause_s

    def quit(self) -> None:
        self.is_over = True

    def control(self, key: str) -> None:
        key = SAME_KEYS.get(key, key)
        if key == "q":
            self.quit()
        elif key == "p":
            self.is_paused, self._next_s = not self.is_paused, 0.0
        elif key in ("+", "-"):
            place = SPEEDS.index(self.speed) + (1 if key == "+" else -1)
            self.speed, self._next_s = SPEEDS[min(max(0, place), len(SPEEDS) - 1)], 0.0
            fastest = self.speed == SPEEDS[-1]
            self.message = "as fast as possible" if fastest else f"{self.speed:g}x"


class Session(Pace):
    def __init__(self, player: Player, options: Options, seed: int) -> None:
        super().__init__(options.fps)
        self.player, self.options = player, options
        self.stage = player.stage
        self.names: list[str] = action_names(self.stage)
        self.features: list[Feature] = features(self.stage)
        self.is_paused = options.step_by_step and options.mode != "user"
        self.last_action: np.ndarray | None = None
        self.returns: list[float] = []  # returns of the finished episodes
        self.on_episode: Callable[[Session], None] | None = None
        """Called when an episode has ended."""
        self.before_episode: Callable[[Session], None] | None = None
        """Called before the next episode begins; it may quit."""
        self._seed = seed
        self._meta = {"env_id": self.stage.config.env_id, "seed": seed, "mode": options.mode}
        self._data = [path for path in options.record if path.suffix == ".npz"]
        self._episodes: list[Episode] = []  # finished ones, for `record`
        self._videos = [
            open_video(path, options.fps) for path in options.record if path.suffix != ".npz"
        ]
        self._n_saved = 0
        self._begin()

    # -- state ------------------------------------------------------------------------------

    def _begin(self) -> None:
        self.track = Track()
        self._tape = FrameTape()
        self._steps: list[tuple[Moment, np.ndarray | None]] = []  # of this episode
        self.last_action = None
        self._look()

    def _look(self) -> None:
        """Take in the state that the player is in."""
        self.moment: Moment = self.player.moment()
        decision = self.moment.decision
        self.track.values.append(None if decision is None else decision.value)
        if self.moment.frame is not None and len(self._tape) < MOST_KEPT:
            self._tape.append(self.moment.frame)

    @property
    def status(self) -> str:
        """The line below a frame, with the last action of a person: the next one is not known."""
        moment = self.moment
        if self.options.mode == "user" and moment.decision is not None:
            decision = moment.decision
            if self.last_action is not None:
                decision = replace(decision, action=self.last_action)
            moment = replace(moment, decision=None if self.last_action is None else decision)
        return status_line(self.stage, self.names, moment)

    def advance(self, action: np.ndarray | None = None, now_s: float = 0.0) -> None:
        """Take a step, or open the next episode if this one is over."""
        if self.moment.is_over:
            self._next_episode()
            return
        decided = self.player.decide()[0].action if action is None else action
        self.last_action = np.asarray(decided)
        self._keep(self.last_action)
        self.player.step(None if action is None else np.asarray(action))
        self._look()
        self.track.rewards.append(self.moment.reward)
        self.track.returns.append(self.moment.episode_return)
        self.rest(now_s, self.moment.is_over)
        if self.moment.is_over:
            self._keep(None)
            if self._data:
                self._episodes.append(episode_of(self._steps))
            self.returns.append(self.moment.episode_return)
            if self.on_episode is not None:
                self.on_episode(self)

    def _next_episode(self) -> None:
        if self.options.episodes is not None and len(self.returns) >= self.options.episodes:
            self.is_over = True
        elif self.before_episode is not None:
            self.before_episode(self)
        if not self.is_over:
            self.player.step()
            self._begin()

    def _keep(self, action: np.ndarray | None) -> None:
        if self._data or self.moment.t < MOST_KEPT or action is None:
            self._steps.append((replace(self.moment, frame=None), action))
        if self.moment.frame is not None:
            for video in self._videos:
                video.add(self._captioned(self.moment.frame, self.status))

    def _captioned(self, frame: np.ndarray, line: str) -> np.ndarray:
        return with_caption(enlarged(frame), [self.options.title, line], TEXT)

    # -- controls ---------------------------------------------------------------------------

    def restart(self) -> None:
        """Begin the session's first episode again, or after finished ones another one."""
        self.player.restart(self._seed + len(self.returns))
        self._begin()
        self._next_s = 0.0
        self.message = "restarted"

    def _so_far(self) -> Episode:
        """The running episode, or the one that has just ended."""
        is_whole = self._steps[-1][1] is None
        now = [] if is_whole else [(replace(self.moment, frame=None), None)]
        return episode_of([*self._steps, *now])

    def save(self) -> list[Path]:
        """Save the running episode as data and as video; its files."""
        if not self.moment.t:
            self.message = "no step yet"
            return []
        self._n_saved += 1
        env = self.stage.config.env_id.replace("/", "-").replace(":", "-")
        stem = f"{env}-{self.options.mode}-seed{self._seed}-{self._n_saved}"
        files = [self.options.folder / f"{stem}.npz"]
        write_episodes(files[0], [self._so_far()], self._meta)
        if len(self._tape):
            files.append(self.options.folder / f"{stem}{'.mp4' if ffmpeg_exe() else '.webp'}")
            with open_video(files[1], self.options.fps) as video:
                for t, frame in enumerate(self._tape):
                    line = f"step {t}   return {self.track.returns[t]:.6g}"
                    video.add(self._captioned(frame, line))
        self.message = f"saved {', '.join(path.name for path in files)}"
        return files

    def close(self) -> list[Path]:
        """Complete the files of `record`; those that were written."""
        written = []
        for video in self._videos:
            if video.n_frames:
                video.close()
                written.append(video.path)
            else:
                video.discard()
        is_running = bool(self._steps) and self._steps[-1][1] is not None
        for path in self._data:
            running = [self._so_far()] if is_running else []
            write_episodes(path, [*self._episodes, *running], self._meta)
        self._videos = []
        return [*written, *self._data]


class Controls(ABC):
    """Base of what shows a session and reads keys."""

    def __init__(self, session: Session, keys: KeyMap | None = None) -> None:
        """`keys`: of the person who plays; None if nobody does."""
        self.session, self.keys = session, keys
        self._tapped: set[str] = set()  # pressed since the last step

    @abstractmethod
    def _keys_action(self, keys: KeyMap, now_s: float) -> np.ndarray | None:
        """The action of the keys that are pressed now; None if there is none."""

    def action(self, now_s: float) -> np.ndarray | None:
        """The person's action; None: the actor's."""
        if self.keys is None:
            return None
        action = self._keys_action(self.keys, now_s)
        return self.session.last_action if action is None else action

    def is_due(self, now_s: float) -> bool:
        """Whether the next step should be taken now."""
        if not self.session.is_due(now_s):
            return False
        if self.keys is None or self.session.moment.is_over:
            return True
        if self.session.options.waits_for_key:
            return bool(self._tapped)
        return self.action(now_s) is not None

    def advance(self, now_s: float) -> None:
        self.session.advance(self.action(now_s), now_s)
        self._tapped.clear()

    def control(self, key: str, now_s: float) -> None:
        """Do what a key means that is not one of the player's."""
        session, meant = self.session, SAME_KEYS.get(key, key)
        if meant == "n":
            action = self.action(now_s)
            if self.keys is None or action is not None:
                session.is_paused = True
                session.advance(action, now_s)
                self._tapped.clear()
        elif meant == "r":
            session.restart()
        elif meant == "s":
            session.save()
        else:
            session.control(meant)


def episode_of(steps: Sequence[tuple[Moment, np.ndarray | None]]) -> Episode:
    """The moments of an episode, each with its action, as columns; the last one has no action."""
    states = [moment for moment, _ in steps]
    parts = {
        name: np.stack([dict(obs_arrays(state.obs))[name] for state in states])
        for name, _ in obs_arrays(states[0].obs)
    }
    after = states[1:]
    decisions = [state.decision for state in states[:-1]]
    values = [np.nan if d is None or d.value is None else d.value for d in decisions]
    return Episode(
        observations=obs_of(parts),
        actions=np.stack([np.asarray(action) for _, action in steps[:-1]]),
        rewards=np.array([state.reward for state in after]),
        terminations=np.array([state.terminated for state in after]),
        truncations=np.array([state.truncated for state in after]),
        values=np.array(values) if np.isfinite(values).any() else None,
    )
