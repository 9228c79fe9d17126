"""Actions, observations and decisions for display: their names (from the config's spec, or from the
spaces), actions in words, and bars of what the agent computes."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
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
    given = stage.spec.action_space.label_list()
    if len(given) == n:
        return given
    known = _known_names(stage, n)
    if known:
        return known
    word = "action" if is_discrete(space) else "component"
    if is_multi_binary(space):
        word = "button"
    start = int(space.start) if is_discrete(space) else 0
    return [f"{word} {i + start}" for i in range(n)]


def _width(space: Any) -> int:
    if is_discrete(space):
        return int(space.n)
    return math.prod(space.shape or ()) if space.shape is not None else 0


def _known_names(stage: Stage, n: int) -> list[str]:
    if stage.env.spec.suite == "minigrid" and n == len(MINIGRID):
        return list(MINIGRID)
    if stage.config.env_id.startswith(ATARI_PREFIX) and not stage.config.env_wrappers:
        names = _atari_names(stage.config.env_id)
        return names if len(names) == n else []
    return []


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
    """The numbers of the raw observation in order; [] where they are an image or more than
    `most`."""
    space = stage.tap.observation_space
    parts = part_spaces(space)
    width = sum(_numbers(part) for part in parts.values())
    if width == 0 or width > most:
        return []
    view = stage.spec.observation_space.view(stage.config.obs_type)
    if view.components and view.size == width:
        return [feature for component in view.components for feature in _of_component(component)]
    return [feature for name, part in parts.items() for feature in _of_space(name or "obs", part)]


def numbers(raw: Any) -> np.ndarray:
    """The numbers of a raw observation, in the order of `features`."""
    parts = [np.asarray(part, np.float64) for _, part in obs_arrays(raw) if np.ndim(part) < 3]
    return np.concatenate([part.reshape(-1) for part in parts])


def _numbers(part: Any) -> int:
    shape = part.shape or ()
    return 0 if len(shape) >= 3 else math.prod(shape)


def _of_component(component: Component) -> list[Feature]:
    bounds, unit = _bounds(component), component.unit or ""
    return [Feature(name, *bounds, unit) for name in _numbered(component.name, component.size)]


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
    low = np.broadcast_to(getattr(part, "low", 0.0), part.shape).reshape(-1)
    high = np.broadcast_to(getattr(part, "high", 1.0), part.shape).reshape(-1)
    names = _numbered(name, _numbers(part))
    return [Feature(names[i], finite(low[i]), finite(high[i])) for i in range(len(names))]


def finite(bound: Any) -> float | None:
    return float(bound) if abs(bound) < HUGE else None


# -- decisions ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Bar:
    """A choice, or a number of a continuous action. Shares are of the length of the bar."""

    name: str
    number: str
    share: float
    """Where the bar ends."""
    is_chosen: bool
    zero: float = 0.0
    """Where it starts."""
    deviation: tuple[float, ...] = ()
    """Where the mean plus or minus a standard deviation is."""
    action: float | None = None
    """Where the action is, of a continuous one."""


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
    low, span = float(values.min()), float(np.ptp(values)) or 1.0
    chosen, bars = _chosen(space, decision.action), []
    for i, value in enumerate(values.tolist()):
        name = names[i] if i < len(names) else f"choice {i}"
        number = f"{value:.4g}" if chances is None else f"{value:.3f}"
        number += f"  {q[i]:.3g}" if chances is not None and q is not None else ""
        # A bar of Q-values is never empty: the lowest value has a tenth.
        share = 0.1 + 0.9 * (value - low) / span if chances is None else value
        bars.append(Bar(name, number, share, i in chosen))
    return title, bars


def _continuous_bars(space: Any, names: Sequence[str], decision: Decision) -> list[Bar]:
    low = np.where(np.isfinite(space.low), space.low, -3.0).reshape(-1)
    high = np.where(np.isfinite(space.high), space.high, 3.0).reshape(-1)
    mean, action = np.asarray(decision.mean).reshape(-1), np.asarray(decision.action).reshape(-1)
    std = np.zeros_like(mean) if decision.std is None else decision.std.reshape(-1)

    def shares(values: np.ndarray) -> list[float]:
        found: list[float] = ((values - low) / (high - low)).tolist()
        return found

    ends = zip(shares(mean - std), shares(mean + std), strict=True)
    rows = zip(names, action, shares(mean), shares(0 * mean), ends, shares(action), strict=False)
    return [
        Bar(
            name,
            f"{number:+.3f}",
            share,
            True,
            min(max(zero, 0.0), 1.0),
            tuple(end for end in both if 0 <= end <= 1),
            min(max(at, 0.0), 1.0),
        )
        for name, number, share, zero, both, at in rows
    ]


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
