"""What the configs of TD-MPC2 and DreamerV3 share: sizes by name, and fields without meaning."""

from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import model_validator

from gymnasium_solver.algos.configs.shared import OffPolicyConfig
from gymnasium_solver.config.marks import searched
from gymnasium_solver.config.types import Count, HiddenDims

Dim = Count | None


class WorldModelConfig(OffPolicyConfig):
    sizes: ClassVar[dict[str, Any]]
    """Dimensions by `model_size`; a field of the same name overrides one."""
    without: ClassVar[dict[str, str]]
    """Fields of other networks and replays, which have no meaning here: what to do instead."""

    n_step: Annotated[Literal[1], searched("")] = 1
    """Not read: learning looks further ahead by the model."""
    hidden_dims: Annotated[HiddenDims, searched("")] = (256, 256)
    """Not read: model_size sets the width of the hidden layers."""
    normalize_reward: bool | Literal["auto"] = False
    """Divide rewards by the running standard deviation of the discounted return. Rewards and values
    are learnt on a logarithmic scale, so this is rarely needed."""

    @property
    def rows_needed(self) -> tuple[int, str]:
        """Rows in a row that are sampled from the replay, and what they are called."""
        raise NotImplementedError

    @property
    def size(self) -> Any:
        """The dimensions."""
        config: Any = self
        size = self.sizes[config.model_size]
        given = {name: getattr(config, name) for name in size._fields}
        return size._replace(**{name: dim for name, dim in given.items() if dim is not None})

    @model_validator(mode="after")
    def _check_replay(self) -> Self:
        fields = type(self).model_fields
        for name, instead in self.without.items():
            if getattr(self, name) != fields[name].default:
                raise ValueError(f"{name}: {self.algo_id} does not have it, {instead}; remove it")
        if self.replay_on_gpu is True:
            raise ValueError("sequences are taken on the host: remove replay_on_gpu")
        n_kept, (n_rows, what) = self.buffer_size // self.n_envs, self.rows_needed
        if n_kept < n_rows:
            raise ValueError(
                f"buffer_size {self.buffer_size:,} holds {n_kept} rows of {self.n_envs} envs, "
                f"less than {what}: raise buffer_size"
            )
        return self
