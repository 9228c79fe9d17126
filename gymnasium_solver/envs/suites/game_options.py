"""The options of games that are seen through their screen, and their defaults in a config.

    ScreenOptions.read("VizDoom-Basic-v0", {"frame_skip": 2, "actions": "single"})
    fill_defaults({"env_id": "VizDoom-Basic-v0", ...})

VizDoom and Retro take the four options of `ScreenOptions`; Atari has more (atari_options.py). They
are fields of every config, and `make_vector_env` takes them as env_kwargs too. `fill_defaults`
writes the values in force into a config that is being read, so that `gsolve show` and a run's
config.yaml record them. Light to import: config files are read without NumPy or Gymnasium.
"""

from collections.abc import Mapping
from typing import Annotated, Any, Self

from pydantic import BeforeValidator, ConfigDict, ValidationError

from gymnasium_solver.config.field_docs import Documented
from gymnasium_solver.config.types import Count
from gymnasium_solver.envs.suites.atari_options import FIELDS as ATARI_FIELDS
from gymnasium_solver.envs.suites.atari_options import PREFIX as ATARI_PREFIX
from gymnasium_solver.envs.suites.atari_options import AtariOptions
from gymnasium_solver.errors import ConfigError, EnvError

SCREEN_PREFIXES = ("VizDoom-", "Retro/")
SCREEN_FIELDS = ("frame_skip", "frame_stack", "grayscale_obs", "resize_obs")


def _size(value: Any) -> Any:
    """true is the usual size; false the size that the game draws; a list is a pair."""
    if value is True:
        return (84, 84)
    if value is False:
        return None
    return tuple(value) if isinstance(value, list) else value


class ScreenOptions(Documented):
    """How the frames of a game become observations."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, defer_build=True)

    frame_skip: Count = 4
    """Frames that an action is held for: one env step."""
    frame_stack: Count = 4
    """How many of the last frames are seen at once."""
    grayscale_obs: bool = True
    """Gray instead of colour."""
    resize_obs: Annotated[tuple[Count, Count] | None, BeforeValidator(_size)] = (84, 84)
    """(height, width) of an observation; None: as the game draws it."""

    @classmethod
    def read(cls, env_id: str, env_kwargs: Mapping[str, Any]) -> Self:
        """The options among the env_kwargs, checked; other keys are ignored."""
        given = {
            name: env_kwargs[name] for name in SCREEN_FIELDS if env_kwargs.get(name) is not None
        }
        try:
            return cls(**given)
        except ValidationError as error:
            lines = (_problem(env_id, problem) for problem in error.errors())
            raise EnvError("\n".join(dict.fromkeys(lines))) from None

    @property
    def fields(self) -> dict[str, Any]:
        """As a config holds them: false where frames keep their size."""
        values = self.model_dump(mode="json")
        return {**values, "resize_obs": values["resize_obs"] or False}


def _problem(env_id: str, problem: Mapping[str, Any]) -> str:
    name = str(problem["loc"][0])
    expected = {
        "grayscale_obs": "true or false",
        "resize_obs": "[height, width], true or false",
    }.get(name, "an int >= 1")
    return f"{env_id}: {name} must be {expected}, got {problem['input']!r}."


def fill_defaults(data: Mapping[str, Any]) -> dict[str, Any]:
    """The lines of a config with every option of a game's suite filled in. Configs of other suites
    are returned as they are."""
    env_id, given = data.get("env_id"), data.get("env_kwargs") or {}
    if not isinstance(env_id, str) or not isinstance(given, Mapping):
        return dict(data)  # the config's own check reports it
    is_atari = env_id.startswith(ATARI_PREFIX)
    if not is_atari and not env_id.startswith(SCREEN_PREFIXES):
        return dict(data)
    names = ATARI_FIELDS if is_atari else SCREEN_FIELDS
    top = {name: data[name] for name in names if data.get(name) is not None}
    for name in names:
        if name in given and name in top:
            raise ConfigError(f"{name} is given twice: as a field and in env_kwargs. Give one.")
    try:
        if is_atari:
            kwargs = AtariOptions.read(env_id, {**given, **top}).model_dump(mode="json")
            fields = {name: kwargs.pop(name) for name in names}
        else:
            fields = ScreenOptions.read(env_id, {**given, **top}).fields
            kwargs = {key: value for key, value in given.items() if key not in names}
    except EnvError as error:
        raise ConfigError(str(error)) from None
    return {**data, **fields, "env_kwargs": kwargs}
