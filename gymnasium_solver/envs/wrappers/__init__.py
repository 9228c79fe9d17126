"""Batch wrappers by name, as a config has them: `env_wrappers: [{id: RewardScale, scale: 0.1}]`.

A wrapper is a `VectorWrapper` whose constructor takes the env and keyword parameters, which are
checked by their annotations (options.py); wrapping.py puts it around an env. Write your own in a
module named in `plugins`:

    @register_wrapper("HalfReward")
    class HalfReward(VectorWrapper): ...

A wrapper that is not registered is named by its import path: any of Gymnasium's, or a class of the
user's own. Importing this module is light: names are known without importing NumPy or Gymnasium.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from gymnasium_solver.errors import EnvError

if TYPE_CHECKING:
    from gymnasium_solver.envs.vector import VectorWrapper

# Made by the engine itself, not by a class here: see `lower` in wrapping.py.
TIME_LIMIT = "TimeLimit"
FRAME_SKIP = "FrameSkipWrapper"
PIXELS = "PixelObservationWrapper"
# What the fields grayscale_obs, resize_obs and frame_stack stand for, where an env has no such
# options itself.
GRAYSCALE, RESIZE = "GrayscaleObservation", "ResizeObservation"
FRAME_STACK = "FrameStackObservation"
# id -> module of this package, and class.
SHIPPED = {
    "DiscreteEncoder": "observations:DiscreteEncoder",
    "ObservationScale": "observations:ObservationScale",
    "ObservationClip": "observations:ObservationClip",
    "ObservationRescale": "observations:ObservationRescale",
    "ObservationComponents": "observations:ObservationComponents",
    PIXELS: "frames:PixelObservation",
    "ObservationParts": "observations:ObservationParts",
    GRAYSCALE: "frames:GrayscaleObservation",
    RESIZE: "frames:ResizeObservation",
    FRAME_STACK: "frames:FrameStackObservation",
    "PongV5_FeatureExtractor": "atari:PongFeatures",
    "BreakoutV5_FeatureExtractor": "atari:BreakoutFeatures",
    "RewardScale": "shaping:RewardScale",
    "RewardClip": "shaping:RewardClip",
    "ActionRewardShaper": "shaping:ActionRewardShaper",
    "CartPoleV1_RewardShaper": "shaping:CartPoleRewardShaper",
    "MountainCarV0_RewardShaper": "shaping:MountainCarRewardShaper",
    "MountainCarV0_StateCountBonus": "shaping:MountainCarStateCountBonus",
    "PongV5_RewardShaper": "atari:PongRewardShaper",
    "VizDoom_RewardShaper": "shaping:VizDoomRewardShaper",
    "RetroSuperMarioBros_RewardShaper": "shaping:MarioRewardShaper",
    "DiscreteActionSpaceRemapperWrapper": "actions:ActionRemap",
    "StickyActionsWrapper": "actions:StickyButtons",
    "ActionRescale": "actions:ActionRescale",
    "ValidActions": "actions:ValidActions",
    "ALEActionMaskingWrapper": "atari:ALEActionMasking",
}
LOWERED = {TIME_LIMIT: "wrapping:TimeLimit", FRAME_SKIP: "wrapping:FrameSkip"}
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


def id_of(wrapper: object) -> str:
    """The id under which a wrapper's class is shipped; else the name of the class."""
    name = type(wrapper).__name__
    shipped = {target.partition(":")[2]: id for id, target in (SHIPPED | LOWERED).items()}
    return shipped.get(name, name)


def wrapper_names() -> list[str]:
    """All names that `env_wrappers` may use."""
    return sorted([*SHIPPED, *LOWERED, *ALIASES, *registered])
