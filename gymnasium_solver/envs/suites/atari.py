"""Atari under the contract: `ALE/<Game>-v5` for every game of the Arcade Learning Environment.

    make_vector_env("ALE/Pong-v5", 8)
    make_vector_env("ALE/Pong-v5", 8, env_kwargs={"obs_type": "objects", "episodic_life": False})

The games run in C++: in EnvPool, which has the ROMs, the RAM and the colour screen, or in ale-py's
own vector env (vectorization_mode vector, or max_pool false; rgb only). us a step of one env on one
core, EnvPool / ale-py: Pong 400 / 350, Breakout 500 / 442, SpaceInvaders 500 / 483, of which
emulation takes 260 to 370; to build an env takes them 0.1 and 0.2 s.

Both play whole games with raw rewards, so that `episode_return` is the score of the full game by
construction. `AtariRules` applies what the learner sees: a lost life as a termination, the sign of
the reward, FIRE after a lost life. After a lost life the game continues in the next row, which is
not a reset row: `Step.is_over` marks the end of the game. The engines' own rules for lives are not
used: EnvPool's plays up to 30 unseen frames and drops their score, and ale-py's starts a new game.
"""

from dataclasses import dataclass, replace
from typing import Any

import gymnasium
import numpy as np

from gymnasium_solver.envs.engines.envpool import EnvPoolEngine, atari_id
from gymnasium_solver.envs.spec import EnvRequest
from gymnasium_solver.envs.suites.game_options import USUAL_SIZE, AtariOptions
from gymnasium_solver.envs.vector import Info, RawStep, Step, VectorEnv, VectorWrapper
from gymnasium_solver.envs.wrappers.frames import FrameStack
from gymnasium_solver.errors import EnvError
from gymnasium_solver.spaces.observations import Obs

N_RAM = 128
HINT = 'ale-py is an extra: pip install "gymnasium-solver[atari]"'
# Games without FIRE, and two where it comes first; in all others, and in the full set, it is 1.
_NO_FIRE = {
    *("Asterix", "CrazyClimber", "Freeway", "Frogger", "JourneyEscape", "Koolaid", "KungFuMaster"),
    *("LostLuggage", "MsPacman", "Pacman", "Skiing", "Surround", "Tutankham"),
}
_FIRE_IS_0 = {"Backgammon", "VideoCheckers"}


