"""A vector env of this program as a Gymnasium env, and what lies between an environment's own
observations and those that a run's policy was trained on.

    env = SingleEnv(env_from_config(config, 1), treatment)       # a gymnasium.Env
    env = BatchEnv(env_from_config(config, 8), treatment)        # a gymnasium.vector.VectorEnv
    treatment = treatment_of(env, config)   # of a built env; saved in the run's meta.json
    tap = tap_observations(env)             # the observations before `treatment.wrappers`
    obs, mask = Applied(treatment, action_space)(batch)          # what the policy takes

The outermost wrappers that map each observation by itself (`effect = "pure"`: scaling, one-hot, a
part of a Dict) need no environment, so a loaded agent applies them in `act`. It takes the
observations before them: those of the environment that a user makes, or of `gs.make_env`. If the
run has wrappers that only its own environment can carry out (`effect = "other"`: actions that mean
something else, unknown wrappers), `act` refuses the observations of any other environment.

In the Gymnasium envs all wrappers of the config are in force, and the observations are those before
the wrappers that an agent applies itself. `info` has `episode_return` and `episode_length` so far,
before reward wrappers, and `action_mask` where the env has one. An episode ends where its score is
final: a lost life of a game does not end it.
"""

import weakref
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Self

import gymnasium
import numpy as np
from gymnasium.vector import AutoresetMode
from gymnasium.vector.utils import batch_space

from gymnasium_solver.config.schema import Config
from gymnasium_solver.envs.action_checks import MASK_KEY
from gymnasium_solver.envs.spec import EnvSpec, family_of
from gymnasium_solver.envs.vector import (
    Info,
    ObservationWrapper,
    Space,
    Step,
    VectorEnv,
    VectorWrapper,
)
from gymnasium_solver.envs.wrappers.wrapping import lower, wrap
from gymnasium_solver.errors import EnvError
from gymnasium_solver.spaces import space_types
from gymnasium_solver.spaces.observations import layout, take_rows

# Gymnasium's wrappers that change neither observations nor actions.
_HARMLESS = (
    gymnasium.wrappers.OrderEnforcing,
    gymnasium.wrappers.PassiveEnvChecker,
    gymnasium.wrappers.RecordEpisodeStatistics,
    gymnasium.wrappers.RecordVideo,
    gymnasium.wrappers.TimeLimit,
)


