"""What the configs of TD-MPC2 and DreamerV3 share: sizes by name, and fields that they lack."""

from collections.abc import Mapping
from typing import Any, NamedTuple, TypeVar

from gymnasium_solver.algos.configs.shared import OffPolicyConfig

Size = TypeVar("Size", bound=NamedTuple)


def dimensions(config: Any, sizes: Mapping[str, Size]) -> Size:
    """Those that the config gives, the others by its `model_size`."""
    size = sizes[config.model_size]
    given = {name: getattr(config, name) for name in size._fields}
    return size._replace(**{name: dim for name, dim in given.items() if dim is not None})


def check_replay(
    config: OffPolicyConfig, without: Mapping[str, str], n_rows: int, what: str
) -> None:
    """Refuse fields of other algorithms (`without`: what to do instead), and a replay that is too
    small for `n_rows` rows in a row, which are called `what`."""
    fields = type(config).model_fields
    for name, instead in without.items():
        if getattr(config, name) != fields[name].default:
            raise ValueError(f"{name}: {config.algo_id} does not have it, {instead}; remove it")
    if config.replay_on_gpu is True:
        raise ValueError("sequences are taken on the host: remove replay_on_gpu")
    n_kept = config.buffer_size // config.n_envs
    if n_kept < n_rows:
        raise ValueError(
            f"buffer_size {config.buffer_size:,} holds {n_kept} rows of {config.n_envs} envs, "
            f"less than {what}: raise buffer_size"
        )
