"""The options of games that are seen through their screen, their defaults in a config, and old ids.

    AtariOptions.read("ALE/Pong-v5", {"obs_type": "ram", "episodic_life": False})
    ScreenOptions.read("VizDoom-Basic-v0", {"frame_skip": 2, "actions": "single"})
    fill_defaults({"env_id": "VizDoom-Basic-v0", ...})
    modern("PongNoFrameskip-v4").env_id      # "ALE/Pong-v5"

Some options are fields of every config; `make_vector_env` takes all of them as env_kwargs.
`fill_defaults` writes those in force into a config that is being read, so that a run's config.yaml
records the protocol in full. Light to import: config files are read without NumPy or Gymnasium.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, ConfigDict, Field, ValidationError, model_validator

from gymnasium_solver.config.explain import describe
from gymnasium_solver.config.field_docs import Documented
from gymnasium_solver.config.foreign import table
from gymnasium_solver.config.types import Count, Float, NonNegativeInt
from gymnasium_solver.errors import ConfigError, EnvError
from gymnasium_solver.suggest import ask, did_you_mean, nearest

ATARI_PREFIX = "ALE/"
# Options that are fields of a config; the rest goes into env_kwargs.
ATARI_FIELDS = ("obs_type", "frame_stack", "frame_skip", "grayscale_obs", "resize_obs")
# What other libraries call them.
FOREIGN = table("games")
SCREEN_PREFIXES = ("VizDoom-", "Retro/")
SCREEN_FIELDS = ("frame_skip", "frame_stack", "grayscale_obs", "resize_obs")
USUAL_SIZE, ATARI_SIZE = (84, 84), (210, 160)


def _size(value: Any, drawn: tuple[int, int] | None = None) -> Any:
    """true is the usual size, false the size that the game draws, a list a pair."""
    if isinstance(value, bool):
        return USUAL_SIZE if value else drawn
    return tuple(value) if isinstance(value, list) else value


def _atari_size(value: Any) -> Any:
    return _size(value, ATARI_SIZE)


class GameOptions(Documented):
    """Base of the options of a suite."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, defer_build=True)

    @classmethod
    def read(cls, env_id: str, env_kwargs: Mapping[str, Any]) -> Self:
        """The checked options; EnvError with one line for each problem."""
        try:
            return cls(**env_kwargs)
        except ValidationError as error:
            lines = dict.fromkeys(cls._explain(problem) for problem in error.errors())
            raise EnvError("\n".join(f"{env_id}: {line}" for line in lines)) from None

    @classmethod
    def _explain(cls, problem: Mapping[str, Any]) -> str:
        field = str(problem["loc"][0]) if problem["loc"] else ""
        known = list(cls.model_fields)
        if problem["type"] == "extra_forbidden":
            hint = ask([FOREIGN[field]]) if field in FOREIGN else did_you_mean(field, known)
            hint = hint or f"There are: {', '.join(known)}."
            return f"unknown option {field}. {hint}"
        if problem["type"] == "value_error":
            return str(problem["ctx"]["error"])
        expected = describe(cls.model_json_schema()["properties"][field])
        if field == "resize_obs":
            expected = "[height, width], true or false"
        return f"{field} is {problem['input']!r}, expected {expected}."


class AtariOptions(GameOptions):
    """Everything that decides observations, game rules and learnt rewards."""

    obs_type: Literal["rgb", "ram", "objects"] = "rgb"
    """rgb: the screen; ram: the console's 128 bytes; objects: positions and velocities of moving
    objects, read from the ram."""
    frame_stack: Count | None = None
    """Number of stacked observations. Unset: 4 for rgb, 1 for ram and objects."""
    frame_skip: Count = 4
    """Frames that an action is held for: one env step."""
    grayscale_obs: bool | None = None
    """Gray instead of colour. Unset: true for rgb."""
    resize_obs: Annotated[tuple[Count, Count] | None, BeforeValidator(_atari_size)] = None
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
        defaults = {"grayscale_obs": True, "resize_obs": USUAL_SIZE, "max_pool": True}
        for name, default in defaults.items():
            if is_rgb:
                data.setdefault(name, default)
                continue
            given = data.pop(name, default)
            if (_atari_size(given) if name == "resize_obs" else given) != default:
                raise ValueError(f"{name} is for obs_type rgb, not {data['obs_type']}")
        return data

    @property
    def protocol(self) -> dict[str, Any]:
        """What a score depends on, recorded with it."""
        return self.model_dump(mode="json")


class ScreenOptions(GameOptions):
    """How the frames of a game become observations."""

    frame_skip: Count = 4
    """Frames that an action is held for: one env step."""
    frame_stack: Count = 4
    """How many of the last frames are seen at once."""
    grayscale_obs: bool = True
    """Gray instead of colour."""
    resize_obs: Annotated[tuple[Count, Count] | None, BeforeValidator(_size)] = USUAL_SIZE
    """(height, width) of an observation; None: as the game draws it."""

    @classmethod
    def read(cls, env_id: str, env_kwargs: Mapping[str, Any]) -> Self:
        """The options among the env_kwargs, checked; other keys are ignored."""
        return super().read(
            env_id,
            {name: env_kwargs[name] for name in SCREEN_FIELDS if env_kwargs.get(name) is not None},
        )

    @property
    def fields(self) -> dict[str, Any]:
        """The options as a config holds them: false where frames keep their size."""
        values = self.model_dump(mode="json")
        return {**values, "resize_obs": values["resize_obs"] or False}


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


