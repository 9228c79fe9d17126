"""Wrappers that encode, scale, clip and select observations, and the field `obs_keys`.

They map the observation array or, of a Dict observation, the part that `key` names; without `key`
every part that they can be applied to.

Without obs_keys a policy sees every part, except for what a suite says only a simulator knows
(`HIDDEN`). The choice is made beneath all wrappers, by `ObservationParts`.
"""

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, Literal

import numpy as np
from gymnasium.spaces import Box

from gymnasium_solver.envs.suites.minigrid import PREFIXES as MINIGRID
from gymnasium_solver.envs.vector import ObservationWrapper, VectorEnv, VectorWrapper
from gymnasium_solver.envs.wrappers.options import require
from gymnasium_solver.errors import EnvError
from gymnasium_solver.spaces.observations import part_spaces, space_of
from gymnasium_solver.spaces.space_types import Space, is_box, is_dict, is_discrete, shown
from gymnasium_solver.suggest import did_you_mean

PerComponent = float | list[float]
Map = Callable[[np.ndarray], np.ndarray]


def parts_named(wrapper: VectorWrapper, key: str | None) -> dict[str, Space]:
    """The part that `key` names, or all parts of the observations that a wrapper is given."""
    space, env_id = wrapper.env.observation_space, wrapper.spec.env_id
    parts = part_spaces(space)
    if key is None:
        return parts
    require(is_dict(space), wrapper, f"key is for Dict observations; {env_id} has {space}")
    has = f"{env_id} has {', '.join(parts)}"
    require(key in parts, wrapper, f"key {key!r} is not a part; {has}")
    return {key: parts[key]}


class ObservationMap(ObservationWrapper):
    """Base of wrappers that map each observation, or each part of it, by itself.

    A subclass calls this constructor last, with its options set: `_build` reads them."""

    effect = "pure"
    needs: ClassVar[str] = "Box"
    """What it can be applied to, in words: "needs ... observations"."""

    def __init__(self, env: VectorEnv, key: str | None = None) -> None:
        super().__init__(env)
        named = parts_named(self, key)
        fitting = {name: part for name, part in named.items() if self._applies(part)}
        given = named.get(key or "", env.observation_space)
        wrong = f"needs {self.needs} observations; {env.spec.env_id} has {given}"
        require(bool(fitting), self, wrong + self._advice(given))
        built = {name: self._build(part) for name, part in fitting.items()}
        self._maps = {name: mapped for name, (_, mapped) in built.items()}
        parts = part_spaces(env.observation_space)
        self.observation_space = space_of(
            parts | {name: space for name, (space, _) in built.items()}
        )

    def _applies(self, space: Space) -> bool:
        """Whether an array space is of the kind that this wrapper maps."""
        return is_box(space)

    @abstractmethod
    def _build(self, space: Any) -> tuple[Space, Map]:
        """The space that comes out, and a function from arrays (N, ...) to fresh arrays."""

    def _advice(self, space: Space) -> str:
        """What to do about a space that it cannot be applied to, after a dot; "": nothing known."""
        return ""

    @property
    def mapped_parts(self) -> list[str]:
        return list(self._maps)

    def seen(self, obs: Any, opened: np.ndarray) -> Any:
        if "" in self._maps:
            return self._maps[""](obs)
        return obs | {name: mapped(obs[name]) for name, mapped in self._maps.items()}


