"""VizDoom under the contract: `VizDoom-<Scenario>-v0`, by the vizdoom package.

    make_vector_env("VizDoom-Basic-v0", 8)
    make_vector_env("VizDoom-Custom-v0", 8, env_kwargs={"config_path": "maps/my_maze.cfg"})

docs/suites.md explains scenarios and env_kwargs, and why EnvPool's VizDoom is not used (it is also
slower: 930 against 2,800 steps/s of 8 Basic envs on two cores). Each game is a process of its own.
Each episode gets a seed, drawn from its env's generator, so that a trajectory depends on the seed
and the actions alone.
"""

import os
import re
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np

from gymnasium_solver.envs.engines.async_envs import deaf_to_ctrl_c
from gymnasium_solver.envs.spec import EnvRequest, EnvSpec
from gymnasium_solver.envs.suites.buttons import ActionSet, screen_space
from gymnasium_solver.envs.suites.game_options import SCREEN_FIELDS, ScreenOptions
from gymnasium_solver.envs.suites.own import imported, refuse_unknown
from gymnasium_solver.envs.vector import Engine, Info, RawStep, env_seeds
from gymnasium_solver.envs.wrappers.frames import VIZDOOM_GRAY, AreaResize, FrameStack, gray
from gymnasium_solver.errors import EnvError
from gymnasium_solver.paths import temporary_folder
from gymnasium_solver.spaces.observations import Obs
from gymnasium_solver.suggest import did_you_mean

HINT = 'VizDoom is an extra: pip install "gymnasium-solver[vizdoom]"'
SCENARIOS = (
    *("Basic", "DeadlyCorridor", "Deathmatch", "DefendTheCenter", "DefendTheLine", "E1M1"),
    *("HealthGathering", "HealthGatheringSupreme", "MyWayHome", "PredictPosition", "RocketBasic"),
    *("SimplerBasic", "TakeCover"),
)
# The first map of Freedoom, which is free and comes with the package; it looks and plays like
# Doom's.
_E1M1_FILE, _E1M1_SETTINGS = "freedoom1.cfg", {"doom_map": "E1M1"}
_FRAME = (120, 160)  # as the game draws for us: half the steps' time of 240 x 320
_OPTIONS = (*SCREEN_FIELDS, "actions", "config_path", "settings", "pixels_only", "variables")
# In every step's info, in addition to the scenario's own game variables.
_VARIABLES = (
    *("HEALTH", "ARMOR", "AMMO2", "SELECTED_WEAPON_AMMO", "KILLCOUNT", "HITCOUNT", "DAMAGE_TAKEN"),
)
_OPPOSITE = (
    ("MOVE_LEFT", "MOVE_RIGHT"),
    ("TURN_LEFT", "TURN_RIGHT"),
    ("MOVE_FORWARD", "MOVE_BACKWARD"),
    ("SELECT_NEXT_WEAPON", "SELECT_PREV_WEAPON"),
)


