"""When the members of a population are compared, and what may change between."""

from collections.abc import Sequence

from gymnasium_solver.config.live import check_live
from gymnasium_solver.config.schema import Config
from gymnasium_solver.errors import ConfigError


def check_population(config: Config, names: Sequence[str]) -> None:
    """ConfigError if a parameter cannot change while a run trains."""
    try:
        check_live(type(config), [name.partition(".")[0] for name in names])
    except ConfigError as error:
        raise ConfigError(f"pbt: {error}") from None


def generation_ends(interval: float, budget: int, epoch_steps: int) -> list[int]:
    """The epochs after which members are compared; the last one ends the training."""
    steps = interval * budget if interval <= 1 else interval
    last = max(1, -(-budget // epoch_steps))
    each = min(max(1, round(steps / epoch_steps)), last)
    ends = list(range(each, last, each))
    return [*ends, last]
