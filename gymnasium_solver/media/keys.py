"""Which keys mean which action, for a person who plays.

    keys = key_map(stage, action_names(stage))
    keys.action({"left", "space"})       # as the environment's `step` takes it; None: no key counts
    keys.help                            # [("left or 0", "push_left"), ...], to be shown

Keys are named as pygame names them. Labels are read as words: left, right, up, down, forward, fire,
jump, ...; several words are several keys at once. An environment may bring its own keys
(`get_keys_to_action`, as Gymnasium's `play` uses it). Digits choose an action by its number.
"""

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from gymnasium_solver.media.stage import Stage
from gymnasium_solver.spaces.space_types import is_box, is_discrete, is_multi_binary

IDLE = {"noop", "nothing", "none", "idle", "coast", "stay", "wait", "still"}
DIRECTIONS = {
    **dict.fromkeys(("left", "west"), "left"),
    **dict.fromkeys(("right", "east"), "right"),
    **dict.fromkeys(("up", "north", "forward", "forwards", "main", "gas", "throttle"), "up"),
    **dict.fromkeys(("down", "south", "backward", "backwards", "back", "brake"), "down"),
}
BUTTONS = ("space", "x", "z", "c", "v", "b", "f", "g", "h", "j", "k", "l")
"""For all other words, in the order in which labels name them."""
SIDESTEP = {"left": "a", "right": "d"}
"""Left and right of moving, where turning has the arrows."""
PAIRS = (("left", "right"), ("down", "up"), ("a", "d"), ("z", "x"), ("c", "v"), ("f", "g"),
         ("h", "j"), ("k", "l"))  # fmt: skip
"""Less and more of each number of a continuous action."""
ARROWS = ("left", "right", "up", "down")
_JOINED = re.compile(r"(?:up|down|left|right|fire)+")
_WORD = re.compile(r"up|down|left|right|fire")
MOST_SHOWN = 20


def shown(keys: Collection[str]) -> str:
    """Keys held together, as text."""
    return "+".join(sorted(keys, key=lambda key: (key not in ARROWS, key)))


Chord = tuple[frozenset[str], int]
"""Keys held together, and the action that they mean, counted from 0."""


class KeyMap(Protocol):
    """The actions of a person."""

    @property
    def keys(self) -> set[str]:
        """All keys that count."""

    @property
    def help(self) -> list[tuple[str, str]]:
        """(keys, what they do)."""

    def action(self, held: Collection[str], axes: Sequence[float] = ()) -> np.ndarray | None:
        """The action of the keys held; `axes`: of a gamepad, in [-1, 1], to the right and up. None:
        no key is held, and there is no action for that; the environment waits."""


@dataclass
class ChoiceKeys:
    """Discrete actions: the one that needs the most of the keys held."""

    names: Sequence[str]
    start: int
    chords: Sequence[Chord] = ()
    idle: int | None = None

    def __post_init__(self) -> None:
        taken = {key for chord, _ in self.chords for key in chord}
        self.digits = {str(i): i for i in range(min(10, len(self.names))) if str(i) not in taken}

    @property
    def keys(self) -> set[str]:
        return {key for chord, _ in self.chords for key in chord} | set(self.digits)

    @property
    def help(self) -> list[tuple[str, str]]:
        lines = []
        for i, name in enumerate(self.names[:MOST_SHOWN]):
            keys = [shown(chord) for chord, action in self.chords if action == i]
            keys += [digit for digit, action in self.digits.items() if action == i]
            lines.append((" or ".join(keys) or "no key" * (i == self.idle), name))
        return [(keys, name) for keys, name in lines if keys]

    def action(self, held: Collection[str], axes: Sequence[float] = ()) -> np.ndarray | None:
        for digit, action in self.digits.items():
            if digit in held:
                return np.array(action + self.start)
        best, size = self.idle, 0
        for chord, action in self.chords:
            if len(chord) > size and chord <= set(held):
                best, size = action, len(chord)
        return None if best is None else np.array(best + self.start)


@dataclass
class ButtonKeys:
    """MultiBinary actions: a key for each button."""

    names: Sequence[str]
    shape: tuple[int, ...]
    of_button: list[str]

    @property
    def keys(self) -> set[str]:
        return {key for key in self.of_button if key}

    @property
    def help(self) -> list[tuple[str, str]]:
        pairs = zip(self.of_button, self.names, strict=True)
        return [(shown([key]), name) for key, name in pairs if key][:MOST_SHOWN]

    def action(self, held: Collection[str], axes: Sequence[float] = ()) -> np.ndarray:
        bits = [int(bool(key) and key in held) for key in self.of_button]
        return np.array(bits, np.int64).reshape(self.shape)


@dataclass
class AxisKeys:
    """Continuous actions: a key for less and one for more of each number; a gamepad's stick moves
    the first two."""

    names: Sequence[str]
    space: Any
    pairs: list[tuple[str, str]]

    def __post_init__(self) -> None:
        low, high = (np.asarray(end, np.float64).reshape(-1) for end in _ends(self.space))
        self._low, self._high = low, high
        self._rest = np.where((low <= 0) & (high >= 0), 0.0, (low + high) / 2)

    @property
    def keys(self) -> set[str]:
        return {key for pair in self.pairs for key in pair if key}

    @property
    def help(self) -> list[tuple[str, str]]:
        pairs = zip(self.pairs, self.names, strict=False)
        return [(" ".join(shown([key]) for key in pair if key), name) for pair, name in pairs]

    def action(self, held: Collection[str], axes: Sequence[float] = ()) -> np.ndarray:
        numbers = self._rest.copy()
        for i, push in enumerate(axes[: len(numbers)]):
            end = self._high[i] if push > 0 else self._low[i]
            numbers[i] += abs(push) * (end - self._rest[i])
        for i, (less, more) in enumerate(self.pairs):
            if (less in held) != (more in held):
                numbers[i] = self._high[i] if more in held else self._low[i]
        return numbers.astype(np.float32).reshape(self.space.shape)


