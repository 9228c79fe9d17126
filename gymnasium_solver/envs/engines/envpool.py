"""EnvPool under the contract: C++ environments on a thread pool, the default engine.

What this adapter corrects (EnvPool 1.2):
- seeds are fixed when a pool is built, and env i gets seed + i: reset(seed) builds a new pool
  (0.5 to 10 ms) with one hashed seed for each env;
- a termination that falls on the time limit is reported as truncated only: the pool gets limit + 1
  and the cut is made here, so that both flags are true, as in Gymnasium;
- the bounds of Box2D observations are broken (low = the smallest positive float);
- Taxi also starts where Gymnasium never does: such starts are drawn again;
- MuJoCo observations and actions are float64: they are float32 here, as all others;
- its Blackjack reports every ace as usable, also one that counts 1, so that two hands look alike
  and the best policy is worse than in Gymnasium: it is refused, and Gymnasium's is used;
- its MuJoCo, 3.6, makes contacts with the spinner of dm_control's Finger tasks 64 times as soft as
  in dm_control: the model is changed so that they are not (`_finger_assets`);
- observations in parts (dm_control, MiniGrid) are a flat dict;
- its masks are called `legal_action_mask` (Play2048; its board games have two players and are
  refused). Its Taxi has no masks, unlike Gymnasium's Taxi-v4: use that for a masked Taxi;
- it is slow to import (1.5 s): it is imported only once it has been chosen.

The pool is stepped through `_send` and `_recv`, the two compiled calls that its Python `step`
makes: 5 to 25 us a step less.
"""

import ctypes
import shutil
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import gymnasium
import numpy as np

from gymnasium_solver.config.cpus import cpu_share
from gymnasium_solver.envs.action_checks import MASK_KEY
from gymnasium_solver.envs.goals import pool_goals
from gymnasium_solver.envs.spec import (
    EnvRequest,
    EnvSpec,
    UnknownId,
    Unsupported,
    registry_entry,
    suite_of,
)
from gymnasium_solver.envs.suites.minigrid import PREFIXES as MINIGRID
from gymnasium_solver.envs.suites.minigrid import encode_missions, minigrid_view
from gymnasium_solver.envs.vector import Engine, Info, RawStep, env_seeds
from gymnasium_solver.envs.wrappers.wrapping import skip_generator
from gymnasium_solver.errors import EnvError, MissingError
from gymnasium_solver.paths import temporary_folder
from gymnasium_solver.spaces import observations
from gymnasium_solver.spaces.observations import GoalFunctions, Obs, Reader
from gymnasium_solver.spaces.space_types import Space, is_box, is_dict

if TYPE_CHECKING:
    from tempfile import TemporaryDirectory

NO_LIMIT, OWN_LIMIT = 2**31 - 1, 0  # OWN_LIMIT: each level of BabyAI has its own
# Keys of an EnvPool config that users cannot set: the contract has its own settings for them.
_RESERVED = {
    *("num_envs", "batch_size", "num_threads", "max_num_players", "thread_affinity_offset"),
    *("seed", "env_seed", "base_path", "gym_reset_return_info"),
    *("max_episode_steps", "reward_threshold"),
}
# Observation bounds of Box2D as Gymnasium's source has them: high, and the columns (ground
# contacts) whose low is 0; elsewhere low = -high.
_LEG = [np.pi, 5.0, np.pi, 5.0, 5.0]
BOX2D_BOUNDS: dict[str, tuple[list[float], list[int]]] = {
    "LunarLander": ([2.5, 2.5, 10.0, 10.0, 2 * np.pi, 10.0, 1.0, 1.0], [6, 7]),
    "BipedalWalker": ([np.pi, 5.0, 5.0, 5.0, *_LEG, *_LEG, *[1.0] * 10], [8, 13]),
}
# Suites that repeat Gymnasium's own. Thresholds of other suites are placeholders: 0 for the 157
# robotics ids; 10, the highest reward of one step, for the 50 of Meta-World. Random actions exceed
# both.
_GYMNASIUM_SUITES = (
    *("envpool.box2d", "envpool.classic_control", "envpool.mujoco.gym", "envpool.toy_text"),
)
# Starts that Gymnasium rules out and EnvPool draws: Taxi's passenger waiting at the destination,
# which makes a quarter of the episodes short and the threshold of 8 too easy.
_ILLEGAL_STARTS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "Taxi-v3": lambda obs: obs // 4 % 5 == obs % 4
}
# Where the first half of the Finger tasks' spinner lies beside its axis, and 0.1 um further.
_HALF, _HALF_MOVED = 'pos=".02 0 0"', 'pos=".0200001 0 0"'
# A room may begin at its door, which then lies in the room's corner; MiniGrid leaves this out.
# 3 in 10 doors of MultiRoom-N4-S5 lead nowhere, so 4 of 5 of its mazes have no way to the goal.
_BLOCKED_MAZES = "MiniGrid-MultiRoom-"


