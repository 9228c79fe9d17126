"""The environment in which an agent is watched: with the run's wrappers, and drawn.

    stage = open_stage(find_target("@last", root), n_envs=1, agent=agent)
    stage.env, stage.fps, stage.note

The engine of training is taken if it can draw: the episodes are then those of an evaluation with
the same seed. Otherwise it is another engine's environment of the same id; `note` says so.
"""

import ctypes
import os
import re
import sys
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

import gymnasium
import numpy as np

from gymnasium_solver.algos.agent import Agent
from gymnasium_solver.config.schema import Config
from gymnasium_solver.config.spec import Spec, read_spec
from gymnasium_solver.envs.as_gymnasium import Tap, tap_observations
from gymnasium_solver.envs.engines.gymnasium import GymnasiumEngine
from gymnasium_solver.envs.make import MODES, as_evaluated, env_from_config
from gymnasium_solver.envs.spec import EnvSpec, family_of, registry_entry
from gymnasium_solver.envs.vector import VectorEnv, VectorWrapper
from gymnasium_solver.errors import EnvError, GsolveError, first_line
from gymnasium_solver.media.drawing import rgb
from gymnasium_solver.training.score import check_spaces
from gymnasium_solver.training.targets import Found, env_metadata, frames_per_second

FPS = 30.0  # where nothing says how fast an environment runs
# Frames a second of the consoles; an env step is `frame_skip` of them.
CONSOLE_FPS = {"ALE/": 60.0, "Retro/": 60.0, "VizDoom-": 35.0}
_ENGINES = {
    "envpool": "EnvPool's",
    "vector": "Gymnasium's vectorised",
    "sync": "Gymnasium's",
    "async": "Gymnasium's",
}


class CannotDraw(EnvError):
    """An environment draws no frames here."""


@dataclass(frozen=True)
class Stage:
    env: VectorEnv
    tap: Tap  # has the last observations before the wrappers that map observations
    config: Config
    spec: Spec  # the facts in the config: labels and names
    draws: bool
    fps: float  # env steps per second at the natural speed
    note: str | None = None  # what differs from training
    no_frames: str | None = None  # why nothing is drawn
    trained_on: str | None = None  # the engine of the training; None if the run does not tell

    def frame(self, row: int = 0) -> np.ndarray | None:
        """uint8 (height, width, 3) of one env."""
        frame = self.env.render(row) if self.draws else None
        return None if frame is None else rgb(frame)

    def text(self) -> str | None:
        """The first env as text, where it draws itself so (toy text does)."""
        single = self.single()
        if single is None or "ansi" not in single.metadata.get("render_modes", ()):
            return None
        env = single.unwrapped
        before, env.render_mode = env.render_mode, "ansi"
        try:
            return str(env.render())
        finally:
            env.render_mode = before

    def single(self) -> gymnasium.Env[Any, Any] | None:
        """Gymnasium's own environment beneath everything, where it is stepped as such."""
        env = self.env
        while isinstance(env, VectorWrapper):
            env = env.env
        return env.single_env if isinstance(env, GymnasiumEngine) else None

    def close(self) -> None:
        self.env.close()


def open_stage(
    found: Found,
    n_envs: int = 1,
    *,
    agent: Agent | None = None,
    must_draw: bool = True,
    as_text: bool = False,
) -> Stage:
    """`agent`: what will act there. CannotDraw if no engine draws, unless `must_draw` is false.
    `as_text`: prefer Gymnasium's environment where it draws itself as text."""
    trained_on = None if found.run is None else found.run.meta().get("engine")
    found = replace(found, config=as_evaluated(found.config))
    if as_text:  # not otherwise: looking imports the environment, before MuJoCo's GL is chosen
        twin = env_metadata(twin_id(found.config.env_id))
        with suppress(EnvError):  # where the agent cannot act in it
            if "ansi" in twin.get("render_modes", ()):
                env = _open_env(found, n_envs, agent, "sync")
                return _stage(env, found.config, False, trained_on)
    reasons: list[str] = []
    for mode in _modes(found.config, trained_on):
        try:
            env = _open_env(found, n_envs, agent, mode, draws=True)
        except (GsolveError, ImportError, RuntimeError, OSError) as error:
            reasons.append(first_line(error))
        except Exception as error:  # mujoco.FatalError and others derive from Exception directly
            reasons.append(f"{type(error).__name__}: {first_line(error)}")
        else:
            return _stage(env, found.config, True, trained_on)
    env_id = found.config.env_id
    why = f"{env_id} cannot be drawn: {reasons[0].removeprefix(f'{env_id}: ')}"
    if must_draw:
        raise CannotDraw(why)
    env = _open_env(found, n_envs, agent)
    return _stage(env, found.config, False, trained_on, why)