# -- other ids of Atari games: PongNoFrameskip-v4, Pong-v4, Pong-ram-v0, ... ----------------------

# Gym's old ids differ in three things: sticky actions (v0: 0.25, v4: none), the frames that an
# action is held for (random from 2 to 4, Deterministic 4, NoFrameskip 1), and what is seen (screen
# or RAM). SB3, CleanRL and others train NoFrameskip-v4 with a wrapper that holds actions for 4
# frames: the protocol that ALE/Pong-v5 has here without sticky actions. EnvPool's Pong-v5 has none
# either.
_NAMES = """
Adventure AirRaid Alien Amidar Assault Asterix Asteroids Atlantis Atlantis2 Backgammon BankHeist
BasicMath BattleZone BeamRider Berzerk Blackjack Bowling Boxing Breakout Carnival Casino Centipede
ChopperCommand CrazyClimber Crossbow Darkchambers Defender DemonAttack DonkeyKong DoubleDunk
Earthworld ElevatorAction Enduro Entombed Et FishingDerby FlagCapture Freeway Frogger Frostbite
Galaxian Gopher Gravitar Hangman HauntedHouse Hero HumanCannonball IceHockey Jamesbond
JourneyEscape Kaboom Kangaroo KeystoneKapers KingKong Klax Koolaid Krull KungFuMaster LaserGates
LostLuggage MarioBros MiniatureGolf MontezumaRevenge MrDo MsPacman NameThisGame Othello Pacman
Phoenix Pitfall Pitfall2 Pong Pooyan PrivateEye Qbert Riverraid RoadRunner Robotank Seaquest
SirLancelot Skiing Solaris SpaceInvaders SpaceWar StarGunner Superman Surround Tennis Tetris
TicTacToe3d TimePilot Trondead Turmoil Tutankham UpNDown Venture VideoCheckers VideoChess
VideoCube VideoPinball WizardOfWor WordZapper YarsRevenge Zaxxon
"""
ATARI_GAMES = frozenset(_NAMES.split())
_ID = re.compile(r"(?P<game>\w+?)(?P<ram>-ram)?(?P<kind>NoFrameskip|Deterministic)?-v(?P<v>[045])")
_STICKY = 0.25
_TOY_TEXT = ("Blackjack-v0",)  # Gym's card game had this id


@dataclass(frozen=True)
class ModernId:
    """What an old id is here."""

    env_id: str
    options: dict[str, Any]
    note: str


def modern(env_id: str) -> ModernId | None:
    """The id, options and note for another id of an Atari game; None for any other id."""
    found = _ID.fullmatch(env_id)
    if found is None or found["game"] not in ATARI_GAMES or env_id in _TOY_TEXT:
        return None
    if found["v"] == "5" and (found["kind"] or found["ram"]):
        return None  # there never was such an id
    new_id = f"ALE/{found['game'].replace('TicTacToe3d', 'TicTacToe3D')}-v5"
    sticky = _STICKY if found["v"] == "0" else 0.0
    options: dict[str, Any] = {"repeat_action_probability": sticky}
    if found["ram"]:
        options["obs_type"] = "ram"
    return ModernId(new_id, options, _note(env_id, new_id, found["kind"] or "", sticky, found["v"]))


def _note(env_id: str, new_id: str, kind: str, sticky: float, version: str) -> str:
    actions = f"sticky actions ({sticky:g})" if sticky else "no sticky actions"
    text = f"{env_id} is {new_id} here, with {actions} and an action held for 4 frames"
    if version == "5":
        return f"{text}; lives, rewards and no-ops as in docs/atari.md, not EnvPool's own"
    compared = {
        "NoFrameskip": "as other libraries wrap it: scores compare with theirs",
        "Deterministic": "as it was: scores compare",
        "": "where it was a random 2 to 4: scores compare roughly",
    }[kind]
    other = "" if sticky else f", not with those of {new_id}, which has sticky actions (0.25)"
    return f"{text}, {compared}{other}"


def near_games(env_id: str) -> list[str]:
    """Ids of games with a similar name, for an old id of a game that does not exist."""
    found = _ID.fullmatch(env_id)
    names = nearest(found["game"], ATARI_GAMES) if found and found["kind"] else []
    return [f"ALE/{name}-v5" for name in names]


def modernised(data: Mapping[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """The lines of a config with an old id replaced, and the notes about it. Options that are given
    stay as they are."""
    found = modern(data["env_id"]) if isinstance(data.get("env_id"), str) else None
    kwargs = data.get("env_kwargs") or {}
    if found is None or not isinstance(kwargs, Mapping):
        return dict(data), []
    options = dict(found.options)
    obs_type = options.pop("obs_type", None)
    lines = {**data, "env_id": found.env_id, "env_kwargs": {**options, **kwargs}}
    if obs_type is not None and data.get("obs_type") is None and "obs_type" not in kwargs:
        lines["obs_type"] = obs_type
    return lines, [found.note]