def translate(env_id: str, env_kwargs: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    """EnvPool's names for Gymnasium's id and kwargs; Unsupported if it has none."""
    kwargs = dict(env_kwargs)
    if env_id.startswith(MINIGRID):
        kwargs.pop("observation", None)  # applied by the reader
    if env_id.startswith("LunarLander-") and kwargs.pop("continuous", False):
        env_id = env_id.replace("LunarLander-", "LunarLanderContinuous-")
    if env_id == "FrozenLake-v1":
        _translate_frozen_lake(kwargs)
    if env_id == "Blackjack-v1":
        raise Unsupported("EnvPool's Blackjack-v1 reports every ace as usable, unlike Gymnasium's")
    if env_id.startswith(_BLOCKED_MAZES):
        raise Unsupported(
            f"EnvPool's {env_id} has mazes in which a door leads into a wall, so that most cannot "
            f"be solved. Use minigrid:{env_id}, of the package minigrid (pip install minigrid)"
        )
    if env_id.startswith("ALE/"):
        return atari_id(env_id), kwargs  # checked by atari.py; a spec would load the ROM
    if env_id not in _registry():
        package, _, _ = env_id.rpartition(":")
        raise UnknownId(f"{package} was asked for" if package else f"EnvPool has no {env_id}")
    taken = set(_make_spec(env_id).config._fields) - _RESERVED
    unknown = [name for name in kwargs if name not in taken]
    if unknown:
        raise Unsupported(f"EnvPool's {env_id} does not take {', '.join(unknown)}")
    return env_id, kwargs


def has_id(env_id: str) -> bool:
    """Whether EnvPool has an environment of this id."""
    return env_id in _registry()


def pool_twin(env_id: str) -> str | None:
    """The id in EnvPool of an environment whose id names a package
    (minigrid:MiniGrid-Empty-5x5-v0), if EnvPool has it."""
    package, _, name = env_id.rpartition(":")
    pool_id = name.removeprefix("ALE/")
    try:
        has_twin = bool(package) and pool_id in _registry()
        return name if has_twin and not name.startswith(_BLOCKED_MAZES) else None
    except Unsupported:  # EnvPool is not installed
        return None


def atari_id(env_id: str) -> str:
    """ALE/Pong-v5 -> Pong-v5, as EnvPool spells it; UnknownId where there is no such game."""
    pool_id = env_id.removeprefix("ALE/").replace("TicTacToe3D", "TicTacToe3d")
    if _registry().get(pool_id, ("",))[0] != "envpool.atari":
        raise UnknownId(f"EnvPool has no {env_id}")
    return pool_id


def _translate_frozen_lake(kwargs: dict[str, Any]) -> None:
    """EnvPool has Gymnasium's two named maps, slippery with equal chances, and nothing else."""
    if not kwargs.pop("is_slippery", True):
        raise Unsupported("EnvPool's FrozenLake-v1 is always slippery")
    if "map_name" in kwargs:
        sizes = {"4x4": 4, "8x8": 8}
        map_name = kwargs.pop("map_name")
        if map_name not in sizes:
            raise Unsupported(f"EnvPool's FrozenLake-v1 has no map {map_name!r}")
        kwargs["size"] = sizes[map_name]


class EnvPoolEngine(Engine):
    """One synchronous pool of n_envs."""

    def __init__(self, request: EnvRequest, reason: str) -> None:
        env_id, n_envs, render_mode = request.env_id, request.n_envs, request.render_mode
        self._pool_id, kwargs = translate(env_id, request.env_kwargs)
        pool_spec = _make_spec(self._pool_id, **kwargs)
        registered = pool_spec.config.max_episode_steps
        own_limit = None if registered in (NO_LIMIT, OWN_LIMIT) else registered
        limit = request.max_episode_steps or own_limit
        import_path = _registry()[self._pool_id][0]
        entry = registry_entry(env_id)
        threshold = pool_spec.reward_threshold if import_path in _GYMNASIUM_SUITES else None
        if entry is not None:
            threshold = entry.reward_threshold
        if (n_players := pool_spec.config.max_num_players) > 1:
            raise EnvError(
                f"{env_id} is a game for {n_players} players, and here one agent is trained alone. "
                "Choose an environment for one player."
            )
        if len(pool_spec._action_keys) != 3:
            raise EnvError(
                f"{env_id} has actions in parts, which EnvPool's engine here does not support. Use "
                "vectorization_mode sync with a package that has this env."
            )
        with _quiet():
            observation, action = pool_spec.observation_space, pool_spec.action_space
        keys, kind = list(pool_spec._state_keys), request.env_kwargs.get("observation", "onehot")
        self._read = pool_reader(observation, self._pool_id, env_id, keys, kind)
        threshold = None if threshold is None else float(threshold)
        suite, notes = suite_of(import_path), self._read.notes
        spec = EnvSpec(env_id, "envpool", reason, limit, threshold, suite, notes=notes)
        super().__init__(n_envs, self._read.space, mended(action), spec)
        self._limit, self._pool_config = limit, pool_spec.config
        self._action_dtype = pool_spec.action_array_spec[pool_spec._action_keys[-1]].dtype
        self._ids = np.arange(n_envs, dtype=np.int32)
        self._make_kwargs = kwargs | {
            "num_envs": n_envs,
            "num_threads": _num_threads(spec.suite, n_envs),
            "max_episode_steps": registered if limit is None or not registered else limit + 1,
        }
        if self._pool_id.startswith("Finger"):
            self._make_kwargs["base_path"] = _finger_assets(pool_spec.config.base_path).name
        self._is_illegal_start = _ILLEGAL_STARTS.get(self._pool_id)
        self._render_mode = render_mode
        if render_mode is not None:
            self._make_kwargs["render_mode"] = render_mode
            if import_path.startswith("envpool.mujoco"):
                _load_opengl(env_id)
        self._locate(keys)
        self._pool: Any = None
        self._cut = np.zeros(n_envs, np.bool_)
        self._n_cut = 0
        self._skip, self._rng = request.frame_skip, skip_generator(0)

    def _locate(self, keys: list[str]) -> None:
        """Where the parts of a step lie in the list that `_recv` returns."""
        self._obs_at = next(i for i, key in enumerate(keys) if key.split(":")[0] == "obs")
        self._reward_at, self._done_at = keys.index("reward"), keys.index("done")
        self._trunc_at, self._elapsed_at = keys.index("trunc"), keys.index("elapsed_step")
        info = [(key.removeprefix("info:"), i) for i, key in enumerate(keys) if key[:5] == "info:"]
        self._info_at = [x for x in info if x[0] not in ("env_id", "players.env_id")]
        if "info:legal_action_mask" in keys:
            self._info_at.append((MASK_KEY, keys.index("info:legal_action_mask")))

    def _reset(self, seed: int) -> tuple[Obs, Info]:
        is_again = self._pool is not None
        with _quiet():
            self._pool = _import_envpool().make_gymnasium(
                self._pool_id, seed=env_seeds(seed, self.n_envs), **self._make_kwargs
            )
        if is_again:
            _return_memory()
        self._n_cut, self._rng = 0, skip_generator(seed)
        self._pool._reset(self._ids)
        state = self._pool._recv()
        self._redraw_starts(state[self._obs_at], self._ids)
        return self._read(state), self._info(state)

    def _info(self, state: list[np.ndarray]) -> Info:
        return {name: state[i] for name, i in self._info_at}

    def _redraw_starts(self, obs: np.ndarray, opened: np.ndarray) -> None:
        """Reset the rows just opened until none starts where Gymnasium would never start."""
        if self._is_illegal_start is None:
            return
        while len(opened := opened[self._is_illegal_start(obs[opened])]):
            self._pool._reset(opened)
            obs[opened] = self._pool._recv()[self._obs_at]

    def _step(self, actions: np.ndarray, is_reset: np.ndarray, n_reset: int) -> RawStep:
        actions = actions.astype(self._action_dtype, copy=False)
        if self._n_cut:
            state = self._step_and_reset(actions)
        else:
            self._pool._send([self._ids, self._ids, actions])
            state = self._pool._recv()
        done, truncated = state[self._done_at], state[self._trunc_at]
        terminated = done > truncated  # EnvPool's done means either
        if self._limit is not None:
            self._cut = state[self._elapsed_at] >= self._limit
            self._n_cut = int(np.count_nonzero(self._cut))
            truncated = truncated | self._cut
        if n_reset:
            state[self._reward_at][is_reset] = 0.0  # dm_control gives a reward for a reset
            self._redraw_starts(state[self._obs_at], self._ids[is_reset])
        reward = state[self._reward_at]
        first = self._read(state), reward, terminated, truncated, self._info(state)
        return first if self._skip is None else self._held(actions, is_reset, *self._skip, first)

    def _held(
        self, actions: np.ndarray, is_reset: np.ndarray, low: int, high: int, first: RawStep
    ) -> RawStep:
        """A step whose actions are held for several frames; an env that is done waits.

        Repeating the action for the whole batch would be wrong: under NEXT_STEP autoreset an env
        that ends at the second frame would be reset at the third, and the first frames of its new
        episode would get an old action. Stopping the skip for all envs would make an env's dynamics
        depend on the others."""
        n_frames = self._rng.integers(low, high + 1, self.n_envs)
        obs, reward, terminated, truncated, info = first
        obs, truncated = observations.map_obs(np.array, obs), np.array(truncated)
        for frame in range(1, high):
            rows = self._ids[~(terminated | truncated | is_reset | (n_frames <= frame))]
            if not len(rows):
                break
            self._pool._send([rows, rows, actions[rows]])
            state = self._pool._recv()
            observations.put_rows(obs, rows, self._read(state))
            reward[rows] += state[self._reward_at]
            terminated[rows] = state[self._done_at] > state[self._trunc_at]
            truncated[rows] = state[self._trunc_at]
            if self._limit is not None:
                self._cut[rows] = state[self._elapsed_at] >= self._limit
                truncated |= self._cut
            for name, i in self._info_at:
                info[name][rows] = state[i]
        self._n_cut = int(np.count_nonzero(self._cut))
        return obs, reward, terminated, truncated, info

    def _step_and_reset(self, actions: np.ndarray) -> list[np.ndarray]:
        """Reset the rows truncated at our own time limit, and step the others."""
        cut = self._ids[self._cut]
        self._pool._reset(cut)
        opened = self._pool._recv()
        if len(cut) == self.n_envs:
            return list(opened)
        others = self._ids[~self._cut]
        self._pool._send([others, others, actions[others]])
        state = []
        for from_reset, from_step in zip(opened, self._pool._recv(), strict=True):
            both = np.empty((self.n_envs, *from_step.shape[1:]), from_step.dtype)
            both[cut], both[others] = from_reset, from_step
            state.append(both)
        return state

    def goal_functions(self) -> GoalFunctions:
        goals = pool_goals(self._pool_id, self._pool_config)
        if goals is None:
            raise EnvError(
                f"her: the reward of EnvPool's {self.spec.env_id} is not known as a function of "
                f"goals. Use the env of a Python package with compute_reward, as package:"
                f"{self.spec.env_id}, or remove her."
            )
        return goals

    def render(self, env_index: int = 0) -> np.ndarray | None:
        if self._render_mode is None or self._pool is None:
            needs = "render_mode='rgb_array' and a reset first"
            raise EnvError(f"{self.spec.env_id}: render() needs {needs}.")
        if self.spec.suite == "toy_text":
            return None  # EnvPool does not render toy-text envs
        frame: np.ndarray = self._pool.render(env_ids=[env_index])[0]
        return frame

    def close(self) -> None:
        super().close()
        self._pool = None  # a pool joins its threads when it is freed


def _return_memory() -> None:
    """glibc keeps what the threads of a freed pool had: 5 MB for each env of a large MuJoCo model,
    again at each evaluation."""
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)