class DiscreteEncoder(ObservationMap):
    """Turns a Discrete observation into a float32 vector: `array`, the number itself; `binary`, its
    bits, highest first; `onehot`, one place for each value."""

    needs = "Discrete"

    def __init__(
        self,
        env: VectorEnv,
        encoding: Literal["array", "binary", "onehot"] = "onehot",
        key: str | None = None,
    ) -> None:
        self._encoding = encoding
        super().__init__(env, key)

    def _applies(self, space: Space) -> bool:
        return is_discrete(space)

    def _build(self, space: Any) -> tuple[Space, Map]:
        start, table = int(space.start), self.table(space)
        box = Box(table.min(axis=0), table.max(axis=0), dtype=np.float32)
        return box, lambda obs: table[obs - start]

    def table(self, space: Any) -> np.ndarray:
        """Row i is the encoding of the i-th value of the space."""
        n, values = int(space.n), np.arange(space.n)
        if self._encoding == "onehot":
            return np.eye(n, dtype=np.float32)
        if self._encoding == "array":
            return (values + int(space.start))[:, None].astype(np.float32)
        bits = max(1, (n - 1).bit_length())
        return ((values[:, None] >> np.arange(bits)[::-1]) & 1).astype(np.float32)


class ObservationScale(ObservationMap):
    """obs * scale + shift, in float32; a number, or one for each component (of the last axis)."""

    def __init__(
        self,
        env: VectorEnv,
        scale: PerComponent = 1.0,
        shift: PerComponent = 0.0,
        key: str | None = None,
    ) -> None:
        self._scale, self._shift = scale, shift
        super().__init__(env, key)

    def coefficients(self, space: Any) -> tuple[np.ndarray, np.ndarray]:
        """Scale and shift."""
        scale = _components(self, "scale", self._scale, space)
        return scale, _components(self, "shift", self._shift, space)

    def _build(self, space: Any) -> tuple[Space, Map]:
        scale, shift = self.coefficients(space)
        return _affine(space, scale, shift), lambda obs: obs.astype(np.float32) * scale + shift


class ObservationRescale(ObservationMap):
    """Maps bounded observations from the bounds of their space to [low, high], in float32."""

    def __init__(
        self, env: VectorEnv, low: float = -1.0, high: float = 1.0, key: str | None = None
    ) -> None:
        require(low < high, self, f"low {low} must be below high {high}")
        self.low, self.high = np.float32(low), np.float32(high)
        super().__init__(env, key)

    def coefficients(self, space: Any) -> tuple[np.ndarray, np.ndarray]:
        """Scale and shift."""
        first, last = (bound.astype(np.float64) for bound in (space.low, space.high))
        slope = (float(self.high) - float(self.low)) / (last - first)
        shift = float(self.low) - first * slope
        return slope.astype(np.float32), shift.astype(np.float32)

    def _build(self, space: Any) -> tuple[Space, Map]:
        low, high = self.low, self.high
        first, last = (bound.astype(np.float64) for bound in (space.low, space.high))
        # Huge bounds stand for none: scaled by them, every observation would be close to 0.
        is_bounded = bool((np.maximum(np.abs(first), np.abs(last)) < 1e30).all())
        wrong = f"needs bounded observations; {self.spec.env_id} has {space}. Use ObservationScale"
        require(is_bounded and bool((first < last).all()), self, wrong)
        scale, shift = self.coefficients(space)

        def rescaled(obs: np.ndarray) -> np.ndarray:
            mapped = obs.astype(np.float32) * scale + shift
            return np.minimum(np.maximum(mapped, low), high)  # rounding may step outside

        return Box(float(low), float(high), space.shape, np.float32), rescaled


class ObservationClip(ObservationMap):
    """Clips observations to [low, high]; numbers, or one for each component (of the last axis)."""

    def __init__(
        self,
        env: VectorEnv,
        low: PerComponent = -10.0,
        high: PerComponent = 10.0,
        key: str | None = None,
    ) -> None:
        self._low, self._high = low, high
        super().__init__(env, key)

    def limits(self, space: Any) -> tuple[np.ndarray, np.ndarray]:
        """Lowest and highest values, in the type of the space."""
        lows = _components(self, "low", self._low, space).astype(space.dtype)
        return lows, _components(self, "high", self._high, space).astype(space.dtype)

    def _build(self, space: Any) -> tuple[Space, Map]:
        lows, highs = self.limits(space)
        above = f"low {self._low} is above high {self._high}"
        require(bool((lows <= highs).all()), self, above)

        def clipped(obs: np.ndarray) -> np.ndarray:
            return np.minimum(np.maximum(obs, lows), highs)

        bounds = clipped(space.low), clipped(space.high)
        return Box(*bounds, dtype=space.dtype.type), clipped


