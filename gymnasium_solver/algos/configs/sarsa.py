"""The settings of SARSA."""

from typing import Annotated, Any, ClassVar, Literal

from gymnasium_solver.config.learner_blocks import MinibatchFields
from gymnasium_solver.config.marks import searched
from gymnasium_solver.config.schedule import PositiveSchedule, Schedule, changing, scheduled
from gymnasium_solver.config.schema import LearnerConfig
from gymnasium_solver.config.types import BatchSize, Count


class SarsaConfig(MinibatchFields, LearnerConfig):
    defaults: ClassVar[dict[str, Any]] = {
        "policy_lr": Schedule.constant(1e-3),
        "max_grad_norm": 10.0,
        "activation": "relu",
    }

    n_steps: Annotated[Count, searched("pow2:4..128", main=True)] = 32
    """Steps per environment in a rollout: one epoch is n_envs x n_steps env steps and one update.
    More: longer returns for td_lambda, fewer updates."""
    batch_size: Annotated[BatchSize, searched("0.25,0.5,1.0")] = 1.0  # type: ignore[assignment]
    """Samples per gradient step, or a fraction in (0, 1] of the rollout. 1.0: one step per rollout.
    Smaller: more steps from the same data, each noisier."""
    td_lambda: Annotated[float, changing(ge=0, le=1), searched("0.0..0.95", main=True)] = 0.0
    """Lambda of the targets: 0 is the one-step target (biased), 1 the full return (high
    variance)."""
    exploration: Literal["epsilon_greedy", "boltzmann", "greedy"] = "epsilon_greedy"
    """Exploration in training. SARSA learns the values of this policy."""
    epsilon: Annotated[Schedule, scheduled(ge=0, le=1)] = Schedule.parse(
        {"start": 1.0, "end": 0.05, "to": 0.5}
    )
    """Probability of a random action with epsilon_greedy. Higher: explores more."""
    temperature: PositiveSchedule = Schedule.constant(1.0)
    """Temperature of boltzmann, in units of the values. Higher: more random."""