def pool_reader(
    space: Space, pool_id: str, env_id: str, state_keys: list[str], kind: str
) -> Reader:
    """How to read the list that a pool returns; `kind` is MiniGrid's env_kwargs key."""
    places = ((key.split(":"), i) for i, key in enumerate(state_keys))
    at = {".".join(names): i for (kind_of, *names), i in places if kind_of == "obs"}
    if pool_id.startswith(MINIGRID):
        return _minigrid(space, env_id, at, kind)
    if not is_dict(space):
        (index,) = at.values()
        return Reader(mended(space, pool_id), lambda state: state[index])
    flat = observations.flatten_space(mended(space), env_id)
    indices = {name: at[name] for name in observations.part_spaces(flat.space)}
    return replace(flat, read=lambda state: {name: state[i] for name, i in indices.items()})


def _minigrid(space: Any, env_id: str, at: dict[str, int], kind: str) -> Reader:
    delivered, make = minigrid_view(space["image"], env_id, kind)
    names = ("image",) if kind == "image" else ("image", "direction", "mission")

    def read(state: list[np.ndarray]) -> Obs:
        parts = {name: state[at[name]] for name in names}
        if "mission" in parts:
            parts["mission"] = encode_missions(parts["mission"])
        return make(parts)

    return Reader(delivered, read)