@dataclass(frozen=True)
class Treatment:
    space: Space  # the space of the observations before `wrappers`
    wrappers: list[Mapping[str, Any]] = field(default_factory=list)
    """Entries of `env_wrappers` that an agent applies itself, innermost first."""
    own_env: list[str] = field(default_factory=list)
    """Wrappers that only the run's own environment carries out."""

    def fits(self, other: "Treatment") -> bool:
        """Whether observations under the other treatment are of the same kind."""
        ours, theirs = ((t.wrappers, t.own_env, layout(t.space)) for t in (self, other))
        return ours == theirs

    def to_json(self) -> dict[str, Any]:
        return {
            "observation_space": space_types.space_to_json(self.space),
            "wrappers": [dict(spec) for spec in self.wrappers],
            "own_env": self.own_env,
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        space = space_types.space_from_json(data["observation_space"])
        return cls(space, list(data["wrappers"]), list(data["own_env"]))


def treatment_of(env: VectorEnv, config: Config) -> Treatment:
    """The treatment in an env that `config` describes."""
    beneath = _beneath_pure(env)
    pure = [layer.given for layer in _layers(env, beneath) if layer.effect == "pure"]
    others = [layer for layer in _layers(beneath) if layer.effect == "other"]
    own = [str(layer.given.get("id") or type(layer).__name__) for layer in others]
    own += _inside_engine(config)[::-1]
    return Treatment(beneath.observation_space, pure[::-1], own[::-1])


def tap_observations(env: VectorEnv) -> "tuple[VectorEnv, Tap]":
    """The env with a tap beneath its outermost pure wrappers, and the tap."""
    beneath = _beneath_pure(env)
    tap = Tap(beneath)
    if beneath is env:
        return tap, tap
    *_, above = _layers(env, beneath)
    above.env = tap
    return env, tap


def _layers(env: VectorEnv, stop: VectorEnv | None = None) -> Iterator[VectorWrapper]:
    """The wrappers from the outermost inwards, up to `stop`."""
    while isinstance(env, VectorWrapper) and env is not stop:
        yield env
        env = env.env


def _beneath_pure(env: VectorEnv) -> VectorEnv:
    """The env beneath the outermost wrappers that an agent can do without or apply itself."""
    for layer in _layers(env):
        if layer.effect not in ("none", "pure"):
            return layer
        env = layer.env
    return env


def _inside_engine(config: Config) -> list[str]:
    """Wrappers that the engine itself carries out and an agent cannot do without."""
    request, _ = lower(config.env_wrappers)
    names = [single.id for single in request.singles if _effect(single.wrapper) != "none"]
    family = family_of(config.env_id)
    has_options = family is not None and family.has_frame_options
    skips = request.frame_skip is not None or (config.frame_skip or 1) > 1
    return [*names, "frame_skip"] if skips and not has_options else names


def _effect(wrapper: type) -> str:
    """The effect of a Gymnasium wrapper: "none" if it is known to leave observations and actions
    alone."""
    harmless = issubclass(wrapper, (gymnasium.RewardWrapper, *_HARMLESS))
    return str(getattr(wrapper, "effect", "none" if harmless else "other"))


class Tap(ObservationWrapper):
    """Keeps the last observations that pass through it."""

    effect = "none"
    obs: Any = None

    def seen(self, obs: Any, opened: np.ndarray) -> Any:
        self.obs = obs
        return obs


class Applied:
    """The wrappers of a treatment, around observations instead of an environment."""

    def __init__(self, treatment: Treatment, action_space: Space) -> None:
        self._source = _Source(treatment.space, action_space)
        self._chain = wrap(self._source, treatment.wrappers)

    def __call__(self, batch: Any) -> tuple[Any, np.ndarray | None]:
        """Treated observations, and the legal actions (1, A) where a wrapper restricts them."""
        self._source.batch = batch
        return self._chain.reset(0), self._chain.action_mask


def applied_layers(treatment: Treatment, action_space: Space) -> list[VectorWrapper]:
    """The wrappers of a treatment, innermost first."""
    source = _Source(treatment.space, action_space)
    return [*_layers(wrap(source, treatment.wrappers))][::-1]


class _Source(VectorEnv):
    """Stands in for an environment: its reset gives the batch that was put into it."""

    n_envs = 1
    batch: Any = None

    def __init__(self, observation_space: Space, action_space: Space) -> None:
        self.observation_space, self.action_space = observation_space, action_space
        self.spec = EnvSpec("the run's environment", "own", "")

    def reset(self, seed: int) -> Any:
        return self.batch

    def step(self, actions: Any) -> Step:
        raise EnvError("there is no environment to step")


# -- as Gymnasium environments --------------------------------------------------------------------

FPS = 30  # frames per second of a video, where the environment does not say


class _Shared:
    """What both kinds have in common: the vector env beneath, resets, and what was seen last."""

    def __init__(
        self,
        env: VectorEnv,
        treatment: Treatment,
        *,
        seed: int | None = None,
        render_mode: str | None = None,
        fps: int | None = None,
    ) -> None:
        self.vector, self._tap = tap_observations(env)
        self.env_id, self.treatment, self.render_mode = env.spec.env_id, treatment, render_mode
        self.metadata: dict[str, Any] = {"render_modes": ["rgb_array"], "render_fps": fps or FPS}
        self._rng = np.random.default_rng(seed)
        self._first_seed = seed
        self.last_obs: Any = None
        _made.add(self)

    def _restart(self, seed: int | None) -> None:
        """Open new episodes in all copies; without a seed, others than before."""
        if seed is None:
            seed = self._first_seed
        self._first_seed = None
        self.vector.reset(int(self._rng.integers(2**31)) if seed is None else seed)

    def _with_mask(self, info: Info) -> Info:
        mask = self.vector.action_mask
        return dict(info) if mask is None else {**info, MASK_KEY: mask}

    def _drawn(self, index: int) -> Any:
        if self.render_mode is None:
            raise EnvError(f"{self.env_id}: render() needs make_env(..., render_mode='rgb_array').")
        return self.vector.render(index)

    def _refuse(self, options: Any) -> None:
        if options:
            raise EnvError(f"{self.env_id}: reset() takes no options here, got {options!r}.")


_made: "weakref.WeakSet[_Shared]" = weakref.WeakSet()


def is_observed_now(obs: Any, treatment: Treatment) -> bool:
    """Whether an observation is the very one that an env with this treatment returned last."""
    return any(env.last_obs is obs and env.treatment.fits(treatment) for env in _made)


class SingleEnv(_Shared, gymnasium.Env[Any, Any]):
    """One environment."""

    def __init__(self, env: VectorEnv, treatment: Treatment, **given: Any) -> None:
        super().__init__(env, treatment, **given)
        self.observation_space, self.action_space = treatment.space, env.action_space
        self._is_over = False
        self._last_actions: np.ndarray | None = None

    def __repr__(self) -> str:
        return f"<{self.env_id} as a run sees it, {self.vector.spec.engine}>"

    __str__ = __repr__  # Gymnasium's says the name of the class only

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, Info]:
        self._refuse(options)
        gymnasium.Env.reset(self, seed=seed)
        if seed is None and self._is_over:
            info = self.vector.step(self._last_actions).info  # a reset row: the stream goes on
        else:
            self._restart(seed)
            info = self.vector.info
        self._is_over = False
        self._last_actions = None
        return self._observed(), self._info(info, 0.0, 0)

    def step(self, action: Any) -> tuple[Any, float, bool, bool, Info]:
        if self._is_over:
            raise EnvError(f"{self.env_id}: the episode is over; call reset() first.")
        self._last_actions = space_types.from_native(self.action_space, action)[None]
        step = self.vector.step(self._last_actions)
        self._is_over = bool(step.is_over[0])
        return (
            self._observed(),
            float(step.reward[0]),
            self._is_over and bool(step.terminated[0]),
            self._is_over and bool(step.truncated[0]),
            self._info(step.info, float(step.episode_return[0]), int(step.episode_length[0])),
        )

    def _observed(self) -> Any:
        self.last_obs = take_rows(self._tap.obs, 0)
        return self.last_obs

    def _info(self, info: Info, episode_return: float, episode_length: int) -> Info:
        totals = {"episode_return": episode_return, "episode_length": episode_length}
        return _first_row(self._with_mask(info)) | totals

    def render(self) -> Any:
        return self._drawn(0)

    def close(self) -> None:
        self.vector.close()


