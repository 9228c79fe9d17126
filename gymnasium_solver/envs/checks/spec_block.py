"""Whether a `spec` block (config/spec.py) describes an environment correctly.

`spec_mismatches(spec, env)` holds labels, ranges and components against the real spaces. A block
may describe the observation as the engine gives it or as the wrappers leave it.
"""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from gymnasium_solver.config.spec import ActionSpec, Component, ObservationView, Spec
from gymnasium_solver.envs.vector import VectorEnv, VectorWrapper
from gymnasium_solver.spaces.native_actions import action_width
from gymnasium_solver.spaces.observations import part_spaces
from gymnasium_solver.spaces.space_types import (
    is_box,
    is_discrete,
    is_multi_binary,
    is_multi_discrete,
)

ABSOLUTE = 2e-3
"""How far a written bound may be from the real one: 0.418 stands for 0.41887903."""
HUGE = 1e30
"""Bounds beyond it count as none."""


def spec_mismatches(
    spec: Spec, env: VectorEnv, obs_type: str | None = None, frame_stack: int = 1
) -> list[str]:
    """What is wrong with the block, one line each; `obs_type` names the variant that is seen, of
    which the block describes one frame."""
    problems = list(_actions(spec.action_space, env.action_space))
    view = spec.observation_space.view(obs_type)
    if view.components or view.n:
        by_layer = [list(_observation(view, space, frame_stack)) for space in _layers(env)]
        if all(by_layer):
            problems += by_layer[0]
    return problems


def _layers(env: VectorEnv) -> Iterator[Any]:
    """The observation spaces from the outermost wrapper to the engine."""
    yield env.observation_space
    while isinstance(env, VectorWrapper):
        env = env.env
        yield env.observation_space


def _actions(stated: ActionSpec, space: Any) -> Iterator[str]:
    tests: dict[str, Callable[[Any], bool]] = {
        "discrete": is_discrete,
        "multibinary": is_multi_binary,
        "multidiscrete": is_multi_discrete,
    }
    for name, holds in tests.items():
        if getattr(stated, name) is not None and not holds(space):
            yield f"action_space.{name} is given, but the actions are {space}"
    n_labels, n_actions = len(stated.labels), n_parts(space)
    if n_labels and n_labels != n_actions:
        yield f"action_space has {n_labels} labels, but the env has {n_actions}: {space}"
    if stated.discrete is not None and stated.discrete != n_actions:
        yield f"action_space.discrete is {stated.discrete}, but the env has {space}"
    if stated.range is None or not is_box(space):
        return
    pairs: Any = stated.range if isinstance(stated.range, list) else [stated.range] * n_actions
    if len(pairs) != n_actions:
        yield f"action_space has {len(pairs)} ranges, but {n_actions} numbers"
        return
    for i, (low, high) in enumerate(pairs):
        real = (space.low.flat[i], space.high.flat[i])
        if not np.allclose((low, high), real, atol=ABSOLUTE):
            yield f"action_space.range is {[low, high]}, but {_pair(*real)} for number {i}"


def n_parts(space: Any) -> int:
    """Actions to name: those of a Discrete, the buttons, or the numbers of any other space."""
    return int(space.n) if is_discrete(space) else action_width(space)


def _observation(view: ObservationView, space: Any, frame_stack: int) -> Iterator[str]:
    if is_discrete(space):
        values = [part.values for part in view.components] or [view.n]
        if values != [space.n]:
            yield f"observation_space names {values} values, but the env has {space}"
        return
    if not view.components:
        yield f"observation_space.n is {view.n}, but the observations are {space}"
        return
    parts = part_spaces(space)
    size = sum(int(np.prod(part.shape or (), dtype=int)) for part in parts.values())
    if view.size * frame_stack != size:
        stated = f"{view.size} numbers" + (f" x {frame_stack} frames" if frame_stack > 1 else "")
        yield f"observation_space names {stated}, but the env has {size}: {space}"
        return
    if all(map(is_discrete, parts.values())):
        for component, part in zip(view.components, parts.values(), strict=True):
            if component.values != part.n:  # type: ignore[attr-defined]
                yield f"{component.name} has {component.values} values, but the env has {part}"
    if all(map(is_box, parts.values())):
        boxes: list[Any] = list(parts.values())
        low, high = (
            np.concatenate([getattr(box, end).reshape(-1) for box in boxes])
            for end in ("low", "high")
        )
        first = 0
        for component in view.components:
            yield from _bounds(component, low[first], high[first])
            first += component.size


def _bounds(part: Component, low: float, high: float) -> Iterator[str]:
    """A bounded component must give its range; without bounds a range is optional."""
    if not (abs(low) < HUGE and abs(high) < HUGE) or (part.values and not part.range):
        return
    if part.range is None:
        yield f"{part.name} is bounded by {_pair(low, high)}, which its range should give"
    elif not np.allclose(np.asarray(part.range, float), (low, high), atol=ABSOLUTE):
        yield f"{part.name} has the range {list(part.range)}, but the env {_pair(low, high)}"


def _pair(low: Any, high: Any) -> str:
    return f"[{low:g}, {high:g}]"
