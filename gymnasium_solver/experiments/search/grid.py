"""All combinations of values."""

import itertools
import math
from collections.abc import Callable, Mapping
from typing import Any

from gymnasium_solver.errors import ConfigError
from gymnasium_solver.experiments.search.space import Param, Space, Values

MOST = 100_000


def grid(space: Space, fields: Mapping[str, Any], points: int) -> list[Values]:
    """All combinations, each once: of the values of a choice, or of points of a range."""
    columns = [param.distribution.grid(points) for param in space.params]
    size = math.prod(map(len, columns))
    if size > MOST:
        raise ConfigError(f"the grid has {size:,} combinations; use fewer values, or random")
    found: dict[str, Values] = {}
    for row in itertools.product(*columns):
        values = dict(zip((p.name for p in space.params), row, strict=True))
        latents = space.draw(_chooser(values), fields)
        found.setdefault(repr(sorted(latents.items())), latents)
    return list(found.values())


def _chooser(values: Values) -> Callable[[Param], Any]:
    return lambda param: param.distribution.encode(values[param.name])
