"""The settings of DQN."""

from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import Field, model_validator

from gymnasium_solver.algos.configs.shared import OffPolicyConfig, ReplaySequenceFields
from gymnasium_solver.config.learner_blocks import CriticHeadKind, ValueHeadFields
from gymnasium_solver.config.marks import live, searched
from gymnasium_solver.config.schedule import PositiveSchedule, Schedule, changing, scheduled
from gymnasium_solver.config.types import Count, Exploration, Float


class DQNConfig(ValueHeadFields, ReplaySequenceFields, OffPolicyConfig):
    defaults: ClassVar[dict[str, Any]] = {"max_grad_norm": 10.0, "v_min": 0.0, "v_max": 200.0}

    batch_size: Count = 64
    """Transitions per gradient step; with memory, batch_size / sequence_length sequences. Larger:
    less noisy, slower."""

    # --- targets
    target_update_freq: Annotated[Count, live(), searched("logint:50..10_000", main=True)] = 500
    """Env steps between two copies of the network into the target network. More: more stable
    targets, slower learning. Used only if `tau` is 1."""
    tau: Annotated[float, changing(gt=0, le=1)] = 1.0
    """Below 1: Polyak factor of the target network at every update, instead of copies."""
    double: Annotated[bool, live()] = False
    """Double DQN: the online network chooses the next action, the target network evaluates it. Less
    overestimation."""
    loss: Annotated[Literal["huber", "mse"], live()] = "huber"
    """Loss of the TD error of a scalar critic. Huber is less sensitive to large errors."""

    # --- network
    dueling: bool = False
    """Dueling network: separate streams for the state value and the advantages."""
    noisy: bool = False
    """Noisy networks: learned parameter noise in the last layers."""
    noisy_sigma: Annotated[Float, Field(gt=0)] = 0.5
    """Initial size of that noise. Higher: explores more at first."""
    distributional: bool = False
    """The same as critic_head: c51, the distribution of returns on atoms."""

    # --- memory
    value_rescaling: Annotated[bool, live()] = False
    """With memory: learn h(Q) with h(x) = sign(x) (sqrt(|x| + 1) - 1) + 0.001 x, for returns of
    very different sizes (R2D2)."""

    # --- exploration
    exploration: Literal["auto", "epsilon_greedy", "boltzmann", "greedy", "noisy"] = "auto"
    """Exploration in training. auto: noisy if the network is noisy, else epsilon_greedy."""
    epsilon: Annotated[Schedule, scheduled(ge=0, le=1)] = Schedule.parse(
        {"start": 1.0, "end": 0.05, "to": 0.1}
    )
    """Probability of a random action with epsilon_greedy."""
    temperature: PositiveSchedule = Schedule.constant(1.0)
    """Temperature of boltzmann, in units of the values. Higher: more random."""

    @model_validator(mode="after")
    def _check_flags(self) -> Self:
        if self.exploration == "noisy" and not self.noisy:
            raise ValueError("exploration: noisy requires noisy: true")
        if self.distributional and self.critic_head not in ("scalar", "c51"):
            raise ValueError(f"distributional is c51, but critic_head is {self.critic_head}")
        return self

    @property
    def resolved_head(self) -> CriticHeadKind:
        return "c51" if self.distributional else self.critic_head

    def without_memory(self) -> dict[str, bool]:
        return super().without_memory() | {
            "distributional": self.distributional,
            f"critic_head: {self.critic_head}": self.critic_head != "scalar",
        }

    @property
    def resolved_exploration(self) -> Exploration:
        if self.exploration == "auto":
            return "noisy" if self.noisy else "epsilon_greedy"
        return self.exploration
