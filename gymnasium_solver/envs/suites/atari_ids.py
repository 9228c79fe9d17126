"""Other ids of Atari games, and what they are here: PongNoFrameskip-v4, Pong-v4, Pong-ram-v0, ...

    modern("PongNoFrameskip-v4").env_id      "ALE/Pong-v5"
    modern("PongNoFrameskip-v4").options     {"repeat_action_probability": 0.0}

Gym's old ids differ in three things: sticky actions (v0: 0.25, v4: none), the frames that an action
is held for (random from 2 to 4, Deterministic 4, NoFrameskip 1), and what is seen (screen or
RAM). SB3, CleanRL and others train NoFrameskip-v4 with a wrapper that holds actions for 4 frames:
the protocol that ALE/Pong-v5 has here without sticky actions. EnvPool's Pong-v5 has none either.
Light to import: ids in configs are read without Gymnasium.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from gymnasium_solver.suggest import nearest

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
GAMES = frozenset(_NAMES.split())
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
    if found is None or found["game"] not in GAMES or env_id in _TOY_TEXT:
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
    names = nearest(found["game"], GAMES) if found and found["kind"] else []
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
