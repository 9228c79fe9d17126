"""Actions, observations and decisions for display: their names (from the config's spec, or from the
spaces), actions in words, and bars of what the agent computes."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from gymnasium_solver.config.spec import Component
from gymnasium_solver.envs.suites.game_options import ATARI_PREFIX
from gymnasium_solver.media.player import Decision
from gymnasium_solver.media.stage import Stage
from gymnasium_solver.spaces.observations import obs_arrays, part_spaces
from gymnasium_solver.spaces.space_types import (
    is_box,
    is_discrete,
    is_multi_binary,
    is_multi_discrete,
)

MOST_COMPONENTS = 64
HUGE = 1e30  # larger bounds count as unbounded
MINIGRID = ("left", "right", "forward", "pickup", "drop", "toggle", "done")


@dataclass(frozen=True)
class Feature:
    """One number of an observation."""

    name: str
    low: float | None = None
    high: float | None = None
    unit: str = ""


def action_names(stage: Stage) -> list[str]:
    """A name for each choice of a Discrete space, each bit, or each number of a Box."""
    space = stage.env.action_space
    n = _width(space)
    for known in (stage.spec.action_space.label_list, partial(_known_names, stage)):
        if len(given := known()) == n:
            return given
    word = "action" if is_discrete(space) else "button" if is_multi_binary(space) else "component"
    start = int(space.start) if is_discrete(space) else 0
    return [f"{word} {i + start}" for i in range(n)]


def _width(space: Any) -> int:
    if is_discrete(space):
        return int(space.n)
    return 0 if space.shape is None else math.prod(space.shape)


def _known_names(stage: Stage) -> list[str]:
    if stage.env.spec.suite == "minigrid":
        return list(MINIGRID)
    is_atari = stage.config.env_id.startswith(ATARI_PREFIX) and not stage.config.env_wrappers
    return _atari_names(stage.config.env_id) if is_atari else []


def _atari_names(env_id: str) -> list[str]:
    """The actions that a game uses, as ale-py names them; [] without ale-py."""
    try:
        from ale_py import ALEInterface, LoggerMode, roms
    except ImportError:
        return []
    game = env_id.removeprefix(ATARI_PREFIX).removesuffix("-v5")
    snake = "".join(f"_{c.lower()}" if c.isupper() else c for c in game).lstrip("_")
    try:
        ALEInterface.setLoggerMode(LoggerMode.Error)
        ale = ALEInterface()
        rom = roms.get_rom_path(snake)
        if rom is None:
            return []
        ale.loadROM(rom)
        return [action.name.lower() for action in ale.getMinimalActionSet()]
    except (OSError, RuntimeError, AttributeError, TypeError):
        return []


def action_text(stage: Stage, names: Sequence[str], action: Any) -> str:
    """One action in words: its label, the buttons held, or the numbers."""
    space = stage.env.action_space
    if is_discrete(space):
        return names[int(action) - int(space.start)]
    flat = np.asarray(action).reshape(-1)
    if is_multi_binary(space):
        held = [name for name, bit in zip(names, flat, strict=True) if bit]
        return " + ".join(held) or "nothing"
    if is_box(space):
        shown = " ".join(f"{number:+.2f}" for number in flat[:6])
        return shown + (" …" if len(flat) > 6 else "")
    return " ".join(f"{number:g}" for number in flat)


def features(stage: Stage, most: int = MOST_COMPONENTS) -> list[Feature]:
    """The numbers of the raw observation in order; [] of an image, and where there are more."""
    space = stage.tap.observation_space
    parts = part_spaces(space)
    width = sum(_numbers(part) for part in parts.values())
    if width == 0 or width > most:
        return []
    view = stage.spec.observation_space.view(stage.config.obs_type)
    if view.components and view.size == width:
        return [
            Feature(name, *_bounds(component), component.unit or "")
            for component in view.components
            for name in _numbered(component.name, component.size)
        ]
    return [feature for name, part in parts.items() for feature in _of_space(name or "obs", part)]


def numbers(raw: Any) -> np.ndarray:
    """The numbers of a raw observation, in the order of `features`."""
    parts = [np.asarray(part, np.float64) for _, part in obs_arrays(raw) if np.ndim(part) < 3]
    return np.concatenate([part.reshape(-1) for part in parts])


def _numbers(part: Any) -> int:
    shape = part.shape or ()
    return 0 if len(shape) >= 3 else math.prod(shape)


def _numbered(name: str, n: int) -> list[str]:
    return [name] if n == 1 else [f"{name}[{i}]" for i in range(n)]


def _bounds(component: Component) -> tuple[float | None, float | None]:
    if component.range is not None:
        low, high = (end if isinstance(end, int | float) else None for end in component.range)
        return low, high
    values = component.values
    if isinstance(values, int):
        return 0.0, float(values - 1)
    given = [float(value) for value in values or [] if isinstance(value, int | float)]
    return (min(given), max(given)) if given else (None, None)


def _of_space(name: str, part: Any) -> list[Feature]:
    if is_discrete(part):
        return [Feature(name, float(part.start), float(part.start + part.n - 1))]
    ends = (getattr(part, "low", 0.0), getattr(part, "high", 1.0))
    low, high = (map(finite, np.broadcast_to(end, part.shape).reshape(-1)) for end in ends)
    return list(map(Feature, _numbered(name, _numbers(part)), low, high))


def finite(bound: Any) -> float | None:
    return float(bound) if abs(bound) < HUGE else None


# -- decisions ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Bar:
    """A choice, or a number of a continuous action. Shares are of the length of the bar."""

    name: str
    number: str
    share: float  # where the bar ends
    is_chosen: bool
    zero: float = 0.0  # where it starts
    deviation: tuple[float, ...] = ()  # where the mean plus or minus a standard deviation is
    action: float | None = None  # where the action is, of a continuous one


def action_bars(stage: Stage, names: Sequence[str], decision: Decision) -> tuple[str, list[Bar]]:
    """What the bars are, and the bars: mean actions, probabilities, or Q-values."""
    space = stage.env.action_space
    if decision.mean is not None and is_box(space):
        return "action: mean ± deviation", _continuous_bars(space, names, decision)
    chances, q = decision.probabilities, decision.q_values
    values = q if chances is None else chances
    if values is None:
        return "", []
    title = "Q-values" if chances is None else "action probabilities"
    title += " and Q-values" if chances is not None and q is not None else ""
    shares, shown = values, [f"{value:.3f}" for value in values.tolist()]
    if chances is None:  # a bar of Q-values is never empty: the lowest value has a tenth
        shares = 0.1 + 0.9 * (values - values.min()) / (float(np.ptp(values)) or 1.0)
        shown = [f"{value:.4g}" for value in values.tolist()]
    elif q is not None:
        shown = [f"{one}  {value:.3g}" for one, value in zip(shown, q.tolist(), strict=False)]
    known = [*names, *(f"choice {i}" for i in range(len(names), len(values)))]
    chosen, rows = _chosen(space, decision.action), zip(known, shown, shares.tolist(), strict=False)
    return title, [Bar(*row, is_chosen=i in chosen) for i, row in enumerate(rows)]


def _continuous_bars(space: Any, names: Sequence[str], decision: Decision) -> list[Bar]:
    low = np.where(np.isfinite(space.low), space.low, -3.0).reshape(-1)
    high = np.where(np.isfinite(space.high), space.high, 3.0).reshape(-1)
    mean, action = np.asarray(decision.mean).reshape(-1), np.asarray(decision.action).reshape(-1)
    std = np.zeros_like(mean) if decision.std is None else decision.std.reshape(-1)

    def shares(values: np.ndarray) -> list[float]:
        found: list[float] = ((values - low) / (high - low)).tolist()
        return found

    def within(values: np.ndarray) -> list[float]:
        return shares(np.clip(values, low, high))

    ends = zip(shares(mean - std), shares(mean + std), strict=True)
    seen = (tuple(end for end in both if 0 <= end <= 1) for both in ends)
    shown, chosen = (f"{number:+.3f}" for number in action), [True] * len(mean)
    zero, at = within(0 * mean), within(action)
    return list(map(Bar, names, shown, shares(mean), chosen, zero, seen, at))


def _chosen(space: Any, action: np.ndarray) -> set[int]:
    """The choices that belong to an action."""
    flat = np.asarray(action).reshape(-1)
    if is_discrete(space):
        return {int(flat[0]) - int(space.start)}
    if is_multi_binary(space):
        return set(np.flatnonzero(flat).tolist())
    if is_multi_discrete(space):
        sizes = space.nvec.reshape(-1)
        offsets = np.concatenate([[0], np.cumsum(sizes)[:-1]])
        return set((offsets + flat - space.start.reshape(-1)).astype(int).tolist())
    return set()
