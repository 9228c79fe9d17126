"""Batch wrappers by name, as a config has them: `env_wrappers: [{id: RewardScale, scale: 0.1}]`.

A wrapper is a `VectorWrapper` whose constructor takes the env and keyword parameters, which are
checked by their annotations (parameters.py). Write your own in a module named in `plugins`:

    @register_wrapper("HalfReward")
    class HalfReward(VectorWrapper): ...

A wrapper that is not registered is named by its import path: any of Gymnasium's, or a class of the
user's own (by_path.py). listing.py lists the registered ones. Importing this module is light: names
are known without importing NumPy or Gymnasium.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any, TypeVar

from gymnasium_solver.errors import EnvError
from gymnasium_solver.suggest import ask, nearest

if TYPE_CHECKING:
    from gymnasium_solver.envs.vector import VectorEnv, VectorWrapper

# Made by the engine itself, not by a class here: see `lower`.
TIME_LIMIT = "TimeLimit"
FRAME_SKIP = "FrameSkipWrapper"
PIXELS = "PixelObservationWrapper"
# What the fields grayscale_obs, resize_obs and frame_stack stand for, where an env has no such
# options itself.
GRAYSCALE, RESIZE, FRAME_STACK = (
    "GrayscaleObservation",
    "ResizeObservation",
    "FrameStackObservation",
)
# id -> module of this package, and class.
SHIPPED = {
    "DiscreteEncoder": "encode:DiscreteEncoder",
    "ObservationScale": "encode:ObservationScale",
    "ObservationClip": "encode:ObservationClip",
    "ObservationRescale": "encode:ObservationRescale",
    "ObservationComponents": "encode:ObservationComponents",
    PIXELS: "rendered:PixelObservation",
    "ObservationParts": "encode:ObservationParts",
    GRAYSCALE: "frames:GrayscaleObservation",
    RESIZE: "frames:ResizeObservation",
    FRAME_STACK: "frames:FrameStackObservation",
    "PongV5_FeatureExtractor": "atari_games:PongFeatures",
    "BreakoutV5_FeatureExtractor": "atari_games:BreakoutFeatures",
    "RewardScale": "rewards:RewardScale",
    "RewardClip": "rewards:RewardClip",
    "ActionRewardShaper": "shaping:ActionRewardShaper",
    "CartPoleV1_RewardShaper": "classic:CartPoleRewardShaper",
    "MountainCarV0_RewardShaper": "classic:MountainCarRewardShaper",
    "MountainCarV0_StateCountBonus": "classic:MountainCarStateCountBonus",
    "PongV5_RewardShaper": "atari_games:PongRewardShaper",
    "VizDoom_RewardShaper": "game_rewards:VizDoomRewardShaper",
    "RetroSuperMarioBros_RewardShaper": "game_rewards:MarioRewardShaper",
    "DiscreteActionSpaceRemapperWrapper": "action_maps:ActionRemap",
    "StickyActionsWrapper": "action_maps:StickyButtons",
    "ActionRescale": "action_maps:ActionRescale",
    "ValidActions": "restrict_actions:ValidActions",
    "ALEActionMaskingWrapper": "atari_games:ALEActionMasking",
}
LOWERED = {TIME_LIMIT: "lowered:TimeLimit", FRAME_SKIP: "lowered:FrameSkip"}
# Other names -> ours, and other names of options; read, never written.
ALIASES: dict[str, tuple[str, dict[str, str]]] = {
    "ActionRemap": ("DiscreteActionSpaceRemapperWrapper", {}),
    "ALEActionMasking": ("ALEActionMaskingWrapper", {}),
    "ClipReward": ("RewardClip", {"min_reward": "low", "max_reward": "high"}),
    "DiscreteActionSpaceRemapper": ("DiscreteActionSpaceRemapperWrapper", {}),
    "FrameSkip": (FRAME_SKIP, {}),
    "FrameStack": (FRAME_STACK, {"num_stack": "stack_size"}),
    "GrayScaleObservation": (GRAYSCALE, {}),
    "PixelObservation": (PIXELS, {}),
    "RescaleAction": ("ActionRescale", {"min_action": "low", "max_action": "high"}),
    "RescaleObservation": ("ObservationRescale", {"min_obs": "low", "max_obs": "high"}),
    "StickyActions": ("StickyActionsWrapper", {}),
    "StickyButtons": ("StickyActionsWrapper", {}),
}
# The same, by the import paths of Gymnasium's own.
PATH_ALIASES = {"gymnasium.wrappers.TimeLimit": TIME_LIMIT}
registered: dict[str, "type[VectorWrapper]"] = {}
W = TypeVar("W", bound="type[VectorWrapper]")
Spec = Mapping[str, Any]


@dataclass(frozen=True)
class SingleWrapper:
    """A wrapper around each environment by itself."""

    name: str
    apply: Callable[[Any], Any]


@dataclass(frozen=True)
class EngineNeeds:
    """What wrappers ask of the engine beneath them."""

    max_episode_steps: int | None = None
    frame_skip: tuple[int, int] | None = None
    """Fewest and most frames that an action is held for."""
    draws: bool = False
    """The observations are rendered frames."""
    singles: tuple[SingleWrapper, ...] = ()
    """Wrappers around each environment, innermost first."""
    timeout_s: float | None = None
    """How long `async` waits for an answer."""


def register_wrapper(name: str) -> Callable[[W], W]:
    """Class decorator: make a wrapper known under `name`."""

    def add(wrapper: W) -> W:
        taken = registered.get(name)
        same = taken is not None and taken.__qualname__ == wrapper.__qualname__
        if name in (*SHIPPED, *LOWERED, *ALIASES) or (taken is not None and not same):
            raise EnvError(f"A wrapper named {name!r} exists already; choose another name.")
        registered[name] = wrapper
        return wrapper

    return add


def wrapper_names() -> list[str]:
    """All names that `env_wrappers` may use."""
    return sorted([*SHIPPED, *LOWERED, *ALIASES, *registered])


def lower(
    specs: Sequence[Spec], max_episode_steps: int | None = None
) -> tuple[EngineNeeds, list[Spec]]:
    """What the engine has to do, and the wrappers that go around it.

    Of time limits the smallest holds, wherever it stands. Frames are skipped inside the engine, so
    that an env which ends within a skip waits there for the others; so nothing may lie beneath."""
    limits = [] if max_episode_steps is None else [max_episode_steps]
    for limit in limits:
        if isinstance(limit, bool) or not isinstance(limit, int) or limit < 1:
            raise EnvError(f"max_episode_steps must be an int >= 1 (or null), got {limit!r}.")
    skip: tuple[int, int] | None = None
    rest: list[Spec] = []
    singles: list[SingleWrapper] = []
    draws = False
    for spec in map(_canonical, specs):
        name = spec.get("id")
        wrapper = wrapper_class(name)
        if _is_single(name):
            if rest:
                raise EnvError(
                    f"Wrapper {name} wraps single environments, so it must come before "
                    f"{rest[0]['id']}, which wraps the whole batch. Move it to the front."
                )
            singles.append(SingleWrapper(str(name), partial(wrapper, **_options(spec))))
            draws = draws or _draws(wrapper)
            continue
        if name not in LOWERED:
            rest.append(spec)
            continue
        made = wrapper(None, **_options(spec))
        if name == TIME_LIMIT:
            limits.append(made.max_episode_steps)
        elif rest or skip or singles:
            before = rest[0]["id"] if rest else singles[0].name if singles else "the other"
            raise EnvError(
                f"{FRAME_SKIP} must come first in env_wrappers, and once: the engine skips frames "
                f"itself. Move it before {before}."
            )
        else:
            skip = made.range
    draws = draws or any(spec.get("id") == PIXELS for spec in rest)
    return EngineNeeds(min(limits, default=None), skip, draws, tuple(singles)), rest


def with_frame_options(
    env_id: str, wrappers: Sequence[Spec], given: Mapping[str, Any]
) -> list[Spec]:
    """The wrappers with those that a config's fields ask for. Frames are skipped beneath all other
    wrappers; gray, size and stack come last."""
    specs = list(wrappers)
    if given.get("obs_type") is not None:
        raise EnvError(f"{env_id}: obs_type is an option of Atari games (ALE/...). Leave it unset.")
    if (given.get("frame_skip") or 1) > 1:
        if any(_canonical(spec).get("id") == FRAME_SKIP for spec in specs):
            raise EnvError(f"{env_id}: frame_skip and {FRAME_SKIP} are both given. Use one.")
        specs.insert(0, {"id": FRAME_SKIP, "skip": given["frame_skip"]})
    if given.get("grayscale_obs"):
        specs.append({"id": GRAYSCALE})
    size = given.get("resize_obs")
    if size:
        specs.append({"id": RESIZE, "shape": [84, 84] if size is True else list(size)})
    if (given.get("frame_stack") or 1) > 1:
        specs.append({"id": FRAME_STACK, "stack_size": given["frame_stack"]})
    return specs


def wrap(
    env: "VectorEnv", specs: Sequence[Spec], defaults: Mapping[str, Any] | None = None
) -> "VectorEnv":
    """Wrap `env` in order: the first spec is the innermost. An error closes the env.

    `defaults` are values of the run (its gamma) for options that a wrapper has and a spec lacks."""
    try:
        for spec in map(_canonical, specs):
            made: VectorWrapper = wrapper_class(spec["id"])(env, **_options(spec, defaults or {}))
            made.given = spec
            env = made
    except BaseException:
        env.close()
        raise
    return env


def check_wrappers(specs: Sequence[Spec]) -> None:
    """EnvError for a name that is not registered, or options that the wrapper does not take."""
    for spec in map(_canonical, specs):
        wrapper_class(spec.get("id"))
        _options(spec)
    lower(specs)  # their order


def wrapper_problems(spec: Spec) -> Iterator[tuple[str, str]]:
    """(option, what is wrong) for each problem of an entry; the option "id" is its name."""
    from gymnasium_solver.envs.wrappers.parameters import option_problems

    spec = _canonical(spec)
    try:
        wrapper = wrapper_class(spec.get("id"))
    except EnvError as error:
        yield "id", str(error)
        return
    options = {key: value for key, value in spec.items() if key != "id"}
    if _is_single(spec["id"]):
        from gymnasium_solver.envs.wrappers.by_path import wrong_value

        yield from option_problems(str(spec["id"]), wrapper, options, wrong_value)
    else:
        yield from option_problems(str(spec["id"]), wrapper, options)


def wrapper_class(name: Any) -> Any:
    """The class behind a name, or EnvError with the nearest names."""
    name = ALIASES[name][0] if name in ALIASES else name
    if name in registered:
        if not is_batch_wrapper(registered[name]):
            raise EnvError(
                f"Wrapper {name} acts on a whole batch: {registered[name]!r} must be a class that "
                "derives from gymnasium_solver.envs.vector.VectorWrapper."
            )
        return registered[name]
    target = SHIPPED.get(name) or LOWERED.get(name)
    if target is None:
        if _is_path(name):
            from gymnasium_solver.envs.wrappers.by_path import wrapper_at

            return wrapper_at(name)
        raise _unknown(name)
    module, _, attribute = target.partition(":")
    return getattr(import_module(f"{__name__}.{module}"), attribute)


def _unknown(name: Any) -> EnvError:
    """The error for a name that is neither registered nor an import path."""
    import gymnasium.wrappers

    by_path = {wrapper: f"gymnasium.wrappers.{wrapper}" for wrapper in gymnasium.wrappers.__all__}
    if name in by_path:
        hint = f"Gymnasium's is named by its import path: {by_path[name]}."
    else:
        known = wrapper_names()
        near = nearest(str(name), [*known, *by_path], n=3)
        hint = ask([by_path.get(n, n) if n not in known else n for n in near])
        hint = hint or f"Known: {', '.join(known)}; others by import path: module.ClassName."
    return EnvError(f"Unknown env wrapper {name!r}. {hint}")


def _is_path(name: Any) -> bool:
    return isinstance(name, str) and ("." in name or ":" in name) and name not in registered


def _is_single(name: Any) -> bool:
    if not _is_path(name):
        return False
    from gymnasium_solver.envs.wrappers.by_path import is_single

    return is_single(wrapper_class(name))


def _draws(wrapper: type) -> bool:
    from gymnasium_solver.envs.wrappers.by_path import draws

    return draws(wrapper)


def is_batch_wrapper(wrapper: Any) -> bool:
    """Whether what a plugin registered can be used."""
    from gymnasium_solver.envs.vector import VectorWrapper

    return isinstance(wrapper, type) and issubclass(wrapper, VectorWrapper)


def _canonical(spec: Spec) -> dict[str, Any]:
    """A spec under our own names."""
    path = str(spec.get("id")).replace(":", ".")
    if path in PATH_ALIASES:
        return {**spec, "id": PATH_ALIASES[path]}
    if spec.get("id") not in ALIASES:
        return dict(spec)
    name, renamed = ALIASES[spec["id"]]
    return {renamed.get(key, key): value for key, value in spec.items()} | {"id": name}


def _options(spec: Spec, defaults: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """The checked options of a spec."""
    from gymnasium_solver.envs.wrappers.parameters import check_options, options_of

    wrapper = wrapper_class(spec["id"])
    options = {key: value for key, value in spec.items() if key != "id"}
    if _is_single(spec["id"]):
        from gymnasium_solver.envs.wrappers.by_path import single_options

        return single_options(str(spec["id"]), wrapper, options)
    check_options(str(spec["id"]), wrapper, options)
    known = options_of(wrapper) if defaults else {}
    return {key: value for key, value in (defaults or {}).items() if key in known} | options
