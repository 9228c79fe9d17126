"""One environment, described: facts from the environment itself on top of those in its config, a
frame, and whether a config's `spec` block agrees with the real spaces.

`gsolve envs show ID` prints it, for an id without a config too. A `spec` block may describe the
observation as the engine gives it or as the wrappers leave it.
"""

from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np

from gymnasium_solver.config.spec import ActionSpec, Component, ObservationView, Spec
from gymnasium_solver.envs.catalogue import EnvEntry, space_text
from gymnasium_solver.envs.make import env_from_fields, make_vector_env
from gymnasium_solver.envs.random_steps import RandomPolicy
from gymnasium_solver.envs.vector import VectorEnv, VectorWrapper
from gymnasium_solver.errors import EnvError, first_line
from gymnasium_solver.spaces.observations import part_spaces
from gymnasium_solver.spaces.space_types import (
    action_width,
    is_box,
    is_discrete,
    is_multi_binary,
    is_multi_discrete,
)

FRAME_STEPS = 15  # random steps before a frame is taken


def env_facts(env_id: str, entry: EnvEntry | None) -> tuple[dict[str, Any], Spec]:
    """Facts by name, and what is known about observations and actions. An environment with a config
    that cannot be made here has a `problem`."""
    facts = entry.to_dict() if entry else {"env_id": env_id, "configs": [], "spec": {}}
    try:
        env = make_vector_env(env_id, 2)  # a single env may have another engine
    except EnvError as error:
        if entry is None:
            raise
        return facts | {"problem": str(error)}, entry.spec
    with closing(env):
        spec = env.spec
        threshold = facts.get("threshold")
        facts |= {
            "suite": facts.get("suite") or spec.suite,
            "observation_space": str(env.observation_space),
            "action_space": str(env.action_space),
            "observations": space_text(env.observation_space),
            "actions": space_text(env.action_space),
            "threshold": spec.reward_threshold if threshold is None else threshold,
            "max_episode_steps": spec.max_episode_steps,
            "engine": spec.engine,
            "engine_reason": spec.engine_reason,
        }
        return facts, entry.spec if entry else _spec_of_spaces(env)


def _spec_of_spaces(env: Any) -> Spec:
    """A description from the spaces alone: bounds, generic names."""
    blocks = {}
    for name, space in (("observation", env.observation_space), ("action", env.action_space)):
        if getattr(space, "low", None) is None or len(space.shape) != 1:
            continue
        pairs = [
            [float(end) if abs(end) < HUGE else None for end in ends]
            for ends in zip(space.low, space.high, strict=True)
        ]
        names = [f"{name}_{i}" for i in range(len(pairs))]
        if name == "action":
            blocks["action_space"] = {"labels": names, "range": pairs}
        else:
            parts = [{"name": n, "range": pair} for n, pair in zip(names, pairs, strict=True)]
            blocks["observation_space"] = {"components": parts}
    return Spec.model_validate(blocks)


def render_frame(
    env_id: str, env_kwargs: dict[str, Any] | None = None, seed: int = 1
) -> tuple[np.ndarray | None, str]:
    """A frame (H, W, 3) a few random steps into an episode and the engine that rendered it, or None
    and the reason."""
    reason = "no engine renders it"
    # Gymnasium renders what EnvPool does not (toy text), if its packages are installed.
    for mode in ("auto", "sync"):
        given = {"env_kwargs": env_kwargs, "vectorization_mode": mode}
        try:
            with closing(env_from_fields(env_id, 1, given, render_mode="rgb_array")) as env:
                env.reset(seed)
                policy = RandomPolicy(env.action_space, 1, seed)
                for _ in range(FRAME_STEPS):
                    env.step(policy.act(env.action_mask))
                frame = env.render()
                if frame is not None and frame.ndim == 3:
                    return frame, env.spec.engine
                if env.spec.engine == "c":
                    return None, "the file defines no FRAME_WIDTH, FRAME_HEIGHT and render()"
        except (EnvError, ImportError, RuntimeError, OSError) as error:
            reason = first_line(error)
    return None, reason


def save_png(frame: np.ndarray, path: Path) -> None:
    """Write a frame as PNG, whatever the file's suffix."""
    from matplotlib import image

    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        image.imsave(path, frame, format="png")
    except OSError as error:
        raise EnvError(f"--frame {path} cannot be written: {error.strerror or error}") from error


# -- whether a spec block (config/spec.py) describes the environment ------------------------------


ABSOLUTE = 2e-3  # how far a written bound may be from the real one: 0.418 stands for 0.41887903
HUGE = 1e30  # bounds beyond it count as none


def spec_mismatches(
    spec: Spec, env: VectorEnv, obs_type: str | None = None, frame_stack: int = 1
) -> list[str]:
    """What is wrong with the block, one line each; `obs_type` names the variant that is seen, of
    which the block describes one frame."""
    problems = list(_action_mismatches(spec.action_space, env.action_space))
    view = spec.observation_space.view(obs_type)
    if view.components or view.n:
        by_layer = [
            list(_observation_mismatches(view, space, frame_stack))
            for space in _spaces_by_layer(env)
        ]
        if all(by_layer):
            problems += by_layer[0]
    return problems


def _spaces_by_layer(env: VectorEnv) -> Iterator[Any]:
    """The observation spaces from the outermost wrapper to the engine."""
    yield env.observation_space
    while isinstance(env, VectorWrapper):
        env = env.env
        yield env.observation_space


def _action_mismatches(stated: ActionSpec, space: Any) -> Iterator[str]:
    tests: dict[str, Callable[[Any], bool]] = {
        "discrete": is_discrete,
        "multibinary": is_multi_binary,
        "multidiscrete": is_multi_discrete,
    }
    for name, holds in tests.items():
        if getattr(stated, name) is not None and not holds(space):
            yield f"action_space.{name} is given, but the actions are {space}"
    n_labels, n_actions = len(stated.labels), n_parts(space)
    if n_labels and is_box(space) and stated.range is None and not stated.shape:
        yield f"action_space names no range, so it reads as Discrete; the actions are {space}"
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


def _observation_mismatches(view: ObservationView, space: Any, frame_stack: int) -> Iterator[str]:
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