def plain_stage(config: Config) -> Stage:
    """One environment as in training, which is not drawn."""
    return _stage(env_from_config(config, 1), config, False, None)


def _stage(
    env: VectorEnv,
    config: Config,
    draws: bool,
    trained_on: str | None,
    no_frames: str | None = None,
) -> Stage:
    note = _difference(config.env_id, env.spec, trained_on)
    env, tap = tap_observations(env)
    spec = read_spec(config.spec)
    fps = _fps(config, spec)
    return Stage(env, tap, config, spec, draws, fps, note, no_frames, trained_on)


def _modes(config: Config, trained_on: str | None) -> Iterator[str]:
    """Values of vectorization_mode to try, each once."""
    # The vectorised classes draw all copies for a frame of one; other engines draw one.
    first = {"async": "sync", "vector": "auto"}.get(trained_on or "", trained_on)
    family = family_of(config.env_id)
    allowed = MODES if family is None else family.modes
    own = config.vectorization_mode
    wanted = [first, "sync" if own == "async" else own, "auto", "sync"]
    yield from dict.fromkeys(mode for mode in wanted if mode in allowed)


def _open_env(
    found: Found, n_envs: int, agent: Agent | None, mode: str | None = None, draws: bool = False
) -> VectorEnv:
    """An env in which the agent can act. `draws`: that has drawn a frame; an error otherwise."""
    config = found.config if mode is None else found.config.replace(vectorization_mode=mode)
    if mode == "sync":
        config = config.replace(env_id=twin_id(config.env_id))
    if draws:
        choose_gl()
    env = env_from_config(config, n_envs, "rgb_array" if draws else None)
    try:
        if agent is not None:
            check_spaces(env, agent, found.changed)
        if draws:
            env.reset(0)  # most engines draw only after a reset
            frame = env.render(0)
            if frame is None or frame.ndim not in (2, 3):
                raise EnvError("it draws nothing")
    except BaseException:
        env.close()
        raise
    return env


def twin_id(env_id: str) -> str:
    """Gymnasium's id of a task: its newest version where EnvPool alone has this one (Taxi-v3)."""
    match = re.fullmatch(r"(.+)-v\d+", env_id)
    if match is None or family_of(env_id) is not None or registry_entry(env_id) is not None:
        return env_id
    others = [name for name in gymnasium.registry if re.fullmatch(rf"{match[1]}-v\d+", name)]
    return max(others, key=lambda name: int(name.rpartition("-v")[2]), default=env_id)


def choose_gl() -> None:
    """Choose how MuJoCo draws where there is no display, unless MUJOCO_GL says so."""
    if sys.platform != "linux" or "MUJOCO_GL" in os.environ or has_display():
        return
    for name, library in (("egl", "libEGL.so.1"), ("osmesa", "libOSMesa.so.8")):
        try:
            ctypes.CDLL(library)
        except OSError:
            continue
        os.environ["MUJOCO_GL"] = name
        return


def has_display() -> bool:
    """Whether a window can be opened."""
    if sys.platform != "linux":
        return True
    return bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))


def _difference(env_id: str, spec: EnvSpec, trained_on: str | None) -> str | None:
    """What the user should know where another engine steps the env than in training."""
    now, before = _ENGINES.get(spec.engine), _ENGINES.get(trained_on or "")
    if now is None or before is None or now == before:
        return None if spec.env_id == env_id else f"shown in {now} {spec.env_id}"
    where = f"shown in {now} {spec.env_id}, trained in {before}"
    return f"{where}: the same task in other code, so single episodes differ"


def engine_text(stage: Stage) -> str:
    """Name the engine that steps the environment here, and the one that it was trained in."""
    if stage.note is not None:
        return f"{stage.note[0].upper()}{stage.note[1:]}."
    spec, before = stage.env.spec, stage.trained_on
    now = _ENGINES.get(spec.engine, f"the engine {spec.engine}:")
    if before is None:
        return f"Played in {now} {spec.env_id}; the run does not tell in which engine it trained."
    is_same = before == spec.engine or _ENGINES.get(before) == now
    trained = "as in training" if is_same else f"trained in {before}"
    return f"Played in {now} {spec.env_id}, {trained}."


def _fps(config: Config, spec: Spec) -> float:
    if spec.render_fps:
        return float(spec.render_fps)
    skip = config.frame_skip or 1
    for prefix, fps in CONSOLE_FPS.items():
        if config.env_id.startswith(prefix):
            return fps / skip
    return max(1.0, (frames_per_second(config.env_id) or FPS) / skip)