def mended(space: Space, pool_id: str = "") -> Space:
    """The space with usable bounds: from the table, or infinite where EnvPool's mean nothing."""
    if is_dict(space):
        return observations.space_of({key: mended(part) for key, part in space.spaces.items()})
    if not is_box(space) or space.dtype.kind != "f":
        return space
    meaningless = (space.low > 0) & (space.low <= np.finfo(np.float32).tiny)
    if not meaningless.any():
        return space
    low, high = space.low.copy(), space.high.copy()
    low[meaningless], high[meaningless] = -np.inf, np.inf
    for prefix, (known_high, zero_columns) in BOX2D_BOUNDS.items():
        if pool_id.startswith(prefix):
            high = np.array(known_high, np.float32)
            low = -high
            low[zero_columns] = 0.0
    return gymnasium.spaces.Box(low, high, dtype=low.dtype.type)


def _import_envpool() -> Any:
    try:
        import envpool
    except ImportError as error:
        raise Unsupported(f"EnvPool cannot be imported ({error})") from error
    return envpool


def _registry() -> Any:
    """EnvPool's ids -> (import path, spec class, kwargs)."""
    return _import_envpool().registration.registry.specs


def _make_spec(pool_id: str, **kwargs: Any) -> Any:
    try:
        with _quiet():
            return _import_envpool().make_spec(pool_id, **kwargs)
    except (TypeError, ValueError, RuntimeError) as error:
        raise EnvError(f"{pool_id}: EnvPool refuses env_kwargs {kwargs}: {error}") from error
    except ImportError as error:  # Procgen links Qt 5, which the wheel does not bring
        hint = "Debian, Ubuntu: apt install libqt5gui5 libqt5core5a"
        raise MissingError(f"{pool_id}: {str(error).split('.')[0]}. {hint}") from error


