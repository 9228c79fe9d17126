"""Console games under the contract: `Retro/<Game>`, by stable-retro.

    make_vector_env("Retro/Airstriker-Genesis", 4)
    make_vector_env("Retro/SuperMarioBros-Nes", 8, env_kwargs={"state": "Level1-2"})

A process can hold one emulator only, so each env has its own process. docs/suites.md has the
env_kwargs; of the buttons START, SELECT and MODE are left out unless `actions` lists them.
"""

import zipfile
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
from gymnasium.vector import AsyncVectorEnv, AutoresetMode

from gymnasium_solver.envs.engines.async_envs import deaf_to_ctrl_c
from gymnasium_solver.envs.spec import EnvRequest, EnvSpec
from gymnasium_solver.envs.suites.buttons import ActionSet, screen_space
from gymnasium_solver.envs.suites.game_options import SCREEN_FIELDS, ScreenOptions
from gymnasium_solver.envs.suites.own import imported, refuse_unknown
from gymnasium_solver.envs.vector import Engine, Info, RawStep, env_seeds
from gymnasium_solver.envs.wrappers.frames import AreaResize, FrameStack, gray
from gymnasium_solver.errors import EnvError, MissingError
from gymnasium_solver.paths import is_file, is_folder, temporary_folder
from gymnasium_solver.suggest import ask, nearest

HINT = 'console games are an extra, for Linux on x86_64: pip install "gymnasium-solver[retro]"'
PREFIX = "Retro/"
_OPTIONS = (*SCREEN_FIELDS, "actions", "state", "scenario")
_OPPOSITE = (("LEFT", "RIGHT"), ("UP", "DOWN"))
_MENU = ("START", "SELECT", "MODE")


def import_retro(asked_by: str = "") -> Any:
    """stable-retro, or EnvError with what to install. `asked_by`: the environment."""
    return imported("stable_retro", asked_by, HINT)


def find_game(env_id: str) -> str:
    """stable-retro's name of a game, whose ROM is there; EnvError otherwise."""
    data = import_retro(env_id).data
    name = env_id.removeprefix(PREFIX)
    games = data.list_games(data.Integrations.ALL)
    game = next((g for g in (name, f"{name}-v0") if g in games), None)
    if game is None:
        near = [PREFIX + g for g in nearest(name, games, cutoff=0.5)]
        hint = ask(near) or "gsolve roms list --all has them."
        raise EnvError(f"Unknown environment {env_id!r}: stable-retro has no such game. {hint}")
    if not has_rom(data, game):
        raise MissingError(
            f"{env_id}: its ROM is not here. If you own it: gsolve roms import FOLDER (a ROM is "
            "known by its content, not its name)."
        )
    return game


def has_rom(data: Any, game: str) -> bool:
    try:
        data.get_romfile_path(game, data.Integrations.ALL)
    except FileNotFoundError:
        return False
    return True


def list_games() -> dict[str, bool]:
    """The ids of all games that stable-retro knows -> whether the ROM is installed."""
    data = import_retro().data
    games = data.list_games(data.Integrations.ALL)
    return {f"{PREFIX}{game}": has_rom(data, game) for game in games}


def import_roms(folder: Path) -> list[str]:
    """Copy the ROMs under a folder (or one file) to where stable-retro looks for them; return the
    ids of the games that can be played now and could not before."""
    if not (is_folder(folder) or is_file(folder)):
        raise EnvError(f"{folder} does not exist")
    before = list_games()
    with temporary_folder("roms") as unpacked:
        files = [folder] if folder.is_file() else [p for p in folder.rglob("*") if p.is_file()]
        for number, archive in enumerate([p for p in files if p.suffix.lower() == ".zip"]):
            try:
                with zipfile.ZipFile(archive) as content:
                    content.extractall(Path(unpacked) / str(number))
            except (zipfile.BadZipFile, OSError, RuntimeError):  # RuntimeError: has a password
                continue
        files += [p for p in Path(unpacked).rglob("*") if p.is_file()]
        try:
            import_retro().data.merge(*map(str, files), quiet=True)
        except PermissionError as error:
            raise EnvError(f"the package's folder cannot be written to: {error}") from error
    return sorted(game for game, is_here in list_games().items() if is_here and not before[game])


