"""The settings of PQN."""

from typing import Annotated, Literal

from gymnasium_solver.config.marks import searched
from gymnasium_solver.config.schedule import Schedule, changing, scheduled
from gymnasium_solver.config.schema import (
    Activation,
    BatchSize,
    Count,
    GradNorm,
    LearnerConfig,
    MinibatchFields,
    RecurrentFields,
)
from gymnasium_solver.config.types import EnvCount, HiddenDims


class PQNConfig(RecurrentFields, MinibatchFields, LearnerConfig):
    n_envs: EnvCount = 32
    """Number of parallel environments. auto: one per CPU. They replace a replay buffer: more give
    more varied, less correlated data."""
    n_steps: Annotated[Count, searched("pow2:4..128", main=True)] = 32
    """Steps per environment in a rollout: one epoch is n_envs x n_steps env steps and one update.
    More: longer returns, fewer updates."""
    batch_size: BatchSize = 128
    """Samples per minibatch, or a fraction in (0, 1] of the rollout (1.0: the whole rollout; 1: one
    sample). Larger: less noisy gradients, fewer gradient steps from the same data."""
    n_epochs: Annotated[int, changing(ge=1, whole=True), searched("int:1..8", main=True)] = 4
    """Passes over each rollout. More: better use of the data, until it overfits."""
    td_lambda: Annotated[float, changing(ge=0, le=1), searched("0.0..0.95", main=True)] = 0.65
    """Lambda of the targets: 1 is the full return (high variance), 0 the one-step target
    (biased)."""
    epsilon: Annotated[Schedule, scheduled(ge=0, le=1)] = Schedule.parse(
        {"start": 1.0, "end": 0.05, "to": 0.5}
    )
    """Probability of a random action in training. Higher: explores more."""
    max_grad_norm: GradNorm = 10.0
    """Clip the gradient norm to this value. null: no clipping."""
    hidden_dims: HiddenDims = (128, 128)
    """Width of each hidden layer. Wider: more capacity, slower, easier to overfit."""
    activation: Activation = "relu"
    """Activation function of the hidden layers."""
    norm: Literal["layer", "rms"] | None = "layer"
    """Normalise the outputs of each hidden layer, which keeps learning stable without a target
    network: layer (LayerNorm) or rms (RMSNorm)."""