@cache
def _finger_assets(given: str) -> "TemporaryDirectory[str]":
    """A copy of the Finger tasks' model, with contacts as stiff as in dm_control.

    How stiff a contact is depends on how easily a force moves the two bodies. The spinner turns
    about its centre of mass, so no force moves that. Where this number is 0, MuJoCo 3.5 and 3.6
    take the one of rotations in its place, other versions (2.3, 3.7 and later) do not: one push
    then turns the spinner by less than half as much. With its centre of mass 0.05 um beside the
    axis the number is tiny and not 0, so that these two compute the same as the others."""
    folder = temporary_folder("finger")
    source, target = (Path(place) / "mujoco" / "assets_dmc" for place in (given, folder.name))
    shutil.copytree(source / "common", target / "common")
    model = (source / "finger.xml").read_text(encoding="utf-8")
    (target / "finger.xml").write_text(model.replace(_HALF, _HALF_MOVED), encoding="utf-8")
    return folder


@contextmanager
def _quiet() -> Iterator[None]:
    """Hide one warning of Gymnasium's, about the precision of EnvPool's own bounds."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*precision lowered by casting")
        yield


def _num_threads(suite: str, n_envs: int) -> int:
    """Threads of the pool; results do not depend on it.

    Measured on two cores, us a step with 1 / 2 threads: CartPole 42 / 57 for 8 envs and 110 / 140
    for 64; BipedalWalker 585 / 327 for 8 envs and 213 / 238 for 4."""
    if suite in ("classic_control", "toy_text"):
        return 1
    n_cpus = cpu_share()
    if suite == "atari":  # a step takes a third of a millisecond: threads pay from two envs on
        return min(n_cpus, n_envs)
    return min(n_cpus, -(-n_envs // 4))


def _load_opengl(env_id: str) -> None:
    """Load libEGL, without which EnvPool's MuJoCo aborts the process when it renders: the copy in
    the wheel where there is one (two copies conflict), else the system's."""
    if sys.platform != "linux":
        return
    wheel_libraries = Path(_import_envpool().__file__).parent.parent / "envpool.libs"
    library = next((str(p) for p in wheel_libraries.glob("libEGL*")), "libEGL.so.1")
    try:
        ctypes.CDLL(library, mode=ctypes.RTLD_GLOBAL)
    except OSError as error:
        message = f"{env_id}: drawing MuJoCo needs libEGL.so.1 (Debian, Ubuntu: libegl1): {error}"
        raise EnvError(message) from error
