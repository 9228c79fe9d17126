"""What lies between an environment's own observations and those that a run's policy was trained on.

    treatment = treatment_of(env)           # of a built env; saved in the run's meta.json
    tap = tap_observations(env)             # the observations before `treatment.wrappers`
    apply = Applied(treatment, action_space)
    obs, mask = apply(batch)                # what the policy takes

The outermost wrappers that map each observation by itself (`effect = "pure"`: scaling, one-hot, a
part of a Dict) need no environment, so a loaded agent applies them in `act`. It takes the
observations before them: those of the environment that a user makes, or of `gs.make_env`. If the
run has wrappers that only its own environment can carry out (`effect = "other"`: actions that mean
something else, unknown wrappers), `act` refuses the observations of any other environment.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Self

import gymnasium
import numpy as np

from gymnasium_solver.config.schema import Config
from gymnasium_solver.envs.spec import EnvSpec, family_of
from gymnasium_solver.envs.vector import Space, Step, VectorEnv, VectorWrapper
from gymnasium_solver.envs.wrappers.wrapping import lower, wrap, wrapper_class
from gymnasium_solver.errors import EnvError
from gymnasium_solver.spaces.json_form import space_from_json, space_to_json
from gymnasium_solver.spaces.observations import part_spaces
from gymnasium_solver.spaces.space_types import number_type

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
    space: Space
    """The space of the observations before `wrappers`."""
    wrappers: list[Mapping[str, Any]] = field(default_factory=list)
    """Entries of `env_wrappers` that an agent applies itself, innermost first."""
    own_env: list[str] = field(default_factory=list)
    """Wrappers that only the run's own environment carries out."""

    def fits(self, other: "Treatment") -> bool:
        """Whether observations under the other treatment are of the same kind."""
        same = self.wrappers == other.wrappers and self.own_env == other.own_env
        return same and layout(self.space) == layout(other.space)

    def to_json(self) -> dict[str, Any]:
        return {
            "observation_space": space_to_json(self.space),
            "wrappers": [dict(spec) for spec in self.wrappers],
            "own_env": self.own_env,
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        space = space_from_json(data["observation_space"])
        return cls(space, list(data["wrappers"]), list(data["own_env"]))


def layout(space: Space) -> dict[str, Any]:
    """Shape and dtype of each part."""
    return {name: number_type(part) for name, part in part_spaces(space).items()}


def treatment_of(env: VectorEnv, config: Config) -> Treatment:
    """The treatment in an env that `config` describes."""
    beneath = _beneath_pure(env)
    pure = [layer.given for layer in _layers(env, beneath) if layer.effect == "pure"]
    own = [_name(layer) for layer in _layers(beneath) if layer.effect == "other"]
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


def _name(layer: VectorWrapper) -> str:
    return str(layer.given.get("id") or type(layer).__name__)


def _inside_engine(config: Config) -> list[str]:
    """Wrappers that the engine itself carries out and an agent cannot do without."""
    needs = lower(config.env_wrappers)[0]
    names = [single.name for single in needs.singles if _effect(single.name) != "none"]
    family = family_of(config.env_id)
    has_options = family is not None and family.has_frame_options
    skips = needs.frame_skip is not None or (config.frame_skip or 1) > 1
    return [*names, "frame_skip"] if skips and not has_options else names


def _effect(name: str) -> str:
    """The effect of a Gymnasium wrapper: "none" if it is known to leave observations and actions
    alone."""
    wrapper = wrapper_class(name)
    harmless = issubclass(wrapper, (gymnasium.RewardWrapper, *_HARMLESS))
    return str(getattr(wrapper, "effect", "none" if harmless else "other"))


class Tap(VectorWrapper):
    """Keeps the last observations that pass through it."""

    effect = "none"
    obs: Any = None

    def reset(self, seed: int) -> Any:
        self.obs = self.env.reset(seed)
        return self.obs

    def step(self, actions: Any) -> Step:
        step = self.env.step(actions)
        self.obs = step.obs
        return step


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

    def render(self, env_index: int = 0) -> np.ndarray | None:
        return None

    def close(self) -> None:
        """Nothing is open."""
