"""The settings of behaviour cloning."""

from typing import Any, ClassVar, Literal, Self

from pydantic import model_validator

from gymnasium_solver.algos.configs.shared import DatasetFields
from gymnasium_solver.config.learner_blocks import MinibatchFields
from gymnasium_solver.config.schedule import NonNegativeSchedule, Schedule
from gymnasium_solver.config.schema import LearnerConfig
from gymnasium_solver.config.types import ActionDist, BatchSize, Count, Float


class BCConfig(DatasetFields, MinibatchFields, LearnerConfig):
    defaults: ClassVar[dict[str, Any]] = {
        "policy_lr": Schedule.constant(1e-3),
        "eval_freq_epochs": 5,
    }

    imitation_loss: Literal["auto", "nll", "mse"] = "auto"
    """What is minimised. nll: the negative log-probability of the demonstrated actions. mse: for
    real-valued actions the squared error of the most likely one, and the deviation is fitted to
    these errors (nll for the choices in a Dict). auto: mse where actions are real numbers, else
    nll."""
    action_dist: ActionDist = "auto"
    """Distribution of actions, as PPO has it. squashed: that of SAC, which can then start from this
    run."""
    log_std_init: Float = 0.0
    """Initial log standard deviation of continuous actions."""
    ent_coef: NonNegativeSchedule = Schedule.constant(0.0)
    """Weight of an entropy bonus. Higher: a less certain policy, which leaves more to explore for
    an algorithm that starts from it."""
    batch_size: BatchSize = 128
    """Demonstrated steps per gradient step, or a fraction in (0, 1] of an epoch. Larger: less noisy
    gradients, fewer gradient steps from the same data."""
    n_envs: Count = 1
    """Times n_steps: the demonstrated steps in one epoch. The environment is not stepped to
    learn."""
    n_steps: Count = 8192
    """Demonstrated steps in one epoch (times n_envs), the unit of reports and evaluations."""
    max_env_steps: Count | None = 500_000
    """Budget in demonstrated steps learnt from, over all passes through the dataset. null: no
    limit, `max_epochs` decides."""
    normalize_reward: bool | Literal["auto"] = False
    """Without effect: nothing is learnt from rewards."""

    # Read by the code that builds actors; behaviour cloning has neither memory nor a critic.
    recurrent: ClassVar[None] = None
    share_trunk: ClassVar[str] = "auto"
    critic_head: ClassVar[str] = "scalar"

    @model_validator(mode="after")
    def _check_rewards(self) -> Self:
        if self.intrinsic is not None:
            raise ValueError("intrinsic: bc learns from no rewards; remove it")
        return self

    @property
    def action_settings(self) -> dict[str, Any]:
        return {"dist": self.action_dist, "log_std_init": self.log_std_init}

    def notices(self) -> list[str]:
        clock = (
            "env steps count demonstrated steps learnt from; the environment is stepped in "
            "evaluations only"
        )
        return [*super().notices(), clock]