class VizDoomEngine(Engine):
    """N games of one scenario, each in its own process, stepped side by side."""

    def __init__(self, request: EnvRequest) -> None:
        refuse_unknown(request, _OPTIONS)
        env_id, n_envs, env_kwargs = request.env_id, request.n_envs, request.env_kwargs
        self._vizdoom = imported("vizdoom", env_id, HINT)
        self._config_path, settings = _scenario(env_id, env_kwargs, self._vizdoom.scenarios_path)
        given, kind = env_kwargs.get("settings", {}), env_kwargs.get("actions", "single")
        if not isinstance(given, Mapping):
            raise EnvError(f"{env_id}: settings must be a block of .cfg lines, got {given!r}.")
        self._settings = settings | {str(key): item for key, item in given.items()}
        self._options = ScreenOptions.read(env_id, env_kwargs)
        self._is_drawn = request.render_mode is not None
        game = self._new_game(env_id)
        self._buttons = game.get_available_buttons()
        names = [button.name for button in self._buttons]
        # A delta button takes a number of degrees or units, not yes or no.
        usable = [name for name in names if not name.endswith("_DELTA")]
        actions = ActionSet.read(env_id, kind, usable, _OPPOSITE)
        self._presses = actions.presses([names.index(name) for name in usable], len(names))
        self.button_names, self.button_table = usable, actions.table  # for reward shapers
        skip = self._options.frame_skip
        limit = request.max_episode_steps or -(-game.get_episode_timeout() // skip) or None
        protocol = self._options.fields | {"actions": kind}
        why = "the vizdoom package, one process a game"
        spec = EnvSpec(env_id, "vizdoom", why, limit, suite="vizdoom", protocol=protocol)
        available = [v.name for v in game.get_available_game_variables()]
        self._seen = self._seen_variables(env_id, env_kwargs, available)
        self._stack = FrameStack(screen_space(self._options, _FRAME), self._options.frame_stack)
        space = self._stack.space
        if self._seen:
            numbers = gymnasium.spaces.Box(-np.inf, np.inf, (len(self._seen),), np.float32)
            space = gymnasium.spaces.Dict({"screen": space, "variables": numbers})
        super().__init__(n_envs, space, actions.space, spec)
        named = dict.fromkeys([*_VARIABLES, *available, *self._seen])
        self._variables = [(name, getattr(self._vizdoom.GameVariable, name)) for name in named]
        self._shrink = AreaResize(_FRAME, self._options.resize_obs or _FRAME)
        self._games: list[Any] = []
        self._pool: ThreadPoolExecutor | None = None
        self._frames = np.zeros((n_envs, 3, *_FRAME), np.uint8)
        self._rngs: list[np.random.Generator] = []

    def _seen_variables(
        self, env_id: str, env_kwargs: Mapping[str, Any], available: list[str]
    ) -> list[str]:
        """The game variables in the observation; none for pixels only."""
        listed = env_kwargs.get("variables")
        pixels_only = env_kwargs.get("pixels_only", listed is None)
        if not isinstance(pixels_only, bool) or (pixels_only and listed is not None):
            raise EnvError(
                f"{env_id}: pixels_only must be true or false, and false where variables are "
                f"listed, got {pixels_only!r}."
            )
        if pixels_only:
            return []
        known = self._vizdoom.GameVariable.__members__
        if not isinstance(listed, list | tuple | None):
            raise EnvError(f"{env_id}: variables must be a list of names, got {listed!r}.")
        for name in listed or ():
            if name not in known:
                hint = did_you_mean(str(name), known) or "VizDoom's GameVariable lists them."
                raise EnvError(f"{env_id}: there is no game variable {name!r}. {hint}")
        if not (listed or available):
            raise EnvError(
                f"{env_id}: its scenario makes no game variables available. List some: "
                "env_kwargs.variables: [HEALTH, AMMO2]."
            )
        return list(listed or available)

    def _new_game(self, env_id: str) -> Any:
        vizdoom = self._vizdoom
        game = vizdoom.DoomGame()
        try:
            game.load_config(str(self._config_path))
            if self._settings and not game.set_config(dict(self._settings)):
                raise ValueError("not all settings are known")
        except Exception as error:  # VizDoom's own exceptions share no base
            raise EnvError(
                f"{env_id}: VizDoom refuses {self._config_path} with settings {self._settings}: "
                f"{error}"
            ) from error
        game.set_window_visible(False)
        game.set_sound_enabled(False)
        game.set_audio_buffer_enabled(False)
        game.set_automap_buffer_enabled(False)
        game.set_mode(vizdoom.Mode.PLAYER)
        game.set_screen_resolution(vizdoom.ScreenResolution.RES_160X120)
        # Colour planes always; gray is computed here. The agent must see the same with and without
        # rendering, and the rounding of the engine's own gray depends on the machine. This costs
        # 0.2 ms of a step of 8 games, which takes 3.5 ms.
        game.set_screen_format(vizdoom.ScreenFormat.CRCGCB)
        return game

    def _start(self) -> None:
        """Start the games: 0.2 s each, at the first reset, so that looking at spaces is free."""
        self._folder = temporary_folder("vizdoom")
        self._pool = ThreadPoolExecutor(max_workers=min(self.n_envs, 2 * (os.cpu_count() or 1)))
        games = [self._new_game(self.spec.env_id) for _ in range(self.n_envs)]
        for index, game in enumerate(games):
            # Its ini file would appear in the working folder; two games must not share one.
            game.set_doom_config_path(f"{self._folder.name}/{index}.ini")
            game.set_episode_timeout(0)  # truncated here, where the last frame is still available
            game.set_seed(0)
        # VizDoom ends the game on Ctrl-C, but the run must save itself first.
        with deaf_to_ctrl_c(), _working_in(Path(self._folder.name)):
            try:
                list(self._pool.map(lambda game: game.init(), games))
            except Exception as error:
                raise EnvError(f"{self.spec.env_id}: a game did not start: {error}") from error
        self._games = games

    def _reset(self, seed: int) -> tuple[Obs, Info]:
        if not self._games:
            self._start()
        self._rngs = [np.random.default_rng(s) for s in env_seeds(seed, self.n_envs)]
        self._each(self._open)
        info = self._info()
        return self._observe(np.ones(self.n_envs, np.bool_), info), info

    def _each(self, work: Any) -> list[Any]:
        """Do work(row) for all rows; the games run while their threads wait."""
        assert self._pool is not None
        try:
            return list(self._pool.map(work, range(self.n_envs)))
        except Exception as error:
            raise EnvError(
                f"{self.spec.env_id}: a game process ended unexpectedly: {error}"
            ) from error

    def _open(self, row: int) -> tuple[float, bool]:
        game = self._games[row]
        game.set_seed(int(self._rngs[row].integers(2**31)))
        game.new_episode()
        self._frames[row] = game.get_state().screen_buffer
        return 0.0, False

    def _step(self, actions: np.ndarray, is_reset: np.ndarray, n_reset: int) -> RawStep:
        presses, skip = self._presses(actions), self._options.frame_skip

        def advance(row: int) -> tuple[float, bool]:
            if is_reset[row]:
                return self._open(row)
            game = self._games[row]
            reward = game.make_action(presses[row], skip)
            state = game.get_state()
            if state is not None:  # an ended game has no frame: the last one is repeated
                self._frames[row] = state.screen_buffer
            return reward, state is None

        rewards, ended = zip(*self._each(advance), strict=True)
        terminated = np.array(ended, np.bool_)
        truncated = np.zeros(self.n_envs, np.bool_)
        if self.spec.max_episode_steps is not None:
            truncated = (self._length + 1 >= self.spec.max_episode_steps) & ~is_reset
        reward, info = np.array(rewards, np.float32), self._info()
        return self._observe(is_reset, info), reward, terminated, truncated, info

    def _observe(self, opened: np.ndarray, info: Info) -> Obs:
        planes = self._frames
        if self._options.grayscale_obs:
            planes = gray(planes, VIZDOOM_GRAY)[:, None]
        screen = self._stack.push(self._shrink(planes), opened)
        if not self._seen:
            return screen
        return {"screen": screen, "variables": np.stack([info[n] for n in self._seen], axis=1)}

    def _info(self) -> Info:
        return {
            name: np.array([game.get_game_variable(v) for game in self._games], np.float32)
            for name, v in self._variables
        }

    def render(self, env_index: int = 0) -> np.ndarray | None:
        if not self._is_drawn or not self._games:
            raise EnvError(
                f"{self.spec.env_id}: render() needs render_mode='rgb_array' and a reset first."
            )
        frame = np.moveaxis(self._frames[env_index], 0, -1)
        return frame.repeat(3, axis=0).repeat(3, axis=1)

    def close(self) -> None:
        for game in self._games:
            game.close()
        if self._pool is not None:
            self._pool.shutdown()
            self._folder.cleanup()
        self._games, self._pool = [], None
        super().close()


@contextmanager
def _working_in(folder: Path) -> Iterator[None]:
    """Work in another folder for a moment. Games make a folder `_vizdoom` where they start, and of
    two that start at once one may die of it: it must be there already, and not the user's."""
    (folder / "_vizdoom").mkdir()
    before = Path.cwd()
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(before)


def _scenario(
    env_id: str, env_kwargs: Mapping[str, Any], shipped: str
) -> tuple[Path, dict[str, Any]]:
    """The .cfg file that an id and its env_kwargs stand for, and settings that go with it."""
    named = re.fullmatch(r"VizDoom-(\w+)-v\d+", env_id)
    if named is None:
        raise EnvError(f"Unknown environment {env_id!r}. VizDoom ids are VizDoom-<Scenario>-v0.")
    own = os.environ.get("VIZDOOM_SCENARIOS_DIR")
    given, name = env_kwargs.get("config_path"), named[1]
    snake = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()
    files = [f"{snake}.cfg", f"{name}.cfg"] if given is None else [str(given)]
    places = [Path(file) for file in files if given is not None]
    places += [Path(own) / file for file in files if own]
    for path in places:
        if path.is_file():
            return path.resolve(), {}
    if given is not None:
        raise EnvError(f"{env_id}: there is no file {given} (config_path).")
    if name == "E1M1":
        return Path(shipped) / _E1M1_FILE, dict(_E1M1_SETTINGS)
    if name in SCENARIOS:
        return Path(shipped) / f"{snake}.cfg", {}
    where = f"{own} has no {snake}.cfg" if own else "VIZDOOM_SCENARIOS_DIR is not set"
    raise EnvError(
        f"{env_id}: there is no scenario {name!r}. The package has {', '.join(SCENARIOS)}; for one "
        f"of your own give config_path in env_kwargs, or its folder ({where})."
    )
