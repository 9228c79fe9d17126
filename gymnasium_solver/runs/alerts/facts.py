"""The settings of a run that the rules depend on, from config.yaml and meta.json."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any


@dataclass(frozen=True)
class Facts:
    config: Mapping[str, Any] = field(default_factory=dict)
    meta: Mapping[str, Any] = field(default_factory=dict)

    def number(self, name: str, default: float | None = None) -> float | None:
        """A field that is a plain number; `default` for anything else, such as a schedule."""
        value = self.config.get(name)
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        return float(value) if is_number else default  # type: ignore[arg-type]

    @cached_property
    def rollout_size(self) -> int:
        """Samples that an on-policy update learns from."""
        return int((self.number("n_envs") or 1) * (self.number("n_steps") or 1))

    @cached_property
    def target(self) -> float | None:
        """The return that counts as good: the threshold, or the spec's reference return."""
        threshold = self.meta.get("threshold")
        if threshold is not None:
            return float(threshold)
        spec = self.config.get("spec")
        returns = spec.get("returns") if isinstance(spec, Mapping) else None
        reference = returns.get("reference") if isinstance(returns, Mapping) else None
        return float(reference) if isinstance(reference, int | float) else None

    @cached_property
    def n_action_numbers(self) -> int | None:
        """Numbers in an action of a Box; None for other spaces, and where it is not known."""
        return _n_numbers(self.meta.get("action_space"))

    @cached_property
    def n_actions(self) -> int | None:
        """Number of discrete actions; None for other spaces, and where it is not known."""
        space = self.meta.get("action_space")
        is_discrete = isinstance(space, Mapping) and space.get("kind") == "Discrete"
        return int(space["n"]) if is_discrete else None  # type: ignore[index]

    @cached_property
    def uniform_entropy(self) -> float | None:
        """Entropy of the policy that takes all actions equally often, in nats; None for a Box, and
        where the space is not known."""
        return _uniform_entropy(self.meta.get("action_space"))

    def command(self, *flags: str) -> str:
        """The command that trains the same again with other settings."""
        name = self.config.get("variant") or self.config.get("algo_id") or "ALGO"
        env_id = self.config.get("env_id") or "ENV"
        return " ".join(["gsolve train", f"{env_id}:{name}", *flags])


def _n_numbers(space: object) -> int | None:
    if not isinstance(space, Mapping) or space.get("kind") != "Box":
        return None
    return math.prod(int(side) for side in space.get("shape") or ())


def _uniform_entropy(space: object) -> float | None:
    if not isinstance(space, Mapping):
        return None
    if space.get("kind") == "Discrete":
        return math.log(int(space["n"]))
    if space.get("kind") == "MultiBinary":
        return math.prod(int(side) for side in space.get("shape") or ()) * math.log(2)
    if space.get("kind") == "MultiDiscrete":
        return sum(math.log(n) for n in _flat_numbers(space.get("nvec")))
    return None


def _flat_numbers(value: object) -> list[int]:
    if isinstance(value, list):
        return [number for item in value for number in _flat_numbers(item)]
    return [int(value)] if isinstance(value, int | float) else []
