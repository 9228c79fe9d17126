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

from dataclasses import replace
from typing import Any

import gymnasium
import numpy as np

from gymnasium_solver.envs.engines.envpool import EnvPoolEngine, atari_id
from gymnasium_solver.envs.spec import EnvRequest
from gymnasium_solver.envs.suites.atari_objects import N_RAM, ObjectReader, game_of
from gymnasium_solver.envs.suites.game_options import USUAL_SIZE, AtariOptions
from gymnasium_solver.envs.vector import Info, RawStep, Step, VectorEnv, VectorWrapper
from gymnasium_solver.envs.wrappers.frames import FrameStack
from gymnasium_solver.errors import EnvError
from gymnasium_solver.spaces.observations import Obs

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
        self._stack = FrameStack(one, options.frame_stack or 1)
        self._set_observation_space(self._stack.space, env_id)

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
