"""Buttons of a game as actions, and the space of its screen.

`actions` in the env_kwargs of VizDoom and Retro is one of

- `single`: Discrete; nothing, or one button;
- `combined`: Discrete; every combination without opposite buttons (2 buttons and fire: 6);
- `buttons`: MultiBinary, each button by itself;
- a list of combinations, each a button or a list of them: `[[], LEFT, [RIGHT, B]]`.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any, Self

import gymnasium
import numpy as np

from gymnasium_solver.envs.suites.game_options import ScreenOptions
from gymnasium_solver.errors import EnvError
from gymnasium_solver.spaces.space_types import Space, is_discrete
from gymnasium_solver.suggest import did_you_mean

KINDS = ("single", "combined", "buttons")
MOST_COMBINED = 1024


@dataclass(frozen=True)
class ActionSet:
    """Rows of a table: which buttons an action holds down."""

    table: np.ndarray  # bool[actions, buttons]
    space: Space

    @classmethod
    def read(
        cls, env_id: str, kind: Any, buttons: Sequence[str], opposite: Sequence[tuple[str, str]]
    ) -> Self:
        """The set that `actions` names, over these buttons."""
        if kind == "buttons":
            return cls(np.eye(len(buttons), dtype=bool), gymnasium.spaces.MultiBinary(len(buttons)))
        if kind == "single":
            pressed: list[list[str]] = [[], *([name] for name in buttons)]
        elif kind == "combined":
            pressed = _combined(env_id, buttons, opposite)
        elif isinstance(kind, list | tuple) and kind:
            pressed = [[item] if isinstance(item, str) else list(item) for item in kind]
        else:
            raise EnvError(
                f"{env_id}: actions must be {', '.join(KINDS)} or a list of buttons held together, "
                f"as [[], {buttons[0]}], got {kind!r}."
            )
        table = np.zeros((len(pressed), len(buttons)), np.bool_)
        for row, names in enumerate(pressed):
            for name in names:
                if name not in buttons:
                    hint = did_you_mean(str(name), buttons, cutoff=0.6)
                    hint = hint or f"It has {', '.join(buttons)}."
                    raise EnvError(
                        f"{env_id}: actions hold the button {name!r}, which is not there. {hint}"
                    )
                table[row, list(buttons).index(name)] = True
        return cls(table, gymnasium.spaces.Discrete(len(table)))

    def presses(
        self, columns: Sequence[int], width: int
    ) -> Callable[[np.ndarray], list[list[float]]]:
        """A function from actions [N] (or [N, buttons]) to `width` numbers a row, ours in
        `columns`."""
        wide = np.zeros((len(self.table), width), np.float64)
        wide[:, list(columns)] = self.table
        if is_discrete(self.space):
            rows: list[list[float]] = wide.tolist()
            return lambda actions: [rows[action] for action in actions]
        return lambda actions: (actions @ wide).tolist()


def _combined(
    env_id: str, buttons: Sequence[str], opposite: Sequence[tuple[str, str]]
) -> list[list[str]]:
    groups: list[list[list[str]]] = []
    left = list(buttons)
    while left:
        name = left.pop(0)
        pair = [name, *(b for pair in opposite if name in pair for b in pair if b in left)]
        left = [b for b in left if b not in pair]
        groups.append([[], *([b] for b in pair)])
    n_actions = int(np.prod([len(group) for group in groups]))
    if n_actions > MOST_COMBINED:
        raise EnvError(
            f"{env_id}: {len(buttons)} buttons make {n_actions:,} combined actions. List those "
            "that make sense under env_kwargs.actions, or use single."
        )
    return [[name for part in choice for name in part] for choice in product(*groups)]


def screen_space(options: ScreenOptions, drawn: tuple[int, ...]) -> gymnasium.spaces.Box:
    """The space of one frame, of which the game draws (height, width)."""
    channels = 1 if options.grayscale_obs else 3
    return gymnasium.spaces.Box(0, 255, (channels, *(options.resize_obs or drawn)), np.uint8)
