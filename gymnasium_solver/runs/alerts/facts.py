"""The settings of a run that the rules depend on, from config.yaml and meta.json."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

MOST = 1e15  # larger numbers in a file are damage


@dataclass(frozen=True)
class Facts:
    config: Mapping[str, Any] = field(default_factory=dict)
    meta: Mapping[str, Any] = field(default_factory=dict)

    def number(self, name: str) -> float | None:
        """A field that is a plain number; None for anything else, such as a schedule."""
        return _number(self.config.get(name))

    @cached_property
    def rollout_size(self) -> int:
        """Samples that an on-policy update learns from."""
        return int((self.number("n_envs") or 1) * (self.number("n_steps") or 1))

    @cached_property
    def target(self) -> float | None:
        """The return that counts as good: the threshold, or the spec's reference return."""
        spec = self.config.get("spec")
        returns = spec.get("returns") if isinstance(spec, Mapping) else None
        reference = returns.get("reference") if isinstance(returns, Mapping) else None
        threshold = _number(self.meta.get("threshold"))
        return _number(reference) if threshold is None else threshold

    def _sizes(self, kind: str, entry: str) -> list[int] | None:
        """The numbers that describe the action space, if it is of this kind."""
        space = self.meta.get("action_space")
        if not isinstance(space, Mapping) or space.get("kind") != kind:
            return None
        return _positive(space.get(entry))

    @cached_property
    def n_action_numbers(self) -> int | None:
        """Numbers in an action of a Box; None for other spaces, and where it is not known."""
        sizes = self._sizes("Box", "shape")
        return None if sizes is None else math.prod(sizes)

    @cached_property
    def n_actions(self) -> int | None:
        """Number of discrete actions; None for other spaces, and where it is not known."""
        sizes = self._sizes("Discrete", "n")
        return sizes[0] if sizes else None

    @cached_property
    def uniform_entropy(self) -> float | None:
        """Entropy of the policy that takes all actions equally often, in nats; None for a Box, and
        where the space is not known."""
        if self.n_actions is not None:
            return math.log(self.n_actions)
        if (bits := self._sizes("MultiBinary", "shape")) is not None:
            return math.prod(bits) * math.log(2)
        choices = self._sizes("MultiDiscrete", "nvec")
        return None if choices is None else sum(math.log(n) for n in choices)

    def command(self, *flags: str) -> str:
        """The command that trains the same again with other settings."""
        name = self.config.get("variant") or self.config.get("algo_id") or "ALGO"
        env_id = self.config.get("env_id") or "ENV"
        return " ".join(["gsolve train", f"{env_id}:{name}", *flags])


def _number(value: object) -> float | None:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return float(value) if is_number and abs(value) < MOST else None  # type: ignore[arg-type]


def _positive(value: object) -> list[int]:
    """The whole numbers above 0 in nested lists; a damaged file may have anything."""
    if isinstance(value, list):
        return [number for item in value for number in _positive(item)]
    return [value] if isinstance(value, int) and 0 < value < MOST else []