class RetroEngine(Engine):
    """N emulators, each in a process of its own."""

    def __init__(self, request: EnvRequest) -> None:
        refuse_unknown(request, _OPTIONS)
        env_id, n_envs, env_kwargs = request.env_id, request.n_envs, request.env_kwargs
        limit = request.max_episode_steps
        options = ScreenOptions.read(env_id, env_kwargs)
        game = find_game(env_id)
        actions = env_kwargs.get("actions", "single")
        data = import_retro(env_id).data
        listings = {"state": data.list_states, "scenario": data.list_scenarios}
        choice = {key: env_kwargs[key] for key in listings if key in env_kwargs}
        for key, chosen in choice.items():
            known = listings[key](game, data.Integrations.ALL)
            if chosen not in known:
                there_are = f"There are: {', '.join(known) or 'none'}."
                raise EnvError(f"{env_id}: it has no {key} {chosen!r}. {there_are}")
        maker = partial(RetroGame, env_id, game, options, actions, choice, limit)
        with deaf_to_ctrl_c():
            self._vec: Any = AsyncVectorEnv(
                [maker] * n_envs, copy=False, autoreset_mode=AutoresetMode.NEXT_STEP
            )
        protocol = options.fields | {"actions": actions} | choice
        why = "stable-retro, one process a game"
        spec = EnvSpec(env_id, "retro", why, limit, suite="retro", protocol=protocol)
        self._stack = FrameStack(self._vec.single_observation_space, options.frame_stack)
        super().__init__(n_envs, self._stack.space, self._vec.single_action_space, spec)
        self.button_names, self.button_table = self._vec.get_attr("buttons_and_table")[0]
        self._render_mode = request.render_mode

    def _reset(self, seed: int) -> tuple[np.ndarray, Info]:
        frames, info = self._vec.reset(seed=env_seeds(seed, self.n_envs))
        return self._stack.push(frames, np.ones(self.n_envs, np.bool_)), info

    def _step(self, actions: np.ndarray, is_reset: np.ndarray, n_reset: int) -> RawStep:
        frames, reward, terminated, truncated, info = self._vec.step(actions)
        ends = np.array(terminated, np.bool_), np.array(truncated, np.bool_)
        return self._stack.push(frames, is_reset), np.array(reward, np.float32), *ends, info

    def render(self, env_index: int = 0) -> np.ndarray | None:
        if self._render_mode is None:
            raise EnvError(f"{self.spec.env_id}: render() needs render_mode='rgb_array'.")
        frame: np.ndarray = self._vec.render()[env_index]
        return frame

    def close(self) -> None:
        if not self._closed:
            self._vec.close()
        super().close()


class RetroGame(gymnasium.Env[np.ndarray, Any]):
    """One emulator: skips frames, and hands out small ones (C, H, W), not stacked."""

    def __init__(
        self,
        env_id: str,
        game: str,
        options: ScreenOptions,
        actions: Any,
        choice: Mapping[str, str],
        max_episode_steps: int | None,
    ) -> None:
        self.render_mode = "rgb_array"
        self._options, self._limit = options, max_episode_steps
        retro = import_retro(env_id)
        self._game = retro.make(
            game,
            **choice,
            inttype=retro.data.Integrations.ALL,
            render_mode="rgb_array",
            use_restricted_actions=retro.Actions.ALL,
        )
        names = list(self._game.buttons)
        listed = isinstance(actions, list | tuple)
        usable = [n for n in names if n is not None and (listed or n not in _MENU)]
        chosen = ActionSet.read(env_id, actions, usable, _OPPOSITE)
        self._presses = chosen.presses([names.index(n) for n in usable], len(names))
        self.buttons_and_table = (usable, chosen.table)
        self.action_space = chosen.space
        *drawn, _ = self._game.observation_space.shape
        size = options.resize_obs or tuple(drawn)
        self._shrink = AreaResize(tuple(drawn), size)
        self.observation_space = screen_space(options, tuple(drawn))

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        super().reset(seed=seed)
        frame, info = self._game.reset()
        self._steps = 0
        return self._small(frame), info

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        row = np.asarray(action)[None]  # a batch of one
        pressed = np.array(self._presses(row)[0], np.int8)
        total, frame, before = 0.0, None, None
        for _ in range(self._options.frame_skip):
            before = frame
            frame, reward, terminated, truncated, info = self._game.step(pressed)
            total += float(reward)
            if terminated or truncated:
                break
        assert frame is not None
        # Sprites may flicker, drawn in every other frame only.
        seen = frame if before is None else np.maximum(frame, before)
        self._steps += 1
        at_limit = self._limit is not None and self._steps >= self._limit
        return self._small(seen), total, bool(terminated), bool(truncated) or at_limit, info

    def _small(self, frame: np.ndarray) -> np.ndarray:
        planes = np.ascontiguousarray(np.moveaxis(frame, -1, 0))
        return self._shrink(gray(planes)[None] if self._options.grayscale_obs else planes)

    def render(self) -> Any:
        return self._game.get_screen() if hasattr(self._game, "get_screen") else None

    def close(self) -> None:
        self._game.close()
