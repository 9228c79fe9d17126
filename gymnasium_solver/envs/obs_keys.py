"""`obs_keys`: which parts of a Dict observation the policy sees.

    obs_keys: [image, direction]          these parts
    obs_keys: {drop: [mission]}           all but these

A name stands for the part, or for all parts below it: `desired_goal` for `desired_goal.x` and
`desired_goal.y`. Without obs_keys a policy sees every part, except for what a suite says only a
simulator knows (`HIDDEN`). The choice is made beneath all wrappers, by `ObservationParts`.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from gymnasium_solver.envs.suites.minigrid import PREFIXES as MINIGRID
from gymnasium_solver.envs.vector import VectorEnv
from gymnasium_solver.errors import EnvError
from gymnasium_solver.spaces.observations import part_spaces
from gymnasium_solver.spaces.space_types import is_dict
from gymnasium_solver.suggest import did_you_mean

ObsKeys = Sequence[str] | Mapping[str, Sequence[str]]
HIDDEN = {"playground": "privileged_state"}
"""Suite -> a part for the value function of a simulator, which a robot could not measure."""


def parts_wrapper(env: VectorEnv, obs_keys: ObsKeys | None) -> tuple[list[dict[str, Any]], str]:
    """The wrappers (one, or none) that choose the parts, and a note about them ("": none)."""
    parts = part_spaces(env.observation_space)
    if obs_keys is None:
        hidden = HIDDEN.get(env.spec.suite)
        if hidden not in parts:
            return [], ""
        note = (
            f"observation part {hidden!r} is dropped: only a simulator knows it. To see it: "
            f"obs_keys: [{', '.join(parts)}]"
        )
        return [{"id": "ObservationParts", "keep": [n for n in parts if n != hidden]}], note
    env_id = env.spec.env_id
    if not is_dict(env.observation_space):
        raise EnvError(
            f"obs_keys: {env_id} has observations in one part, {_short(env.observation_space)}: "
            "there is nothing to choose. Leave obs_keys unset."
        )
    drops = isinstance(obs_keys, Mapping)
    names = list(obs_keys["drop"] if isinstance(obs_keys, Mapping) else obs_keys)
    named = {part for name in names for part in _named(name, env)}
    kept = [part for part in parts if (part in named) != drops]
    if not kept:
        raise EnvError(f"obs_keys: {env_id}: {{drop: {names}}} drops every part. Keep one of them.")
    return [{"id": "ObservationParts", "keep": kept}], ""


def _named(name: str, env: VectorEnv) -> list[str]:
    """The part of this name, or the parts below it."""
    parts = list(part_spaces(env.observation_space))
    found = [part for part in parts if part == name or part.startswith(f"{name}.")]
    if found:
        return found
    left_out = [note for note in env.spec.notes if note.startswith(f"observation part {name!r} ")]
    if left_out:
        raise EnvError(
            f"obs_keys: {env.spec.env_id}: {name!r} is Text, which no network reads. Choose from: "
            f"{', '.join(parts)}."
        )
    hint = did_you_mean(name, parts)
    known = f"Its parts: {', '.join(parts)}."
    raise EnvError(
        f"obs_keys: {env.spec.env_id} has no observation part {name!r}. "
        + " ".join(filter(None, (hint, known)))
    )


def in_parts(env_id: str, kwargs: dict[str, Any], obs_keys: ObsKeys | None) -> dict[str, Any]:
    """The env_kwargs with which an environment has parts to choose: MiniGrid gives one vector
    unless asked for a dict."""
    name = env_id.rpartition(":")[2]
    if obs_keys is None or not name.startswith(MINIGRID):
        return kwargs
    kind = kwargs.get("observation", "dict")
    if kind != "dict":
        raise EnvError(
            f"obs_keys: {env_id} with observation: {kind} has one part. Set env_kwargs "
            "observation: dict, or leave obs_keys unset."
        )
    return {**kwargs, "observation": "dict"}


def _short(space: Any) -> str:
    return " ".join(str(space).split())[:80]