class ObservationComponents(ObservationMap):
    """Keeps the components (of the last axis) that `keep` lists by index, or all but those that
    `drop` lists: without the velocities of CartPole, an agent needs memory."""

    def __init__(
        self,
        env: VectorEnv,
        keep: list[int] | None = None,
        drop: list[int] | None = None,
        key: str | None = None,
    ) -> None:
        require((keep is None) != (drop is None), self, "takes one of keep and drop")
        self._keep, self._drop = keep, drop
        super().__init__(env, key)

    def _applies(self, space: Space) -> bool:
        return super()._applies(space) and bool(space.shape)

    def kept(self, space: Any) -> list[int]:
        """Indices of the components that are left."""
        if self._keep is not None:
            return self._keep
        return [index for index in range(space.shape[-1]) if index not in (self._drop or ())]

    def _build(self, space: Any) -> tuple[Space, Map]:
        n = space.shape[-1]
        for index in self._keep or self._drop or ():
            known = f"{index} is not one of the components 0 to {n - 1} of {self.spec.env_id}"
            require(0 <= index < n, self, known)
        kept = self.kept(space)
        require(bool(kept), self, f"leaves no component of the {n} of {self.spec.env_id}")

        def chosen(obs: np.ndarray) -> np.ndarray:
            return obs[..., kept]

        return Box(chosen(space.low), chosen(space.high), dtype=space.dtype.type), chosen


class ObservationParts(ObservationWrapper):
    """Keeps the parts of a Dict observation that `keep` lists, or all but those that `drop` lists.
    A single part that is left is delivered as a plain array."""

    effect = "pure"

    def __init__(
        self, env: VectorEnv, keep: list[str] | None = None, drop: list[str] | None = None
    ) -> None:
        super().__init__(env)
        parts = part_spaces(env.observation_space)
        has = f"{env.spec.env_id} has {env.observation_space}"
        require(is_dict(env.observation_space), self, f"needs Dict observations; {has}")
        require((keep is None) != (drop is None), self, "takes one of keep and drop")
        for part in keep or drop or ():
            require(part in parts, self, f"{part!r} is not a part; {has}")
        kept = keep if keep is not None else [part for part in parts if part not in (drop or ())]
        self.names = [part for part in parts if part in kept]
        require(bool(self.names), self, f"leaves no part; {has}")
        self._single = self.names[0] if len(self.names) == 1 else None
        space = space_of({part: parts[part] for part in self.names})
        self.observation_space = parts[self._single] if self._single else space

    def seen(self, obs: Any, opened: np.ndarray) -> Any:
        return obs[self._single] if self._single else {name: obs[name] for name in self.names}


def _components(wrapper: object, key: str, value: PerComponent, space: Box) -> np.ndarray:
    array = np.asarray(value, np.float32)
    wrong = f"{key} has {array.size} numbers, but an observation has shape {space.shape}"
    require(array.ndim == 0 or space.shape[-1:] == array.shape, wrapper, wrong)
    return array


def _affine(space: Box, scale: np.ndarray, shift: np.ndarray) -> Any:
    with np.errstate(over="ignore", invalid="ignore"):
        ends = [bound.astype(np.float32) * scale + shift for bound in (space.low, space.high)]
    # inf * 0 is not a number: such a component is whatever its shift says.
    ends = [np.where(np.isnan(end), shift, end) for end in ends]
    low, high = np.minimum(*ends), np.maximum(*ends)
    return Box(low, high, dtype=np.float32)


# -- the choice of parts --------------------------------------------------------------------------


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
    env_id, given = env.spec.env_id, shown(env.observation_space)[:80]
    if not is_dict(env.observation_space):
        raise EnvError(
            f"obs_keys: {env_id} has observations in one part, {given}: there is nothing to "
            "choose. Leave obs_keys unset."
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