def _ends(space: Any) -> tuple[np.ndarray, np.ndarray]:
    """Bounds, 1 away from 0 where there are none."""
    low = np.where(np.isfinite(space.low), space.low, -1.0)
    return low, np.where(np.isfinite(space.high), space.high, 1.0)


# -- from a stage -----------------------------------------------------------------------------


def key_map(stage: Stage, names: Sequence[str]) -> KeyMap | None:
    """The keys of an environment; None if its actions cannot be given by keys."""
    space = stage.env.action_space
    if is_discrete(space):
        own = own_keys(stage)
        idle = next((action for chord, action in own if not chord), idle_action(names))
        chords = [chord for chord in own or chords_of(names) if chord[0]]
        return ChoiceKeys(names, int(space.start), chords, idle)
    if is_multi_binary(space):
        return ButtonKeys(names, tuple(space.shape), button_keys(names))
    if is_box(space):
        return AxisKeys(names, space, axis_pairs(names, space))
    return None


def idle_action(names: Sequence[str]) -> int | None:
    """The action that does nothing."""
    for i, name in enumerate(names):
        words = set(_words(name)) - {"do", "torque", "action", "accelerate", "don", "t"}
        if (words and words <= IDLE) or (name.endswith("_0") and len(names) == 3 and i == 1):
            return i
    return None


def chords_of(names: Sequence[str]) -> list[Chord]:
    """Keys for each label whose words are understood."""
    words = {i: _words(name) for i, name in enumerate(names) if i != idle_action(names)}
    given_words = [set(given) for given in words.values()]
    common = set.intersection(*given_words) if len(words) > 1 else set()
    turns = "turn" in set().union(*given_words) and any(
        _sidesteps(given) for given in words.values()
    )
    buttons = iter(BUTTONS)
    key_of: dict[str, str] = {}
    chords: dict[frozenset[str], int] = {}
    for i, given in words.items():
        chord = set()
        for word in given:
            if word in common or word in ("turn", "move", "push", "go", "accelerate"):
                continue
            if word in DIRECTIONS:
                key = DIRECTIONS[word]
                chord.add(SIDESTEP.get(key, key) if turns and _sidesteps(given) else key)
                continue
            if word not in key_of:
                key_of[word] = next(buttons, "")
            chord.add(key_of[word])
        if chord and "" not in chord:
            chords.setdefault(frozenset(chord), i)
    return list(chords.items())


def _sidesteps(words: Sequence[str]) -> bool:
    """Whether a label means moving to a side, and not turning."""
    return "turn" not in words and bool({"left", "right"} & set(words))


def _words(name: str) -> list[str]:
    """`up_right_fire` and `uprightfire` -> up, right, fire; words such as pick_up stay whole."""
    lower = name.lower().replace("pick_up", "pickup").replace("drop_off", "dropoff")
    if _JOINED.fullmatch(lower):
        return _WORD.findall(lower)
    return [word for word in re.split(r"[^a-z0-9]+", lower) if word]


def button_keys(names: Sequence[str]) -> list[str]:
    """One key for each button; "" where keys run out."""
    directions = [DIRECTIONS.get(name.lower().removeprefix("move_"), "") for name in names]
    left = iter(BUTTONS)
    keys: list[str] = []
    for key in directions:
        keys.append(key if key and key not in keys else next(left, ""))
    return keys


def axis_pairs(names: Sequence[str], space: Any) -> list[tuple[str, str]]:
    """(less, more) for each number, as far as keys go."""
    low = np.asarray(space.low).reshape(-1)
    fixed = {i: DIRECTIONS[name] for i, name in enumerate(names) if name in DIRECTIONS}
    free = iter(pair for pair in PAIRS if not set(pair) & set(fixed.values()))
    pairs = []
    for i in range(min(len(low), len(PAIRS))):
        if i in fixed and low[i] >= 0:
            pairs.append(("", fixed[i]))
        else:
            pairs.append(next(free, ("", "")))
    return pairs


def own_keys(stage: Stage) -> list[Chord]:
    """What the environment's own `get_keys_to_action` says, if wrappers leave its actions alone."""
    single = stage.single()
    native = None if single is None else single.unwrapped
    if native is None or not hasattr(native, "get_keys_to_action"):
        return []
    if native.action_space != stage.env.action_space:
        return []
    try:
        given: Mapping[Any, Any] = native.get_keys_to_action()
        return [
            (frozenset(map(_key_name, keys if isinstance(keys, tuple) else (keys,))), int(action))
            for keys, action in given.items()
        ]
    except (AttributeError, TypeError, ValueError):
        return []


def _key_name(key: str | int) -> str:
    """`" "`, `"w"`, or a code of pygame's, by name."""
    if isinstance(key, str):
        return "space" if key == " " else key.lower()
    if key < 128:
        return "space" if key == 32 else chr(key).lower()
    import pygame

    return str(pygame.key.name(key))
