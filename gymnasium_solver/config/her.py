"""The field `her`: hindsight experience replay, as a config writes it.

her: true                        # {strategy: future, k: 4}
her: {strategy: final, k: 8}
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Annotated, Any, Literal, get_args

from pydantic import BeforeValidator, InstanceOf, PlainSerializer, WithJsonSchema

from gymnasium_solver.config.types import whole
from gymnasium_solver.suggest import did_you_mean

Strategy = Literal["future", "final", "episode"]
STRATEGIES: tuple[str, ...] = get_args(Strategy)


@dataclass(frozen=True, repr=False)
class Her:
    """Which goals take the place of desired ones, and how often."""

    strategy: Strategy = "future"
    """future: an achieved goal from later in the episode. final: its last. episode: any of it."""
    k: int = 4
    """Replaced goals for each one that is kept: a share of k / (k + 1)."""

    @property
    def share(self) -> float:
        """Share of the sampled transitions that get another goal."""
        return self.k / (self.k + 1)

    def __repr__(self) -> str:
        return f"{{strategy: {self.strategy}, k: {self.k}}}"


def _parse(value: Any) -> Her | None:
    if value is None or value is False:
        return None
    if value is True:
        return Her()
    if isinstance(value, Her):
        return value
    if not isinstance(value, Mapping):
        raise ValueError("expected true, false or {strategy: future, k: 4}")
    for key in value:
        if key not in ("strategy", "k"):
            raise ValueError(f"unknown key {key!r}, expected strategy and k")
    strategy, k = value.get("strategy", "future"), whole(value.get("k", 4))
    if strategy not in STRATEGIES:
        hint = did_you_mean(str(strategy), STRATEGIES)
        raise ValueError(f"strategy must be one of {', '.join(STRATEGIES)}. {hint}".strip())
    if isinstance(k, bool) or not isinstance(k, int) or k < 1:
        raise ValueError(f"k must be a whole number >= 1, got {k!r}")
    return Her(strategy, k)


HerField = Annotated[
    InstanceOf[Her] | None,
    BeforeValidator(_parse),
    PlainSerializer(lambda her: None if her is None else asdict(her)),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "boolean"},
                {"type": "null"},
                {
                    "type": "object",
                    "properties": {
                        "strategy": {"enum": list(STRATEGIES)},
                        "k": {"type": "integer", "minimum": 1},
                    },
                    "additionalProperties": False,
                },
            ],
            "x-expected": "true, false or {strategy: future, final or episode, k: a whole number}",
        }
    ),
]
