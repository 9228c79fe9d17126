"""Which keys mean which action, for a person who plays.

    keys = key_map(stage, action_names(stage))
    keys.action({"left", "space"})       # as the environment's `step` takes it; None: no key counts
    keys.help                            # [("left or 0", "push_left"), ...], to be shown

Keys are named as pygame names them. Labels are read as words: left, right, up, down, forward, fire,
jump, ...; several words are several keys at once. An environment may bring its own keys
(`get_keys_to_action`, as Gymnasium's `play` uses it). Digits choose an action by its number.
"""

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

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
"""Keys for all other words, in the order in which labels name them."""
SIDESTEP = {"left": "a", "right": "d"}  # left and right of moving, where turning has the arrows
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


@dataclass(frozen=True)
class KeyMap:
    """The actions of a person."""

    keys: set[str]  # all keys that count
    help: list[tuple[str, str]]  # (keys, what they do)
    choose: Callable[[Collection[str], Sequence[float]], np.ndarray | None]

    def action(self, held: Collection[str], axes: Sequence[float] = ()) -> np.ndarray | None:
        """The action of the keys held; `axes`: of a gamepad, in [-1, 1], to the right and up. None:
        no key is held, and there is no action for that; the environment waits."""
        return self.choose(held, axes)


def choice_keys(
    names: Sequence[str], start: int, chords: Sequence[Chord] = (), idle: int | None = None
) -> KeyMap:
    """Discrete actions: the one that needs the most of the keys held."""
    taken = {key for chord, _ in chords for key in chord}
    digits = {str(i): i for i in range(min(10, len(names))) if str(i) not in taken}
    every = [*chords, *((frozenset([digit]), action) for digit, action in digits.items())]
    lines = []
    for i, name in enumerate(names[:MOST_SHOWN]):
        keys = [shown(chord) for chord, action in every if action == i]
        lines.append((" or ".join(keys) or "no key" * (i == idle), name))

    def choose(held: Collection[str], axes: Sequence[float]) -> np.ndarray | None:
        pressed = [digits[key] for key in digits if key in held]
        best, size = idle, 0
        for chord, action in chords:
            if len(chord) > size and chord <= set(held):
                best, size = action, len(chord)
        best = pressed[0] if pressed else best
        return None if best is None else np.array(best + start)

    return KeyMap(taken | set(digits), [line for line in lines if line[0]], choose)


def button_keys(names: Sequence[str], shape: tuple[int, ...]) -> KeyMap:
    """MultiBinary actions: a key for each button, as far as keys go."""
    directions = [DIRECTIONS.get(name.lower().removeprefix("move_"), "") for name in names]
    left = iter(BUTTONS)
    keys: list[str] = []
    for key in directions:
        keys.append(key if key and key not in keys else next(left, ""))
    lines = [(key, name) for key, name in zip(keys, names, strict=True) if key]

    def choose(held: Collection[str], axes: Sequence[float]) -> np.ndarray:
        bits = [int(bool(key) and key in held) for key in keys]
        return np.array(bits, np.int64).reshape(shape)

    return KeyMap({key for key in keys if key}, lines[:MOST_SHOWN], choose)


def axis_keys(names: Sequence[str], space: Any) -> KeyMap:
    """Continuous actions: a key for less and one for more of each number, as far as keys go; a
    gamepad's stick moves the first two. Numbers without bounds move by 1."""
    low = np.where(np.isfinite(space.low), space.low, -1.0).reshape(-1)
    high = np.where(np.isfinite(space.high), space.high, 1.0).reshape(-1)
    rest = np.where((low <= 0) & (high >= 0), 0.0, (low + high) / 2)
    fixed = {i: DIRECTIONS[name] for i, name in enumerate(names) if name in DIRECTIONS}
    free = iter(pair for pair in PAIRS if not set(pair) & set(fixed.values()))
    pairs = [
        ("", fixed[i]) if i in fixed and low[i] >= 0 else next(free, ("", ""))
        for i in range(min(len(low), len(PAIRS)))
    ]
    lines = [
        (" ".join(key for key in pair if key), name)
        for pair, name in zip(pairs, names, strict=False)
    ]

    def choose(held: Collection[str], axes: Sequence[float]) -> np.ndarray:
        numbers = rest.copy()
        for i, push in enumerate(axes[: len(numbers)]):
            numbers[i] += abs(push) * ((high if push > 0 else low)[i] - rest[i])
        for i, (less, more) in enumerate(pairs):
            if (less in held) != (more in held):
                numbers[i] = high[i] if more in held else low[i]
        return numbers.astype(np.float32).reshape(space.shape)

    return KeyMap({key for pair in pairs for key in pair if key}, lines, choose)


# -- from a stage -----------------------------------------------------------------------------


def key_map(stage: Stage, names: Sequence[str]) -> KeyMap | None:
    """The keys of an environment; None if its actions cannot be given by keys."""
    space = stage.env.action_space
    if is_discrete(space):
        own = own_keys(stage)
        idle = next((action for chord, action in own if not chord), idle_action(names))
        chords = [chord for chord in own or chords_of(names) if chord[0]]
        return choice_keys(names, int(space.start), chords, idle)
    if is_multi_binary(space):
        return button_keys(names, tuple(space.shape))
    if is_box(space):
        return axis_keys(names, space)
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
