"""The settings of A2C."""

from typing import Annotated, Any, ClassVar, Literal

from gymnasium_solver.algos.configs.shared import SelfImitationFields
from gymnasium_solver.config.learner_blocks import ActorCriticFields, CriticKeysFields
from gymnasium_solver.config.marks import live, searched
from gymnasium_solver.config.schedule import Schedule, changing
from gymnasium_solver.config.schema import LearnerConfig
from gymnasium_solver.config.types import Count


class A2CConfig(SelfImitationFields, CriticKeysFields, ActorCriticFields, LearnerConfig):
    defaults: ClassVar[dict[str, Any]] = {
        "policy_lr": Schedule.constant(7e-4),
        "optimizer": "rmsprop_tf",
        "sil_updates": 4,
    }

    n_steps: Count = 500
    """Steps per environment in one epoch, the unit of reports and evaluations. Does not change
    learning: rollout_steps does."""
    rollout_steps: Annotated[Count, searched("pow2:4..128", main=True)] = 5
    """Steps per environment between two updates, the n of n-step returns. More: better estimates,
    fewer updates. (n_steps in other libraries.)"""
    gae_lambda: Annotated[float, changing(ge=0, le=1), searched("logit:0.8..0.995", main=True)] = (
        1.0
    )
    """1: n-step returns, up to the end of the rollout, minus the value. Below 1: GAE. 0: one-step
    TD errors."""
    normalize_advantages: Annotated[Literal["rollout", "off"], live()] = "off"
    """Standardise advantages over the rollout, or not."""

    @property
    def rollout_rows(self) -> int:
        return min(self.n_steps, self.rollout_steps)
