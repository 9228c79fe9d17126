"""The options of `ALE/<Game>-v5`: what they are, their defaults, and how a config gives them.

    AtariOptions.read("ALE/Pong-v5", {"obs_type": "ram", "episodic_life": False})

Five of them are fields of every config (obs_type, frame_stack, frame_skip, grayscale_obs,
resize_obs); the others are env_kwargs. game_options.py fills all of them into a config when it is
read, so that `gsolve show` and a run's config.yaml record the protocol in full. `make_vector_env`
takes all of them as env_kwargs.
"""

from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, ConfigDict, Field, ValidationError, model_validator

from gymnasium_solver.config.explain import describe
from gymnasium_solver.config.field_docs import Documented
from gymnasium_solver.config.types import Count, Float, NonNegativeInt
from gymnasium_solver.errors import EnvError
from gymnasium_solver.suggest import ask, did_you_mean

PREFIX = "ALE/"
# Options that are fields of a config; the rest goes into env_kwargs.
FIELDS = ("obs_type", "frame_stack", "frame_skip", "grayscale_obs", "resize_obs")
# What other libraries call them.
FOREIGN = {
    "sticky_actions": "repeat_action_probability",
    "action_repeat_probability": "repeat_action_probability",
    "terminal_on_life_loss": "episodic_life",
    "life_loss_info": "episodic_life",
    "noops": "noop_max",
    "clip_reward": "reward_clip",
    "reward_clipping": "reward_clip",
    "use_fire_reset": "fire_reset",
    "frameskip": "frame_skip",
    "stack_num": "frame_stack",
    "gray_scale": "grayscale_obs",
    "grayscale": "grayscale_obs",
    "img_height": "resize_obs",
    "img_width": "resize_obs",
    "maxpool": "max_pool",
    "max_num_frames": "max_frames",
    "max_num_frames_per_episode": "max_frames",
}


def _size(value: Any) -> Any:
    """true is the usual size, false the screen's, a list a pair."""
    if isinstance(value, bool):
        return (84, 84) if value else (210, 160)
    return tuple(value) if isinstance(value, list) else value


def _plain(name: str, value: Any) -> Any:
    return _size(value) if name == "resize_obs" else value


class AtariOptions(Documented):
    """Everything that decides observations, game rules and learnt rewards."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, defer_build=True)

    obs_type: Literal["rgb", "ram", "objects"] = "rgb"
    """rgb: the screen; ram: the console's 128 bytes; objects: positions and velocities of moving
    objects, read from the ram."""
    frame_stack: Count | None = None
    """Number of stacked observations. Unset: 4 for rgb, 1 for ram and objects."""
    frame_skip: Count = 4
    """Frames that an action is held for: one env step."""
    grayscale_obs: bool | None = None
    """Gray instead of colour. Unset: true for rgb."""
    resize_obs: Annotated[tuple[Count, Count] | None, BeforeValidator(_size)] = None
    """Height and width of rgb observations. Unset or true: 84 x 84; false: 210 x 160, the
    screen's."""
    max_pool: bool = True
    """rgb: the pixel-wise maximum of the last two frames, since games draw some sprites in every
    other frame only. false: the last frame, which only ale-py provides."""
    repeat_action_probability: Annotated[Float, Field(ge=0, lt=1)] = 0.25
    """Sticky actions: the probability that a frame repeats the previous action. 0: off."""
    noop_max: NonNegativeInt = 30
    """A game begins with a random number of no-op frames, at most this many. 0: none."""
    fire_reset: bool = True
    """Press FIRE when a game begins and after each lost life, in games that have FIRE: some wait
    for it."""
    episodic_life: bool = True
    """A lost life terminates the return that is learnt. The game and its score continue."""
    reward_clip: bool = True
    """The learner gets the sign of each reward. Scores are raw."""
    max_frames: Count = 108_000
    """Frames after which a game is truncated (30 minutes)."""
    full_action_space: bool = False
    """All 18 actions instead of those that the game reads."""
    mode: NonNegativeInt | None = None
    """Variant of the game, by its number on the console. Unset: the game's first."""
    difficulty: NonNegativeInt | None = None
    """Position of the difficulty switch. Unset: the game's first."""

    @model_validator(mode="before")
    @classmethod
    def _fill(cls, data: Any) -> Any:
        """What depends on obs_type."""
        data = {name: value for name, value in data.items() if value is not None}
        is_rgb = data.get("obs_type", "rgb") == "rgb"
        data.setdefault("frame_stack", 4 if is_rgb else 1)
        defaults = {"grayscale_obs": True, "resize_obs": (84, 84), "max_pool": True}
        for name, default in defaults.items():
            if is_rgb:
                data.setdefault(name, default)
            elif _plain(name, data.pop(name, default)) != default:
                raise ValueError(f"{name} is for obs_type rgb, not {data['obs_type']}")
        return data

    @classmethod
    def read(cls, env_id: str, env_kwargs: Mapping[str, Any]) -> Self:
        """The checked options; EnvError with one line for each problem."""
        try:
            return cls(**env_kwargs)
        except ValidationError as error:
            lines = (_problem(problem) for problem in error.errors())
            raise EnvError(
                "\n".join(f"{env_id}: {line}" for line in dict.fromkeys(lines))
            ) from None

    @property
    def protocol(self) -> dict[str, Any]:
        """What a score depends on, recorded beside it."""
        return self.model_dump(mode="json")


def _problem(problem: Mapping[str, Any]) -> str:
    field = str(problem["loc"][0]) if problem["loc"] else ""
    known = list(AtariOptions.model_fields)
    if problem["type"] == "extra_forbidden":
        if field in FOREIGN:
            return f"unknown option {field}. {ask([FOREIGN[field]])}"
        hint = did_you_mean(field, known) or f"There are: {', '.join(known)}."
        return f"unknown option {field}. {hint}"
    if problem["type"] == "value_error":
        return str(problem["ctx"]["error"])
    expected = describe(AtariOptions.model_json_schema()["properties"][field])
    return f"{field} is {problem['input']!r}, expected {expected}."
