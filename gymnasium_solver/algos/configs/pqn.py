"""The settings of PQN."""

from typing import Annotated, Any, ClassVar, Literal

from gymnasium_solver.config.learner_blocks import MinibatchFields, RecurrentFields
from gymnasium_solver.config.marks import searched
from gymnasium_solver.config.schedule import Schedule, changing, scheduled
from gymnasium_solver.config.schema import LearnerConfig
from gymnasium_solver.config.types import Count, EnvCount


class PQNConfig(RecurrentFields, MinibatchFields, LearnerConfig):
    defaults: ClassVar[dict[str, Any]] = {
        "batch_size": 128,
        "max_grad_norm": 10.0,
        "hidden_dims": (128, 128),
        "activation": "relu",
    }

    n_envs: EnvCount = 32
    """Number of parallel environments. auto: one per CPU. They replace a replay buffer: more give
    more varied, less correlated data."""
    n_steps: Annotated[Count, searched("pow2:4..128", main=True)] = 32
    """Steps per environment in a rollout: one epoch is n_envs x n_steps env steps and one update.
    More: longer returns, fewer updates."""
    n_epochs: Annotated[int, changing(ge=1, whole=True), searched("int:1..8", main=True)] = 4
    """Passes over each rollout. More: better use of the data, until it overfits."""
    td_lambda: Annotated[float, changing(ge=0, le=1), searched("0.0..0.95", main=True)] = 0.65
    """Lambda of the targets: 1 is the full return (high variance), 0 the one-step target
    (biased)."""
    epsilon: Annotated[Schedule, scheduled(ge=0, le=1)] = Schedule.parse(
        {"start": 1.0, "end": 0.05, "to": 0.5}
    )
    """Probability of a random action in training. Higher: explores more."""
    norm: Literal["layer", "rms"] | None = "layer"
    """Normalise the outputs of each hidden layer, which keeps learning stable without a target
    network: layer (LayerNorm) or rms (RMSNorm)."""