class BatchEnv(_Shared, gymnasium.vector.VectorEnv):
    """Several copies, stepped together, with NEXT_STEP autoreset."""

    def __init__(self, env: VectorEnv, treatment: Treatment, **given: Any) -> None:
        super().__init__(env, treatment, **given)
        self.num_envs = env.n_envs
        self.single_observation_space, self.single_action_space = treatment.space, env.action_space
        self.observation_space = batch_space(treatment.space, env.n_envs)
        self.action_space = batch_space(env.action_space, env.n_envs)
        self.metadata["autoreset_mode"] = AutoresetMode.NEXT_STEP

    def __repr__(self) -> str:
        engine = self.vector.spec.engine
        return f"<{self.num_envs} x {self.env_id} as a run sees it, {engine}>"

    def reset(self, *, seed: Any = None, options: dict[str, Any] | None = None) -> tuple[Any, Info]:
        self._refuse(options)
        if isinstance(seed, list | tuple):
            raise EnvError(f"{self.env_id}: reset() takes one seed for all copies, got {seed!r}.")
        self._restart(seed)
        self.last_obs = self._tap.obs
        return self.last_obs, self._with_mask(self.vector.info)

    def step(self, actions: Any) -> tuple[Any, np.ndarray, np.ndarray, np.ndarray, Info]:
        step = self.vector.step(space_types.from_native_batch(self.single_action_space, actions))
        info = self._with_mask(step.info)
        info |= {"episode_return": step.episode_return, "episode_length": step.episode_length}
        over = step.is_over
        self.last_obs = self._tap.obs
        return self.last_obs, step.reward, step.terminated & over, step.truncated & over, info

    def render(self) -> Any:
        return tuple(self._drawn(i) for i in range(self.num_envs))

    def close_extras(self, **kwargs: Any) -> None:
        self.vector.close()


def _first_row(info: Info) -> Info:
    """The info of the only copy. Keys with a leading _ say which copies have a value."""
    single: Info = {}
    for name, value in info.items():
        if isinstance(value, dict):
            single[name] = _first_row(value)
        elif not name.startswith("_") and info.get(f"_{name}", (True,))[0]:
            has_rows = isinstance(value, np.ndarray) and value.ndim > 0 and len(value) == 1
            single[name] = value[0] if has_rows else value
    return single
