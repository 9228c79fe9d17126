"""The field `collectors`: actors on a Ray cluster that act while the learner learns.

collectors: 4
collectors: {n: 8, max_staleness: 1}
"""

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, InstanceOf, PlainSerializer, WithJsonSchema

from gymnasium_solver.config.blocks import Fields
from gymnasium_solver.config.nested import dump_block, read_block
from gymnasium_solver.config.types import Count, Float, NonNegativeInt, whole


class Collectors(Fields):
    backend: Literal["ray"] = "ray"
    """Actors on the Ray cluster at RAY_ADDRESS, or on one that is started on this machine."""
    n: Count = 2
    """How many. Each has n_envs / n of the environments. More: faster where environments are slow,
    one CPU each."""
    max_staleness: NonNegativeInt = 0
    """Updates that the weights of a collector may be behind the learner's. 0: collectors and
    learner take turns; the run is deterministic and resumes exactly. 1 or more: they work at the
    same time, and a run depends on how fast each of them is."""
    cpus: Annotated[Float, Field(gt=0)] = 1.0
    """CPUs that the cluster reserves for each."""


def _parse(value: Any) -> Collectors | None:
    if value is None or value is False:
        return None
    number = whole(value)
    if isinstance(number, int) and not isinstance(number, bool):
        value = {"n": number}
    if isinstance(value, Mapping) and value.get("backend") == "process":
        raise ValueError(
            "backend: process was removed. On one machine use collectors: null and "
            "vectorization_mode: async, which is faster; backend: ray uses several"
        )
    return read_block(Collectors, value)


def _dump(block: Collectors | None) -> dict[str, Any] | None:
    return None if block is None else {"n": block.n, **(dump_block(block) or {})}


CollectorsField = Annotated[
    InstanceOf[Collectors] | None,
    BeforeValidator(_parse),
    PlainSerializer(_dump),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "integer", "minimum": 1},
                {"type": "object"},
                {"type": "null"},
            ],
            "x-expected": "a number of actors, or a block {n: 4, max_staleness: 1}",
        }
    ),
]


class CollectorFields(Fields):
    title = "collectors"

    collectors: CollectorsField = None
    """Let several actors on a Ray cluster act in the environments for one learner: a number, or a
    block {n, max_staleness, cpus}. null: the learner's process acts itself."""