def make_atari(request: EnvRequest) -> VectorEnv:
    """Build a game on the engine that `mode` names: envpool, or vector (ale-py), or auto, which
    takes EnvPool unless it lacks an option."""
    env_id, mode = request.env_id, request.mode
    options = AtariOptions.read(env_id, request.env_kwargs)
    # The frame cap in steps, or a lower limit of the user's.
    cap = max(1, options.max_frames // options.frame_skip)
    limit = min(cap, request.max_episode_steps or cap)
    atari_id(env_id)  # an unknown game is reported first
    if mode == "auto":
        mode = "envpool" if options.max_pool else "vector"
    if mode == "vector":
        return AtariRules(_ale_py(request, options, limit), options)
    if not options.max_pool:
        raise EnvError(
            f"{env_id}: EnvPool always takes the maximum of two frames. For max_pool false use "
            "vectorization_mode auto or vector (ale-py)."
        )
    request = replace(request, max_episode_steps=limit)
    return AtariRules(AtariPool(request, options), options)


class AtariPool(EnvPoolEngine):
    """EnvPool's games; observations are its images, or the RAM, or the objects in it."""

    def __init__(self, request: EnvRequest, options: AtariOptions) -> None:
        env_id, n_envs = request.env_id, request.n_envs
        self._reader = ObjectReader(env_id, n_envs) if options.obs_type == "objects" else None
        reason = "EnvPool has the games, their RAM and their screens"
        super().__init__(replace(request, env_kwargs=_pool_kwargs(options)), reason)
        self._is_rgb = options.obs_type == "rgb"
        if self._is_rgb:
            return
        one: Any = gymnasium.spaces.Box(0, 255, (N_RAM,), np.uint8)
        if self._reader is not None:
            one = self._reader.space
        low, high = (np.tile(bound, options.frame_stack or 1) for bound in (one.low, one.high))
        space = gymnasium.spaces.Box(low, high, dtype=one.dtype.type)
        self._set_observation_space(space, env_id)
        self._stack = FrameStack(n_envs, options.frame_stack or 1)

    def _reset(self, seed: int) -> tuple[Obs, Info]:
        obs, info = super()._reset(seed)
        return self._seen(obs, info, np.ones(self.n_envs, np.bool_)), info

    def _step(self, actions: np.ndarray, is_reset: np.ndarray, n_reset: int) -> RawStep:
        obs, reward, terminated, truncated, info = super()._step(actions, is_reset, n_reset)
        return self._seen(obs, info, is_reset), reward, terminated, truncated, info

    def _seen(self, image: Obs, info: Info, opened: np.ndarray) -> Obs:
        """What the agent sees; `opened` marks the rows of new games, which fill their stack."""
        if self._is_rgb:
            return image
        newest = self._reader(info["ram"], opened) if self._reader else info["ram"]
        return self._stack.push(newest, opened)


def _engine_kwargs(options: AtariOptions, size: tuple[int, int]) -> dict[str, Any]:
    """The options that EnvPool and ale-py call the same."""
    return {
        "img_height": size[0],
        "img_width": size[1],
        "stack_num": options.frame_stack,
        "noop_max": options.noop_max,
        "use_fire_reset": options.fire_reset,
        "repeat_action_probability": options.repeat_action_probability,
        "full_action_space": options.full_action_space,
    }


def _pool_kwargs(options: AtariOptions) -> dict[str, Any]:
    """The options under EnvPool's names. An image that is not used is one pixel."""
    is_rgb = options.obs_type == "rgb"
    return _engine_kwargs(options, options.resize_obs or (1, 1)) | {
        "gray_scale": options.grayscale_obs is not False,
        "stack_num": options.frame_stack if is_rgb else 1,
        "use_inter_area_resize": is_rgb,
        "frame_skip": options.frame_skip,
        "noop_max": max(1, options.noop_max),
        "mode": -1 if options.mode is None else options.mode,
        "difficulty": -1 if options.difficulty is None else options.difficulty,
    }


def _ale_py(request: EnvRequest, options: AtariOptions, limit: int) -> VectorEnv:
    """ale-py's vector env, by way of Gymnasium's registry."""
    env_id = request.env_id
    try:
        import ale_py  # noqa: F401  (registers the games)
    except ImportError as error:
        raise EnvError(f"{env_id}: vectorization_mode vector needs ale-py. {HINT}") from error
    from gymnasium_solver.envs.engines.gymnasium import GymnasiumEngine

    for name, given in (
        (f"obs_type {options.obs_type}", options.obs_type != "rgb"),
        ("mode", options.mode is not None),
        ("difficulty", options.difficulty is not None),
        ("render", request.render_mode is not None),
    ):
        if given:
            raise EnvError(
                f"{env_id}: ale-py's vector env has no {name}. Use vectorization_mode envpool"
                + ("." if options.max_pool else ", and max_pool true.")
            )
    kwargs = _engine_kwargs(options, options.resize_obs or USUAL_SIZE) | {
        "grayscale": options.grayscale_obs,
        "frameskip": options.frame_skip,
        "maxpool": options.max_pool,
        "max_num_frames_per_episode": limit * options.frame_skip,
        "reward_clipping": False,
    }
    reason = "asked for" if options.max_pool else "EnvPool cannot do without max_pool"
    return GymnasiumEngine(EnvRequest(env_id, request.n_envs, kwargs, mode="vector"), reason)


class AtariRules(VectorWrapper):
    """Lives, reward clipping and FIRE over whole games with raw rewards. Scores are not changed."""

    def __init__(self, env: VectorEnv, options: AtariOptions) -> None:
        super().__init__(env)
        self.spec = replace(env.spec, suite="atari", protocol=options.protocol)
        self._options = options
        self._fire = _fire_action(env.spec.env_id, options)
        self._lives = np.zeros(env.n_envs, np.int64)
        self._lost = np.zeros(env.n_envs, np.bool_)

    def reset(self, seed: int) -> Obs:
        obs = self.env.reset(seed)
        # Lives are not known before the first step, when none can be lost.
        self._lives = np.zeros(self.n_envs, np.int64)
        self._lost = np.zeros(self.n_envs, np.bool_)
        return obs

    def step(self, actions: Any) -> Step:
        if self._fire is not None and self._lost.any():
            actions = np.where(self._lost, self._fire, actions)
        step = self.env.step(actions)
        lives = step.info["lives"]
        # Not at 0: some games stay there for some frames before they are over.
        self._lost = (lives > 0) & (lives < self._lives) & ~step.is_reset & ~step.is_over
        self._lives = lives
        reward, terminated = step.reward, step.terminated
        if self._options.reward_clip:
            reward = np.sign(reward)
        if self._options.episodic_life:
            terminated = terminated | self._lost
        return step._replace(reward=reward, terminated=terminated)


def _fire_action(env_id: str, options: AtariOptions) -> int | None:
    """The number of FIRE, to be pressed after a lost life; None where it is not."""
    if not options.fire_reset or (game_of(env_id) in _NO_FIRE and not options.full_action_space):
        return None
    return 0 if game_of(env_id) in _FIRE_IS_0 and not options.full_action_space else 1


def game_of(env_id: str) -> str:
    """ALE/Pong-v5 -> Pong."""
    return env_id.removeprefix("ALE/").rpartition("-")[0]


# -- objects, read from the console's 128 bytes of RAM --------------------------------------------

HALF_WIDTH, HALF_HEIGHT = 80.0, 105.0  # of the screen, in pixels
UNIT = 16.0  # pixels
JUMP, FAR = 40.0, 80.0  # pixels


@dataclass(frozen=True)
class Axis:
    """Centre of a sprite in pixels = sign * byte + offset."""

    address: int
    offset: float
    sign: int = 1


@dataclass(frozen=True)
class Thing:
    """Something that moves; it is there while the byte at `shown_at` is not 0 (None: always)."""

    name: str
    x: Axis | None = None
    y: Axis | None = None
    shown_at: int | None = None


def _ghost(name: str, index: int) -> Thing:
    return Thing(name, Axis(6 + index, -8.5), Axis(12 + index, 5.5))


OBJECTS: dict[str, tuple[Thing, ...]] = {
    "Pong": (
        Thing("player", y=Axis(51, -6.0)),
        Thing("enemy", y=Axis(50, -7.5), shown_at=50),
        Thing("ball", Axis(49, -48.5), Axis(54, -12.5), shown_at=54),
    ),
    "Breakout": (
        Thing("paddle", x=Axis(72, -39.5)),
        Thing("ball", Axis(99, -48.5), Axis(101, 10.5), shown_at=101),
    ),
    "Boxing": (
        Thing("player", Axis(32, 11.5), Axis(34, 61.0)),
        Thing("enemy", Axis(33, 9.5), Axis(35, 60.0)),
    ),
    "Freeway": (
        Thing("chicken", y=Axis(14, 196.5, -1)),
        *(Thing(f"car_{lane}", x=Axis(118 - lane, 1.0)) for lane in range(1, 11)),
    ),
    "MsPacman": (
        Thing("player", Axis(10, -8.5), Axis(16, 5.5)),
        *(_ghost(name, i) for i, name in enumerate(("sue", "inky", "pinky", "blinky"))),
    ),
}


class ObjectReader:
    """Turns the RAM of N games into vectors; remembers the last positions for the velocities.

        reader = ObjectReader("ALE/Pong-v5", n_envs=8)
        obs = reader(ram, opened)          # uint8 (8, 128) -> float32 (8, len(reader.names))

    Every object gives its position (x in [-1, 1] from left to right, y from top to bottom),
    velocity and, on the axes of the first one, which is the player's, its distance from there; one
    that can vanish also gives 1 or 0, whether it is there, and zeros while it is not. Velocities
    and distances are in units of 16 pixels, about a sprite: as shares of the screen, what decides
    whether a ball is hit would be a few hundredths. A velocity is the change since the last step, 0
    where the object was not there before or has jumped (by more than 40 pixels: a new serve, the
    other end of a tunnel); a distance is reported up to 80 pixels.

    The addresses were found by fitting bytes to the pixels of the sprites, and the tests hold each
    against the screen."""

    def __init__(self, env_id: str, n_envs: int) -> None:
        game = game_of(env_id)
        if game not in OBJECTS:
            known = ", ".join(f"ALE/{name}-v5" for name in OBJECTS)
            raise EnvError(
                f"{env_id}: its objects are not known; obs_type objects is for {known}. Use ram."
            )
        things = OBJECTS[game]
        flagged = [thing.shown_at for thing in things if thing.shown_at is not None]
        axes: list[Axis] = []
        names: list[str] = []
        sizes: list[float] = []  # of each axis: half the screen
        shown: list[int] = []  # of each axis: the byte that shows its object; 128 stands for always
        pairs: list[tuple[int, int]] = []  # axes, and the player's, from which they are measured
        player: dict[str, int] = {}
        for thing in things:
            for label, axis, half in (("x", thing.x, HALF_WIDTH), ("y", thing.y, HALF_HEIGHT)):
                if axis is None:
                    continue
                if thing is things[0]:
                    player[label] = len(names)
                elif label in player:
                    pairs.append((len(names), player[label]))
                names.append(f"{thing.name}_{label}")
                axes.append(axis)
                sizes.append(half)
                shown.append(N_RAM if thing.shown_at is None else thing.shown_at)
        self.names = [
            *names,
            *(f"{name}_velocity" for name in names),
            *(f"{names[i]}_from_{things[0].name}" for i, _ in pairs),
            *(f"{thing.name}_is_there" for thing in things if thing.shown_at is not None),
        ]
        self._sizes, self._shown = np.array(sizes, np.float32), np.array(shown)
        self._apart, self._origin = np.array(pairs, np.int64).reshape(-1, 2).T
        self._addresses = np.array([axis.address for axis in axes])
        self._signs = np.array([axis.sign for axis in axes], np.float32)
        self._offsets = np.array([axis.offset for axis in axes], np.float32)
        self._flags = np.array(flagged, np.int64)
        self._pixels = np.zeros((n_envs, len(axes)), np.float32)
        self._was_there = np.zeros((n_envs, len(axes)), np.bool_)
        counts = (len(axes), len(axes), len(self._apart), len(flagged))
        high = np.repeat(np.array([1.0, JUMP / UNIT, FAR / UNIT, 1.0], np.float32), counts)
        low = np.where(np.arange(len(high)) < len(high) - len(flagged), -high, np.float32(0))
        self.space = gymnasium.spaces.Box(low, high, dtype=np.float32)

    def __call__(self, ram: np.ndarray, opened: np.ndarray) -> np.ndarray:
        """float32 (N, F): positions, velocities, distances, what is there. `opened`: new games."""
        pixels = self._signs * ram[:, self._addresses] + self._offsets
        there = np.concatenate([ram, np.ones((len(ram), 1), np.uint8)], axis=1)[:, self._shown] > 0
        moved = pixels - self._pixels
        is_known = there & self._was_there & ~opened[:, None] & (np.abs(moved) <= JUMP)
        self._pixels, self._was_there = pixels, there
        distance = np.clip(pixels[:, self._apart] - pixels[:, self._origin], -FAR, FAR)
        position = np.clip((pixels - self._sizes) / self._sizes, -1.0, 1.0)
        return np.concatenate(
            [
                np.where(there, position, 0.0),
                np.where(is_known, moved / UNIT, 0.0),
                np.where(there[:, self._apart], distance / UNIT, 0.0),
                ram[:, self._flags] > 0,
            ],
            axis=1,
            dtype=np.float32,
        )
